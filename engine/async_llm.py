"""The asynchronous front: one background thread steps the engine for any number of callers and event loops."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from engine.config import EngineConfig
from engine.core import EngineCore, Event
from engine.errors import Aborted, EngineError
from engine.intake import Prompt
from engine.outputs import ChoiceOutput, EngineStats, Pin, TextOutput
from engine.params import ChoiceParams, SamplingParams
from engine.request import Request
from engine.scheduler import queue_full
from engine.tokenizer import Tokenizer

_GATHER_S = 0.010  # the longest that an idle engine waits for more requests than the first
_PAUSE_S = 0.002  # a pause between two arrivals after which it waits no longer


@dataclass(frozen=True, eq=False)
class _Caller:
    """Where a request's events go."""

    loop: asyncio.AbstractEventLoop
    events: asyncio.Queue[Event]


class TextStream:
    """Async iterator over the deltas of a text; `output` holds the whole of it after the last delta."""

    def __init__(self, deltas: AsyncGenerator[str | ChoiceOutput | TextOutput]) -> None:
        self._deltas = deltas
        self.output: TextOutput | None = None

    def __aiter__(self) -> "TextStream":
        return self

    async def __anext__(self) -> str:
        event = await anext(self._deltas)
        if isinstance(event, str):
            return event
        assert isinstance(event, TextOutput)
        self.output = event
        return await self.__anext__()  # the generator ends here

    async def whole(self) -> TextOutput:
        """Wait for the end and return all of it."""
        async with aclosing(self):
            async for _ in self:
                pass
        assert self.output is not None
        return self.output

    async def aclose(self) -> None:
        """Give the rest up; the request is aborted."""
        await self._deltas.aclose()


