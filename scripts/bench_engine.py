"""Compare our inference engine with transformers and llama.cpp on the same chess move requests, and
look at what it does inside.

`bench_engine.py SECTION...`; the sections are

  moves     `choose` against all peers; with --games 32 against 32 parallel sequences
  text      free texts, 64 tokens, 16 streams, against continuous and static batching
  streams   rates over 1, 2, 4, ... 64 streams
  prefix    what the prefix cache saves; cold agents; first move cached and cold
  memory    allocated, used and reserved memory; half of the memory
  latency   short requests beside a cold 4k-token prompt; full queue; abort
  choices   what the constraint costs per position
  lengths   continuous against static batching on mixed output lengths
  accuracy  log probabilities and moves with int8 weights and an int8 cache
  all       everything

Every peer is a process of its own with the same number of threads. Repeats alternate between the
peers and each repeat plays other games, so nobody profits from a cache of the last one. Steady
state: a peer answers ply 20 of all games untimed, then plies 21 and up, one move per game per
round. Compare ratios, not figures of different runs. A peer that cannot run says why, and the rest
goes on.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench_sections import probes, rates
from bench_sections.compare import note
from bench_sections.rates import Setting
from bench_sections.report import Report, write_json, write_plot
from fetch_smollm2 import FetchError, fetch_gguf, write_hf

SECTIONS: dict[str, Callable[[Setting], Report]] = {
    "moves": rates.moves,
    "text": rates.text,
    "streams": rates.streams,
    "prefix": probes.prefix,
    "memory": probes.memory,
    "latency": probes.latency,
    "choices": probes.choices,
    "lengths": probes.lengths,
    "accuracy": probes.accuracy,
}
OUT = Path(__file__).resolve().parents[1] / "build" / "bench"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", default=["moves"], help="default: moves"
    )
    parser.add_argument(
        "--model", help="run our engine alone on this model (default: all on SmolLM2)"
    )
    parser.add_argument("--dtype", default="auto", help="our engine's weights (default: auto)")
    parser.add_argument("--games", type=int, default=8, help="moves: concurrent games (8)")
    parser.add_argument("--plies", type=int, default=8, help="moves: timed plies a repeat (8)")
    parser.add_argument("--repeats", type=int, default=3, help="alternating repeats (3)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each peer (1)")
    parser.add_argument(
        "--only", nargs="+", metavar="WORD", default=[], help="only peers whose name has a word"
    )
    parser.add_argument("--quick", action="store_true", help="small counts, one repeat: a try")
    parser.add_argument(
        "--out", type=Path, default=OUT, help="folder of the JSON and PNG files (build/bench)"
    )
    args = parser.parse_args(arguments)
    if unknown := [name for name in args.sections if name not in (*SECTIONS, "all")]:
        parser.error(f"there is no section {unknown[0]!r}; use {', '.join(SECTIONS)} or all")
    if "all" in args.sections:
        args.sections = list(SECTIONS)
    return args


def main() -> int:
    args = parse()
    try:
        gguf = hf = None
        if args.model is None:
            gguf = fetch_gguf()
            hf = write_hf(gguf)
    except FetchError as error:
        note(f"bench_engine: {error}")
        return 1
    setting = Setting(
        model=args.model or str(hf),
        gguf=gguf,
        hf=hf,
        threads=args.threads,
        dtype=args.dtype,
        games=args.games,
        plies=3 if args.quick else args.plies,
        repeats=1 if args.quick else args.repeats,
        quick=args.quick,
        only=tuple(args.only),
    )
    machine = {
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "load_before": os.getloadavg(),
        "model": setting.model,
        "threads": setting.threads,
        "quick": setting.quick,
    }
    print(
        f"model {Path(setting.model).name}, {setting.threads} thread(s) of {os.cpu_count()}, "
        f"load average {os.getloadavg()[0]:.1f}"
    )
    stem = args.out / "-".join(args.sections if len(args.sections) < len(SECTIONS) else ["all"])
    if args.games != 8:
        stem = stem.with_name(f"{stem.name}-{args.games}")
    reports: list[Report] = []
    for section in args.sections:
        start = time.perf_counter()
        report = SECTIONS[section](setting)
        report.seconds = time.perf_counter() - start
        reports.append(report)
        print(f"\n{report.text()}", flush=True)
        write_json(stem.with_suffix(".json"), machine, reports)  # what is there if it ends early
    note(f"wrote {stem.with_suffix('.json')}")
    reason = write_plot(stem.with_suffix(".png"), reports)
    note(f"no plot: {reason}" if reason else f"wrote {stem.with_suffix('.png')}")
    ours = [f for report in reports for f in report.failures if f.startswith("ours")]
    return 1 if ours else 0


if __name__ == "__main__":
    sys.exit(main())
