"""A small set of balanced janggi openings: the setups with one or two ways to begin."""

from __future__ import annotations

from games.core import Opening
from games.janggi.rules import SETUPS

# The wing soldiers step aside and open the lines of the chariots, on one wing or the other.
_FIRST_MOVES = (("a4b4", "i7h7"), ("i4h4", "a7b7"))
# Fairy-Stockfish sees more than a pawn between the sides after 60,000 nodes.
_UNEVEN = {("NBBN-BNNB", 1), ("BNBN-BNNB", 0), ("BNBN-BNNB", 1), ("NBNB-BNNB", 1), ("NBNB-BNBN", 0)}
OPENINGS = tuple(
    Opening(moves, setup=setup)
    for setup in SETUPS
    for number, moves in enumerate(_FIRST_MOVES)
    if (setup, number) not in _UNEVEN
)
