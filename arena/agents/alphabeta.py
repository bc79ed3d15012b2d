"""A small search bot for every game: negamax with alpha-beta over material and decided outcomes."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import games
from arena.agents.base import GameView
from arena.types import MoveChoice

WIN = 1e6  # beyond any sum of material; less the distance in plies: the shortest win is best

# Python runs one thread at a time: a second search would only slow the first and the event loop.
_SEARCHES = ThreadPoolExecutor(max_workers=1, thread_name_prefix="alphabeta")


class _Stopped(Exception):
    """The search was called off."""


class AlphaBetaPlayer:
    """Looks `depth` plies ahead; moves of equal value are drawn by the ply's key."""

    def __init__(self, depth: int) -> None:
        self._depth = depth

    async def move(self, view: GameView) -> MoveChoice:
        moves = list(view.legal_moves)
        view.rng("order").shuffle(moves)
        stop = threading.Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(
                _SEARCHES, self._search, view.position.copy(), moves, stop
            )
        finally:
            stop.set()

    async def close(self) -> None:
        pass

    def _search(
        self, position: games.Position, moves: list[str], stop: threading.Event
    ) -> MoveChoice:
        best, best_value = moves[0], -float("inf")
        for move in _captures_first(position, moves):
            position.push(move)
            # Values at most as good as the best come back as bounds, so the first of equals stays.
            value = -_negamax(position, self._depth - 1, -float("inf"), -best_value, 1, stop)
            position.pop()
            if value > best_value:
                best, best_value = move, value
        return MoveChoice(best)


def _negamax(
    position: games.Position, depth: int, alpha: float, beta: float, ply: int, stop: threading.Event
) -> float:
    """Value for the side to move, exact between `alpha` and `beta` and a bound outside."""
    if stop.is_set():
        raise _Stopped
    side = position.turn
    if outcome := position.outcome():
        if outcome.winner is None:
            return 0.0
        return WIN - ply if outcome.winner == side else ply - WIN
    if depth == 0:
        material = position.material()
        return material[side] - material[1 - side]
    for move in _captures_first(position, position.legal_moves()):
        position.push(move)
        value = -_negamax(position, depth - 1, -beta, -alpha, ply + 1, stop)
        position.pop()
        if value >= beta:
            return value
        alpha = max(alpha, value)
    return alpha


def _captures_first(position: games.Position, moves: list[str]) -> list[str]:
    """The moves by what they gain at once, most first; equals keep their order."""
    side = position.turn

    def loss(move: str) -> float:
        position.push(move)
        material = position.material()
        position.pop()
        return material[1 - side] - material[side]

    return sorted(moves, key=loss)
