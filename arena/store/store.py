"""Runs in the match database: making one, claiming it for writing, resuming it, finishing it.

What happens while games are played is written by `recorder`; what viewers read is in `queries`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.orm import Session

import games
from arena import ratings
from arena.config import AgentConfig
from arena.store import owner as owners
from arena.store.database import Database, DatabaseError
from arena.store.schema import AgentRow, EventRow, GameRow, MoveRow, RatingRow, RunRow
from arena.types import GameSpec

_SPEC_FIELDS = (
    *("rules", "setup", "start_fen", "opening", "seed", "max_plies", "move_time_limit"),
)
_agent_config: TypeAdapter[AgentConfig] = TypeAdapter(AgentConfig)


class UnknownRun(DatabaseError):
    """No run, or no game, of that number is in the database."""


class RunBusy(DatabaseError):
    """Another process that is alive writes the run."""


class Store:
    """The runs of one database. Safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, url: str, *, create: bool = True) -> Store:
        """Open a database by URL or path, migrated to the newest schema. Raises DatabaseError."""
        return cls(Database(url, create=create))

    @property
    def name(self) -> str:
        """The file or URL, as messages show it (without a password)."""
        return self._database.name

    def read(self) -> AbstractContextManager[Session]:
        return self._database.read()

    def write(self) -> AbstractContextManager[Session]:
        return self._database.write()

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_run(
        self,
        config: Mapping[str, Any],
        name: str,
        game: str,
        agents: Sequence[Mapping[str, Any]],
        specs: Sequence[GameSpec],
    ) -> int:
        """Record a run with all its games as pending, and return its id.

        `config` and `agents` are JSON-able (`model_dump(mode="json")`); `specs` name their agents
        by unique names. The `run_id` in the specs is ignored: `pending_specs` returns them with the
        right one.
        """
        index = {agent["name"]: i for i, agent in enumerate(agents)}
        rules = games.get_game(game)
        starts = {
            start: rules.position(*start).fen()
            for start in {(spec.start_fen, spec.rules, spec.setup) for spec in specs}
        }
        with self.write() as session:
            run = RunRow(
                name=clean_text(name),
                game=game,
                config=finite(config),
                status="pending",
                owner=None,
                seq=0,
                created_at=time.time(),
                started_at=None,
                finished_at=None,
            )
            session.add(run)
            session.flush()
            session.execute(
                sa.insert(AgentRow),
                [
                    {
                        "run_id": run.id,
                        "index": i,
                        "name": clean_text(a["name"]),
                        "config": finite(a),
                    }
                    for i, a in enumerate(agents)
                ],
            )
            session.execute(
                sa.insert(GameRow),
                [
                    {
                        "run_id": run.id,
                        "number": spec.number,
                        "round": spec.round,
                        "first": index[spec.agents[0].name],
                        "second": index[spec.agents[1].name],
                        "spec": {field: getattr(spec, field) for field in _SPEC_FIELDS},
                        "status": "pending",
                        "plies": 0,
                        "start_fen": starts[spec.start_fen, spec.rules, spec.setup],
                        "fen": starts[spec.start_fen, spec.rules, spec.setup],
                    }
                    for spec in specs
                ],
            )
            return run.id

    def claim_run(self, run_id: int, owner: str | None = None) -> None:
        """Make `owner` (this process by default) the only writer of the run, before its games are
        played.

        The first claim starts the run, a later one resumes it: games that were being played are
        pending again. A dead owner is replaced at once. Raises RunBusy while the owner is alive,
        UnknownRun, and DatabaseError for a finished run.
        """
        owner = owner or owners.this_process()
        with self.write() as session:
            run = get_run(session, run_id, lock=True)
            if run.owner == owner:
                return
            if run.owner and owners.is_alive(run.owner):
                host, pid, _ = run.owner.rsplit(":", 2)
                raise RunBusy(
                    f"Run {run_id} is being played by process {pid} on {host}: stop that one first."
                )
            if run.status == "finished":
                raise DatabaseError(f"Run {run_id} is finished: there is nothing to resume.")
            resumed = run.started_at is not None
            session.execute(
                sa.update(GameRow)
                .where(GameRow.run_id == run_id, GameRow.status == "playing")
                .values(status="pending")
            )
            run.owner = owner
            run.status = "running"
            run.started_at = run.started_at or time.time()
            run.finished_at = None
            add_events(session, run_id, [("run_resumed", {}) if resumed else ("run_started", {})])

    def finish_run(self, run_id: int, status: str) -> None:
        """End a run as "finished", "interrupted" or "failed" and release it; call it after
        `Recorder.flush`.

        A finished run gets its ratings table. Raises DatabaseError when a run that is called
        finished has games left.
        """
        with self.write() as session:
            run = get_run(session, run_id, lock=True)
            if status == "finished":
                left = session.scalar(
                    sa.select(sa.func.count())
                    .select_from(GameRow)
                    .where(GameRow.run_id == run_id, GameRow.status != "finished")
                )
                if left:
                    raise DatabaseError(
                        f"Run {run_id} cannot be finished: {left} of its games are not."
                    )
                keep_standings(session, run_id)
            run.status = status
            run.owner = None
            run.finished_at = time.time()
            add_events(session, run_id, [("run_finished", {"status": status})])

    def pending_specs(self, run_id: int) -> list[GameSpec]:
        """The games that are not finished, by number, each with its recorded moves."""
        with self.read() as session:
            run = get_run(session, run_id)
            agents = [
                _agent_config.validate_python(config)
                for config in session.scalars(
                    sa.select(AgentRow.config)
                    .where(AgentRow.run_id == run_id)
                    .order_by(AgentRow.index)
                )
            ]
            moves = recorded_moves(session, run_id)
            rows = session.scalars(
                sa.select(GameRow)
                .where(GameRow.run_id == run_id, GameRow.status != "finished")
                .order_by(GameRow.number)
            )
            return [
                GameSpec(
                    run_id=run_id,
                    number=row.number,
                    round=row.round,
                    game=run.game,
                    agents=(agents[row.first], agents[row.second]),
                    moves=tuple(moves.get(row.number, ())),
                    **(row.spec | {"opening": tuple(row.spec.get("opening", ()))}),
                )
                for row in rows
            ]


