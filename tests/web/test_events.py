"""The event stream over HTTP, as a browser reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.web.conftest import PATIENCE_S, Served
from tests.web.played import PlayedRun


@contextmanager
def stream(
    served: Served, run: PlayedRun, after: int = 0, last: int | None = None
) -> Iterator[Iterator[dict[str, Any]]]:
    """Messages of the stream: `id`, `event` and `data` as far as they have them."""
    headers = {} if last is None else {"last-event-id": str(last)}
    url = f"{served.url}/api/runs/{run.id}/events?after={after}"
    with httpx.stream("GET", url, headers=headers, timeout=PATIENCE_S) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        yield messages(answer)


def messages(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    message: dict[str, Any] = {}
    for line in answer.iter_lines():
        if line:
            field, _, value = line.partition(": ")
            message[field] = json.loads(value) if field == "data" else value
        else:
            yield message
            message = {}


def test_greets_with_status_and_newest_number(served: Served, run: PlayedRun) -> None:
    seq = httpx.get(f"{served.url}/api/runs/{run.id}").json()["seq"]
    with stream(served, run) as events:
        greeting = next(events)
    assert greeting == {"event": "state", "data": {"seq": seq, "status": "running"}}


def test_replays_everything_after_a_number(served: Served, run: PlayedRun) -> None:
    with stream(served, run, after=2) as events:
        assert next(events)["event"] == "state"
        replayed = [next(events) for _ in range(3)]
    assert [message["id"] for message in replayed] == ["3", "4", "5"]
    assert [message["data"]["seq"] for message in replayed] == [3, 4, 5]
    assert {"kind", "payload"} <= replayed[0]["data"].keys()


def test_the_last_event_id_of_the_browser_counts_when_it_is_later(
    served: Served, run: PlayedRun
) -> None:
    with stream(served, run, after=2, last=6) as events:
        next(events)
        assert next(events)["id"] == "7"
    with stream(served, run, after=6, last=2) as events:
        next(events)
        assert next(events)["id"] == "7"


def test_snapshot_and_stream_fit_without_gap_or_double(served: Served, run: PlayedRun) -> None:
    snapshot = httpx.get(f"{served.url}/api/runs/{run.id}").json()
    with stream(served, run, after=snapshot["seq"]) as events:
        next(events)
        uci = run.move(2)
        message = next(events)
    assert message["data"]["seq"] == snapshot["seq"] + 1
    assert message["data"]["kind"] == "move"
    assert message["data"]["payload"]["uci"] == uci
    assert message["data"]["payload"]["fen"] == run.positions[2].fen()


def test_the_end_of_game_and_run_are_told(served: Served, run: PlayedRun) -> None:
    seq = httpx.get(f"{served.url}/api/runs/{run.id}").json()["seq"]
    with stream(served, run, after=seq) as events:
        next(events)
        run.finish(2)
        run.end("interrupted")
        kinds = [next(events)["data"]["kind"] for _ in range(3)]
    assert kinds == ["game_finished", "standings", "run_finished"]


def test_the_server_stops_with_open_streams_and_goes_on_where_it_was(
    served: Served, run: PlayedRun
) -> None:
    seq = httpx.get(f"{served.url}/api/runs/{run.id}").json()["seq"]
    with stream(served, run, after=seq) as first, stream(served, run, after=seq) as second:
        next(first)
        next(second)
        served.stop()
        assert list(first) == []
        assert list(second) == []
    uci = run.move(2)
    served.start()
    with stream(served, run, after=seq) as events:
        next(events)
        assert next(events)["data"]["payload"]["uci"] == uci
