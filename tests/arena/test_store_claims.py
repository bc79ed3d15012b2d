"""Who may write a run: claims, dead owners, and recorders that lose their run."""

from __future__ import annotations

import contextlib
import subprocess
import threading

import pytest

from arena.store import DatabaseError, Recorder, RunBusy, Store, queries
from arena.store.owner import owner_of, this_process
from arena.types import EngineSample
from tests.arena.recorded import new_run, play, record


def test_claims(store: Store) -> None:
    run_id = new_run(store)
    with subprocess.Popen(["sleep", "600"]) as other:
        owner = owner_of(other.pid)
        store.claim_run(run_id, owner)
        store.claim_run(run_id, owner)  # again by the same owner: nothing happens
        assert len(queries.events_after(store, run_id, 0)) == 1
        with pytest.raises(RunBusy, match=f"is being played by process {other.pid} on "):
            store.claim_run(run_id)
        assert queries.runs(store)[0]["status"] == "running"
        other.kill()
    assert queries.runs(store)[0]["status"] == "interrupted"
    store.claim_run(run_id)
    kinds = [e["kind"] for e in queries.events_after(store, run_id, 0)]
    assert kinds == ["run_started", "run_resumed"]
    store.finish_run(run_id, "interrupted")
    assert queries.runs(store)[0]["status"] == "interrupted"
    store.claim_run(run_id, "another-host:1:1")
    with pytest.raises(RunBusy, match="process 1 on another-host"):
        store.claim_run(run_id)
    store.finish_run(run_id, "interrupted")
    store.claim_run(run_id)
    record(store, run_id)
    store.finish_run(run_id, "finished")
    with pytest.raises(DatabaseError, match="nothing to resume"):
        store.claim_run(run_id)


def test_only_one_of_many_claims_at_once_succeeds(store: Store) -> None:
    run_id = new_run(store)
    won: list[int] = []

    def claim(host: int) -> None:
        with contextlib.suppress(RunBusy):
            store.claim_run(run_id, f"another-host-{host}:1:1")
            won.append(host)

    threads = [threading.Thread(target=claim, args=(host,)) for host in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert len(queries.events_after(store, run_id, 0)) == 1


def test_a_closed_recorder_refuses(store: Store) -> None:
    run_id = new_run(store)
    recorder = Recorder(store, [run_id])
    recorder.close()
    recorder.close()
    for call in (recorder.flush, lambda: recorder.put(EngineSample(run_id, 1.0, {}))):
        with pytest.raises(DatabaseError, match=r"^The recorder is closed\.$"):
            call()


def test_a_process_number_that_was_given_out_again_is_not_the_owner(store: Store) -> None:
    run_id = new_run(store)
    host, pid, start = this_process().rsplit(":", 2)
    store.claim_run(run_id, f"{host}:{pid}:{int(start) - 1}")
    store.claim_run(run_id)


def test_recorder_stops_when_the_run_is_taken_over(store: Store) -> None:
    run_id = new_run(store)
    store.claim_run(run_id)
    recorder = Recorder(store, [run_id])
    store.finish_run(run_id, "interrupted")
    store.claim_run(run_id, "another-host:1:1")
    recorder.put(next(play(store.pending_specs(run_id)[0])))
    with pytest.raises(DatabaseError, match="no longer written by this process"):
        recorder.close()
