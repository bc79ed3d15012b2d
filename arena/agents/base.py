"""What match play and agents know of each other."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import games
from arena import keys
from arena.types import GameSpec, MoveChoice
from engine import ChoiceOutput, ChoiceParams, SamplingParams, TextOutput, Tokenizer


class InfrastructureError(RuntimeError):
    """Something below the agents failed (engine, actor, network): the game is void."""


class Resigned(Exception):
    """The agent gives the game up."""


class NoMove(Exception):
    """The agent's replies gave no legal move, as often as it was asked; `failure` says what the last one was."""

    def __init__(self, failure: games.ParseFailure, replies: int, reply: str) -> None:
        super().__init__(failure, replies, reply)
        self.failure = failure
        count = "one reply" if replies == 1 else f"{replies} replies"
        self.reason = f"no legal move in {count}; the last was {failure}: {reply!r}"


@dataclass(frozen=True)
class GameView:
    """What an agent sees when it is to move."""

    position: games.Position  # to be left as it is: an agent that wants to search takes a copy
    moves: Sequence[str]  # UCI, since the start
    legal_moves: Sequence[str]  # UCI, sorted, never empty
    spec: GameSpec
    side: int  # 0 = first mover
    ply: int  # of the move to be made, 0-based

    def key(self, purpose: str) -> int:
        """The 64-bit key of a draw at this ply."""
        return keys.key(self.spec.seed, self.spec.number, self.ply, purpose)

    def rng(self, purpose: str) -> random.Random:
        """A generator for one draw at this ply."""
        return keys.rng(self.spec.seed, self.spec.number, self.ply, purpose)


class Agent(Protocol):
    """One side of one game."""

    async def move(self, view: GameView) -> MoveChoice:
        """The answer.

        May raise `InfrastructureError`, which voids the game; `Resigned`, `NoMove` and any other
        exception lose it.
        """
        ...

    async def close(self) -> None:
        """Called once after the last move, also of a game that was broken off."""
        ...


class EngineClient(Protocol):
    """The way to the shared engine; each runtime has its own."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def max_model_len(self) -> int:
        """Tokens of a prompt and its answer together."""
        ...

    async def choose(
        self,
        prompt: list[int],
        choices: Sequence[str],
        params: ChoiceParams,
        *,
        request_id: str,
        client: str,
    ) -> ChoiceOutput:
        """As `engine.AsyncLLM.choose`; aborts the request when the awaiting task is cancelled.

        client: the run that asks; runs share the engine equally.
        """
        ...

    async def generate(
        self, prompt: list[int], params: SamplingParams, *, request_id: str, client: str
    ) -> TextOutput:
        """The whole of what `engine.AsyncLLM.generate` writes; aborts likewise."""
        ...
