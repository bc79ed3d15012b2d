"""Live events of a run for any number of open streams: one poller reads the database, each stream
keeps its place.

It knows nothing of HTTP and nothing of what the events mean.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any

Event = dict[str, Any]
"""One row of the event log: `seq` (grows within the run), `kind` and `payload`."""

ReadEvents = Callable[[int, int], list[Event]]
"""(after, limit) -> the next events in order; blocks, so it runs in a worker thread."""

POLL_S = 0.1
RETRY_S = 1.0  # after a failed read
PAGE = 1000  # events per read
KEPT = 4000  # latest events in memory; a stream that is further behind reads the database itself

log = logging.getLogger(__name__)


class Feed:
    """The event log of one run, polled while somebody listens.

    Memory is bounded: a slow stream holds back nobody and is owed nothing but its place in the log.
    """

    def __init__(self, read: ReadEvents, *, poll_s: float = POLL_S, kept: int = KEPT) -> None:
        self._read = read
        self._poll_s = poll_s
        self._recent: deque[Event] = deque(maxlen=kept)
        self._floor = 0  # `_recent` holds every known event after this number
        self._last = 0
        self._listeners = 0
        self._poller: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._closed = False

    def is_polling(self) -> bool:
        """Whether the poller runs; it does exactly while there are listeners."""
        return self._poller is not None

    async def listen(self, after: int, idle_s: float) -> AsyncGenerator[list[Event]]:
        """Batches of events numbered above `after`, in order and without end.

        After `idle_s` of silence comes an empty one. Ends when the feed is closed.
        """
        self._listeners += 1
        if self._poller is None:
            self._recent.clear()
            self._floor = self._last = after
            self._poller = asyncio.create_task(self._poll())
        try:
            while not self._closed:
                batch = await self._next(after, idle_s)
                if batch:
                    after = batch[-1]["seq"]
                if not self._closed:
                    yield batch
        finally:
            self._listeners -= 1
            if self._listeners == 0:
                self._stop()

    def close(self) -> None:
        """End every stream now; safe to call from the loop's own thread only."""
        self._closed = True
        self._stop()
        self._wake()

    async def _next(self, after: int, idle_s: float) -> list[Event]:
        if after < self._floor:
            try:
                page = await asyncio.to_thread(self._read, after, PAGE)
            except Exception as error:
                log.warning("Reading events failed, trying again: %s", error)
                await asyncio.sleep(RETRY_S)
                return []
            if page:
                return page
            # The log ends before the place that another listener named: follow it from here.
            self._recent.clear()
            self._floor = self._last = after
        if after >= self._last:
            try:
                await asyncio.wait_for(self._news.wait(), idle_s)
            except TimeoutError:
                return []
            if after < self._floor:  # more came at once than is kept
                return []
        return [event for event in self._recent if event["seq"] > after]

    async def _poll(self) -> None:
        while True:
            try:
                page = await asyncio.to_thread(self._read, self._last, PAGE)
            except Exception as error:  # a locked or vanished database: the streams stay open
                log.warning("Reading events failed, trying again: %s", error)
                await asyncio.sleep(RETRY_S)
                continue
            if page:
                for event in page:
                    if len(self._recent) == self._recent.maxlen:
                        self._floor = self._recent[0]["seq"]
                    self._recent.append(event)
                self._last = page[-1]["seq"]
                self._wake()
            if len(page) < PAGE:
                await asyncio.sleep(self._poll_s)

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _stop(self) -> None:
        if self._poller is not None:
            self._poller.cancel()
            self._poller = None


class Feeds:
    """The feeds of all runs of one server."""

    def __init__(self, read: Callable[[int, int, int], list[Event]]) -> None:
        self._read = read
        self._feeds: dict[int, Feed] = {}
        self._closed = False

    def of(self, run: int) -> Feed:
        """The feed of a run; the same one for everybody."""
        if run not in self._feeds:
            self._feeds[run] = Feed(lambda after, limit: self._read(run, after, limit))
            if self._closed:
                self._feeds[run].close()
        return self._feeds[run]

    def close(self) -> None:
        """End every stream, so that a server with open streams can stop at once."""
        self._closed = True
        for feed in self._feeds.values():
            feed.close()
