"""Which rows of which requests the next step computes. Touches no tensors and no clock.

Running requests go first, then waiting ones, each in the order of (priority, arrival). What a step computes is
put into the prefix tree when it is scheduled, not when it is done: within one pass every layer writes its keys
and values before it reads them, so a second request with the same prefix shares it in the very same step.
"""

from bisect import insort
from dataclasses import dataclass

import numpy as np

from engine.errors import QueueFull
from engine.kv_cache import KVCache
from engine.request import Request, Status
from engine.text import TextTask

# Admissions past a request that waits for memory, before it blocks those behind it.
_MAX_OVERTAKEN = 32
# Waiting requests looked at in one step.
_SCAN = 256
# Rows kept free for each text that will grow, so that admissions do not cause preemptions.
_GROWTH = 32


@dataclass(frozen=True)
class Chunk:
    """Rows start..end-1 of a request, to be computed in this step."""

    request: Request
    start: int
    end: int


class Scheduler:
    """Keeps the waiting and the running requests, and hands out the slots of their rows."""

    def __init__(
        self, cache: KVCache, max_num_seqs: int, max_num_batched_tokens: int, max_waiting: int
    ) -> None:
        self.cache = cache
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_waiting = max_waiting
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.num_preemptions = 0
        self._arrivals = 0

    def add(self, request: Request) -> None:
        """Queue a request, which fits the cache when it runs alone. Raises QueueFull."""
        if len(self.waiting) >= self.max_waiting:
            raise QueueFull(
                f"{self.max_waiting} requests wait already; send fewer at a time or raise max_waiting."
            )
        request.status = Status.WAITING
        self._arrivals += 1
        request.arrival = self._arrivals
        insort(self.waiting, request, key=lambda r: r.order)

    def schedule(self) -> list[Chunk]:
        """The rows of the next step, at most max_num_batched_tokens; their slots are assigned."""
        budget = self.max_num_batched_tokens
        # A long prompt must not keep short requests from their turn: it gets a part of the step.
        alone = len(self.running) + len(self.waiting) == 1
        share = budget if alone else max(budget // 4, 1)
        chunks: list[Chunk] = []
        for request in list(self.running):
            if budget == 0:
                break
            if request.status is not Status.RUNNING:
                continue  # preempted for the sake of an earlier one
            chunk = self._advance(request, min(budget, share))
            while chunk is None and self._preempt_after(request):
                chunk = self._advance(request, min(budget, share))
            if chunk is not None:
                chunks.append(chunk)
                budget -= chunk.end - chunk.start
        self._admit(budget, share, chunks)
        return chunks

    def _admit(self, budget: int, share: int, chunks: list[Chunk]) -> None:
        reserved = sum(r.num_left + _growth(r) for r in self.running)
        blocked: list[Request] = []
        for request in self.waiting[:_SCAN]:
            if budget == 0 or len(self.running) >= self.max_num_seqs:
                return
            known, idle = self.cache.peek(request.tokens, len(request.tokens) - 1)
            needed = request.num_rows - known
            if self.running and needed + idle + reserved > self.cache.num_available:
                if request.overtaken >= _MAX_OVERTAKEN:
                    return
                blocked.append(request)
                continue
            for other in blocked:
                other.overtaken += 1
            self.waiting.remove(request)
            request.status = Status.RUNNING
            request.node = self.cache.root
            insort(self.running, request, key=lambda r: r.order)
            chunk = self._advance(request, min(budget, share))
            assert chunk is not None, "admission reserves the rows it counts"
            chunks.append(chunk)
            budget -= chunk.end - chunk.start
            reserved += request.num_left + _growth(request)

    def _advance(self, request: Request, limit: int) -> Chunk | None:
        """Take what others have computed of the request's tokens, then slots for the next rows."""
        self._commit(request, request.num_computed)
        if self.cache.enabled and request.num_committed == request.num_computed:
            assert request.node is not None
            # The last token gets a row of its own in any case: its output is what is asked for.
            request.node, found = self.cache.match(
                request.node, request.tokens, request.num_computed, len(request.tokens) - 1
            )
            request.add_slots(found)
            request.num_committed += len(found)
            if not request.preemptions:
                request.cached_tokens += len(found)
        start = request.num_computed
        slots = self.cache.allocate(min(limit, request.num_left))
        if slots is None:
            return None
        request.add_slots(slots)
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

    def _preempt_after(self, request: Request) -> bool:
        """Put back, of the running requests behind this one, that with the least work to lose."""
        behind = [r for r in self.running if r.order > request.order]
        if not behind:
            return False
        victim = min(behind, key=lambda r: (r.num_computed, -r.arrival))
        self._let_go(victim)
        victim.preemptions += 1
        self.num_preemptions += 1
        victim.status = Status.WAITING
        insort(self.waiting, victim, key=lambda r: r.order)
        return True

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
            self.waiting.remove(request)
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
        request.num_computed = request.num_committed = 0

    def drop_all(self) -> list[Request]:
        """After a failed step nothing in the cache can be trusted: forget it and every running request."""
        dropped, self.running = self.running, []
        for request in dropped:
            request.status = Status.DONE
            request.node = None
        self.cache.reset()
        return dropped


def _growth(request: Request) -> int:
    if not isinstance(request.task, TextTask):
        return 0
    return min(_GROWTH, request.task.max_tokens - len(request.task.token_ids))
