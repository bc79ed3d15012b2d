"""GIB: reading what Korean programs write, dirt included, and writing it byte for byte."""

from __future__ import annotations

import base64
from typing import Any

import pytest

import games
from games.janggi import gib
from games.records import Record
from tests.games.janggi_data import by_id, records

VECTORS = records("gib")
DIRT = (b"\xff", b"\x1a", b" <0>")  # read over, never written
HEAD = '[초대국자 "가 9단"]\n[한대국자 "나"]\n[초차림 "마상상마"]\n[한차림 "마상상마"]\n'


def read(text: str, encoding: str = "cp949") -> gib.GibRecord:
    [record] = gib.loads(text.encode(encoding))
    assert isinstance(record, gib.GibRecord)
    return record


@pytest.mark.parametrize("vector", VECTORS, ids=by_id)
def test_vectors_are_read_and_written_byte_for_byte(vector: dict[str, Any]) -> None:
    data = base64.b64decode(vector["bytes_b64"])
    found = gib.loads(data)
    assert found.problems == []
    assert len(found) == len(vector["games"])
    for record, expected in zip(found, vector["games"], strict=True):
        assert isinstance(record, gib.GibRecord)
        assert record.start_fen == expected["start_fen"]
        assert record.moves == expected["moves"]
        assert record.headers == expected["headers"]
        assert record.winner == expected["winner"]
    clean = data
    for dirt in DIRT:
        clean = clean.replace(dirt, b"")
    assert gib.dumps(found) == clean


@pytest.mark.parametrize("vector", VECTORS, ids=by_id)
def test_utf8_is_recognized(vector: dict[str, Any]) -> None:
    data = base64.b64decode(vector["bytes_b64"])
    for dirt in DIRT:
        data = data.replace(dirt, b"")
    utf8 = data.decode("cp949").encode("utf-8")
    found = gib.loads(b"\xef\xbb\xbf" + utf8)
    assert found.encoding == "utf-8"
    assert [record.moves for record in found] == [game["moves"] for game in vector["games"]]
    assert gib.dumps(found) == utf8
    assert gib.dumps(found, encoding="cp949") == data


@pytest.mark.parametrize("encoding", ["utf-8", "cp949"])
def test_one_bad_byte_in_a_comment_spoils_nothing_else(encoding: str) -> None:
    games_of = [HEAD + f"\n1. 79졸78 {{말 {n} X 끝}} 2. 41병42\n\n" for n in range(4)]
    data = "".join(games_of).encode(encoding).replace(b"2 X", b"2 \xc0")
    found = gib.loads(data)
    assert found.encoding == encoding
    assert [record.moves for record in found] == [["i4h4", "a7b7"]] * 4
    assert [record.headers["초대국자"] for record in found] == ["가 9단"] * 4
    [problem] = found.problems
    assert (problem.game, problem.stops) == (3, False)
    assert "bytes that are no characters" in str(problem)


@pytest.mark.parametrize("first", ["utf-8", "cp949"])
def test_games_of_two_encodings_in_one_file_are_all_read(first: str) -> None:
    second = "cp949" if first == "utf-8" else "utf-8"
    text = HEAD + "\n1. 79졸78 2. 41병42\n\n"
    found = gib.loads(text.encode(first) + text.encode(second))
    assert (found.problems, found.encoding) == ([], "utf-8")
    assert [record.moves for record in found] == [["i4h4", "a7b7"]] * 2


def test_moves_without_numbers_are_not_lost_without_a_word() -> None:
    record = read(HEAD + "\n79졸78 41병42\n")
    [problem] = record.problems
    assert (record.moves, problem.ply, problem.stops) == ([], 1, True)
    assert "79졸78 41병42" in str(problem)


def test_moves_behind_an_open_brace_are_not_lost_without_a_word() -> None:
    record = read(HEAD + "\n1. 79졸78 {x 2. 41병42 3. 한수쉼\n")
    [problem] = record.problems
    assert (record.moves, problem.ply, problem.stops) == (["i4h4"], 2, True)
    record = read(HEAD + "\n1. 79졸78 2.{41병42 3. 한수쉼\n")
    assert (record.moves, record.is_cut) == (["i4h4"], True)
    record = read(HEAD + "\n1. 79졸78 {a {b} 2. 41병42\n")
    assert (record.moves, record.problems) == (["i4h4", "a7b7"], [])


