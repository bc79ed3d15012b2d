"""Lists of positions as text files: a FEN a line, or EPD (a FEN's first four fields and operations,
as chess programs write them). They are start positions: openings, puzzles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import games
from games.core import InvalidFen

_COUNTERS = re.compile(r"\d+\s+\d+\s*(?:;.*)?")
_OPERATION = re.compile(r'\s*(\w+)((?:\s+(?:"[^"]*"|[^\s;"]+))*)\s*;?')


def loads(text: str, game: str = "chess") -> list[str]:
    """The positions of a file as full FENs. Empty lines and those that begin with # are left out.

    The operations `hmvc` and `fmvn` of EPD give the counters; others are left out. Raises
    `InvalidFen` with the line's number for a position that cannot be read or is impossible.
    """
    rules = games.get_game(game)
    found = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        try:
            found.append(rules.position(_fen(line)).start_fen)
        except InvalidFen as error:
            raise InvalidFen(f"Line {number}: {error}", error.problems) from None
    return found


def decoded(data: bytes) -> str:
    """The text of a file: UTF-8, or else Latin-1."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def dumps(fens: Iterable[str]) -> str:
    """The positions, one a line."""
    return "".join(f"{fen}\n" for fen in fens)


def _fen(line: str) -> str:
    fields = line.split(None, 4)
    if len(fields) < 5:
        return line
    if _COUNTERS.fullmatch(fields[4]):
        return " ".join((*fields[:4], *fields[4].split(";")[0].split()))
    values = {m[1]: m[2].strip() for m in _OPERATION.finditer(fields[4])}
    return " ".join((*fields[:4], values.get("hmvc", "0"), values.get("fmvn", "1")))
