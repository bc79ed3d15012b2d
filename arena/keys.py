"""Keyed draws: a random choice comes from (seed, game number, ply, purpose), never from a stream.

So a game that is resumed at any ply draws what it would have drawn without the break.
"""

from __future__ import annotations

import random
from hashlib import blake2b


def key(seed: int, *parts: int | str) -> int:
    """A 64-bit number that depends on `seed` and `parts` alone, equal in every process."""
    return int.from_bytes(blake2b(repr((seed, *parts)).encode(), digest_size=8).digest(), "big")


def rng(seed: int, *parts: int | str) -> random.Random:
    """A generator of its own for one draw."""
    return random.Random(key(seed, *parts))
