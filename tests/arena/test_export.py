"""PGN: what is written is read back strictly, without a warning, and says what was recorded."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import chess.pgn
import pytest

import games
from arena.export import export_pgn
from arena.store import Recorder, Store, UnknownRun, queries
from arena.types import GameResult, GameStarted, MoveChoice, MoveRecord, Termination
from tests.arena.recorded import new_run, play


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"{tmp_path}/arena.db") as opened:
        yield opened


def played(store: Store, game: str = "chess", last: int = 6, **changes: object) -> int:
    run_id = new_run(store, game, **changes)
    store.claim_run(run_id)
    with Recorder(store, [run_id]) as recorder:
        for spec in store.pending_specs(run_id)[:last]:
            for event in play(replace(spec, run_id=run_id)):
                recorder.put(event)
    return run_id


def text(store: Store, run_id: int, number: int | None = None) -> str:
    out = io.StringIO()
    export_pgn(store, run_id, out, number)
    return out.getvalue()


def read(pgn: str, caplog: pytest.LogCaptureFixture) -> list[chess.pgn.Game]:
    stream = io.StringIO(pgn)
    with caplog.at_level(logging.DEBUG, logger="chess"):
        found = list(iter(lambda: chess.pgn.read_game(stream), None))
    assert caplog.records == []
    assert [game.errors for game in found] == [[]] * len(found)
    return found


def test_chess_is_read_back(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    run_id = played(store)
    pgn = text(store, run_id)
    found = read(pgn, caplog)
    assert len(found) == 6
    assert all(len(line) < 80 for line in pgn.splitlines())
    for number, game in enumerate(found, 1):
        detail = queries.game_detail(store, run_id, number)
        assert [m.uci() for m in game.mainline_moves()] == [m["uci"] for m in detail["moves"]]
        assert game.end().board().fen() == detail["game"]["fen"]
        assert game.headers["Result"] == detail["game"]["result"]
        assert [node.emt() for node in game.mainline()] == [0.25] * 12
        assert "[%prob 0.606531]" in game.next().comment  # type: ignore[union-attr]
        assert game.end().comment.endswith("[%end ply_limit]")
    headers = dict(found[1].headers)
    assert re.fullmatch(r"\d{4}\.\d\d\.\d\d", headers.pop("Date"))
    assert headers == {
        "Event": "A test",
        "Site": "?",
        "Round": "1",
        "White": "Pebble",
        "Black": "greedy",
        "Result": "1/2-1/2",
        "Termination": "adjudication",
        "WhiteType": "program",
        "WhiteAgent": "llm mode=choose strength=beginner temperature=1.0",
        "WhiteModel": "tiny",
        "BlackType": "program",
        "BlackAgent": "greedy",
    }


def test_chess_from_another_position_with_the_second_side_to_move(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fen = "4k3/P6p/8/8/8/8/p6P/4K3 b - - 3 40"
    run_id = played(store, start_fen=fen)
    pgn = text(store, run_id, 1)
    [game] = read(pgn, caplog)
    assert (game.headers["SetUp"], game.headers["FEN"]) == ("1", fen)
    assert pgn.split("\n\n")[1].startswith("40... ")
    assert len(list(game.mainline_moves())) == 12


def test_only_finished_games_unless_one_is_asked_for(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = played(store, last=1)
    _, *moves = list(play(store.pending_specs(run_id)[0]))[:4]
    with Recorder(store, [run_id]) as recorder:
        recorder.put(GameStarted(run_id, 2))
        for move in moves:
            recorder.put(move)
    assert len(read(text(store, run_id), caplog)) == 1
    [game] = read(text(store, run_id, 2), caplog)
    assert game.headers["Result"] == "*"
    assert game.headers["Termination"] == "unterminated"
    assert len(list(game.mainline_moves())) == 3
    with pytest.raises(UnknownRun):
        text(store, run_id, 99)


@pytest.mark.parametrize(
    ("termination", "tag"),
    [
        (Termination.ILLEGAL_MOVE, "rules infraction"),
        (Termination.TIMEOUT, "time forfeit"),
        (Termination.CRASH, "abandoned"),
    ],
)
def test_lost_without_a_move_and_with_a_strange_reason(
    store: Store, caplog: pytest.LogCaptureFixture, termination: Termination, tag: str
) -> None:
    run_id = played(store, last=0)
    start = queries.run_snapshot(store, run_id)["games"][0]["fen"]
    reason = "ValueError: {'a': 1}\n; %x [White \"?\"] " + "long " * 40
    with Recorder(store, [run_id]) as recorder:
        recorder.put(GameStarted(run_id, 1))
        recorder.put(GameResult(run_id, 1, 1, termination, reason, False, None, 0, start))
    pgn = text(store, run_id)
    [game] = read(pgn, caplog)
    assert (game.headers["Result"], game.headers["Termination"]) == ("0-1", tag)
    assert list(game.mainline_moves()) == []


def test_quotes_in_names(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    agents = [{"type": "random", "name": name} for name in ('Ann "the\\rock" Lee', "용\n2")]
    specs = [
        replace(spec, agents=tuple(spec.agents[0].model_copy(update=a) for a in agents))
        for spec in store.pending_specs(played(store, last=0))[:1]
    ]
    run_id = store.create_run({}, "A [strange] name", "chess", agents, specs)
    pgn = text(store, run_id, 1)
    [game] = read(pgn, caplog)
    # As the standard says (7); python-chess leaves the backslashes where they are.
    assert '[White "Ann \\"the\\\\rock\\" Lee"]\n' in pgn
    assert game.headers["Black"] == "용 2"


def test_janggi(store: Store) -> None:
    run_id = played(store, "janggi", setup="NBBN-BNNB", rules="kakao")
    first = text(store, run_id).split("\n\n[")[0]
    tags = dict(re.findall(r'\[(\w+) "(.*)"\]', first))
    start = games.get_game("janggi").position(rules="kakao", setup="NBBN-BNNB").fen()
    assert (tags["Variant"], tags["RuleSet"]) == ("Janggi", "kakao")
    assert (tags["SetUp"], tags["FEN"]) == ("1", start)
    assert (tags["White"], tags["Black"]) == ("Pebble", "random")
    game = queries.game_detail(store, run_id, 1)
    written = re.sub(r"\{[^}]*\}|\d+\.+", "", first.split("\n\n")[1]).split()
    assert written == [move["notation"] for move in game["moves"]] + [game["game"]["result"]]
    points = "{:g}-{:g}".format(*game["game"]["points"])
    assert f"{{[%end ply_limit {points}]}}" in first
    position = games.get_game("janggi").position(tags["FEN"], tags["RuleSet"])
    for san in written[:-1]:
        move = position.parse(san).move
        assert move is not None
        position.push(move)
    assert position.fen() == game["game"]["fen"]


def test_janggi_from_its_usual_start_has_no_fen(store: Store) -> None:
    pgn = text(store, played(store, "janggi", last=1))
    assert '[Variant "Janggi"]' in pgn
    assert "FEN" not in pgn
    assert '[RuleSet "janggi"]' in pgn


def test_long_game(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Readers that recurse over moves overflow on a game of 500 moves."""
    run_id = played(store, last=0)
    position = games.get_game("chess").position()
    with Recorder(store, [run_id]) as recorder:
        recorder.put(GameStarted(run_id, 1))
        for ply in range(1000):
            uci = ("g1f3", "g8f6", "f3g1", "f6g8")[ply % 4]
            san = position.notation(uci, "san")
            position.push(uci)
            choice = MoveChoice(uci)
            recorder.put(
                MoveRecord(run_id, 1, ply, ply % 2, choice, san, position.fen(), "key", 61.5)
            )
    [game] = read(text(store, run_id, 1), caplog)
    assert len(list(game.mainline_moves())) == 1000
    assert game.next().comment == "[%emt 0:01:01.500]"  # type: ignore[union-attr]
