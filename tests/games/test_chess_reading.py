"""What a language model may write, and what it means: chess."""

import pytest

import games
from games.core import ParseFailure, Position
from tests.games.replies import check

START = games.get_game("chess").position()
CASTLING = games.get_game("chess").position("r3k2r/pppq1ppp/8/8/8/8/PPPQ1PPP/R3K2R w KQkq - 0 1")
PROMOTION = games.get_game("chess").position("3n4/4P1k1/8/8/8/8/1b4K1/R1B5 w - - 0 1")


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("e4", "e2e4"),
        ("e2e4", "e2e4"),
        ("e2-e4", "e2e4"),
        ("e2 e4", "e2e4"),
        ("E2E4", "e2e4"),
        ("E4", "e2e4"),
        ("1. e4", "e2e4"),
        ("1.e4", "e2e4"),
        ("e2 to e4", "e2e4"),
        ("Nf3", "g1f3"),
        ("nf3", "g1f3"),
        ("NF3", "g1f3"),
        ("♘f3", "g1f3"),
        ("♞f3", "g1f3"),
        ("Ngf3", "g1f3"),
        ("Ng1f3", "g1f3"),
        ("Ng1-f3", "g1f3"),
        ("N1f3", "g1f3"),
        ("Knight to f3", "g1f3"),
        ("knight f3", "g1f3"),
        ("knight from g1 to f3", "g1f3"),
        ("pawn to e4", "e2e4"),
        ("Pe4", "e2e4"),
        ("♙e4", "e2e4"),
        ("**e4**", "e2e4"),
        ("`e4`", "e2e4"),
        ("```\ne4\n```", "e2e4"),
        ("```uci\ne2e4\n```", "e2e4"),
        ('{"move": "e4"}', "e2e4"),
        ('{"reasoning": "e4 or d4", "move": "d4"}', "d2d4"),
        ('```json\n{"move": "Nf3"}\n```', "g1f3"),
        ("e4!", "e2e4"),
        ("e4!?", "e2e4"),
        ("Nf3+", "g1f3"),
        ("My move is e4.", "e2e4"),
        ("I play e4", "e2e4"),
        ("I'll play **Nf3**.", "g1f3"),
        ("Answer: d4", "d2d4"),
        ("I considered e4, but the answer is d4", "d2d4"),
        ("I considered e4 and d4. I'll go with Nf3.", "g1f3"),
        ("e4\n\nThis opens lines for Bf1 and Qd1.", "e2e4"),
        ("Nf3 (controls e5)", "g1f3"),
        ("Nf3, developing a knight and eyeing e5.", "g1f3"),
        ("e4 d4 Nf3", "ambiguous"),
        ("e4 or d4", "ambiguous"),
        ("e4, d4", "ambiguous"),
        ("", "empty"),
        ("   \n", "empty"),
        ("...", "empty"),
        ("hello there", "unparsable"),
        ("resign", "resign"),
        ("I resign.", "resign"),
        ("Answer: resign", "resign"),
        ("I will not resign. e4", "e2e4"),
        ("e5", "illegal"),
        ("Ke2", "illegal"),
        ("Qh5", "illegal"),
        ("e7e5", "illegal"),
        ("O-O", "illegal"),
        ("<think>maybe d4</think>e4", "e2e4"),
        ("<think>maybe d4", "truncated"),
        ("<move>e4</move>", "e2e4"),
        ("\\boxed{e4}", "e2e4"),
        ("The opponent's last move was e5. My move: e4", "e2e4"),
        ("Best move: Nc3", "b1c3"),
        ("bestmove e2e4", "e2e4"),
        ("bestmove e2e4 ponder e7e5", "e2e4"),
        ("1. e4 e5 2. Nf3 Nc6", "e2e4"),
        ("Actually, d4", "d2d4"),
        ("e4\n\nWait, no.\n\nd4", "d2d4"),
        ("e4\nd4", "ambiguous"),
        ("- e4\n- d4\n- Nf3", "ambiguous"),
        ("- e4", "e2e4"),
        ("My move is e4. Hmm, d4 is stronger.\nFinal answer: d4", "d2d4"),
        ("Move: Qh5", "illegal"),
        ("I play Qh5, although Nf3 is legal", "illegal"),
        ("White plays e4", "e2e4"),
        (
            "The position is rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 1",
            "unparsable",
        ),
        ("I want to control e4 and d4", "unparsable"),
        ("I want to control e4", "unparsable"),
        ("The knight on f3 is strong", "unparsable"),
        ("e4 is my move", "e2e4"),
        ("e4 is the best move", "e2e4"),
        ("I choose: 1. e4", "e2e4"),
        ("1... e5", "illegal"),
        ("Final move: 'e2e4'", "e2e4"),
        ('"e2e4"', "e2e4"),
        (
            "Sure! Here's my move:\n\n**Nf3**\n\nThis develops the knight and fights for e5 and d4.",
            "g1f3",
        ),
        ("e4 e5", "ambiguous"),
        ("I'd never play f3. e4!", "e2e4"),
        ("Don't play f3; play e4", "e2e4"),
        ("ｅ２ｅ４", "e2e4"),
        ("e2–e4", "e2e4"),
        ("e2→e4", "e2e4"),
        ("e2->e4", "e2e4"),
        ("My answer is not e4 but d4.", "d2d4"),
        ("Legal moves: e4, d4, Nf3. I choose d4", "d2d4"),
        ("move 1: e4", "e2e4"),
        ("castle kingside", "illegal"),
        ("I move my pawn from e2 to e4.", "e2e4"),
        ("pawn e2 to e4", "e2e4"),
        ("Move the knight to f3", "g1f3"),
        ("제 수는 e2e4입니다", "e2e4"),
        ("e2e4를 두겠습니다", "e2e4"),
        ("a1a9", "unparsable"),
        ("z9", "unparsable"),
        ("e4.", "e2e4"),
        ("(e4)", "e2e4"),
        ("e4;", "e2e4"),
        ("<e4>", "e2e4"),
        ("[e4]", "e2e4"),
        ("> e4", "e2e4"),
        ("# e4", "e2e4"),
        ("=> e4", "e2e4"),
        ("e4\n\ne4", "e2e4"),
        ('{"move": "e2e', "truncated"),
        ("e2e4 is good but d2d4 is better", "ambiguous"),
        ("If I play e4, then black plays e5. So I choose d4.", "d2d4"),
        ("Should I resign? No. e4", "e2e4"),
        ("the answer is: 'Nc3'", "b1c3"),
    ],
)
def test_replies(text: str, verdict: str) -> None:
    check(START, text, verdict)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("O-O", "e1g1"),
        ("0-0", "e1g1"),
        ("o-o", "e1g1"),
        ("O-O-O", "e1c1"),
        ("0-0-0", "e1c1"),
        ("OO", "e1g1"),
        ("OOO", "e1c1"),
        ("e1g1", "e1g1"),
        ("Kg1", "e1g1"),
        ("Ke1-g1", "e1g1"),
        ("castle kingside", "e1g1"),
        ("castles queenside", "e1c1"),
        ("I castle short.", "e1g1"),
        ("I castle long", "e1c1"),
        ("Castling kingside", "e1g1"),
        ("kingside castling", "e1g1"),
        ("e1h1", "e1g1"),
        ("O–O", "e1g1"),
        ("O-O+", "e1g1"),
        ("**O-O**", "e1g1"),
        ("King to g1", "e1g1"),
        ("Ο-Ο", "e1g1"),
        ("castle", "ambiguous"),
        ("Qxd7+", "d2d7"),
        ("Qd2xd7", "d2d7"),
        ("Queen takes d7", "d2d7"),
        ("queen captures the queen on d7", "d2d7"),
        ("QxD7", "d2d7"),
        ("Q:d7", "d2d7"),
        ("Qd2:d7+", "d2d7"),
        ("d2xd7", "d2d7"),
        ("Rd1", "a1d1"),
        ("Rf1", "h1f1"),
    ],
)
def test_castling_and_captures(text: str, verdict: str) -> None:
    check(CASTLING, text, verdict)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("e8=Q", "e7e8q"),
        ("e8Q", "e7e8q"),
        ("e8(Q)", "e7e8q"),
        ("e8/Q", "e7e8q"),
        ("e7e8q", "e7e8q"),
        ("e7e8Q", "e7e8q"),
        ("e7-e8=Q", "e7e8q"),
        ("e7e8", "ambiguous"),
        ("e8", "ambiguous"),
        ("exd8=N", "e7d8n"),
        ("e7xd8=N+", "e7d8n"),
        ("exd8N", "e7d8n"),
        ("e8=queen", "e7e8q"),
        ("pawn to e8, promoting to a queen", "e7e8q"),
        ("e8 promotes to rook", "e7e8r"),
        ("e8 = Q", "e7e8q"),
        ("e8=K", "ambiguous"),
        ("e8=q+", "e7e8q"),
        ("Bxb2", "c1b2"),
        ("bxb2", "illegal"),
    ],
)
def test_promotions(text: str, verdict: str) -> None:
    check(PROMOTION, text, verdict)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("I think the best option would be to", ParseFailure.TRUNCATED),
        ("e4", ParseFailure.TRUNCATED),  # e4 may have become e4e5
        ("My move is e4. This", "e2e4"),
        ("Nf3, since it attacks", ParseFailure.TRUNCATED),
        ("Should I play Nf3? Let me calculate: after d5 White has", ParseFailure.TRUNCATED),
        ("Nf3\n\nThat's one option. Another is", ParseFailure.TRUNCATED),
        ("1. e4 is an option because it opens lines. 2. d4 is al", ParseFailure.TRUNCATED),
        (
            "Candidate move: Nf3. This blocks the f-pawn. Candidate move: d4. This",
            ParseFailure.TRUNCATED,
        ),
        ("e4 or d4? Let us", ParseFailure.TRUNCATED),
        ("My move is Qh5. This", ParseFailure.TRUNCATED),
        ("", ParseFailure.TRUNCATED),
    ],
)
def test_a_reply_that_was_cut_off_is_not_called_illegal(text: str, verdict: str) -> None:
    result = START.parse(text, truncated=True)
    assert (result.move or result.failure) == verdict


