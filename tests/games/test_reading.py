"""What holds for replies in every game: what a prompt can show is read back, and nothing is invented."""

import random
import re

import pytest

import games
from games.core import ParseFailure

NAMES = games.list_games()
PIECES = [
    *"abcdefghi12345678901234567890", *"KQRBNPHECAxX=+#-O0o", " ", " ", "\n", ". ", ", ", "1. ", "2... ",
    "e4", "e2e4", "Nf3", "a4a5", "b1c3", "O-O", "e7e8", "e8=Q", "H02-83", "02마83", "졸", "車", "♘", "장군", "pass",
    "resign", "answer: ", "move", "my move is ", "I play ", "not ", "instead of ", "**", "`", "```", "{", "}", '"', "'",
    "(", ")", "<think>", "</think>", "/", "\\boxed{", "to ", "knight ", "horse ", "takes ", "castle", "²",
    "٣", "ſ", "\ud800",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_random_texts_never_raise_and_no_move_is_invented(name: str) -> None:
    draw = random.Random(name)
    position = games.get_game(name).position()
    moves = 0
    for number in range(100_000):
        if number % 50 == 0:
            position = position if position.outcome() is None else position.game.position()
            position.push(draw.choice(position.legal_moves()))
            if not position.legal_moves():
                position = position.game.position()
        text = "".join(draw.choice(PIECES) for _ in range(draw.randint(0, 12)))
        result = position.parse(text, truncated=draw.random() < 0.1)
        assert (result.move is None) != (result.failure is None)
        if result.move:
            moves += 1
            assert result.move in position.legal_moves()
            assert result.span is not None
            spelled = text[slice(*result.span)]
            assert is_spelled(result.move, spelled.lower())
            assert position.parse(spelled).move == result.move
    assert moves > 50


def is_spelled(uci: str, text: str) -> bool:
    """Whether the move's target is in the text, by its name or as Korean digits, or it is a castling or pass."""
    target = re.findall(r"[a-i]\d+", uci)[1]
    digits = f"{(11 - int(target[1:])) % 10}{ord(target[0]) - 96}"
    return (
        target in text
        or digits in text
        or bool(re.search(r"[o0]-?[o0]|castl|pass|0000|e1h1", text))
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "frame",
    ["{}", "**{}**", "`{}`", "Answer: {}", '{{"move": "{}"}}', "```\n{}\n```", "I play {}.",
    "The best move would be {}.", "My answer will be {}", "{}\n\nA good move."],
)  # fmt: skip
def test_what_a_prompt_shows_is_read_in_every_frame(name: str, frame: str) -> None:
    draw = random.Random(frame)
    position = games.get_game(name).position()
    for _ in range(40):
        if position.outcome() is not None:
            position = position.game.position()
        legal = position.legal_moves()
        uci = draw.choice(legal)
        for style in position.game.notations:
            assert position.parse(frame.format(position.notation(uci, style))).move == uci
        position.push(uci)


@pytest.mark.parametrize("name", NAMES)
def test_a_long_reply_is_read_in_bounded_time(name: str) -> None:
    position = games.get_game(name).position()
    for filler in (
        "e4 ",
        "is the a now ",
        "1. . . . ",
        "move move ",
        "(" * 40,
        "a1" * 40,
        "<think>",
        "n/8/8/8",
    ):
        result = position.parse(filler * (60_000 // len(filler)))
        assert result.move is None or result.span


@pytest.mark.parametrize("name", NAMES)
def test_failures_have_no_move(name: str) -> None:
    result = games.get_game(name).position().parse("no idea")
    assert (result.move, result.failure, result.span) == (None, ParseFailure.UNPARSABLE, None)
