"""Openings of tournaments: a game's own balanced set, or a book from a file."""

from __future__ import annotations

from pathlib import Path

from games import fens, pgn
from games.core import Game, GameError, InvalidFen, Opening
from games.janggi import gib

BALANCED = "balanced"
"""What a game's own set is asked for by."""


def load_openings(
    game: Game, book: str, rules: str | None = None, plies: int | None = None
) -> list[Opening]:
    """The openings of `book`: "balanced", or the path of a PGN, GIB, EPD or FEN file.

    Lines are cut to `plies`, and before a game is over. Raises `GameError` for a book that cannot be
    read, or of this game not in full, and for one that has nothing for this game.
    """
    if book == BALANCED:
        if not game.openings:
            raise GameError(f"{game.title} has no openings of its own; give the path of a book.")
        found = list(game.openings)
    else:
        found = _read(game, Path(book))
    playable = [_cut(game, opening, rules, plies) for opening in found]
    openings = list(dict.fromkeys(opening for opening in playable if opening))
    if not openings:
        raise GameError(f"The book {book} has no opening for {game.title}.")
    return openings


def _read(game: Game, path: Path) -> list[Opening]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise GameError(f"The book {path} cannot be read: {error.strerror}.") from None
    kind = path.suffix.lower()
    if kind in (".epd", ".fen", ".txt"):
        try:
            return [Opening(start_fen=fen) for fen in fens.loads(fens.decoded(data), game.name)]
        except InvalidFen as error:
            raise InvalidFen(f"The book {path}: {error}", error.problems) from None
    if kind not in (".pgn", ".gib"):
        raise GameError(f"The book {path} is of an unknown kind; use .pgn, .gib, .epd or .fen.")
    records = gib.loads(data) if kind == ".gib" else pgn.loads(data)
    for record in records:
        for problem in record.problems:
            if problem.stops and record.game == game.name:
                raise GameError(f"The book {path} cannot be read in full: {problem}.")
    return [
        Opening(tuple(r.moves), None if r.start_fen == game.start_fen else r.start_fen)
        for r in records
        if r.game == game.name
    ]


def _cut(game: Game, opening: Opening, rules: str | None, plies: int | None) -> Opening | None:
    """The opening up to where the rules let the game go on; None if it is over at once."""
    position = game.position(opening.start_fen, rules, opening.setup)
    if position.outcome():
        return None
    kept = 0
    for uci in opening.moves[:plies]:
        if uci not in position.legal_moves():
            break
        position.push(uci)
        if position.outcome():
            break
        kept += 1
    return Opening(opening.moves[:kept], opening.start_fen, opening.setup)
