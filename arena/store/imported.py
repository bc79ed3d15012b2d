"""Records runs whose games were played elsewhere: finished from the start, in one transaction each.

Knows nothing of files and of how games are read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from arena.store.recorder import move_row
from arena.store.schema import AgentRow, GameRow, MoveRow, RunRow
from arena.store.store import Store, add_events, clean_text, finite, keep_standings
from arena.types import MoveRecord, Termination

KIND = "imported"  # of a run, in its config


@dataclass(frozen=True)
class ImportedGame:
    """A game as it goes into the database.

    `players` are names, first mover first. `key` tells the same game again. `started_at` is seconds
    since the epoch. `moves` need no run and number.
    """

    key: str
    players: tuple[str, str]
    round: int
    rules: str
    start_fen: str
    fen: str
    moves: Sequence[MoveRecord]
    result: str
    winner: int | None
    termination: Termination | None
    reason: str
    by_points: bool
    points: tuple[float, float] | None
    started_at: float | None
    format: str
    headers: Mapping[str, str]


def imported_keys(store: Store) -> dict[str, int]:
    """The keys of all imported games, with their runs."""
    with store.read() as session:
        rows = session.execute(
            sa.select(GameRow.run_id, GameRow.spec)
            .join(RunRow, RunRow.id == GameRow.run_id)
            .where(RunRow.config["kind"].as_string() == KIND)
        )
        return {spec["key"]: run_id for run_id, spec in rows}


def add_imported_run(store: Store, name: str, game: str, games: Sequence[ImportedGame]) -> int:
    """Record the games as a finished run with its standings, and return its id."""
    players = list(dict.fromkeys(player for one in games for player in one.players))
    index = {player: i for i, player in enumerate(players)}
    now = time.time()
    with store.write() as session:
        run = RunRow(
            name=clean_text(name),
            game=game,
            config={"kind": KIND, "game": game},
            status="finished",
            owner=None,
            seq=0,
            created_at=now,
            started_at=now,
            finished_at=now,
        )
        session.add(run)
        session.flush()
        session.execute(
            sa.insert(AgentRow),
            [
                {
                    "run_id": run.id,
                    "index": i,
                    "name": clean_text(player),
                    "config": finite({"type": "player", "name": player}),
                }
                for i, player in enumerate(players)
            ],
        )
        for number, one in enumerate(games, 1):
            session.execute(sa.insert(GameRow), [_game_row(run.id, number, one, index)])
            rows = [move_row(move) | {"run_id": run.id, "number": number} for move in one.moves]
            if rows:
                session.execute(sa.insert(MoveRow), rows)
        keep_standings(session, run.id)
        add_events(session, run.id, [("run_finished", {"status": "finished"})])
        return run.id


def _game_row(run_id: int, number: int, one: ImportedGame, index: dict[str, int]) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "number": number,
        "round": one.round,
        "first": index[one.players[0]],
        "second": index[one.players[1]],
        "spec": {
            "rules": one.rules,
            "setup": None,
            "start_fen": one.start_fen,
            "seed": 0,
            "max_plies": len(one.moves),
            "move_time_limit": None,
            "key": one.key,
            "format": one.format,
            "headers": finite(one.headers),
        },
        "start_fen": one.start_fen,
        "status": "finished",
        "plies": len(one.moves),
        "fen": one.fen,
        "last_move": one.moves[-1].choice.uci if one.moves else None,
        "winner": one.winner,
        "result": one.result,
        "termination": one.termination and one.termination.value,
        "reason": clean_text(one.reason),
        "by_points": one.by_points,
        "points_first": one.points and one.points[0],
        "points_second": one.points and one.points[1],
        "started_at": one.started_at,
        "finished_at": one.started_at,
    }
