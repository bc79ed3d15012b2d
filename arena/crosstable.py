"""Who scored what against whom, as a pure function of results. Knows nothing of how it is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from arena.ratings import Played


@dataclass(frozen=True)
class Cell:
    """The games of one agent (the row) against another (the column), from the row's side."""

    wins: int = 0
    draws: int = 0
    losses: int = 0

    @property
    def played(self) -> int:
        return self.wins + self.draws + self.losses

    @property
    def score(self) -> float:
        return self.wins + self.draws / 2


def crosstable(order: Sequence[int], games: Iterable[Played]) -> list[list[Cell | None]]:
    """Rows and columns are the agents in `order`; the diagonal is None."""
    counts = {(a, b): [0, 0, 0] for a in order for b in order if a != b}
    for game in games:
        outcome = 1 if game.winner is None else 2 * game.winner  # 0: the first mover won
        counts[game.first, game.second][outcome] += 1
        counts[game.second, game.first][2 - outcome] += 1
    return [[Cell(*counts[a, b]) if a != b else None for b in order] for a in order]
