import asyncio
import math
import random
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

import games
from arena import config as cfg
from arena import keys
from arena.agents import (
    Agent,
    EngineClient,
    GameView,
    InfrastructureError,
    build_agent,
    check_context,
)
from arena.agents.alphabeta import AlphaBetaPlayer
from arena.config import ConfigError
from arena.prompts import prompt_text
from arena.types import GameSpec, MoveChoice
from engine import Aborted, DeadlineExceeded, NoChoices, PromptTooLong, QueueFull
from tests.arena.fakes import FakeEngine, agents, game_spec

DRAGON = cfg.LlmAgent(
    name="Dragon", strength="master", style="You attack.", temperature=0.5, top_p=0.9, min_p=0.1
)
BLIND = DRAGON.model_copy(update={"show_legal_moves": False})


def view_of(position: games.Position, **changes: Any) -> GameView:
    """What an agent sees at `position`."""
    spec = replace(game_spec(position.game.name), **changes)
    moves = position.moves()
    return GameView(position, moves, position.legal_moves(), spec, position.turn, position.ply)


async def answer(config: cfg.AgentConfig, position: games.Position, **changes: Any) -> MoveChoice:
    """The move of a bot, which must leave the position as it was."""
    before = position.fen(), position.moves()
    view = view_of(position, **changes)
    choice = await build_agent(config, view.spec, None).move(view)
    assert (position.fen(), position.moves()) == before
    assert choice.uci in view.legal_moves
    return choice


def alphabeta(depth: int) -> cfg.AlphaBetaAgent:
    return cfg.AlphaBetaAgent(name="S", depth=depth)


RANDOM, GREEDY = cfg.RandomAgent(name="R"), cfg.GreedyAgent(name="G")
BOTS = [RANDOM, GREEDY, alphabeta(1), alphabeta(2)]


def test_keys_depend_on_every_part_and_on_nothing_else() -> None:
    assert keys.key(0, 1, 2, "move") == 18296223178114906807
    parts: list[tuple[int | str, ...]] = [(1, 2), (12,), (1, "2"), (1, 2, ""), ("1", 2)]
    seen = {keys.key(seed, *p) for p in parts for seed in (0, 1)}
    assert len(seen) == 10
    assert keys.rng(3, "x").random() == keys.rng(3, "x").random()


@pytest.mark.parametrize("bot", BOTS, ids=repr)
@pytest.mark.parametrize("game", ["chess", "janggi"])
async def test_a_draw_depends_on_seed_game_and_ply(bot: cfg.AgentConfig, game: str) -> None:
    position = games.get_game(game).position()
    first = await answer(bot, position)
    assert first == await answer(bot, position)
    drawn = {(await answer(bot, position, seed=seed)).uci for seed in range(8)}
    drawn_in_games = {(await answer(bot, position, number=number)).uci for number in range(8)}
    assert min(len(drawn), len(drawn_in_games)) > 2


async def test_random_draws_evenly() -> None:
    position = games.get_game("janggi").position()
    counts = Counter([(await answer(RANDOM, position, seed=seed)).uci for seed in range(640)])
    assert set(counts) == set(position.legal_moves())
    expected = 640 / len(counts)
    chi2 = sum((n - expected) ** 2 / expected for n in counts.values())
    assert chi2 < 61.1  # 31 degrees of freedom, p = 0.001


