"""Connect four as a third game, made with what `games` offers to everybody: a game is an entry point away."""

from __future__ import annotations

import re
from collections.abc import Sequence

from games import Game, IllegalMove, InvalidFen, MoveFacts, Outcome, ParseResult, PieceInfo
from games.core import ascii_board
from games.reading import Spelling, read_reply

COLUMNS, ROWS, START = "abcdefg", 6, "7/7/7/7/7/7 r 1"
STONES = "Ss"  # the first mover's letter is a capital
LINES = ((1, 0), (0, 1), (1, 1), (1, -1))


class ConnectFour:
    """A stone a move; the move is the square it falls to."""

    def __init__(self, fen: str | None, rules: str, setup: str | None) -> None:
        self.game, self.rules = GAME, rules
        self._stones: dict[str, str] = {}
        self._played: list[str] = []
        try:
            board, side, _ = (fen or START).split()
            for rank, row in zip(range(ROWS, 0, -1), board.split("/"), strict=True):
                spread = re.sub(r"\d", lambda m: "." * int(m[0]), row)
                for column, stone in zip(COLUMNS, spread, strict=True):
                    if stone != ".":
                        self._stones[f"{column}{rank}"] = stone
            self._first = "ry".index(side)
        except ValueError:
            raise InvalidFen(f"Cannot read the connect four position {fen!r}.") from None
        self.start_fen = self.fen()

    @property
    def turn(self) -> int:
        return (self._first + self.ply) % 2

    @property
    def ply(self) -> int:
        return len(self._played)

    def fen(self) -> str:
        rows = []
        for rank in range(ROWS, 0, -1):
            row = "".join(self._stones.get(f"{column}{rank}", ".") for column in COLUMNS)
            rows.append(re.sub(r"\.+", lambda m: str(len(m[0])), row))
        return f"{'/'.join(rows)} {'ry'[self.turn]} {len(self._stones) // 2 + 1}"

    key = fen

    def legal_moves(self) -> list[str]:
        if self._winner() is not None:
            return []
        lowest = (
            next((f"{c}{r}" for r in range(1, ROWS + 1) if f"{c}{r}" not in self._stones), "")
            for c in COLUMNS
        )
        return [square for square in lowest if square]

    def facts(self, uci: str) -> MoveFacts:
        self.push(uci)
        outcome = self.outcome()
        self.pop()
        return MoveFacts(outcome=outcome)

    def push(self, uci: str) -> None:
        if uci not in self.legal_moves():
            raise IllegalMove(f"{uci!r} is not a legal move in {self.fen()}.")
        self._stones[uci] = STONES[self.turn]
        self._played.append(uci)

    def pop(self) -> str:
        del self._stones[self._played[-1]]
        return self._played.pop()

    def moves(self) -> list[str]:
        return list(self._played)

    def copy(self) -> ConnectFour:
        twin = ConnectFour(None, self.rules, None)
        twin._stones, twin._played = dict(self._stones), list(self._played)
        twin._first, twin.start_fen = self._first, self.start_fen
        return twin

    def in_check(self) -> bool:
        return False

    def _winner(self) -> int | None:
        for square, stone in self._stones.items():
            column, rank = COLUMNS.index(square[0]), int(square[1:])
            for step, climb in LINES:
                line = [
                    self._stones.get(f"{COLUMNS[column + i * step]}{rank + i * climb}")
                    for i in range(4)
                    if column + i * step < len(COLUMNS)
                ]
                if line == [stone] * 4:
                    return STONES.index(stone)
        return None

    def outcome(self) -> Outcome | None:
        if (winner := self._winner()) is not None:
            return Outcome(winner, "four_in_a_row")
        return None if self.legal_moves() else self.adjudicate("board_full")

    def adjudicate(self, reason: str = "ply_limit") -> Outcome:
        return Outcome(None, reason)

    def material(self) -> tuple[float, float]:
        stones = list(self._stones.values())
        return float(stones.count("S")), float(stones.count("s"))

    def notation(self, uci: str, style: str) -> str:
        assert style == "uci"
        return uci

    def parse(self, text: str, truncated: bool = False) -> ParseResult:
        legal = self.legal_moves()

        def spellings(plain: str) -> Sequence[Spelling]:
            found = re.finditer(r"(?<![a-z0-9])[a-g][1-6](?![a-z0-9])", plain, re.I)
            return [
                Spelling(m.start(), m.end(), tuple(x for x in legal if x == m[0].lower()))
                for m in found
            ]

        return read_reply(text, spellings, rival=GAME.sides[1 - self.turn], truncated=truncated)

    def ascii(self) -> str:
        return ascii_board(len(COLUMNS), ROWS, self.pieces())

    def pieces(self) -> dict[str, str]:
        return dict(self._stones)


GAME = Game(
    name="connect4",
    title="Connect four",
    sides=("red", "yellow"),
    files=7,
    ranks=6,
    board="squares",
    lines=(),
    start_fen=START,
    rule_sets=("standard",),
    setups=(),
    notations=("uci",),
    pieces=(PieceInfo("S", "stone", 1.0, ("●", "○")),),
    pgn_variant="Connect4",
    factory=ConnectFour,
    describe=lambda rules, notation: "Connect four. A move is the square a stone falls to: d1.",
)
