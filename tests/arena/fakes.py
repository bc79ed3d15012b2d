"""Stand-ins for the engine and for agents, for tests that are not about them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from arena import keys
from arena.agents import GameView
from arena.config import AgentConfig, load_config, resolve_agents
from arena.types import GameResult, GameSpec, MoveChoice, MoveRecord
from engine import (
    ChoiceOutput,
    ChoiceParams,
    RequestMetrics,
    SamplingParams,
    TextOutput,
    Tokenizer,
)


def byte_tokenizer() -> Tokenizer:
    """One token a byte, so that decoding the tokens gives the text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend)


class FakeEngine:
    """Draws by a key of the prompt and the seed; raises `fails` instead, if given."""

    def __init__(self, max_model_len: int = 100_000, fails: Exception | None = None) -> None:
        self.tokenizer = byte_tokenizer()
        self.max_model_len = max_model_len
        self.fails = fails
        self.prompts: list[str] = []
        self.requests: list[tuple[Sequence[str], ChoiceParams, str]] = []
        self.clients: list[str] = []

    async def choose(
        self,
        prompt: list[int],
        choices: Sequence[str],
        params: ChoiceParams,
        *,
        request_id: str,
        client: str,
    ) -> ChoiceOutput:
        await asyncio.sleep(0)
        if self.fails:
            raise self.fails
        longest = max(len(self.tokenizer.encode(c)) for c in choices)
        assert len(prompt) + longest <= self.max_model_len
        self.prompts.append(self.tokenizer.decode(prompt))
        self.requests.append((choices, params, request_id))
        self.clients.append(client)
        index = keys.key(params.seed or 0, *prompt) % len(choices)
        total = sum(range(1, len(choices) + 1))
        logprobs = tuple(math.log((i + 1) / total) for i in range(len(choices)))
        return ChoiceOutput(
            index=index,
            text=choices[index],
            logprob=logprobs[index],
            logprobs=None if params.scoring == "masked" else logprobs,
            legal_mass=0.75,
            entropy=1.25,
            metrics=RequestMetrics(0.1, 0.2, 0.3, 0.4, len(prompt), 5, 6, 0),
        )

    async def generate(
        self, prompt: list[int], params: SamplingParams, *, request_id: str, client: str
    ) -> TextOutput:
        raise AssertionError("this agent is not to write")


class Writing(FakeEngine):
    """Writes `replies` one after the other, each cut off at its "<cut>"."""

    def __init__(self, *replies: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.replies = list(replies)
        self.written: list[tuple[str, SamplingParams, str]] = []

    async def generate(
        self, prompt: list[int], params: SamplingParams, *, request_id: str, client: str
    ) -> TextOutput:
        await asyncio.sleep(0)
        assert len(prompt) + params.max_tokens <= self.max_model_len
        self.written.append((self.tokenizer.decode(prompt), params, request_id))
        text, cut, _ = self.replies.pop(0).partition("<cut>")
        ids = tuple(self.tokenizer.encode(text))
        metrics = RequestMetrics(0.1, 0.2, 0.3, 0.4, len(prompt), 5, 6, 0)
        return TextOutput(text, ids, "length" if cut else "stop", metrics)


class Scripted:
    """Plays the first legal move until `turn`, then does what `then` says."""

    def __init__(self, turn: int = -1, then: Callable[[GameView], Any] | None = None) -> None:
        self._turn = turn
        self._then = then
        self.calls = 0
        self.closed = 0

    async def move(self, view: GameView) -> MoveChoice:
        self.calls += 1
        if self._then is not None and self.calls > self._turn:
            answer = self._then(view)
            if asyncio.iscoroutine(answer):
                answer = await answer
            return answer  # type: ignore[no-any-return]
        return MoveChoice(view.legal_moves[0])

    async def close(self) -> None:
        self.closed += 1


def agents(*names: str) -> tuple[AgentConfig, AgentConfig]:
    first, second = resolve_agents(load_config(None, {"agents": list(names)}))
    return first, second


def game_spec(game: str = "chess", **changes: Any) -> GameSpec:
    spec = GameSpec(
        run_id=1,
        number=1,
        round=1,
        game=game,
        rules=None,
        setup=None,
        start_fen=None,
        agents=agents("random", "random"),
        seed=5,
        max_plies=40,
    )
    return replace(spec, **changes)


async def played(events: AsyncIterator[Any]) -> tuple[list[MoveRecord], GameResult]:
    """The records and the result of a game, whose events must come in order and just once."""
    _, *records, result = [event async for event in events]
    assert isinstance(result, GameResult)
    assert all(isinstance(record, MoveRecord) for record in records)
    return records, result
