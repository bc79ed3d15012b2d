"""Plays tournaments to their end: hands games to a runtime and what comes back to the recorder.

Several at once share one runtime. Knows nothing of the command line and of what is shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import games
from arena.agents import InfrastructureError
from arena.config import TournamentConfig, resolve_agents
from arena.pairing import game_specs
from arena.runtime import Runtime
from arena.store import DatabaseError, Recorder, Store, queries
from arena.types import EngineSample, GameResult, GameSpec, MoveRecord, Termination

ATTEMPTS = 3  # in a row without a new move, before a game's failures end the run
RETRY_S = 1.0  # before the second attempt; twice that before the third
SAMPLE_S = 1.0
RATE_S = 10.0  # rates are of the last so many seconds


class TournamentFailed(RuntimeError):
    """A run could not go on; it can be resumed. The message is one sentence."""


@dataclass(frozen=True)
class Run:
    """A recorded run and the games of it that are still to be played."""

    id: int
    config: TournamentConfig
    specs: Sequence[GameSpec]
    finished: int = 0  # games that were recorded before


@dataclass
class Progress:
    """What is going on, for whoever shows it. Written by the driver alone."""

    clock: Callable[[], float] = time.monotonic
    runs: Sequence[Run] = ()
    results: list[tuple[GameSpec, GameResult]] = field(default_factory=list)
    playing: dict[tuple[int, int], int] = field(default_factory=dict)  # (run, number) -> plies
    moves: int = 0
    stats: Mapping[str, Any] | None = None  # of the engine
    _recent: deque[float] = field(default_factory=deque)

    @property
    def games(self) -> int:
        """All games of the runs, those recorded before included."""
        return sum(run.finished + len(run.specs) for run in self.runs)

    @property
    def finished(self) -> int:
        return sum(run.finished for run in self.runs) + len(self.results)

    def started(self, spec: GameSpec) -> None:
        self.playing[spec.run_id, spec.number] = len(spec.moves)

    def moved(self, spec: GameSpec) -> None:
        self.playing[spec.run_id, spec.number] += 1
        self.moves += 1
        self._recent.append(self.clock())

    def stopped(self, spec: GameSpec) -> None:
        self.playing.pop((spec.run_id, spec.number), None)

    def moves_per_s(self) -> float:
        """Over the last `RATE_S` seconds, or since the first move if that is less."""
        now = self.clock()
        while self._recent and self._recent[0] < now - RATE_S:
            self._recent.popleft()
        if not self._recent:
            return 0.0
        return len(self._recent) / max(now - self._recent[0], SAMPLE_S)


def create_runs(configs: Sequence[TournamentConfig], store: Store) -> list[Run]:
    """Record new runs, with all their games pending. Raises DatabaseError."""
    runs = []
    for config in configs:
        agents = resolve_agents(config)
        name = config.name or f"{games.get_game(config.game).title}, {len(agents)} agents"
        run_id = store.create_run(
            config.model_dump(mode="json"),
            name,
            config.game,
            [agent.model_dump(mode="json") for agent in agents],
            game_specs(config, 0),
        )
        runs.append(Run(run_id, config, store.pending_specs(run_id)))
    return runs


def recorded_config(
    run_id: int, store: Store, overrides: Mapping[str, Any] | None = None
) -> TournamentConfig:
    """The configuration of a run that is to be resumed. Raises UnknownRun, and DatabaseError for
    an imported one.

    `overrides` are settings that decide where games run, not how they go.
    """
    recorded = queries.run_snapshot(store, run_id)["run"]["config"]
    if recorded.get("kind") == "imported":
        raise DatabaseError(f"Run {run_id} was imported: there is nothing to play.")
    # The games have their openings in their records; the book may be gone.
    without_book = {"openings": None, "opening_plies": None}
    return TournamentConfig.model_validate(recorded | without_book | dict(overrides or {}))


@contextlib.contextmanager
def claimed(run_ids: Sequence[int], store: Store) -> Iterator[None]:
    """Be the only process that writes these runs.

    Whichever is not finished when the block is left is then "interrupted" (`CancelledError`) or
    "failed", and can be resumed. Raises RunBusy.
    """
    mine = []
    status = "failed"
    try:
        for run_id in run_ids:
            store.claim_run(run_id)
            mine.append(run_id)
        yield
    except asyncio.CancelledError:
        status = "interrupted"
        raise
    finally:
        for run_id in mine:
            with contextlib.suppress(DatabaseError):  # then its own error is on its way already
                if queries.run_snapshot(store, run_id)["run"]["status"] == "running":
                    store.finish_run(run_id, status)


async def host(
    configs: Sequence[TournamentConfig],
    store: Store,
    runtime: Runtime,
    progress: Progress,
    resumed: Sequence[int] = (),
) -> None:
    """Start the runtime and play: new runs of `configs`, or what is left of the runs `resumed`,
    which `configs` are of.

    New runs are recorded when the engine is loaded and every prompt fits it, so that wrong input
    leaves no run behind. Raises RunBusy, TournamentFailed and what the runtime's `start` and
    `check` raise.
    """
    with contextlib.ExitStack() as stack:
        if resumed:
            stack.enter_context(claimed(resumed, store))  # first, so that nobody adds moves
            progress.runs = [
                _recorded_run(run_id, config, store)
                for run_id, config in zip(resumed, configs, strict=True)
            ]
        await runtime.start()
        if resumed:
            for run in progress.runs:
                runtime.check(run.specs)
        else:
            for config in configs:
                runtime.check(game_specs(config, run_id=0))
            progress.runs = create_runs(configs, store)
            stack.enter_context(claimed([run.id for run in progress.runs], store))
        await _play(progress.runs, store, runtime, progress)


def _recorded_run(run_id: int, config: TournamentConfig, store: Store) -> Run:
    recorded = queries.run_snapshot(store, run_id)["run"]
    specs = store.pending_specs(run_id)
    return Run(run_id, config, specs, finished=recorded["games_finished"])


async def _play(runs: Sequence[Run], store: Store, runtime: Runtime, progress: Progress) -> None:
    try:
        with Recorder(store, [run.id for run in runs]) as recorder:
            await _Driver(store, runtime, progress).play(runs, recorder)
    except DatabaseError as error:
        raise TournamentFailed(str(error)) from error


class _Driver:
    def __init__(self, store: Store, runtime: Runtime, progress: Progress) -> None:
        self._store = store
        self._runtime = runtime
        self._progress = progress

    async def play(self, runs: Sequence[Run], recorder: Recorder) -> None:
        tasks = [asyncio.create_task(self._play_run(run, recorder)) for run in runs]
        sampler = asyncio.create_task(self._sample(runs, recorder))
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in (*tasks, sampler):
                task.cancel()
            await asyncio.gather(*tasks, sampler, return_exceptions=True)

    async def _play_run(self, run: Run, recorder: Recorder) -> None:
        waiting = iter(run.specs)

        async def one_after_another() -> None:
            for spec in waiting:
                await self._play_game(spec, recorder)

        players = [
            asyncio.create_task(one_after_another())
            for _ in range(min(run.config.concurrency, len(run.specs)))
        ]
        try:
            await asyncio.gather(*players)
        finally:
            for player in players:
                player.cancel()
            await asyncio.gather(*players, return_exceptions=True)
        await asyncio.to_thread(recorder.flush)
        await asyncio.to_thread(self._store.finish_run, run.id, "finished")

    async def _play_game(self, spec: GameSpec, recorder: Recorder) -> None:
        """One game to its result, again from the last recorded ply when what it runs on fails."""
        moves = list(spec.moves)
        failures = 0
        while True:
            before = len(moves)
            self._progress.started(replace(spec, moves=tuple(moves)))
            failure = None
            try:
                async for event in self._runtime.play(replace(spec, moves=tuple(moves))):
                    if isinstance(event, GameResult):
                        if event.termination is Termination.INFRASTRUCTURE:
                            failure = event.reason
                            continue
                        self._progress.results.append((spec, event))
                    elif isinstance(event, MoveRecord):
                        moves.append(event.choice.uci)
                        self._progress.moved(spec)
                    recorder.put(event)
            except InfrastructureError as error:
                failure = str(error)
            finally:
                self._progress.stopped(spec)
            if failure is None:
                return
            failures = 1 if len(moves) > before else failures + 1
            if failures == ATTEMPTS:
                raise TournamentFailed(
                    f"Game {spec.number} of run {spec.run_id} failed {ATTEMPTS} times at ply "
                    f"{len(moves)}: {failure}."
                )
            await asyncio.sleep(failures * RETRY_S)

    async def _sample(self, runs: Sequence[Run], recorder: Recorder) -> None:
        while True:
            stats = await self._runtime.engine_stats()
            self._progress.stats = stats
            if stats is not None:
                figures = stats | {
                    "moves_per_s": round(self._progress.moves_per_s(), 1),
                    "games_running": len(self._progress.playing),
                }
                for run in runs:
                    recorder.put(EngineSample(run.id, time.time(), figures))
            await asyncio.sleep(SAMPLE_S)
