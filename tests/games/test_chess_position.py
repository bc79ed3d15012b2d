"""Chess through the `Position` interface."""

from __future__ import annotations

import random

import chess
import pytest

import games
from games.core import GameError, IllegalMove, InvalidFen, Outcome, ParseFailure, Position


def position(fen: str | None = None, moves: str = "") -> Position:
    board = games.get_game("chess").position(fen)
    for uci in moves.split():
        board.push(uci)
    return board


def test_start() -> None:
    start = position()
    assert (start.turn, start.ply, start.rules) == (0, 0, "standard")
    assert start.fen() == start.start_fen == games.get_game("chess").start_fen
    assert len(start.legal_moves()) == 20
    assert start.legal_moves() == sorted(start.legal_moves())
    assert start.material() == (39.0, 39.0)
    assert start.pieces()["e1"] == "K"
    assert start.pieces()["d8"] == "q"
    assert len(start.pieces()) == 32
    assert start.ascii().splitlines()[0] == " 8 r n b q k b n r"


def test_castling_promotion_and_en_passant() -> None:
    castle = position("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1")
    assert {"e1g1", "e1c1"} <= set(castle.legal_moves())
    castle.push("e1g1")
    assert castle.pieces()["f1"] == "R"
    assert castle.pop() == "e1g1"
    assert castle.notation("e1c1", "san") == "O-O-O"
    # The form of Chess960 is read and written as usual.
    castle.push("e1h1")
    assert castle.moves() == ["e1g1"]

    promote = position("8/P6k/8/8/8/8/8/7K w - - 0 1")
    pushed = [uci for uci in promote.legal_moves() if uci.startswith("a7")]
    assert pushed == ["a7a8b", "a7a8n", "a7a8q", "a7a8r"]
    promote.push("a7a8n")
    assert promote.pieces()["a8"] == "N"
    assert promote.material() == (3.0, 0.0)

    passing = position(moves="e2e4 a7a6 e4e5 d7d5")
    assert passing.notation("e5d6", "san") == "exd6"
    passing.push("e5d6")
    assert "d5" not in passing.pieces()


def test_pop_restores_everything() -> None:
    draw = random.Random(5)
    board = position()
    seen = []
    while board.outcome() is None and board.ply < 80:
        seen.append((board.fen(), board.key(), board.legal_moves(), board.material()))
        board.push(draw.choice(board.legal_moves()))
    moves = board.moves()
    twin = board.copy()
    while seen:
        assert board.pop() == moves.pop()
        assert (board.fen(), board.key(), board.legal_moves(), board.material()) == seen.pop()
    assert board.ply == 0
    assert twin.ply > 0
    with pytest.raises(IndexError):
        board.pop()


@pytest.mark.parametrize(
    ("fen", "moves", "outcome"),
    [
        (None, "f2f3 e7e5 g2g4 d8h4", Outcome(1, "checkmate")),
        ("6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1", "a1a8", Outcome(0, "checkmate")),
        ("7k/8/6K1/8/8/8/8/5Q2 w - - 0 1", "f1f7", Outcome(None, "stalemate")),
        ("7k/8/6K1/8/8/8/8/8 w - - 0 1", "", Outcome(None, "insufficient_material")),
        ("7k/8/5NK1/8/8/8/8/8 w - - 0 1", "", Outcome(None, "insufficient_material")),
        ("7k/8/8/8/8/8/R7/7K w - - 98 80", "a2a3 h8h7", Outcome(None, "fifty_moves")),
        ("7k/5K2/8/8/8/8/R7/8 w - - 99 80", "a2h2", Outcome(0, "checkmate")),
        (None, "g1f3 g8f6 f3g1 f6g8 " * 2, Outcome(None, "threefold_repetition")),
        (
            "7k/8/8/8/8/8/R7/7K w - - 0 1",
            "a2a3 h8h7 a3a2 h7h8 " * 2,
            Outcome(None, "threefold_repetition"),
        ),
    ],
)
def test_outcomes(fen: str | None, moves: str, outcome: Outcome) -> None:
    board = position(fen)
    for uci in moves.split():
        assert board.outcome() is None
        board.push(uci)
    assert board.outcome() == outcome
    if outcome.reason in ("checkmate", "stalemate"):
        assert board.legal_moves() == []