def test_numbers_say_whose_move_is_meant() -> None:
    position = games.get_game("chess").position()
    line = "1. e4 e5 2. Nf3 Nc6 3. Bb5"
    for uci in ("e2e4", "e7e5", "g1f3", "b8c6", "f1b5"):
        assert position.parse(line).move == uci
        position.push(uci)


def after(*moves: str) -> Position:
    position = games.get_game("chess").position()
    for move in moves:
        position.push(move)
    return position


def fen(text: str) -> Position:
    return games.get_game("chess").position(text)


AFTER_E4, AFTER_E4_E5 = after("e2e4"), after("e2e4", "e7e5")
U, A, T = ParseFailure.UNPARSABLE, ParseFailure.AMBIGUOUS, ParseFailure.TRUNCATED


@pytest.mark.parametrize(
    ("position", "text", "verdict"),
    [
        (AFTER_E4_E5, "The best move would be d4.", "d2d4"),
        (AFTER_E4_E5, "My answer would be d4", "d2d4"),
        (AFTER_E4_E5, "My move will be b4", "b2b4"),
        (START, "e4 is better than Nf3.", A),
        (START, "Nf3 is fine, but e4 is better.", A),
        (START, "The best is e4, preparing Nf3.", "e2e4"),
        (START, "We open with e4, then Nf3.", A),
        (START, '{"result":"e4","alt":"Nf3"}', U),
        (
            START,
            "* **Nf3** – natural\n* **e4** – classical\n\nGiven the above, **e4** is the strongest.",
            A,
        ),
        (START, '{"from":"b1","to":"a3"}', "b1a3"),
        (START, '{"move": {"from": "g1", "to": "f3"}}', "g1f3"),
        (START, '{"move": {"piece": "knight", "to": "f3"}}', U),
        (START, "From: b1\nTo: a3", U),
        (START, "Answer: the knight should go to f3", U),
        (START, "I'll move the knight: f3", U),
        (START, "The knight on g1 should be developed to h3.", U),
        (START, "Answer: f3 knight", U),
        (START, "Springer f3", U),
        (START, "Кf3", U),
        (AFTER_E4_E5, "Final answer: Nf3 or Bc4", A),
        (AFTER_E4_E5, "Answer: Nf3, Bc4", A),
        (START, '{"move": "e4 or d4"}', A),
        (START, '{"move": ["e4","d4"]}', A),
        (START, "My move: e4 or d4, both are fine.", A),
        (AFTER_E4_E5, "Should I play Nf3 or Bc4?", A),
        (AFTER_E4_E5, "Either Nf3 or Bc4 would be my answer.", A),
        (AFTER_E4_E5, "1. **Bc4** - italian\n2. **Nf3** - main\n3. **d4** - center", A),
        (
            AFTER_E4_E5,
            "Here are my candidate moves:\n\n1. **Bc4** - italian\n2. **Nf3** - main\n3. **d4** - center",
            A,
        ),
        (AFTER_E4_E5, "Answer: Nf3. Next move: Bc4.", "g1f3"),
        (AFTER_E4_E5, "Answer: Nf3. Then I'll play d4.", "g1f3"),
        (AFTER_E4_E5, "**Nf3**\n\nIf Black replies Nc6, I'll go Bb5.", "g1f3"),
        (START, "First I play Nf3, then I play e4.", "g1f3"),
        (AFTER_E4_E5, "Best move: Nf3\nSecond best move: Bc4", "g1f3"),
        (AFTER_E4_E5, "Answer: d4\n\nAlternative move: Bc4", "d2d4"),
        (START, "I play d4. Another reasonable choice is e4.", "d2d4"),
        (AFTER_E4_E5, "The best move is Nf3, the worst move is f3.", "g1f3"),
        (AFTER_E4_E5, '{"move":"Bc4","rejected_move":"Nf3"}', "f1c4"),
        (AFTER_E4_E5, '{"move":"Bc4","next_move":"Nf3"}', "f1c4"),
        (AFTER_E4_E5, '{"move": "Bc4", "alternatives": [{"move": "Nf3"}]}', "f1c4"),
        (START, '{"move":"e4","explanation":"I choose e4 because the move d4 is weaker"}', "e2e4"),
        (AFTER_E4_E5, '{"best_move":"g1f3","expected_reply":"b8c6"}', "g1f3"),
        (AFTER_E4_E5, '{"opponent_move":"b8c6","move":"g1f3"}', "g1f3"),
        (AFTER_E4, "d5 is the worst move", U),
        (AFTER_E4, "d5 isn't the best move", U),
        (AFTER_E4, "d5 is the wrong answer", U),
        (AFTER_E4, "I refuse to play d5", U),
        (AFTER_E4, "I am not going to play d5", U),
        (AFTER_E4, "anything except d5", U),
        (AFTER_E4, "Blunder: d5", U),
        (AFTER_E4, "Incorrect move: d5", U),
        (AFTER_E4, "d5 (rejected)", U),
        (AFTER_E4, "Your move d5 was illegal", U),
        (AFTER_E4, "d5 is not my answer", U),
        (START, "e4 is illegal", U),
        (START, "I don't want to play e4.", U),
        (START, "My opponent's best move is e4", U),
        (AFTER_E4_E5, "It is illegal to play Bc4.", U),
        (AFTER_E4_E5, "Nf3, hmm, wait. Actually Bc4 is stronger.", "f1c4"),
        (AFTER_E4_E5, "Answer: Nf3\nActually, no: Bc4", "f1c4"),
        (AFTER_E4_E5, "Answer: ~~Nf3~~ **Bc4**", "f1c4"),
        (AFTER_E4_E5, "Answer: Qh5?? loses. So Nf3", A),
        (START, "Normally I would play e4, but today d4.", A),
        (fen("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"), "Score is 0-0 so far", U),
        (fen("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"), "Ooo, that is interesting!", U),
        (fen("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"), "Black may castle long.", U),
        (
            fen("r3k2r/8/8/8/8/8/P7/R3K2R w KQkq - 0 1"),
            "I want to castle kingside later. For now, a3.",
            A,
        ),
        (START, "Using an A4 paper", U),
        (AFTER_E4_E5, "The key square is d4.", U),
        (START, '{"thought": "Nf3 looks good", "mo', T),
        (START, '{"move": null, "comment": "I considered Nf3"}', U),
        (AFTER_E4_E5, "Candidates: Nf3, Bc4, d4. Best: Bc4.", "f1c4"),
        (AFTER_E4, "My answer to e4 is c5", "c7c5"),
        (START, "I think e4 is best.", "e2e4"),
        (START, "Nf3 looks best", "g1f3"),
        (START, "I recommend Nf3.", "g1f3"),
        (START, "Nf3 develops a knight and attacks e5.", "g1f3"),
        (START, "After careful consideration, my move is e4.", "e2e4"),
        (START, "Given the position, I would go with d4 because it controls e5 and c5.", "d2d4"),
        (START, "My move: e4\nReason: it opens lines for Bf1 and Qd1", "e2e4"),
        (START, "<answer>e4</answer>", "e2e4"),
        (START, "**My move:** e4", "e2e4"),
        (START, "Best move: **e4** (King's pawn opening)", "e2e4"),
        (START, "So, I will play 1. e4!", "e2e4"),
        (START, "The move I choose is Nf3.", "g1f3"),
        (START, "I have decided to play Nf3", "g1f3"),
        (START, "### Answer\n\ne4", "e2e4"),
        (START, "### Move\nNf3\n\n### Explanation\nThe knight is developed to f3.", "g1f3"),
        (AFTER_E4, "1... c5", "c7c5"),
        (AFTER_E4, "I respond with c5, the Sicilian Defence.", "c7c5"),
        (AFTER_E4, "Black plays c5.", "c7c5"),
        (AFTER_E4, "As Black, I play e5", "e7e5"),
        (AFTER_E4, "White played e4. I reply e5.", "e7e5"),
    ],
)
def test_a_move_that_is_denied_planned_compared_or_taken_back_is_no_answer(
    position: Position, text: str, verdict: str
) -> None:
    check(position, text, verdict)