class AsyncLLM:
    """One model shared by many callers. Loads in the constructor; raises ModelLoadError if that fails."""

    def __init__(self, model: str | EngineConfig) -> None:
        self._core = EngineCore(EngineConfig(model) if isinstance(model, str) else model)
        self._wake = threading.Condition()
        self._incoming: deque[Request] = deque()
        self._aborts: deque[Request] = deque()
        self._unpins: deque[str] = deque()
        self._live: dict[str, tuple[Request, _Caller]] = {}
        self._closing = False
        self._failure: EngineError | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    async def choose(
        self,
        prompt: Prompt,
        choices: Sequence[str],
        params: ChoiceParams | None = None,
        *,
        priority: int = 0,
        deadline: float | None = None,
        request_id: str | None = None,
        client: str = "",
        cache_salt: str = "",
    ) -> ChoiceOutput:
        """Choose one of `choices` (texts that go on from the prompt, each beginning with its space).

        priority: smaller goes first. deadline: seconds from now. client: whose request it is; those of one priority
        share the engine equally, however many requests each sends. cache_salt: requests with different ones share
        nothing in the cache. Raises QueueFull, PromptTooLong, NoChoices, BoundaryMerge, OutOfMemory,
        DeadlineExceeded or Aborted.
        """
        with self._wake:
            self._check_open(client)  # before the work of making a request
        request = self._core.intake.make_choice(
            prompt,
            choices,
            params,
            priority=priority,
            deadline=deadline,
            request_id=request_id,
            client=client,
            cache_salt=cache_salt,
        )
        async for event in self._events(request):
            if isinstance(event, ChoiceOutput):
                return event
        raise AssertionError("a request ends in an output or an error")

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
        deadline: float | None = None,
        request_id: str | None = None,
        client: str = "",
        cache_salt: str = "",
    ) -> TextStream:
        """Write a text; iterate over the result for its deltas. Takes and raises what `choose` does."""
        request = self._core.intake.make_text(
            prompt,
            params,
            priority=priority,
            deadline=deadline,
            request_id=request_id,
            client=client,
            cache_salt=cache_salt,
        )
        return TextStream(self._events(request))

    async def pin(self, prompt: Prompt, *, cache_salt: str = "") -> Pin:
        """Compute a prompt and keep it in the cache until `unpin`, however short memory is.

        Raises OutOfMemory when more than half of the cache would be pinned, or a request that is there would not
        fit beside it. A failed step empties the cache, and ends pins with it.
        """
        request = self._core.intake.make_pin(prompt, cache_salt)
        async for _ in self._events(request):
            pass
        return Pin(request.request_id, request.prompt_len)

    def unpin(self, pin: Pin) -> None:
        """Let a prompt be evicted like any other."""
        with self._wake:
            self._unpins.append(pin.request_id)
            self._wake.notify()

    def _check_open(self, client: str) -> None:
        """Raise if no request of this client can be taken now."""
        if self._failure is not None:
            raise self._failure
        if self._closing:
            raise Aborted("The engine is closed; build a new one.")
        if self._core.is_full(client, self._incoming):
            raise queue_full(self._core.config.max_waiting)

    async def _events(self, request: Request) -> AsyncGenerator[str | ChoiceOutput | TextOutput]:
        caller = _Caller(asyncio.get_running_loop(), asyncio.Queue())
        with self._wake:
            self._check_open(request.client)
            if request.request_id in self._live:
                raise ValueError(
                    f"There is a request {request.request_id!r} already; choose another id."
                )
            self._live[request.request_id] = (request, caller)
            self._incoming.append(request)
            self._wake.notify()
        ended = False
        try:
            while not ended:
                event = await caller.events.get()
                ended = not isinstance(event, str)
                if isinstance(event, EngineError):
                    raise event
                yield event
        finally:
            if not ended:  # the caller went away
                self.abort(request.request_id)

    def abort(self, request_id: str) -> bool:
        """Abort a request in whatever state it is; its caller gets Aborted. False if there is none of that name."""
        with self._wake:
            found = self._live.get(request_id)
            if found is None:
                return False
            self._aborts.append(found[0])
            self._wake.notify()
            return True

    @property
    def tokenizer(self) -> Tokenizer:
        return self._core.tokenizer

    @property
    def max_model_len(self) -> int:
        """Tokens of a prompt and its answer together."""
        return self._core.max_model_len

    def metrics(self) -> str:
        """Counters, gauges and histograms in Prometheus' text format (`engine.metrics` names them)."""
        return self._core.exposition()

    def stats(self) -> EngineStats:
        stats = self._core.stats()
        return replace(stats, num_waiting=stats.num_waiting + len(self._incoming))

    async def close(self) -> None:
        """Abort what is left and free the model; returns when the thread has ended."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        error: EngineError = Aborted(
            "The engine was closed; build a new one and send the request again."
        )
        try:
            while self._take():
                self._deliver(self._core.step())
        except (
            Exception
        ) as unexpected:  # a defect of the engine itself: every caller must hear of it
            error = EngineError(
                f"The engine stopped after an internal error ({unexpected!r}); build a new one."
            )
            error.__cause__ = unexpected
        with self._wake:
            self._closing = True
            if not isinstance(error, Aborted):
                self._failure = error
            left = [request for request, _ in self._live.values()]
        self._deliver([(request, error) for request in left])
        self._core.close()

    def _take(self) -> bool:
        """Wait for something to do and take the callers' orders; False when the engine is to end."""
        with self._wake:
            if not self._core.busy:
                self._wake.wait_for(
                    lambda: self._incoming or self._aborts or self._unpins or self._closing
                )
                self._gather()
            if self._closing:
                return False
            incoming, self._incoming = self._incoming, deque()
            aborts, self._aborts = self._aborts, deque()
            while self._unpins:
                self._core.unpin(self._unpins.popleft())
            events: list[tuple[Request, Event]] = []
            for request in incoming:
                try:
                    self._core.add(request)
                except EngineError as error:
                    events.append((request, error))
            for request in aborts:
                if self._core.abort(request):
                    events.append(
                        (request, Aborted("The request was aborted; send it again if you need it."))
                    )
        self._deliver(events)
        return True

    def _gather(self) -> None:
        """After idling, let callers that were woken by the same step come together into one pass."""
        latest = time.monotonic() + _GATHER_S
        seen = 0
        while len(self._incoming) > seen and time.monotonic() < latest:
            seen = len(self._incoming)
            self._wake.wait(_PAUSE_S)

    def _deliver(self, events: Sequence[tuple[Request, Event]]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Caller, Event]]] = {}
        with self._wake:
            for request, event in events:
                found = self._live.get(request.request_id)
                if found is None:
                    continue
                if not isinstance(event, str):
                    del self._live[request.request_id]
                by_loop.setdefault(found[1].loop, []).append((found[1], event))
        for loop, items in by_loop.items():
            try:
                loop.call_soon_threadsafe(_put, items)
            except RuntimeError:  # the loop was closed: nobody is left to hear
                for caller, _ in items:
                    self._forget(caller)

    def _forget(self, caller: _Caller) -> None:
        with self._wake:
            self._aborts.extend(request for request, its in self._live.values() if its is caller)


def _put(items: Sequence[tuple[_Caller, Event]]) -> None:
    for caller, event in items:
        caller.events.put_nowait(event)
