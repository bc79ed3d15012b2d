"""What a language model may write, and what it means: janggi."""

import pytest

import games
from games.core import ParseFailure, Position
from tests.games.replies import check

START = games.get_game("janggi").position()


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("b1c3", "b1c3"),
        ("b1-c3", "b1c3"),
        ("b1 c3", "b1c3"),
        ("B1C3", "b1c3"),
        ("Hc3", "b1c3"),
        ("Nc3", "b1c3"),
        ("hc3", "b1c3"),
        ("Hb1-c3", "b1c3"),
        ("H02-83", "b1c3"),
        ("02마83", "b1c3"),
        ("02馬83", "b1c3"),
        ("02 마 83", "b1c3"),
        ("02초마83", "b1c3"),
        ("02楚馬83", "b1c3"),
        ("79졸78", "i4h4"),
        ("P79-78", "i4h4"),
        ("horse to c3", "b1c3"),
        ("Horse b1 to c3", "b1c3"),
        ("soldier from a4 to a5", "a4a5"),
        ("chariot a1 to a2", "a1a2"),
        ("마 c3", "b1c3"),
        ("馬c3", "b1c3"),
        ("馬b1-c3", "b1c3"),
        ("e2e2", "e2e2"),
        ("pass", "e2e2"),
        ("Pass.", "e2e2"),
        ("0000", "e2e2"),
        ("@@@@", "e2e2"),
        ("I pass", "e2e2"),
        ("Answer: pass", "e2e2"),
        ("한수쉼", "e2e2"),
        ("한 수 쉼", "e2e2"),
        ("Ke2", "e2e2"),
        ("Ke2-e2", "e2e2"),
        ("K95-95", "e2e2"),
        ("**b1c3**", "b1c3"),
        ('{"move":"b1c3"}', "b1c3"),
        ("1. b1c3", "b1c3"),
        ("My move is b1c3.", "b1c3"),
        ("a4a5\nI advance the soldier to a5.", "a4a5"),
        ("Pa5", "a4a5"),
        ("Paa5", "a4a5"),
        ("Pab4", "a4b4"),
        ("Pb4", "ambiguous"),
        ("a1a9", "illegal"),
        ("a1a10", "illegal"),
        ("e2e9", "illegal"),
        ("resign", "resign"),
        ("기권", "resign"),
        ("기권합니다", "resign"),
        ("", "empty"),
        ("장군", "unparsable"),
        ("c3", "unparsable"),
        ("the point c3", "unparsable"),
        ("b1c3 or h1g3", "ambiguous"),
        ("b1c3 h1g3", "ambiguous"),
        ("I considered b1c3 but h1g3 is my move", "h1g3"),
        ("제 수는 02마83입니다", "b1c3"),
        ("answer: 02마83", "b1c3"),
        ("b1c3를 두겠습니다", "b1c3"),
        ("1-0", "unparsable"),
        ("score 12-13", "unparsable"),
        ("a10a9", "illegal"),
        ("I will not pass. b1c3", "b1c3"),
        ("Cannon h3 takes h10", "illegal"),
        ("C83-87", "illegal"),
        ("Cannon b3 to b10", "illegal"),
        ("e2-e2", "e2e2"),
        ("a4->a5", "a4a5"),
        ("a4→a5", "a4a5"),
        ("a4 to a5", "a4a5"),
        ("a4xa5", "a4a5"),
        ("`H02-83`", "b1c3"),
        ("Rook a1-a2", "a1a2"),
        ("차 a2", "a1a2"),
        ("01차91", "a1a2"),
        ("The Han horse attacks. b1c3", "b1c3"),
    ],
)
def test_replies(text: str, verdict: str) -> None:
    check(START, text, verdict)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("a1a", ParseFailure.TRUNCATED),
        ("a4a5", ParseFailure.TRUNCATED),
        ("Answer: b1c3\nThe horse", "b1c3"),
        ("Answer: a1a9\nThe chariot", ParseFailure.TRUNCATED),
    ],
)
def test_a_reply_that_was_cut_off_is_not_called_illegal(text: str, verdict: str) -> None:
    result = START.parse(text, truncated=True)
    assert (result.move or result.failure) == verdict


def test_a_rank_of_one_digit_is_not_read_out_of_a_longer_one() -> None:
    position = games.get_game("janggi").position("3k5/9/9/9/9/9/9/9/9/R3K4 w - - 0 1")
    assert position.parse("a1a10").move == "a1a10"
    assert position.parse("a1a1").move is None
    assert position.parse("Ra10").move == "a1a10"
    assert position.parse("01차11").move == "a1a10"


def test_a_capture_in_korean_may_name_what_is_taken() -> None:
    position = games.get_game("janggi").position("3k5/9/9/9/9/2p6/9/9/4B4/4K4 w - - 0 1")
    for text in ("95상63졸", "95상63타졸", "95楚象63卒", "95상63"):
        assert position.parse(text).move == "e2c5"


U, A = ParseFailure.UNPARSABLE, ParseFailure.AMBIGUOUS


@pytest.mark.parametrize(
    ("position", "text", "verdict"),
    [
        (
            games.get_game("janggi").position("3k5/9/9/9/9/1P7/4B4/9/4K4/9 w - - 0 1"),
            "The best move would be b6.",
            U,
        ),
        (START, "My answer would be a5", U),
        (START, "This is a d2-square", U),
        (START, "Option a: d2", U),
        (START, "Answer: a4a5 or c4c5", A),
        (START, "답: 79졸78 또는 71졸72", A),
        (START, "최선의 수: 79졸78\n차선의 수: 71졸72", "i4h4"),
        (START, "이번 수: 79졸78\n다음 수: 71졸72", "i4h4"),
        (START, "좋은 수는 79졸78입니다. 나쁜 수는 71졸72입니다.", A),
        (START, "71졸72를 두지 않겠다", U),
        (START, "71졸72를 선택하지 않습니다", U),
        (START, "71졸72를 두면 안 됩니다", U),
        (START, "정답은 71졸72가 아니라 79졸78입니다", A),
        (START, "71졸72를 두려 했으나 79졸78을 둡니다", A),
        (START, "한수쉼을 하지 않겠습니다", U),
        (START, "If I pass, Han can pass as well and the game ends.", U),
        (START, "There's no need to pass.", U),
        (START, "The elephant's path to d4 must pass c3, so it is blocked.", U),
        (START, "Let's see which moves pass the test.", U),
        (START, "쉼 없이 공격합니다", U),
        (START, "저는 79졸78을 두겠습니다", "i4h4"),
    ],
)
def test_a_move_that_is_denied_planned_compared_or_taken_back_is_no_answer(
    position: Position, text: str, verdict: str
) -> None:
    check(position, text, verdict)
