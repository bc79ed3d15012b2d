"""Move requests without the rules of a game, for devices where only the engine is: texts that look like chess moves, as
many and as alike as those of `bench_workload` (about 30 choices, 36 inner nodes, 4 to 5 tokens each).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

SYSTEM = (
    "You are a chess player in a tournament. You see the moves of the game so far. Answer with "
    "exactly one legal move for the side to move and nothing else.\n"
)
_FILES, _RANKS = "abcdefgh", "12345678"


@dataclass(frozen=True)
class Ask:
    """One move request: the stream's prompt and its choices."""

    prompt: str
    choices: list[str]


def choices(rng: random.Random) -> list[str]:
    """About 30 moves of about 10 pieces."""
    found: set[str] = set()
    for square in rng.sample([f + r for f in _FILES for r in _RANKS], 10):
        for _ in range(rng.randint(1, 5)):
            found.add(f" {square}{rng.choice(_FILES)}{rng.choice(_RANKS)}")
    return sorted(found)


def rounds(
    streams: int, plies: int, *, first: int = 20, system: int = 275, seed: int = 7
) -> Iterator[list[Ask]]:
    """One list of asks a ply, one ask a stream: the system prompt of `system` characters, which all share, and a
    transcript of `first` plies that grows by one from list to list."""
    text = (SYSTEM * (system // len(SYSTEM) + 1))[:system] + "\nGame:"
    rngs = [random.Random(f"{seed} {stream}") for stream in range(streams)]
    played = ["".join(rng.choice(choices(rng)) for _ in range(first)) for rng in rngs]
    for _ in range(plies):
        asks = [Ask(text + past, choices(rng)) for past, rng in zip(played, rngs, strict=True)]
        yield asks
        played = [
            past + rng.choice(ask.choices)
            for past, rng, ask in zip(played, rngs, asks, strict=True)
        ]
