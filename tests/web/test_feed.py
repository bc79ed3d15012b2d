"""The fan-out of events, without HTTP and without a database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

import web.feed
from web.feed import Feed, Feeds


class Log:
    """An event log in memory that counts who reads it."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.reads: list[int] = []
        self.failures = 0

    def read(self, after: int, limit: int) -> list[dict[str, Any]]:
        self.reads.append(after)
        if self.failures:
            self.failures -= 1
            raise OSError("database is locked")
        return [{"seq": seq} for seq in range(after + 1, min(self.count, after + limit) + 1)]


async def take(batches: AsyncGenerator[list[dict[str, Any]]], count: int) -> list[int]:
    """The numbers of the next `count` events."""
    seqs: list[int] = []
    async with asyncio.timeout(20):
        while len(seqs) < count:
            seqs += [event["seq"] for event in await anext(batches)]
    return seqs


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web.feed, "RETRY_S", 0.01)


async def test_replays_what_was_missed_and_goes_on_live() -> None:
    log = Log(5)
    async with aclosing(Feed(log.read, poll_s=0.01).listen(2, 60)) as batches:
        assert await take(batches, 3) == [3, 4, 5]
        log.count = 7
        assert await take(batches, 2) == [6, 7]


async def test_long_replays_come_whole_and_in_order() -> None:
    log = Log(4500)
    async with aclosing(Feed(log.read, poll_s=0.01, kept=100).listen(0, 60)) as batches:
        assert await take(batches, 4500) == list(range(1, 4501))


async def test_a_late_listener_gets_all_that_the_first_got() -> None:
    log = Log(50)
    feed = Feed(log.read, poll_s=0.01, kept=10)
    async with aclosing(feed.listen(40, 60)) as first, aclosing(feed.listen(0, 60)) as second:
        assert await take(first, 10) == list(range(41, 51))
        assert await take(second, 50) == list(range(1, 51))


async def test_a_listener_ahead_of_the_poller_is_told_nothing_twice() -> None:
    log = Log(3)
    feed = Feed(log.read, poll_s=0.01)
    async with aclosing(feed.listen(0, 60)) as first, aclosing(feed.listen(3, 60)) as second:
        assert await take(first, 3) == [1, 2, 3]
        log.count = 4
        assert await take(second, 1) == [4]


async def test_any_number_of_listeners_share_one_poller() -> None:
    log = Log(3)
    feed = Feed(log.read, poll_s=0.01)
    streams = [feed.listen(0, 60) for _ in range(20)]
    for stream in streams:
        assert await take(stream, 3) == [1, 2, 3]
    log.reads.clear()
    log.count = 4
    for stream in streams:
        assert await take(stream, 1) == [4]
    assert len(log.reads) < 20
    for stream in streams:
        await stream.aclose()


async def test_polls_only_while_somebody_listens() -> None:
    feed = Feed(Log(1).read, poll_s=0.01)
    assert not feed.is_polling()
    stream = feed.listen(0, 60)
    await take(stream, 1)
    assert feed.is_polling()
    await stream.aclose()
    assert not feed.is_polling()
    async with aclosing(feed.listen(0, 60)) as again:
        assert await take(again, 1) == [1]


async def test_a_listener_beyond_the_end_of_the_log_disturbs_nobody() -> None:
    log = Log(3)
    feed = Feed(log.read, poll_s=0.01)
    async with aclosing(feed.listen(5000, 0.01)) as lost, aclosing(feed.listen(1, 60)) as stream:
        assert await anext(lost) == []
        assert await take(stream, 2) == [2, 3]
        news = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.1)
        assert not news.done()  # it waits, and does not ask again and again
        log.count = 4
        async with asyncio.timeout(20):
            assert await news == [{"seq": 4}]


async def test_silence_is_told() -> None:
    async with aclosing(Feed(Log().read, poll_s=0.01).listen(0, 0.01)) as batches:
        assert await anext(batches) == []


async def test_a_failed_read_ends_no_stream() -> None:
    log = Log(2)
    log.failures = 2
    async with aclosing(Feed(log.read, poll_s=0.01).listen(0, 60)) as batches:
        assert await take(batches, 2) == [1, 2]


async def test_closing_ends_streams_that_wait_and_refuses_new_ones() -> None:
    feeds = Feeds(lambda run, after, limit: [])
    waiting = asyncio.ensure_future(_drain(feeds.of(1).listen(0, 60)))
    await asyncio.sleep(0.05)
    feeds.close()
    async with asyncio.timeout(20):
        await waiting
        await _drain(feeds.of(1).listen(0, 60))
        await _drain(feeds.of(2).listen(0, 60))


async def _drain(batches: AsyncGenerator[list[dict[str, Any]]]) -> None:
    async for _ in batches:
        pass
