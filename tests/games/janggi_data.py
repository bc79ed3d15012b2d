"""The janggi reference vectors of `tests/data/janggi`, and random positions beside them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from games.janggi import SETUPS, Board
from games.janggi.fen import board_fen
from games.janggi.geometry import PALACES
from games.janggi.rules import setup_fen

DATA = Path(__file__).parent.parent / "data" / "janggi"
SIDES = {"cho": 0, "han": 1, "draw": None}
# The variants that the oracle knows; `kakao` is ours alone.
VARIANTS = ("janggi", "janggitraditional", "janggimodern", "janggicasual")


def records(name: str) -> list[dict[str, Any]]:
    with open(DATA / f"{name}.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def by_id(record: dict[str, Any]) -> str:
    return str(record["id"])


def uci_moves(board: Board) -> list[str]:
    return sorted(move.uci() for move in board.legal_moves)


def random_fen(draw: random.Random) -> str:
    """A possible position of random density, or one of the starts."""
    if draw.random() < 0.2:
        return setup_fen(draw.choice(SETUPS))
    while True:
        points = [0] * 90
        density = draw.random()
        for side in (0, 1):
            palace = sorted(PALACES[side])
            field = range(27, 90) if side == 0 else range(63)
            # general, guard, horse, elephant, chariot, cannon, soldier
            for kind, count, area in (
                (1, 1, palace),
                (2, 2, palace),
                *((kind, 2, range(90)) for kind in (3, 4, 5, 6)),
                (7, 5, field),
            ):
                for _ in range(count):
                    free = [point for point in area if not points[point]]
                    if kind == 1 or (free and draw.random() < density):
                        points[draw.choice(free)] = 8 * side | kind
        clock = draw.choice((0, 0, 0, 0, 96, 99, 100, 196, 199))
        fen = f"{board_fen(points)} {draw.choice('wb')} - - {clock} {draw.choice((1, 40))}"
        if Board(fen).is_valid():
            return fen
