"""A runtime that can be told to fail, and what is recorded of a run, for tests of hosting."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from arena.agents import InfrastructureError
from arena.config import TournamentConfig, load_config
from arena.runtime import GameEvent, play_game
from arena.store import Store
from arena.store.schema import GameRow, MoveRow
from arena.types import GameSpec, MoveRecord
from tests.arena.fakes import FakeEngine

ROOT = Path(__file__).parents[2]
STARTUP_S = 180.0  # for a command to come to its first moves on a crowded machine


class FakeRuntime:
    """Plays in this process with `FakeEngine`; `fails(spec, record)` may raise at any move."""

    def __init__(
        self,
        fails: Callable[[GameSpec, MoveRecord], None] | None = None,
        start: Exception | None = None,
        check: Exception | None = None,
    ) -> None:
        self.engine = FakeEngine()
        self.fails = fails
        self.on_start = start
        self.on_check = check
        self.submitted: list[GameSpec] = []
        self.most_at_once = 0
        self._playing = 0

    async def start(self) -> None:
        if self.on_start:
            raise self.on_start

    def check(self, specs: Iterable[GameSpec]) -> None:
        if self.on_check:
            raise self.on_check

    async def play(self, spec: GameSpec) -> AsyncIterator[GameEvent]:
        self.submitted.append(spec)
        self._playing += 1
        self.most_at_once = max(self.most_at_once, self._playing)
        try:
            async for event in play_game(spec, self.engine):
                if self.fails and isinstance(event, MoveRecord):
                    self.fails(spec, event)
                yield event
                await asyncio.sleep(0)
        finally:
            self._playing -= 1

    async def engine_stats(self) -> dict[str, Any] | None:
        return {"num_waiting": 0, "tokens_per_s": 1.0, "prefix_hit_rate": None}

    async def close(self) -> None:
        pass


def dies_once_at(ply: int) -> Callable[[GameSpec, MoveRecord], None]:
    """Every game loses what it runs on once, before the record of `ply` gets through."""
    died = set()

    def fails(spec: GameSpec, record: MoveRecord) -> None:
        if record.ply == ply and spec.number not in died:
            died.add(spec.number)
            raise InfrastructureError("the process died")

    return fails


def tournament(**changes: Any) -> TournamentConfig:
    """Three bots, six short games."""
    return load_config(
        None, {"game": "chess", "agents": ["random", "greedy", "random"], "max_plies": 30} | changes
    )


def record_of(store: Store, run_id: int) -> tuple[list[Any], list[Any]]:
    """All moves and all results of a run, in order."""
    with store.read() as session:
        moves = session.execute(
            sa.select(MoveRow.number, MoveRow.ply, MoveRow.uci, MoveRow.fen)
            .where(MoveRow.run_id == run_id)
            .order_by(MoveRow.number, MoveRow.ply)
        ).all()
        results = session.execute(
            sa.select(GameRow.number, GameRow.status, GameRow.result, GameRow.reason, GameRow.plies)
            .where(GameRow.run_id == run_id)
            .order_by(GameRow.number)
        ).all()
    return list(moves), list(results)


def start_arena(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """The command `arena` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", "from arena.cli import main; main()", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def arena(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    process = start_arena(*arguments, cwd=cwd)
    out, err = process.communicate(timeout=STARTUP_S * 2)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def wait_for_moves(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Return when `count` moves are recorded in the SQLite file at `path`."""
    until = time.monotonic() + STARTUP_S
    while time.monotonic() < until:
        assert process.poll() is None, process.communicate()
        if path.exists() and path.stat().st_size:
            engine = sa.create_engine(f"sqlite:///{path}")
            try:
                with engine.connect() as connection:
                    recorded = connection.scalar(sa.text("select count(*) from moves"))
                    if (recorded or 0) >= count:
                        return
            except sa.exc.OperationalError:
                pass  # no table yet
            finally:
                engine.dispose()
        time.sleep(0.02)
    raise AssertionError(f"no {count} moves within {STARTUP_S} s")


def descendants(pid: int) -> set[int]:
    """The processes below `pid` (Linux)."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # proc(5): the parent is the second field after the name in brackets.
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found: set[int] = set()
    while new := {p for p, parent in parents.items() if parent in found | {pid}} - found:
        found |= new
    return found


def outlive(pids: Iterable[int], seconds: float) -> set[int]:
    """Those that are still there after `seconds`."""
    until = time.monotonic() + seconds
    left = set(pids)
    while left and time.monotonic() < until:
        time.sleep(0.2)
        left = {pid for pid in left if _alive(pid)}
    return left


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
