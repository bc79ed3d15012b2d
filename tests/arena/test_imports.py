"""Records of files in the database: replayed, told where they are wrong, and exported again."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import chess.pgn
import pytest

from arena.cli import run_command
from arena.export import export_gib, export_pgn
from arena.imports import Imported, import_files
from arena.store import Recorder, Store, queries
from games import pgn
from games.janggi import gib
from tests.arena.recorded import new_run, play
from tests.games.janggi_data import records

CHESS = """\
[Event "A match"]
[Site "Home"]
[Date "2024.02.29"]
[Round "3.1"]
[White "Ann"]
[Black "Bo"]
[Result "1-0"]
[TimeControl "60+1"]
[WhiteElo "2000"]

1. e4 { [%clk 0:01:00] } e5 { [%clk 0:01:00] } 2. Qh5 { [%clk 0:00:51] an attack } Nc6
{ [%clk 0:00:58] } 3. Bc4 { [%clk 0:00:50] } Nf6?? { [%clk 0:00:57] } 4. Qxf7# 1-0

[Event "A match"]
[White "Bo"]
[Black "Ann"]
[Result "0-1"]
[Termination "Time forfeit"]

1. d4 d5 0-1

[White "Ann"]
[Black "?"]

1. c4 *
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"{tmp_path}/arena.db") as opened:
        yield opened


def bring(store: Store, *paths: Path) -> tuple[Imported, list[str]]:
    told: list[str] = []
    return import_files(store, paths, told.append), told


