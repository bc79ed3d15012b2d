"""Runs that are killed or interrupted, as processes of their own: what they leave is continued."""

import signal
import subprocess
from pathlib import Path

import pytest

from arena.store import Store, queries
from tests.arena.hosted import (
    STARTUP_S,
    arena,
    descendants,
    outlive,
    record_of,
    start_arena,
    wait_for_moves,
)

TOURNAMENT = [
    *("--game", "chess", "--agents", "alphabeta,greedy,random", "--max-plies", "60"),
    *("--cycles", "2", "--no-web"),
]
pytestmark = pytest.mark.slow


def run(runtime: str, database: str, cwd: Path) -> subprocess.Popen[str]:
    arguments = [*TOURNAMENT, "--runtime", runtime, "--database", database]
    return start_arena("run", *arguments, cwd=cwd)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[object], list[object]]:
    """Moves and results of the tournament when nothing happens to it."""
    directory = tmp_path_factory.mktemp("undisturbed")
    process = run("local", "arena.db", directory)
    _, err = process.communicate(timeout=STARTUP_S)
    assert (process.returncode, err) == (0, "")
    with Store.open(str(directory / "arena.db")) as store:
        return record_of(store, 1)


def assert_complete(path: Path, undisturbed: tuple[list[object], list[object]]) -> None:
    with Store.open(str(path)) as store:
        assert record_of(store, 1) == undisturbed
        assert [r["status"] for r in queries.runs(store)] == ["finished"]
        events = queries.events_after(store, 1, 0, limit=100_000)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    moves = [(e["payload"]["number"], e["payload"]["ply"]) for e in events if e["kind"] == "move"]
    assert len(moves) == len(set(moves)) == len(undisturbed[0])
    ended = [e["payload"]["number"] for e in events if e["kind"] == "game_finished"]
    assert sorted(ended) == list(range(1, len(undisturbed[1]) + 1))


@pytest.mark.parametrize("runtime", ["local", "ray"])
def test_killed_twice_and_resumed_equals_undisturbed(
    runtime: str, tmp_path: Path, undisturbed: tuple[list[object], list[object]]
) -> None:
    path = tmp_path / "arena.db"
    process = run(runtime, "arena.db", tmp_path)
    wait_for_moves(path, 25, process)
    children = descendants(process.pid)
    process.kill()
    process.communicate()
    where = ["--database", "arena.db", "--no-web"]
    with Store.open(str(path)) as store:
        assert [r["status"] for r in queries.runs(store)] == ["interrupted"]
        recorded = len(record_of(store, 1)[0])
    process = start_arena("resume", *where, "--runtime", runtime, cwd=tmp_path)
    wait_for_moves(path, recorded + 100, process)
    process.kill()
    process.communicate()
    done = arena("resume", "1", *where, "--runtime", "local", "--concurrency", "2", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "12 of 12 games, finished" in done.stdout
    assert_complete(path, undisturbed)
    # Nothing that the killed driver started outlives it for long.
    assert not outlive(children, 60)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("runtime", ["local", "ray"])
def test_interrupted_and_resumed_equals_undisturbed(
    runtime: str,
    stop: signal.Signals,
    tmp_path: Path,
    undisturbed: tuple[list[object], list[object]],
) -> None:
    process = run(runtime, "arena.db", tmp_path)
    wait_for_moves(tmp_path / "arena.db", 40, process)
    children = descendants(process.pid)
    process.send_signal(stop)
    _, err = process.communicate(timeout=STARTUP_S)
    assert process.returncode == 130
    assert err == "arena: Interrupted. To go on: arena resume 1 --database arena.db\n"
    assert not outlive(children, 60)
    with Store.open(str(tmp_path / "arena.db")) as store:
        assert [r["status"] for r in queries.runs(store)] == ["interrupted"]
    done = arena(
        *("resume", "1", "--database", "arena.db", "--no-web", "--runtime", "local"), cwd=tmp_path
    )
    assert done.returncode == 0
    assert_complete(tmp_path / "arena.db", undisturbed)


def test_language_models_killed_and_resumed_with_other_concurrency_equal_undisturbed(
    tmp_path: Path,
) -> None:
    """With `engine.deterministic`, which games share a step does not show in the moves."""
    played = [
        *("run", "--game", "chess", "--agents", "Heron,Dragon,Falcon", "--max-plies", "16"),
        *("--model", "tiny", "--engine-deterministic", "true", "--runtime", "local", "--no-web"),
    ]
    done = arena(*played, "--concurrency", "6", "--database", "whole.db", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    process = start_arena(*played, "--concurrency", "4", "--database", "killed.db", cwd=tmp_path)
    wait_for_moves(tmp_path / "killed.db", 20, process)
    process.kill()
    process.communicate()
    where = ["--database", "killed.db", "--runtime", "local", "--no-web"]
    done = arena("resume", "1", *where, "--concurrency", "2", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    records = []
    for name in ("whole.db", "killed.db"):
        with Store.open(str(tmp_path / name)) as store:
            records.append(record_of(store, 1))
    assert records[0] == records[1]


def test_interrupted_before_the_first_game(tmp_path: Path) -> None:
    process = start_arena("run", *TOURNAMENT[:-1], "--port", "0", cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("Watch at")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=STARTUP_S)
    assert process.returncode == 130
    assert err == "arena: Interrupted. No game was started.\n"
    assert "resume" not in err


def test_a_run_that_is_being_played_is_not_taken_over(tmp_path: Path) -> None:
    process = run("local", "arena.db", tmp_path)
    wait_for_moves(tmp_path / "arena.db", 10, process)
    process.send_signal(signal.SIGSTOP)  # alive, and not at its end before the other looks
    done = arena("resume", "1", "--database", "arena.db", "--no-web", cwd=tmp_path)
    process.kill()
    process.communicate()
    assert done.returncode == 1
    assert f"process {process.pid}" in done.stderr
    assert done.stderr.count("\n") == 1
