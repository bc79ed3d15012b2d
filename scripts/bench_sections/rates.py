"""Sections that compare rates: moves, texts, and both over the number of streams."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_peers.processes import Peer, PeerFailed, RunningPeer, llamacpp_peer, python_peer
from bench_workload import Row, workload

from bench_sections.compare import (
    FIRST_PLY,
    SEED,
    Repeat,
    compare,
    note,
    ratio,
    run_moves,
    run_texts,
    tell,
)
from bench_sections.report import Report, align

ONE_AT_A_TIME = "transformers, one at a time"
TEXT_TOKENS = 64
TEXT_STREAMS = 16
STREAMS = (1, 2, 4, 8, 16, 32, 64)
PEER_STREAMS = (1, 8, 32)  # a cold sequence computes its whole prompt, so 64 take minutes
STREAM_TEXT_TOKENS = 16


@dataclass(frozen=True)
class Setting:
    """What the command line decides for every section. `gguf` and `hf`, the peers' copies of the
    model, are None when only our engine runs.
    """

    model: str
    gguf: Path | None
    hf: Path | None
    threads: int
    dtype: str = "auto"
    games: int = 8
    plies: int = 8
    repeats: int = 3
    quick: bool = False
    only: tuple[str, ...] = ()

    def ours(self, name: str, scoring: str = "masked", **engine: Any) -> Peer:
        settings = json.dumps({"dtype": self.dtype, **engine})
        return python_peer(name, "peer_arena.py", [scoring, settings, self.model], self.threads)

    def llamacpp(self, sequences: int) -> list[Peer]:
        if self.gguf is None:
            return []
        return [llamacpp_peer(parallel(sequences), self.gguf, sequences, self.threads)]

    def transformers(
        self, name: str, script: str, *arguments: str, keeps_cache: bool = False, most: int = 0
    ) -> list[Peer]:
        """A slow peer."""
        if self.hf is None:
            return []
        return [
            python_peer(
                name,
                script,
                [*arguments, str(self.hf)],
                self.threads,
                slow=True,
                keeps_cache=keeps_cache,
                most_requests=most,
            )
        ]

    def wanted(self, peers: list[Peer]) -> list[Peer]:
        return [p for p in peers if not self.only or any(word in p.name for word in self.only)]


def parallel(sequences: int) -> str:
    return "llama.cpp, 1 sequence" if sequences == 1 else f"llama.cpp, {sequences} parallel"


def moves(setting: Setting) -> Report:
    """`choose` against the peers, one move per game per round, in steady state."""
    games, plies = setting.games, setting.plies
    static = f"transformers, static batch of {games}"
    peers = [
        setting.ours("ours, likelihood", "likelihood"),
        setting.ours("ours, masked"),
        setting.ours("ours, likelihood, int8 weights", "likelihood", quantization="int8"),
        setting.ours("ours, masked, int8 weights", quantization="int8"),
        setting.ours("ours, likelihood, int8 cache", "likelihood", kv_cache_dtype="int8"),
        setting.ours("ours, likelihood, deterministic", "likelihood", deterministic=True),
        setting.ours("ours, masked, deterministic", deterministic=True),
        *setting.llamacpp(games),
        *setting.llamacpp(1),
        *setting.transformers(ONE_AT_A_TIME, "peer_hf.py", "seq", "float32", most=8),
        *setting.transformers(f"{static}, fp32", "peer_hf.py", "batch", "float32"),
        *setting.transformers(f"{static}, bf16", "peer_hf.py", "batch", "bfloat16"),
    ]
    records = compare(
        setting.wanted(peers),
        setting.repeats,
        lambda seed: list(workload(games, FIRST_PLY + 1 + plies, seed)),
        lambda running, rows: run_moves(running, rows, plies),
        "moves",
    )
    report = Report("moves")
    bases = [parallel(games), ONE_AT_A_TIME]
    tell(report, f"{games} games", records, bases, "moves")
    for name, goal in (
        ("likelihood", ">= 2"),
        ("masked", ">= 4"),
        ("likelihood, int8 weights", ""),
        ("masked, int8 weights", ""),
    ):
        _ratio(report, records, f"ours, {name}", parallel(games), goal)
    _ratio(report, records, "ours, masked", ONE_AT_A_TIME, ">= 40")
    for dtype, goal in (("fp32", ""), ("bf16", ">= 12")):
        _ratio(report, records, "ours, masked", f"{static}, {dtype}", goal)
    for scoring in ("likelihood", "masked"):
        cost = ratio(records, f"ours, {scoring}, deterministic", f"ours, {scoring}")
        if cost:
            share = 1.0 - cost["per_s"]
            report.add(f"deterministic, {scoring}: speed it costs", share, "", "<= 0.35")
    return report


def text(setting: Setting) -> Report:
    """Free texts of 64 tokens, 16 at a time, after prompts of the same games."""
    tokens = 16 if setting.quick else TEXT_TOKENS
    hf = "transformers, continuous batching"
    peers = [
        setting.ours("ours"),
        setting.ours("ours, int8 weights", quantization="int8"),
        *setting.llamacpp(TEXT_STREAMS),
        *setting.transformers(f"{hf}, fp32", "peer_hf_continuous.py", "float32", keeps_cache=True),
        *setting.transformers(f"{hf}, bf16", "peer_hf_continuous.py", "bfloat16", keeps_cache=True),
        *setting.transformers(
            f"transformers, static batch of {TEXT_STREAMS}, bf16", "peer_hf.py", "batch", "bfloat16"
        ),
    ]
    records = compare(
        setting.wanted(peers),
        setting.repeats,
        lambda seed: list(workload(TEXT_STREAMS, FIRST_PLY + 2, seed)),
        lambda running, rows: run_texts(running, rows, tokens),
        "tokens",
    )
    report = Report("text")
    bases = [parallel(TEXT_STREAMS), f"{hf}, bf16"]
    title = f"{TEXT_STREAMS} texts of {tokens} tokens"
    tell(report, title, records, bases, "tokens")
    for dtype in ("fp32", "bf16"):
        _ratio(report, records, "ours", f"{hf}, {dtype}", ">= 2")
    _ratio(report, records, "ours", parallel(TEXT_STREAMS), ">= 1")
    _ratio(report, records, "ours, int8 weights", parallel(TEXT_STREAMS), "")
    return report


def _ratio(report: Report, records: list[dict[str, Any]], name: str, base: str, goal: str) -> None:
    if found := ratio(records, name, base):
        report.add(f"{name} / {base}", found["per_s"], "x", goal)


@dataclass(frozen=True)
class Series:
    """One line over the number of streams: a peer for all numbers, or one for each of them."""

    name: str
    peers: list[Peer]
    numbers: tuple[int, ...]
    tokens: int = 0  # of a text; 0 for moves

    def peer(self, number: int) -> Peer | None:
        if number not in self.numbers or not self.peers:
            return None
        return self.peers[self.numbers.index(number) if len(self.peers) > 1 else 0]


def streams(setting: Setting) -> Report:
    """Rates over the number of streams: moves of ours and the peers, and texts of ours. The peers
    take turns at each number; ours go over the numbers twice, up and down.
    """
    numbers = (1, 8, 64) if setting.quick else STREAMS
    few = (1, 8) if setting.quick else PEER_STREAMS
    static = setting.transformers("transformers, static", "peer_hf.py", "batch", "bfloat16")
    every = [
        Series("ours, masked", [setting.ours("ours, masked")], numbers),
        Series("ours, likelihood", [setting.ours("ours, likelihood", "likelihood")], numbers),
        Series("ours, text", [setting.ours("ours, text")], numbers, STREAM_TEXT_TOKENS),
        Series("llama.cpp", [peer for n in few for peer in setting.llamacpp(n)], few),
        Series("transformers, static batch", static, few),
    ]
    series = [s for s in every if not setting.only or any(w in s.name for w in setting.only)]
    report = Report("streams")
    rates: dict[str, dict[int, list[float]]] = {}
    running: dict[Peer, RunningPeer] = {}
    failed: set[str] = set()
    try:
        for again in range(1 if setting.quick else 2):
            for number in reversed(numbers) if again else numbers:
                for one in series:
                    peer = one.peer(number)
                    theirs = not one.name.startswith("ours")
                    if peer is None or one.name in failed or (again and theirs):
                        continue
                    try:
                        if peer not in running:
                            running[peer] = RunningPeer(peer)
                        done = _at(running[peer], number, one.tokens, SEED + 100 * again + number)
                    except PeerFailed as error:
                        report.failures.append(f"{one.name}: {error}")
                        failed.add(one.name)
                        if peer in running:
                            running.pop(peer).close()
                        continue
                    if len(one.peers) > 1:
                        running.pop(peer).close()
                    rate = done.done / done.seconds
                    rates.setdefault(one.name, {}).setdefault(number, []).append(rate)
                    note(f"{one.name}, {number} streams: {rate:.2f}/s")
    finally:
        for left in running.values():
            left.close()
    medians = {
        name: {number: statistics.median(values) for number, values in points.items()}
        for name, points in rates.items()
    }
    _tell_streams(report, medians)
    return report


def _at(running: RunningPeer, number: int, tokens: int, seed: int) -> Repeat:
    """`number` games, in rounds enough for a steady figure; other games for each number."""
    rows: list[Row] = list(workload(number, FIRST_PLY + 17, seed))
    if tokens:
        return run_texts(running, rows, tokens)
    if running.peer.slow:
        return run_moves(running, rows, 4)
    return run_moves(running, rows, min(16, max(2, 64 // number)))


def _tell_streams(report: Report, rates: dict[str, dict[int, float]]) -> None:
    report.data["per_s"] = rates
    if not rates:
        return
    numbers = sorted({n for points in rates.values() for n in points})
    rows = [["moves/s (text: tokens/s)", *(f"{n} streams" for n in numbers)]]
    for name, points in rates.items():
        rows.append([name, *(f"{points[n]:.1f}" if n in points else "" for n in numbers)])
    for name, points in rates.items():
        mine = rates.get("ours, masked", {})
        if name in ("llama.cpp", "transformers, static batch") and mine:
            ratios = (f"{mine[n] / points[n]:.2f}" if n in points else "" for n in numbers)
            rows.append([f"ours, masked / {name}", *ratios])
    report.tables.append(align(rows))
    lines = {name: sorted(points.items()) for name, points in rates.items() if "text" not in name}
    if lines:
        report.panels.append(
            {"title": "moves over streams", "unit": "moves/s", "x": "streams", "lines": lines}
        )
    if points := rates.get("ours, text"):
        lines = {"ours, text": sorted(points.items())}
        report.panels.append(
            {"title": "texts over streams", "unit": "tokens/s", "x": "streams", "lines": lines}
        )
    for name, goal in (("ours, masked", ">= 8"), ("ours, likelihood", ""), ("ours, text", "")):
        points = rates.get(name, {})
        if 1 in points and 64 in points:
            report.add(f"{name}: 64 streams / 1 stream", points[64] / points[1], "x", goal)
