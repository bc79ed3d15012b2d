"""How people and models spell chess moves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from games.reading import LegalMoves, Spelling, capital

_FIGURINES = str.maketrans(
    dict(zip("♔♕♖♗♘♙", "KQRBNP", strict=True)) | dict(zip("♚♛♜♝♞♟", "KQRBNP", strict=True))
)
_WORDS = {"king": "K", "queen": "Q", "rook": "R", "bishop": "B", "knight": "N", "pawn": "P"}
_SQUARE = "[a-h][1-8]"
_VS = "[\ufe0e\ufe0f]?"  # chooses the look of the figurine before it
_PROMOTION = (
    r"(?:\s?=\s?|\s?[/(]\s?|\s*,?\s*(?:promot\w+|becom\w+|turn\w+)\s+(?:in)?(?:to)?\s*(?:an?\s+)?)?"
    r"(?P<{0}>queen|rook|bishop|knight|[qrbn])(?![a-z0-9])\)?"
)
_SUFFIX = r"(?P<suffix>(?:\s?e\.?p\.?(?![a-z]))?(?:\+\+?|\#|†|‡)?[!?]{0,2})"
_PATTERN = re.compile(
    rf"""
    (?<![a-z0-9_@/\u00c0-\u024f\u0370-\u04ff])(?:
      (?P<null> 0000 )
    | (?P<castling> [o0]-[o0](?:-[o0])? | oo(?:o)? |
        castl(?:es?|ing) (?: \s+(?:on\s+|to\s+)?(?:the\s+)?(?:king|queen|short|long)(?:[\s-]?side)? )? |
        (?:king[\s-]?side|queen[\s-]?side|short|long)\s+castl(?:e|es|ing) )
    | (?P<word> king|queen|rook|bishop|knight|pawn )(?:'s)?\s+
        (?: (?:from\s+|on\s+|at\s+)?(?P<word_from>{_SQUARE})
            (?: \s+(?=to|takes|captures|moves|goes|-|x) | (?=[-x]) ) )?
        (?: (?:moves?|goes|jumps|advances)\s+ )?
        (?: to\s+ | -\s* | x\s* | (?:takes|captures)\s+(?:(?:the\s+)?(?:pawn|knight|bishop|rook|queen|piece)\s+)?
            (?:on\s+|at\s+)? )?
        (?P<word_to>{_SQUARE}) (?: {_PROMOTION.format("word_promotion")} )?
    | (?P<long_piece> [kqrbnp]{_VS} )? (?P<from>{_SQUARE})
        (?: \s?(?:-+>?|x|:|>)\s? | \s(?:to|takes)\s | (?P<space>[ ]) )?
        (?P<to>{_SQUARE}) (?: {_PROMOTION.format("promotion")} )?
    | (?P<piece> [kqrbnp]{_VS} ) (?P<file>[a-h])? (?P<rank>[1-8])? [x:-]? (?P<target>{_SQUARE})
        (?: {_PROMOTION.format("piece_promotion")} )?
    | (?: (?P<pawn_file>[a-h])[x:]? )? (?P<pawn_to>{_SQUARE}) (?: {_PROMOTION.format("pawn_promotion")} )?
    ) {_SUFFIX} (?![a-z0-9_@/])
    """,
    re.I | re.X,
)


def spellings(text: str, legal: Sequence[str], pieces: Mapping[str, str]) -> list[Spelling]:
    """What is spelled in `text`, each with the legal moves that it can mean."""
    moves = LegalMoves(legal, pieces)
    return [
        spelling
        for match in _PATTERN.finditer(text.translate(_FIGURINES))
        if not re.fullmatch("[Oo]*oO*", match[0])  # an exclamation
        for spelling in _spelled(match, moves)
    ]


def _spelled(match: re.Match[str], moves: LegalMoves) -> list[Spelling]:
    found = _moves(match, moves)
    if match["space"] and not found:  # not one move but two squares
        return [
            Spelling(*match.span(name), moves.find(piece="P", target=match[name].lower()), True)
            for name in ("from", "to")
        ]
    marked = match["pawn_file"] or match["pawn_promotion"] or set("+#") & set(match["suffix"])
    vague = bool(match["pawn_to"] and not marked) or match[0].lower() == "castle"
    return [Spelling(match.start(), match.end(), found, vague)]


def _moves(match: re.Match[str], moves: LegalMoves) -> tuple[str, ...]:
    if match["null"]:
        return ()
    if castling := match["castling"]:
        return _castling(castling.lower(), moves)
    if word := match["word"]:
        file, rank = _split(match["word_from"])
        return moves.find(
            piece=_WORDS[word.lower()],
            file=file,
            rank=rank,
            target=match["word_to"].lower(),
            promotion=_promotion(match["word_promotion"]),
        )
    if match["from"]:
        as_piece, as_square = capital(
            match["from"], match["to"], "" if match["long_piece"] else "B"
        )
        rank, target = match["from"][1], match["to"].lower()
        found = moves.find(piece="B", rank=rank, target=target) if as_piece else ()
        return found + (_by_squares(match, moves) if as_square else ())
    if match["piece"]:
        return _by_piece(match, moves)
    return moves.find(
        piece="P",
        file=(match["pawn_file"] or "").lower(),
        target=match["pawn_to"].lower(),
        promotion=_promotion(match["pawn_promotion"]),
    )


def _by_squares(match: re.Match[str], moves: LegalMoves) -> tuple[str, ...]:
    file, rank = _split(match["from"])
    target = match["to"].lower()
    found = moves.find(
        piece=(match["long_piece"] or "")[:1].upper(),
        file=file,
        rank=rank,
        target=target,
        promotion=_promotion(match["promotion"]),
    )
    if found or file != "e" or target not in (f"h{rank}", f"a{rank}"):
        return found
    # The king onto his own rook, as Chess960 writes castling.
    return moves.find(piece="K", file="e", rank=rank, target="gc"[target[0] == "a"] + rank)


def _by_piece(match: re.Match[str], moves: LegalMoves) -> tuple[str, ...]:
    """`b` is a file and `B` a bishop, unless everything is written in capitals."""
    letter = match["piece"][0]
    target = match["target"].lower()
    found: tuple[str, ...] = ()
    promotion = _promotion(match["piece_promotion"])
    if letter != "b":
        found = moves.find(
            piece=letter.upper(),
            file=(match["file"] or "").lower(),
            rank=match["rank"] or "",
            target=target,
            promotion=promotion,
        )
    plain = not match["file"] and not match["rank"]
    if plain and (letter == "b" or (letter == "B" and match["target"][0].isupper())):
        found += moves.find(piece="P", file="b", target=target, promotion=promotion)
    return found


def _castling(text: str, moves: LegalMoves) -> tuple[str, ...]:
    if text in ("castle", "castles", "castling"):
        return _castling("o-o", moves) + _castling("o-o-o", moves)
    letters = re.sub("[^o0]", "", text)
    is_long = "queen" in text or "long" in text or letters in ("ooo", "000")
    file = "c" if is_long else "g"
    return tuple(
        move
        for rank in "18"
        for move in moves.find(piece="K", file="e", rank=rank, target=file + rank)
    )


def _split(square: str | None) -> tuple[str, str]:
    return (square[0].lower(), square[1]) if square else ("", "")


def _promotion(text: str | None) -> str:
    if not text:
        return ""
    return _WORDS.get(text.lower(), text).lower()
