"""Korean notation of janggi moves, written and read."""

from __future__ import annotations

import random
import unicodedata

import pytest
from janggi_data import random_fen

from games.core import IllegalMove
from games.janggi import Board, Move

STYLES = [
    {"hanja": hanja, "side": side, "take": take}
    for hanja in (False, True)
    for side in (False, True)
    for take in (False, True)
]
# Cho's elephant takes a soldier, Han's chariot gives check by taking a cannon.
CAPTURE = "3k5/9/9/9/9/2p6/9/9/4B4/4K4 w - - 0 1"
CHECK = "3k5/9/9/9/r4C3/9/9/9/9/5K3 b - - 0 1"


@pytest.mark.parametrize(
    ("fen", "uci", "style", "text"),
    [
        (None, "i4h4", {}, "79졸78"),
        (None, "b1c3", {}, "02마83"),
        (None, "b1c3", {"hanja": True}, "02馬83"),
        (None, "b1c3", {"hanja": True, "side": True}, "02楚馬83"),
        (None, "b1c3", {"side": True}, "02초마83"),
        (None, "e2f3", {"hanja": True, "side": True}, "95楚將86"),
        (None, "e2e2", {"hanja": True, "side": True}, "한수쉼"),
        (CHECK, "a6f6", {}, "51차56포장군"),
        (CHECK, "a6f6", {"take": True}, "51차56타포장군"),
        (CHECK, "a6f6", {"hanja": True, "side": True}, "51漢車56包장군"),
        (CHECK, "d10e10", {"hanja": True}, "14將15"),
    ],
)
def test_spellings(fen: str | None, uci: str, style: dict[str, bool], text: str) -> None:
    board = Board(fen) if fen else Board()
    move = Move.from_uci(uci)
    assert board.korean(move, **style) == text
    assert board.parse_korean(text) == move


def test_every_spelling_of_every_legal_move_reads_back() -> None:
    draw = random.Random(6)
    for _ in range(100):
        board = Board(random_fen(draw))
        for move in board.legal_moves:
            style = draw.choice(STYLES)
            text = board.korean(move, **style)
            assert board.parse_korean(text) == move
            assert board.parse_korean(unicodedata.normalize("NFD", text)) == move


@pytest.mark.parametrize(
    ("text", "uci"),
    [
        (" 02마83 ", "b1c3"),
        ("02 馬 83", "b1c3"),
        ("02초馬83", "b1c3"),
        ("b1마c3", "b1c3"),
        ("79병78", "i4h4"),
        ("79兵78", "i4h4"),
        ("01\uf90291", "a1a2"),  # the other 車 of cp949
        ("０１車９１", "a1a2"),
        ("95초94", "e2d2"),
        ("95楚94", "e2d2"),
        ("95궁94", "e2d2"),
        ("95장95", "e2e2"),
        ("한 수 쉼", "e2e2"),
        ("초 한수쉼", "e2e2"),
        ("02마83장군", "b1c3"),
    ],
)
def test_what_records_contain_is_read(text: str, uci: str) -> None:
    assert Board().parse_korean(text).uci() == uci


@pytest.mark.parametrize(
    "text", ["", "졸", "79", "7978", "79졸", "79졸70", "79말78", "79졸78!", "79졸 78 77", "쉼"]
)
def test_what_is_no_notation_is_refused(text: str) -> None:
    with pytest.raises(IllegalMove, match="not a janggi move in Korean notation"):
        Board().parse_korean(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("79마78", "no such man stands on 79"),
        ("79漢卒78", "no such man stands on 79"),
        ("59졸58", "no such man stands on 59"),
        ("79졸78병", "no such man stands on 78"),
        ("79졸68", "not a legal move"),
        ("01차11", "not a legal move"),
        ("39병38", "no such man stands on 39"),
        ("49병48", "not a legal move"),
    ],
)
def test_a_move_that_does_not_fit_the_board_is_refused(text: str, problem: str) -> None:
    board = Board()
    with pytest.raises(IllegalMove, match=problem):
        board.parse_korean(text)
    assert board == Board()


def test_what_is_captured_may_be_left_out_but_not_wrong() -> None:
    board = Board(CAPTURE)
    for text in ("95상63", "95상63병", "95상63졸", "95상63타병", "95楚象63漢兵", "95상 63 타졸"):
        assert board.parse_korean(text).uci() == "e2c5"
    for text in ("95상63마", "95象63楚卒"):
        with pytest.raises(IllegalMove, match="stands on 63"):
            board.parse_korean(text)


def test_no_move_is_read_once_the_game_is_over() -> None:
    board = Board()
    for _ in range(2):
        board.push(board.parse_korean("한수쉼"))
    with pytest.raises(IllegalMove):
        board.parse_korean("79졸78")


def test_a_pass_of_the_other_side_is_refused() -> None:
    board = Board()
    assert board.parse_korean("초 한수쉼").is_pass
    with pytest.raises(IllegalMove, match="other side is to move"):
        board.parse_korean("한 한수쉼")
    board.push_uci("a4a5")
    assert board.parse_korean("漢한수쉼").is_pass


@pytest.mark.parametrize("squares", [(-1, 3), (3, 90)])
def test_a_move_has_points_of_the_board(squares: tuple[int, int]) -> None:
    with pytest.raises(IllegalMove, match="is not a janggi point"):
        Move(*squares)