@pytest.mark.parametrize(
    ("game", "fen", "best"),
    [
        # A queen, a rook and a pawn can be taken.
        ("chess", "4k3/8/8/1q3r2/p3P3/1P6/8/4KB2 w - - 0 1", {"f1b5"}),
        ("chess", "7k/4P3/8/8/8/8/8/K7 w - - 0 1", {"e7e8q"}),
        # Both rooks are worth the same.
        ("chess", "4k3/8/8/3r1r2/4P3/8/8/4K3 w - - 0 1", {"e4d5", "e4f5"}),
        # A chariot can take a cannon or a soldier.
        ("janggi", "4k4/9/9/c3p4/9/R8/9/9/4K4/9 w - - 0 1", {"a5a7"}),
    ],
)
@pytest.mark.parametrize("bot", [GREEDY, alphabeta(1)], ids=repr)
async def test_bots_take_what_is_worth_most(
    bot: cfg.AgentConfig, game: str, fen: str, best: set[str]
) -> None:
    position = games.get_game(game).position(fen)
    assert {(await answer(bot, position, seed=seed)).uci for seed in range(12)} == best


async def test_alphabeta_sees_that_a_piece_is_guarded() -> None:
    # The queen can take a guarded pawn; at depth 1 she does.
    position = games.get_game("chess").position("4k3/2p5/3p4/8/8/8/3Q4/4K3 w - - 0 1")
    assert (await answer(alphabeta(1), position)).uci == "d2d6"
    assert (await answer(alphabeta(2), position)).uci != "d2d6"


@pytest.mark.parametrize(
    ("depth", "fen", "best"),
    [
        # Mate at once, although the queen could be taken.
        (1, "6k1/5ppp/8/8/8/8/q4PPP/R3R1K1 w - - 0 1", "e1e8"),
        # Mate in two, by giving the rook up (Paul Morphy's problem).
        (3, "kbK5/pp6/1P6/8/8/8/8/R7 w - - 0 1", "a1a6"),
    ],
)
async def test_alphabeta_mates(depth: int, fen: str, best: str) -> None:
    assert (await answer(alphabeta(depth), games.get_game("chess").position(fen))).uci == best


async def test_alphabeta_takes_a_draw_by_repetition_when_it_is_behind() -> None:
    position = games.get_game("chess").position("6k1/7q/8/8/8/8/8/K7 b - - 0 1")
    for move in ("h7h6", "a1a2", "h6h7", "a2a1", "h7h6", "a1a2", "h6h7"):
        position.push(move)
    assert {(await answer(alphabeta(1), position, seed=s)).uci for s in range(8)} == {"a2a1"}


def minimax(position: games.Position, depth: int, ply: int = 0) -> float:
    """Plain minimax for the side to move, without pruning."""
    side = position.turn
    if outcome := position.outcome():
        if outcome.winner is None:
            return 0.0
        return 1e6 - ply if outcome.winner == side else ply - 1e6
    if depth == 0:
        return position.material()[side] - position.material()[1 - side]
    values = []
    for move in position.legal_moves():
        position.push(move)
        values.append(-minimax(position, depth - 1, ply + 1))
        position.pop()
    return max(values)


@pytest.mark.parametrize("game", ["chess", "janggi"])
async def test_alphabeta_plays_a_best_move_of_plain_minimax(game: str) -> None:
    rng = random.Random(1)
    for _ in range(4):
        position = games.get_game(game).position()
        for _ in range(rng.randrange(4, 30)):
            if position.outcome():
                break
            position.push(rng.choice(position.legal_moves()))
        if position.outcome():
            continue
        best = minimax(position, 2)
        move = (await answer(alphabeta(2), position)).uci
        position.push(move)
        assert -minimax(position, 1, 1) == best


async def test_a_search_that_is_called_off_makes_room_for_the_next() -> None:
    position = games.get_game("janggi").position()
    task = asyncio.create_task(AlphaBetaPlayer(50).move(view_of(position)))  # would never end
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(answer(alphabeta(1), position), timeout=60)


