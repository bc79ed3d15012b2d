"""The examples in the docstrings of `games.janggi` and on its page, and that every public method has one."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from games.janggi import Board, Move
from games.janggi.state import State

MODULES = ("board", "move", "rules", "svg")


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"games.janggi.{name}"))
    assert result.attempted > 0
    assert result.failed == 0


def test_the_tour_of_the_packages_page() -> None:
    page = Path(__file__).parent.parent.parent / "games" / "README.md"
    result = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert result.attempted > 10
    assert result.failed == 0


@pytest.mark.parametrize("kind", [Board, Move])
def test_every_public_method_shows_an_example(kind: type) -> None:
    documented = {
        test.name.rpartition(".")[2]
        for base in kind.__mro__[:-1]
        for test in doctest.DocTestFinder().find(base)
        if test.examples
    }
    public = {name for name in dir(kind) if name[0] != "_"}
    assert public - {"from_square", "to_square"} <= documented


def test_examples_of_what_the_board_inherits() -> None:
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    for test in finder.find(State, globs={"Board": Board}):
        runner.run(test)
    result = runner.summarize(verbose=False)
    assert result.attempted > 0
    assert result.failed == 0
