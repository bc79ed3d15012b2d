"""Which rows of which requests the next step computes. Touches no tensors and no clock.

Running requests go first, then waiting ones; rows of long prompts are the last, and few of them ride with
others. What a step computes is put into the prefix tree when it is scheduled, not when it is done: within one
pass every layer writes its keys and values before it reads them, so a second request with the same prefix
shares it in the very same step.
"""

import heapq
from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.errors import OutOfMemory, QueueFull
from engine.kv_cache import KVCache, Node
from engine.request import Request, Status
from engine.text import TextTask

# Admissions past a request that has to wait, before it is admitted ahead of those behind it or blocks them.
_MAX_OVERTAKEN = 32
# Waiting requests looked at in one step.
_SCAN = 256
# Rows kept free for each text that will grow, so that admissions do not cause preemptions.
_GROWTH = 256
# Rows that long prompts get in any step, however many short requests there are.
_MIN_LONG = 22
# Attending to this many keys costs a row about as much as the rest of the model does.
_FAR = 2048


@dataclass(frozen=True)
class Chunk:
    """Rows start..end-1 of a request, to be computed in this step."""

    request: Request
    start: int
    end: int


class Scheduler:
    """Keeps the waiting and the running requests, and hands out the slots of their rows.

    Order: by priority; between clients, the one that was given the fewest rows; within one, by arrival. While
    two clients of one priority have requests waiting, the rows of what was admitted for the one and for the
    other differ by at most those of the largest request of each (start-time fair queueing, Goyal et al. 1996).
    """

    def __init__(
        self,
        cache: KVCache,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_waiting: int,
        long_prefill_token_threshold: int | None = None,
        long_step_rows: int | None = None,
    ) -> None:
        """long_step_rows: of all long prompts in a step, at most; None allows one whole prompt that is not long."""
        self.cache = cache
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_waiting = max_waiting
        quarter = max(max_num_batched_tokens // 4, 1)
        self.long_rows = min(long_prefill_token_threshold or quarter, max_num_batched_tokens)
        self._long_step_rows = min(long_step_rows or self.long_rows, self.long_rows)
        self.running: list[Request] = []
        self.num_waiting = 0
        self.num_preemptions = 0
        self.num_recomputed = 0  # rows that their request had before it was preempted
        self.pins: dict[str, Node] = {}  # by the name of the request that computed them
        self._queues: dict[str, list[Request]] = {}  # of each client that waits
        self._served: dict[str, int] = {}  # rows given to each client, on one scale for all
        self._clock = 0  # what the client served last had been given before
        self._short_rows = 0.0  # of short requests, the mean of recent steps
        self._arrivals = 0

    @property
    def waiting(self) -> list[Request]:
        return [request for queue in self._queues.values() for request in queue]

    def is_full(self, client: str, incoming: Sequence[Request] = ()) -> bool:
        """Whether one more request of this client is too much, with `incoming` about to be added.

        A client that has less than its equal share of the queue waiting is let in though the others fill it.
        """
        if self.num_waiting + len(incoming) < self.max_waiting:
            return False
        own = len(self._queues.get(client, ())) + sum(r.client == client for r in incoming)
        clients = {client, *list(self._queues), *(r.client for r in incoming)}
        return own >= self.max_waiting // len(clients)

    def add(self, request: Request) -> None:
        """Queue a request, which fits the empty cache. Raises QueueFull, or OutOfMemory when pins leave too little."""
        if self.is_full(request.client):
            raise queue_full(self.max_waiting)
        self._check_beside_pins(request)
        request.status = Status.WAITING
        self._arrivals += 1
        request.arrival = self._arrivals
        if request.client not in self._queues:  # having asked for nothing earns nothing
            self._served[request.client] = max(self._served.get(request.client, 0), self._clock)
        self._enqueue(request)

    def _enqueue(self, request: Request) -> None:
        insort(self._queues.setdefault(request.client, []), request, key=lambda r: r.order)
        self.num_waiting += 1

    def _dequeue(self, request: Request) -> None:
        queue = self._queues[request.client]
        queue.remove(request)
        self.num_waiting -= 1
        if not queue:
            del self._queues[request.client]
            if (
                len(self._served) > 2 * len(self._queues) + 64
            ):  # what lies behind the clock says nothing
                self._served = {
                    c: n for c, n in self._served.items() if n > self._clock or c in self._queues
                }

    def _given(self, client: str) -> int:
        return self._served.get(client, self._clock)

    def schedule(self) -> list[Chunk]:
        """The rows of the next step, at most max_num_batched_tokens; their slots are assigned."""
        chunks: list[Chunk] = []
        budget = self.max_num_batched_tokens
        is_long = [self._is_long(request) for request in self.running]
        kept = min(_MIN_LONG, max(budget // 4, 1)) if any(is_long) else 0
        budget -= kept
        later: list[Request] = []
        for request, long in zip(list(self.running), is_long, strict=True):
            if request.status is not Status.RUNNING:
                continue  # preempted for the sake of an earlier one
            if not request.num_left:
                continue  # its last rows are in the step that is being computed
            if long and not request.stalled:
                later.append(request)
            elif long:
                kept -= self._give(request, kept, chunks)
            else:
                budget -= self._give(request, budget, chunks)
        budget, cold = self._admit(budget, bool(later), chunks)
        budget += kept
        short = self.max_num_batched_tokens - budget
        # The time of its steps is what a short request waits: long prompts may about double it. A request comes with
        # many rows and goes on with few, so it is the mean of some steps that counts.
        self._short_rows += (short - self._short_rows) / 8
        allowed = self._long_step_rows
        if short or self._short_rows >= 1:
            allowed = min(max(int(self._short_rows), _MIN_LONG), allowed)
        allowed = min(allowed, budget)
        for request in later:
            if allowed > 0 and request.status is Status.RUNNING:
                allowed -= self._give(request, allowed, chunks)
        self._admit_cold(cold, allowed, chunks)
        return chunks

    def _is_long(self, request: Request) -> bool:
        """What began as a long prompt is one to its end."""
        request.long = request.num_left > (_MIN_LONG if request.long else self.long_rows)
        return request.long

    def _give(self, request: Request, limit: int, chunks: list[Chunk]) -> int:
        """Schedule up to `limit` rows of a running request, preempting later ones for it. Returns how many."""
        if limit <= 0:
            return 0
        if self._is_long(request):
            limit = max(limit * _FAR // (_FAR + request.num_computed), 1)
        chunk = self._advance(request, limit)
        while chunk is None and self._preempt_after(request, chunks):
            chunk = self._advance(request, limit)
        # Those behind it that are in this step already stay; in the next one it comes before them.
        request.stalled = chunk is None
        if chunk is None:
            return 0
        chunks.append(chunk)
        if chunk.end > request.charged:
            self._served[request.client] = self._given(request.client) + chunk.end - request.charged
            request.charged = chunk.end
        return chunk.end - chunk.start

    def _admit(
        self, budget: int, long_is_running: bool, chunks: list[Chunk]
    ) -> tuple[int, list[Request]]:
        """Start waiting requests with few rows left to compute, in order, and any whose turn it is.

        Returns the rows left, and those passed over because they have many.
        """
        cold: list[Request] = []
        if budget <= 0 or not self.num_waiting or len(self.running) >= self.max_num_seqs:
            return budget, cold
        reserved = self._reserved()
        passed: list[tuple[Request, int]] = []
        admitted = 0
        for request in self._in_order():
            if budget <= 0 or len(self.running) >= self.max_num_seqs:
                break
            needed, fits = self._look_up(request, reserved)
            due = request.overtaken >= _MAX_OVERTAKEN
            if not fits and due:
                break
            if not fits or (needed > self.long_rows and not due):
                if fits:
                    cold.append(request)
                # While a long prompt runs the next one waits for that, not for those that pass it.
                if not fits or not long_is_running:
                    passed.append((request, admitted))
                continue
            limit = _MIN_LONG if needed > self.long_rows else budget
            budget -= self._start(request, needed, min(limit, budget), chunks)
            reserved += request.num_left + _growth(request)
            admitted += 1
        for request, before in passed:
            request.overtaken += admitted - before
        return budget, cold

    def _admit_cold(self, cold: list[Request], allowed: int, chunks: list[Chunk]) -> None:
        reserved = self._reserved() if cold else 0
        for request in cold:
            if allowed <= 0 or len(self.running) >= self.max_num_seqs:
                return
            # Since it was passed over, others may have brought part of its prompt, or taken the memory.
            needed, fits = self._look_up(request, reserved)
            if fits:
                allowed -= self._start(request, needed, allowed, chunks)
                reserved += request.num_left + _growth(request)

    def _in_order(self) -> Iterator[Request]:
        """The first waiting requests; the caller may start each before it asks for the next."""

        def entry(client: str, at: int) -> tuple[int, bool, int, int, str, int]:
            request = self._queues[client][at]
            # One that was preempted has been served already: it only wants back what it was given.
            new = not request.preemptions
            return request.priority, new, self._given(client) * new, request.arrival, client, at

        heads = [entry(client, 0) for client in self._queues]
        heapq.heapify(heads)
        for _ in range(_SCAN):
            if not heads:
                return
            *_, client, at = heapq.heappop(heads)
            request = self._queues[client][at]
            yield request
            if request.status is Status.WAITING:
                at += 1
            if at < len(self._queues.get(client, ())):
                heapq.heappush(heads, entry(client, at))

    def _reserved(self) -> int:
        return sum(r.num_left + _growth(r) for r in self.running)

    def _look_up(self, request: Request, reserved: int) -> tuple[int, bool]:
        """The rows that the tree does not know, and whether they fit beside those of the running requests."""
        tokens = request.tokens
        known, idle = self.cache.peek(tokens, len(tokens) - 1, request.cache_salt)
        needed = request.num_rows - known
        wanted = needed + idle + _growth(request) + reserved
        return needed, not self.running or wanted <= self.cache.num_available

    def _start(self, request: Request, needed: int, limit: int, chunks: list[Chunk]) -> int:
        if not request.preemptions:
            given = self._given(request.client)
            self._clock = max(self._clock, given)
            self._served[request.client] = given + max(needed, 1)
        request.charged = max(request.charged, request.num_rows)
        request.long = needed > self.long_rows
        self._dequeue(request)
        request.status = Status.RUNNING
        request.node = self.cache.begin(request.cache_salt)
        insort(self.running, request, key=lambda r: r.order)
        chunk = self._advance(request, limit)
        assert chunk is not None, "admission reserves the rows it counts"
        chunks.append(chunk)
        return chunk.end - chunk.start

    def _advance(self, request: Request, limit: int) -> Chunk | None:
        """Take what others have computed of the request's tokens, then slots for the next rows."""
        self._commit(request, request.num_computed)
        if self.cache.enabled and request.num_committed == request.num_computed:
            assert request.node is not None
            # The last token gets a row of its own in any case: its output is what is asked for.
            start = request.num_computed
            request.node, found = self.cache.match(
                request.node, request.tokens, start, len(request.tokens) - 1
            )
            request.add_slots(found)
            request.num_committed += len(found)
            # A hit is a token of the prompt that the request never had: not what it lost and found again.
            end = min(request.num_computed, request.prompt_len)
            request.cached_tokens += max(end - max(start, request.most_computed), 0)
            request.most_computed = max(request.most_computed, request.num_computed)
        start = request.num_computed
        slots = self.cache.allocate(min(limit, request.num_left))
        if slots is None:
            return None
        request.add_slots(slots)
        self.num_recomputed += max(min(request.num_computed, request.most_computed) - start, 0)
        request.most_computed = max(request.most_computed, request.num_computed)
        self._commit(request, request.num_computed, new_from=start)
        return Chunk(request, start, request.num_computed)

    def _commit(self, request: Request, end: int, new_from: int | None = None) -> None:
        """Put the token rows below `end` into the prefix tree.

        Rows from `new_from` on are about to be computed into their own slots, so they only go in if the tree
        does not know them; a last token that it knows stays private until the step is over.
        """
        start, end = request.num_committed, min(end, len(request.tokens))
        if not self.cache.enabled or start >= end:
            return
        assert request.node is not None
        if new_from is not None and self.cache.has_child(request.node, request.tokens[start]):
            return
        request.node, slots = self.cache.commit(
            request.node, request.tokens[start:end], request.slots[start:end].tolist()
        )
        request.slots[start:end] = slots
        request.num_committed = end

    def _preempt_after(self, request: Request, chunks: list[Chunk]) -> bool:
        """Put back, of the running requests behind this one, that with the least work to lose."""
        scheduled = {id(chunk.request) for chunk in chunks}
        behind = [
            r
            for r in self.running
            if r.order > request.order and r.num_left and id(r) not in scheduled
        ]
        if not behind:
            return False
        lost = {id(r): self._own_rows(r) for r in behind}
        # One that holds nothing of its own frees nothing: it is only taken when all are like that.
        self.preempt(min(behind, key=lambda r: (not lost[id(r)], lost[id(r)], -r.arrival)))
        return True

    def preempt(self, request: Request) -> None:
        """Put a running request back to its place in the queue; its rows stay in the tree until they are evicted."""
        self._let_go(request)
        request.preemptions += 1
        self.num_preemptions += 1
        request.status = Status.WAITING
        self._enqueue(request)

    @staticmethod
    def _own_rows(request: Request) -> int:
        """The rows of a running request that nobody else holds: what its preemption frees, and may lose."""
        rows = request.num_computed - request.num_committed
        node = request.node
        while node is not None and node.refs == 1 and node.parent is not None and not node.pins:
            rows += len(node.tokens)
            node = node.parent
        return rows

    def pin(self, request: Request) -> None:
        """Keep the tokens of a running request, all of whose rows are computed, until `unpin`.

        Raises OutOfMemory when more than half of the cache would be pinned, or less left than is asked for.
        """
        self._commit(request, request.num_computed)
        node = request.node
        assert node is not None and request.num_committed == len(request.tokens)
        self.cache.pin(node)
        try:
            if self.cache.num_pinned > self.cache.num_slots // 2:
                raise OutOfMemory(
                    f"With this prompt {self.cache.num_pinned} tokens are pinned, which is over half of the "
                    f"{self.cache.num_slots} that the key-value cache has; unpin another or raise "
                    "kv_cache_memory."
                )
            for other in [*self.running, *self.waiting]:
                self._check_beside_pins(other)
        except OutOfMemory:
            self.cache.unpin(node)
            raise
        self.pins[request.request_id] = node

    def unpin(self, name: str) -> bool:
        """Undo the pin that the request of this name made. False if there is none (any more)."""
        node = self.pins.pop(name, None)
        if node is None:
            return False
        self.cache.unpin(node)
        return True

    def _check_beside_pins(self, request: Request) -> None:
        if not self.cache.num_pinned:
            return
        rows = request.max_rows
        shared = self.cache.peek_pinned(request.tokens, len(request.tokens) - 1, request.cache_salt)
        if rows - shared + self.cache.num_pinned > self.cache.num_slots:
            raise OutOfMemory(
                f"A request needs {rows} rows of the key-value cache, of whose {self.cache.num_slots} "
                f"{self.cache.num_pinned} are pinned; unpin some, shorten it or raise kv_cache_memory."
            )

    def finish(self, request: Request, kept_nodes: list[int] | None = None) -> None:
        """Take a request out, in whatever state it is.

        kept_nodes: inner nodes of its choice tree, from the top down, whose rows stay in the cache.
        """
        if request.status is Status.RUNNING:
            self._commit(request, request.num_computed)
            if kept_nodes and request.tree and request.num_committed == len(request.tokens):
                self._keep(request, kept_nodes)
            self._let_go(request)
        elif request.status is Status.WAITING:
            self._dequeue(request)
        request.status = Status.DONE

    def _keep(self, request: Request, nodes: list[int]) -> None:
        assert request.tree is not None and request.node is not None
        rows = [len(request.tokens) - 1 + node for node in nodes]
        slots = request.slots[rows].tolist()
        tokens = request.tree.tokens[nodes].tolist()
        request.node, _ = self.cache.commit(request.node, tokens, slots)
        other = np.ones(request.num_computed, dtype=np.bool_)
        other[: request.num_committed] = other[rows] = False
        self.cache.free(request.slots[: request.num_computed][other].tolist())
        request.num_computed = request.num_committed

    def _let_go(self, request: Request) -> None:
        """Free a running request's private slots and leave the tree."""
        assert request.node is not None
        self.cache.free(request.slots[request.num_committed : request.num_computed].tolist())
        self.cache.release(request.node)
        self.running.remove(request)
        request.node = None
        request.stalled = False
        request.num_computed = request.num_committed = 0

    def drop_all(self) -> list[Request]:
        """After a failed step nothing in the cache can be trusted: forget it, its pins and every running request."""
        dropped, self.running = self.running, []
        for request in dropped:
            request.status = Status.DONE
            request.node = None
        self.pins.clear()
        self.cache.reset()
        return dropped


def queue_full(max_waiting: int) -> QueueFull:
    return QueueFull(
        f"{max_waiting} requests wait already; send fewer at a time or raise max_waiting."
    )


def _growth(request: Request) -> int:
    if not isinstance(request.task, TextTask):
        return 0
    return min(_GROWTH, request.task.max_tokens - len(request.task.token_ids))
