"""Sections that look at our engine alone, in a process of its own."""

from __future__ import annotations

from typing import Any

from bench_peers.processes import PeerFailed, RunningPeer, python_peer

from bench_sections.compare import note
from bench_sections.rates import Setting
from bench_sections.report import Report, align, number


class _Probes:
    """The probes of one section. A probe that fails is told in the report; the rest goes on."""

    def __init__(self, section: str, setting: Setting) -> None:
        self.report = Report(section)
        self._setting = setting
        self._peer = python_peer(
            "ours", "peer_probe.py", [setting.dtype, setting.model], setting.threads
        )

    def ask(self, probe: str) -> dict[str, Any]:
        """The probe's figures; empty if it failed."""
        note(f"{self.report.section}: {probe}")
        try:
            with RunningPeer(self._peer) as running:
                found = running.ask([{"probe": probe, "quick": self._setting.quick}])
        except PeerFailed as error:
            self.report.failures.append(f"ours, {probe}: {error}")
            return {}
        self.report.data[probe] = found
        return found


def prefix(setting: Setting) -> Report:
    """What the prefix tree saves."""
    probes = _Probes("prefix", setting)
    add = probes.report.add
    if found := probes.ask("prefix"):
        share = found["cached_share_after_ply_5"]
        add("prompt tokens after ply 5 from the cache", share, "", ">= 0.97")
        add(
            "tokens seen before, recomputed per ply: mean",
            found["seen_tokens_recomputed_per_ply_mean"],
        )
        most = found["seen_tokens_recomputed_per_ply_max"]
        add("tokens seen before, recomputed per ply: most", most, "", "<= 1")
        passes = found["passes_per_move"]
        add("passes through the weights per move, likelihood", passes, "", "== 1")
    if found := probes.ask("stampede"):
        over = found["computed_over_unique"]
        add("64 cold agents: prompt tokens computed / unique", over, "", "<= 1.05")
    if found := probes.ask("first_move"):
        for scoring in ("likelihood", "masked"):
            times = found[scoring]
            add(f"first move after 1k tokens, {scoring}: cold", 1000 * times["cold_s"], "ms")
            add(f"first move after 1k tokens, {scoring}: cached", 1000 * times["cached_s"], "ms")
            over = times["cached_over_cold"]
            add(f"first move after 1k tokens, {scoring}: cached / cold", over, "", "<= 0.1")
    if found := probes.ask("caching"):
        for name in ("on", "off"):
            add(
                f"masked moves, 8 games, prefix cache {name}",
                found[f"{name}_moves_per_s"],
                "moves/s",
            )
        add("prefix cache on / off", found["on_over_off"], "x")
    return probes.report


def memory(setting: Setting) -> Report:
    """Paged against reserved memory, and what half of the memory costs."""
    probes = _Probes("memory", setting)
    report = probes.report
    if found := probes.ask("memory"):
        mib = found["bytes_per_token"] / (1 << 20)
        named = {
            "ours, used": "used_tokens",
            "ours, allocated": "allocated_tokens",
            "paged, nothing shared": "unshared_tokens",
            f"reserved, {found['max_model_len']} a request": "reserved_tokens",
        }
        rows = [["32 requests, mean of a step", "tokens", "MiB"]]
        rows += [[n, number(found[key]), f"{found[key] * mib:.1f}"] for n, key in named.items()]
        report.tables.append(align(rows))
        report.panels.append(
            {
                "title": "memory of 32 requests",
                "unit": "MiB",
                "bars": {name: found[key] * mib for name, key in named.items()},
            }
        )
        unused = found["allocated_unused_share"]
        report.add("KV memory allocated but unused", unused, "", "<= 0.04")
        report.add("the same, reserved scheme", found["reserved_unused_share"])
    if found := probes.ask("pressure"):
        again = found["recomputed_over_useful"]
        report.add("memory for half of the load: recomputed / useful", again, "", "<= 0.05")
        report.add("memory for half of the load: preemptions", found["preemptions"])
    return report


def latency(setting: Setting) -> Report:
    """Short requests beside a long prompt; refusals; aborts."""
    probes = _Probes("latency", setting)
    add = probes.report.add
    if found := probes.ask("long_prompt"):
        add("16 short requests: p50 without a long prompt", 1000 * found["quiet_p50_s"], "ms")
        add("16 short requests: p99 without a long prompt", 1000 * found["quiet_p99_s"], "ms")
        add("16 short requests: p50 during a cold 4k prompt", 1000 * found["loaded_p50_s"], "ms")
        add("16 short requests: p99 during a cold 4k prompt", 1000 * found["loaded_p99_s"], "ms")
        add("p99 during a cold 4k prompt / p50 without", found["p99_over_quiet_p50"], "x", "<= 3")
        add("the 4k prompt itself", found["long_prompt_s"], "s")
    if found := probes.ask("queue_full"):
        add("queue full: time to the error, p50", 1000 * found["p50_s"], "ms", "< 1")
        add("queue full: time to the error, p99", 1000 * found["p99_s"], "ms")
    if found := probes.ask("abort"):
        add("abort: steps until the pages are back", found["steps_until_free"], "", "<= 1")
    return probes.report


def choices(setting: Setting) -> Report:
    """What the constraint costs per position on the processor."""
    probes = _Probes("choices", setting)
    if found := probes.ask("choices"):
        for part in ("ids", "trie", "mask"):
            probes.report.add(f"{part} of the choices, per position", found[f"{part}_ms"], "CPU ms")
        total = found["trie_and_constraint_ms"]
        probes.report.add("trie and constraint per position", total, "CPU ms", "<= 0.2")
        probes.report.add("probabilities and draw, per position", found["draw_ms"], "CPU ms")
    return probes.report


def lengths(setting: Setting) -> Report:
    """Continuous against static batching on texts of mixed lengths."""
    probes = _Probes("lengths", setting)
    if found := probes.ask("lengths"):
        rates, steps = found["tokens_per_s"], found["steps"]
        names = {"continuous": "ours, continuous", "static": "ours, static batches of 16"}
        for way, name in names.items():
            probes.report.add(f"{name}: tokens/s", rates[way])
            probes.report.add(f"{name}: passes", steps[way])
        probes.report.add("continuous / static", found["continuous_over_static"], "x")
        probes.report.panels.append(
            {
                "title": f"{found['texts']} texts of 4 to {found['longest']} tokens, 16 streams",
                "unit": "tokens/s",
                "bars": {name: rates[way] for way, name in names.items()},
            }
        )
    return probes.report


def accuracy(setting: Setting) -> Report:
    """What smaller numbers change in the moves' log probabilities."""
    probes = _Probes("accuracy", setting)
    found = probes.ask("accuracy")
    for kind in ("as given", "int8 weights", "int8 cache"):
        figures = found.get(kind, {})
        if "failure" in figures:
            probes.report.failures.append(f"ours, {kind}: {figures['failure']}")
        elif figures:
            differ, last = figures["mean_absolute_difference"], figures["last_ply"]
            name = f"dtype {setting.dtype}" if kind == "as given" else kind
            probes.report.add(f"{name}: mean |log p - float32|", differ)
            probes.report.add(f"{name}: the same at turn 10", last)
            goal = ">= 0.95" if kind == "int8 weights" else ""
            probes.report.add(f"{name}: same first move", figures["same_first_move"], "", goal)
    return probes.report