AFTER_A6 = after("e2e4", "e7e5", "g1f3", "b8c6", "f1b5", "a7a6")


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("**Move:** Ba4\n\n**Alternatives considered:**\n\nBxc6\n", "b5a4"),
        ("I play Ba4.\n\nMy follow-up:\n\nO-O", "b5a4"),
        ('{"move": "Ba4"}\n\nAlternative:\n{"move": "Bxc6"}', A),
        ('{"move": "Ba4", "best_move": "Bxc6"}', A),
        ("My move: Ba4\nBlack's best reply: Nf6\nMy reply: O-O", A),
        ("I play Bxc6.\n\nEdit: Ba4 instead.", "b5a4"),
        ("I play Bxc6. On reflection, Ba4 is better.", "b5a4"),
        ("I play Bxc6. Ignore that; Ba4 keeps the tension.", A),
        ("Not recommended:\n\n**Bxc6**", U),
        ("What I won't play:\n\nBxc6", U),
        ("I would play Bxc6 if the pawn were not there.", U),
        ("I would castle, but the bishop hangs.", U),
        ("Bxc6 (not recommended)", U),
        ("Bxc6 is out of the question.", U),
        ("I resign myself to a long game: Ba4", U),
        ("Answer: Bxc6\nAnswer: Ba4", "b5a4"),
        ("Sure! Here's my move:\n\n**Ba4**\n\nIt keeps the bishop.", "b5a4"),
    ],
)
def test_what_stands_beside_an_answer_does_not_take_its_place(text: str, verdict: str) -> None:
    check(AFTER_A6, text, verdict)