def keep_standings(session: Session, run_id: int) -> None:
    """Write the table of a run that is finished."""
    session.execute(sa.delete(RatingRow).where(RatingRow.run_id == run_id))
    rows = standings_rows(session, run_id)
    session.execute(
        sa.insert(RatingRow),
        [
            {"run_id": run_id, "rank": rank} | {k: v for k, v in row.items() if k != "name"}
            for rank, row in enumerate(rows, 1)
        ],
    )


def get_run(session: Session, run_id: int, *, lock: bool = False) -> RunRow:
    """The run's row; with `lock` no other transaction changes it before this one ends."""
    run = session.get(RunRow, run_id, with_for_update=lock)
    if run is None:
        raise UnknownRun(f"There is no run {run_id} in the database.")
    return run


def recorded_moves(session: Session, run_id: int) -> dict[int, list[str]]:
    """UCI moves of the games that are not finished, by game number."""
    moves: dict[int, list[str]] = {}
    for number, uci in session.execute(
        sa.select(MoveRow.number, MoveRow.uci)
        .join(GameRow, sa.and_(GameRow.run_id == MoveRow.run_id, GameRow.number == MoveRow.number))
        .where(MoveRow.run_id == run_id, GameRow.status != "finished")
        .order_by(MoveRow.number, MoveRow.ply)
    ):
        moves.setdefault(number, []).append(uci)
    return moves


def add_events(session: Session, run_id: int, events: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Append (kind, payload) to the run's events; the caller's transaction makes them visible with
    what they tell.
    """
    last = session.scalar(
        sa.update(RunRow)
        .where(RunRow.id == run_id)
        .values(seq=RunRow.seq + len(events))
        .returning(RunRow.seq)
    )
    assert last is not None, "the caller has read the run"
    now = time.time()
    session.execute(
        sa.insert(EventRow),
        [
            {"run_id": run_id, "seq": seq, "at": now, "kind": kind, "payload": payload}
            for seq, (kind, payload) in enumerate(events, last - len(events) + 1)
        ],
    )


def played_games(session: Session, run_id: int) -> Iterator[ratings.Played]:
    """The finished games of a run that have a result, in order of their number."""
    for first, second, winner in session.execute(
        sa.select(GameRow.first, GameRow.second, GameRow.winner)
        .where(GameRow.run_id == run_id, GameRow.status == "finished", GameRow.result != "*")
        .order_by(GameRow.number)
    ):
        yield ratings.Played(first, second, winner)


def standings_rows(session: Session, run_id: int) -> list[dict[str, Any]]:
    """The table of the finished games, best first, computed now."""
    names = list(
        session.scalars(
            sa.select(AgentRow.name).where(AgentRow.run_id == run_id).order_by(AgentRow.index)
        )
    )
    return [
        {
            "agent": row.agent,
            "name": names[row.agent],
            "played": row.played,
            "wins": row.wins,
            "draws": row.draws,
            "losses": row.losses,
            "score": row.score,
            "rating": _tenths(row.rating.rating),
            "low": _tenths(row.rating.low),
            "high": _tenths(row.rating.high),
            "rating_note": row.rating.note,
        }
        for row in ratings.standings(len(names), list(played_games(session, run_id)))
    ]


def _tenths(elo: float | None) -> float | None:
    return None if elo is None else round(elo, 1) + 0.0  # no "-0.0"


def clean_text(text: str) -> str:
    """Text that both databases take: no NUL and no lone surrogate."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def finite(value: Any) -> Any:
    """A JSON value in which infinities and NaN are null, and every text is clean."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value
