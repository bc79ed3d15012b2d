"""The pages and the prefix tree on their own."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.kv_cache import KVCache, Node

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=12)


def fill(cache: KVCache, tokens: list[int]) -> list[int]:
    """Compute a prompt as a request would and let go of it."""
    node, slots = cache.match(cache.root, tokens, 0, len(tokens))
    new = cache.allocate(len(tokens) - len(slots))
    assert new is not None
    node, committed = cache.commit(node, tokens[len(slots) :], new)
    cache.release(node)
    cache.check()
    return slots + committed


def test_a_match_is_exact_to_the_token() -> None:
    cache = KVCache(32)
    slots = fill(cache, [1, 2, 3, 4, 5])
    for tokens, length in (([1, 2, 3, 4, 5, 6], 5), ([1, 2, 3, 9], 3), ([1, 9], 1), ([9], 0)):
        assert cache.peek(tokens, len(tokens)) == (length, length)
        node, found = cache.match(cache.root, tokens, 0, len(tokens))
        assert found == slots[:length]
        cache.check()
        cache.release(node)
    assert cache.num_cached == 5


def test_a_token_known_twice_is_kept_once() -> None:
    cache = KVCache(32)
    slots = fill(cache, [1, 2, 3])
    node, _ = cache.match(cache.root, [1, 2, 3], 0, 2)
    own = cache.allocate(1)
    assert own is not None
    node, kept = cache.commit(node, [3], own)
    assert kept == slots[2:]
    cache.release(node)
    cache.check()
    assert cache.num_cached == 3


def test_the_least_recently_used_leaf_goes_first() -> None:
    cache = KVCache(9)
    fill(cache, [1, 1, 1])
    fill(cache, [2, 2, 2])
    fill(cache, [3, 3, 3])
    fill(cache, [1, 1, 1])
    held = cache.allocate(4)
    cache.check()
    assert cache.peek([1, 1, 1], 3)[0] == 3
    assert cache.peek([2, 2, 2], 3)[0] == 0
    assert cache.peek([3, 3, 3], 3)[0] == 2  # no more than needed, from the end
    assert held is not None
    cache.free(held)
    cache.check()


def test_what_is_held_is_not_evicted() -> None:
    cache = KVCache(6)
    fill(cache, [1, 2, 3, 4])
    node, _ = cache.match(cache.root, [1, 2, 3], 0, 3)
    assert cache.num_available == 3
    assert cache.allocate(4) is None
    assert cache.allocate(3) is not None
    assert cache.peek([1, 2, 3, 4], 4)[0] == 3
    cache.release(node)
    cache.check()


def test_many_releases_keep_the_eviction_queue_short() -> None:
    cache = KVCache(64)
    for _ in range(5000):
        fill(cache, [1, 2, 3])
    assert len(cache._leaves) < 200


class Requests(RuleBasedStateMachine):
    """Random requests over few tokens, so that prefixes meet, against a plain model of the contents."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = KVCache(24)
        self.held: list[tuple[Node, list[int], list[int], list[int]]] = []
        self.contents: dict[int, tuple[int, ...]] = {}  # slot -> the prefix it was computed for

    def compute(self, slots: list[int], tokens: list[int], start: int) -> None:
        for offset, slot in enumerate(slots):
            self.contents[slot] = tuple(tokens[: start + offset + 1])

    @rule(tokens=TOKENS)
    def begin(self, tokens: list[int]) -> None:
        node, found = self.cache.match(self.cache.root, tokens, 0, len(tokens) - 1)
        for length, slot in enumerate(found, 1):
            assert self.contents[slot] == tuple(tokens[:length])
        new = self.cache.allocate(len(tokens) - len(found))
        if new is None:
            self.cache.release(node)
            return
        self.compute(new, tokens, len(found))
        self.held.append((node, tokens, found, new))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), more=TOKENS)
    def extend(self, data: st.DataObject, more: list[int]) -> None:
        index = data.draw(st.integers(0, len(self.held) - 1))
        node, tokens, found, new = self.held.pop(index)
        node, slots = self.cache.commit(node, tokens[len(found) :], new)
        for length, slot in enumerate(found + slots, 1):
            assert self.contents[slot] == tuple(tokens[:length])
        grown = self.cache.allocate(len(more))
        if grown is None:
            self.cache.release(node)
            return
        self.compute(grown, tokens + more, len(tokens))
        self.held.append((node, tokens + more, found + slots, grown))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), keep=st.booleans())
    def end(self, data: st.DataObject, keep: bool) -> None:
        index = data.draw(st.integers(0, len(self.held) - 1))
        node, tokens, found, new = self.held.pop(index)
        if keep:
            node, _ = self.cache.commit(node, tokens[len(found) :], new)
        else:
            self.cache.free(new)
        self.cache.release(node)

    @invariant()
    def accounts_for_every_slot(self) -> None:
        self.cache.check()

    def teardown(self) -> None:
        for node, _, _, new in self.held:
            self.cache.free(new)
            self.cache.release(node)
        self.cache.check()
        assert self.cache.num_active == 0
        everything = self.cache.allocate(24)
        assert everything is not None and sorted(everything) == list(range(24))


TestRequests = Requests.TestCase
TestRequests.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_without_prefix_caching_the_tree_is_left_alone() -> None:
    assert KVCache(4, enable_prefix_caching=False).enabled is False


@pytest.mark.parametrize("count", [0, 3])
def test_allocation_of_nothing_and_of_all(count: int) -> None:
    cache = KVCache(3)
    slots = cache.allocate(count)
    assert slots is not None and len(slots) == count
