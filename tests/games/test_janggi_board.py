"""`games.janggi.Board` and `Move` as people use them, and FEN problems by name."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from games.core import AmbiguousMove, GameError, IllegalMove, InvalidFen, UnknownSetup
from games.janggi import (
    CHO,
    HAN,
    SETUPS,
    START_FEN,
    Board,
    Move,
    Status,
    parse_square,
    square_name,
)

GENERALS = "3k5/9/9/9/9/9/9/9/4K4/9"


def test_push_peek_pop() -> None:
    board = Board()
    assert board.turn == CHO
    move = board.push_uci("a4a5")
    assert move == Move.from_uci("a4a5") == board.peek()
    assert board.turn == HAN
    assert (
        board.fen() == "rnba1abnr/4k4/1c5c1/p1p1p1p1p/9/P8/2P1P1P1P/1C5C1/4K4/RNBA1ABNR b - - 1 1"
    )
    board.push_uci("e9e9")
    assert [move.uci() for move in board.move_stack] == ["a4a5", "e9e9"]
    assert board.peek().is_pass
    assert (board.pop().uci(), board.pop().uci()) == ("e9e9", "a4a5")
    assert board == Board()
    with pytest.raises(IndexError):
        board.pop()
    with pytest.raises(IndexError):
        board.peek()


def test_illegal_moves_are_refused_and_change_nothing() -> None:
    board = Board()
    for uci in ("a4a6", "e2e9", "a1b1", "d1d1", "a5a6", "a7a6"):
        with pytest.raises(IllegalMove, match=f"{uci} is not a legal move of Cho"):
            board.push_uci(uci)
    for text in ("", "a0a1", "j1j2", "a11a2", "a4-a5", "A4A5", "a4a5 "):
        with pytest.raises(IllegalMove, match="not a janggi move in UCI"):
            board.push_uci(text)
    assert board == Board()
    assert board.move_stack == []


@pytest.mark.parametrize("uci", ["a1a2", "i10i9", "a10b10", "e10e9", "e2e2", "a9a10", "a1a10"])
def test_uci_of_ranks_up_to_10(uci: str) -> None:
    assert Move.from_uci(uci).uci() == str(Move.from_uci(uci)) == uci


def test_squares() -> None:
    assert [square_name(square) for square in (0, 8, 13, 89)] == ["a1", "i1", "e2", "i10"]
    assert parse_square("i10") == 89
    with pytest.raises(ValueError, match="a1 to i10"):
        parse_square("e11")


@pytest.mark.parametrize("alias", ["0000", "@@@@", "e2e2"])
def test_pass_aliases_are_read_and_never_written(alias: str) -> None:
    board = Board()
    assert board.push_uci(alias).uci() == "e2e2"
    assert board.halfmove_clock == 1


def test_copies_are_independent_and_keep_the_history() -> None:
    board = Board()
    board.push_uci("e2e2")
    twin = board.copy()
    twin.push_uci("e9e9")
    assert twin.outcome() is not None
    assert board.outcome() is None
    assert board.ply() == 1
    twin.pop()
    assert twin == board
    twin.pop()
    assert twin == Board()


def test_boards_are_equal_by_position_counters_and_rules() -> None:
    assert Board() == Board(START_FEN)
    assert Board() != Board(rules="kakao")
    assert Board() != Board(START_FEN.replace("w", "b"))
    assert Board() != START_FEN


def test_boards_and_moves_survive_pickling() -> None:
    board = Board(rules="kakao")
    board.push_uci("a4a5")
    twin = pickle.loads(pickle.dumps(board))
    assert twin == board
    assert twin.pop() == Move.from_uci("a4a5")


def test_text_forms() -> None:
    assert repr(Board()) == f"Board({START_FEN!r}, 'janggi')"
    assert str(Board(f"{GENERALS} b")).splitlines()[0] == "10 . . . k . . . . ."
    assert str(Board(GENERALS)).splitlines()[-1].split() == list("abcdefghi")


def test_setups() -> None:
    assert len(SETUPS) == len(set(SETUPS)) == 16
    board = Board.from_setup("BNNB-NBNB")
    assert (
        board.fen() == "rnba1anbr/4k4/1c5c1/p1p1p1p1p/9/9/P1P1P1P1P/1C5C1/4K4/RBNA1ANBR w - - 0 1"
    )
    assert Board.from_setup(SETUPS[0]).fen() == START_FEN
    with pytest.raises(UnknownSetup):
        Board.from_setup("NBBN")


def test_zobrist_keys_are_the_same_in_every_process() -> None:
    code = "from games.janggi import Board; print(Board().key)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(other.stdout) == Board().key
    assert Board().key == 10833216406656982618


@pytest.mark.parametrize(
    ("fen", "problem"),
    [
        ("", "empty"),
        ("9/9/9/9/9/9/9/9/4K4/9 w", "no_general"),
        ("3kk4/9/9/9/9/9/9/9/4K4/9 w", "two_generals"),
        ("3k5/9/9/9/9/9/9/4K4/9 w", "bad_rank_count"),
        ("3k4/9/9/9/9/9/9/9/4K4/9 w", "bad_rank_width"),
        ("3k5/9/9/9/9/9/9/9/4K4/45 w", "bad_digits"),
        ("3k5/9/9/9/9/9/9/9/4K4/0P8 w", "bad_digits"),
        ("3k5/9/9/9/9/9/9/9/4K4/Q8 w", "bad_letter"),
        (f"{GENERALS} x - - 0 1", "bad_side"),
        (f"{GENERALS} w - - -1 1", "bad_counter"),
        (f"{GENERALS} w - - 0 one", "bad_counter"),
        (f"{GENERALS} w KQkq - 0 1", "bad_fields"),
        (f"{GENERALS} w - - 0 1 1", "bad_fields"),
    ],
)
def test_unreadable_fens_name_the_problem(fen: str, problem: str) -> None:
    with pytest.raises(InvalidFen) as error:
        Board(fen)
    assert error.value.problems == (problem,)
    assert repr(fen) in str(error.value)
    copy = pickle.loads(pickle.dumps(error.value))
    assert (str(copy), copy.problems) == (str(error.value), error.value.problems)


@pytest.mark.parametrize(
    ("short", "full"),
    [
        (GENERALS, f"{GENERALS} w - - 0 1"),
        (f"{GENERALS} b", f"{GENERALS} b - - 0 1"),
        (f"{GENERALS} b 3 7", f"{GENERALS} b - - 3 7"),
        (f"{GENERALS} b - -", f"{GENERALS} b - - 0 1"),
        (f"{GENERALS} b - - 3", f"{GENERALS} b - - 3 1"),
        (f"{GENERALS} w - - 0 0", f"{GENERALS} w - - 0 1"),
        ("3k5/9/9/9/9/9/9/9/4K4/HEheNB3", "3k5/9/9/9/9/9/9/9/4K4/NBnbNB3 w - - 0 1"),
    ],
)
def test_short_forms_and_other_letters(short: str, full: str) -> None:
    assert Board(short).fen() == full


@pytest.mark.parametrize(
    ("fen", "status"),
    [
        (GENERALS, Status.VALID),
        ("4k4/9/9/9/9/9/9/9/4K4/9", Status.VALID),  # facing generals are possible
        ("3k5/9/9/9/9/9/9/9/9/K8", Status.GENERAL_OUTSIDE_PALACE),
        ("3k5/9/9/9/9/9/9/9/4K4/A8", Status.GUARD_OUTSIDE_PALACE),
        ("3k5/9/9/a8/9/9/9/9/4K4/9", Status.GUARD_OUTSIDE_PALACE),
        ("3k5/9/9/9/9/9/9/P8/4K4/9", Status.SOLDIER_BEHIND_START),
        ("3k5/9/p8/9/9/9/9/9/4K4/9", Status.SOLDIER_BEHIND_START),
        ("3k5/9/9/9/9/9/9/3A5/3AKA3/9", Status.TOO_MANY_GUARDS),
        ("3k5/9/9/NNN6/9/9/9/9/4K4/9", Status.TOO_MANY_HORSES),
        ("3k5/9/9/9/BBB6/9/9/9/4K4/9", Status.TOO_MANY_ELEPHANTS),
        ("3k5/9/9/6RRR/9/9/9/9/4K4/9", Status.TOO_MANY_CHARIOTS),
        ("3k5/9/9/9/9/6CCC/9/9/4K4/9", Status.TOO_MANY_CANNONS),
        ("3k5/9/9/9/9/9/PPP1PP2P/9/4K4/9", Status.TOO_MANY_SOLDIERS),
        ("3k5/9/9/9/3R5/9/9/9/5K3/9", Status.OPPOSITE_CHECK),
        ("3k5/9/9/9/3R5/9/9/9/5K3/9 b", Status.VALID),
        (
            "3k5/9/9/9/3R5/9/9/9/5K3/P8",
            Status.OPPOSITE_CHECK | Status.SOLDIER_BEHIND_START,
        ),
    ],
)
def test_status_names_what_is_impossible(fen: str, status: Status) -> None:
    board = Board(fen)
    assert board.status() == status
    assert board.is_valid() == (status == Status.VALID)


def test_san_reads_what_people_write() -> None:
    board = Board()
    for text in ("Hc3", "Nc3", "Hbc3", "Hb1c3", "H1c3", "Hb1-c3", "Hc3+"):
        assert board.parse_san(text) == Move.from_uci("b1c3")
    assert board.parse_san("Ke2").is_pass
    with pytest.raises(AmbiguousMove, match="a4b4, c4b4"):
        board.parse_san("Pb4")
    for text in ("Hd4", "Rxa10", "c3", "Zc3", "", "Hc3 now"):
        with pytest.raises(IllegalMove):
            board.parse_san(text)
    with pytest.raises(IllegalMove):
        board.san(Move.from_uci("a1a9"))


def test_errors_are_value_errors() -> None:
    assert issubclass(GameError, ValueError)
    for error in (IllegalMove, AmbiguousMove, InvalidFen, UnknownSetup):
        assert issubclass(error, GameError)


def test_a_game_of_many_moves() -> None:
    board = Board(rules="janggitraditional")
    cycle = ["e2e1", "e9e10", "e1e2", "e10e9"]
    for ply in range(3000):
        board.push_uci(cycle[ply % 4])
    assert board.ply() == 3000
    assert board.copy().move_stack == board.move_stack
    outcome = board.outcome(claim=True)
    assert outcome is not None
    assert outcome.reason == "no_capture_limit"
