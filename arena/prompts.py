"""The prompt of a language-model agent, in layers from most to least shared (so that the engine's prefix cache works).

rules and answer format of the game (common to all agents) / persona of the agent / start position / transcript, and
last what a ply shows of its position, which is of no use to the next one.
The bundled model is trained on exactly these bytes (`scripts/train_tiny.py`), so a change here means training it again.
The words of the rules come from the game.
"""

from __future__ import annotations

import re

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


_LEGEND = (
    " Your legal moves are listed by piece. Before a move may stand what it does: x and what it takes, + a check, # a "
    "win, = a draw, - a loss, ? and which of your pieces it leaves to be taken."
)


def system_text(
    game: Game,
    rules: str | None = None,
    notation: str | None = None,
    mode: str = "choose",
    legal_moves: bool = True,
) -> str:
    """The layer that all agents of a game share: the rules, how legal moves are listed if so, and how to answer."""
    listed = _LEGEND if legal_moves else ""
    return game.rules_text(rules, notation) + listed + _ANSWERS[mode]


def persona_text(name: str, strength: str, style: str) -> str:
    """The layer of one agent."""
    return f"\n\nYou are {name}. Strength: {strength}. {style}".rstrip()


def start_text(start: str | None) -> str:
    """Which start it is: `start` names the setup or gives the FEN; None is the game's own start position."""
    return f"\n\nStart: {start}" if start else ""


def legal_moves_text(position: Position, notation: str) -> str:
    """A line for each piece that can move: its letter, then its moves, each after what it does (`games.MoveFacts`).

    A move that names no piece on the board, a new stone say, stands without a letter.
    """
    pieces = position.pieces()
    lines: dict[str, str] = {}
    for move in position.legal_moves():
        square = _SQUARE.match(move)
        letter = pieces.get(square[0], "").upper() if square else ""
        listed = _facts_text(position, move) + move_text(position.notation(move, notation))
        key = square[0] if square and letter else ""
        lines[key] = lines.get(key, letter) + listed
    return "\n".join(lines.values())


_SQUARE = re.compile(r"[a-z]\d+")  # that a move in UCI leaves


def _facts_text(position: Position, move: str) -> str:
    facts = position.facts(move)
    text = f"x{facts.captured.lower()}" if facts.captured else ""
    if facts.outcome:
        text += "=" if (winner := facts.outcome.winner) is None else "-#"[winner == position.turn]
    elif facts.check:
        text += "+"
    if facts.at_risk:
        text += f"?{facts.at_risk}"
    return f" {text}" if text else ""


MOVES = "\n\nGame:"
"""What moves follow."""


def move_text(move: str) -> str:
    """A move as it stands in the transcript, and as it is offered as a choice: with the space before it."""
    return f" {move}"


def prompt_text(persona: LlmAgent, start: str | None, position: Position) -> str:
    """The whole prompt of one ply; agents build the same layer by layer, as token ids, and those that think go on."""
    notation = persona.notation or position.game.notations[0]
    replay = position.game.position(position.start_fen, position.rules)
    moves = []
    for move in position.moves():
        moves.append(move_text(replay.notation(move, notation)))
        replay.push(move)
    shown = shown_text(persona, position)
    return (
        system_text(position.game, position.rules, notation, persona.mode, persona.show_legal_moves)
        + persona_text(persona.name, persona.strength, persona.style)
        + start_text(start)
        + MOVES
        + "".join(moves)
        + (shown + answer_text(persona.strength) if shown else "")
    )


def shown_text(persona: LlmAgent, position: Position) -> str:
    """What a ply shows besides the moves so far, as the agent wants it."""
    notation = persona.notation or position.game.notations[0]
    text = ""
    if persona.show_position:
        text += f"\n\nPosition: {position.fen()}\n{position.ascii()}"
    if persona.show_legal_moves:
        text += f"\n\nLegal moves:\n{legal_moves_text(position, notation)}"
    return text


def answer_text(strength: str) -> str:
    """What the prompt ends with where the transcript is not the last thing in it; the move follows after a space.

    The strength once more, beside the move that depends on it: a small model hardly minds a word from far above.
    """
    return f"\n\nAnswer as {strength}:"


THOUGHTS = "\n\nThoughts:"
REPLY = "\n\nReply:"


def retry_text(reply: str, failure: str) -> str:
    """What is added when a reply gave no legal move."""
    return f" {reply.strip()}\n\nThat was no legal move ({failure}). Reply again.{REPLY}"
