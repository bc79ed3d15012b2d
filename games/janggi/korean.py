"""Korean notation of moves, as game records and books print it: `79졸78`, `75상43병장군`, `한수쉼`.

A point is two digits: the rank counted from Han's back rank (1 to 9, then 0 for Cho's), and the
file from Cho's left. A move is the point left, the piece and the point reached; then the man
captured, and `장군` for check. `Board.korean` writes it, `Board.parse_korean` reads it.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from games.core import IllegalMove
from games.janggi.geometry import CHO, GENERAL, HAN, SQUARE_NAMES
from games.janggi.move import Move

if TYPE_CHECKING:
    from games.janggi.board import Board

PASS = "한수쉼"
CHECK = "장군"
# By piece (see `geometry`): Cho's kinds, then Han's.
HANGUL = ".장사마상차포졸.장사마상차포병"
HANJA = ".將士馬象車包卒.將士馬象車包兵"
SIDES = ("楚", "漢")
# Every character read as a piece, by kind; both names of the soldier are read for both sides.
_KINDS = {
    char: kind
    for kind, chars in enumerate(
        (
            "장궁왕將将帥王宮",
            "사士仕",
            "마馬马",
            "상象相",
            "차車车",
            "포包砲炮",
            "졸병卒兵",
        ),
        start=GENERAL,
    )
    for char in chars
}
_SIDES = {"楚": CHO, "초": CHO, "漢": HAN, "汉": HAN, "한": HAN}
_POINT = r"[0-9][1-9]|[a-i](?:10|[1-9])"
_SIDE, _PIECE = f"[{''.join(_SIDES)}]", f"[{''.join(_KINDS)}]"
PASS_FORM = re.compile(r"([초한楚漢汉]?)\s*한\s*수\s*쉼")
# Point, side or piece or both, point, captured man, check. A side alone is its general: 95楚94.
KOREAN_FORM = re.compile(
    rf"({_POINT})\s*({_SIDE})?\s*({_PIECE})?\s*({_POINT})"
    rf"(?:\s*타?\s*({_SIDE})?({_PIECE}))?(?:\s*{CHECK})?"
)


def point_digits(square: int) -> str:
    """`0` (a1) -> `01`, `89` (i10) -> `19`."""
    rank, file = divmod(square, 9)
    return f"{(10 - rank) % 10}{file + 1}"


_POINTS = {point_digits(square): square for square in range(90)} | {
    name: square for square, name in enumerate(SQUARE_NAMES)
}


def korean(
    board: Board, move: Move, *, hanja: bool = False, side: bool = False, take: bool = False
) -> str:
    """A legal move: `48포45병`; in hanja with the side `48楚包45兵`; with 타 `48포45타병`."""
    if move.is_pass:
        return PASS
    names = HANJA if hanja else HANGUL
    piece, captured = board.squares[move.from_square], board.squares[move.to_square]
    owner = (SIDES if hanja else ("초", "한"))[board.turn] if side else ""
    victim = ("타" if take else "") + names[captured] if captured else ""
    board.push(move)
    check = CHECK if board.is_check() else ""
    board.pop()
    return (
        f"{point_digits(move.from_square)}{owner}{names[piece]}"
        f"{point_digits(move.to_square)}{victim}{check}"
    )


def parse_korean(board: Board, text: str) -> Move:
    """Read a legal move. Raises `IllegalMove`, also if another man stands on a point than named."""
    text = unicodedata.normalize("NFKC", text).strip()
    if match := PASS_FORM.fullmatch(text):
        if match[1] and _SIDES[match[1]] != board.turn:
            raise IllegalMove(f"{text}: the other side is to move in {board.fen()}.")
        return board.parse_uci("0000")
    match = KOREAN_FORM.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise IllegalMove(
            f"{text!r} is not a janggi move in Korean notation, such as 79졸78 or 한수쉼."
        )
    origin, owner, name, target, other, victim = match.groups()
    move = Move(_POINTS[origin], _POINTS[target])
    kind = _KINDS[name] if name else GENERAL
    piece, captured = board.squares[move.from_square], board.squares[move.to_square]
    if piece & 7 != kind or (owner and _SIDES[owner] != piece >> 3):
        raise IllegalMove(f"{text}: no such man stands on {origin} in {board.fen()}.")
    if victim and (
        captured & 7 != _KINDS[victim] or move.is_pass or (other and _SIDES[other] != captured >> 3)
    ):
        raise IllegalMove(f"{text}: no such man stands on {target} in {board.fen()}.")
    if not board.is_legal(move):
        raise IllegalMove(f"{text} is not a legal move in {board.fen()}.")
    return move
