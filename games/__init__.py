"""The rules of the games: one `Position` interface over chess and janggi. Knows nothing of models
or tournaments.
"""

from games import chess_game
from games.core import (
    AmbiguousMove,
    Game,
    GameError,
    IllegalMove,
    InvalidFen,
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

_GAMES = {game.name: game for game in (chess_game.GAME, janggi_position.GAME)}


def get_game(name: str) -> Game:
    """The record of a game. Raises `UnknownGame`."""
    try:
        return _GAMES[name]
    except KeyError:
        raise UnknownGame(
            f"There is no game {name!r}; choose one of {', '.join(_GAMES)}."
        ) from None


def list_games() -> list[str]:
    """Names of all games."""
    return list(_GAMES)


__all__ = [
    "AmbiguousMove",
    "Game",
    "GameError",
    "IllegalMove",
    "InvalidFen",
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
