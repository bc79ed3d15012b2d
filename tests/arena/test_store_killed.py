"""A process that is killed at any moment: its run goes on, nothing is lost and nothing doubled."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from arena.store import Store, queries
from tests.arena.recorded import new_run, play_run

ROOT = Path(__file__).parents[2]
KILLS = 3


def results(store: Store, run_id: int) -> list[Any]:
    snapshot = queries.run_snapshot(store, run_id)
    details = [queries.game_detail(store, run_id, g["number"]) for g in snapshot["games"]]
    leave = ("started_at", "finished_at")
    games = [{k: v for k, v in d["game"].items() if k not in leave} for d in details]
    return [snapshot["standings"], games, [d["moves"] for d in details]]


@pytest.mark.slow
def test_killed_again_and_again(url: str, tmp_path: Path) -> None:
    with Store.open(f"{tmp_path}/whole.db") as whole:
        run_id = new_run(whole)
        play_run(f"{tmp_path}/whole.db", run_id)
        expected = results(whole, run_id)

    draw = random.Random(1)
    with Store.open(url) as store:
        assert new_run(store) == run_id
        command = [sys.executable, "-m", "tests.arena.recorded", url, str(run_id)]
        seq = 0
        for _ in range(KILLS):
            # Killed within the first commits after the claim, wherever in a transaction that is.
            seq += draw.randint(2, 25)
            with subprocess.Popen(command, cwd=ROOT) as player:
                while queries.run_snapshot(store, run_id)["seq"] < seq:
                    assert player.poll() is None
                time.sleep(draw.random() * 0.06)
                player.kill()
            snapshot = queries.run_snapshot(store, run_id)
            assert snapshot["run"]["status"] == "interrupted"
            seq = snapshot["seq"]
        play_run(url, run_id)

        assert results(store, run_id) == expected
        events = queries.events_after(store, run_id, 0, 10_000)
        assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
        told = [
            (e["payload"]["number"], e["payload"]["ply"]) for e in events if e["kind"] == "move"
        ]
        assert sorted(told) == [(number, ply) for number in range(1, 7) for ply in range(12)]
        kinds = [e["kind"] for e in events]
        assert kinds.count("run_resumed") == KILLS
        assert kinds.count("game_finished") == 6
