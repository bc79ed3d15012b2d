from __future__ import annotations

from arena.crosstable import Cell, crosstable
from arena.ratings import Played


def test_each_cell_is_seen_from_its_row() -> None:
    games = [Played(0, 1, 0), Played(1, 0, None), Played(2, 0, 1), Played(2, 0, 0)]
    assert crosstable([2, 0, 1], games) == [
        [None, Cell(1, 0, 1), Cell()],
        [Cell(1, 0, 1), None, Cell(1, 1, 0)],
        [Cell(), Cell(0, 1, 1), None],
    ]
    assert (Cell(1, 1, 0).score, Cell(1, 1, 0).played) == (1.5, 2)
