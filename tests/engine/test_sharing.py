"""Queue, cache, preemption and counting: each test is named after what went wrong in other engines."""

import random

import pytest

from engine import LLM, OutOfMemory, QueueFull, Tokenizer
from engine.kv_cache import KVCache
from engine.request import Request, Status
from tests.engine.conftest import config
from tests.engine.test_kv_cache import fill
from tests.engine.test_scheduler import Pretended


class Colliding(int):
    """Token ids that all hash alike."""

    def __hash__(self) -> int:
        return 0


def test_a_hash_collision_does_not_read_another_requests_keys() -> None:
    rng = random.Random(0)
    host = Pretended(None, 400)
    for _ in range(40):  # the host compares the keys that every row reads with those of its prefix
        prompt = [Colliding(rng.randint(0, 2)) for _ in range(rng.randint(1, 12))]
        host.choice(prompt, [(Colliding(1),), (Colliding(2), Colliding(1))])
    host.run(rng)
    assert len(host.finished) == 40


def test_requests_with_different_salts_share_nothing() -> None:
    rng = random.Random(0)
    host = Pretended(None, 400)
    prompt = [4, 5, 6, 7]
    cached = []
    for salt in ("", "a", "b", "a", ""):
        request = host.choice(prompt, [(1,), (2,)], cache_salt=salt)
        host.run(rng)
        cached.append(request.cached_tokens)
    assert cached == [0, 0, 0, 3, 3]


def test_what_a_salt_began_is_forgotten_with_its_last_page() -> None:
    host = Pretended(None, 50)
    for i in range(1000):
        host.choice([1, 2, 3, 4], [(1,)], cache_salt=f"salt {i}")
        host.run(random.Random(0))
    assert len(host.cache.root.children) <= 50


def test_a_lookup_made_again_while_memory_is_short_counts_once(tokenizer: Tokenizer) -> None:
    rng = random.Random(0)
    host = Pretended(tokenizer, 60)
    host.choice([5] * 20, [(1,)])
    host.run(rng)
    host.text([1] * 10, 35)
    host.step(rng)
    waiting = host.choice([5] * 20 + [6] * 20, [(1,)])
    host.step(rng)
    assert waiting.status is Status.WAITING
    host.run(rng)
    assert waiting.cached_tokens <= 20


def test_what_is_computed_again_after_a_preemption_is_no_hit(tokenizer: Tokenizer) -> None:
    rng = random.Random(0)
    host = Pretended(tokenizer, 100, max_num_batched_tokens=64)
    request = host.text([5] * 12, 10)
    host.step(rng)
    host.scheduler.preempt(request)
    host.run(rng)
    assert (request.cached_tokens, host.scheduler.num_recomputed) == (
        0,
        0,
    )  # its rows were there still
    request = host.text([6] * 12, 10)
    host.step(rng)
    host.scheduler.preempt(request)
    everything = host.cache.allocate(100)
    assert everything is not None
    host.cache.free(everything)
    before = host.scheduler.num_recomputed
    host.run(rng)
    assert request.cached_tokens == 0
    assert host.scheduler.num_recomputed - before == 12


def abort_in(state: str, host: Pretended, rng: random.Random) -> Request:
    tree = [(i, i) for i in range(1, 9)]
    if state == "waiting":
        for i in range(8):
            host.text([i] * 3, 30)
        request = host.choice([9] * 4, [(1,), (2,)])
        host.step(rng)
    elif state == "mid-prompt":
        request = host.choice([9] * 80, [(1,)])
        host.step(rng)
        assert 0 < request.num_computed < 80
    elif state == "mid-tree":
        request = host.choice([9] * 12, tree)
        while request.num_computed <= 12:
            host.step(rng)
        assert request.num_left
    elif state == "preempted":
        request = host.text([9] * 12, 30)
        host.step(rng)
        host.scheduler.preempt(request)
    else:
        request = host.text([9] * 4, 30)
        for _ in range(5):
            host.step(rng)
    return request


@pytest.mark.parametrize("state", ["waiting", "mid-prompt", "mid-tree", "preempted", "generating"])
def test_abort_returns_the_pages_before_the_next_step(tokenizer: Tokenizer, state: str) -> None:
    rng = random.Random(0)
    host = Pretended(tokenizer, 400)
    request = abort_in(state, host, rng)
    before = host.cache.num_active
    held = request.num_computed
    host.scheduler.finish(request)
    host.cache.check()
    assert host.cache.num_active == before - held
    assert request not in host.scheduler.running + host.scheduler.waiting
    host.run(rng)
    assert request not in host.finished
    assert host.cache.num_active == 0


