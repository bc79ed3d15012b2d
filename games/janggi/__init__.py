"""Janggi (Korean chess): a board with python-chess's vocabulary. `games.get_game("janggi")` is its
neutral face.
"""

from games.janggi.board import Board
from games.janggi.fen import Status
from games.janggi.geometry import CHO, HAN
from games.janggi.move import LegalMoves, Move, parse_square, square_name
from games.janggi.rules import RULE_SETS, SETUPS, START_FEN, WINGS, Rules

__all__ = [
    "CHO",
    "HAN",
    "RULE_SETS",
    "SETUPS",
    "START_FEN",
    "WINGS",
    "Board",
    "LegalMoves",
    "Move",
    "Rules",
    "Status",
    "parse_square",
    "square_name",
]
