"""`State`: a janggi position with its history, made and unmade move by move; what `Board` stands on.

Moves are packed into integers, as in `movegen`. Generation is in `movegen`, ends in `ends`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from games.janggi import movegen
from games.janggi.fen import parse_fen
from games.janggi.geometry import GENERAL, HAN, POINTS, VALUES
from games.janggi.rules import Rules

# Zobrist keys by piece and point, the same in every process.
_random = random.Random("janggi")
_KEYS = tuple(tuple(_random.getrandbits(64) for _ in range(POINTS)) for _ in range(16))
_HAN_KEY = _random.getrandbits(64)


@dataclass(slots=True)
class Record:
    """A move played and what `pop` needs to restore the position before it."""

    move: int  # packed, see movegen
    captured: int
    halfmove_clock: int
    key: int
    facing: bool
    ended: str | None
    threats: tuple[list[int], set[int]]
    legal: list[int] | None

    @property
    def checkers(self) -> list[int]:
        """Who gave check to the mover before the move."""
        return self.threats[0]


class State:
    """The position, what is known of it, and the moves that led to it.

    squares: 90 pieces in the order of `geometry`. turn: `CHO` or `HAN`. halfmove_clock: plies since
    the last capture. fullmove_number: as in FEN. key: the Zobrist key, equal for the same board and
    side to move in every process. men, material, generals: by side, points where his men stand, the
    sum of their values, the general's point. history: the moves made.
    """

    def __init__(self, fen: str, rules: Rules) -> None:
        self.rules = rules
        self._put_up(fen)

    def _put_up(self, text: str) -> None:
        parsed = parse_fen(text)
        self.squares = parsed.points
        self.turn = parsed.turn
        self.halfmove_clock = parsed.halfmove_clock
        self.fullmove_number = parsed.fullmove_number
        self.history: list[Record] = []
        self.men: tuple[set[int], set[int]] = (set(), set())
        self.material = [0, 0]
        self.key = _HAN_KEY if self.turn == HAN else 0
        for point, piece in enumerate(self.squares):
            if piece:
                self.men[piece >> 3].add(point)
                self.material[piece >> 3] += VALUES[piece & 7]
                self.key ^= _KEYS[piece][point]
        self.generals = [self.squares.index(GENERAL), self.squares.index(8 | GENERAL)]
        self._facing = movegen.facing(self.squares, *self.generals)
        self._threats: tuple[list[int], set[int]] | None = None
        self._legal: list[int] | None = None
        self._ended = self._cap_reached()

    def make(self, move: int) -> None:
        """Play a packed move, legal or not.

        >>> board = Board()
        >>> board.make(27 << 7 | 36)
        >>> board.peek()
        Move.from_uci('a4a5')
        """
        origin, target = move >> 7, move & 127
        points, side = self.squares, self.turn
        captured = points[target] if origin != target else 0
        self.history.append(
            Record(
                move,
                captured,
                self.halfmove_clock,
                self.key,
                self._facing,
                self._ended,
                self._find_threats(),
                self._legal,
            )
        )
        if origin != target:
            piece = points[origin]
            points[target], points[origin] = piece, 0
            keys = _KEYS[piece]
            self.key ^= keys[origin] ^ keys[target]
            self.men[side].discard(origin)
            self.men[side].add(target)
            if captured:
                self.key ^= _KEYS[captured][target]
                self.men[1 - side].discard(target)
                self.material[1 - side] -= VALUES[captured & 7]
            if piece & 7 == GENERAL:
                self.generals[side] = target
        self.key ^= _HAN_KEY
        self.halfmove_clock = 0 if captured else self.halfmove_clock + 1
        self.turn = 1 - side
        if side == HAN:
            self.fullmove_number += 1
        self._threats = self._legal = None
        self._facing = movegen.facing(points, *self.generals)
        self._ended = self._end_after_move()

    def unmake(self) -> int:
        """Take the last move back and return it, packed. Raises `IndexError` at the root.

        >>> board = Board()
        >>> board.make(27 << 7 | 36)
        >>> board.unmake() == 27 << 7 | 36
        True
        """
        record = self.history.pop()
        origin, target = record.move >> 7, record.move & 127
        side = self.turn = 1 - self.turn
        if origin != target:
            piece = self.squares[target]
            self.squares[origin], self.squares[target] = piece, record.captured
            self.men[side].discard(target)
            self.men[side].add(origin)
            if record.captured:
                self.men[1 - side].add(target)
                self.material[1 - side] += VALUES[record.captured & 7]
            if piece & 7 == GENERAL:
                self.generals[side] = origin
        if side == HAN:
            self.fullmove_number -= 1
        self.halfmove_clock = record.halfmove_clock
        self.key = record.key
        self._facing = record.facing
        self._ended = record.ended
        self._threats = record.threats
        self._legal = record.legal
        return record.move

    def packed_moves(self) -> list[int]:
        """Legal moves, packed and unsorted; not to be changed by the caller.

        >>> board = Board()
        >>> len(board.packed_moves()), 27 << 7 | 36 in board.packed_moves()
        (32, True)
        """
        if self._legal is None:
            self._legal = [] if self._ended is not None else self._generate()
        return self._legal

    def _generate(self) -> list[int]:
        """Legal moves by the rules of pieces, check, bikjang and pass, even if the game is over."""
        points, side = self.squares, self.turn
        general, other = self.generals[side], self.generals[1 - side]
        checkers, critical = self._find_threats()
        moves = movegen.pseudo_legal(points, self.men[side], side)
        must_break = self._facing and self.rules.bikjang != "off"
        if must_break:
            between = range(min(general, other) + 9, max(general, other), 9)
            moves = [
                move
                for move in moves
                if (((move & 127) - other) % 9 if move >> 7 == general else (move & 127) in between)
            ]
        moves = movegen.legal(points, moves, side, general, checkers, critical)
        if must_break or not checkers:
            moves.append(general << 7 | general)
        return moves

    def _find_threats(self) -> tuple[list[int], set[int]]:
        if self._threats is None:
            self._threats = movegen.threats(self.squares, self.generals[self.turn], self.turn)
        return self._threats

    def _end_after_move(self) -> str | None:
        """The end that the last move brought without anybody's claim."""
        last = self.history[-1]
        if self._facing and last.facing and self.rules.bikjang != "off":
            return "bikjang"
        if (
            self.rules.double_pass != "off"
            and _is_pass(last.move)
            and len(self.history) > 1
            and _is_pass(self.history[-2].move)
        ):
            return "double_pass"
        return self._cap_reached()

    def _cap_reached(self) -> str | None:
        if (
            self.rules.ply_cap == "off"
            or 2 * (self.fullmove_number - 1) + self.turn < self.rules.ply_cap_limit
        ):
            return None
        mated = self._find_threats()[0] and not self._generate()
        return None if mated else "ply_limit"


def _is_pass(move: int) -> bool:
    return move >> 7 == move & 127
