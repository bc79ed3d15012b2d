import asyncio
import math
import pickle
from dataclasses import replace
from typing import Any

import pytest

import games
from arena import match
from arena.agents import InfrastructureError, build_agent
from arena.types import GameResult, GameSpec, GameStarted, MoveChoice, MoveRecord, Termination
from tests.arena.fakes import FakeEngine, Scripted, agents, game_spec, played

FOOLS_MATE = ("f2f3", "e7e5", "g2g4", "d8h4")


class Line:
    """Plays the moves of a list, whoever's turn it is."""

    def __init__(self, moves: tuple[str, ...]) -> None:
        self._moves = moves

    async def move(self, view: Any) -> MoveChoice:
        return MoveChoice(self._moves[view.ply])

    async def close(self) -> None:
        pass


async def play_line(spec: GameSpec, moves: tuple[str, ...]) -> tuple[list[MoveRecord], GameResult]:
    return await played(match.play(spec, (Line(moves), Line(moves))))


async def play_built(spec: GameSpec) -> tuple[list[MoveRecord], GameResult]:
    """With the agents that the specification names."""
    first, second = (build_agent(config, spec, FakeEngine()) for config in spec.agents)
    return await played(match.play(spec, (first, second), clock=lambda: 0.0))


async def test_records_of_a_whole_game() -> None:
    spec = game_spec(run_id=4, number=9)
    records, result = await play_line(spec, FOOLS_MATE)
    assert [r.choice.uci for r in records] == list(FOOLS_MATE)
    assert [r.notation for r in records] == ["f3", "e5", "g4", "Qh4#"]
    assert [(r.run_id, r.number, r.ply, r.side) for r in records] == [
        (4, 9, ply, ply % 2) for ply in range(4)
    ]
    board = games.get_game("chess").position()
    for record in records:
        board.push(record.choice.uci)
        assert (record.fen, record.key) == (board.fen(), board.key())
    assert result == GameResult(
        4, 9, 1, Termination.NORMAL, "checkmate", False, None, 4, records[-1].fen
    )
    assert result.result == "0-1"
    assert pickle.loads(pickle.dumps((records, result))) == (records, result)


async def test_first_event_says_that_the_game_started() -> None:
    events = match.play(game_spec(number=3), (Scripted(), Scripted()))
    assert await anext(events) == GameStarted(1, 3)
    await events.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("game", ["chess", "janggi"])
async def test_ply_limit_adjudicates(game: str) -> None:
    spec = game_spec(game, max_plies=7)
    records, result = await play_built(spec)
    assert len(records) == result.plies == 7
    assert result.termination is Termination.PLY_LIMIT
    assert result.reason == "ply_limit"
    if game == "janggi":
        assert result.by_points
        assert result.points is not None
        assert result.winner == (0 if result.points[0] > result.points[1] else 1)
    else:
        assert (result.winner, result.result) == (None, "1/2-1/2")


async def test_end_by_the_rules_at_the_ply_limit_is_normal() -> None:
    _, result = await play_line(game_spec(max_plies=4), FOOLS_MATE)
    assert (result.termination, result.reason) == (Termination.NORMAL, "checkmate")


async def test_start_with_the_second_side_to_move() -> None:
    fen = "rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2"
    records, result = await play_line(game_spec(start_fen=fen), ("d8h4",))
    assert [(r.ply, r.side) for r in records] == [(0, 1)]
    assert (result.winner, result.plies) == (1, 1)


@pytest.mark.parametrize("side", [0, 1])
async def test_crash_loses(side: int) -> None:
    def crash(view: Any) -> Any:
        raise KeyError("knight")

    players = [Scripted(), Scripted()]
    players[side] = Scripted(2, crash)
    records, result = await played(match.play(game_spec(), (players[0], players[1])))
    assert (result.termination, result.winner) == (Termination.CRASH, 1 - side)
    assert result.reason == "KeyError: 'knight'"
    assert len(records) == result.plies == 4 + side
    assert [p.closed for p in players] == [1, 1]


async def test_answer_of_a_wrong_type_is_a_crash() -> None:
    _, result = await played(match.play(game_spec(), (Scripted(0, lambda v: None), Scripted())))
    assert (result.termination, result.winner) == (Termination.CRASH, 1)


@pytest.mark.parametrize("uci", ["e2e5", "", "e9e9", "résigne"])
async def test_illegal_move_loses_and_is_not_recorded(uci: str) -> None:
    bad = Scripted(1, lambda view: MoveChoice(uci))
    records, result = await played(match.play(game_spec(), (Scripted(), bad)))
    assert (result.termination, result.winner) == (Termination.ILLEGAL_MOVE, 0)
    assert result.reason == f"{uci!r} is not legal for black"
    assert len(records) == result.plies == 3
    assert result.final_fen == records[-1].fen


@pytest.mark.parametrize("error", [InfrastructureError("the actor died"), asyncio.CancelledError()])
async def test_infrastructure_failure_voids_the_game(error: BaseException) -> None:
    def fail(view: Any) -> Any:
        raise error

    _, result = await played(match.play(game_spec(), (Scripted(1, fail), Scripted())))
    assert (result.termination, result.winner) == (Termination.INFRASTRUCTURE, None)
    assert result.result == "*"


