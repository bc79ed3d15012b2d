"""Where games run: `local` (this process) or `ray` (actors). They know no database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Protocol

from arena import match
from arena.agents import EngineClient, build_agent
from arena.config import ConfigError, LlmAgent, TournamentConfig, resolve_agents
from arena.types import GameResult, GameSpec, GameStarted, MoveRecord
from engine import EngineConfig

GameEvent = GameStarted | MoveRecord | GameResult


class RuntimeStartError(RuntimeError):
    """The runtime cannot start; the message is one sentence."""


class Runtime(Protocol):
    """Plays games on one shared engine, any number at once."""

    async def start(self) -> None:
        """Load the engine and get ready. Raises `RuntimeStartError` or `engine.EngineError`."""
        ...

    def check(self, specs: Iterable[GameSpec]) -> None:
        """After `start`: raise `ConfigError` if a prompt of these games does not fit the model."""
        ...

    def play(self, spec: GameSpec) -> AsyncIterator[GameEvent]:
        """The events of one game, from `spec.moves` on.

        Raises `InfrastructureError` when what the game runs on fails; the game can then be
        submitted again with the moves that arrived.
        """
        ...

    async def engine_stats(self) -> dict[str, Any] | None:
        """The fields of `engine.EngineStats`; None without an engine or while it restarts."""
        ...

    async def close(self) -> None:
        """Stop everything that `start` began. Games still being played end without a result."""
        ...


async def play_game(spec: GameSpec, engine: EngineClient | None) -> AsyncIterator[GameEvent]:
    """One game with the agents that its specification names, in this process."""
    first, second = (build_agent(config, spec, engine) for config in spec.agents)
    async for event in match.play(spec, (first, second)):
        yield event


def make_runtime(configs: Sequence[TournamentConfig]) -> Runtime:
    """The one runtime for all of these tournaments.

    Raises `ConfigError` when they do not agree on what they share.
    """
    config = configs[0]
    for name in ("runtime", "model", "engine", "workers", "ray_address"):
        values = {repr(getattr(c, name)) for c in configs}
        if len(values) > 1:
            raise ConfigError(
                f"{name}: tournaments that run at once share one engine, and here are "
                f"{' and '.join(sorted(values))}; make them equal"
            )
    needed = any(isinstance(agent, LlmAgent) for c in configs for agent in resolve_agents(c))
    engine = EngineConfig(model=config.model_path, **config.engine.given()) if needed else None
    if config.runtime == "local":
        from arena.runtime.local import LocalRuntime

        return LocalRuntime(engine)
    from arena.runtime.ray import RayRuntime

    return RayRuntime(
        engine,
        workers=config.workers,
        concurrency=sum(c.concurrency for c in configs),
        address=config.ray_address,
    )
