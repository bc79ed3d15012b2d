"""The scheduler with a pretended model: every key a row reads must be the one of its own prefix."""

import random
from contextlib import suppress
from typing import Any

import pytest

from engine import ChoiceParams, OutOfMemory, QueueFull, SamplingParams, Tokenizer
from engine.choice import ChoiceTree
from engine.kv_cache import KVCache
from engine.request import ChoiceTask, Request, Status
from engine.scheduler import Chunk, Scheduler
from engine.text import TextTask


class Pretended:
    """Scheduler, cache, and a record of which prefix each slot was computed for."""

    def __init__(self, tokenizer: Tokenizer | None, num_slots: int, **settings: Any) -> None:
        limits = {"max_num_seqs": 8, "max_num_batched_tokens": 16, "max_waiting": 100}
        enabled = settings.pop("enable_prefix_caching", True)
        self.cache = KVCache(num_slots, enabled)
        self.scheduler = Scheduler(self.cache, **(limits | settings))
        self.tokenizer = tokenizer
        self.contents: dict[int, tuple[int | str, ...]] = {}
        self.computed = 0
        self.finished: list[Request] = []
        self._serial = 0

    def choice(self, tokens: list[int], choices: list[tuple[int, ...]], **more: Any) -> Request:
        texts = tuple(str(ids) for ids in choices)
        task = ChoiceTask(texts, ChoiceTree(choices), ChoiceParams())
        return self._add(Request(self._name(), tokens, task, 0, **more))

    def text(self, tokens: list[int], max_tokens: int, **more: Any) -> Request:
        assert self.tokenizer is not None
        task = TextTask(SamplingParams(max_tokens=max_tokens), max_tokens, self.tokenizer)
        return self._add(Request(self._name(), tokens, task, 0, **more))

    def _name(self) -> str:
        self._serial += 1
        return str(self._serial)

    def _add(self, request: Request) -> Request:
        self.scheduler.add(request)
        return request

    def prefix(self, request: Request, row: int) -> tuple[int | str, ...]:
        """The salt and the tokens that row `row` of a request stands for, from the prompt's first on."""
        if row < len(request.tokens):
            return (request.cache_salt, *request.tokens[: row + 1])
        tree = request.tree
        assert tree is not None
        node, above = row - len(request.tokens) + 1, []
        while node > 0:
            above.append(int(tree.tokens[node]))
            node = int(tree.parents[node])
        return (request.cache_salt, *request.tokens, *above[::-1])

    def step(self, rng: random.Random) -> list[Chunk]:
        chunks = self.scheduler.schedule()
        assert sum(c.end - c.start for c in chunks) <= self.scheduler.max_num_batched_tokens
        written = [int(slot) for c in chunks for slot in c.request.slots[c.start : c.end]]
        assert len(written) == len(set(written)), "two rows write one slot"
        for chunk in chunks:
            for row in range(chunk.start, chunk.end):
                self.contents[int(chunk.request.slots[row])] = self.prefix(chunk.request, row)
                self.computed += 1
        for chunk in chunks:
            for row in range(chunk.end):
                assert self.contents[int(chunk.request.slots[row])] == self.prefix(
                    chunk.request, row
                )
        self.cache.check()
        for chunk in chunks:
            self._take(chunk, rng)
        self.cache.check()
        return chunks

    def _take(self, chunk: Chunk, rng: random.Random) -> None:
        request = chunk.request
        if request.num_left:
            return
        if isinstance(request.task, TextTask):
            token = rng.randint(0, 2)
            request.task.token_ids.append(token)
            if len(request.task.token_ids) < request.task.max_tokens:
                request.tokens.append(token)
                return
            if request.pin:
                with suppress(OutOfMemory):
                    self.scheduler.pin(request)
            self.scheduler.finish(request)
        else:
            tree = request.task.tree
            self.scheduler.finish(request, tree.path(rng.randrange(tree.num_choices)))
        self.finished.append(request)

    def run(self, rng: random.Random, limit: int = 10_000) -> int:
        steps = 0
        while self.scheduler.waiting or self.scheduler.running:
            assert self.step(rng), "nothing was scheduled though requests are there"
            steps += 1
            assert steps < limit
        return steps


def tree_of(rng: random.Random) -> list[tuple[int, ...]]:
    choices = {
        tuple(rng.randint(0, 2) for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(1, 5))
    }
    return sorted(choices)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("caching", [True, False])
def test_random_requests_aborts_and_preemptions(
    tokenizer: Tokenizer, seed: int, caching: bool
) -> None:
    rng = random.Random(seed)
    host = Pretended(
        tokenizer,
        num_slots=rng.choice([90, 120, 200]),
        max_num_seqs=rng.randint(1, 8),
        max_num_batched_tokens=rng.randint(1, 24),
        enable_prefix_caching=caching,
    )
    live: list[Request] = []
    ended = 0
    for _ in range(400):
        for _ in range(rng.randint(0, 2)):
            tokens = [rng.randint(0, 1) for _ in range(rng.randint(1, 20))]
            priority = rng.choice([0, 0, 1])
            if rng.random() < 0.5:
                live.append(host.choice(tokens, tree_of(rng), priority=priority))
            else:
                live.append(host.text(tokens, rng.choice([1, 5, 60]), priority=priority))
        if live and rng.random() < 0.15:
            request = live.pop(rng.randrange(len(live)))
            if request.status is not Status.DONE:
                host.scheduler.finish(request)
                ended += 1
        if host.scheduler.waiting or host.scheduler.running:
            host.step(rng)
        while len(host.scheduler.waiting) > 60:
            host.step(rng)
    host.run(rng)
    assert len(host.finished) + ended == host._serial
    assert host.cache.num_active == 0


