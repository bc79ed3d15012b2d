"""Chess: a `Position` over python-chess, which owns the rules; this module adds only the project's
interface.
"""

from __future__ import annotations

import math

import chess

from games.chess_openings import OPENINGS
from games.chess_reading import spellings
from games.core import (
    Game,
    GameError,
    IllegalMove,
    InvalidFen,
    MoveFacts,
    Outcome,
    ParseResult,
    PieceInfo,
    ascii_board,
)
from games.reading import read_reply

_NOTATIONS = {
    "uci": (
        "as the square a piece leaves and the square it goes to, like e2e4; castling is the king's "
        "move, like e1g1; a promotion adds the new piece, like e7e8q"
    ),
    "san": (
        "in standard algebraic notation, like e4, Nf3 or exd5; castling is O-O or O-O-O; a "
        "promotion adds the new piece, like e8=Q"
    ),
    "lan": (
        "in long algebraic notation, like e2-e4, Ng1-f3 or e4xd5; castling is O-O or O-O-O; a "
        "promotion adds the new piece, like e7-e8=Q"
    ),
}


def describe(rules: str, notation: str) -> str:
    """The rules as language models are told them; the bundled model was trained on those with `uci`."""
    return (
        "You play chess in a tournament. White and Black move in turn; White moves first. A "
        f"move is written {_NOTATIONS[notation]}. "
        "Checkmate wins. Stalemate, the same position three times, fifty moves without a "
        "capture or pawn move, and too little material are draws."
    )


PIECES = (
    PieceInfo("P", "pawn", 1.0, ("♙", "♟")),
    PieceInfo("N", "knight", 3.0, ("♘", "♞")),
    PieceInfo("B", "bishop", 3.0, ("♗", "♝")),
    PieceInfo("R", "rook", 5.0, ("♖", "♜")),
    PieceInfo("Q", "queen", 9.0, ("♕", "♛")),
    PieceInfo("K", "king", 0.0, ("♔", "♚")),
)
_VALUES = tuple((chess.Piece.from_symbol(p.letter).piece_type, p.value) for p in PIECES)


def _letter(piece_type: chess.PieceType) -> str:
    return chess.piece_symbol(piece_type).upper()


