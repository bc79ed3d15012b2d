"""Train the bundled model `tiny`: a small Llama that plays both games from the very prompts that agents send.

    python scripts/make_games.py --game chess  --out data/chess.jsonl
    python scripts/make_games.py --game janggi --out data/janggi.jsonl
    python scripts/rate_moves.py --games data/chess.jsonl  --out data/chess.rated --plies 8
    python scripts/rate_moves.py --games data/janggi.jsonl --out data/janggi.rated --plies 8
    python scripts/train_tiny.py --data data --work work --steps 2400
    python scripts/train_tiny.py --work work --export arena/models/tiny

The loss is on the moves alone: on all legal ones of a position, each as likely as it is good in the eyes of an engine,
and the more so the stronger the persona says that the agent is. Training can be killed and called again: it goes on
from the last checkpoint in --work, and `--steps` may differ then. The learning rate stays constant for a tenth of the
steps and falls to zero from there. The log is log.jsonl in --work, and log.png where matplotlib is installed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Nothing else should run beside it, so a thread may wait awake for the next product: two thirds of the time a step.
os.environ.setdefault("GOMP_SPINCOUNT", "100000")
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # large pages: two thirds of the time a step

import argparse
import ctypes
import json
import random
import time
from pathlib import Path
from typing import Any

import torch
from tiny_data import (
    GAMES_PER_BATCH,
    Batches,
    Record,
    Sequences,
    make_batch,
    read_records,
    train_tokenizer,
)
from tiny_model import MAX_LENGTH, Student
from tokenizers import Tokenizer
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast

DECAY_SHARE = 0.9  # of the steps: legal mass grew little until the learning rate fell
LEGAL = 2.0  # weight of the illegal mass beside its part in the divergence
HELD_OUT_GAMES = 32


def optimizers(model: torch.nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for embeddings and norms (Jordan et al. 2024)."""
    inner = {n: p for n, p in model.named_parameters() if p.ndim == 2 and ".layers." in n}
    matrices = list(inner.values())
    others = [p for n, p in model.named_parameters() if n not in inner]
    return [
        torch.optim.Muon(matrices, lr=lr, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


@torch.no_grad()
def evaluate(
    model: Student, records: list[Record], sequences: Sequences, device: str
) -> dict[str, dict[str, float]]:
    """The losses per game over the same few held-out games."""
    model.eval()
    result = {}
    for name in sorted({r.game for r in records}):
        chosen = [r for r in records if r.game == name and r.rated][:HELD_OUT_GAMES]
        sums: dict[str, float] = {}
        for i in range(0, len(chosen), GAMES_PER_BATCH):
            batch = make_batch(chosen[i : i + GAMES_PER_BATCH], sequences, random.Random(i))
            with torch.autocast(device, dtype=torch.bfloat16):
                for key, loss in model.losses(batch.to(device)).items():
                    sums[key] = sums.get(key, 0.0) + float(loss) * GAMES_PER_BATCH / len(chosen)
        result[name] = {key: round(loss, 4) for key, loss in sums.items()}
    model.train()
    return result


def keep_freed_memory() -> None:
    """Tell glibc to give no memory back: getting it again, page by page, took a third of a step on CPU."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(-4, 0)  # M_MMAP_MAX: no blocks of their own for large tensors
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def train(args: argparse.Namespace) -> None:
    args.work.mkdir(parents=True, exist_ok=True)
    keep_freed_memory()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(args.threads)
    records, held_out = read_records(args.data)
    print(f"{len(records)} games to learn from, {len(held_out)} held out, on {device}", flush=True)
    tokenizer_file = args.work / "tokenizer.json"
    if not tokenizer_file.exists():
        train_tokenizer().save(str(tokenizer_file))
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    sequences = Sequences(tokenizer)
    model = Student(tokenizer).to(device)
    opts = optimizers(model, args.lr)
    step, seconds = 0, 0.0
    checkpoint = args.work / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device)
        model.load_state_dict(state["model"])
        for opt, saved in zip(opts, state["optimizers"], strict=True):
            opt.load_state_dict(saved)
        step, seconds = state["step"], state["seconds"]
        print(f"going on from step {step}", flush=True)
    parameters = sum(p.numel() for p in model.llama.parameters())
    print(
        f"{parameters / 1e6:.2f} M parameters, vocabulary {tokenizer.get_vocab_size()}", flush=True
    )

    log = (args.work / "log.jsonl").open("a")
    started, last_save, tokens = time.monotonic(), time.monotonic(), 0
    running: dict[str, float] = {}
    summed = 0

    def save() -> None:
        state = {
            "model": model.state_dict(),
            "optimizers": [o.state_dict() for o in opts],
            "step": step,
            "seconds": seconds + time.monotonic() - started,
        }
        torch.save(state, checkpoint.with_suffix(".new"))
        checkpoint.with_suffix(".new").replace(checkpoint)

    # The rules are asked in a process of their own, while the last batch is learned from.
    source = DataLoader(
        Batches(records, sequences, args.seed, step),
        batch_size=None,
        num_workers=1,
        prefetch_factor=8,
    )
    for batch in source:
        if step >= args.steps:
            break
        left = (args.steps - step) / args.steps
        scale = min(1.0, (step + 1) / 50, left / DECAY_SHARE)
        for opt in opts:
            for group in opt.param_groups:
                group["lr"] = args.lr * scale
        with torch.autocast(device, dtype=torch.bfloat16):
            losses = model.losses(batch.to(device))
        (losses["first"] + losses["next"] + LEGAL * losses["illegal"]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt in opts:
            opt.step()
            opt.zero_grad(set_to_none=True)
        step += 1
        tokens += batch.ids.numel() + batch.trunks.numel()
        for key, loss in losses.items():
            running[key] = running.get(key, 0.0) + loss.item()
        summed += 1
        if step % args.log_every == 0 or step == args.steps:
            elapsed = time.monotonic() - started
            entry: dict[str, Any] = {
                "step": step,
                **{key: round(loss / summed, 4) for key, loss in running.items()},
                "tokens_per_s": round(tokens / elapsed),
                "seconds": round(seconds + elapsed),
                "lr": round(args.lr * scale, 6),
            }
            if step % (args.log_every * 10) == 0 or step == args.steps:
                entry["held_out"] = evaluate(model, held_out, sequences, device)
            running, summed = {}, 0
            print(json.dumps(entry), flush=True)
            log.write(json.dumps(entry) + "\n")
            log.flush()
        if time.monotonic() - last_save > 120:
            save()
            last_save = time.monotonic()
    save()
    plot(args.work)


def plot(work: Path) -> None:
    """log.png beside log.jsonl: the losses of training, and of the held-out games."""
    try:
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot
    except ImportError:
        print(
            "matplotlib is absent: pip install 'arena[bench]', or matplotlib alone, draws the log"
        )
        return
    # A run that was killed computed some steps again: the later line is what the weights came from.
    entries = {e["step"]: e for e in map(json.loads, (work / "log.jsonl").open())}
    log = [entries[step] for step in sorted(entries)]
    seen = [entry for entry in log if "held_out" in entry]
    units = dict.fromkeys(("first", "next", "illegal"), "nats per move") | {"mass": "legal mass"}
    figure, panels = pyplot.subplots(1, len(units), figsize=(16, 4), layout="constrained")
    for panel, (key, unit) in zip(panels, units.items(), strict=True):
        panel.plot([e["step"] for e in log], [e[key] for e in log], lw=0.8, label="training")
        for name in seen[0]["held_out"] if seen else ():
            values = [e["held_out"][name][key] for e in seen]
            panel.plot([e["step"] for e in seen], values, label=f"held out, {name}")
        panel.set(xlabel="step", ylabel=unit, yscale="log", title=key)
        panel.legend()
    figure.savefig(work / "log.png", dpi=100)
    pyplot.close(figure)


def export(work: Path, folder: Path) -> None:
    """Write the Hugging Face directory that the package contains."""
    tokenizer = Tokenizer.from_file(str(work / "tokenizer.json"))
    student = Student(tokenizer)
    student.load_state_dict(torch.load(work / "checkpoint.pt", map_location="cpu")["model"])
    model = student.llama
    weight = model.model.embed_tokens.weight
    weight.data = student.table().detach()
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|end|>",
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{folder}: {size / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of *.jsonl games")
    parser.add_argument("--work", type=Path, default=Path("work"), help="checkpoints and log")
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--export", type=Path, help="write the model there instead of training")
    args = parser.parse_args()
    if args.export:
        export(args.work, args.export)
    else:
        train(args)


if __name__ == "__main__":
    main()
