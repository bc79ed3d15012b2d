"""A janggi move: its UCI text and its packed form. Knows squares, not positions.

Packed, a move is the integer `from << 7 | to`; the generator and the board work with those.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from games.core import IllegalMove
from games.janggi.geometry import POINTS, SQUARE_NAMES

_SQUARES = {name: square for square, name in enumerate(SQUARE_NAMES)}
UCI_FORM = re.compile(r"([a-i](?:10|[1-9]))([a-i](?:10|[1-9]))")
# How other programs write a pass; read, never written.
PASS_ALIASES = ("0000", "@@@@")


def square_name(square: int) -> str:
    """`0` -> `a1`, `89` -> `i10`."""
    return SQUARE_NAMES[square]


def parse_square(name: str) -> int:
    """`a1` -> `0`. Raises `ValueError`."""
    try:
        return _SQUARES[name]
    except KeyError:
        raise ValueError(f"{name!r} is not a janggi point; points are a1 to i10.") from None


@dataclass(frozen=True, slots=True)
class Move:
    """A step from one point to another; a pass has the general's point twice."""

    from_square: int
    to_square: int

    def uci(self) -> str:
        """E.g. `a1a10`, or `e2e2` for a pass."""
        return SQUARE_NAMES[self.from_square] + SQUARE_NAMES[self.to_square]

    @classmethod
    def from_uci(cls, uci: str) -> Move:
        """Read `<from><to>` with ranks 1 to 10. Raises `IllegalMove`."""
        match = UCI_FORM.fullmatch(uci)
        if match is None:
            raise IllegalMove(
                f"{uci!r} is not a janggi move in UCI, such as a4a5, or e2e2 for a pass."
            )
        return cls(_SQUARES[match[1]], _SQUARES[match[2]])

    @property
    def is_pass(self) -> bool:
        return self.from_square == self.to_square

    def __str__(self) -> str:
        return self.uci()


# Every move by its packed form, made once: a list of legal moves is then a list of look-ups.
MOVES = {
    origin << 7 | target: Move(origin, target)
    for origin in range(POINTS)
    for target in range(POINTS)
}
UCI = {packed: move.uci() for packed, move in MOVES.items()}
