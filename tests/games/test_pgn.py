"""PGN of both games: what is written is read back the same, by python-chess too, and files of others
are read as far as they can be.
"""

from __future__ import annotations

import io
import logging
import random

import chess.pgn
import pytest

import games
from games import pgn
from games.records import Note, Record, fitting_rules

WORDS = [
    "{a: 1}",
    "한 수",
    'say "no"',
    "back\\slash",
    "two\nlines",
    "  wide  ",
    "1. e4",
    "[%clk x]",
]
WORDS += [
    "(",
    "}",
    ";",
    "%",
    '[Event "?"]',
    "\t",
    "\\n",
    "[%emt 0:00:01]",
    "long " * 30,
    "🐉",
    "$1",
]


def random_record(name: str, seed: int, plies: int = 400) -> Record:
    draw = random.Random(f"{name} {seed}")
    game = games.get_game(name)
    position = game.position(
        rules=draw.choice(game.rule_sets), setup=draw.choice(game.setups) if game.setups else None
    )
    record = Record(name, position.start_fen, rules=position.rules)
    while position.ply < plies and (moves := position.legal_moves()):
        position.push(draw.choice(moves))
        if draw.random() < 0.3:
            note = Note(
                " ".join(draw.choices(WORDS, k=draw.randrange(4))),
                elapsed_s=draw.choice([None, draw.randrange(10**7) / 1000]),
                clock_s=draw.choice([None, draw.randrange(10**7) / 1000]),
                probability=draw.choice([None, 0.25, 1e-9]),
                prompt_tokens=draw.choice([None, 512]),
                cached_tokens=draw.choice([None, 0]),
            )
            if note:
                record.notes[position.ply] = note
    record.moves = position.moves()
    record.result = draw.choice(["1-0", "0-1", "1/2-1/2", "*"])
    record.ending = draw.choice(["", "checkmate", "odd ] } [%end \\ \n reason", "bikjang 40-38.5"])
    record.headers = {
        "White": 'Ann "the\\rock" Lee\\',
        "Black": "용 2",
        "Note": "Café ]",
    }
    return record


def check_written(records: list[Record], caplog: pytest.LogCaptureFixture) -> None:
    """Everything is read back by our reader, and chess by python-chess without a warning."""
    text = pgn.dumps(records)
    again = pgn.loads(text.encode())
    assert again.problems == []
    for record, read in zip(records, again, strict=True):
        assert (read.game, read.rules, read.start_fen) == (
            record.game,
            record.rules,
            record.start_fen,
        )
        assert read.moves == record.moves
        assert (read.result, read.notes, read.ending) == (
            record.result,
            record.notes,
            record.ending,
        )
        assert read.headers.items() >= record.headers.items()
    assert pgn.dumps(again) == text
    chess_games = [record for record in records if record.game == "chess"]
    if len(chess_games) == len(records):
        stream = io.StringIO(text)
        with caplog.at_level(logging.DEBUG, logger="chess"):
            found = list(iter(lambda: chess.pgn.read_game(stream), None))
        assert caplog.records == []
        assert [game.errors for game in found] == [[]] * len(records)
        for game, record in zip(found, records, strict=True):
            assert [move.uci() for move in game.mainline_moves()] == record.moves
            assert game.headers["Result"] == record.result


@pytest.mark.parametrize("name", games.list_games())
def test_random_games_are_read_back_the_same(name: str, caplog: pytest.LogCaptureFixture) -> None:
    check_written([random_record(name, seed, 120) for seed in range(8)], caplog)


