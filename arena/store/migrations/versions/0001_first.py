"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision: str | None = None


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("game", sa.Text(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text()),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("started_at", sa.Float()),
        sa.Column("finished_at", sa.Float()),
    )
    op.create_table(
        "agents",
        sa.Column("run_id", sa.Integer(), sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("index", sa.Integer(), primary_key=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
    )
    op.create_table(
        "games",
        sa.Column("run_id", sa.Integer(), sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("first", sa.Integer(), nullable=False),
        sa.Column("second", sa.Integer(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("start_fen", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("plies", sa.Integer(), nullable=False),
        sa.Column("fen", sa.Text(), nullable=False),
        sa.Column("last_move", sa.Text()),
        sa.Column("winner", sa.Integer()),
        sa.Column("result", sa.Text()),
        sa.Column("termination", sa.Text()),
        sa.Column("reason", sa.Text()),
        sa.Column("by_points", sa.Boolean()),
        sa.Column("points_first", sa.Float()),
        sa.Column("points_second", sa.Float()),
        sa.Column("started_at", sa.Float()),
        sa.Column("finished_at", sa.Float()),
        sa.ForeignKeyConstraint(["run_id", "first"], ["agents.run_id", "agents.index"]),
        sa.ForeignKeyConstraint(["run_id", "second"], ["agents.run_id", "agents.index"]),
    )
    op.create_table(
        "moves",
        sa.Column("run_id", sa.Integer(), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("ply", sa.Integer(), primary_key=True),
        sa.Column("side", sa.Integer(), nullable=False),
        sa.Column("uci", sa.Text(), nullable=False),
        sa.Column("notation", sa.Text(), nullable=False),
        sa.Column("fen", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("elapsed_s", sa.Float()),
        sa.Column("queue_s", sa.Float()),
        sa.Column("prefill_s", sa.Float()),
        sa.Column("decode_s", sa.Float()),
        sa.Column("prompt_tokens", sa.Integer()),
        sa.Column("cached_tokens", sa.Integer()),
        sa.Column("scored_rows", sa.Integer()),
        sa.Column("logprob", sa.Float()),
        sa.Column("legal_mass", sa.Float()),
        sa.Column("entropy", sa.Float()),
        sa.Column("distribution", sa.JSON(), nullable=False),
        sa.Column("prompt_restarted", sa.Boolean(), nullable=False),
        sa.Column("thoughts", sa.Text()),
        sa.ForeignKeyConstraint(["run_id", "number"], ["games.run_id", "games.number"]),
    )
    op.create_table(
        "events",
        sa.Column("run_id", sa.Integer(), sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("seq", sa.Integer(), primary_key=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
    )
    op.create_table(
        "engine_samples",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("run_id", sa.Integer(), sa.ForeignKey("runs.id"), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("stats", sa.JSON(), nullable=False),
    )
    op.create_index("engine_samples_run_at", "engine_samples", ["run_id", "at"])
    op.create_table(
        "ratings",
        sa.Column("run_id", sa.Integer(), primary_key=True),
        sa.Column("agent", sa.Integer(), primary_key=True),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("played", sa.Integer(), nullable=False),
        sa.Column("wins", sa.Integer(), nullable=False),
        sa.Column("draws", sa.Integer(), nullable=False),
        sa.Column("losses", sa.Integer(), nullable=False),
        sa.Column("score", sa.Float(), nullable=False),
        sa.Column("rating", sa.Float()),
        sa.Column("low", sa.Float()),
        sa.Column("high", sa.Float()),
        sa.Column("rating_note", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id", "agent"], ["agents.run_id", "agents.index"]),
    )
