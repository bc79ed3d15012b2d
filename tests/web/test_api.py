"""The JSON answers and the static files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import games
from arena.store import DatabaseError
from tests.web.conftest import begin
from tests.web.played import PlayedRun
from web.app import create_app


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api") / "arena.db"


@pytest.fixture(scope="module")
def run(database: Path) -> Iterator[PlayedRun]:
    run = begin(PlayedRun(database, game="janggi", agents=3, max_plies=30))
    yield run
    run.close()


@pytest.fixture(scope="module")
def client(run: PlayedRun, database: Path) -> TestClient:
    static = database.parent / "static"
    (static / "assets").mkdir(parents=True)
    (static / "index.html").write_text("<title>Arena</title>")
    (static / "assets" / "index-1a2b.js").write_text("1")
    (static / "favicon.svg").write_text("<svg/>")
    return TestClient(create_app(str(database), static=static))


def test_lists_runs(client: TestClient, run: PlayedRun) -> None:
    (listed,) = client.get("/api/runs").json()["runs"]
    assert listed["id"] == run.id
    assert listed["status"] == "running"
    assert (listed["agents"], listed["games"], listed["games_finished"]) == (3, 6, 1)
    assert (listed["title"], listed["imported"]) == ("Janggi", False)


def test_a_run_whose_game_is_not_installed_is_listed_and_says_so(
    client: TestClient, run: PlayedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> games.Game:
        raise games.UnknownGame(f"There is no game {name!r}; choose one of chess.")

    monkeypatch.setattr(games, "get_game", missing)
    (listed,) = client.get("/api/runs").json()["runs"]
    assert listed["title"] == "janggi"
    answer = client.get(f"/api/runs/{run.id}")
    assert answer.status_code == 404
    assert "not installed here" in answer.json()["error"]


def test_snapshot_has_all_that_the_page_draws(client: TestClient, run: PlayedRun) -> None:
    snapshot = client.get(f"/api/runs/{run.id}").json()
    assert snapshot["rules"] == json.loads(json.dumps(games.get_game("janggi").to_dict()))
    assert [game["status"] for game in snapshot["games"]] == [
        "finished",
        "playing",
        "playing",
        "pending",
        "pending",
        "pending",
    ]
    assert snapshot["games"][1]["fen"] == run.positions[2].fen()
    assert len(snapshot["standings"]) == 3
    assert [sample["stats"]["requests_finished"] for sample in snapshot["samples"]]
    assert snapshot["seq"] > 0


def test_game_has_moves_with_points_and_probabilities(client: TestClient, run: PlayedRun) -> None:
    detail = client.get(f"/api/runs/{run.id}/games/2").json()
    assert [move["uci"] for move in detail["moves"]] == run.positions[2].moves()
    assert detail["game"]["start_points"] == [72.0, 73.5]
    last = detail["moves"][-1]
    assert last["points"] == list(run.positions[2].adjudicate().points or ())
    assert last["distribution"][last["uci"]] == pytest.approx(2.718281828 ** last["logprob"])


def test_chess_has_no_points(played: Callable[..., PlayedRun], tmp_path: Path) -> None:
    run = played(game="chess", agents=2)
    run.start(1)
    run.play(1, 2)
    client = TestClient(create_app(str(tmp_path / "arena.db")))
    detail = client.get(f"/api/runs/{run.id}/games/1").json()
    assert detail["game"]["start_points"] is None
    assert detail["moves"][1]["points"] is None


def test_game_after_a_ply_has_only_later_moves(client: TestClient, run: PlayedRun) -> None:
    detail = client.get(f"/api/runs/{run.id}/games/2?after=2").json()
    assert [move["ply"] for move in detail["moves"]] == [3, 4]


def test_prometheus_reads_the_newest_sample_of_running_tournaments(
    client: TestClient, run: PlayedRun
) -> None:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = [line for line in answer.text.splitlines() if "prefix_hit_rate{" in line]
    assert [line.split()[-1] for line in lines] == ["0.75"]
    assert f'run="{run.id}"' in lines[0]


def test_engine_samples(client: TestClient, run: PlayedRun) -> None:
    (sample,) = client.get(f"/api/runs/{run.id}/engine").json()["samples"]
    assert sample["stats"]["prefix_hit_rate"] == 0.75
    later = client.get(f"/api/runs/{run.id}/engine?after={sample['at']}").json()
    assert later == {"samples": []}


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/api/runs/99", 404, "There is no run 99 in the database."),
        ("/api/runs/1/games/99", 404, "Run 1 has no game 99."),
        ("/api/runs/99/engine", 404, "There is no run 99 in the database."),
        ("/api/runs/99/events", 404, "There is no run 99 in the database."),
        ("/api/runs/x", 400, "run_id: "),
        ("/api/runs/0", 400, "run_id: "),
        ("/api/runs/1/events?after=-1", 400, "after: "),
        ("/api/nothing", 404, "There is nothing at /api/nothing."),
        ("/assets/gone.js", 404, "There is nothing at /assets/gone.js."),
    ],
)
def test_errors_are_sentences(client: TestClient, path: str, status: int, says: str) -> None:
    answer = client.get(path)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(says)


@pytest.mark.parametrize("path", ["/", "/runs/1", "/runs/1/games/2", "/runs/1/standings"])
def test_every_page_address_answers_with_the_page(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert "<title>Arena</title>" in answer.text
    assert answer.headers["cache-control"] == "no-cache"
    assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_hashed_assets_are_kept_for_good_and_others_are_asked_for(client: TestClient) -> None:
    assert "immutable" in client.get("/assets/index-1a2b.js").headers["cache-control"]
    assert client.get("/favicon.svg").headers["cache-control"] == "no-cache"
    page = client.get("/")
    again = client.get("/", headers={"if-none-match": page.headers["etag"]})
    assert again.status_code == 304
    assert again.headers["cache-control"] == "no-cache"


def test_no_file_outside_the_front_end_is_served(client: TestClient) -> None:
    assert "SQLite" not in client.get("/..%2Farena.db").text
    assert "SQLite" not in client.get("/assets/..%2F..%2Farena.db").text


def test_without_a_built_front_end_the_answer_says_how_to_build(
    run: PlayedRun, database: Path
) -> None:
    client = TestClient(create_app(str(database), static=database.parent / "none"))
    answer = client.get("/")
    assert answer.status_code == 503
    assert "make ui" in answer.json()["error"]
    assert client.get("/api/runs").status_code == 200


def test_a_database_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"no database at .*gone\.db"):
        create_app(str(tmp_path / "gone.db"))
