"""SAN, LAN and Fairy-Stockfish's janggi notation of moves, and reading them back.

Letters are those of Fairy-Stockfish's output: H for the horse and E for the elephant.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from games.core import AmbiguousMove, IllegalMove
from games.janggi.geometry import SQUARE_NAMES
from games.janggi.korean import point_digits
from games.janggi.move import Move

if TYPE_CHECKING:
    from games.janggi.board import Board

_LETTERS = " KAHERCP"  # by kind
_KINDS = {letter: kind for kind, letter in enumerate(_LETTERS)} | {"N": 3, "B": 4}
_POINT = r"[a-i](?:10|[1-9])"
_SAN = re.compile(rf"([KAHENBRCP])([a-i]?)(10|[1-9])?[-x]?({_POINT})[+#]?")
_DIGITS = re.compile(r"([KAHENBRCP])([0-9][1-9])[-x]([0-9][1-9])[+#]?")


def san(board: Board, move: Move) -> str:
    """A legal move, with as much of its origin as others of its kind require: `Hc3`, `Pab4`."""
    origin = move.from_square
    kind = board.squares[origin]
    rivals = [
        other.from_square
        for other in board.legal_moves
        if other.to_square == move.to_square
        and other.from_square != origin
        and board.squares[other.from_square] == kind
    ]
    name = SQUARE_NAMES[origin]
    if not rivals:
        hint = ""
    elif all(rival % 9 != origin % 9 for rival in rivals):
        hint = name[0]
    elif all(rival // 9 != origin // 9 for rival in rivals):
        hint = name[1:]
    else:
        hint = name
    capture = "x" if board.is_capture(move) else ""
    return (
        f"{_LETTERS[kind & 7]}{hint}{capture}{SQUARE_NAMES[move.to_square]}{_suffix(board, move)}"
    )


def lan(board: Board, move: Move) -> str:
    """A legal move with both points: `Hb1-c3`, `Pa7xa6+`, `Ke2-e2` for a pass."""
    return _long(board, move, SQUARE_NAMES[move.from_square], SQUARE_NAMES[move.to_square])


def digits(board: Board, move: Move) -> str:
    """A legal move with points as two digits: rank from Han's side (10 is 0), file: `H02-83`."""
    return _long(board, move, point_digits(move.from_square), point_digits(move.to_square))


def parse_san(board: Board, text: str) -> Move:
    """Read SAN or LAN. Raises `IllegalMove` or `AmbiguousMove`."""
    match = _SAN.fullmatch(text)
    if match is None:
        raise IllegalMove(f"{text!r} is not a janggi move such as Hc3, Pab4, Rxe9 or Hb1-c3.")
    letter, file, rank, target = match.groups()
    return _only(
        board,
        text,
        [
            move
            for move in board.legal_moves
            if SQUARE_NAMES[move.to_square] == target
            and board.squares[move.from_square] & 7 == _KINDS[letter]
            and file in ("", SQUARE_NAMES[move.from_square][0])
            and rank in (None, SQUARE_NAMES[move.from_square][1:])
        ],
    )


def parse_digits(board: Board, text: str) -> Move:
    """Read the notation of `digits`. Raises `IllegalMove`."""
    match = _DIGITS.fullmatch(text)
    if match is None:
        raise IllegalMove(f"{text!r} is not a janggi move such as H02-83.")
    letter, origin, target = match.groups()
    return _only(
        board,
        text,
        [
            move
            for move in board.legal_moves
            if (point_digits(move.from_square), point_digits(move.to_square)) == (origin, target)
            and board.squares[move.from_square] & 7 == _KINDS[letter]
        ],
    )


def _only(board: Board, text: str, moves: list[Move]) -> Move:
    if not moves:
        raise IllegalMove(f"{text} is not a legal move in {board.fen()}.")
    if len(moves) > 1:
        names = ", ".join(move.uci() for move in moves)
        raise AmbiguousMove(f"{text} may mean {names} in {board.fen()}.")
    return moves[0]


def _long(board: Board, move: Move, origin: str, target: str) -> str:
    letter = _LETTERS[board.squares[move.from_square] & 7]
    middle = "x" if board.is_capture(move) else "-"
    return f"{letter}{origin}{middle}{target}{_suffix(board, move)}"


def _suffix(board: Board, move: Move) -> str:
    board.push(move)
    suffix = "" if not board.is_check() else "#" if board.is_checkmate() else "+"
    board.pop()
    return suffix
