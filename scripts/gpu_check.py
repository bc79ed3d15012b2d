"""Check and measure the engine on a GPU: one process, under eight minutes, no network.

`gpu_check.py [SECTION...] [--out FOLDER] [--device cuda] [--quick]`. First come the kernels against float64 and the
engine against transformers, then the speeds, on random weights of the sizes of known models. Every section may fail
alone; the JSON (gpu_check.json) has its traceback, and is written after each. A short table comes last. `--device cpu
--quick` runs all of it on tiny shapes, to see that the script works; its figures mean nothing.

Needs torch, triton, transformers, tokenizers, safetensors, numpy and nothing else.
Exit status: 0 if all sections ran, 1 if some failed, 2 if there is no GPU, 3 if the device hung.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout that is not installed

SECTIONS = (
    # name, module, function, seconds on a GPU
    ("device", "speed", "device", 15),
    ("kernels", "kernels", "kernels", 75),
    ("answers", "answers", "answers", 60),
    ("decode-8B", "speed", "decode_large", 75),
    ("moves", "speed", "moves", 80),
    ("prefix", "speed", "prefix", 20),
    ("transformers", "speed", "transformers_batching", 60),
    ("graphs", "speed", "graphs", 40),
    ("stampede", "speed", "stampede", 30),
    ("preemption", "speed", "preemption", 25),
    ("decode", "speed", "decode_others", 50),
)
LIMIT = 440.0  # seconds of all sections


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [name for name, *_ in SECTIONS]
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(names)}")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu with --quick (cuda)")
    parser.add_argument("--out", type=Path, help="folder of the JSON ($OUT, or build/gpu)")
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"seconds in all ({LIMIT:.0f})")
    parser.add_argument("--quick", action="store_true", help="tiny shapes: does the script work?")
    args = parser.parse_args(arguments)
    if unknown := [name for name in args.sections if name not in names]:
        parser.error(f"there is no section {unknown[0]!r}; use {', '.join(names)}")
    if args.device == "cpu" and not args.quick:
        parser.error("on cpu only --quick works: the shapes of large models would take days")
    if args.limit <= 0:
        parser.error("--limit takes a number of seconds above 0")
    if args.out is not None and args.out.exists() and not args.out.is_dir():
        parser.error(f"--out {args.out} is a file; name a folder")
    return args


def main(arguments: list[str] | None = None) -> int:
    started = time.monotonic()
    args = parse(arguments)
    if args.device == "cpu":
        os.environ.setdefault("TRITON_INTERPRET", "1")  # read when triton is imported
    from importlib import import_module

    import torch
    from gpu_checks import harness

    if args.device != "cpu" and not torch.cuda.is_available():
        print("There is no CUDA device here: nothing was checked and nothing was measured.")
        return 2
    out = args.out or Path(os.environ.get("OUT") or "build/gpu")
    out.mkdir(parents=True, exist_ok=True)
    device = torch.device(args.device)
    with tempfile.TemporaryDirectory() as folder:
        context = harness.Context(device, args.quick, Path(folder), harness.rates_of(device))
        sections = [
            harness.Section(
                name, getattr(import_module(f"gpu_checks.{module}"), function), 1.0 * budget
            )
            for name, module, function, budget in SECTIONS
            if not args.sections or name in args.sections
        ]
        limit = args.limit - (time.monotonic() - started)
        report = harness.run_all(sections, context, out, limit)
    print(f"\n{harness.table(context.rows, verdicts=not args.quick)}")
    print(f"\n{time.monotonic() - started:.0f} s in all; all figures: {out / 'gpu_check.json'}")
    return int(any("error" in found for found in report["sections"].values()))


if __name__ == "__main__":
    sys.exit(main())