def test_a_damaged_move_is_told_and_reading_goes_on_with_the_next_game() -> None:
    bad = HEAD + "\n1. 79졸78 2. 41병42 3. 79졸78 4. 42병43\n\n"
    found = gib.loads((HEAD + "\n1. 79졸78\n\n" + bad + HEAD + "\n1. 71졸61\n").encode("cp949"))
    assert [record.moves for record in found] == [["i4h4"], ["i4h4", "a7b7"], ["a4a5"]]
    [problem] = found.problems
    assert (problem.game, problem.ply, problem.token, problem.stops) == (2, 3, "79졸78", True)
    assert "2 plies are left out" in str(problem)
    assert found[1].problems == [problem]
    assert [record.is_cut for record in found] == [False, True, False]


@pytest.mark.parametrize("token", ["99졸98", "??", "79卒", "79상78", "한수", "\ufffd\ufffd"])
def test_no_move_is_made_up(token: str) -> None:
    record = read(HEAD + f"\n1. {token} 2. 41병42\n", "utf-8")
    assert record.moves == []
    assert [problem.ply for problem in record.problems if problem.stops] == [1]


@pytest.mark.parametrize(
    "token",
    [
        "79졸78",
        "79楚卒78",
        "79卒78",
        "79초졸78",
        "i4졸h4",
        "i4卒78",
        "79병78",
        "79졸78장군",
        "79졸78!",
    ],
)
def test_spellings_of_a_move(token: str) -> None:
    assert read(HEAD + f"\n1.{token}\n").moves == ["i4h4"]


@pytest.mark.parametrize("token", ["한수쉼", "한 수 쉼", "초 한수쉼", "쉼", "95장95"])
def test_spellings_of_a_pass(token: str) -> None:
    assert read(HEAD + f"\n1. {token} 2. 41병42\n").moves == ["e2e2", "a7b7"]


def test_a_pass_with_the_name_of_the_other_side_is_told_and_read() -> None:
    record = read(HEAD + "\n1. 한 한수쉼 2. 41병42\n")
    assert record.moves == ["e2e2", "a7b7"]
    assert [(problem.ply, problem.stops) for problem in record.problems] == [(1, False)]


def test_both_code_points_of_the_chariot_are_read() -> None:
    assert read(HEAD + "\n1. 01\uf902 91 2. 41병42\n".replace(" 91", "91"), "utf-8").moves == [
        "a1a2",
        "a7b7",
    ]


def test_the_wrong_name_of_a_captured_man_changes_nothing() -> None:
    moves = "1. 71졸72 2. 41병42 3. 01차11병 4. 12마33"
    record = read(HEAD + f"\n{moves}\n")
    assert record.moves == ["a4b4", "a7b7", "a1a10", "b10c8"]
    [problem] = record.problems
    assert (problem.ply, problem.token, problem.stops) == (3, "01차11병", False)


def test_what_contradicts_itself_is_told_and_read() -> None:
    record = read(HEAD + '[총수 "40"]\n[이상한\n\n1. 79졸78 3. 41병42 3. 78졸77 4.\n')
    assert record.moves == ["i4h4", "a7b7", "h4g4"] or record.is_cut
    assert [(p.ply, p.token) for p in record.problems if not p.stops][:2] == [
        (None, "[이상한"),
        (2, "3."),
    ]


def test_comments_are_kept_where_they_stand_and_their_moves_are_not_played() -> None:
    text = "1. 79졸78 { 첫 수\n1. 71졸61 } 2. 41병42\n{끝}"
    record = read(HEAD + f"{{ 앞 }}\n\n{text}\n")
    assert record.moves == ["i4h4", "a7b7"]
    assert {ply: note.text for ply, note in record.notes.items()} == {
        0: "앞",
        1: "첫 수 1. 71졸61",
        2: "끝",
    }
    [again] = gib.loads(gib.dumps([record]))
    assert (again.moves, again.notes) == (record.moves, record.notes)


