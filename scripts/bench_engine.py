"""Compare our inference engine with transformers and llama.cpp on the same chess move requests.

Every peer is a process of its own with the same number of threads. Repeats alternate between the
peers and each repeat plays other games, so nobody profits from a cache of the last one. Steady
state: a peer answers ply 20 of all games untimed, then plies 21 and up, one move per game per
round. Compare ratios, not figures of different runs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench_peers.processes import Peer, PeerFailed, RunningPeer, llamacpp_peer, python_peer
from bench_workload import Row, workload
from fetch_smollm2 import FetchError, fetch_gguf, write_hf

FIRST_PLY = 20  # answered untimed
SEED = 7  # repeat k plays the games of seed SEED + k; the first is the published workload
Round = list[dict[str, Any]]


@dataclass
class Repeat:
    """What one peer did in one repeat."""

    moves: int = 0
    legal: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    latencies: list[float] = field(default_factory=list)

    def add(self, reply: dict[str, Any], requests: Round) -> None:
        self.moves += len(requests)
        self.legal += sum(
            text in request["choices"]
            for text, request in zip(reply["texts"], requests, strict=True)
        )
        self.seconds += reply["seconds"]
        self.cpu_seconds += reply["cpu_seconds"]
        self.prompt_tokens += reply.get("prompt_tokens", 0)
        self.cached_tokens += reply.get("cached_tokens", 0)
        self.latencies += reply["latencies"]


def rounds_of(rows: Sequence[Row], plies: Sequence[int]) -> list[Round]:
    """Group the requests of `plies` into rounds of one move per game."""
    return [
        [
            {
                "game": row["game"],
                "prompt": row["system"] + row["transcript"],
                "choices": row["choices"],
            }
            for row in rows
            if row["ply"] == ply
        ]
        for ply in plies
    ]


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


def run_repeat(running: RunningPeer, rows: Sequence[Row], plies: int) -> Repeat:
    warm = rounds_of(rows, [FIRST_PLY])[0]
    running.ask(warm if running.peer.keeps_cache else warm[:1])
    result = Repeat()
    for requests in rounds_of(rows, timed_plies(running.peer, plies)):
        result.add(running.ask(requests), requests)
    return result


def compare(peers: Sequence[Peer], games: int, plies: int, repeats: int) -> list[dict[str, Any]]:
    """Run all peers, alternating; return one record a peer, with its repeats or the reason why it
    could not run.
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
            rows = list(workload(games, FIRST_PLY + 1 + plies, SEED + repeat))
            order = list(running)
            for name in order if repeat % 2 == 0 else reversed(order):
                try:
                    result = run_repeat(running[name], rows, plies)
                except PeerFailed as error:
                    failures[name] = str(error)
                    note(f"{name} failed: {error}")
                    running.pop(name).close()
                    continue
                results[name].append(result)
                rate = result.moves / result.seconds
                note(f"repeat {repeat + 1}/{repeats}  {name}: {rate:.2f} moves/s")
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
    return record | {
        "moves": sum(repeat.moves for repeat in repeats),
        "legal": sum(repeat.legal for repeat in repeats),
        "moves_per_s": statistics.median(r.moves / r.seconds for r in repeats),
        "moves_per_cpu_s": statistics.median(r.moves / r.cpu_seconds for r in repeats),
        "repeats_moves_per_s": [r.moves / r.seconds for r in repeats],
        "repeats_moves_per_cpu_s": [r.moves / r.cpu_seconds for r in repeats],
        "latency_p50_s": quantile(latencies, 0.50),
        "latency_p99_s": quantile(latencies, 0.99),
        "cached_share": sum(r.cached_tokens for r in repeats) / prompt_tokens
        if prompt_tokens
        else None,
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the sorted values do not exceed."""
    return ordered[min(len(ordered) - 1, max(0, int(share * len(ordered) + 0.999999) - 1))]


def add_ratios(records: list[dict[str, Any]], bases: Sequence[str]) -> None:
    """Add to each record its median ratio to each base, repeat by repeat, by wall and CPU time."""
    by_name = {record["name"]: record for record in records}
    for record in records:
        record["ratios"] = {}
        for base in bases:
            other = by_name.get(base, {})
            if record["failure"] or other.get("failure", "absent"):
                continue
            for kind in ("moves_per_s", "moves_per_cpu_s"):
                pairs = zip(record[f"repeats_{kind}"], other[f"repeats_{kind}"], strict=True)
                record["ratios"].setdefault(base, {})[kind] = statistics.median(
                    mine / theirs for mine, theirs in pairs
                )


def prefix_reuse(peer: Peer, games: int, plies: int) -> dict[str, Any]:
    """Play `games` games from the first ply on a cold engine; report the cached share of prompt
    tokens after ply 5.
    """
    rows = list(workload(games, plies, SEED))
    with RunningPeer(peer) as running:
        replies = [running.ask(requests) for requests in rounds_of(rows, range(plies))]
    later = replies[6:]
    prompt = sum(reply["prompt_tokens"] for reply in later)
    cached = sum(reply["cached_tokens"] for reply in later)
    return {
        "games": games,
        "plies": plies,
        "prompt_tokens_after_ply_5": prompt,
        "cached_tokens_after_ply_5": cached,
        "cached_share_after_ply_5": cached / prompt,
    }


def stampede(peer: Peer, requests: int = 64, ply: int = 8) -> dict[str, Any]:
    """Send `requests` prompts with one system prompt to a cold engine at once; report computed and
    distinct tokens.
    """
    rows = list(workload(requests, ply + 1, SEED))
    with RunningPeer(peer) as running:
        reply = running.ask(rounds_of(rows, [ply])[0])
    computed = reply["prompt_tokens"] - reply["cached_tokens"]
    return {
        "requests": requests,
        "prompt_tokens": reply["prompt_tokens"],
        "computed_tokens": computed,
        "unique_tokens": reply["unique_tokens"],
        "computed_over_unique": computed / reply["unique_tokens"],
        "seconds": reply["seconds"],
    }


def table(records: Sequence[dict[str, Any]], bases: Sequence[str]) -> str:
    """A plain-text table; two ratios to each base, by wall time and (in brackets) by CPU time."""
    heads = ["system", "moves/s", "moves/CPU s", "p50 ms", "p99 ms", "legal", "cached"]
    heads += [f"x {base}" for base in bases]
    lines = [heads]
    for record in records:
        if record["failure"]:
            continue
        cells = [
            record["name"],
            f"{record['moves_per_s']:.2f}",
            f"{record['moves_per_cpu_s']:.2f}",
            f"{1000 * record['latency_p50_s']:.0f}",
            f"{1000 * record['latency_p99_s']:.0f}",
            f"{record['legal']}/{record['moves']}",
            "" if record["cached_share"] is None else f"{record['cached_share']:.1%}",
        ]
        for base in bases:
            ratio = record["ratios"].get(base)
            cells.append(
                f"{ratio['moves_per_s']:.2f} ({ratio['moves_per_cpu_s']:.2f})" if ratio else ""
            )
        lines.append(cells)
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    rendered = [
        "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in cells)
        for cells in (list(enumerate(zip(line, widths, strict=True))) for line in lines)
    ]
    rendered += [f"{r['name']}: could not run: {r['failure']}" for r in records if r["failure"]]
    return "\n".join(rendered)


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--model", help="run our engine alone on this model (default: all on SmolLM2)"
    )
    parser.add_argument("--dtype", default="auto", help="our engine's weights (default: auto)")
    parser.add_argument("--games", type=int, default=8, help="concurrent games (default: 8)")
    parser.add_argument("--plies", type=int, default=8, help="timed plies a repeat (default: 8)")
    parser.add_argument("--repeats", type=int, default=3, help="alternating repeats (default: 3)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each peer (default: 1)")
    parser.add_argument(
        "--only", nargs="+", metavar="WORD", help="only peers whose name contains a word"
    )
    parser.add_argument("--quick", action="store_true", help="one repeat of three plies")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write everything as JSON")
    args = parser.parse_args()
    plies, repeats = (3, 1) if args.quick else (args.plies, args.repeats)

    try:
        gguf = hf = None
        if args.model is None:
            gguf = fetch_gguf()
            hf = write_hf(gguf)
    except FetchError as error:
        note(f"bench_engine: {error}")
        return 1
    model = args.model or str(hf)
    ours = {
        scoring: python_peer(
            f"ours, {scoring}", "peer_arena.py", [scoring, args.dtype, model], args.threads
        )
        for scoring in ("likelihood", "masked")
    }
    peers = list(ours.values())
    bases: list[str] = []
    if gguf and hf:
        one_hf, parallel = "transformers, one at a time", f"llama.cpp, {args.games} parallel"
        bases = [one_hf, parallel]
        peers.append(llamacpp_peer(parallel, gguf, args.games, args.threads, slow=False))
        peers.append(llamacpp_peer("llama.cpp, 1 sequence", gguf, 1, args.threads, slow=True))
        peers += [
            python_peer(
                name,
                "peer_hf.py",
                [mode, dtype, str(hf)],
                args.threads,
                slow=True,
                keeps_cache=False,
            )
            for name, mode, dtype in (
                (one_hf, "seq", "float32"),
                ("transformers, static batch fp32", "batch", "float32"),
                ("transformers, static batch bf16", "batch", "bfloat16"),
            )
        ]
    if args.only:
        peers = [peer for peer in peers if any(word in peer.name for word in args.only)]

    load_before = os.getloadavg()
    records = compare(peers, args.games, plies, repeats)
    add_ratios(records, bases)
    print(
        f"{args.games} games, {plies} timed plies x {repeats} repeats, {args.threads} thread(s), "
        f"model {Path(model).name}, load average {load_before[0]:.1f} -> {os.getloadavg()[0]:.1f}"
    )
    print(table(records, bases))

    extra: dict[str, Any] = {}
    measured = [peer for peer in ours.values() if peer in peers]
    if measured and not any(r["failure"] for r in records if r["name"] == measured[-1].name):
        extra["prefix_reuse"] = prefix_reuse(measured[-1], args.games, 12 if args.quick else 40)
        extra["stampede"] = stampede(measured[-1])
        reuse, cold = extra["prefix_reuse"], extra["stampede"]
        print(
            f"prefix reuse: {reuse['cached_share_after_ply_5']:.2%} of "
            f"{reuse['prompt_tokens_after_ply_5']} prompt tokens after ply 5 came from the cache"
        )
        print(
            f"cold stampede: {cold['requests']} requests, {cold['computed_tokens']} prompt tokens "
            f"computed / {cold['unique_tokens']} unique = {cold['computed_over_unique']:.3f}, "
            f"{cold['seconds']:.1f} s"
        )
    if args.json:
        machine = {
            "platform": platform.platform(),
            "cpus": os.cpu_count(),
            "load_before": load_before,
        }
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(
            json.dumps(
                {
                    "model": model,
                    "games": args.games,
                    "plies": plies,
                    "repeats": repeats,
                    "threads": args.threads,
                    "machine": machine,
                    "peers": records,
                    **extra,
                },
                indent=2,
            )
            + "\n"
        )
        note(f"wrote {args.json}")
    return 1 if any(r["failure"] for r in records if r["name"].startswith("ours")) else 0


if __name__ == "__main__":
    sys.exit(main())
