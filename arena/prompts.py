"""The prompt of a language-model agent, in layers from most to least shared (so that the engine's prefix cache works).

rules and answer format of the game (common to all agents) / persona of the agent / start position / transcript, in
which the pieces are listed again every few plies.
The bundled model is trained on exactly these bytes (`scripts/train_tiny.py`), so a change here means training it again.
The words of the rules come from the game.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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


def board_text(position: Position) -> str:
    """Where everything stands, the side to move first; the moves follow."""
    game, pieces = position.game, position.pieces()
    order = {piece.letter: place for place, piece in enumerate(game.pieces)}
    lines = []
    for side in (position.turn, 1 - position.turn):
        own = [(c.upper(), square) for square, c in pieces.items() if c.isupper() == (side == 0)]
        own.sort(key=lambda piece: (order[piece[0]], piece[1]))
        men = "".join(f" {letter}{square}" for letter, square in own)
        lines.append(f"{game.sides[side].capitalize()}:{men}")
    return "\n\n" + "\n".join(lines) + MOVES


MOVES = "\n\nGame:"
"""What moves follow."""


def move_text(move: str) -> str:
    """A move as it stands in the transcript, and as it is offered as a choice: with the space before it."""
    return f" {move}"


def transcript_parts(
    position: Position, notation: str, start: str | None, board_plies: int, first: int = 0
) -> Iterator[str]:
    """The layers after the persona, each of which is tokenised by itself: the start, then the moves of a position's
    game. The pieces are listed at the start and again after every `board_plies` plies; 0 for never. With `first` the
    transcript starts from the FEN after so many plies.
    """
    replay = position.copy()
    moves = replay.moves()[first:]
    while replay.ply > first:
        replay.pop()
    start = replay.fen() if first else start
    yield start_text(start) + (board_text(replay) if board_plies else MOVES)
    for move in moves:
        yield from pushed_parts(replay, move, notation, board_plies)


def pushed_parts(position: Position, move: str, notation: str, board_plies: int) -> Iterator[str]:
    """Plays a move; what the transcript gains by it."""
    yield move_text(position.notation(move, notation))
    position.push(move)
    if board_plies and position.ply % board_plies == 0:
        yield board_text(position)


def prompt_text(system: str, persona: LlmAgent, start: str | None, position: Position) -> str:
    """The whole prompt of one ply as text; agents build the same thing incrementally, as token ids."""
    notation = persona.notation or position.game.notations[0]
    return (
        system
        + persona_text(persona.name, persona.strength, persona.style)
        + "".join(transcript_parts(position, notation, start, persona.board_plies))
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