def test_an_open_comment_ends_with_its_game() -> None:
    found = gib.loads((HEAD + "\n1. 79졸78 { 열린\n\n" + HEAD + "\n1. 71졸61\n").encode("cp949"))
    assert [record.moves for record in found] == [["i4h4"], ["a4a5"]]


def test_games_without_headers_begin_with_their_first_move() -> None:
    found = gib.loads("1. 79졸78 2. 41병42\n\n1. 71졸61\n".encode("cp949"))
    assert [record.moves for record in found] == [["i4h4", "a7b7"], ["a4a5"]]
    assert all("is missing" in str(problem) for problem in found.problems)


def test_games_go_on_after_what_ends_them_elsewhere() -> None:
    """Facing generals left alone, two passes, and more than 200 plies."""
    moves = ["한수쉼"] * 2 + ["01차91", "11차21", "91차01", "21차11"] * 60
    body = " ".join(f"{n}. {move}" for n, move in enumerate(moves, 1))
    record = read(HEAD + f"\n{body}\n")
    assert (record.problems, len(record.moves)) == ([], 242)
    assert gib.loads(gib.dumps([record]))[0].moves == record.moves


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("초 완승", "1-0"),
        ("楚 기권승", "1-0"),
        ("한 2.5점 승", "0-1"),
        ("漢 시간승", "0-1"),
        ("무승부 (빅장)", "1/2-1/2"),
        ("빅승", "1/2-1/2"),
        ("미상", "*"),
        ("", "*"),
    ],
)
def test_results(text: str, result: str) -> None:
    record = read(HEAD + f'[대국결과 "{text}"]\n\n1. 79졸78\n')
    assert (record.result, record.headers["대국결과"]) == (result, text)


@pytest.mark.parametrize("setup", games.get_game("janggi").setups)
def test_a_record_of_ours_is_written_with_headers(setup: str) -> None:
    start = games.get_game("janggi").position(setup=setup).fen()
    tags = {"White": "왜가리", "Black": "?", "Date": "2026.03.01", "TimeControl": "600+5"}
    record = Record("janggi", start, ["i4h4", "e9e9"], tags, "1-0", ending="bikjang 40-38.5")
    [again] = gib.loads(gib.dumps([record]))
    assert isinstance(again, gib.GibRecord)
    assert (again.start_fen, again.moves, again.result) == (start, record.moves, "1-0")
    assert (again.headers["초대국자"], again.headers["한대국자"]) == ("왜가리", "미상")
    assert (again.headers["대국일자"], again.headers["대국결과"]) == ("2026-03-01", "초 점수승")
    assert again.problems == []
    assert gib.pgn_headers(again.headers)["Date"] == "2026.03.01"


@pytest.mark.parametrize("side", "wb")
def test_any_position_is_written_as_a_board(side: str) -> None:
    fen = f"4k4/9/3a1P3/9/2r6/9/9/4C4/3K5/8R {side} - - 0 1"
    move = games.get_game("janggi").position(fen).legal_moves()[0]
    [again] = gib.loads(gib.dumps([Record("janggi", fen, [move])]))
    assert (again.start_fen, again.moves, again.problems) == (fen, [move], [])
    assert ("한 접장기" if side == "b" else "초 접장기") in again.headers["판"]


@pytest.mark.parametrize(
    "text", ["차/마", "차마상사1사상마차차" + "/" * 9, "용" + "/" * 9, "/" * 9]
)
def test_a_board_that_cannot_be_read_is_told(text: str) -> None:
    record = read(f'[판 "{text}"]\n\n1. 79졸78\n')
    assert "is not a position" in str(record.problems[0])


def test_characters_that_cp949_has_not_do_not_stop_writing() -> None:
    start = games.get_game("janggi").start_fen
    data = gib.dumps([Record("janggi", start, [], {"White": "Zoë 🐉"})])
    assert '[초대국자 "Zo? ?"]'.encode("cp949") in data


@pytest.mark.parametrize(
    "data", [b"", b"\xff\x1a", b"hello", b"[", bytes(range(256)), b"1. \n2. {"]
)
def test_rubbish_never_raises(data: bytes) -> None:
    assert all(record.moves == [] for record in gib.loads(data))
