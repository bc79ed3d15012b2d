"""A game from another package plays a tournament: it needs an entry point and nothing else."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import games
from games import GameError

ROOT = Path(__file__).parents[2]
LINE = "[arena.games]\nconnect4 = tests.games.connect_four:GAME\n"


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which the game is installed."""
    info = tmp_path / "site" / "connect4-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: connect4\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(LINE)
    path = os.pathsep.join([str(ROOT), str(tmp_path / "site")])
    return os.environ | {"PYTHONPATH": path, "HOME": str(tmp_path)}


def arena(environment: dict[str, str], tmp_path: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "from arena.cli import main; main()", *arguments],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_third_game_plays_a_tournament_of_models_and_bots(
    installed: dict[str, str], tmp_path: Path
) -> None:
    database = f"sqlite:///{tmp_path}/arena.db"
    run = ["run", "--game", "connect4", "--agents", "random,greedy,alphabeta,Dragon"]
    out = arena(installed, tmp_path, *run, "--runtime", "local", "--no-web", "--database", database)
    assert "Dragon" in out and "alphabeta" in out
    pgn = arena(installed, tmp_path, "export", "1", "--database", database)
    assert pgn.count('[Variant "Connect4"]') == 12
    assert "four_in_a_row" in pgn


def test_an_installed_game_is_listed_and_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "connect4", "tests.games.connect_four:GAME")
    assert games.list_games() == ["chess", "janggi", "connect4"]
    assert games.get_game("connect4").title == "Connect four"
    assert games.get_game("connect4").position().parse("I drop at d1").move == "d1"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("broken", "tests.games.connect_four:NOTHING", "cannot be loaded"),
        ("other", "tests.games.connect_four:GAME", "does not give a games.Game named 'other'"),
    ],
)
def test_an_installed_game_that_is_broken_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    offer(monkeypatch, name, value)
    with pytest.raises(GameError, match=message):
        games.get_game(name)


def offer(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    entry = EntryPoint(name, value, games.ENTRY_POINTS)
    monkeypatch.setattr(games, "entry_points", lambda **_: [entry])
    games._load.cache_clear()
