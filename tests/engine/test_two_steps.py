"""Where the host works beside the device, a step is begun before the results of the last one are there."""

import random
from collections.abc import Callable, Sequence

import pytest

from engine import LLM, ChoiceParams, EngineError, OutOfMemory, SamplingParams
from engine.core import EngineCore, Event
from engine.kv_cache import KVCache
from engine.request import Request, Status
from engine.runner import Result
from engine.scheduler import Chunk
from tests.engine.conftest import MOVES, SYSTEM, config

CHOICES = [" " + move for move in MOVES[:40:2]]


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EngineCore, "overlaps", True)


def drain(core: EngineCore, requests: Sequence[Request] = ()) -> dict[str, Event]:
    found: dict[str, Event] = {}
    for request in requests:
        core.add(request)
    while core.busy:
        found |= {r.request_id: event for r, event in core.step() if not isinstance(event, str)}
    return found


def watched(core: EngineCore) -> list[str]:
    """Notes when steps of how many requests begin and end."""
    launch, notes = core.runner.launch, []

    def launched(chunks: Sequence[Chunk]) -> Callable[[], list[Result]]:
        notes.append(f"begin {len(chunks)}")
        finish = launch(chunks)

        def finished() -> list[Result]:
            notes.append(f"end {len(chunks)}")
            return finish()

        return finished

    core.runner.launch = launched  # type: ignore[method-assign]
    return notes


def test_what_came_meanwhile_is_begun_before_the_step_ends(checkpoint: str, beside: None) -> None:
    core = LLM(config(checkpoint))._core
    notes = watched(core)
    core.add(core.intake.make_choice(SYSTEM, CHOICES, None))
    assert core.step() == []  # begun
    core.add(core.intake.make_choice(SYSTEM + " a2a3", CHOICES, None))
    core.add(core.intake.make_choice(SYSTEM + " a2a4", CHOICES, None))
    assert len(core.step()) == 1
    assert len(core.step()) == 2
    assert notes == ["begin 1", "begin 2", "end 1", "end 2"]
    assert not core.busy


def test_texts_and_walks_wait_for_their_next_token(checkpoint: str, beside: None) -> None:
    """A step without them would go through the weights twice for what one does."""
    core = LLM(config(checkpoint))._core
    notes = watched(core)
    params = SamplingParams(max_tokens=5, temperature=0, ignore_eos=True)
    drain(core, [core.intake.make_text(SYSTEM + m, params) for m in (" a2a3", " b2b3")])
    masked = ChoiceParams(scoring="masked")
    drain(core, [core.intake.make_choice(SYSTEM + m, CHOICES, masked) for m in CHOICES[:3]])
    assert [note.split()[0] for note in notes] == ["begin", "end"] * (len(notes) // 2)
    assert notes[:10] == ["begin 2", "end 2"] * 5


def test_a_long_prompt_goes_on_before_its_first_part_is_computed(
    checkpoint: str, beside: None
) -> None:
    core = LLM(config(checkpoint, max_num_batched_tokens=32))._core
    notes = watched(core)
    request = core.intake.make_choice(SYSTEM + " a2a3" * 30, CHOICES, None)
    assert drain(core, [request]).keys() == {request.request_id}
    assert notes[:4] == ["begin 1", "begin 1", "end 1", "begin 1"]
    assert notes.count("begin 1") == notes.count("end 1")


def random_requests(core: EngineCore, seed: int) -> list[Request]:
    rng = random.Random(seed)
    requests = []
    for number in range(40):
        prompt = SYSTEM + "".join(" " + rng.choice(MOVES[:6]) for _ in range(rng.randint(0, 12)))
        if rng.random() < 0.3:
            write = SamplingParams(max_tokens=rng.randint(1, 9), seed=number)
            requests.append(core.intake.make_text(prompt, write))
        else:
            texts = [" " + move for move in rng.sample(MOVES, rng.randint(1, 25))]
            params = ChoiceParams(
                scoring="masked" if rng.random() < 0.3 else "likelihood", seed=number
            )
            requests.append(core.intake.make_choice(prompt, texts, params))
    return requests


def answer(event: Event) -> object:
    return getattr(event, "token_ids", None) or getattr(event, "text", event)


@pytest.mark.parametrize("scarce", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_answers_are_those_of_one_step_at_a_time(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch, seed: int, scarce: bool
) -> None:
    """With requests that come and go at any moment, and with memory for two or three of them, which are preempted."""
    found = []
    for overlaps in (False, True):
        monkeypatch.setattr(EngineCore, "overlaps", overlaps)
        core = LLM(
            config(checkpoint, max_num_batched_tokens=24 if scarce else 200, max_num_seqs=16)
        )._core
        core.cache = core.scheduler.cache = KVCache(220 if scarce else 4000)
        rng = random.Random(seed)
        requests = random_requests(core, seed)
        left = set(rng.sample(range(len(requests)), 6))  # are aborted at some time
        events: dict[int, Event] = {}
        number = {id(request): n for n, request in enumerate(requests)}
        queue = list(requests)
        while queue or core.busy:
            for _ in range(rng.randint(0, 4)):
                if queue:
                    core.add(queue.pop(0))
            for request, event in core.step():
                if not isinstance(event, str):
                    assert request.status is Status.DONE
                    assert number[id(request)] not in events
                    events[number[id(request)]] = event
            few = core.scheduler.num_preemptions < 10
            if scarce and few and (kept := [r for r in core.scheduler.running if r.num_left]):
                core.scheduler.preempt(rng.choice(kept))
            if left and rng.random() < 0.3 and not queue:
                core.abort(requests[left.pop()])
        core.cache.check()
        assert core.cache.num_active == 0
        assert scarce == bool(core.scheduler.num_preemptions)
        found.append({n: answer(event) for n, event in events.items()})
    alone, together = found
    both = alone.keys() & together.keys()  # which ones an abort comes in time for differs
    assert len(both) >= 28
    assert [alone[n] for n in both] == [together[n] for n in both]


def test_an_aborted_request_of_a_running_step_brings_nothing(checkpoint: str, beside: None) -> None:
    core = LLM(config(checkpoint))._core
    first, second = (core.intake.make_choice(SYSTEM + m, CHOICES, None) for m in (" a2a3", " b2b3"))
    core.add(first)
    core.add(second)
    core.step()
    assert core.abort(first)
    assert list(drain(core)) == [second.request_id]
    assert core.cache.num_active == 0


@pytest.mark.parametrize("when", ["begin", "end"])
def test_a_step_that_fails_behind_another_ends_both(
    checkpoint: str, beside: None, when: str
) -> None:
    core = LLM(config(checkpoint))._core
    launch = core.runner.launch
    first, second = (core.intake.make_choice(SYSTEM + m, CHOICES, None) for m in (" a2a3", " b2b3"))
    core.add(first)
    core.step()

    def fails(chunks: Sequence[Chunk]) -> Callable[[], list[Result]]:
        def finish() -> list[Result]:
            raise MemoryError

        return finish() if when == "begin" else finish  # type: ignore[return-value]

    core.runner.launch = fails  # type: ignore[method-assign]
    core.add(second)
    found = drain(core)
    assert isinstance(found[second.request_id], OutOfMemory)
    # The first one's results were there if only the wait for the second failed.
    assert isinstance(found[first.request_id], EngineError) == (when == "begin")
    core.runner.launch = launch  # type: ignore[method-assign]
    again = core.intake.make_choice(SYSTEM, CHOICES, None)
    assert not isinstance(drain(core, [again])[again.request_id], EngineError)
