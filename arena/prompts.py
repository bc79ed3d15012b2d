"""The prompt of a language-model agent, in layers from most to least shared (so that the engine's prefix cache works).

rules and answer format of the game (common to all agents) / persona of the agent / start position / transcript, and
last what a ply shows of its position, which is of no use to the next one.
The bundled model is trained on exactly these bytes (`scripts/train_tiny.py`), so a change here means training it again.
The words of the rules come from the game.
"""

from __future__ import annotations

from collections.abc import Sequence

from arena.config import LlmAgent
from games import Game, Position

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
    """Which start it is: `start` names the setup or gives the FEN; None is the game's own start position."""
    return f"\n\nStart: {start}" if start else ""


def pieces_text(position: Position) -> str:
    """Where everything stands: the opponent's pieces in small letters, then those of the side to move.

    Of each side the least valuable come first, so that a model that reads from left to right knows what stands in the
    way when it comes to the pieces that move far.
    """
    game, pieces = position.game, position.pieces()
    order = {piece.letter: (piece.value, place) for place, piece in enumerate(game.pieces)}
    lines = []
    for side in (1 - position.turn, position.turn):
        men = [(c.upper(), square) for square, c in pieces.items() if c.isupper() == (side == 0)]
        men.sort(key=lambda piece: (order[piece[0]], piece[1]))
        listed = "".join(
            f" {c if side == position.turn else c.lower()}{square}" for c, square in men
        )
        lines.append(f"{game.sides[side].capitalize()}:{listed}")
    return "\n".join(lines)


MOVES = "\n\nGame:"
"""What moves follow."""


def move_text(move: str) -> str:
    """A move as it stands in the transcript, and as it is offered as a choice: with the space before it."""
    return f" {move}"


def prompt_text(
    system: str,
    persona: LlmAgent,
    start: str | None,
    position: Position,
    legal: Sequence[str] = (),
) -> str:
    """The whole prompt of one ply of an agent that chooses; agents build the same layer by layer, as token ids."""
    notation = persona.notation or position.game.notations[0]
    replay = position.game.position(position.start_fen, position.rules)
    moves = []
    for move in position.moves():
        moves.append(move_text(replay.notation(move, notation)))
        replay.push(move)
    shown = shown_text(persona, position, legal)
    return (
        system
        + persona_text(persona.name, persona.strength, persona.style)
        + start_text(start)
        + MOVES
        + "".join(moves)
        + (shown + ANSWER if shown else "")
    )


def shown_text(persona: LlmAgent, position: Position, legal: Sequence[str] = ()) -> str:
    """What a ply shows besides the moves so far, as the agent wants it; `legal` are moves in its notation."""
    parts = [
        f"Position: {position.fen()}\n{position.ascii()}" if persona.show_position else "",
        f"Legal moves: {' '.join(legal)}" if legal else "",
        pieces_text(position) if persona.show_pieces else "",
    ]
    return "".join(f"\n\n{part}" for part in parts if part)


THOUGHTS = "\n\nThoughts:"
ANSWER = "\n\nAnswer:"
"""What the prompt ends with where the transcript is not the last thing in it; the move follows after a space."""
REPLY = "\n\nReply:"


def retry_text(reply: str, failure: str) -> str:
    """What is added when a reply gave no legal move."""
    return f" {reply.strip()}\n\nThat was no legal move ({failure}). Reply again.{REPLY}"
