"""Files of positions."""

from __future__ import annotations

import pytest

import games
from games import InvalidFen, fens

CHESS = "4k3/8/8/8/8/8/8/4K2R w K - 3 40"


def test_fens_and_epd_are_read() -> None:
    text = f"""\ufeff# openings
{CHESS}

4k3/8/8/8/8/8/8/4K2R b K -
4k3/8/8/8/8/8/8/4K2R w K - bm O-O; id "a; b"; hmvc 7; fmvn 12;
{CHESS}; and a word
"""
    assert fens.loads(text) == [
        CHESS,
        "4k3/8/8/8/8/8/8/4K2R b K - 0 1",
        "4k3/8/8/8/8/8/8/4K2R w K - 7 12",
        CHESS,
    ]


@pytest.mark.parametrize("name", games.list_games())
def test_what_is_written_is_read(name: str) -> None:
    game = games.get_game(name)
    position = game.position()
    position.push(position.legal_moves()[0])
    wanted = [game.start_fen, position.fen()]
    assert fens.loads(fens.dumps(wanted), name) == wanted


def test_a_line_that_is_no_position_is_named() -> None:
    with pytest.raises(InvalidFen, match=r"^Line 2: .*8/8"):
        fens.loads(f"{CHESS}\n8/8 w - -\n")
