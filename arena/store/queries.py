"""What viewers read of the match database, as plain dictionaries that are ready for JSON.

Each function reads in one transaction, so that what it returns is of one moment; `seq` says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute, Session

from arena.ratings import Played
from arena.store.imported import KIND
from arena.store.owner import is_alive
from arena.store.schema import (
    AgentRow,
    EngineSampleRow,
    EventRow,
    GameRow,
    MoveRow,
    RatingRow,
    RunRow,
)
from arena.store.store import Store, UnknownRun, get_run, played_games, standings_rows


def runs(store: Store) -> list[dict[str, Any]]:
    """All runs, newest first, each with its numbers of agents, games and finished games."""
    with store.read() as session:
        rows = session.scalars(sa.select(RunRow).order_by(RunRow.id.desc())).all()
        return _with_counts(session, rows)


def run_snapshot(store: Store, run_id: int) -> dict[str, Any]:
    """The run, its agents, games and standings after event `seq`. Raises UnknownRun."""
    with store.read() as session:
        run = get_run(session, run_id)
        agents = session.scalars(
            sa.select(AgentRow).where(AgentRow.run_id == run_id).order_by(AgentRow.index)
        )
        games = session.scalars(
            sa.select(GameRow).where(GameRow.run_id == run_id).order_by(GameRow.number)
        )
        return {
            "run": _with_counts(session, [run])[0] | {"config": run.config},
            "agents": [{"index": a.index, "name": a.name, "config": a.config} for a in agents],
            "games": [_game(game) for game in games],
            "standings": _standings(session, run_id),
            "seq": run.seq,
        }


def game_detail(store: Store, run_id: int, number: int) -> dict[str, Any]:
    """One game with all that is recorded of its moves, after event `seq`. Raises UnknownRun."""
    with store.read() as session:
        run = get_run(session, run_id)
        game = session.get(GameRow, (run_id, number))
        if game is None:
            raise UnknownRun(f"Run {run_id} has no game {number}.")
        moves = session.scalars(
            sa.select(MoveRow)
            .where(MoveRow.run_id == run_id, MoveRow.number == number)
            .order_by(MoveRow.ply)
        )
        return {
            "game": _game(game) | {"spec": game.spec},
            "moves": [_columns(move, leave=("run_id", "number")) for move in moves],
            "seq": run.seq,
        }


def events_after(store: Store, run_id: int, seq: int, limit: int = 1000) -> list[dict[str, Any]]:
    """The next events after `seq`, at most `limit`: {"seq", "at", "kind", "payload"}. Raises
    UnknownRun.
    """
    with store.read() as session:
        get_run(session, run_id)
        rows = session.scalars(
            sa.select(EventRow)
            .where(EventRow.run_id == run_id, EventRow.seq > seq)
            .order_by(EventRow.seq)
            .limit(limit)
        )
        return [_columns(row, leave=("run_id",)) for row in rows]


def engine_samples(store: Store, run_id: int, after: float = 0.0) -> list[dict[str, Any]]:
    """The engine's figures later than `after` (seconds since the epoch): {"at", "stats"}. Raises
    UnknownRun.
    """
    with store.read() as session:
        get_run(session, run_id)
        rows = session.scalars(
            sa.select(EngineSampleRow)
            .where(EngineSampleRow.run_id == run_id, EngineSampleRow.at > after)
            .order_by(EngineSampleRow.at)
        )
        return [_columns(row, leave=("id", "run_id")) for row in rows]


def standings(store: Store, run_id: int) -> list[dict[str, Any]]:
    """The table, best first. Raises UnknownRun."""
    with store.read() as session:
        get_run(session, run_id)
        return _standings(session, run_id)


def played(store: Store, run_id: int) -> list[Played]:
    """The results of the finished games, for `arena.crosstable` and `arena.ratings`. Raises
    UnknownRun.
    """
    with store.read() as session:
        get_run(session, run_id)
        return list(played_games(session, run_id))


def _standings(session: Session, run_id: int) -> list[dict[str, Any]]:
    """The table that was kept when the run finished, else that of the games so far."""
    kept = session.execute(
        sa.select(RatingRow, AgentRow.name)
        .join(
            AgentRow,
            sa.and_(AgentRow.run_id == RatingRow.run_id, AgentRow.index == RatingRow.agent),
        )
        .where(RatingRow.run_id == run_id)
        .order_by(RatingRow.rank)
    ).all()
    if not kept:
        return standings_rows(session, run_id)
    return [_columns(row, leave=("run_id", "rank")) | {"name": name} for row, name in kept]


def _with_counts(session: Session, rows: Sequence[RunRow]) -> list[dict[str, Any]]:
    def counts(statement: sa.Select[int, int]) -> dict[int, int]:
        return {row[0]: row[1] for row in session.execute(statement)}

    def by_run(column: InstrumentedAttribute[int]) -> sa.Select[int, int]:
        return (
            sa.select(column, sa.func.count())
            .where(column.in_([row.id for row in rows]))
            .group_by(column)
        )

    agents = counts(by_run(AgentRow.run_id))
    games = counts(by_run(GameRow.run_id))
    finished = counts(by_run(GameRow.run_id).where(GameRow.status == "finished"))
    return [
        {
            "id": row.id,
            "name": row.name,
            "game": row.game,
            "status": _status(row),
            "created_at": row.created_at,
            "started_at": row.started_at,
            "finished_at": row.finished_at,
            "agents": agents.get(row.id, 0),
            "games": games.get(row.id, 0),
            "games_finished": finished.get(row.id, 0),
            "imported": row.config.get("kind") == KIND,
        }
        for row in rows
    ]


def _status(run: RunRow) -> str:
    """A run whose writer was killed is interrupted, whatever it could not write any more."""
    if run.status == "running" and not (run.owner and is_alive(run.owner)):
        return "interrupted"
    return run.status


def _game(row: GameRow) -> dict[str, Any]:
    game = _columns(row, leave=("run_id", "spec", "points_first", "points_second"))
    points = None if row.points_first is None else [row.points_first, row.points_second]
    return game | {"points": points}


def _columns(row: Any, leave: tuple[str, ...]) -> dict[str, Any]:
    return {
        attribute.key: getattr(row, attribute.key)
        for attribute in sa.inspect(row).mapper.column_attrs
        if attribute.key not in leave
    }
