"""The language-model agent on the real engine with the bundled model."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from arena import match
from arena.agents import build_agent
from arena.config import bundled_model
from arena.prompts import answer_text, shown_text
from arena.runtime.local import LocalEngine
from arena.types import GameSpec, MoveRecord
from engine import AsyncLLM, EngineConfig
from games import get_game
from tests.arena.fakes import agents, game_spec, played


@pytest.fixture
async def engine() -> AsyncIterator[LocalEngine]:
    llm = AsyncLLM(EngineConfig(bundled_model(), dtype="float32", device="cpu", num_threads=1))
    yield LocalEngine(llm)
    await llm.close()


async def records_of(spec: GameSpec, engine: LocalEngine) -> list[MoveRecord]:
    first, second = (build_agent(config, spec, engine) for config in spec.agents)
    records, _ = await played(match.play(spec, (first, second)))
    return records


@pytest.mark.parametrize("show_legal_moves", [True, False])
async def test_each_ply_computes_only_what_is_new(
    engine: LocalEngine, show_legal_moves: bool
) -> None:
    """The moves since the last one, and the legal ones; of the moves alone, the own one was scored before."""
    both = tuple(
        agent.model_copy(update={"show_legal_moves": show_legal_moves})
        for agent in agents("Heron", "Dragon")
    )
    specs = [
        game_spec(game, number=n, agents=both, max_plies=12)
        for n, game in enumerate(("chess", "janggi", "janggi"), start=1)
    ]
    played = await asyncio.gather(*(records_of(spec, engine) for spec in specs))
    for spec, records in zip(specs, played, strict=True):
        position = get_game(spec.game).position()
        for record in records:
            moves, ply = position.moves(), record.ply
            new = f" {moves[ply - 1]}" if ply else ""
            if show_legal_moves:
                new = "".join(f" {move}" for move in moves[max(ply - 2, 0) :])
                new += shown_text(both[0], position) + answer_text("master")
            position.push(record.choice.uci)
            if ply < 2:
                continue
            prompt, cached = record.choice.prompt_tokens, record.choice.cached_tokens
            assert prompt is not None
            assert cached is not None
            assert prompt - cached <= len(engine.tokenizer.encode_choice(new)) + 1
            assert 0 < (record.choice.legal_mass or 0) <= 1
            assert record.choice.uci in record.choice.distribution


async def test_resumed_game_goes_on_as_it_would_have(engine: LocalEngine) -> None:
    spec = game_spec("janggi", agents=agents("Heron", "Dragon"), max_plies=10)
    line = [r.choice.uci for r in await records_of(spec, engine)]
    for ply in (1, 4, 7):
        resumed = await records_of(replace(spec, moves=tuple(line[:ply])), engine)
        assert [r.choice.uci for r in resumed] == line[ply:]
