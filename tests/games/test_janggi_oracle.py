"""Janggi against pyffish (Fairy-Stockfish) on random play, and make/unmake and keys against
themselves.
"""

from __future__ import annotations

import random

import pyffish
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from janggi_data import VARIANTS, random_fen, uci_moves

from games.janggi import RULE_SETS, Board, Move
from games.janggi.rules import SETUPS, setup_fen

QUICK = settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
THOROUGH = settings(QUICK, max_examples=25)

fens = st.integers(0, 2**32).map(lambda seed: random_fen(random.Random(seed)))
# What the players like to do; the rare ends need players who look for them.
habits = st.sampled_from(("any", "shuttle", "check", "face", "pass"))
# Each number picks a move; one in eight disregards the habit.
choices = st.lists(st.integers(0, 2**16), max_size=60)
long_choices = st.lists(st.integers(0, 2**16), min_size=25, max_size=60)


def pick(board: Board, habit: str, number: int) -> Move:
    moves = board.legal_moves
    liked = moves
    if number % 8:
        if habit == "shuttle" and len(board.history) > 1:
            mine = board.move_stack[-2]
            liked = [m for m in moves if m == Move(mine.to_square, mine.from_square)]
        elif habit == "pass":
            liked = [m for m in moves if m.is_pass]
        elif habit in ("check", "face"):
            liked = [m for m in moves if _reaches(board, m, habit)]
    return (liked or moves)[number // 8 % len(liked or moves)]


def _reaches(board: Board, move: Move, habit: str) -> bool:
    board.push(move)
    reached = board.is_check() if habit == "check" else board.is_bikjang()
    board.pop()
    return reached


def value_to_move(board: Board, claim: bool) -> int:
    outcome = board.outcome(claim)
    assert outcome is not None
    return 0 if outcome.winner is None else 32000 if outcome.winner == board.turn else -32000


def compare(board: Board, root: str) -> None:
    """Everything that the oracle says about a position with its history."""
    variant, moves = board.rules.name, [move.uci() for move in board.move_stack]
    legal = uci_moves(board)
    assert legal == sorted(pyffish.legal_moves(variant, root, moves))
    assert board.is_check() == pyffish.gives_check(variant, root, moves)
    ended, value = pyffish.is_immediate_game_end(variant, root, moves)
    if ended:
        assert legal == []
        assert value_to_move(board, claim=False) == value
    elif not legal:
        assert board.is_checkmate()
        assert value_to_move(board, claim=False) == pyffish.game_result(variant, root, moves)
    else:
        assert board.outcome() is None
        ended, value = pyffish.is_optional_game_end(variant, root, moves)
        assert (board.outcome(claim=True) is not None) == ended
        if ended:
            assert value_to_move(board, claim=True) == value


def play_and_compare(variant: str, root: str, habit: str, numbers: list[int]) -> None:
    board = Board(root, variant)
    compare(board, root)
    for number in numbers:
        if not board.legal_moves:
            break
        board.push(pick(board, habit, number))
        compare(board, root)
    assert board.fen() == pyffish.get_fen(variant, root, [m.uci() for m in board.move_stack])


@given(st.sampled_from(VARIANTS), fens, habits, choices)
@QUICK
def test_games_equal_the_oracle(variant: str, root: str, habit: str, numbers: list[int]) -> None:
    play_and_compare(variant, root, habit, numbers)


@pytest.mark.slow
@given(st.sampled_from(VARIANTS), fens, habits, long_choices)
@THOROUGH
def test_many_games_equal_the_oracle(
    variant: str, root: str, habit: str, numbers: list[int]
) -> None:
    play_and_compare(variant, root, habit, numbers)


@pytest.mark.slow
@given(fens, long_choices)
@THOROUGH
def test_shuttling_equals_the_oracle(root: str, numbers: list[int]) -> None:
    play_and_compare("janggimodern", root, "shuttle", numbers)


@given(st.sampled_from(VARIANTS), fens)
@settings(QUICK, max_examples=150)
def test_positions_equal_the_oracle(variant: str, fen: str) -> None:
    board = Board(fen, variant)
    assert uci_moves(board) == sorted(pyffish.legal_moves(variant, fen, []))
    assert board.is_check() == pyffish.gives_check(variant, fen, [])
    assert pyffish.validate_fen(fen, variant) == 1
    assert pyffish.get_fen(variant, fen, []) == board.fen() == fen


@given(fens, st.integers(0, 2**16))
@settings(QUICK, max_examples=60)
def test_notation_equals_the_oracle(fen: str, number: int) -> None:
    board = Board(fen)
    if not board.legal_moves:
        return
    move = board.legal_moves[number % len(board.legal_moves)]
    for style, text in (
        (pyffish.NOTATION_SAN, board.san(move)),
        (pyffish.NOTATION_LAN, board.lan(move)),
        (pyffish.NOTATION_JANGGI, board.janggi(move)),
    ):
        assert text == pyffish.get_san("janggi", fen, move.uci(), False, style)


@pytest.mark.parametrize("setup", SETUPS)
def test_setups_equal_the_oracle(setup: str) -> None:
    fen = setup_fen(setup)
    assert pyffish.validate_fen(fen, "janggi") == 1
    assert uci_moves(Board.from_setup(setup)) == sorted(pyffish.legal_moves("janggi", fen, []))


def everything(board: Board) -> tuple[object, ...]:
    """All that a caller can see of a board, from its state and made afresh from its FEN."""
    fresh = Board(board.fen(), board.rules.name)
    assert fresh.squares == board.squares
    assert fresh.key == board.key
    assert (fresh.men, fresh.material, fresh.generals) == (
        board.men,
        board.material,
        board.generals,
    )
    assert fresh.is_check() == board.is_check()
    return (
        board.fen(),
        board.key,
        board.squares[:],
        (board.men[0].copy(), board.men[1].copy()),
        board.points(),
        board.checkers(),
        board.is_bikjang(),
        list(board.legal_moves),
        board.outcome(claim=True),
        board.move_stack,
    )


@given(st.sampled_from(tuple(RULE_SETS)), fens, habits, choices)
@settings(QUICK, max_examples=60)
def test_unmake_restores_everything(rules: str, root: str, habit: str, numbers: list[int]) -> None:
    board = Board(root, rules)
    seen = [everything(board)]
    for number in numbers:
        if not board.legal_moves:
            break
        board.push(pick(board, habit, number))
        seen.append(everything(board))
    twin = board.copy()
    for expected in reversed(seen):
        assert everything(board) == expected
        if board.history:
            board.pop()
    assert everything(twin) == seen[-1]


@given(fens, habits, choices)
@settings(QUICK, max_examples=60)
def test_keys_are_equal_exactly_for_the_same_board_and_side(
    root: str, habit: str, numbers: list[int]
) -> None:
    board = Board(root)
    exact: dict[int, str] = {}
    keys: dict[str, int] = {}
    for number in numbers:
        same = " ".join(board.fen().split()[:2])
        assert exact.setdefault(board.key, same) == same
        assert keys.setdefault(same, board.key) == board.key
        if not board.legal_moves:
            break
        board.push(pick(board, habit, number))
