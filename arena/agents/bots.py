"""Players that look at most one move ahead."""

from __future__ import annotations

from arena.agents.base import GameView
from arena.types import MoveChoice


class RandomPlayer:
    """Draws a legal move."""

    async def move(self, view: GameView) -> MoveChoice:
        return MoveChoice(view.rng("move").choice(view.legal_moves))

    async def close(self) -> None:
        pass


class GreedyPlayer:
    """Takes the move that gains most material at once, and draws among equals."""

    async def move(self, view: GameView) -> MoveChoice:
        position = view.position.copy()
        gains = {}
        for move in view.legal_moves:
            position.push(move)
            material = position.material()
            gains[move] = material[view.side] - material[1 - view.side]
            position.pop()
        best = max(gains.values())
        return MoveChoice(view.rng("move").choice([m for m, gain in gains.items() if gain == best]))

    async def close(self) -> None:
        pass