def test_preemption_happens_and_little_is_computed_again(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.scheduler._GROWTH", 8)  # admit what is bound to outgrow the memory
    rng = random.Random(0)
    host = Pretended(tokenizer, num_slots=100, max_num_seqs=8, max_num_batched_tokens=64)
    requests = [host.text([rng.randint(0, 9) for _ in range(10)], 40) for _ in range(8)]
    host.run(rng)
    assert host.scheduler.num_preemptions > 0
    useful = sum(len(request.tokens) for request in requests)
    assert host.computed <= 1.3 * useful
    # the earlier a request came the earlier it ended: nobody lost its place
    assert host.finished[0] is requests[0]


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33])
@pytest.mark.parametrize("known", ["nothing", "all", "all but one"])
def test_lengths_around_the_budget(length: int, known: str) -> None:
    """The step's budget is 16 rows: prompts at its multiples, wholly known or not, get their last row."""
    rng = random.Random(0)
    host = Pretended(None, num_slots=200)
    tokens = [7 + i % 3 for i in range(length)]
    if known != "nothing":
        host.choice(tokens if known == "all" else tokens[:-1] or [1], [(1,), (2, 3)])
        host.run(rng)
    before = host.computed
    request = host.choice(tokens, [(1,), (2, 3)])
    host.run(rng)
    assert request.status is Status.DONE
    rows = 2  # the last token's and that of (2,)
    assert host.computed - before == (length + 1 if known == "nothing" else rows)
    assert request.cached_tokens == (0 if known == "nothing" else length - 1)


def test_the_next_ply_computes_at_most_one_token_seen_before() -> None:
    rng = random.Random(0)
    host = Pretended(None, num_slots=1000, max_num_batched_tokens=512)
    transcript = [5] * 50
    for _ in range(10):
        before = host.computed
        request = host.choice(list(transcript), [(1, 2, 3), (1, 4, 5), (6, 7, 8)])
        host.run(rng)
        seen = request.cached_tokens
        tree = request.task.tree  # type: ignore[union-attr]
        assert host.computed - before == len(transcript) - seen + tree.num_inner - 1
        chosen = next(
            ids
            for ids in [(1, 2, 3), (1, 4, 5), (6, 7, 8)]
            if host.cache.peek([*transcript, *ids[:2]], len(transcript) + 2)[0]
            == len(transcript) + 2
        )
        if len(transcript) > 50:
            assert len(transcript) - seen <= 2 + 1  # the reply's last token, and what was added
        transcript += [*chosen, 9]


def test_simultaneous_requests_compute_a_common_prefix_once() -> None:
    rng = random.Random(0)
    host = Pretended(None, num_slots=4000, max_num_seqs=64, max_num_batched_tokens=100)
    system = [rng.randint(0, 99) for _ in range(275)]
    prompts = [[*system, 100 + i, 200 + i, 300 + i] for i in range(64)]
    requests = [host.choice(prompt, [(1,), (2,)]) for prompt in prompts]
    host.run(rng)
    unique = len({tuple(p[: n + 1]) for p in prompts for n in range(len(p))})
    assert host.computed == unique
    assert sum(len(r.tokens) - r.cached_tokens for r in requests) == unique


def test_identical_requests_in_one_step_share_all_but_the_last_token() -> None:
    rng = random.Random(0)
    host = Pretended(None, num_slots=200, max_num_batched_tokens=64)
    for _ in range(8):
        host.choice([1, 2, 3, 4, 5], [(1,), (2,)])
    assert host.run(rng) == 1
    assert host.computed == 5 + 7
    assert host.cache.num_cached == 5


def test_priorities_go_first_then_arrival() -> None:
    rng = random.Random(0)
    host = Pretended(None, num_slots=200, max_num_seqs=1)
    order = [host.choice([i, i, i], [(1,)], priority=p) for i, p in enumerate([1, 0, 1, 0, -1])]
    host.run(rng)
    assert host.finished == [order[i] for i in (4, 1, 3, 0, 2)]


def test_a_long_prompt_does_not_keep_short_requests_waiting() -> None:
    rng = random.Random(0)
    host = Pretended(None, num_slots=1000, max_num_batched_tokens=40)
    long = host.choice([3] * 400, [(1,)])
    host.step(rng)
    short = [host.choice([i, i], [(1,)]) for i in range(4)]
    host.step(rng)
    assert all(request.status is Status.DONE for request in short)
    assert long.status is Status.RUNNING
    host.run(rng)


def test_a_request_blocked_by_memory_is_overtaken_a_bounded_number_of_times(
    tokenizer: Tokenizer,
) -> None:
    rng = random.Random(0)
    host = Pretended(tokenizer, num_slots=100, max_num_seqs=8, max_num_batched_tokens=64)
    host.text([1] * 30, 60)
    host.step(rng)
    big = host.choice([2] * 90, [(1,)])
    small = [host.choice([9, i, i], [(1,)]) for i in range(60)]
    host.step(rng)
    assert big.status is Status.WAITING
    assert small[0].status is Status.DONE, "a blocked head must not stall what fits"
    while big.status is Status.WAITING:
        host.step(rng)
    assert len(host.finished) <= 1 + 32 + 8  # the text, the bound, and what one step admits
    host.run(rng)


def test_the_queue_is_bounded() -> None:
    host = Pretended(None, num_slots=100, max_waiting=3)
    for _ in range(3):
        host.choice([1], [(1,)])
    with pytest.raises(QueueFull, match="3 requests wait already"):
        host.choice([1], [(1,)])