async def test_search_leaves_the_event_loop_free(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()

    def search(*args: Any) -> float:
        assert free.wait(60)
        return 0.0

    monkeypatch.setattr("arena.agents.alphabeta._negamax", search)
    position = games.get_game("janggi").position()
    task = asyncio.create_task(AlphaBetaPlayer(1).move(view_of(position)))
    await asyncio.sleep(0)
    free.set()  # only reached while the search waits elsewhere
    assert (await task).uci in position.legal_moves()


def new_llm(
    engine: FakeEngine, config: cfg.LlmAgent = DRAGON, **changes: Any
) -> tuple[Agent, GameSpec]:
    spec = game_spec(agents=(config, config), **changes)
    client: EngineClient = engine
    return build_agent(config, spec, client), spec


def expected(spec: GameSpec, start: str | None, moves: list[str]) -> str:
    game = games.get_game(spec.game)
    position = game.position(spec.start_fen, spec.rules, spec.setup)
    for move in moves:
        position.push(move)
    return prompt_text(DRAGON, start, position)


async def follow(
    agent: Agent, spec: GameSpec, side: int, plies: int, seed: int = 1, from_ply: int = 0
) -> list[MoveChoice]:
    """The agent's answers at its plies of a game of random moves, of which its own are some."""
    rng = random.Random(seed)
    position = games.get_game(spec.game).position(spec.start_fen, spec.rules, spec.setup)
    choices = []
    while position.ply < plies and not position.outcome():
        legal = position.legal_moves()
        if position.turn == side and position.ply >= from_ply:
            view = GameView(position, position.moves(), legal, spec, side, position.ply)
            choices.append(await agent.move(view))
        position.push(rng.choice(legal))
    return choices


async def test_request_of_a_language_model() -> None:
    engine = FakeEngine()
    agent, spec = new_llm(engine, game="janggi", run_id=3, number=8)
    position = games.get_game("janggi").position()
    position.push("a4a5")
    view = view_of(position, run_id=3, number=8)
    choice = await agent.move(view)

    assert engine.prompts == [expected(spec, None, ["a4a5"])]
    choices, params, request_id = engine.requests[0]
    assert list(choices) == [f" {move}" for move in view.legal_moves]
    assert (params.scoring, params.temperature, params.top_p, params.min_p) == (
        "likelihood",
        0.5,
        0.9,
        0.1,
    )
    assert params.seed == keys.key(5, 8, 1, "choice")
    assert request_id.startswith("3/8/1/")
    assert engine.clients[0] == "run 3"
    assert choice.uci in view.legal_moves
    assert choice.distribution[choice.uci] == round(math.exp(choice.logprob or 0), 4)
    assert list(choice.distribution.values()) == sorted(choice.distribution.values(), reverse=True)
    assert sum(choice.distribution.values()) == pytest.approx(1, abs=0.005)
    assert (choice.legal_mass, choice.entropy) == (0.75, 1.25)
    assert (choice.queue_s, choice.prefill_s, choice.decode_s) == (0.1, 0.2, 0.3)
    assert (choice.cached_tokens, choice.scored_rows) == (5, 6)
    assert choice.prompt_tokens == len(expected(spec, None, ["a4a5"]))
    assert not choice.prompt_restarted


async def test_masked_scoring_has_no_distribution() -> None:
    engine = FakeEngine()
    agent, spec = new_llm(engine, DRAGON.model_copy(update={"scoring": "masked"}))
    [choice] = await follow(agent, spec, side=0, plies=1)
    assert choice.distribution == {}
    assert choice.logprob is not None


async def test_each_prompt_begins_with_the_one_before() -> None:
    engine = FakeEngine()
    agent, spec = new_llm(engine, BLIND, game="janggi")
    await follow(agent, spec, side=1, plies=30)
    assert len(engine.prompts) == 15
    for before, after in zip(engine.prompts, engine.prompts[1:], strict=False):
        assert after.startswith(before)
        assert len(after[len(before) :].split()) == 2  # one move of each side


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"game": "janggi"}, None),
        ({"game": "janggi", "setup": "NBBN-NBBN"}, None),
        ({"game": "janggi", "setup": "NBNB-BNNB"}, "NBNB-BNNB"),
        (
            {"start_fen": "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"},
            "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1",
        ),
    ],
)
async def test_prompt_names_an_unusual_start(changes: dict[str, Any], start: str | None) -> None:
    engine = FakeEngine()
    agent, spec = new_llm(engine, **changes)
    await follow(agent, spec, side=0, plies=1)
    assert engine.prompts == [expected(spec, start, [])]


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(("config", "limit"), [(BLIND, 1150), (DRAGON, 1960)])
async def test_transcript_restarts_at_the_context_limit(
    side: int, config: cfg.LlmAgent, limit: int
) -> None:
    """The game goes on and says where it restarted; resumed, it has the same prompts and flags."""
    engine = FakeEngine(limit)  # bytes; rules and persona take about 900, three lists of moves 650
    agent, spec = new_llm(engine, config, game="janggi")
    choices = await follow(agent, spec, side=side, plies=110)
    restarts = [i for i, choice in enumerate(choices) if choice.prompt_restarted]
    assert len(restarts) >= 2
    for i in range(1, len(choices)):
        moves, _, _ = engine.prompts[i - 1].partition("\n\nLegal moves:")
        grew = engine.prompts[i].startswith(moves)
        assert grew == (i not in restarts)

    for from_ply in range(0, 110, 29):
        other = FakeEngine(limit)
        resumed, _ = new_llm(other, config, game="janggi")
        again = await follow(resumed, spec, side=side, plies=110, from_ply=from_ply)
        assert again == choices[len(choices) - len(again) :]
        assert other.prompts == engine.prompts[len(choices) - len(again) :]