def file(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def exported(store: Store, run_id: int) -> str:
    out = io.StringIO()
    export_pgn(store, run_id, out)
    return out.getvalue()


def test_chess_games_become_a_finished_run(store: Store, tmp_path: Path) -> None:
    done, told = bring(store, file(tmp_path / "match.pgn", CHESS))
    assert (told, done.read, done.cut, done.skipped) == ([], 3, 0, 0)
    [(run_id, game, games, players)] = done.runs
    assert (game, games, players) == ("chess", 3, 3)
    snapshot = queries.run_snapshot(store, run_id)
    assert (snapshot["run"]["name"], snapshot["run"]["status"]) == ("match", "finished")
    assert snapshot["run"]["config"]["kind"] == "imported"
    assert [agent["name"] for agent in snapshot["agents"]] == ["Ann", "Bo", "Black"]
    assert [game["result"] for game in snapshot["games"]] == ["1-0", "0-1", "*"]
    assert [(game["termination"], game["reason"]) for game in snapshot["games"]] == [
        ("normal", "checkmate"),
        ("timeout", ""),
        (None, ""),
    ]
    assert snapshot["games"][0]["round"] == 3
    # A game without a result counts for nobody.
    assert [(row["name"], row["score"], row["played"]) for row in snapshot["standings"]] == [
        ("Ann", 2, 2),
        ("Black", 0, 0),
        ("Bo", 0, 2),
    ]
    detail = queries.game_detail(store, run_id, 1)
    assert [move["notation"] for move in detail["moves"]][-1] == "Qxf7#"
    assert [move["elapsed_s"] for move in detail["moves"]] == [None, None, 10, 3, 2, 2, None]
    assert detail["moves"][2]["thoughts"] == "an attack"
    assert detail["game"]["fen"] == detail["moves"][-1]["fen"]


def test_what_is_imported_is_exported_with_its_own_headers(store: Store, tmp_path: Path) -> None:
    done, _ = bring(store, file(tmp_path / "match.pgn", CHESS))
    text = exported(store, done.runs[0][0])
    before, after = pgn.loads(CHESS), pgn.loads(text)
    assert after.problems == []
    for old, new in zip(before, after, strict=True):
        assert (new.moves, new.result, new.start_fen) == (old.moves, old.result, old.start_fen)
        assert new.headers.items() >= old.headers.items()
    assert [note.clock_s for note in after[0].notes.values()][:6] == [60, 60, 51, 58, 50, 57]
    stream = io.StringIO(text)
    assert [chess.pgn.read_game(stream).errors for _ in before] == [[]] * 3  # type: ignore[union-attr]


def test_games_that_were_imported_before_are_left_out(store: Store, tmp_path: Path) -> None:
    path = file(tmp_path / "match.pgn", CHESS)
    done, _ = bring(store, path)
    twice, told = bring(store, path, file(tmp_path / "again.pgn", exported(store, done.runs[0][0])))
    assert (twice.read, twice.known, twice.runs, told) == (6, 6, [], [])
    more, _ = bring(store, file(tmp_path / "more.pgn", CHESS + "\n1. e4 e5 *\n"))
    assert (more.read, more.known) == (4, 3)
    assert [count for _, _, count, _ in more.runs] == [1]


def test_games_of_both_kinds_become_two_runs(store: Store, tmp_path: Path) -> None:
    janggi = '[Variant "Janggi"]\n[RuleSet "kakao"]\n[White "Ann"]\n[Black "Ann"]\n\n1. Pa5 *\n'
    done, told = bring(store, file(tmp_path / "both.pgn", CHESS + "\n" + janggi))
    assert told == []
    assert sorted(game for _, game, _, _ in done.runs) == ["chess", "janggi"]
    bring(
        store,
        file(tmp_path / "a.pgn", CHESS + "\n1. d4 *\n"),
        file(tmp_path / "b.pgn", "1. c4 *\n"),
    )
    assert [run["name"] for run in queries.runs(store)] == ["a and others", "both", "both"]
    assert [run["imported"] for run in queries.runs(store)] == [True] * 3
    run_id = next(run_id for run_id, game, _, _ in done.runs if game == "janggi")
    assert [a["name"] for a in queries.run_snapshot(store, run_id)["agents"]] == ["Ann", "Ann 2"]
    assert queries.game_detail(store, run_id, 1)["game"]["spec"]["rules"] == "kakao"


def test_games_with_damage_keep_what_comes_before_it(store: Store, tmp_path: Path) -> None:
    text = '[White "a"]\n\n1. e4 e5 2. Ke3 1-0\n\n[Variant "Atomic"]\n\n1. e4 *\n\n1. d4 *\n'
    done, told = bring(store, file(tmp_path / "x.pgn", text))
    assert (done.read, done.cut, done.skipped) == (2, 1, 1)
    assert "x.pgn: game 1, ply 3, 'Ke3': is not a legal move here" in told[0]
    assert "x.pgn: game 2, 'Atomic'" in told[1]
    game = queries.game_detail(store, done.runs[0][0], 1)["game"]
    assert (game["plies"], game["result"], game["termination"]) == (2, "1-0", "recorded")
    assert game["reason"] == "record cut after 2 plies"


def test_gib_files_of_korean_programs(store: Store, tmp_path: Path) -> None:
    vectors = records("gib")
    paths = [
        file(tmp_path / f"{vector['id']}.gib", base64.b64decode(vector["bytes_b64"]))
        for vector in vectors
    ]
    done, told = bring(store, *paths)
    assert told == []
    assert (done.read, done.cut, done.known) == (20, 0, 1)
    # Two of the files hold the same game.
    wanted = [g for vector in vectors for g in vector["games"] if vector["id"] != "gib-18"]
    [(run_id, _, _, players)] = done.runs
    assert players == 2
    snapshot = queries.run_snapshot(store, run_id)
    assert snapshot["agents"][0]["name"] == "가나 9단"
    names = {"cho": 0, "han": 1}
    assert [game["winner"] for game in snapshot["games"]] == [
        names.get(game["winner"]) for game in wanted
    ]
    out = io.BytesIO()
    assert export_gib(store, run_id, out) == len(wanted)
    again = gib.loads(out.getvalue())
    assert again.problems == []
    assert [(r.moves, r.headers) for r in again] == [(g["moves"], g["headers"]) for g in wanted]
    read = pgn.loads(exported(store, run_id))
    assert read.problems == []
    assert [(r.start_fen, r.moves) for r in read] == [(g["start_fen"], g["moves"]) for g in wanted]
    assert read[0].headers["White"] == "가나 9단"


def test_gib_games_that_no_rule_set_allows_are_cut(store: Store, tmp_path: Path) -> None:
    """Every rule set ends a game with two passes; not every server did."""
    text = "1. 한수쉼 2. 한수쉼 3. 79졸78\n"
    done, told = bring(store, file(tmp_path / "a.gib", text.encode("cp949")))
    assert (done.read, done.cut) == (1, 1)
    assert "ply 3, 'i4h4': is not legal in any rule set; 1 ply is left out." in told[-1]


@pytest.mark.parametrize("game", ["chess", "janggi"])
def test_a_tournament_of_ours_comes_back_as_it_was(store: Store, tmp_path: Path, game: str) -> None:
    run_id = new_run(store, game)
    store.claim_run(run_id)
    with Recorder(store, [run_id]) as recorder:
        for spec in store.pending_specs(run_id):
            for event in play(replace(spec, run_id=run_id)):
                recorder.put(event)
    done, told = bring(store, file(tmp_path / "ours.pgn", exported(store, run_id)))
    assert told == []
    [(copy, _, games, _)] = done.runs
    assert games == 6
    for number in range(1, 7):
        old = queries.game_detail(store, run_id, number)
        new = queries.game_detail(store, copy, number)
        for column in ("result", "winner", "termination", "reason", "points", "fen", "plies"):
            assert new["game"][column] == old["game"][column]
        for column in ("uci", "fen", "key", "side", "notation", "elapsed_s", "prompt_tokens"):
            assert [m[column] for m in new["moves"]] == [m[column] for m in old["moves"]]
        assert new["moves"][0]["logprob"] == pytest.approx(old["moves"][0]["logprob"], abs=1e-4)
    assert exported(store, copy) == exported(store, run_id)
    ranks = [[row["score"] for row in queries.standings(store, id)] for id in (run_id, copy)]
    assert ranks[0] == ranks[1]


def test_a_run_has_no_more_games_and_players_than_a_page_shows(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena.imports.MAX_AGENTS", 4)
    monkeypatch.setattr("arena.imports.GAMES_PER_RUN", 3)
    text = "".join(f'[White "{n}"]\n[Black "x"]\n\n1. e4 *\n\n' for n in range(5))
    text += "".join(f'[White "4"]\n[Black "x"]\n[Round "{n}"]\n\n1. e4 *\n\n' for n in range(3))
    done, _ = bring(store, file(tmp_path / "a.pgn", text))
    assert [(count, players) for _, _, count, players in done.runs] == [(3, 4), (3, 3), (2, 2)]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run_command(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = ("--database", str(tmp_path / "new" / "arena.db"))
    path = file(tmp_path / "match.pgn", CHESS + "\n1. e5 *\n")
    code, out, err = run(capsys, "import", str(path), "--name", "Cup", *database)
    assert code == 0
    assert out.startswith(
        "Run 1: 4 games of chess, 4 players\n4 games read, 1 of them only in part\n"
    )
    assert f"arena serve --database {database[1]}" in out
    assert err.startswith("arena: ")
    assert "match.pgn: game 4, ply 1, 'e5'" in err
    assert run(capsys, "import", str(path), *database)[:2] == (
        0,
        "4 games read, 1 of them only in part, 4 already there and left out\n",
    )
    assert "Ann" in run(capsys, "standings", *database)[1]
    code, _, err = run(capsys, "resume", "1", *database)
    assert (code, err) == (2, "arena: Run 1 was imported: there is nothing to play.\n")
    code, _, err = run(capsys, "export", "--format", "gib", *database)
    assert (code, "GIB is a format of janggi" in err) == (2, True)


def test_the_command_writes_gib_by_the_name_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = ("--database", str(tmp_path / "arena.db"))
    vector = records("gib")[0]
    data = base64.b64decode(vector["bytes_b64"])
    run(capsys, "import", str(file(tmp_path / "a.gib", data)), *database)
    output = tmp_path / "b.gib"
    assert run(capsys, "export", "-o", str(output), *database)[0] == 0
    [record] = gib.loads(output.read_bytes())
    assert record.moves == vector["games"][0]["moves"]


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.fen", "4k3/8/8/8/8/8/8/4K2R w K - 0 1\n", "holds positions, not games"),
        ("a.txt", "4k3/8/8/8/8/8/8/4K2R w K - 0 1\n", "holds positions, not games"),
        ("a.pgn", "", "holds no game in PGN or GIB"),
        ("a.pgn", '[Variant "Atomic"]\n\n1. e4 *\n', "is not a game that can be read"),
        (".", None, "cannot be read: Is a directory"),
        ("no.pgn", None, "cannot be read: No such file"),
    ],
)
def test_files_of_which_nothing_can_be_read(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    text: str | None,
    sentence: str,
) -> None:
    path = tmp_path / name if text is None else file(tmp_path / name, text)
    code, _, err = run(capsys, "import", str(path), "--database", str(tmp_path / "arena.db"))
    assert code == 2
    assert sentence in err


def test_different_games_without_a_readable_move_are_not_called_imported_before(
    store: Store, tmp_path: Path
) -> None:
    text = "".join(f'[White "a"]\n[Black "b"]\n\n1. e4{n}zz e5 *\n\n' for n in range(3))
    path = file(tmp_path / "odd.pgn", text)
    done, _ = bring(store, path)
    assert (done.read, done.cut, done.known) == (3, 3, 0)
    assert bring(store, path)[0].known == 3


def test_clocks_of_games_without_a_time_control_are_exported_again(
    store: Store, tmp_path: Path
) -> None:
    text = "1. e4 {[%clk 0:01:00] hmm} e5 {[%clk 0:00:59.5]} *\n"
    done, _ = bring(store, file(tmp_path / "clocks.pgn", text))
    out = exported(store, done.runs[0][0])
    assert "1. e4 {[%clk 0:01:00.000] hmm} 1... e5 {[%clk 0:00:59.500]} *" in " ".join(out.split())


@pytest.mark.parametrize(
    "text", ["I played e4 yesterday.", "<!DOCTYPE html>\n<p>Chess 2.0</p>\n<p>e4</p>\n"]
)
def test_a_text_or_a_page_is_not_imported_as_a_game(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = file(tmp_path / "page.html", text)
    assert run_command(["import", str(path), "--database", str(tmp_path / "a.db")]) == 2
    assert "holds no game" in capsys.readouterr().err


def test_four_gib_games_with_one_bad_byte_are_four_games_and_one_problem(
    store: Store, tmp_path: Path
) -> None:
    head = '[초대국자 "가{}"]\n[한대국자 "나"]\n[초차림 "마상상마"]\n[한차림 "마상상마"]\n\n'
    text = "".join(head.format(n) + f"1. 79졸78 {{말 {n} X 끝}} 2. 41병42\n\n" for n in range(4))
    path = file(tmp_path / "bad.gib", text.encode().replace(b"2 X", b"2 \xc0"))
    done, told = bring(store, path)
    assert (done.read, done.cut, done.known, len(told)) == (4, 0, 0, 1)
    assert "game 3" in told[0]
