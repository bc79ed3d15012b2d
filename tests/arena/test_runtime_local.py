from pathlib import Path

import pytest

from arena.config import ROSTER, ConfigError
from arena.pairing import game_specs
from arena.runtime import make_runtime
from arena.types import GameResult, MoveRecord, Termination
from engine import ModelLoadError
from tests.arena.hosted import tournament
from tests.engine.conftest import make_checkpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "random"
    return str(make_checkpoint(path, max_position_embeddings=4096))


async def test_bots_need_no_engine() -> None:
    config = tournament(runtime="local")
    runtime = make_runtime([config])
    await runtime.start()
    runtime.check(game_specs(config, 1))
    events = [event async for event in runtime.play(game_specs(config, 1)[0])]
    assert isinstance(events[-1], GameResult)
    assert events[-1].plies == len(events) - 2
    assert await runtime.engine_stats() is None
    await runtime.close()


@pytest.mark.slow
async def test_language_models_share_the_engine_and_its_cache(model: str) -> None:
    # Agents that are shown the game alone: a list of legal moves is new at each ply.
    agents = [
        agent.model_copy(update={"show_legal_moves": False}) for agent in (ROSTER[0], ROSTER[-1])
    ]
    config = tournament(runtime="local", agents=agents, model=model, max_plies=8)
    runtime = make_runtime([config])
    await runtime.start()
    specs = game_specs(config, 1)
    runtime.check(specs)
    moves = []
    for spec in specs:
        events = [event async for event in runtime.play(spec)]
        assert events[-1].termination is Termination.PLY_LIMIT  # type: ignore[union-attr]
        moves += [event.choice for event in events if isinstance(event, MoveRecord)]
    assert all(sum(m.distribution.values()) == pytest.approx(1, abs=0.01) for m in moves)
    stats = await runtime.engine_stats()
    assert stats is not None
    assert stats["requests_finished"] == len(moves) == 16
    assert stats["prefix_hit_rate"] > 0.9
    await runtime.close()
    assert await runtime.engine_stats() is None


@pytest.mark.slow
async def test_a_prompt_longer_than_the_context_is_refused_before_any_game(model: str) -> None:
    config = tournament(
        runtime="local", agents=["Pebble", "Dragon"], model=model, engine={"max_model_len": 100}
    )
    runtime = make_runtime([config])
    await runtime.start()
    with pytest.raises(ConfigError, match="context is 100"):
        runtime.check(game_specs(config, 1))
    await runtime.close()


async def test_a_model_without_weights_is_refused(tmp_path: Path) -> None:
    runtime = make_runtime(
        [tournament(runtime="local", agents=["Pebble", "Dragon"], model=str(tmp_path))]
    )
    with pytest.raises(ModelLoadError, match=str(tmp_path)):
        await runtime.start()
    await runtime.close()


def test_tournaments_at_once_agree_on_what_they_share() -> None:
    configs = [tournament(model="a"), tournament(model="b", max_plies=3)]
    with pytest.raises(ConfigError, match=r"model: .*'a' and 'b'"):
        make_runtime(configs)