async def test_restarted_prompt_shows_the_position_and_the_last_moves() -> None:
    engine = FakeEngine(1250)
    agent, spec = new_llm(engine, BLIND, game="janggi")
    choices = await follow(agent, spec, side=0, plies=110)
    first = next(i for i, choice in enumerate(choices) if choice.prompt_restarted)
    start, _, moves = engine.prompts[first].split("Start: ")[1].partition("\n\nGame:")
    position = games.get_game("janggi").position(start)
    for move in moves.split():
        position.push(move)  # raises if it does not fit the position
    assert set(engine.requests[first][0]) == {f" {move}" for move in position.legal_moves()}
    assert len(moves.split()) >= 4


def test_prompt_that_does_not_fit_is_refused_before_the_first_game() -> None:
    specs = [game_spec("janggi", agents=agents("random", "Dragon"))]
    check_context(specs, FakeEngine(2048))
    check_context([game_spec("janggi")], FakeEngine(10))  # bots need no context
    chess = game_spec("chess", agents=agents("random", "Dragon"))
    janggi = game_spec("janggi", run_id=2, agents=agents("random", "Dragon"))
    with pytest.raises(ConfigError, match="Dragon for janggi"):  # also behind one that fits
        check_context([chess, janggi], FakeEngine(1700))
    with pytest.raises(
        ConfigError, match=r"The prompt of Dragon for janggi takes \d+ tokens .* 512"
    ):
        check_context(specs, FakeEngine(512))


@pytest.mark.parametrize(
    "error",
    [QueueFull("full"), Aborted("closed"), DeadlineExceeded("late"), RuntimeError("no memory")],
)
async def test_engine_failures_are_nobodys_fault(error: Exception) -> None:
    agent, spec = new_llm(FakeEngine(fails=error))
    with pytest.raises(InfrastructureError, match=str(error)):
        await follow(agent, spec, side=0, plies=1)


@pytest.mark.parametrize("error", [PromptTooLong("long"), NoChoices("none")])
async def test_impossible_requests_are_the_agents_fault(error: Exception) -> None:
    agent, spec = new_llm(FakeEngine(fails=error))
    with pytest.raises(type(error)):
        await follow(agent, spec, side=0, plies=1)


def test_language_model_without_engine_is_an_error() -> None:
    with pytest.raises(ValueError, match="'Dragon' needs an engine"):
        build_agent(DRAGON, game_spec(), None)
