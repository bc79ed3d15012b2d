"""The pages of the key-value cache and the prefix tree over token ids that says which of them can be shared.

It hands out slot numbers only and knows nothing of tensors, models and schedules. A page holds one token, so
sharing is exact to the token and the rows of a choice tree need no copying when one path of them is kept.
Look-ups compare the tokens themselves; there is no hash that could collide.
"""

import heapq
from collections.abc import Sequence
from itertools import count


class Node:
    """A run of tokens below its parent, with the slots that hold their keys and values."""

    __slots__ = ("children", "parent", "refs", "slots", "tick", "tokens")

    def __init__(self, tokens: list[int], slots: list[int], parent: "Node | None", refs: int = 0):
        self.tokens = tokens
        self.slots = slots
        self.parent = parent
        self.refs = refs  # requests that stand at this node or below it
        self.children: dict[int, Node] = {}  # by first token
        self.tick = 0  # when it was last used


class KVCache:
    """Accounts for every slot: free + cached + active == total, at all times.

    A slot is active while a running request holds it (in a locked node of the tree, or privately), cached
    while only the tree holds it, free otherwise.
    """

    def __init__(self, num_slots: int, enable_prefix_caching: bool = True) -> None:
        self.num_slots = num_slots
        self.enabled = enable_prefix_caching
        self._ticks = count(1)
        self.reset()

    def reset(self) -> None:
        """Forget everything; no request may hold a slot any more."""
        self.root = Node([], [], None, refs=1)
        self._free = list(range(self.num_slots - 1, -1, -1))
        self._leaves: list[tuple[int, int, Node]] = []  # heap of eviction candidates, some outdated
        self._num_nodes = 1
        self.num_cached = 0
        self.num_active = 0

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_available(self) -> int:
        """Slots that an allocation can have: free ones and evictable ones."""
        return len(self._free) + self.num_cached

    def match(
        self, node: Node, tokens: Sequence[int], start: int, end: int
    ) -> tuple[Node, list[int]]:
        """Walk down from `node`, where tokens[:start] end, as far as tokens[start:end] are known.

        Returns the node reached and the slots passed, and holds them for the caller, who gives them back
        with `release`.
        """
        found: list[int] = []
        while start < end and (child := node.children.get(tokens[start])) is not None:
            length = _common(child.tokens, tokens, start, end)
            if length < len(child.tokens):
                child = self._split(child, length)
            self._lock(child)
            found += child.slots
            start += length
            node = child
        return node, found

    def peek(self, tokens: Sequence[int], end: int) -> tuple[int, int]:
        """How many of tokens[:end] `match` would find, and how many of those only the tree holds now."""
        node, start, cached = self.root, 0, 0
        while start < end and (child := node.children.get(tokens[start])) is not None:
            length = _common(child.tokens, tokens, start, end)
            start += length
            cached += length if child.refs == 0 else 0
            if length < len(child.tokens):
                break
            node = child
        return start, cached

    def allocate(self, count: int) -> list[int] | None:
        """`count` slots for the caller's own use, evicting what was unused longest; None if there are too few."""
        if count > self.num_available:
            return None
        if count > len(self._free):
            self._evict(count - len(self._free))
        cut = len(self._free) - count
        slots = self._free[cut:]
        del self._free[cut:]
        self.num_active += count
        return slots

    def free(self, slots: Sequence[int]) -> None:
        """Give back slots that were allocated and not committed."""
        self._free.extend(slots)
        self.num_active -= len(slots)

    def commit(self, node: Node, tokens: list[int], slots: list[int]) -> tuple[Node, list[int]]:
        """Put the caller's own slots for `tokens` below `node`, which the caller holds, into the tree.

        Returns the node where the tokens end, held for the caller, and the slots they have from now on: where
        the tree knew a token already its slot is taken and the caller's is freed.
        """
        node, known = self.match(node, tokens, 0, len(tokens))
        self.free(slots[: len(known)])
        own_tokens, own_slots = tokens[len(known) :], slots[len(known) :]
        if not own_tokens:
            return node, known
        if node.refs == 1 and not node.children and node.parent is not None:
            node.tokens += own_tokens  # a leaf that only the caller holds grows in place
            node.slots += own_slots
            return node, known + own_slots
        child = Node(list(own_tokens), list(own_slots), node, refs=1)
        node.children[own_tokens[0]] = child
        self._num_nodes += 1
        return child, known + own_slots

    def has_child(self, node: Node, token: int) -> bool:
        """Whether the tree knows `token` right after `node`."""
        return token in node.children

    def release(self, node: Node) -> None:
        """Let go of the path to `node`; what nobody else holds stays cached until it is evicted."""
        tick = next(self._ticks)
        step: Node | None = node
        while step is not None and step.parent is not None:
            step.refs -= 1
            step.tick = tick
            if step.refs == 0:
                self.num_active -= len(step.tokens)
                self.num_cached += len(step.tokens)
                self._offer(step)
            step = step.parent

    def _lock(self, node: Node) -> None:
        if node.refs == 0:
            self.num_cached -= len(node.tokens)
            self.num_active += len(node.tokens)
        node.refs += 1

    def _split(self, node: Node, at: int) -> Node:
        """Cut a node in two; the lower part keeps its identity for those who hold it."""
        upper = Node(node.tokens[:at], node.slots[:at], node.parent, node.refs)
        upper.tick = node.tick
        upper.children[node.tokens[at]] = node
        assert node.parent is not None
        node.parent.children[node.tokens[0]] = upper
        node.tokens = node.tokens[at:]
        node.slots = node.slots[at:]
        node.parent = upper
        self._num_nodes += 1
        return upper

    def _offer(self, node: Node) -> None:
        """Note an unused leaf as a candidate for eviction."""
        if node.refs or node.children or node.parent is None:
            return
        if (
            len(self._leaves) > 2 * self._num_nodes + 64
        ):  # mostly outdated entries: keep the live ones
            self._leaves = [entry for entry in self._leaves if self._evictable(entry)]
            heapq.heapify(self._leaves)
        heapq.heappush(self._leaves, (node.tick, id(node), node))

    def _evictable(self, entry: tuple[int, int, Node]) -> bool:
        tick, _, node = entry
        return node.tick == tick and not node.refs and not node.children and bool(node.tokens)

    def _evict(self, count: int) -> None:
        """Free `count` cached slots, from the ends of the leaves that were unused longest."""
        while count > 0:
            entry = heapq.heappop(self._leaves)
            if not self._evictable(entry):
                continue
            node = entry[2]
            taken = min(count, len(node.tokens))
            cut = len(node.tokens) - taken
            first = node.tokens[0]
            self._free.extend(node.slots[cut:])
            del node.slots[cut:], node.tokens[cut:]
            self.num_cached -= taken
            count -= taken
            if node.tokens:
                heapq.heappush(self._leaves, entry)
                continue
            parent = node.parent
            assert parent is not None
            del parent.children[first]
            self._num_nodes -= 1
            self._offer(parent)

    def check(self) -> None:
        """Assert the invariant by walking the whole tree (tests call it after every step)."""
        cached = locked = nodes = 0
        seen: list[int] = list(self._free)
        stack = [self.root]
        while stack:
            node = stack.pop()
            nodes += 1
            seen += node.slots
            assert len(node.tokens) == len(node.slots)
            assert node is self.root or node.tokens
            if node.refs:
                locked += len(node.tokens)
            else:
                cached += len(node.tokens)
            for first, child in node.children.items():
                assert child.parent is node and child.tokens[0] == first
                assert child.refs <= node.refs or node is self.root
                stack.append(child)
        assert len(seen) == len(set(seen)), "a slot is in two places"
        assert cached == self.num_cached
        assert locked <= self.num_active
        assert nodes == self._num_nodes
        assert self.num_free + self.num_cached + self.num_active == self.num_slots


def _common(run: list[int], tokens: Sequence[int], start: int, end: int) -> int:
    """Length of the longest common beginning of `run` and tokens[start:end]."""
    limit = min(len(run), end - start)
    if run[:limit] == tokens[start : start + limit]:
        return limit
    low, high = 0, limit  # run[:low] agrees, run[:high] does not
    while high - low > 1:
        middle = (low + high) // 2
        if run[low:middle] == tokens[start + low : start + middle]:
            low = middle
        else:
            high = middle
    return low
