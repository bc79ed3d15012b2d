"""The prompt of a language-model agent, in layers from most to least shared (so that the engine's prefix cache works).

rules and answer format of the game (common to all agents) / persona of the agent / start position / transcript.
The bundled model is trained on exactly these bytes (`scripts/train_tiny.py`), so a change here means training it again.
Nothing in this module knows which game is played.
"""

from __future__ import annotations

from collections.abc import Sequence

STRENGTHS = ("beginner", "novice", "club", "expert", "master")
"""Words that a persona may use for how well the agent plays, weakest first."""


def system_text(rules_text: str) -> str:
    """The layer that all agents of a game share."""
    return rules_text


def persona_text(name: str, strength: str, style: str) -> str:
    """The layer of one agent."""
    return f"\n\nYou are {name}. Strength: {strength}. {style}".rstrip()


def start_text(start: str | None) -> str:
    """The layer before the moves. `start` names the setup or gives the FEN; None is the game's own start position."""
    return f"\n\nStart: {start}\n\nGame:" if start else "\n\nGame:"


def move_text(move: str) -> str:
    """A move as it stands in the transcript, and as it is offered as a choice: with the space before it."""
    return f" {move}"


def prompt_text(
    rules_text: str, name: str, strength: str, style: str, start: str | None, moves: Sequence[str]
) -> str:
    """The whole prompt of one ply as text; agents build the same thing incrementally, as token ids."""
    return (
        system_text(rules_text)
        + persona_text(name, strength, style)
        + start_text(start)
        + "".join(move_text(m) for m in moves)
    )
