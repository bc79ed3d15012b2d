"""The prompt of a language-model agent, in layers from most to least shared (so that the engine's prefix cache works).

rules and answer format of the game (common to all agents) / persona of the agent / start position / transcript.
The bundled model is trained on exactly these bytes (`scripts/train_tiny.py`), so a change here means training it again.
The words of the rules come from the game.
"""

from __future__ import annotations

from collections.abc import Sequence

from games import Game

STRENGTHS = ("beginner", "novice", "club", "expert", "master")
"""Words that a persona may use for how well the agent plays, weakest first."""


_ANSWERS = {
    "choose": " Answer with one legal move in this notation and nothing else.",
    "think": " You are asked for your thoughts first, and then for one legal move in this notation.",
    "free": (
        " You may think in words. End your reply with a line that says Answer: and then one legal move in this "
        "notation."
    ),
}


def system_text(
    game: Game, rules: str | None = None, notation: str | None = None, mode: str = "choose"
) -> str:
    """The layer that all agents of a game share: the rules, and how to answer."""
    return game.rules_text(rules, notation) + _ANSWERS[mode]


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
    system: str, name: str, strength: str, style: str, start: str | None, moves: Sequence[str]
) -> str:
    """The whole prompt of one ply as text; agents build the same thing incrementally, as token ids."""
    return (
        system
        + persona_text(name, strength, style)
        + start_text(start)
        + "".join(move_text(m) for m in moves)
    )


def shown_text(fen: str, board: str, legal: Sequence[str]) -> str:
    """What a ply may show besides the moves so far: the position, and the legal moves. Empty strings are left out."""
    parts = [
        f"Position: {fen}\n{board}" if fen else "",
        f"Legal moves: {' '.join(legal)}" if legal else "",
    ]
    return "".join(f"\n\n{part}" for part in parts if part)


THOUGHTS = "\n\nThoughts:"
ANSWER = "\n\nAnswer:"
"""What the prompt ends with where the transcript is not the last thing in it; the move follows after a space."""
REPLY = "\n\nReply:"


def retry_text(reply: str, failure: str) -> str:
    """What is added when a reply gave no legal move."""
    return f" {reply.strip()}\n\nThat was no legal move ({failure}). Reply again.{REPLY}"
