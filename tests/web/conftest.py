"""Runs to look at, and a server that a test can stop and start again on the same port."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.played import PlayedRun
from web.server import Server

PATIENCE_S = 30.0  # for a busy machine; nothing passes sooner by waiting less


class Served:
    """The web server over one database, in a thread."""

    def __init__(self, database: Path) -> None:
        self._database = database
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        self._server = Server(str(self._database), "127.0.0.1", self._port)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        wait_for(lambda: self._server.started)

    def stop(self) -> None:
        """Ask the server to stop as the tournament's driver does, and see that it does."""
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def wait_for(happens: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Callable[..., PlayedRun]]:
    """Makes runs in one database."""
    runs: list[PlayedRun] = []

    def play(**config: Any) -> PlayedRun:
        runs.append(PlayedRun(tmp_path / "arena.db", **config))
        return runs[-1]

    yield play
    for run in runs:
        run.close()


def begin(run: PlayedRun) -> PlayedRun:
    """Of the six games of three agents one finished, two being played, three to come."""
    run.start(1, 2, 3)
    run.play(1, 30)
    run.play(2, 5)
    run.play(3, 4)
    run.sample()
    return run


@pytest.fixture
def run(played: Callable[..., PlayedRun]) -> PlayedRun:
    return begin(played(game="janggi", agents=3, max_plies=30))


@pytest.fixture
def served(run: PlayedRun, tmp_path: Path) -> Iterator[Served]:
    server = Served(tmp_path / "arena.db")
    yield server
    server.stop()