def test_a_possible_en_passant_tells_positions_apart_and_an_impossible_one_does_not() -> None:
    # After e2e4 nobody can take on e3: the position is the same when it comes back.
    board = position(moves="e2e4")
    first = board.key()
    for uci in ["g8f6", "g1f3", "f6g8", "f3g1"]:
        board.push(uci)
    assert board.key() == first
    # Here d4xe3 is possible once only.
    board = position("4k3/8/8/8/3p4/8/4P3/4K3 w - - 0 1", "e2e4")
    first = board.key()
    for uci in ["e8e7", "e1e2", "e7e8", "e2e1"]:
        board.push(uci)
    assert board.key() != first


def test_a_claim_needs_the_position_on_the_board() -> None:
    # The repetition would come with the next move; it has not come yet.
    board = position(moves="g1f3 g8f6 f3g1 f6g8 g1f3 g8f6 f3g1")
    assert board.outcome() is None


def test_castling_rights_count_for_repetition() -> None:
    board = position("4k3/8/8/8/8/8/8/4K2R w K - 0 1")
    first = board.key()
    for uci in ["h1h2", "e8e7", "h2h1", "e7e8"]:
        board.push(uci)
    assert board.key() != first


def test_illegal_moves_are_refused_and_change_nothing() -> None:
    board = position()
    for uci in ("e2e5", "e7e5", "e1g1", "0000", "e4e5"):
        with pytest.raises(IllegalMove, match=f"{uci} is not a legal move of White"):
            board.push(uci)
    for text in ("", "e2", "e2-e4", "Nf3", "hello", "e2e4 "):
        with pytest.raises(IllegalMove, match="not a chess move in UCI"):
            board.push(text)
    assert board.fen() == board.start_fen


@pytest.mark.parametrize(
    ("fen", "problem"),
    [
        ("", "syntax"),
        ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBN w KQkq - 0 1", "syntax"),
        ("8/8/8/8/8/8/8/4K3 w - - 0 1", "no_black_king"),
        ("k7/8/8/8/8/8/8/P3K3 w - - 0 1", "pawns_on_backrank"),
        ("k3R3/8/8/8/8/8/8/4K3 w - - 0 1", "opposite_check"),
        ("4k3/8/8/8/8/8/8/4K3 w K - 0 1", "bad_castling_rights"),
    ],
)
def test_bad_fens_name_the_problem(fen: str, problem: str) -> None:
    with pytest.raises(InvalidFen) as error:
        position(fen)
    assert problem in error.value.problems


def test_adjudication_is_a_draw() -> None:
    assert position().adjudicate("ply_limit") == Outcome(None, "ply_limit")


@pytest.mark.parametrize(
    ("text", "move"),
    [
        ("e2e4", "e2e4"),
        (" e2e4\n", "e2e4"),
        ("e4", "e2e4"),
        ("Nf3", "g1f3"),
        ("Ngf3", "g1f3"),
        ("Ng1f3", "g1f3"),
    ],
)
def test_parse(text: str, move: str) -> None:
    result = position().parse(text)
    assert result.move == move
    assert result.failure is None
    assert result.text == text
    assert result.span is not None
    assert text[slice(*result.span)] == text.strip()


@pytest.mark.parametrize(
    ("fen", "text", "failure"),
    [
        (None, "", ParseFailure.EMPTY),
        (None, "  \n", ParseFailure.EMPTY),
        (None, "I think so", ParseFailure.UNPARSABLE),
        (None, "e5", ParseFailure.ILLEGAL),
        (None, "e2e5", ParseFailure.ILLEGAL),
        (None, "O-O", ParseFailure.ILLEGAL),
        (None, "0000", ParseFailure.ILLEGAL),
        (None, "--", ParseFailure.EMPTY),
        (None, "resign", ParseFailure.RESIGN),
        ("4k3/8/8/8/8/8/4K3/R6R w - - 0 1", "Rd1", ParseFailure.AMBIGUOUS),
        ("8/P6k/8/8/8/8/8/7K w - - 0 1", "a8", ParseFailure.AMBIGUOUS),
        ("8/P6k/8/8/8/8/8/7K w - - 0 1", "a7a8", ParseFailure.AMBIGUOUS),
    ],
)
def test_parse_failures(fen: str | None, text: str, failure: ParseFailure) -> None:
    result = position(fen).parse(text)
    assert (result.move, result.failure) == (None, failure)


def test_unknown_notation() -> None:
    with pytest.raises(GameError, match="uci, san"):
        position().notation("e2e4", "descriptive")


def test_a_game_of_many_moves_agrees_with_python_chess() -> None:
    board, reference = position(), chess.Board()
    cycle = ["g1f3", "g8f6", "f3g1", "f6g8"]
    for ply in range(1200):
        board.push(cycle[ply % 4])
        reference.push_uci(cycle[ply % 4])
    assert board.fen() == reference.fen()
    assert board.copy().moves() == board.moves()
