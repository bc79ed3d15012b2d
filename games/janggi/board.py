"""`Board`: a janggi position with its history, in the vocabulary of python-chess.

Holds the state and its make/unmake; generation is in `movegen`, ends in `ends`, text forms in `fen`
and `notation`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from games.core import IllegalMove, Outcome, ascii_board
from games.janggi import ends, fen, korean, movegen, notation
from games.janggi.fen import Status
from games.janggi.geometry import CHO, FILES, GENERAL, HAN, POINTS, RANKS, VALUES
from games.janggi.move import MOVES, PASS_ALIASES, Move
from games.janggi.rules import START_FEN, get_rules, setup_fen

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


class Board:
    """A janggi board.

    `turn` is `CHO` or `HAN`, `halfmove_clock` counts plies since the last capture. Raises
    `InvalidFen` for a FEN that cannot be read and `UnknownRules`. An impossible position is
    accepted; ask `status()`.
    """

    def __init__(self, fen: str = START_FEN, rules: str = "janggi") -> None:
        self.rules = get_rules(rules)
        self.set_fen(fen)

    @classmethod
    def from_setup(cls, setup: str, rules: str = "janggi") -> Board:
        """The start with Cho's, then Han's arrangement: `NBBN-BNNB`. Raises `UnknownSetup`."""
        return cls(setup_fen(setup), rules)

    def set_fen(self, text: str) -> None:
        """Put up another position and forget the history. Raises `InvalidFen`."""
        parsed = fen.parse_fen(text)
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

    # Text forms

    def fen(self) -> str:
        side = "w" if self.turn == CHO else "b"
        return f"{self.board_fen()} {side} - - {self.halfmove_clock} {self.fullmove_number}"

    def board_fen(self) -> str:
        """The board field of the FEN."""
        return fen.board_fen(self.squares)

    def san(self, move: Move) -> str:
        """A legal move as Fairy-Stockfish writes it: `Hc3`, `Pab4`, `Rxe9+`, `Ke2` for a pass.

        Raises `IllegalMove`.
        """
        return notation.san(self, self._checked(move))

    def lan(self, move: Move) -> str:
        """Like `san`, with both points: `Hb1-c3`. Raises `IllegalMove`."""
        return notation.lan(self, self._checked(move))

    def parse_san(self, text: str) -> Move:
        """Read SAN or LAN, with `N` or `H` for the horse and `B` or `E` for the elephant.

        Raises `IllegalMove`, or its kind `AmbiguousMove` if more than one legal move fits.
        """
        return notation.parse_san(self, text)

    def korean(
        self, move: Move, *, hanja: bool = False, side: bool = False, take: bool = False
    ) -> str:
        """A legal move in Korean notation: `79졸78`, `75상43병장군`, `한수쉼` for a pass.

        With `hanja` the pieces are named in hanja (`75象43兵`), with `side` the mover's side stands
        before his piece (`75楚象43兵`), with `take` 타 before what he captures (`75상43타병`). Raises
        `IllegalMove`.
        """
        return korean.korean(self, self._checked(move), hanja=hanja, side=side, take=take)

    def parse_korean(self, text: str) -> Move:
        """Read Korean notation in any spelling of records: hangul or hanja, with or without the
        side, what is captured and 장군.

        Raises `IllegalMove`, also if another man stands on a point than the text says.
        """
        return korean.parse_korean(self, text)

    def parse_uci(self, uci: str) -> Move:
        """Read a legal move in UCI; `0000` and `@@@@` also mean a pass. Raises `IllegalMove`."""
        return self._checked(self.pass_move if uci in PASS_ALIASES else Move.from_uci(uci))

    # Questions

    @property
    def legal_moves(self) -> list[Move]:
        """All legal moves; empty after checkmate and after an end that needs no claim."""
        return [MOVES[move] for move in sorted(self.packed_moves())]

    @property
    def pass_move(self) -> Move:
        """The pass of the side to move, legal or not."""
        return MOVES[self.generals[self.turn] << 7 | self.generals[self.turn]]

    @property
    def move_stack(self) -> list[Move]:
        """The moves pushed since the root, oldest first."""
        return [MOVES[record.move] for record in self.history]

    def is_legal(self, move: Move) -> bool:
        return move.from_square << 7 | move.to_square in self.packed_moves()

    def checkers(self) -> list[int]:
        """Points of the pieces that give check to the side to move, sorted."""
        return sorted(self._find_threats()[0])

    def is_check(self) -> bool:
        """Whether the side to move is in check."""
        return bool(self._find_threats()[0])

    def is_checkmate(self) -> bool:
        """Whether the side to move is in check and has no legal move, nor a pass to bikjang."""
        return self._ended is None and self.is_check() and not self.packed_moves()

    def is_bikjang(self) -> bool:
        """Whether the generals face each other, in any rule set."""
        return self._facing

    def points(self) -> dict[str, float]:
        """Both sides' totals, Han's compensation included: at first `{"cho": 72, "han": 73.5}`."""
        return {"cho": self.material[CHO], "han": self.material[HAN] + self.rules.komi}

    def status(self) -> Status:
        """What makes the position impossible, `Status.VALID` if nothing does."""
        return fen.status(self.squares, self.turn)

    def is_valid(self) -> bool:
        return not self.status()

    def ply(self) -> int:
        """Plies since the start of the game, by the move number."""
        return 2 * (self.fullmove_number - 1) + self.turn

    def outcome(self, claim: bool = False) -> Outcome | None:
        """How the game has ended, or None. With `claim`, also by what a player has to claim."""
        if self.is_checkmate():
            return Outcome(1 - self.turn, "checkmate")
        if self._ended is not None:
            return ends.decide(self, ends.verdict(self.rules, self._ended), self._ended)
        return ends.claimable(self) if claim else None

    # Moves

    def push(self, move: Move) -> None:
        """Play a move without asking whether it is legal; `push_uci` asks."""
        self.make(move.from_square << 7 | move.to_square)

    def push_uci(self, uci: str) -> Move:
        """Play a legal move given in UCI. Raises `IllegalMove`, and then nothing has changed."""
        move = self.parse_uci(uci)
        self.push(move)
        return move

    def peek(self) -> Move:
        """The last move. Raises `IndexError` at the root."""
        return MOVES[self.history[-1].move]

    def pop(self) -> Move:
        """Take the last move back and return it. Raises `IndexError` at the root."""
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
        return MOVES[record.move]

    def make(self, move: int) -> None:
        """`push` of a packed move."""
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

    def perft(self, depth: int) -> int:
        """Number of move sequences of `depth` plies; a pass is a move, an ended game has none."""
        if depth == 0:
            return 1
        moves = self.packed_moves()
        if depth == 1:
            return len(moves)
        nodes = 0
        for move in moves:
            self.make(move)
            nodes += self.perft(depth - 1)
            self.pop()
        return nodes

    def copy(self) -> Board:
        """An independent board with the same history."""
        twin = Board.__new__(Board)
        twin.__dict__.update(self.__dict__)
        twin.squares = self.squares[:]
        twin.history = self.history[:]
        twin.men = (self.men[CHO].copy(), self.men[HAN].copy())
        twin.material = self.material[:]
        twin.generals = self.generals[:]
        return twin

    def __eq__(self, other: object) -> bool:
        """Same position, counters and rule set; the history does not matter."""
        if not isinstance(other, Board):
            return NotImplemented
        return self.fen() == other.fen() and self.rules == other.rules

    def __repr__(self) -> str:
        return f"Board({self.fen()!r}, {self.rules.name!r})"

    def __str__(self) -> str:
        return ascii_board(FILES, RANKS, fen.letters_by_square(self.squares))

    def packed_moves(self) -> list[int]:
        """`legal_moves` in the form of `movegen`, unsorted; not to be changed by the caller."""
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
        if self.rules.ply_cap == "off" or self.ply() < self.rules.ply_cap_limit:
            return None
        mated = self.is_check() and not self._generate()
        return None if mated else "ply_limit"

    def _checked(self, move: Move) -> Move:
        if not self.is_legal(move):
            side = "Cho" if self.turn == CHO else "Han"
            over = " (the game is over)" if self._ended is not None else ""
            raise IllegalMove(f"{move.uci()} is not a legal move of {side} in {self.fen()}{over}.")
        return move


def _is_pass(move: int) -> bool:
    return move >> 7 == move & 127
