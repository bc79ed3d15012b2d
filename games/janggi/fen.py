"""Janggi FEN: reading, writing, and naming what makes a position impossible. Knows no rules."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass

from games.core import InvalidFen
from games.janggi.geometry import (
    CANNON,
    CHARIOT,
    CHO,
    ELEPHANT,
    FILES,
    GENERAL,
    GUARD,
    HAN,
    HORSE,
    LETTERS,
    PALACES,
    POINTS,
    RANKS,
    SOLDIER,
    SQUARE_NAMES,
)
from games.janggi.movegen import attacked

# Fairy-Stockfish's letters, and XBoard's H and E for horse and elephant.
_PIECES = {letter: piece for piece, letter in enumerate(LETTERS) if letter != "."} | {
    "H": HORSE,
    "h": 8 | HORSE,
    "E": ELEPHANT,
    "e": 8 | ELEPHANT,
}
_SIDES = {"w": CHO, "b": HAN}


class Status(enum.Flag):
    """What makes a position impossible in a game; `VALID` if nothing does."""

    VALID = 0
    GENERAL_OUTSIDE_PALACE = enum.auto()
    GUARD_OUTSIDE_PALACE = enum.auto()
    SOLDIER_BEHIND_START = enum.auto()
    TOO_MANY_GUARDS = enum.auto()
    TOO_MANY_HORSES = enum.auto()
    TOO_MANY_ELEPHANTS = enum.auto()
    TOO_MANY_CHARIOTS = enum.auto()
    TOO_MANY_CANNONS = enum.auto()
    TOO_MANY_SOLDIERS = enum.auto()
    OPPOSITE_CHECK = enum.auto()  # the side not to move is in check

    def names(self) -> tuple[str, ...]:
        return tuple((flag.name or "").lower() for flag in self)


_LIMITS = (
    (GUARD, 2, Status.TOO_MANY_GUARDS),
    (HORSE, 2, Status.TOO_MANY_HORSES),
    (ELEPHANT, 2, Status.TOO_MANY_ELEPHANTS),
    (CHARIOT, 2, Status.TOO_MANY_CHARIOTS),
    (CANNON, 2, Status.TOO_MANY_CANNONS),
    (SOLDIER, 5, Status.TOO_MANY_SOLDIERS),
)


@dataclass(frozen=True)
class ParsedFen:
    """The fields of a FEN; `points` has the 90 pieces in board order."""

    points: list[int]
    turn: int
    halfmove_clock: int
    fullmove_number: int


def parse_fen(fen: str) -> ParsedFen:
    """Read a FEN: `board side - - halfmove fullmove`; all fields after the board may be missing.

    Accepts impossible positions, as Fairy-Stockfish does; `status` judges them. Raises
    `InvalidFen` with the problem named.
    """

    def refuse(problem: str, text: str) -> InvalidFen:
        return InvalidFen(f"Cannot read the janggi FEN {fen!r}: {text}.", (problem,))

    fields = fen.split()
    if not fields:
        raise refuse("empty", "it is empty")
    points = _parse_board(fields[0], refuse)
    for side, name in ((CHO, "Cho"), (HAN, "Han")):
        generals = points.count(8 * side | GENERAL)
        if not generals:
            raise refuse("no_general", f"{name} has no general")
        if generals > 1:
            raise refuse("two_generals", f"{name} has more than one general")
    turn = _SIDES.get(fields[1]) if len(fields) > 1 else CHO
    if turn is None:
        raise refuse("bad_side", f"the side to move is {fields[1]!r}, not w or b")
    counters = fields[2:]
    while counters and counters[0] == "-" and len(fields) - len(counters) < 4:
        counters.pop(0)  # castling and en passant, which janggi has not
    if len(counters) > 2:
        raise refuse("bad_fields", "after board and side come '- -', half-move clock, move number")
    for counter in counters:
        if not re.fullmatch(r"[0-9]{1,9}", counter):
            raise refuse("bad_counter", f"{counter!r} is not a half-move clock or move number")
    halfmove = int(counters[0]) if counters else 0
    fullmove = int(counters[1]) if len(counters) > 1 else 1
    return ParsedFen(points, turn, halfmove, max(fullmove, 1))


def _parse_board(text: str, refuse: Callable[[str, str], InvalidFen]) -> list[int]:
    rows = text.split("/")
    if len(rows) != RANKS:
        raise refuse("bad_rank_count", f"the board has {len(rows)} ranks, not {RANKS}")
    points: list[int] = []
    for rank, row in zip(range(RANKS, 0, -1), rows, strict=True):
        line: list[int] = []
        if re.search(r"[0-9]{2}|0", row):
            raise refuse("bad_digits", f"rank {rank} ({row!r}) has a 0 or two digits in a row")
        for letter in row:
            if letter in "123456789":
                line += [0] * int(letter)
            elif letter in _PIECES:
                line.append(_PIECES[letter])
            else:
                raise refuse("bad_letter", f"{letter!r} on rank {rank} is no piece")
        if len(line) != FILES:
            raise refuse(
                "bad_rank_width", f"rank {rank} ({row!r}) is {len(line)} points wide, not {FILES}"
            )
        points = line + points
    return points


def board_fen(points: list[int]) -> str:
    """The board field of a FEN."""
    rows = []
    for low in range(POINTS - FILES, -1, -FILES):
        row = "".join(LETTERS[piece] for piece in points[low : low + FILES])
        rows.append(re.sub(r"\.+", lambda gap: str(len(gap[0])), row))
    return "/".join(rows)


def status(points: list[int], turn: int) -> Status:
    """All problems of a position."""
    found = Status.VALID
    for side in (CHO, HAN):
        for kind, limit, flag in _LIMITS:
            if points.count(8 * side | kind) > limit:
                found |= flag
        for point, piece in enumerate(points):
            if piece >> 3 != side:
                continue
            if piece & 7 == GENERAL and point not in PALACES[side]:
                found |= Status.GENERAL_OUTSIDE_PALACE
            elif piece & 7 == GUARD and point not in PALACES[side]:
                found |= Status.GUARD_OUTSIDE_PALACE
            elif piece & 7 == SOLDIER and (point < 27 if side == CHO else point >= 63):
                found |= Status.SOLDIER_BEHIND_START
    waiting = 1 - turn
    if attacked(points, points.index(8 * waiting | GENERAL), waiting):
        found |= Status.OPPOSITE_CHECK
    return found


def letters_by_square(points: list[int]) -> dict[str, str]:
    """Square name -> FEN letter of every piece."""
    return {SQUARE_NAMES[point]: LETTERS[piece] for point, piece in enumerate(points) if piece}
