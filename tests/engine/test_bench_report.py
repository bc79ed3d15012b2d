"""The pure parts of the engine benchmark: which plies are timed, ratios within a run, goals, tables."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def bench() -> Any:
    """Imports a module of the scripts folder, as the command itself does."""
    before = set(sys.modules)

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield load
    for name in set(sys.modules) - before:
        if name.startswith(("bench_", "fetch_")):
            del sys.modules[name]


def record(name: str, *rates: float) -> dict[str, Any]:
    return {
        "name": name,
        "failure": None,
        "per_s": rates[0],
        "repeats_per_s": list(rates),
        "repeats_per_cpu_s": list(rates),
    }


def test_a_slow_peer_is_timed_on_a_quarter_of_the_plies(bench: Any) -> None:
    compare, peer = bench("bench_sections.compare"), bench("bench_peers.processes").Peer
    timed = compare.timed_plies
    assert timed(peer("fast", (), 1), 8) == list(range(21, 29))
    assert timed(peer("slow", (), 1, slow=True), 8) == [21, 22]
    spread = timed(peer("slow", (), 1, slow=True, keeps_cache=False), 8)
    assert len(spread) == 2 and spread[0] < 25 <= spread[1]
    assert timed(peer("slow", (), 1, slow=True), 2) == [21]


def test_ratios_pair_the_repeats_that_both_peers_did(bench: Any) -> None:
    ratio = bench("bench_sections.compare").ratio
    records = [record("a", 10.0, 40.0, 90.0), record("b", 5.0, 10.0, 10.0), record("slow", 2.0)]
    assert ratio(records, "a", "b")["per_s"] == 4.0
    assert ratio(records, "a", "slow")["per_s"] == 5.0
    assert ratio(records, "a", "absent") is None
    failed = {"name": "dead", "failure": "no Node.js"}
    assert ratio([*records, failed], "a", "dead") is None


def test_rounds_hold_one_request_per_game_and_ply(bench: Any) -> None:
    rounds_of = bench("bench_sections.compare").rounds_of
    rows = list(bench("bench_workload").workload(games=2, plies=3))
    moves = rounds_of(rows, [1, 2])
    assert [[r["game"] for r in requests] for requests in moves] == [[0, 1], [0, 1]]
    assert moves[0][0]["prompt"] == rows[2]["system"] + rows[2]["transcript"]
    assert moves[0][0]["choices"] == rows[2]["choices"]
    [texts] = rounds_of(rows, [2], 64)
    assert all(r["max_tokens"] == 64 and "choices" not in r for r in texts)


def test_an_illegal_answer_is_not_counted_as_legal(bench: Any) -> None:
    repeat = bench("bench_sections.compare").Repeat()
    requests = [{"choices": [" e2e4"]}, {"choices": [" e2e4"]}]
    reply = {"texts": [" e2e4", " e2e5"], "seconds": 1.0, "cpu_seconds": 1.0, "latencies": [1, 1]}
    repeat.add(reply, requests)
    assert (repeat.done, repeat.legal) == (2, 1)


def test_findings_say_whether_their_goal_is_met(bench: Any) -> None:
    report = bench("bench_sections.report").Report("moves")
    report.add("rate", 3.9, "x", ">= 4")
    report.add("share", 0.02, "", "<= 0.04")
    report.add("passes", 1.0, "", "== 1")
    report.add("figure without a goal", 12345.0)
    report.failures.append("llama.cpp: no Node.js")
    assert [f.met for f in report.findings] == [False, True, True, None]
    text = report.text()
    assert "MISSED" in text and "12,345" in text and "cannot run: llama.cpp: no Node.js" in text
    assert json.loads(json.dumps(report.record()))["findings"][0]["met"] is False


def test_without_matplotlib_the_plot_says_how_to_get_it(
    bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = bench("bench_sections.report")
    report = module.Report("text", panels=[{"title": "t", "unit": "u", "bars": {"a": 1.0}}])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install" in module.write_plot(tmp_path / "plot.png", [report])
    assert not list(tmp_path.iterdir())


def test_all_means_every_section_and_an_unknown_one_is_refused(
    bench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    command = bench("bench_engine")
    assert command.parse(["all"]).sections == list(command.SECTIONS)
    assert command.parse([]).sections == ["moves"]
    with pytest.raises(SystemExit):
        command.parse(["move"])
    assert "no section 'move'" in capsys.readouterr().err


def test_a_peer_that_cannot_start_says_why_and_the_rest_goes_on(bench: Any) -> None:
    compare, peer = bench("bench_sections.compare"), bench("bench_peers.processes").Peer
    script = (
        "import sys, json\n"
        "print(json.dumps({'ready': {'version': '1'}}), flush=True)\n"
        "for line in sys.stdin:\n"
        "    texts = [r['choices'][0] for r in json.loads(line)]\n"
        "    reply = {'texts': texts, 'seconds': 1, 'cpu_seconds': 1, 'latencies': [1] * len(texts)}\n"
        "    print(json.dumps(reply), flush=True)\n"
    )
    peers = [
        peer("broken", (sys.executable, "-c", "raise ImportError('Error: no such library')"), 1),
        peer("absent", (), 1, unavailable="no Node.js"),
        peer("good", (sys.executable, "-c", script), 1),
    ]
    rows = list(bench("bench_workload").workload(games=2, plies=23))
    broken, absent, good = compare.compare(
        peers, 2, lambda seed: rows, lambda running, r: compare.run_moves(running, r, 2), "moves"
    )
    assert "no such library" in broken["failure"]
    assert absent["failure"] == "no Node.js"
    assert (good["done"], good["legal"], good["repeats_per_s"]) == (8, 8, [2.0, 2.0])


def test_a_series_takes_its_peer_by_the_number_of_streams(bench: Any) -> None:
    rates, peer = bench("bench_sections.rates"), bench("bench_peers.processes").Peer
    one, two = peer("one", (), 1), peer("two", (), 1)
    assert rates.Series("ours", [one], (1, 8, 64)).peer(64) is one
    assert rates.Series("llama.cpp", [one, two], (1, 8)).peer(8) is two
    assert rates.Series("llama.cpp", [one, two], (1, 8)).peer(64) is None
    assert rates.Series("absent", [], (1, 8)).peer(8) is None
