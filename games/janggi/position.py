"""Janggi for the rest of the project: the `Game` record and a `Position` over `Board`."""

from __future__ import annotations

import math

from games.core import (
    Game,
    GameError,
    InvalidFen,
    MoveFacts,
    Outcome,
    ParseResult,
    PieceInfo,
    ascii_board,
)
from games.janggi import ends, movegen
from games.janggi.board import Board
from games.janggi.describe import NOTATIONS, describe
from games.janggi.fen import letters_by_square
from games.janggi.geometry import FILES, GENERAL, LETTERS, RANKS, VALUES
from games.janggi.move import UCI
from games.janggi.openings import OPENINGS
from games.janggi.reading import spellings
from games.janggi.rules import RULE_SETS, SETUPS, START_FEN, setup_fen
from games.reading import read_reply

PIECES = (
    PieceInfo("K", "general", VALUES[1], ("楚", "漢")),
    PieceInfo("A", "guard", VALUES[2], ("士", "士")),
    PieceInfo("N", "horse", VALUES[3], ("馬", "馬")),
    PieceInfo("B", "elephant", VALUES[4], ("象", "象")),
    PieceInfo("R", "chariot", VALUES[5], ("車", "車")),
    PieceInfo("C", "cannon", VALUES[6], ("包", "包")),
    PieceInfo("P", "soldier", VALUES[7], ("卒", "兵")),
)


class JanggiPosition:
    """Janggi with all claims made automatically. Impossible positions are refused by name."""

    def __init__(self, fen: str | None, rules: str, setup: str | None) -> None:
        self.game = GAME
        self.rules = rules
        self._board = Board(setup_fen(setup or SETUPS[0]) if fen is None else fen, rules)
        self.start_fen = self._board.fen()
        problems = self._board.status().names()
        if problems:
            raise InvalidFen(
                f"The janggi FEN {fen!r} is impossible: {', '.join(problems)}.", problems
            )

    @property
    def turn(self) -> int:
        return self._board.turn

    @property
    def ply(self) -> int:
        return len(self._board.history)

    def fen(self) -> str:
        return self._board.fen()

    def key(self) -> str:
        return f"{self._board.board_fen()} {'wb'[self._board.turn]}"

    def legal_moves(self) -> list[str]:
        return sorted([UCI[move] for move in self._board.packed_moves()])

    def facts(self, uci: str) -> MoveFacts:
        board, move = self._board, self._board.parse_uci(uci)
        captured = (
            LETTERS[board.squares[move.to_square]].upper() if board.is_capture(move) else None
        )
        board.push(move)
        outcome = self.outcome()
        at_risk = None if outcome else self._at_risk()
        facts = MoveFacts(captured, board.is_check(), outcome, at_risk)
        board.pop()
        return facts

    def push(self, uci: str) -> None:
        self._board.push_uci(uci)

    def pop(self) -> str:
        return self._board.pop().uci()

    def moves(self) -> list[str]:
        return [UCI[record.move] for record in self._board.history]

    def copy(self) -> JanggiPosition:
        twin = JanggiPosition.__new__(JanggiPosition)
        twin.__dict__.update(self.__dict__)
        twin._board = self._board.copy()
        return twin

    def in_check(self) -> bool:
        return self._board.is_check()

    def outcome(self) -> Outcome | None:
        return self._board.outcome(claim=True)

    def adjudicate(self, reason: str = "ply_limit") -> Outcome:
        return ends.decide(self._board, self._board.rules.adjudication, reason)

    def material(self) -> tuple[float, float]:
        cho, han = self._board.material
        return cho, han

    def notation(self, uci: str, style: str) -> str:
        board = self._board
        move = board.parse_uci(uci)
        if style == "uci":
            return move.uci()
        if style == "san":
            return board.san(move)
        if style == "lan":
            return board.lan(move)
        if style == "janggi":
            return board.janggi(move)
        if style == "korean":
            return board.korean(move)
        known = ", ".join(GAME.notations)
        raise GameError(f"Janggi has no notation {style!r}; choose one of {known}.")

    def parse(self, text: str, truncated: bool = False) -> ParseResult:
        legal, pieces = self.legal_moves(), self.pieces()
        return read_reply(
            text,
            lambda plain: spellings(plain, legal, pieces),
            side=GAME.sides[self.turn],
            rival=GAME.sides[1 - self.turn],
            truncated=truncated,
        )

    def ascii(self) -> str:
        return ascii_board(FILES, RANKS, self.pieces())

    def _at_risk(self) -> str | None:
        """The piece that the side to move could win most by capturing, see `MoveFacts`."""
        board, points = self._board, self._board.squares
        rival = board.turn
        cheapest: dict[int, float] = {}
        for move in movegen.pseudo_legal(points, board.men[rival], rival):
            target = move & 127
            if points[target]:
                captor = points[move >> 7] & 7
                # a general takes nothing that is protected
                value = math.inf if captor == GENERAL else VALUES[captor]
                cheapest[target] = min(value, cheapest.get(target, math.inf))
        worst, at_risk = 0.0, None
        for target in sorted(cheapest):
            kind = points[target] & 7
            loss: float = VALUES[kind]
            if loss > worst and board.is_attacked_by(1 - rival, target):
                loss -= cheapest[target]
            if loss > worst:
                worst, at_risk = loss, LETTERS[kind]
        return at_risk

    def pieces(self) -> dict[str, str]:
        return letters_by_square(self._board.squares)


GAME = Game(
    name="janggi",
    title="Janggi",
    sides=("cho", "han"),
    files=FILES,
    ranks=RANKS,
    board="points",
    lines=(("d1", "f3"), ("f1", "d3"), ("d8", "f10"), ("f8", "d10")),
    start_fen=START_FEN,
    rule_sets=tuple(RULE_SETS),
    setups=SETUPS,
    notations=tuple(NOTATIONS),
    pieces=PIECES,
    pgn_variant="Janggi",
    factory=JanggiPosition,
    describe=describe,
    openings=OPENINGS,
)
