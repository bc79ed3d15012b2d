"""What the batteries of replies share."""

from games.core import Position


def check(position: Position, text: str, verdict: str) -> None:
    """`verdict` is a move in UCI or the name of a failure."""
    result = position.parse(text)
    assert (result.move or result.failure) == verdict
    assert result.text == text
    if result.move:
        assert result.failure is None and result.span is not None
        first, last = result.span
        spelled = text[first:last]
        if '"' not in spelled:  # as where it stands in two values of a JSON object
            assert position.parse(spelled).move == result.move
