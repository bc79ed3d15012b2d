"""Runs in the database: what is recorded, in which order, and what resuming and claiming do."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest
import sqlalchemy as sa

from arena.store import DatabaseError, Recorder, Store, UnknownRun, queries
from arena.store.schema import EventRow, GameRow, MoveRow, RatingRow
from arena.types import EngineSample, GameResult, MoveChoice, MoveRecord, Termination
from tests.arena.recorded import new_run, play, record, specs


def dump(store: Store, run_id: int) -> str:
    """Everything that viewers can read of a run."""
    snapshot = queries.run_snapshot(store, run_id)
    details = [queries.game_detail(store, run_id, g["number"]) for g in snapshot["games"]]
    events = queries.events_after(store, run_id, 0, 10_000)
    return json.dumps([snapshot, details, events], allow_nan=False)


def void(run_id: int, number: int) -> GameResult:
    reason = "the engine is gone"
    return GameResult(
        run_id, number, None, Termination.INFRASTRUCTURE, reason, False, None, 3, "fen"
    )


def test_new_run_shows_all_its_games_at_the_start_position(store: Store) -> None:
    run_id = new_run(store, "janggi", setup="NBBN-BNNB", rules="kakao")
    snapshot = queries.run_snapshot(store, run_id)
    assert snapshot["run"]["status"] == "pending"
    assert [a["name"] for a in snapshot["agents"]] == ["Pebble", "random", "greedy"]
    assert [(g["number"], g["first"], g["second"]) for g in snapshot["games"]] == [
        (1, 0, 1),
        (2, 0, 2),
        (3, 1, 0),
        (4, 1, 2),
        (5, 2, 0),
        (6, 2, 1),
    ]
    assert {g["status"] for g in snapshot["games"]} == {"pending"}
    assert {g["fen"].split("/")[0] for g in snapshot["games"]} == {"rbna1anbr"}
    assert snapshot["seq"] == 0
    assert [row["rating_note"] for row in snapshot["standings"]] == ["no game played yet"] * 3


def test_pending_specs_are_the_ones_given(store: Store) -> None:
    run_id = new_run(store)
    assert store.pending_specs(run_id) == [replace(spec, run_id=run_id) for spec in specs()]


def test_a_recorded_run(store: Store) -> None:
    run_id = new_run(store)
    store.claim_run(run_id)
    record(store, run_id)
    store.finish_run(run_id, "finished")

    snapshot = queries.run_snapshot(store, run_id)
    assert snapshot["run"]["status"] == "finished"
    assert snapshot["run"]["games_finished"] == snapshot["run"]["games"] == 6
    for game in snapshot["games"]:
        assert (game["status"], game["plies"], game["termination"]) == ("finished", 12, "ply_limit")
        assert game["result"] == {0: "1-0", 1: "0-1", None: "1/2-1/2"}[game["winner"]]
        detail = queries.game_detail(store, run_id, game["number"])
        assert [m["ply"] for m in detail["moves"]] == list(range(12))
        last = detail["moves"][-1]
        assert (last["uci"], last["fen"]) == (game["last_move"], game["fen"])
        assert sum(last["distribution"].values()) == pytest.approx(1)

    events = queries.events_after(store, run_id, 0, 10_000)
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert snapshot["seq"] == len(events)
    kinds = [e["kind"] for e in events]
    assert (kinds[0], kinds[-1]) == ("run_started", "run_finished")
    assert kinds.count("move") == 72
    assert kinds.count("game_started") == kinds.count("game_finished") == 6
    assert events[-1]["payload"] == {"status": "finished"}
    move = next(e["payload"] for e in events if e["kind"] == "move")
    assert list(move) == [
        *("number", "ply", "side", "uci", "notation", "fen", "elapsed_s"),
        *("logprob", "legal_mass", "cached_tokens", "prompt_tokens"),
    ]
    tables = [e["payload"]["rows"] for e in events if e["kind"] == "standings"]
    assert tables[-1] == snapshot["standings"] == queries.standings(store, run_id)
    assert queries.events_after(store, run_id, len(events) - 2, 1) == [events[-2]]
    with store.read() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(RatingRow)) == 3


def test_writing_everything_again_changes_nothing(store: Store) -> None:
    run_id = new_run(store)
    store.claim_run(run_id)
    first = store.pending_specs(run_id)[0]
    events = list(play(first))
    with Recorder(store, [run_id]) as recorder:
        for event in events[:6] + events[:8] + events:
            recorder.put(event)
        recorder.flush()
        before = dump(store, run_id)
        for event in events:
            recorder.put(event)
        recorder.put(void(run_id, 1))  # a finished game stays as it is
        recorder.flush()
    record(store, run_id, range(0))
    with Recorder(store, [run_id]) as another:
        for event in events:
            another.put(event)
    assert dump(store, run_id) == before


@pytest.mark.parametrize(
    ("ply", "uci", "sentence"),
    [
        (2, "h7h5", "ply 2 of game 1 (run 1) is recorded as"),
        (6, "h2h4", "ply 6 of game 1 (run 1) came before ply 5."),
    ],
)
def test_a_record_that_contradicts_stops_the_recorder(
    store: Store, ply: int, uci: str, sentence: str
) -> None:
    run_id = new_run(store)
    store.claim_run(run_id)
    events = list(play(store.pending_specs(run_id)[0]))
    recorder = Recorder(store, [run_id])
    for event in events[:6]:
        recorder.put(event)
    recorder.flush()
    before = dump(store, run_id)
    wrong = replace(events[1], ply=ply, choice=MoveChoice(uci))  # type: ignore[type-var]
    recorder.put(wrong)
    for call in (recorder.flush, lambda: recorder.put(events[6]), recorder.close):
        with pytest.raises(DatabaseError) as refused:
            call()
        assert str(refused.value).startswith(sentence)
    assert dump(store, run_id) == before


def test_a_result_without_all_its_moves_is_refused(store: Store) -> None:
    run_id = new_run(store)
    store.claim_run(run_id)
    started, *_, result = play(store.pending_specs(run_id)[0])
    recorder = Recorder(store, [run_id])
    recorder.put(started)
    recorder.put(result)
    with pytest.raises(DatabaseError, match="ended after 12 plies but has 0"):
        recorder.close()
    assert queries.run_snapshot(store, run_id)["games"][0]["status"] == "pending"


def test_a_void_game_is_played_again(store: Store) -> None:
    run_id = new_run(store)
    store.claim_run(run_id)
    spec = store.pending_specs(run_id)[0]
    events = list(play(spec))
    with Recorder(store, [run_id]) as recorder:
        for event in events[:4]:
            recorder.put(event)
        recorder.flush()
        for event in (*events[4:6], void(run_id, 1)):
            recorder.put(event)
        recorder.flush()
        game = queries.run_snapshot(store, run_id)["games"][0]
        assert (game["status"], game["plies"], game["last_move"]) == ("pending", 0, None)
        assert game["fen"] == game["start_fen"]
        assert (game["result"], game["started_at"]) == (None, None)
        assert queries.game_detail(store, run_id, 1)["moves"] == []
        assert store.pending_specs(run_id)[0] == spec
        told = queries.events_after(store, run_id, 0)[-1]
        assert told["kind"] == "game_voided"
        assert told["payload"] == {"number": 1, "reason": "the engine is gone"}
        # void and played again within one commit
        for event in (*events[:3], void(run_id, 1), *events):
            recorder.put(event)
    game = queries.run_snapshot(store, run_id)["games"][0]
    assert (game["status"], game["plies"]) == ("finished", 12)
    assert len(queries.game_detail(store, run_id, 1)["moves"]) == 12
    assert queries.standings(store, run_id)[0]["played"] == 1


def test_resume_goes_on_from_the_last_ply(store: Store) -> None:
    run_id = new_run(store)
    store.claim_run(run_id)
    events = list(play(store.pending_specs(run_id)[0]))
    with Recorder(store, [run_id]) as recorder:
        for event in events[:5]:
            recorder.put(event)
    store.finish_run(run_id, "interrupted")
    assert queries.runs(store)[0]["status"] == "interrupted"

    store.claim_run(run_id)
    snapshot = queries.run_snapshot(store, run_id)
    assert snapshot["run"]["status"] == "running"
    assert snapshot["run"]["finished_at"] is None
    assert (snapshot["games"][0]["status"], snapshot["games"][0]["plies"]) == ("pending", 4)
    spec = store.pending_specs(run_id)[0]
    assert list(spec.moves) == [event.choice.uci for event in events[1:5]]  # type: ignore[union-attr]
    record(store, run_id)
    store.finish_run(run_id, "finished")
    kinds = [e["kind"] for e in queries.events_after(store, run_id, 0)]
    assert kinds.count("run_started") == kinds.count("run_resumed") == 1
    assert kinds.count("move") == 72


def test_resumed_from_every_event(store: Store) -> None:
    """Whatever the last commit was, the resumed game equals the one that was not interrupted."""
    whole = None
    for cut in range(14, -1, -1):
        run_id = new_run(store)
        store.claim_run(run_id)
        with Recorder(store, [run_id]) as recorder:
            for event in list(play(store.pending_specs(run_id)[0]))[:cut]:
                recorder.put(event)
        store.finish_run(run_id, "interrupted")
        store.claim_run(run_id)
        record(store, run_id, range(1, 2))
        detail = queries.game_detail(store, run_id, 1)
        moves = detail["moves"], detail["game"]["result"], queries.standings(store, run_id)
        whole = whole or moves
        assert moves == whole
        told = [e["payload"] for e in queries.events_after(store, run_id, 0) if e["kind"] == "move"]
        assert [move["ply"] for move in told] == list(range(12))


def test_a_run_that_is_not_over_cannot_be_finished(store: Store) -> None:
    run_id = new_run(store)
    store.claim_run(run_id)
    record(store, run_id, range(1, 5))
    with pytest.raises(DatabaseError, match="2 of its games are not"):
        store.finish_run(run_id, "finished")
    assert queries.runs(store)[0]["status"] == "running"


def test_two_runs_share_a_recorder(store: Store) -> None:
    runs = [new_run(store), new_run(store, "janggi")]
    for run_id in runs:
        store.claim_run(run_id)
    with Recorder(store, runs) as recorder:
        streams = [play(spec) for run_id in runs for spec in store.pending_specs(run_id)]
        while streams:
            for stream in list(streams):
                if event := next(stream, None):
                    recorder.put(event)
                else:
                    streams.remove(stream)
    for run_id in runs:
        store.finish_run(run_id, "finished")
        events = queries.events_after(store, run_id, 0)
        assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
        assert [e["kind"] for e in events].count("move") == 72
    assert [run["id"] for run in queries.runs(store)] == runs[::-1]


def test_engine_samples(store: Store) -> None:
    run_id = new_run(store)
    store.claim_run(run_id)
    with Recorder(store, [run_id]) as recorder:
        for at in (10.5, 11.5):
            stats = {"num_running": 3, "prefix_hit_rate": float("nan"), "tokens_per_s": 1.5}
            recorder.put(EngineSample(run_id, at, stats))
        recorder.flush()
        store.finish_run(run_id, "interrupted")
        recorder.put(EngineSample(run_id, 12.5, {}))  # too late: not kept, not an error
    stats = {"num_running": 3, "prefix_hit_rate": None, "tokens_per_s": 1.5}
    kept = [{"at": 10.5, "stats": stats}, {"at": 11.5, "stats": stats}]
    assert queries.engine_samples(store, run_id) == kept
    assert queries.engine_samples(store, run_id, after=10.5) == kept[1:]
    told = [e["payload"] for e in queries.events_after(store, run_id, 0) if e["kind"] == "engine"]
    assert told == kept


def test_what_is_not_a_number_is_null_and_every_text_is_kept(store: Store) -> None:
    run_id = new_run(store)
    store.claim_run(run_id)
    _, move, *_ = play(store.pending_specs(run_id)[0])
    assert isinstance(move, MoveRecord)
    inf, nan = float("inf"), float("nan")
    choice = replace(
        move.choice, logprob=-inf, entropy=nan, distribution={"a": nan}, thoughts="한\0\ud800é"
    )
    with Recorder(store, [run_id]) as recorder:
        recorder.put(replace(move, choice=choice, elapsed_s=inf))
    [kept] = queries.game_detail(store, run_id, 1)["moves"]
    assert (kept["logprob"], kept["entropy"], kept["elapsed_s"]) == (None, None, None)
    assert kept["distribution"] == {"a": None}
    assert kept["thoughts"] == "한\ufffd?é"


def test_a_database_that_fails_is_told_once_and_for_all(store: Store) -> None:
    run_id = new_run(store)
    store.claim_run(run_id)
    recorder = Recorder(store, [run_id])
    with store.write() as session:
        session.execute(sa.text("ALTER TABLE events RENAME TO gone"))
    for event in play(store.pending_specs(run_id)[0]):
        recorder.put(event)
    with pytest.raises(DatabaseError, match="failed: "):
        recorder.flush()
    with pytest.raises(DatabaseError):
        recorder.close()
    with store.write() as session:
        session.execute(sa.text("ALTER TABLE gone RENAME TO events"))
        assert session.scalar(sa.select(sa.func.count()).select_from(MoveRow)) == 0


def test_snapshots_during_writing_agree_with_their_seq(store: Store) -> None:
    run_id = new_run(store)
    store.claim_run(run_id)
    writer = threading.Thread(target=record, args=(store, run_id))
    writer.start()
    snapshots = []
    while writer.is_alive():
        snapshots.append(queries.run_snapshot(store, run_id))
    writer.join()
    events = queries.events_after(store, run_id, 0, 10_000)
    for snapshot in snapshots:
        told = [e for e in events if e["seq"] <= snapshot["seq"]]
        moves = [e for e in told if e["kind"] == "move"]
        assert sum(g["plies"] for g in snapshot["games"]) == len(moves)
        finished = [e for e in told if e["kind"] == "game_finished"]
        assert snapshot["run"]["games_finished"] == len(finished)
        if finished:
            table = [e for e in told if e["kind"] == "standings"][-1]
            assert snapshot["standings"] == table["payload"]["rows"]


def test_what_is_missing_is_named(store: Store) -> None:
    run_id = new_run(store)
    for read in (
        lambda: queries.run_snapshot(store, 77),
        lambda: queries.events_after(store, 77, 0),
        lambda: queries.engine_samples(store, 77),
        lambda: queries.standings(store, 77),
        lambda: store.pending_specs(77),
        lambda: store.claim_run(77),
        lambda: Recorder(store, [77]),
    ):
        with pytest.raises(UnknownRun, match=r"^There is no run 77 in the database\.$"):
            read()
    with pytest.raises(UnknownRun, match=r"^Run 1 has no game 9\.$"):
        queries.game_detail(store, run_id, 9)


def test_rows_of_one_commit_stand_or_fall_together(store: Store) -> None:
    """What a reader sees at any time: as many move events as moves, and plies that agree."""
    run_id = new_run(store)
    store.claim_run(run_id)
    record(store, run_id, range(1, 4))
    with store.read() as session:
        moves = session.scalar(sa.select(sa.func.count()).select_from(MoveRow))
        told = sa.select(sa.func.count()).where(EventRow.kind == "move")
        plies = session.scalar(sa.select(sa.func.sum(GameRow.plies)))
        assert moves == session.scalar(told) == plies == 36
