"""Language models that think before they choose, or write their move, in any notation."""

import random
from typing import Any

import pytest

import games
from arena import match
from arena.agents import NoMove, Resigned, build_agent
from arena.agents.base import GameView
from arena.config import ConfigError, LlmAgent, load_config
from arena.prompts import legal_moves_text, prompt_text, system_text
from arena.types import Termination
from tests.arena.fakes import FakeEngine, Scripted, Writing, game_spec, played


def model(**settings: Any) -> LlmAgent:
    return LlmAgent(name="Heron", **({"max_tokens": 50} | settings))


def view_of(spec: Any, moves: list[str]) -> GameView:
    position = games.get_game(spec.game).position(spec.start_fen, spec.rules, spec.setup)
    for move in moves:
        position.push(move)
    return GameView(position, moves, position.legal_moves(), spec, position.turn, position.ply)


async def test_a_thought_is_written_first_and_then_a_legal_move_is_chosen() -> None:
    config = model(mode="think")
    spec = game_spec(agents=(config, config))
    engine = Writing(" I attack.")
    choice = await build_agent(config, spec, engine).move(view_of(spec, ["e2e4", "e7e5"]))
    assert choice.thoughts == "I attack."
    [(prompt, params, _)] = engine.written
    base = prompt_text(config, None, view_of(spec, ["e2e4", "e7e5"]).position)
    base = base.removesuffix("\n\nAnswer as club:")
    assert prompt == f"{base}\n\nThoughts:"
    assert params.max_tokens == 50 and params.stop == ("\n\n",)
    assert engine.prompts == [f"{base}\n\nThoughts: I attack.\n\nAnswer as club:"]
    assert choice.uci in view_of(spec, ["e2e4", "e7e5"]).legal_moves
    assert (choice.queue_s, choice.prefill_s, choice.decode_s) == (
        0.2,
        0.4,
        0.6,
    )  # of both requests


async def test_a_free_reply_is_read_and_asked_for_again_if_it_gives_no_legal_move() -> None:
    config = model(mode="free", retries=2)
    spec = game_spec(agents=(config, config))
    engine = Writing(" Qh5 looks strong.\nAnswer: Qh9", " Answer: Qh6", " Hm.\nAnswer: Nf3")
    choice = await build_agent(config, spec, engine).move(view_of(spec, []))
    assert choice.uci == "g1f3"
    assert choice.thoughts == "Hm.\nAnswer: Nf3"
    prompts = [prompt for prompt, _, _ in engine.written]
    assert prompts[0].endswith("\n\nReply:")
    assert prompts[2].startswith(prompts[1]) and "That was no legal move (illegal)" in prompts[2]
    assert len({params.seed for _, params, _ in engine.written}) == 3
    assert len({request for _, _, request in engine.written}) == 3


@pytest.mark.parametrize(
    ("replies", "termination", "reason"),
    [
        (["e5", "e9"], Termination.NO_MOVE, "unparsable: 'e9'"),
        (["hello", "Qh5"], Termination.ILLEGAL_MOVE, "2 replies; the last was illegal: 'Qh5'"),
        (["", ""], Termination.NO_MOVE, "empty: ''"),
        (["I think <cut>", "Well <cut>"], Termination.NO_MOVE, "truncated: 'Well'"),
        (["e4 or d4", "e4 d4"], Termination.NO_MOVE, "ambiguous: 'e4 d4'"),
        (["I resign."], Termination.RESIGNATION, "white resigned"),
    ],
)
async def test_a_game_ends_by_what_was_wrong_with_the_replies(
    replies: list[str], termination: Termination, reason: str
) -> None:
    config = model(mode="free", retries=1)
    spec = game_spec(agents=(config, config))
    agent = build_agent(config, spec, Writing(*replies))
    records, result = await played(match.play(spec, (agent, Scripted())))
    assert not records
    assert result.termination is termination
    assert reason in result.reason
    assert result.winner == 1


async def test_the_agent_itself_raises_what_it_means() -> None:
    config = model(mode="free", retries=0)
    spec = game_spec(agents=(config, config))
    with pytest.raises(Resigned):
        await build_agent(config, spec, Writing("resign")).move(view_of(spec, []))
    with pytest.raises(NoMove) as raised:
        await build_agent(config, spec, Writing("no")).move(view_of(spec, []))
    assert raised.value.reason == "no legal move in one reply; the last was unparsable: 'no'"


@pytest.mark.parametrize("name", games.list_games())
async def test_transcript_and_choices_are_in_the_notation_that_was_asked_for(name: str) -> None:
    game = games.get_game(name)
    draw = random.Random(4)
    for notation in game.notations:
        config = model(notation=notation, show_position=True)
        spec = game_spec(name, agents=(config, config))
        position, moves = game.position(), []
        engine = FakeEngine()
        agent = build_agent(config, spec, engine)
        for _ in range(12):
            if position.turn == 0:
                await agent.move(view_of(spec, moves))
                legal = [position.notation(m, notation) for m in position.legal_moves()]
                choices, _, _ = engine.requests[-1]
                assert list(choices) == [f" {text}" for text in legal]
                assert engine.prompts[-1] == prompt_text(config, None, position)
                assert engine.prompts[-1].endswith(
                    f"\n\nPosition: {position.fen()}\n{position.ascii()}"
                    f"\n\nLegal moves:\n{legal_moves_text(position, notation)}\n\nAnswer as club:"
                )
                assert all(position.parse(text).move for text in legal)
            moves.append(draw.choice(position.legal_moves()))
            position.push(moves[-1])


async def test_a_long_game_restarts_its_transcript_and_leaves_room_for_the_thoughts() -> None:
    config = model(mode="think", notation="san")
    spec = game_spec(agents=(config, config))
    engine = Writing(*[" Hm."] * 80, max_model_len=1450)
    agent = build_agent(config, spec, engine)
    position, draw, restarts = games.get_game("chess").position(), random.Random(1), 0
    while position.ply < 160 and not position.outcome():
        if position.turn == 0:
            choice = await agent.move(view_of(spec, position.moves()))
            restarts += choice.prompt_restarted
        position.push(draw.choice(position.legal_moves()))
    assert restarts


def test_the_rules_that_a_prompt_tells_are_those_of_the_tournament() -> None:
    janggi = games.get_game("janggi")
    texts = {rules: system_text(janggi, rules) for rules in janggi.rule_sets}
    assert len(set(texts.values())) == len(texts)
    assert "four times" in texts["janggimodern"]
    assert "draw" in texts["janggicasual"] and "points decide" not in texts["janggicasual"]


def test_a_notation_that_the_game_does_not_have_is_refused_by_name() -> None:
    agents = [{"type": "llm", "name": "A", "notation": "digits"}, {"type": "llm", "name": "B"}]
    with pytest.raises(
        ConfigError, match=r"agents\[0\].notation is 'digits'; choose one of uci, san, lan"
    ):
        load_config(None, {"game": "janggi", "agents": agents})


def test_a_thought_that_does_not_fit_the_context_is_refused_before_the_game() -> None:
    config = model(mode="think", max_tokens=2000)
    with pytest.raises(ConfigError, match="raise max_model_len"):
        build_agent(config, game_spec(agents=(config, config)), FakeEngine(max_model_len=2500))
