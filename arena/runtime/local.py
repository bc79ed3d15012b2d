"""All games in this process, as coroutines beside the engine: for tests, laptops and debugging."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from arena.agents import check_context
from arena.runtime import GameEvent, play_game
from arena.types import GameSpec
from engine import (
    ChoiceOutput,
    ChoiceParams,
    EngineConfig,
    SamplingParams,
    TextOutput,
    Tokenizer,
)

if TYPE_CHECKING:  # importing it imports torch, which a tournament of bots does without
    from engine import AsyncLLM


class LocalEngine:
    """`EngineClient` on an engine in the same process."""

    def __init__(self, llm: AsyncLLM) -> None:
        self.llm = llm

    @property
    def tokenizer(self) -> Tokenizer:
        return self.llm.tokenizer

    @property
    def max_model_len(self) -> int:
        return self.llm.max_model_len

    async def choose(
        self,
        prompt: list[int],
        choices: Sequence[str],
        params: ChoiceParams,
        *,
        request_id: str,
        client: str,
    ) -> ChoiceOutput:
        return await self.llm.choose(prompt, choices, params, request_id=request_id, client=client)

    async def generate(
        self, prompt: list[int], params: SamplingParams, *, request_id: str, client: str
    ) -> TextOutput:
        return await self.llm.generate(prompt, params, request_id=request_id, client=client).whole()


class LocalRuntime:
    """Games and engine in one process."""

    def __init__(self, config: EngineConfig | None) -> None:
        self._config = config
        self._engine: LocalEngine | None = None

    async def start(self) -> None:
        if self._config is not None:
            from engine import AsyncLLM

            # Not the event loop's own executor: closing the loop would wait for the model to load.
            loader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="load")
            loop = asyncio.get_running_loop()
            self._engine = LocalEngine(await loop.run_in_executor(loader, AsyncLLM, self._config))
            loader.shutdown(wait=False)

    def check(self, specs: Iterable[GameSpec]) -> None:
        if self._engine is not None:
            check_context(specs, self._engine)

    def play(self, spec: GameSpec) -> AsyncIterator[GameEvent]:
        return play_game(spec, self._engine)

    async def engine_stats(self) -> dict[str, Any] | None:
        return None if self._engine is None else asdict(self._engine.llm.stats())

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.llm.close()
            self._engine = None
