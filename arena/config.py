"""What a tournament is made of: one pydantic model, read from a TOML file or from flags with the same names.

Nothing here imports torch, Ray or the database, so that a wrong file is refused within a blink.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

import games
from arena.prompts import STRENGTHS


class ConfigError(ValueError):
    """A tournament file or a flag is wrong; the message is one sentence that says what to change."""


def bundled_model() -> str:
    """Path of the model `tiny` that the package contains."""
    return str(files("arena") / "models" / "tiny")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Agent(_Model):
    name: str = Field(min_length=1, max_length=60)


class LlmAgent(_Agent):
    """A language model that picks among the legal moves in one pass (`mode = "choose"`)."""

    type: Literal["llm"] = "llm"
    mode: Literal["choose"] = "choose"
    scoring: Literal["likelihood", "masked"] = "likelihood"
    strength: Literal["beginner", "novice", "club", "expert", "master"] = "club"
    style: str = Field("", max_length=500)
    temperature: float = Field(1.0, ge=0, le=10)
    top_p: float = Field(1.0, gt=0, le=1)
    min_p: float = Field(0.0, ge=0, lt=1)


class RandomAgent(_Agent):
    """Draws a legal move."""

    type: Literal["random"] = "random"


class GreedyAgent(_Agent):
    """Takes the most valuable piece it can, else draws a legal move."""

    type: Literal["greedy"] = "greedy"


class AlphaBetaAgent(_Agent):
    """Searches `depth` plies over material."""

    type: Literal["alphabeta"] = "alphabeta"
    depth: int = Field(1, ge=1, le=4)


AgentConfig = Annotated[
    LlmAgent | RandomAgent | GreedyAgent | AlphaBetaAgent, Field(discriminator="type")
]

ROSTER: tuple[LlmAgent, ...] = tuple(
    LlmAgent(name=name, strength=strength, style=style, temperature=temperature)  # type: ignore[arg-type]
    for name, strength, temperature, style in (
        ("Pebble", "beginner", 1.0, "You move on impulse and trust to luck."),
        ("Sparrow", "novice", 1.0, "You like to give check."),
        ("Badger", "novice", 0.7, "You keep your pieces close together."),
        ("Willow", "club", 1.0, "You avoid trades and wait for mistakes."),
        ("Heron", "club", 0.6, "You bring out every piece before you attack."),
        ("Falcon", "expert", 0.8, "You attack whenever you can."),
        ("Tortoise", "expert", 0.5, "You defend first and count your material."),
        ("Dragon", "master", 0.3, "You look at every capture and every check before you move."),
    )
)
"""The default eight: one model, different personas, temperatures and strengths, weakest first."""