def test_a_pinned_prompt_stays_when_memory_is_short(tokenizer: Tokenizer) -> None:
    rng = random.Random(0)
    host = Pretended(tokenizer, 60)
    system = [7] * 20
    pin = host.text(system, 1, pin=True)
    host.run(rng)
    for i in range(20):
        host.choice([i + 10] * 35, [(1,)])
        host.run(rng)
        assert host.cache.peek(system, 20)[0] == 20
    with pytest.raises(OutOfMemory, match="20 are pinned"):
        host.choice([1] * 50, [(1,)])  # would never fit beside it
    host.choice(system + [1] * 35, [(1,)])  # shares it
    host.run(rng)
    assert host.scheduler.unpin(pin.request_id)
    assert not host.scheduler.unpin(pin.request_id)
    host.choice([1] * 50, [(1,)])
    host.run(rng)
    assert host.cache.peek(system, 20)[0] < 20


def test_at_most_half_of_the_cache_is_pinned(tokenizer: Tokenizer) -> None:
    rng = random.Random(0)
    host = Pretended(tokenizer, 60)
    for i in range(3):
        host.text([i] * 14, 1, pin=True)
    host.run(rng)
    assert host.cache.num_pinned == 28 and len(host.scheduler.pins) == 2


def test_a_pin_ends_where_its_prompt_does() -> None:
    cache = KVCache(20)
    node, _ = cache.match(cache.root, [1, 2], 0, 0)
    slots = cache.allocate(2)
    assert slots is not None
    node, _ = cache.commit(node, [1, 2], slots)
    cache.pin(node)
    cache.release(node)
    fill(cache, [1, 2, 3, 4])
    assert cache.num_pinned == 2 and cache.num_available == 18
    cache.check()


def waits(flood: int) -> list[int]:
    """Steps until each of ten requests of one run is done, with so many of another run ahead of them."""
    rng = random.Random(0)
    host = Pretended(None, 5000, max_num_seqs=64, max_num_batched_tokens=40, max_waiting=1000)
    for i in range(flood):
        host.choice([100 + i] * 8, [(1,), (2, 1)], client="run 1")
    own = [host.choice([10_000 + i] * 8, [(1,), (2, 1)], client="run 2") for i in range(10)]
    result: list[int] = []
    for step in range(1, 2000):
        host.step(rng)
        done = sum(r.status is Status.DONE for r in own)
        result += [step] * (done - len(result))
        if done == len(own):
            return result
    raise AssertionError("starved")


def test_a_flood_of_one_run_delays_another_at_most_twofold() -> None:
    alone, flooded = waits(0), waits(800)
    for one, other in zip(alone, flooded, strict=True):
        assert other <= 2 * one + 2  # the requests that run already, and one of the other's


def test_rows_given_to_two_waiting_runs_differ_by_less_than_their_largest_requests() -> None:
    rng = random.Random(0)
    host = Pretended(None, 50_000, max_num_seqs=3, max_num_batched_tokens=40, max_waiting=2000)
    for i in range(300):
        host.choice([100 + i] * rng.randint(1, 30), [(1,)], client="big")
        for j in range(3):
            host.choice([10_000 + 3 * i + j] * rng.randint(1, 10), [(1,)], client="small")
    for _ in range(100):
        host.step(rng)
        served = host.scheduler._served
        assert abs(served["big"] - served["small"]) <= 30 + 10


def test_having_asked_for_nothing_earns_a_run_nothing() -> None:
    rng = random.Random(0)
    host = Pretended(None, 5000, max_num_seqs=1, max_waiting=1000, long_prefill_token_threshold=16)
    for i in range(100):
        host.choice([100 + i] * 5, [(1,)], client="busy")
    for _ in range(50):
        host.step(rng)
    late = [host.choice([1000 + i] * 5, [(1,)], client="late") for i in range(40)]
    for _ in range(40):
        host.step(rng)
    assert 15 <= sum(r.status is Status.DONE for r in late) <= 22


