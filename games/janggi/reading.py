"""How people and models spell janggi moves: UCI, SAN, LAN, Fairy-Stockfish's digits, Korean notation and words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from games.reading import LegalMoves, Spelling, capital

# Hanja, hangul and Fairy-Stockfish's letters for the FEN letters of `Position.pieces`.
_LETTERS = {"H": "N", "E": "B"} | {
    sign: letter
    for letter, signs in {
        "K": "楚漢將將장왕궁초한",
        "A": "士사",
        "N": "馬마",
        "B": "象상",
        "R": "車차",
        "C": "包砲炮포",
        "P": "卒兵졸병",
    }.items()
    for sign in signs
}
_WORDS = {
    "general": "K",
    "king": "K",
    "guard": "A",
    "advisor": "A",
    "horse": "N",
    "knight": "N",
    "elephant": "B",
    "chariot": "R",
    "rook": "R",
    "cannon": "C",
    "soldier": "P",
    "pawn": "P",
}
_POINT = r"[a-i](?:10|[1-9])"
_SIGN = "楚漢將士馬象車包砲炮卒兵장왕궁사마상차포졸병"
_PIECE = rf"(?:[kaehnbrcp]|[{_SIGN}])"
_NAME = "|".join(_WORDS)
_PATTERN = re.compile(
    rf"""
    (?<![a-z0-9_/\u00c0-\u024f\u0370-\u04ff])(?:
      (?P<pass> pass(?:es|ing)?(?!\s+(?:over|up|through|by)\b) | 0000 | @@@@ | (?:한\s?수\s?)?쉼 )
    | (?P<word>{_NAME})\s+
        (?: (?:from\s+|on\s+|at\s+)?(?P<word_from>{_POINT})
            (?: \s+(?=to|takes|captures|moves|goes|-|x) | (?=[-x]) ) )?
        (?: (?:moves?|goes|jumps|advances)\s+ )?
        (?: to\s+ | -\s* | x\s* | (?:takes|captures)\s+(?:(?:the\s+)?(?:{_NAME}|piece)\s+)?(?:on\s+|at\s+)? )?
        (?P<word_to>{_POINT})
    | (?P<digit_piece>{_PIECE})?(?P<digit_from>[0-9][1-9])
        (?: \s?[-x]\s? | \s?[楚漢초한]?\s?(?P<korean>[{_SIGN}])\s? )(?P<digit_to>[0-9][1-9])
        (?: 타?[{_SIGN}] )? (?: \s?장군 )?
    | (?P<long_piece>{_PIECE})? (?P<from>{_POINT}) (?: \s?(?:-+>?|x|:|>)\s? | \s(?:to|takes)\s | (?P<space>[ ]) )?
        (?P<to>{_POINT})
    | (?P<piece>{_PIECE}|[{_SIGN}]\s)(?P<file>[a-i])?(?P<rank>10|[1-9])?[x:-]?(?P<target>{_POINT})
    ) (?P<suffix> (?:\+\+?|\#)?[!?]{{0,2}} ) (?![a-z0-9_@/])
    """,
    re.I | re.X,
)


def spellings(text: str, legal: Sequence[str], pieces: Mapping[str, str]) -> list[Spelling]:
    """What is spelled in `text`, each with the legal moves that it can mean."""
    moves = LegalMoves(legal, pieces)
    passes = tuple(uci for uci in legal if uci[: len(uci) // 2] == uci[len(uci) // 2 :])
    found = []
    for match in _PATTERN.finditer(text):
        if match["digit_from"] and not (match["digit_piece"] or match["korean"]):
            continue  # two numbers, such as a result
        meant = passes if match["pass"] else _moves(match, moves)
        if match["space"] and not meant:
            continue  # not one move but two points
        # "pass" and "rest" are words of every day.
        vague = bool(match["pass"]) and match["pass"].lower() in ("pass", "passes", "passing", "쉼")
        found.append(Spelling(match.start(), match.end(), meant, vague))
    return found


def _moves(match: re.Match[str], moves: LegalMoves) -> tuple[str, ...]:
    if word := match["word"]:
        return _from_to(moves, _WORDS[word.lower()], match["word_from"], match["word_to"])
    if match["digit_from"]:
        letter = _letter(match["digit_piece"]) or _letter(match["korean"])
        return _from_to(moves, letter, _point(match["digit_from"]), _point(match["digit_to"]))
    if match["from"]:
        letters = "" if match["long_piece"] else "ABCEH"
        as_piece, as_square = capital(match["from"], match["to"], letters)
        piece, rank, target = _letter(match["from"][0]), match["from"][1:], match["to"].lower()
        found = moves.find(piece=piece, rank=rank, target=target) if as_piece else ()
        if as_square:
            found += _from_to(moves, _letter(match["long_piece"]), match["from"], match["to"])
        return found
    return moves.find(
        piece=_letter(match["piece"].strip()),
        file=(match["file"] or "").lower(),
        rank=match["rank"] or "",
        target=match["target"].lower(),
    )


def _from_to(moves: LegalMoves, piece: str, origin: str | None, target: str) -> tuple[str, ...]:
    origin = (origin or "").lower()
    return moves.find(piece=piece, file=origin[:1], rank=origin[1:], target=target.lower())


def _letter(sign: str | None) -> str:
    return _LETTERS.get(sign.upper(), sign.upper()) if sign else ""


def _point(digits: str) -> str:
    """The point of a pair of digits: the rank from Han's side, 0 for the tenth, then the file."""
    return f"{'abcdefghi'[int(digits[1]) - 1]}{11 - (int(digits[0]) or 10)}"
