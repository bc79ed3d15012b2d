"""Rates of several peers on the same requests, alternating, and their ratios within one run."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench_peers.processes import Peer, PeerFailed, RunningPeer
from bench_workload import Row

from bench_sections.report import Report, align

FIRST_PLY = 20  # answered untimed
SEED = 7  # repeat k plays the games of seed SEED + k; the first is the published workload
Round = list[dict[str, Any]]


@dataclass
class Repeat:
    """What one peer did in one repeat; `done` counts moves, or tokens of texts."""

    done: int = 0
    legal: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    rounds: int = 0
    steps: int = 0
    latencies: list[float] = field(default_factory=list)

    def add(self, reply: dict[str, Any], requests: Round) -> None:
        if "choices" in requests[0]:
            self.done += len(requests)
            self.legal += sum(
                text in request["choices"]
                for text, request in zip(reply["texts"], requests, strict=True)
            )
        else:
            self.done += reply["tokens"]
        self.seconds += reply["seconds"]
        self.cpu_seconds += reply["cpu_seconds"]
        self.prompt_tokens += reply.get("prompt_tokens", 0)
        self.cached_tokens += reply.get("cached_tokens", 0)
        self.rounds += 1
        self.steps += reply.get("steps", 0)
        self.latencies += reply["latencies"]


def rounds_of(rows: Iterable[Row], plies: Sequence[int], max_tokens: int = 0) -> list[Round]:
    """The requests of `plies` in rounds, one a game: moves, or texts of `max_tokens` tokens."""
    rounds: dict[int, Round] = {ply: [] for ply in plies}
    for row in rows:
        if row["ply"] in rounds:
            request: dict[str, Any] = {
                "game": row["game"],
                "prompt": row["system"] + row["transcript"],
            }
            request |= {"max_tokens": max_tokens} if max_tokens else {"choices": row["choices"]}
            rounds[row["ply"]].append(request)
    return list(rounds.values())


def timed_plies(peer: Peer, plies: int) -> list[int]:
    """The plies that a peer is timed on: a slow one gets a quarter, spread over the range where it
    keeps no cache.
    """
    timed = list(range(FIRST_PLY + 1, FIRST_PLY + 1 + plies))
    if not peer.slow:
        return timed
    count = max(1, plies // 4)
    if peer.keeps_cache:
        return timed[:count]
    return [timed[(2 * i + 1) * plies // (2 * count)] for i in range(count)]


def run_moves(running: RunningPeer, rows: Sequence[Row], plies: int) -> Repeat:
    """Ply 20 untimed, then the timed plies, one move per game per round."""
    peer = running.peer
    limit = peer.most_requests or None
    warm = rounds_of(rows, [FIRST_PLY])[0][:limit]
    running.ask(warm if peer.keeps_cache else warm[:1])
    result = Repeat()
    for requests in rounds_of(rows, timed_plies(peer, plies)):
        result.add(running.ask(requests[:limit]), requests[:limit])
    return result


def run_texts(running: RunningPeer, rows: Sequence[Row], max_tokens: int) -> Repeat:
    """One token after ply 20 untimed, then a text of `max_tokens` tokens per game after ply 21."""
    warm = rounds_of(rows, [FIRST_PLY], 1)[0]
    running.ask(warm if running.peer.keeps_cache else warm[:1])
    result = Repeat()
    requests = rounds_of(rows, [FIRST_PLY + 1], max_tokens)[0]
    result.add(running.ask(requests), requests)
    return result


def compare(
    peers: Sequence[Peer],
    repeats: int,
    rows: Callable[[int], list[Row]],
    run: Callable[[RunningPeer, Sequence[Row]], Repeat],
    unit: str,
) -> list[dict[str, Any]]:
    """Run all peers, alternating, each repeat on the rows of another seed (slow peers: the first
    only); return one record a peer, with its repeats or the reason why it could not run.
    """
    running: dict[str, RunningPeer] = {}
    results: dict[str, list[Repeat]] = {peer.name: [] for peer in peers}
    failures: dict[str, str] = {}
    versions: dict[str, str] = {}
    try:
        for peer in peers:
            note(f"starting {peer.name}")
            try:
                running[peer.name] = RunningPeer(peer)
                versions[peer.name] = running[peer.name].facts["version"]
            except PeerFailed as error:
                failures[peer.name] = str(error)
                note(f"{peer.name} cannot run: {error}")
        for repeat in range(repeats):
            requests = rows(SEED + repeat)
            order = [name for name in running if not (repeat and running[name].peer.slow)]
            for name in order if repeat % 2 == 0 else reversed(order):
                try:
                    result = run(running[name], requests)
                except PeerFailed as error:
                    failures[name] = str(error)
                    note(f"{name} failed: {error}")
                    running.pop(name).close()
                    continue
                results[name].append(result)
                note(
                    f"repeat {repeat + 1}/{repeats}  {name}: {result.done / result.seconds:.2f} {unit}/s"
                )
                if running[name].peer.slow:
                    running.pop(name).close()  # it has done its part and frees its memory
    finally:
        for left in running.values():
            left.close()
    return [
        summary(peer, results[peer.name], failures.get(peer.name), versions.get(peer.name))
        for peer in peers
    ]


def summary(
    peer: Peer, repeats: list[Repeat], failure: str | None, version: str | None
) -> dict[str, Any]:
    record: dict[str, Any] = {"name": peer.name, "version": version, "failure": failure}
    if failure or not repeats:
        return record
    latencies = sorted(latency for repeat in repeats for latency in repeat.latencies)
    prompt_tokens = sum(repeat.prompt_tokens for repeat in repeats)
    steps = sum(repeat.steps for repeat in repeats)
    return record | {
        "done": sum(repeat.done for repeat in repeats),
        "legal": sum(repeat.legal for repeat in repeats),
        "per_s": statistics.median(r.done / r.seconds for r in repeats),
        "per_cpu_s": statistics.median(r.done / r.cpu_seconds for r in repeats),
        "repeats_per_s": [r.done / r.seconds for r in repeats],
        "repeats_per_cpu_s": [r.done / r.cpu_seconds for r in repeats],
        "latency_p50_s": quantile(latencies, 0.50),
        "latency_p99_s": quantile(latencies, 0.99),
        "passes_per_round": steps / sum(r.rounds for r in repeats) if steps else None,
        "cached_share": sum(r.cached_tokens for r in repeats) / prompt_tokens
        if prompt_tokens
        else None,
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the sorted values do not exceed."""
    return ordered[min(len(ordered) - 1, max(0, int(share * len(ordered) + 0.999999) - 1))]