async def test_a_player_that_never_answers_loses_on_time() -> None:
    hangs = Scripted(1, lambda view: asyncio.Event().wait())
    records, result = await played(match.play(game_spec(move_time_limit=0.02), (Scripted(), hangs)))
    assert (result.termination, result.winner) == (Termination.TIMEOUT, 0)
    assert result.reason == "no move within 0.02 s"
    assert len(records) == 3


async def test_a_player_that_cannot_be_called_off_loses_on_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = asyncio.Event()

    async def deaf(view: Any) -> MoveChoice:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return MoveChoice(view.legal_moves[0])

    monkeypatch.setattr(match, "GRACE_S", 0.02)
    spec = game_spec(move_time_limit=0.02)
    _, result = await played(match.play(spec, (Scripted(0, deaf), Scripted())))
    assert (result.termination, result.winner) == (Termination.TIMEOUT, 1)
    release.set()


@pytest.mark.parametrize(
    ("answer", "elapsed", "termination"),
    [
        ("e2e4", 2.0, Termination.PLY_LIMIT),  # exactly at the limit is in time
        ("e2e4", math.nextafter(2.0, 3.0), Termination.TIMEOUT),
        ("e2e5", 3.0, Termination.TIMEOUT),  # late comes before illegal
        ("e2e5", 1.0, Termination.ILLEGAL_MOVE),
    ],
)
async def test_time_comes_before_legality(
    answer: str, elapsed: float, termination: Termination
) -> None:
    ticks = iter([0.0, elapsed])
    spec = game_spec(move_time_limit=2.0, max_plies=1)
    first = Scripted(0, lambda view: MoveChoice(answer))
    records, result = await played(match.play(spec, (first, Scripted()), clock=lambda: next(ticks)))
    assert result.termination is termination
    assert [r.elapsed_s for r in records] == ([2.0] if termination is Termination.PLY_LIMIT else [])


async def test_cancellation_reaches_the_agent_and_gives_no_result() -> None:
    waiting, seen = asyncio.Event(), []

    async def think(view: Any) -> MoveChoice:
        waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        raise AssertionError

    players = Scripted(), Scripted(0, think)
    events: list[Any] = []

    async def consume() -> None:
        async for event in match.play(game_spec(), players):
            events.append(event)

    task = asyncio.create_task(consume())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]
    assert [type(e) for e in events] == [GameStarted, MoveRecord]
    assert [p.closed for p in players] == [1, 1]


async def test_games_take_turns() -> None:
    """A game between bots that never wait does not hold up its neighbours."""
    order: list[int] = []

    async def consume(number: int) -> None:
        async for event in match.play(
            game_spec(number=number, max_plies=6), (Scripted(), Scripted())
        ):
            if isinstance(event, MoveRecord):
                order.append(number)

    await asyncio.gather(consume(1), consume(2))
    assert order[:4] in ([1, 2, 1, 2], [2, 1, 2, 1])


RESUMED = [
    ("chess", agents("random", "greedy")),
    ("janggi", agents("greedy", "alphabeta")),
    ("janggi", agents("Dragon", "random")),
    ("chess", agents("Dragon", "Pebble")),
]


@pytest.mark.parametrize(("game", "players"), RESUMED)
async def test_game_resumed_at_any_ply_equals_the_uninterrupted_one(
    game: str, players: Any
) -> None:
    spec = game_spec(game, agents=players, max_plies=14)
    records, result = await play_built(spec)
    assert len(records) == 14
    for ply in range(len(records) + 1):
        moves = tuple(r.choice.uci for r in records[:ply])
        again, same = await play_built(replace(spec, moves=moves))
        assert [without_timing(r) for r in again] == [without_timing(r) for r in records[ply:]]
        assert same == result


def without_timing(record: MoveRecord) -> MoveRecord:
    return replace(record, elapsed_s=0.0)


async def test_resuming_a_finished_game_only_gives_the_result() -> None:
    records, result = await play_line(game_spec(moves=FOOLS_MATE), ())
    assert records == []
    assert (result.reason, result.winner, result.plies) == ("checkmate", 1, 4)


async def test_damaged_record_voids_the_game() -> None:
    records, result = await play_line(game_spec(moves=("e2e4", "e2e4")), ())
    assert records == []
    assert result.termination is Termination.INFRASTRUCTURE
    assert result.reason.startswith("the recorded moves cannot be replayed: ")


async def test_seed_and_game_number_decide_the_game() -> None:
    spec = game_spec(max_plies=10)

    async def line(**changes: Any) -> list[str]:
        records, _ = await play_built(replace(spec, **changes))
        return [r.choice.uci for r in records]

    assert await line() == await line()
    assert await line() == await line(run_id=77)
    assert len({tuple(await line(**c)) for c in ({}, {"seed": 6}, {"number": 2})}) == 3
