"""Random adds, steps, aborts, preemptions, evictions, pins and salts, with the pool's invariant after each."""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine import OutOfMemory, QueueFull, Tokenizer
from engine.request import Request, Status
from tests.engine.test_scheduler import Pretended, tree_of

SLOTS = 60
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=20)
CLIENTS = st.sampled_from(["", "a", "b"])
SALTS = st.sampled_from(["", "", "x", "y"])


class Engine(RuleBasedStateMachine):
    tokenizer: Tokenizer | None = None

    def __init__(self) -> None:
        super().__init__()
        self.rng = random.Random(0)
        self.host = Pretended(
            self.tokenizer,
            SLOTS,
            max_num_seqs=5,
            max_num_batched_tokens=14,
            max_waiting=12,
            long_prefill_token_threshold=6,
        )
        self.live: list[Request] = []
        self.ended: set[str] = set()
        self.accepted = 0

    def _try(self, make: object, *args: object, **more: object) -> None:
        try:
            self.live.append(make(*args, **more))  # type: ignore[operator]
            self.accepted += 1
        except (QueueFull, OutOfMemory):
            pass  # refused at once, which is an answer

    @rule(tokens=TOKENS, seed=st.integers(0, 9), client=CLIENTS, salt=SALTS, urgent=st.booleans())
    def choose(self, tokens: list[int], seed: int, client: str, salt: str, urgent: bool) -> None:
        choices = tree_of(random.Random(seed))
        self._try(
            self.host.choice, tokens, choices, client=client, cache_salt=salt, priority=-urgent
        )

    @rule(tokens=TOKENS, length=st.sampled_from([1, 5, 30]), client=CLIENTS, salt=SALTS)
    def write(self, tokens: list[int], length: int, client: str, salt: str) -> None:
        self._try(self.host.text, tokens, length, client=client, cache_salt=salt)

    @rule(tokens=TOKENS, salt=SALTS)
    def pin(self, tokens: list[int], salt: str) -> None:
        self._try(self.host.text, tokens, 1, pin=True, cache_salt=salt)

    @precondition(lambda self: self.host.scheduler.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        pins = self.host.scheduler.pins
        assert self.host.scheduler.unpin(data.draw(st.sampled_from(sorted(pins))))

    @rule(count=st.integers(1, 4))
    def step(self, count: int) -> None:
        for _ in range(count):
            if self.host.scheduler.waiting or self.host.scheduler.running:
                assert self.host.step(self.rng), "nothing was scheduled though requests are there"

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.live))
        if request.status is not Status.DONE:
            self.host.scheduler.finish(request)
            self.ended.add(request.request_id)

    @precondition(lambda self: self.host.scheduler.running)
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.host.scheduler.running))
        self.host.scheduler.preempt(request)

    @rule(count=st.integers(1, SLOTS))
    def evict(self, count: int) -> None:
        slots = self.host.cache.allocate(min(count, self.host.cache.num_available))
        assert slots is not None
        self.host.cache.free(slots)

    @invariant()
    def accounts_for_every_slot(self) -> None:
        cache, scheduler = self.host.cache, self.host.scheduler
        cache.check()
        assert cache.num_pinned <= SLOTS // 2
        assert scheduler.num_waiting == len(scheduler.waiting)
        assert len(scheduler.running) <= 5
        if not scheduler.running:
            assert cache.num_active == 0

    def teardown(self) -> None:
        self.host.run(self.rng)
        ended = self.ended | {r.request_id for r in self.host.finished}
        assert len(ended) == self.accepted, "a request was dropped without an answer"
        for name in list(self.host.scheduler.pins):
            self.host.scheduler.unpin(name)
        self.host.cache.check()
        assert self.host.cache.num_active == self.host.cache.num_pinned == 0
        everything = self.host.cache.allocate(SLOTS)
        assert everything is not None and sorted(everything) == list(range(SLOTS))
        assert self.host.cache._num_nodes == 1


def _run(tokenizer: Tokenizer, examples: int, steps: int) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    machine = type("Engine", (Engine,), {"tokenizer": tokenizer})
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None),
    )


def test_the_pool_balances_after_every_step(tokenizer: Tokenizer) -> None:
    _run(tokenizer, 15, 40)


@pytest.mark.slow
def test_the_pool_balances_after_every_one_of_20000_steps(tokenizer: Tokenizer) -> None:
    _run(tokenizer, 250, 100)