def ratio(records: Sequence[dict[str, Any]], name: str, base: str) -> dict[str, float] | None:
    """Median ratio of `name` to `base`, repeat by repeat as far as both went, by wall time
    ("per_s") and CPU time ("per_cpu_s"); None if one of them has no figures.
    """
    by_name = {record["name"]: record for record in records}
    mine, theirs = by_name.get(name, {}), by_name.get(base, {})
    if "per_s" not in mine or "per_s" not in theirs:
        return None
    return {
        kind: statistics.median(
            a / b for a, b in zip(mine[f"repeats_{kind}"], theirs[f"repeats_{kind}"], strict=False)
        )
        for kind in ("per_s", "per_cpu_s")
    }


def tell(
    report: Report,
    title: str,
    records: Sequence[dict[str, Any]],
    bases: Sequence[str],
    unit: str,
    key: str = "peers",
) -> None:
    """Add records to a report: a table with two ratios to each base, by wall time and (in brackets)
    by CPU time, a panel of bars, the failures and the data.
    """
    for record in records:
        record["ratios"] = {
            base: found for base in bases if (found := ratio(records, record["name"], base))
        }
    report.data[key] = list(records)
    report.failures += [f"{r['name']}: {r['failure']}" for r in records if r["failure"]]
    good = [record for record in records if "per_s" in record]
    if not good:
        return
    report.tables.append(table(title, good, bases, unit))
    report.panels.append(
        {"title": title, "unit": f"{unit}/s", "bars": {r["name"]: r["per_s"] for r in good}}
    )


def table(title: str, records: Sequence[dict[str, Any]], bases: Sequence[str], unit: str) -> str:
    moves = unit == "moves"
    heads = [title, f"{unit}/s", f"{unit}/CPU s", "p50 ms", "p99 ms", "passes", "cached"]
    heads += (["legal"] if moves else [unit]) + [f"x {base}" for base in bases]
    lines = [heads]
    for record in records:
        passes, cached = record["passes_per_round"], record["cached_share"]
        cells = [
            record["name"],
            f"{record['per_s']:.2f}",
            f"{record['per_cpu_s']:.2f}",
            f"{1000 * record['latency_p50_s']:.0f}",
            f"{1000 * record['latency_p99_s']:.0f}",
            "" if passes is None else f"{passes:.2f}",
            "" if cached is None else f"{cached:.1%}",
            f"{record['legal']}/{record['done']}" if moves else str(record["done"]),
        ]
        for base in bases:
            found = record["ratios"].get(base)
            cells.append(f"{found['per_s']:.2f} ({found['per_cpu_s']:.2f})" if found else "")
        lines.append(cells)
    return align(lines)


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
