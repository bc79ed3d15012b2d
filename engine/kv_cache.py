"""The pages of the key-value cache and the prefix tree over token ids that says which of them can be shared.

It hands out slot numbers only and knows nothing of tensors, models and schedules. A page holds one token, so
sharing is exact to the token and the rows of a choice tree need no copying when one path of them is kept.
Look-ups compare the tokens themselves, so that no hash which collides can lead to another's keys. Sequences
with different salts begin at different nodes and share nothing.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import count


class Node:
    """A run of tokens below its parent, with the slots that hold their keys and values."""

    __slots__ = ("children", "parent", "pins", "refs", "salt", "slots", "tick", "tokens")

    def __init__(
        self,
        tokens: list[int],
        slots: list[int],
        parent: "Node | None",
        refs: int = 0,
        salt: str = "",
    ) -> None:
        self.tokens = tokens
        self.slots = slots
        self.parent = parent
        self.refs = refs  # requests that stand at this node or below it
        self.pins = 0  # pins of this node or one below it
        self.children: dict[int | str, Node] = {}  # by first token; below the root also by salt
        self.tick = 0  # when it was last used
        self.salt = salt  # of the sequences that begin at this node, which has no tokens then


class KVCache:
    """Accounts for every slot: free + cached + active == total, at all times.

    A slot is active while a running request holds it (in a locked node of the tree, or privately), cached
    while only the tree holds it, free otherwise. Cached slots that are pinned are not evicted.
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
        self.num_pinned = 0  # active or cached
        self._num_pinned_idle = 0  # those of them that are cached

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_available(self) -> int:
        """Slots that an allocation can have: free ones and evictable ones."""
        return len(self._free) + self.num_cached - self._num_pinned_idle

    def begin(self, salt: str = "") -> Node:
        """Where sequences with this salt begin, held for the caller, who lets go of it with `release`."""
        if not salt:
            return self.root
        node = self.root.children.get(salt)
        if node is None:
            node = self.root.children[salt] = Node([], [], self.root, salt=salt)
            self._num_nodes += 1
        node.refs += 1
        return node

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

    def peek(self, tokens: Sequence[int], end: int, salt: str = "") -> tuple[int, int]:
        """How many of tokens[:end] `match` would find, and how many of those count as available now."""
        start = cached = 0
        for node, length in self._walk(tokens, end, salt):
            start += length
            cached += length if not node.refs and not node.pins else 0
        return start, cached

    def peek_pinned(self, tokens: Sequence[int], end: int, salt: str = "") -> int:
        """How many of tokens[:end] are pinned."""
        return sum(length for node, length in self._walk(tokens, end, salt) if node.pins)

    def _walk(self, tokens: Sequence[int], end: int, salt: str) -> Iterator[tuple[Node, int]]:
        """The nodes that hold tokens[:end], and how many of them each holds, as far as they are known."""
        start = 0
        node = self.root.children.get(salt) if salt else self.root
        while node and start < end and (node := node.children.get(tokens[start])) is not None:
            length = _common(node.tokens, tokens, start, end)
            start += length
            yield node, length
            if length < len(node.tokens):
                return

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
        if node.refs == 1 and node.tokens and not node.children and not node.pins:
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
                if step.pins:
                    self._num_pinned_idle += len(step.tokens)
            above = step.parent
            self._offer(step)
            step = above

    def pin(self, node: Node) -> None:
        """Keep the path to `node`, which the caller holds, from eviction until `unpin`."""
        step: Node | None = node
        while step is not None and step.parent is not None:
            if not step.pins:
                self.num_pinned += len(step.tokens)
            step.pins += 1
            step = step.parent

    def unpin(self, node: Node) -> None:
        """Undo one `pin`."""
        step: Node | None = node
        while step is not None and step.parent is not None:
            step.pins -= 1
            if not step.pins:
                self.num_pinned -= len(step.tokens)
                if not step.refs:
                    self._num_pinned_idle -= len(step.tokens)
            above = step.parent
            self._offer(step)
            step = above

    def _lock(self, node: Node) -> None:
        if node.refs == 0:
            self.num_cached -= len(node.tokens)
            self.num_active += len(node.tokens)
            if node.pins:
                self._num_pinned_idle -= len(node.tokens)
        node.refs += 1

    def _split(self, node: Node, at: int) -> Node:
        """Cut a node in two; the lower part keeps its identity for those who hold it."""
        upper = Node(node.tokens[:at], node.slots[:at], node.parent, node.refs)
        upper.tick = node.tick
        upper.pins = node.pins
        upper.children[node.tokens[at]] = node
        assert node.parent is not None
        node.parent.children[node.tokens[0]] = upper
        node.tokens = node.tokens[at:]
        node.slots = node.slots[at:]
        node.parent = upper
        self._num_nodes += 1
        return upper

    def _offer(self, node: Node) -> None:
        """Note an unused leaf as a candidate for eviction; where a salt begins without a sequence it goes at once."""
        if node.refs or node.pins or node.children or node.parent is None:
            return
        if not node.tokens:
            del node.parent.children[node.salt]
            self._num_nodes -= 1
            return
        if (
            len(self._leaves) > 2 * self._num_nodes + 64
        ):  # mostly outdated entries: keep the live ones
            self._leaves = [entry for entry in self._leaves if self._evictable(entry)]
            heapq.heapify(self._leaves)
        heapq.heappush(self._leaves, (node.tick, id(node), node))

    def _evictable(self, entry: tuple[int, int, Node]) -> bool:
        tick, _, node = entry
        if node.refs or node.pins or node.children:
            return False
        return node.tick == tick and bool(node.tokens)

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
        cached = locked = nodes = pinned = pinned_idle = 0
        seen: list[int] = list(self._free)
        stack = [self.root]
        while stack:
            node = stack.pop()
            nodes += 1
            seen += node.slots
            assert len(node.tokens) == len(node.slots)
            if node.refs:
                locked += len(node.tokens)
            else:
                cached += len(node.tokens)
            if node.pins:
                pinned += len(node.tokens)
                pinned_idle += 0 if node.refs else len(node.tokens)
            for first, child in node.children.items():
                assert child.parent is node
                assert child.tokens[:1] == ([] if isinstance(first, str) else [first])
                assert child.tokens or child.refs or child.pins or child.children
                assert node is self.root or (child.refs <= node.refs and child.pins <= node.pins)
                stack.append(child)
        assert len(seen) == len(set(seen)), "a slot is in two places"
        assert cached == self.num_cached
        assert locked <= self.num_active
        assert nodes == self._num_nodes
        assert (pinned, pinned_idle) == (self.num_pinned, self._num_pinned_idle)
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
