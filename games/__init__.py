"""The rules of the games: one `Position` interface over chess and janggi. Knows nothing of models
or tournaments.
"""

from functools import cache
from importlib.metadata import entry_points

from games import chess_game
from games.core import (
    AmbiguousMove,
    Game,
    GameError,
    IllegalMove,
    InvalidFen,
    MoveFacts,
    Opening,
    Outcome,
    ParseFailure,
    ParseResult,
    PieceInfo,
    Position,
    UnknownGame,
    UnknownRules,
    UnknownSetup,
)
from games.janggi import position as janggi_position

_BUILT_IN = {game.name: game for game in (chess_game.GAME, janggi_position.GAME)}
ENTRY_POINTS = "arena.games"
"""Installed packages add games by entry points of this group, which give a `Game`."""


def get_game(name: str) -> Game:
    """The record of a game. Raises `UnknownGame`, and `GameError` for an installed game that cannot be loaded."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    if name not in list_games():
        raise UnknownGame(f"There is no game {name!r}; choose one of {', '.join(list_games())}.")
    return _load(name)


def list_games() -> list[str]:
    """Names of all games, the installed ones after those of the project."""
    installed = {entry.name for entry in entry_points(group=ENTRY_POINTS)}
    return [*_BUILT_IN, *sorted(installed - set(_BUILT_IN))]


@cache
def _load(name: str) -> Game:
    [entry, *others] = entry_points(group=ENTRY_POINTS, name=name)
    if others:
        raise GameError(f"The game {name!r} is installed twice; remove one of its packages.")
    try:
        game = entry.load()
    except Exception as error:
        raise GameError(
            f"The game {name!r} ({entry.value}) cannot be loaded: {error!r}."
        ) from error
    if not isinstance(game, Game) or game.name != name:
        raise GameError(f"The entry point {entry.value} does not give a games.Game named {name!r}.")
    return game


__all__ = [
    "AmbiguousMove",
    "Game",
    "GameError",
    "IllegalMove",
    "InvalidFen",
    "MoveFacts",
    "Opening",
    "Outcome",
    "ParseFailure",
    "ParseResult",
    "PieceInfo",
    "Position",
    "UnknownGame",
    "UnknownRules",
    "UnknownSetup",
    "get_game",
    "list_games",
]