class ChessPosition:
    """Chess with the claims of the threefold repetition and the fifty moves made automatically."""

    def __init__(self, fen: str | None, rules: str, setup: str | None) -> None:
        self.game = GAME
        self.rules = rules
        self._board = _read_fen(fen) if fen is not None else chess.Board()
        self.start_fen = self._board.fen()

    @property
    def turn(self) -> int:
        return 0 if self._board.turn else 1

    @property
    def ply(self) -> int:
        return len(self._board.move_stack)

    def fen(self) -> str:
        return self._board.fen()

    def key(self) -> str:
        return self._board.epd()

    def legal_moves(self) -> list[str]:
        return sorted(move.uci() for move in self._board.legal_moves)

    def facts(self, uci: str) -> MoveFacts:
        board, move = self._board, self._legal(uci)
        taken = chess.PAWN if board.is_en_passant(move) else board.piece_type_at(move.to_square)
        captured = None if taken is None else _letter(taken)
        board.push(move)
        outcome = self.outcome()
        at_risk = None if outcome else self._at_risk()
        facts = MoveFacts(captured, board.is_check(), outcome, at_risk)
        board.pop()
        return facts

    def push(self, uci: str) -> None:
        self._board.push(self._legal(uci))

    def pop(self) -> str:
        return self._board.pop().uci()

    def moves(self) -> list[str]:
        return [move.uci() for move in self._board.move_stack]

    def copy(self) -> ChessPosition:
        twin = ChessPosition.__new__(ChessPosition)
        twin.game, twin.rules, twin.start_fen = self.game, self.rules, self.start_fen
        twin._board = self._board.copy()
        return twin

    def in_check(self) -> bool:
        return self._board.is_check()

    def outcome(self) -> Outcome | None:
        board = self._board
        if not any(board.generate_legal_moves()):
            if board.is_check():
                return Outcome(1 - self.turn, "checkmate")
            return Outcome(None, "stalemate")
        if board.is_insufficient_material():
            return Outcome(None, "insufficient_material")
        if board.is_fifty_moves():
            return Outcome(None, "fifty_moves")
        if board.is_repetition(3):
            return Outcome(None, "threefold_repetition")
        return None

    def adjudicate(self, reason: str = "ply_limit") -> Outcome:
        return Outcome(None, reason)

    def material(self) -> tuple[float, float]:
        board = self._board
        white = sum(v * board.pieces_mask(p, chess.WHITE).bit_count() for p, v in _VALUES)
        black = sum(v * board.pieces_mask(p, chess.BLACK).bit_count() for p, v in _VALUES)
        return white, black

    def notation(self, uci: str, style: str) -> str:
        move = self._legal(uci)
        if style == "uci":
            return move.uci()
        if style == "san":
            return self._board.san(move)
        if style == "lan":
            return self._board.lan(move)
        raise GameError(
            f"Chess has no notation {style!r}; choose one of {', '.join(GAME.notations)}."
        )

    def parse(self, text: str, truncated: bool = False) -> ParseResult:
        legal, pieces = self.legal_moves(), self.pieces()
        return read_reply(
            text,
            lambda plain: spellings(plain, legal, pieces),
            side=GAME.sides[self.turn],
            rival=GAME.sides[1 - self.turn],
            number=(self._board.fullmove_number, self.turn),
            truncated=truncated,
        )

    def ascii(self) -> str:
        return ascii_board(8, 8, self.pieces())

    def pieces(self) -> dict[str, str]:
        return {
            chess.square_name(square): piece.symbol()
            for square, piece in self._board.piece_map().items()
        }

    def _at_risk(self) -> str | None:
        """The piece that the side to move could win most by capturing, see `MoveFacts`."""
        board = self._board
        rival = board.turn
        worst, at_risk = 0.0, None
        for kind, value in _VALUES[:-1]:  # the king, the last, cannot be taken
            for square in chess.scan_forward(board.pieces_mask(kind, not rival)):
                attackers = board.attackers_mask(rival, square)
                if attackers and value > worst:
                    loss = value
                    if board.attackers_mask(not rival, square):
                        loss -= next(
                            (v for k, v in _VALUES[:-1] if attackers & board.pieces_mask(k, rival)),
                            math.inf,  # a king takes nothing that is protected
                        )
                    if loss > worst:
                        worst, at_risk = loss, _letter(kind)
        return at_risk

    def _legal(self, uci: str) -> chess.Move:
        try:
            move = self._board.parse_uci(uci)
        except chess.InvalidMoveError:
            raise IllegalMove(
                f"{uci!r} is not a chess move in UCI, such as e2e4 or e7e8q."
            ) from None
        except chess.IllegalMoveError:
            move = chess.Move.null()
        if not move:
            side = GAME.sides[self.turn].capitalize()
            raise IllegalMove(f"{uci} is not a legal move of {side} in {self._board.fen()}.")
        return move


def _read_fen(fen: str) -> chess.Board:
    try:
        board = chess.Board(fen)
    except ValueError as error:
        raise InvalidFen(f"Cannot read the chess FEN {fen!r}: {error}.", ("syntax",)) from None
    status = board.status()
    if status != chess.STATUS_VALID:
        problems = tuple((flag.name or "").lower() for flag in chess.Status if flag & status)
        raise InvalidFen(f"The chess FEN {fen!r} is impossible: {', '.join(problems)}.", problems)
    return board


GAME = Game(
    name="chess",
    title="Chess",
    sides=("white", "black"),
    files=8,
    ranks=8,
    board="squares",
    lines=(),
    start_fen=chess.STARTING_FEN,
    rule_sets=("standard",),
    setups=(),
    notations=tuple(_NOTATIONS),
    pieces=PIECES,
    pgn_variant=None,
    factory=ChessPosition,
    describe=describe,
    openings=OPENINGS,
)