@pytest.mark.slow
@pytest.mark.parametrize("name", games.list_games())
def test_500_random_games_are_read_back_the_same(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    check_written([random_record(name, seed) for seed in range(500)], caplog)


@pytest.mark.parametrize(
    ("name", "shuttle"),
    [
        ("chess", ("g1f3", "g8f6", "f3g1", "f6g8")),
        ("janggi", ("a1a2", "a10a9", "a2a1", "a9a10")),
    ],
)
def test_a_game_of_600_moves(
    name: str, shuttle: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    game = games.get_game(name)
    moves = [shuttle[ply % 4] for ply in range(1200)]
    record = Record(name, game.start_fen, moves, rules=game.rule_sets[0], result="1/2-1/2")
    check_written([record], caplog)


FOREIGN = """\ufeff% made by hand
[Event "A "quoted" event"]
[Site "C:\\games"]
[White "Müller"]
[Black "Ann \\"x\\""]
[Result "1-0"]
[WhiteElo "2000"]

{ before } 1.e4! $1 e5 (1... c5 2. Nf3 { a } (2. c3) 2... d6 1-0) 2.Nf3 {[%clk 0:01:00] [%eval 0.3]
  good  move} Nc6 ; to the end 3. Qh5
3. Bb5 += 3...a6 4 0-0 {x} {y} Nf6 5 . d4 exd4 6. e5 Ne4 7. c3 dxc3 8. Qd5 cxb2 9. Qxe4 bxa1=Q!?
1-0
"""


def test_what_other_programs_write_is_read(caplog: pytest.LogCaptureFixture) -> None:
    [record] = found = pgn.loads(FOREIGN.replace("\n", "\r\n"))
    assert found.problems == []
    assert record.moves[-1] == "b2a1q"
    assert record.moves[:7] == ["e2e4", "e7e5", "g1f3", "b8c6", "f1b5", "a7a6", "e1g1"]
    assert {ply: note.text for ply, note in record.notes.items()} == {
        0: "before",
        3: "[%eval 0.3] good move",
        4: "to the end 3. Qh5",
        7: "x y",
    }
    assert record.notes[3].clock_s == 60
    assert record.headers["Event"] == 'A "quoted" event'
    assert record.headers["Site"] == "C:\\games"
    assert record.headers["Black"] == 'Ann "x"'
    assert (record.result, record.headers["WhiteElo"]) == ("1-0", "2000")


def test_latin_1_is_read() -> None:
    [record] = pgn.loads('[White "Müller"]\n\n1. e4 *\n'.encode("latin-1"))
    assert record.headers["White"] == "Müller"


def test_a_move_that_cannot_be_read_ends_its_game_and_no_other() -> None:
    text = '[White "a"]\n\n1. e4 e5 2. Ke3 Nc6 1-0\n\n[White "b"]\n\n1. d4 *\n\n1. c4 --\n'
    found = pgn.loads(text)
    assert [record.moves for record in found] == [["e2e4", "e7e5"], ["d2d4"], ["c2c4"]]
    assert [(p.game, p.ply, p.token, p.stops) for p in found.problems] == [
        (1, 3, "Ke3", True),
        (3, 2, "--", True),
    ]
    assert "is not a legal move here" in str(found.problems[0])
    assert found[0].result == "1-0"


THREE = '[Event "a"]\n\n1. e4 {odd 1... e5 1-0\n\n[Event "b"]\n\n1. d4 {x} *\n\n[Event "c"]\n\n1. c4 *\n'


@pytest.mark.parametrize("opener", "{(")
def test_games_behind_an_unclosed_comment_or_variation_are_read(opener: str) -> None:
    found = pgn.loads(THREE.replace("{odd", opener + "odd"))
    assert [record.moves for record in found] == [["e2e4"], ["d2d4"], ["c2c4"]]
    [problem] = found.problems
    assert (problem.game, problem.ply, problem.stops) == (1, 2, True)
    assert problem.token.startswith(opener + "odd")


def test_an_unclosed_comment_without_moves_cuts_nothing() -> None:
    [record] = found = pgn.loads("1. e4 e5 1-0 {thanks")
    assert (record.moves, record.result, record.is_cut) == (["e2e4", "e7e5"], "1-0", False)
    assert "comment without its }" in str(found.problems[0])


def test_the_result_behind_an_unclosed_variation_counts() -> None:
    [record] = found = pgn.loads("1. e4 e5 (2. d4 1-0")
    assert (record.moves, record.result, record.is_cut) == (["e2e4", "e7e5"], "1-0", True)
    [problem] = found.problems
    assert (problem.ply, problem.token) == (3, "(2. d4 1-0")


@pytest.mark.parametrize(
    "text",
    [
        "I played e4 yesterday.",
        "<!DOCTYPE html>\n<html><body>\n<p>Chess 2.0, by Ann</p>\n</body></html>\n",
        "e4 e5",
        "Score: 1-0",
    ],
)
def test_text_of_another_kind_is_no_game(text: str) -> None:
    found = pgn.loads(text)
    assert (list(found), found.skipped) == ([], 0)


@pytest.mark.parametrize("text", ["1. e4", "e4 *", '[White "a"]\n\n', "1. Ke3"])
def test_a_game_has_a_tag_a_number_or_a_result(text: str) -> None:
    assert len(pgn.loads(text)) == 1


def test_two_moves_run_together_by_a_bad_byte_are_not_read_as_one() -> None:
    [record] = pgn.loads(b"1. e4 e5 2. Nf3\xc0Nc6 3. Bb5 a6 1-0")
    assert (record.moves, record.is_cut) == (["e2e4", "e7e5"], True)


def test_tags_on_one_line_are_all_read() -> None:
    [record] = found = pgn.loads('[Event "a"] [White "w \\"x\\""][Black "C:\\dir"]\n\n1. e4 *\n')
    assert record.headers == {"Event": "a", "White": 'w "x"', "Black": "C:\\dir"}
    assert found.problems == []


def test_games_that_cannot_begin_are_left_out_and_told() -> None:
    text = '[Variant "Atomic"]\n\n1. e4 *\n\n[FEN "8/8/8 w"]\n\n*\n\n[White "c"]\n[Odd\n\n1. e4 *\n'
    found = pgn.loads(text)
    assert (len(found), found.skipped) == (1, 2)
    assert [(p.game, p.token) for p in found.problems] == [
        (1, "Atomic"),
        (2, "8/8/8 w"),
        (3, "[Odd"),
    ]


@pytest.mark.parametrize("variant", ["Standard", "From Position", "normal", "Chess"])
def test_names_of_plain_chess(variant: str) -> None:
    [record] = pgn.loads(f'[Variant "{variant}"]\n\n1. e4 *\n')
    assert (record.game, record.moves) == ("chess", ["e2e4"])


def test_result_of_tag_and_movetext() -> None:
    found = pgn.loads('[Result "0-1"]\n\n1. e4 1-0\n\n[Result "?"]\n\n1. e4 1/2\n')
    assert [record.result for record in found] == ["0-1", "1/2-1/2"]
    assert [problem.token for problem in found.problems] == ["1-0"]


def test_janggi_without_a_rule_set_gets_one_that_allows_its_moves() -> None:
    """Generals that are left facing each other without a pass: not with bikjang."""
    janggi = games.get_game("janggi")
    fen = "4k4/9/9/9/9/9/9/9/4K4/R8 w - - 0 1"
    position = janggi.position(fen, "kakao")
    for uci in ("a1a2", "e10e9"):
        position.push(uci)
    record = Record("janggi", fen, position.moves(), rules="kakao")
    text = pgn.dumps([record]).replace('[RuleSet "kakao"]\n', "")
    [read] = found = pgn.loads(text)
    assert (read.moves, found.problems) == (record.moves, [])
    assert read.rules == "janggimodern"
    assert fitting_rules(Record("janggi", fen, record.moves)) == ("janggimodern", 2)


@pytest.mark.parametrize("style", ["uci", "lan", "janggi"])
def test_janggi_is_read_in_its_other_notations(style: str) -> None:
    record = random_record("janggi", 5, 60)
    position = games.get_game("janggi").position(record.start_fen, record.rules)
    words = []
    for uci in record.moves:
        words.append(position.notation(uci, style))
        position.push(uci)
    tags = f'[Variant "janggi"]\n[Rules "{record.rules}"]\n[FEN "{record.start_fen}"]\n\n'
    assert pgn.loads(tags + " ".join(words))[0].moves == record.moves


@pytest.mark.parametrize(
    "text", ["", "*", "{", "[", "(", "{}", '[a "', "1.", "\x00", "} ) ]", "1-0 0-1"]
)
def test_rubbish_never_raises(text: str) -> None:
    assert all(record.moves == [] for record in pgn.loads(text))


def test_fuzz_never_raises() -> None:
    draw = random.Random(0)
    pieces = [
        *'{}()[]";$%<>\n .*?!',
        "1.",
        "e4",
        "e5",
        "1-0",
        '[Event "',
        '"]\n',
        "[%emt 0:0:1]",
        "Nf3",
    ]
    for _ in range(2000):
        pgn.loads("".join(draw.choices(pieces, k=30)))
