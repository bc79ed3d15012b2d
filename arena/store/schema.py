"""The tables of the match database as SQLAlchemy models; `migrations` makes the same ones (a test
compares them).

Times are seconds since the epoch, durations are seconds. Nothing here knows how a row comes about.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import JSON, Float, ForeignKey, ForeignKeyConstraint, Index, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    type_annotation_map: ClassVar = {dict[str, Any]: JSON, float: Float, str: Text}


class RunRow(Base):
    """A tournament. `seq` is the number of its newest event."""

    __tablename__ = "runs"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    game: Mapped[str]
    config: Mapped[dict[str, Any]]
    status: Mapped[str]  # pending, running, finished, interrupted, failed
    owner: Mapped[str | None]  # the process that writes it now
    seq: Mapped[int]
    created_at: Mapped[float]
    started_at: Mapped[float | None]
    finished_at: Mapped[float | None]


class AgentRow(Base):
    __tablename__ = "agents"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    config: Mapped[dict[str, Any]]


class GameRow(Base):
    """A game from its pairing on; `fen`, `last_move` and `plies` follow its newest move."""

    __tablename__ = "games"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    round: Mapped[int]
    first: Mapped[int]  # index of the agent that moves first
    second: Mapped[int]
    spec: Mapped[
        dict[str, Any]
    ]  # rules, setup, start_fen, seed, max_plies, move_time_limit, as asked for
    start_fen: Mapped[str]  # the position that they lead to
    status: Mapped[str]  # pending, playing, finished
    plies: Mapped[int]
    fen: Mapped[str]
    last_move: Mapped[str | None]
    winner: Mapped[int | None]  # side: 0 = first mover
    result: Mapped[str | None]
    termination: Mapped[str | None]
    reason: Mapped[str | None]
    by_points: Mapped[bool | None]
    points_first: Mapped[float | None]
    points_second: Mapped[float | None]
    started_at: Mapped[float | None]
    finished_at: Mapped[float | None]

    __table_args__ = (
        ForeignKeyConstraint(["run_id", "first"], ["agents.run_id", "agents.index"]),
        ForeignKeyConstraint(["run_id", "second"], ["agents.run_id", "agents.index"]),
    )


class MoveRow(Base):
    __tablename__ = "moves"

    run_id: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    ply: Mapped[int] = mapped_column(primary_key=True)
    side: Mapped[int]
    uci: Mapped[str]
    notation: Mapped[str]
    fen: Mapped[str]
    key: Mapped[str]
    elapsed_s: Mapped[float | None]
    queue_s: Mapped[float | None]
    prefill_s: Mapped[float | None]
    decode_s: Mapped[float | None]
    prompt_tokens: Mapped[int | None]
    cached_tokens: Mapped[int | None]
    scored_rows: Mapped[int | None]
    logprob: Mapped[float | None]
    legal_mass: Mapped[float | None]
    entropy: Mapped[float | None]
    distribution: Mapped[dict[str, Any]]  # legal move -> probability
    prompt_restarted: Mapped[bool]
    thoughts: Mapped[str | None]

    __table_args__ = (ForeignKeyConstraint(["run_id", "number"], ["games.run_id", "games.number"]),)


class EventRow(Base):
    """What a viewer has to be told, in order: `seq` counts 1, 2, 3, ... within a run."""

    __tablename__ = "events"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[float]
    kind: Mapped[str]
    payload: Mapped[dict[str, Any]]


class EngineSampleRow(Base):
    __tablename__ = "engine_samples"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    at: Mapped[float]
    stats: Mapped[dict[str, Any]]

    __table_args__ = (Index("engine_samples_run_at", "run_id", "at"),)


class RatingRow(Base):
    """The final standings of a finished run; `low` and `high` are the ends of the 95% interval, in
    Elo.
    """

    __tablename__ = "ratings"

    run_id: Mapped[int] = mapped_column(primary_key=True)
    agent: Mapped[int] = mapped_column(primary_key=True)
    rank: Mapped[int]
    played: Mapped[int]
    wins: Mapped[int]
    draws: Mapped[int]
    losses: Mapped[int]
    score: Mapped[float]
    rating: Mapped[float | None]
    low: Mapped[float | None]
    high: Mapped[float | None]
    rating_note: Mapped[str]

    __table_args__ = (ForeignKeyConstraint(["run_id", "agent"], ["agents.run_id", "agents.index"]),)
