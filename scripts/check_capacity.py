"""Compare the roofline of `engine.capacity` with what this processor does, and print what it says of GPUs.

The processor's two rates are measured first. Then streams ask for moves, ply by ply over a warm cache, and the rows
that were really computed go into the prediction: measured over predicted is what the roofline does not know (the cost
of small operations, of gathering keys, of Python). The tables for GPUs are predictions and nothing else.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout that is not installed

from model_shapes import SHAPES
from move_load import rounds

import engine
from engine.files import read_json

ROOT = Path(__file__).resolve().parents[1]
SYSTEM = 275  # tokens (or characters) of the prompt that all streams share


def measured(
    directory: Path, streams: int, scoring: Literal["likelihood", "masked"], plies: int
) -> tuple[float, float, list[str]]:
    """Median seconds of a round of moves, what the roofline says of the same rows, and a row of the table."""
    import torch

    from engine import capacity
    from engine.model_config import ModelConfig

    model = ModelConfig.from_dict(read_json(directory / "config.json"))
    llm = engine.LLM(
        engine.EngineConfig(
            str(directory),
            dtype="bfloat16",
            device="cpu",
            num_threads=torch.get_num_threads(),
            max_num_seqs=streams,
            max_num_batched_tokens=4096,
        )
    )
    device = capacity.measure_cpu()
    params = engine.ChoiceParams(scoring=scoring, temperature=0)
    seconds: list[float] = []
    before = llm.stats()
    for ply, asks in enumerate(rounds(streams, plies + 1, first=8, system=SYSTEM)):
        if ply == 1:  # the first round fills the cache
            before = llm.stats()
        started = time.perf_counter()
        outputs = llm.choose([ask.prompt for ask in asks], [ask.choices for ask in asks], params)
        seconds.append(time.perf_counter() - started)
    after = llm.stats()
    steps = (after.steps - before.steps) / plies
    each = plies * steps * streams
    rows = (after.computed_tokens - before.computed_tokens) / each
    scored = (after.scored_rows - before.scored_rows) / each
    exact = scoring == "likelihood"
    context = statistics.mean(output.metrics.prompt_tokens for output in outputs)
    load = capacity.Load(
        streams,
        rows,
        context,
        shared=min(SYSTEM, context) if streams > 1 else 0.0,
        normalised=scored if exact else 0.0,
        edges=0.0 if exact else 3.0 * scored,
    )
    step = capacity.predict(model, load, device)
    found, bound = statistics.median(seconds[1:]), step.seconds * steps
    row = [
        directory.name,
        scoring,
        str(streams),
        f"{rows * streams:.0f} x {steps:.1f}",
        f"{1e3 * bound:.1f}",
        f"{1e3 * found:.1f}",
        f"{found / bound:.2f}",
        f"{streams / bound:.1f}",
        f"{streams / found:.1f}",
    ]
    return found, bound, row


def table(head: list[str], rows: list[list[str]]) -> str:
    """Columns in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def predictions() -> str:
    """Moves per second of the chess workload, exact and masked, and the tokens of the cache, on each GPU."""
    from engine import capacity
    from engine.model_config import ModelConfig

    rows = []
    for name, shape in SHAPES.items():
        model = ModelConfig.from_dict(shape)
        for device in capacity.DEVICES.values():
            cells = [name, device.name]
            for streams in (1, 32, 256):
                moves = capacity.moves_per_second(model, streams, device)
                cells.append(f"{moves.likelihood:,.0f} / {moves.masked:,.0f}")
            cells.append(f"{capacity.kv_tokens(model, device):,}")
            rows.append(cells)
    head = ["model, bf16", "device", "1 stream", "32 streams", "256 streams", "cached tokens"]
    return table(head, rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="*", type=Path, help="directories (default: those here)")
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--plies", type=int, default=5, help="timed rounds (5)")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    import torch

    from engine import capacity

    torch.set_num_threads(args.threads)
    here = [ROOT / "models/smollm2-135m-instruct-hf", ROOT / "arena/models/tiny"]
    models = args.models if args.models is not None else [path for path in here if path.exists()]
    if models:
        device = capacity.measure_cpu()
        print(
            f"measured CPU, {args.threads} thread(s), load average {os.getloadavg()[0]:.1f}: "
            f"{device.bandwidth / 1e9:.1f} GB/s, {device.bf16 / 1e9:.0f} GFLOP/s in bfloat16, "
            f"{device.int8 / 1e9:.0f} in int8\n"
        )
    rows = [
        measured(directory, streams, scoring, args.plies)[2]
        for directory in models
        for scoring in ("likelihood", "masked")
        for streams in args.streams
    ]
    head = ["model", "scoring", "streams", "rows x steps", "predicted ms", "measured ms", "ratio"]
    if rows:
        print(table([*head, "predicted moves/s", "measured moves/s"], rows) + "\n")
    print("Predicted at most, exact / masked moves per second of the chess workload:\n")
    print(predictions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
