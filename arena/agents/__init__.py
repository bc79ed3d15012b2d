"""The players: what an agent is, and how one is built from its configuration.

They know neither Ray nor the database.
"""

from __future__ import annotations

from arena import config as cfg
from arena.agents.alphabeta import AlphaBetaPlayer
from arena.agents.base import (
    Agent,
    EngineClient,
    GameView,
    InfrastructureError,
    NoMove,
    Resigned,
)
from arena.agents.bots import GreedyPlayer, RandomPlayer
from arena.agents.llm import LlmPlayer, check_context
from arena.types import GameSpec


def build_agent(config: cfg.AgentConfig, spec: GameSpec, engine: EngineClient | None) -> Agent:
    """The agent for one side of one game. Only language models need `engine`.

    Raises `ConfigError` if the agent's prompt does not fit the model; `check_context` tells so
    before any game starts.
    """
    match config:
        case cfg.RandomAgent():
            return RandomPlayer()
        case cfg.GreedyAgent():
            return GreedyPlayer()
        case cfg.AlphaBetaAgent(depth=depth):
            return AlphaBetaPlayer(depth)
        case cfg.LlmAgent():
            if engine is None:
                raise ValueError(f"The agent {config.name!r} needs an engine and got none.")
            return LlmPlayer(config, spec, engine)


__all__ = [
    "Agent",
    "EngineClient",
    "GameView",
    "InfrastructureError",
    "NoMove",
    "Resigned",
    "build_agent",
    "check_context",
]
