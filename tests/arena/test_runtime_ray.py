"""The actors, with processes that die. One Ray for the whole module."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from arena.config import ConfigError, TournamentConfig
from arena.pairing import game_specs
from arena.runtime import Runtime, make_runtime
from arena.store import Store, queries
from arena.tournament import Progress, host
from arena.types import GameResult, GameSpec, MoveRecord
from engine import ModelLoadError
from tests.arena.hosted import arena, descendants, record_of, tournament
from tests.engine.conftest import make_checkpoint

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "random"
    return str(make_checkpoint(path, max_position_embeddings=4096))


@pytest.fixture(scope="module")
def config(model: str) -> TournamentConfig:
    return tournament(agents=["random", "greedy", "Dragon"], model=model, max_plies=30, workers=2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runtime(config: TournamentConfig) -> AsyncIterator[Runtime]:
    runtime = make_runtime([config])
    await runtime.start()
    yield runtime
    await runtime.close()


def actors(kind: str) -> list[int]:
    """Processes of the actors of this kind; Ray names them so."""
    return [
        pid
        for pid in descendants(os.getpid())
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(f"ray::{kind}".encode())
    ]


async def play(runtime: Runtime, spec: GameSpec) -> tuple[list[str], GameResult]:
    events = [event async for event in runtime.play(spec)]
    assert isinstance(events[-1], GameResult)
    return [e.choice.uci for e in events if isinstance(e, MoveRecord)], events[-1]


@pytest.mark.asyncio(loop_scope="module")
async def test_bots_play_as_in_the_local_runtime(runtime: Runtime) -> None:
    specs = game_specs(tournament(), 1)
    local = make_runtime([tournament(runtime="local")])
    played = await asyncio.gather(*(play(runtime, spec) for spec in specs))
    assert played == [await play(local, spec) for spec in specs]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_game_goes_on_from_the_moves_given(runtime: Runtime) -> None:
    spec = game_specs(tournament(), 1)[0]
    moves, result = await play(runtime, spec)
    assert await play(runtime, replace(spec, moves=tuple(moves[:11]))) == (moves[11:], result)


@pytest.mark.asyncio(loop_scope="module")
async def test_only_the_engine_holds_torch(runtime: Runtime, config: TournamentConfig) -> None:
    runtime.check(game_specs(config, 1))
    await asyncio.gather(*(play(runtime, spec) for spec in game_specs(config, 1)))
    stats = await runtime.engine_stats()
    assert stats is not None
    assert stats["requests_finished"] > 0

    def holds_torch(pid: int) -> bool:
        return "libtorch" in Path(f"/proc/{pid}/maps").read_text()

    assert [holds_torch(pid) for pid in actors("EngineActor")] == [True]
    assert [holds_torch(pid) for pid in actors("MatchActor")] == [False, False]


@pytest.mark.parametrize("kind", ["MatchActor", "EngineActor"])
@pytest.mark.asyncio(loop_scope="module")
async def test_games_survive_the_death_of_an_actor(
    kind: str, runtime: Runtime, config: TournamentConfig, tmp_path: Path
) -> None:
    longer = config.model_copy(update={"max_plies": 100})
    with Store.open(str(tmp_path / "arena.db")) as store:
        progress = Progress()
        task = asyncio.create_task(host([longer], store, _Started(runtime), progress))
        while progress.moves < 60:
            assert not task.done()
            await asyncio.sleep(0.01)
        victims = actors(kind)
        os.kill(victims[0], signal.SIGKILL)
        await task
        assert actors(kind)[0] != victims[0]
        moves, results = record_of(store, 1)
        assert [r.status for r in results] == ["finished"] * 6
        assert sum(r.plies for r in results) == len(moves) == progress.moves
        assert queries.run_snapshot(store, 1)["run"]["status"] == "finished"
        # The bots' own games do not depend on the engine: they went as they go undisturbed.
        local = make_runtime([tournament(runtime="local")])
        for spec in game_specs(longer, 1):
            if all(agent.type != "llm" for agent in spec.agents):
                undisturbed, _ = await play(local, spec)
                assert [m.uci for m in moves if m.number == spec.number] == undisturbed


@pytest.mark.asyncio(loop_scope="module")
async def test_a_context_that_is_too_short_is_said_in_the_same_words(runtime: Runtime) -> None:
    long = tournament(agents=["random", {"type": "llm", "name": "Poet", "style": "ab " * 160}])
    runtime._engine._max_model_len = 300  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="context is 300"):
        runtime.check(game_specs(long, 1))


class _Started:
    """A runtime that is started already."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def start(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)


@pytest.mark.asyncio(loop_scope="module")
async def test_start_errors_come_unwrapped(
    runtime: Runtime, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Last, as the actor of the name is taken: start the actors by hand on the running Ray."""
    from arena.runtime import ray as module

    cut = make_checkpoint(tmp_path / "cut")
    weights = cut / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    monkeypatch.setattr(module.RayRuntime, "_init", lambda self: None)
    monkeypatch.setattr(module, "ENGINE", "another engine")
    broken = make_runtime([tournament(agents=["Dragon", "Pebble"], model=str(cut))])
    with pytest.raises(ModelLoadError, match=str(cut)) as caught:
        await broken.start()
    assert "\n" not in str(caught.value)


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    arguments = ["--agents", "random,greedy", "--ray-address", "127.0.0.1:1", "--no-web"]
    done = arena("run", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("arena: There is no Ray cluster at 127.0.0.1:1")
    assert done.stderr.count("\n") == 1