def test_a_full_queue_refuses_the_run_that_filled_it_and_not_the_others() -> None:
    host = Pretended(None, 100, max_waiting=10)
    for _ in range(10):
        host.choice([1], [(1,)], client="flood")
    with pytest.raises(QueueFull):
        host.choice([1], [(1,)], client="flood")
    for _ in range(5):
        host.choice([1], [(1,)], client="other")
    with pytest.raises(QueueFull):
        host.choice([1], [(1,)], client="other")


def test_cached_prefixes_first_does_not_starve_a_cold_request() -> None:
    rng = random.Random(0)
    host = Pretended(None, 2000, max_num_seqs=1, max_waiting=200, long_prefill_token_threshold=10)
    host.choice([5] * 30, [(1,)])
    host.run(rng)
    cold = host.choice([6] * 30, [(1,)])
    passed = 0
    while cold.status is Status.WAITING:
        while host.scheduler.num_waiting < 50:
            host.choice([5] * 30, [(1,)])
        host.step(rng)
        passed += cold.status is Status.WAITING
        assert passed <= 33
    assert passed > 0, "a warm request may pass"


def test_a_long_prompt_leaves_short_requests_the_step_and_still_ends() -> None:
    rng = random.Random(0)
    host = Pretended(
        None, 9000, max_num_seqs=64, max_num_batched_tokens=512, long_prefill_token_threshold=128
    )
    long = host.choice([3] * 4000, [(1,)])
    assert sum(c.end - c.start for c in host.step(rng)) <= 128
    steps = 0
    while long.status is not Status.DONE:
        shorts = [host.choice([10 + i, steps], [(1,)]) for i in range(16)]
        chunks = host.step(rng)
        assert all(r.status is Status.DONE for r in shorts), "a short request waits for no long one"
        rows = sum(c.end - c.start for c in chunks if c.request is long)
        assert rows <= 32
        steps += 1
    assert steps < 400


def test_prompts_with_a_list_of_moves_do_not_crawl_beside_shorter_ones(checkpoint: str) -> None:
    """They took for long prompts what agents send every ply, so that 29 of 32 games waited."""
    core = LLM(config(checkpoint))._core
    first = [random.Random(i).choices(range(100, 300), k=80 + 20 * i) for i in range(10)]
    for prompt in first:
        core.add(core.intake.make_choice(prompt, [" a2a3", " b2b3"], None))
    steps = 0
    while core.busy:
        core.step()
        steps += 1
    assert steps == 1, "1,700 rows are less than a step may have"


def test_the_preempted_come_back_in_their_order(tokenizer: Tokenizer) -> None:
    rng = random.Random(0)
    host = Pretended(tokenizer, 1000, max_num_seqs=4)
    requests = [host.text([i] * 4, 20) for i in range(8)]
    host.step(rng)
    for request in (requests[2], requests[0], requests[1]):
        host.scheduler.preempt(request)
    host.step(rng)
    assert host.scheduler.running == requests[:4]
    host.run(rng)


def test_only_rows_of_ones_own_are_worth_a_preemption(tokenizer: Tokenizer) -> None:
    """Of two, the one with less to lose goes, though it shares more and has come earlier."""
    rng = random.Random(0)
    host = Pretended(tokenizer, 200, max_num_batched_tokens=64)
    first = host.text([1] * 4, 30)
    sharing = host.text([1] * 4 + [2] * 3, 30)
    host.text([3] * 20, 30)
    host.step(rng)
    assert host.scheduler._preempt_after(first, [])
    assert sharing.status is Status.WAITING


def test_stale_pins_are_gone_after_a_failed_step(tokenizer: Tokenizer) -> None:
    host = Pretended(tokenizer, 60)
    pin = host.text([7] * 20, 1, pin=True)
    host.run(random.Random(0))
    host.scheduler.drop_all()
    assert host.cache.num_pinned == 0
    assert not host.scheduler.unpin(pin.request_id)


def test_texts_in_half_the_memory_they_want_compute_hardly_anything_twice(
    tokenizer: Tokenizer,
) -> None:
    rng = random.Random(0)
    host = Pretended(tokenizer, 1000, max_num_seqs=32, max_num_batched_tokens=256)
    for i in range(32):
        host.text([5] * 100 + [10 + i], 60)
    host.run(rng)
    recomputed = host.scheduler.num_recomputed
    assert recomputed <= 0.05 * (host.computed - recomputed)
