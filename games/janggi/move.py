"""A janggi move: its UCI text and its packed form. Knows squares, not positions.

Packed, a move is the integer `from << 7 | to`; the generator and the board work with those.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from games.core import IllegalMove
from games.janggi.geometry import POINTS, SQUARE_NAMES

_SQUARES = {name: square for square, name in enumerate(SQUARE_NAMES)}
UCI_FORM = re.compile(r"([a-i](?:10|[1-9]))([a-i](?:10|[1-9]))")
# How other programs write a pass; read, never written.
PASS_ALIASES = ("0000", "@@@@")


def square_name(square: int) -> str:
    """The name of a point.

    >>> square_name(0), square_name(89)
    ('a1', 'i10')
    """
    return SQUARE_NAMES[square]


def parse_square(name: str) -> int:
    """The point of a name. Raises `ValueError`.

    >>> parse_square("e2")
    13
    """
    try:
        return _SQUARES[name]
    except KeyError:
        raise ValueError(f"{name!r} is not a janggi point; points are a1 to i10.") from None


@dataclass(frozen=True, slots=True)
class Move:
    """A step from one point, 0 to 89, to another; a pass has the general's point twice.

    Raises `IllegalMove` for a number that is no point.
    """

    from_square: int
    to_square: int

    def __post_init__(self) -> None:
        for square in (self.from_square, self.to_square):
            if not 0 <= square < POINTS:
                raise IllegalMove(f"{square} is not a janggi point; points are 0 to 89.")

    def uci(self) -> str:
        """The points left and reached.

        >>> Move(0, 81).uci()
        'a1a10'
        """
        return SQUARE_NAMES[self.from_square] + SQUARE_NAMES[self.to_square]

    @classmethod
    def from_uci(cls, uci: str) -> Move:
        """Read `<from><to>` with ranks 1 to 10. Raises `IllegalMove`.

        >>> Move.from_uci("a1a10")
        Move.from_uci('a1a10')
        """
        match = UCI_FORM.fullmatch(uci)
        if match is None:
            raise IllegalMove(
                f"{uci!r} is not a janggi move in UCI, such as a4a5, or e2e2 for a pass."
            )
        return cls(_SQUARES[match[1]], _SQUARES[match[2]])

    @property
    def is_pass(self) -> bool:
        """Whether the point is the same twice.

        >>> Move.from_uci("e2e2").is_pass
        True
        """
        return self.from_square == self.to_square

    def __str__(self) -> str:
        return self.uci()

    def __repr__(self) -> str:
        return f"Move.from_uci({self.uci()!r})"


# Every move by its packed form, made once: a list of legal moves is then a list of look-ups.
MOVES = {
    origin << 7 | target: Move(origin, target)
    for origin in range(POINTS)
    for target in range(POINTS)
}
UCI = {packed: move.uci() for packed, move in MOVES.items()}


class LegalMoves(Sequence[Move]):
    """The legal moves of a position, in the order of the points left, then reached.

    It stays as it is when the board moves on, and equals any sequence of the same moves.
    """

    __slots__ = ("_moves", "_packed")

    def __init__(self, packed: list[int]) -> None:
        self._packed = packed  # as the generator gives them
        self._moves: list[Move] | None = None

    def _sorted(self) -> list[Move]:
        if self._moves is None:
            self._moves = [MOVES[move] for move in sorted(self._packed)]
        return self._moves

    def __len__(self) -> int:
        return len(self._packed)

    def __iter__(self) -> Iterator[Move]:
        return iter(self._sorted())

    def __contains__(self, move: object) -> bool:
        return isinstance(move, Move) and (move.from_square << 7 | move.to_square) in self._packed

    @overload
    def __getitem__(self, index: int) -> Move: ...
    @overload
    def __getitem__(self, index: slice) -> list[Move]: ...
    def __getitem__(self, index: int | slice) -> Move | list[Move]:
        return self._sorted()[index]

    def count(self, value: object = None) -> int:
        """How many moves there are; with a move, how often it is among them.

        >>> LegalMoves([13 << 7 | 13, 27 << 7 | 36]).count()
        2
        """
        return len(self._packed) if value is None else int(value in self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return self._sorted() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<LegalMoves {' '.join(UCI[move] for move in sorted(self._packed))}>"
