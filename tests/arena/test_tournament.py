import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from arena.agents import InfrastructureError
from arena.config import ConfigError
from arena.runtime import GameEvent, RuntimeStartError
from arena.store import DatabaseError, RunBusy, Store, queries
from arena.tournament import (
    ATTEMPTS,
    Progress,
    TournamentFailed,
    create_runs,
    host,
    recorded_config,
)
from arena.types import GameResult, GameSpec, MoveRecord, Termination
from tests.arena.hosted import FakeRuntime, dies_once_at, record_of, tournament


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "arena.db")) as store:
        yield store


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.tournament.RETRY_S", 0.0)


async def play(store: Store, runtime: FakeRuntime, **changes: object) -> Progress:
    progress = Progress()
    await host([tournament(**changes)], store, runtime, progress)
    return progress


def status(store: Store, run_id: int) -> str:
    return str(queries.run_snapshot(store, run_id)["run"]["status"])


async def test_a_tournament_is_played_and_recorded_to_its_end(store: Store) -> None:
    progress = await play(store, FakeRuntime())
    snapshot = queries.run_snapshot(store, 1)
    assert snapshot["run"]["status"] == "finished"
    assert snapshot["run"]["name"] == "Chess, 3 agents"
    assert [game["status"] for game in snapshot["games"]] == ["finished"] * 6
    moves, results = record_of(store, 1)
    assert len({(move.number, move.ply) for move in moves}) == len(moves) == progress.moves
    assert sum(result.plies for result in results) == len(moves)
    assert progress.finished == progress.games == 6
    assert not progress.playing
    assert sum(row["score"] for row in snapshot["standings"]) == 6


async def test_engine_figures_are_sampled(store: Store) -> None:
    await play(store, FakeRuntime())
    samples = queries.engine_samples(store, 1)
    assert samples
    assert samples[0]["stats"].keys() >= {"num_waiting", "moves_per_s", "games_running"}


async def test_no_more_games_at_once_than_asked_for(store: Store) -> None:
    runtime = FakeRuntime()
    await play(store, runtime, concurrency=2)
    assert runtime.most_at_once == 2
    assert [spec.number for spec in runtime.submitted] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("ply", [0, 1, 7])
async def test_a_game_goes_on_from_its_last_recorded_ply(store: Store, ply: int) -> None:
    await play(store, FakeRuntime())
    runtime = FakeRuntime(fails=dies_once_at(ply))
    await play(store, runtime)
    assert record_of(store, 2) == record_of(store, 1)
    assert {len(spec.moves) for spec in runtime.submitted} == {0, ply}


async def test_a_void_result_is_not_recorded_and_the_game_goes_on(store: Store) -> None:
    class Voiding(FakeRuntime):
        async def play(self, spec: GameSpec) -> AsyncIterator[GameEvent]:
            async for event in super().play(spec):
                if isinstance(event, MoveRecord) and event.ply == 5 and not spec.moves:
                    event = GameResult(
                        *(spec.run_id, spec.number, None, Termination.INFRASTRUCTURE),
                        *("the engine stopped", False, None, 5, event.fen),
                    )
                    yield event
                    return
                yield event

    await play(store, FakeRuntime())
    await play(store, Voiding())
    assert record_of(store, 2) == record_of(store, 1)


async def test_a_game_that_keeps_failing_ends_the_run_and_it_can_be_resumed(store: Store) -> None:
    def fails(spec: GameSpec, record: MoveRecord) -> None:
        if spec.number == 3 and record.ply == 4:
            raise InfrastructureError("the engine is gone")

    runtime = FakeRuntime(fails)
    with pytest.raises(TournamentFailed, match=r"Game 3 .* 3 times at ply 4: the engine is gone"):
        await play(store, runtime)
    assert [spec.number for spec in runtime.submitted].count(3) == ATTEMPTS
    assert status(store, 1) == "failed"
    await host([recorded_config(1, store)], store, FakeRuntime(), Progress(), [1])
    assert status(store, 1) == "finished"
    await play(store, FakeRuntime())
    assert record_of(store, 1) == record_of(store, 2)


@pytest.mark.parametrize("moves", [0, 1, 20, 120])
async def test_interrupted_and_resumed_equals_undisturbed(store: Store, moves: int) -> None:
    await play(store, FakeRuntime())
    progress = Progress()
    task = asyncio.create_task(host([tournament()], store, FakeRuntime(), progress))
    while progress.moves < moves or not progress.runs:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert status(store, 2) == "interrupted"
    config = recorded_config(2, store, {"concurrency": 1})
    progress = Progress()
    await host([config], store, FakeRuntime(), progress, [2])
    assert progress.finished == progress.games == 6
    assert record_of(store, 2) == record_of(store, 1)


async def test_several_tournaments_at_once(store: Store) -> None:
    runtime = FakeRuntime()
    progress = Progress()
    configs = [tournament(), tournament(game="janggi", agents=["Dragon", "Pebble", "greedy"])]
    await host(configs, store, runtime, progress)
    assert [status(store, run) for run in (1, 2)] == ["finished", "finished"]
    assert {spec.game for spec in runtime.submitted[:12]} == {"chess", "janggi"}
    assert progress.finished == 12


@pytest.mark.parametrize(
    ("runtime", "error"),
    [
        (FakeRuntime(start=RuntimeStartError("no")), RuntimeStartError),
        (FakeRuntime(check=ConfigError("too long")), ConfigError),
    ],
)
async def test_wrong_input_leaves_no_run_behind(
    store: Store, runtime: FakeRuntime, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await play(store, runtime)
    assert queries.runs(store) == []


async def test_a_run_that_another_process_plays_is_refused(store: Store) -> None:
    run_id = create_runs([tournament()], store)[0].id
    store.claim_run(run_id, "another.host:1:1")
    with pytest.raises(RunBusy):
        await host([tournament()], store, FakeRuntime(), Progress(), [run_id])
    assert status(store, run_id) == "running"


async def test_a_database_that_fails_ends_the_run(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise DatabaseError("The disk is full.")

    monkeypatch.setattr("arena.store.recorder.Recorder._commit", full)
    with pytest.raises(TournamentFailed, match="disk is full"):
        await play(store, FakeRuntime())
    assert status(store, 1) == "failed"


def test_moves_per_second_are_of_the_last_ten_seconds() -> None:
    now = 100.0
    progress = Progress(clock=lambda: now)
    spec = GameSpec(1, 1, 1, "chess", None, None, None, (), 0, 40)  # type: ignore[arg-type]
    progress.started(spec)
    assert progress.moves_per_s() == 0.0
    for _ in range(50):
        progress.moved(spec)
        now += 0.1
    assert progress.moves_per_s() == pytest.approx(10.0)
    now += 60
    assert progress.moves_per_s() == 0.0
    assert progress.playing == {(1, 1): 50}
