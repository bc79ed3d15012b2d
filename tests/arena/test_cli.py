import os
import re
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import sqlalchemy as sa

from arena.cli import cli, run_command
from arena.config import EngineSettings, TournamentConfig
from arena.flags import given
from arena.store import Store, owner
from arena.store.schema import RunRow
from tests.arena.hosted import STARTUP_S, arena, record_of, start_arena
from tests.engine.conftest import make_checkpoint

BOTS = ["--agents", "random,greedy", "--max-plies", "6", "--runtime", "local", "--no-web"]


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`good`, a random model; `short`, one with a small context; `cut`, one whose weights end early."""
    directory = tmp_path_factory.mktemp("models")
    make_checkpoint(directory / "good", max_position_embeddings=4096)
    make_checkpoint(directory / "short", max_position_embeddings=256)
    weights = make_checkpoint(directory / "cut") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    return directory


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """The one sentence that a command line is refused with."""
    assert run_command(arguments) == code
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert said.err.startswith("arena: ")
    assert said.err.count("\n") == 1
    return said.err


def test_every_setting_has_a_flag_of_its_name() -> None:
    for command in ("run", "batch"):
        flags = {option for p in cli.commands[command].params for option in p.opts}
        for name in TournamentConfig.model_fields:
            if name != "engine":
                assert "--" + name.replace("_", "-") in flags
        for name in EngineSettings.model_fields:
            assert "--engine-" + name.replace("_", "-") in flags
        assert all(p.help for p in cli.commands[command].params if isinstance(p, click.Option))


def test_flags_become_settings_of_the_same_name() -> None:
    assert given({"game": "chess", "max_plies": 7, "engine_dtype": "float32", "seed": None}) == {
        "game": "chess",
        "max_plies": 7,
        "engine": {"dtype": "float32"},
    }


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--help"]) == 0
    listed = capsys.readouterr().out
    for command in ("run", "batch", "resume", "serve", "standings", "export"):
        assert re.search(rf"^  {command} ", listed, re.MULTILINE)
    assert run_command(["--version"]) == 0


def test_a_tournament_from_flags_prints_the_crosstable_and_ratings_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["run", *BOTS]) == 0
    out = capsys.readouterr().out
    assert re.search(r"1/2 game \d: \w+ - \w+ (1-0|0-1|1/2-1/2) \(", out)
    assert "Run 1: Janggi, 2 agents (2 of 2 games, finished)" in out
    assert out.index("arena") < out.index("Run 1") < out.index("Ratings")
    ratings = out[out.index("Ratings") :].splitlines()
    assert {line.split()[1] for line in ratings[2:4]} == {"random", "greedy"}
    assert all(": " in note for note in ratings[4:])
    assert Path("runs/arena.db").exists()


def test_flags_override_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("cup.toml").write_text(
        'name = "Cup"\ngame = "chess"\nmax_plies = 2\nagents = ["random", "greedy"]'
    )
    assert (
        run_command(["run", "cup.toml", "--max-plies", "4", *BOTS[4:], "--database", "a.db"]) == 0
    )
    assert "Run 1: Cup (2 of 2 games" in capsys.readouterr().out
    assert run_command(["run", "--config", "cup.toml", *BOTS[4:], "--database", "a.db"]) == 0
    from arena.store import Store

    with Store.open("a.db") as store:
        assert [r.plies for r in record_of(store, 1)[1]] == [4, 4]
        assert [r.plies for r in record_of(store, 2)[1]] == [2, 2]


def test_batch_standings_and_export(capsys: pytest.CaptureFixture[str]) -> None:
    for game in ("chess", "janggi"):
        Path(f"{game}.toml").write_text(f'name = "The {game} cup"\ngame = "{game}"')
    assert run_command(["batch", "chess.toml", "janggi.toml", *BOTS]) == 0
    out = capsys.readouterr().out
    assert "Run 1: The chess cup (2 of 2 games, finished)" in out
    assert "Run 2: The janggi cup (2 of 2 games, finished)" in out
    assert run_command(["standings"]) == 0
    assert "The janggi cup" in capsys.readouterr().out
    assert run_command(["standings", "1"]) == 0
    assert "The chess cup" in capsys.readouterr().out
    assert run_command(["export", "1", "-o", "chess.pgn"]) == 0
    assert "2 games in chess.pgn" in capsys.readouterr().out
    assert Path("chess.pgn").read_text().count("[Event ") == 2
    assert run_command(["export", "--game", "2"]) == 0
    pgn = capsys.readouterr().out
    assert pgn.count("[Event ") == 1
    assert '[Variant "Janggi"]' in pgn


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "--game", "go"], "chess"),
        (["run", "--agents", "1"], "at least 2"),
        (["run", "--agents", ""], "agent"),
        (["run", "--agents", "random,Zebra"], "Zebra"),
        (["run", "--max-plies", "x"], "--max-plies"),
        (["run", "--model", "./nowhere", "--agents", "2"], "./nowhere"),
        (["run", "missing.toml"], "missing.toml"),
        (["run", "a.toml", "--config", "b.toml"], "twice"),
        (["batch"], "FILES"),
        (["run", "--wrong"], "--wrong"),
        (["fly"], "fly"),
        (["standings"], "no database"),
        (["resume"], "no database"),
        (["serve"], "no database"),
        (["export"], "no database"),
    ],
)
def test_wrong_input_is_refused_in_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in refused(capsys, *arguments)
    assert not Path("runs").exists()


def test_malformed_toml_names_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("cup.toml").write_text('game = "chess"\nagents = [\n"random" "greedy"]\n')
    assert "cup.toml, line 3" in refused(capsys, "run", "cup.toml")


def test_unknown_runs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", *BOTS]) == 0
    capsys.readouterr()
    assert "no run 7" in refused(capsys, "standings", "7")
    assert "no run 7" in refused(capsys, "resume", "7")
    assert "no unfinished run" in refused(capsys, "resume")
    assert "no game 9" in refused(capsys, "export", "--game", "9")
    assert "cannot be written" in refused(capsys, "export", "-o", "nowhere/a.pgn")


def test_resume_said_there_was_no_unfinished_run_while_one_was_played(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["run", *BOTS]) == 0
    capsys.readouterr()
    with Store.open("runs/arena.db") as store, store.write() as session:
        session.execute(
            sa.update(RunRow).values(status="running", owner=owner.owner_of(os.getppid()))
        )
    message = refused(capsys, "resume", code=1)
    assert f"Run 1 is being played by process {os.getppid()}" in message


def test_databases_that_cannot_be_used_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("text.db").write_text("This is a letter, and no database at all.\n" * 100)
    refused(capsys, "run", *BOTS, "--database", "text.db")
    assert run_command(["run", *BOTS, "--database", "corrupt.db"]) == 0
    capsys.readouterr()
    whole = Path("corrupt.db").read_bytes()
    Path("corrupt.db").write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))
    refused(capsys, "run", *BOTS, "--database", "corrupt.db")
    refused(capsys, "run", *BOTS, "--database", "/proc/arena.db")


def test_tournaments_that_share_an_engine_have_to_agree(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.toml").write_text('runtime = "local"\nagents = ["random", "greedy"]')
    Path("b.toml").write_text('runtime = "ray"\nagents = ["random", "greedy"]')
    assert "runtime" in refused(capsys, "batch", "a.toml", "b.toml", "--no-web")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["short", "cut"])
def test_models_that_cannot_play_are_refused(
    name: str, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(models / name)
    arguments = ["run", "--agents", "2", "--model", model, "--runtime", "local", "--no-web"]
    said = refused(capsys, *arguments)
    assert ("context" if name == "short" else model) in said
    assert run_command(["standings"]) == 2  # no run was begun


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_a_port_in_use_is_refused(busy_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "run", *BOTS[:-1], "--port", str(busy_port))
    assert f"Port {busy_port}" in said


def test_without_a_wanted_port_the_next_free_one_is_taken(
    busy_port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("arena.page.PORT", busy_port)
    monkeypatch.setattr("arena.cli.PORT", busy_port)
    assert run_command(["run", *BOTS[:-1]]) == 0
    out = capsys.readouterr().out
    assert f"Port {busy_port} is in use" in out
    assert re.search(r"Watch at http://127\.0\.0\.1:\d+/", out)


@pytest.mark.slow
def test_serve_shows_what_is_recorded_until_it_is_stopped(tmp_path: Path) -> None:
    assert run_command(["run", *BOTS]) == 0
    server = start_arena("serve", "--port", "0", cwd=tmp_path)
    assert server.stdout is not None
    address = server.stdout.readline().split()[-1]
    with urllib.request.urlopen(f"{address}api/runs", timeout=STARTUP_S) as answer:
        assert b"Janggi, 2 agents" in answer.read()
    stream = urllib.request.urlopen(f"{address}api/runs/1/events", timeout=STARTUP_S)
    assert stream.readline()
    server.send_signal(signal.SIGTERM)
    assert server.wait(STARTUP_S) == 0
    stream.close()


@pytest.mark.slow
def test_a_run_serves_its_page_while_it_plays(tmp_path: Path) -> None:
    process = start_arena(
        *("run", "--agents", "random,greedy", "--cycles", "500", "--runtime", "local"),
        *("--port", "0"),
        cwd=tmp_path,
    )
    assert process.stdout is not None
    address = process.stdout.readline().split()[-1]
    until = time.monotonic() + STARTUP_S
    answer = b""
    while b'"running"' not in answer and time.monotonic() < until:
        with urllib.request.urlopen(f"{address}api/runs", timeout=STARTUP_S) as response:
            answer = response.read()
    assert b'"running"' in answer
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=STARTUP_S)
    assert process.returncode == 130
    assert "arena resume 1" in err
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=STARTUP_S)


def test_output_that_nobody_reads_any_more(tmp_path: Path) -> None:
    process = start_arena("run", *BOTS, cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    process.wait(STARTUP_S)
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()


@pytest.mark.slow
def test_a_language_model_plays(models: Path, tmp_path: Path) -> None:
    arguments = ["--game", "chess", "--agents", "Pebble,Dragon", "--max-plies", "4", "--no-web"]
    done = arena(
        *("run", *arguments, "--runtime", "local", "--model", str(models / "good")), cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 of 2 games, finished" in done.stdout
    assert os.listdir(tmp_path / "runs")
