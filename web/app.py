"""The HTTP application: JSON and event streams under `/api`, everywhere else the built front end.

It reads the match database and never writes it; what the answers contain is made in
`arena.store.queries`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import FastAPI, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

import games
from arena import metrics
from arena.store import DatabaseError, Store, UnknownRun, queries
from arena.store.store import get_run
from games import GameError, UnknownGame
from web.feed import Feeds
from web.files import FrontEnd

STATIC = FilePath(__file__).parent / "static"
IDLE_S = 15.0  # how often a stream without news says that it is alive
RECENT_S = 15.0  # engine figures that a page gets at once

Number = Annotated[int, Path(ge=1, lt=2**31)]


def create_app(database: str, *, static: FilePath = STATIC, idle_s: float = IDLE_S) -> FastAPI:
    """The application over an existing match database (URL or path). Raises `DatabaseError`.

    `app.state.feeds.close()` ends all event streams; `web.server.Server` calls it when it is told
    to stop.
    """
    store = Store.open(database, create=False)
    feeds = Feeds(lambda run, after, limit: queries.events_after(store, run, after, limit))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        feeds.close()
        store.close()

    app = FastAPI(title="Arena", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.feeds = feeds
    _answer_errors_in_sentences(app)

    @app.get("/api/runs")
    def runs() -> JSONResponse:
        """Each with the title of its game; of a game that is not installed here, with its name."""
        listed = queries.runs(store)
        titles = {game: _title(game) for game in {run["game"] for run in listed}}
        return JSONResponse({"runs": [run | {"title": titles[run["game"]]} for run in listed]})

    @app.get("/api/runs/{run_id}")
    def run(run_id: Number) -> JSONResponse:
        snapshot = queries.run_snapshot(store, run_id)
        rules = games.get_game(snapshot["run"]["game"]).to_dict()
        samples = queries.engine_samples(store, run_id, after=time.time() - RECENT_S)
        return JSONResponse(snapshot | {"rules": rules, "samples": samples})

    @app.get("/api/runs/{run_id}/games/{number}")
    def game(run_id: Number, number: Number, after: int = -1) -> JSONResponse:
        """A game and its moves later than ply `after`, with the points where the rules count them."""
        detail = queries.game_detail(store, run_id, number)
        with store.read() as session:
            rules = games.get_game(get_run(session, run_id).game)
        rule_set = detail["game"]["spec"]["rules"]

        def points(fen: str) -> tuple[float, float] | None:
            return rules.position(fen, rule_set).adjudicate().points

        detail["game"]["start_points"] = points(detail["game"]["start_fen"])
        detail["moves"] = [
            move | {"points": points(move["fen"])}
            for move in detail["moves"]
            if move["ply"] > after
        ]
        return JSONResponse(detail)

    @app.get("/api/runs/{run_id}/engine")
    def engine(run_id: Number, after: float = 0.0) -> JSONResponse:
        return JSONResponse({"samples": queries.engine_samples(store, run_id, after)})

    @app.get("/metrics")
    def prometheus() -> PlainTextResponse:
        return PlainTextResponse(metrics.exposition(store), media_type=CONTENT_TYPE_LATEST)

    @app.get("/api/runs/{run_id}/events")
    async def events(
        run_id: Number,
        after: Annotated[int, Query(ge=0)] = 0,
        last_event_id: Annotated[int, Header(ge=0)] = 0,
    ) -> StreamingResponse:
        """The events after `after` or `Last-Event-ID`, whichever is later, then each as it happens.

        At the start and in silence a message of the type `state` tells the run's status and the
        number of its newest event.
        """

        async def state() -> str:
            known = await asyncio.to_thread(queries.run_snapshot, store, run_id)
            return _message({"seq": known["seq"], "status": known["run"]["status"]}, "event: state")

        async def stream(greeting: str) -> AsyncIterator[str]:
            yield greeting
            async with aclosing(
                feeds.of(run_id).listen(max(after, last_event_id), idle_s)
            ) as batches:
                async for batch in batches:
                    if batch:
                        yield "".join(_message(event, f"id: {event['seq']}") for event in batch)
                    else:
                        yield await state()

        return StreamingResponse(
            stream(await state()),  # an unknown run is refused before the stream begins
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    app.mount("/", FrontEnd(static))
    return app


def _title(game: str) -> str:
    try:
        return games.get_game(game).title
    except GameError:
        return game


def _message(data: object, head: str) -> str:
    return f"{head}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


def _answer_errors_in_sentences(app: FastAPI) -> None:
    """Every error answer is {"error": one sentence}."""

    def answer(status: int, sentence: str) -> JSONResponse:
        return JSONResponse({"error": sentence}, status_code=status)

    @app.exception_handler(UnknownRun)
    def unknown(_: Request, error: UnknownRun) -> JSONResponse:
        return answer(404, str(error))

    @app.exception_handler(GameError)
    def missing(_: Request, error: GameError) -> JSONResponse:
        if isinstance(error, UnknownGame):
            return answer(404, "This tournament's game is not installed here: install its package.")
        return answer(404, str(error))

    @app.exception_handler(DatabaseError)
    def unavailable(_: Request, error: DatabaseError) -> JSONResponse:
        return answer(503, str(error))

    @app.exception_handler(RequestValidationError)
    def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return answer(400, f"{first['loc'][-1]}: {first['msg']}.")

    @app.exception_handler(HTTPException)
    def refused(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 404:
            return answer(404, f"There is nothing at {request.url.path}.")
        return answer(error.status_code, str(error.detail))
