"""Train the bundled model `tiny`: a small Llama that plays both games from the very prompts that agents send.

    python scripts/make_games.py --game chess  --out data/chess.jsonl
    python scripts/make_games.py --game janggi --out data/janggi.jsonl
    python scripts/train_tiny.py --data data --work work --steps 6000
    python scripts/train_tiny.py --work work --export arena/models/tiny

The loss is on the moves of one side per sequence, whose strength the persona names. Training can be killed and
called again: it goes on from the last checkpoint in --work, and `--steps` may differ then. The learning rate stays
constant and falls to zero over the last quarter of the steps, so a run can be cut short by a smaller `--steps`. The log
is log.jsonl in --work, and log.png where matplotlib is installed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import argparse
import ctypes
import json
import math
import random
import time
from pathlib import Path
from typing import Any

import torch
from tiny_data import (
    IGNORE,
    Batch,
    Batches,
    Record,
    Sequences,
    make_batch,
    read_records,
    train_tokenizer,
)
from tokenizers import Tokenizer
from torch.utils.data import DataLoader
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

import games

MAX_LENGTH = 2048  # tokens; the longest prompt an agent may send
DECAY_SHARE = 0.25
LEGAL_WEIGHT = 1.0  # of -log(legal mass) beside the loss of the played moves
BOARD_WEIGHT = 3.0  # of reading the board from the hidden state
BOARD_LAYER = 4  # whose output tells the board; the layers above are free to use it


def new_model(vocab_size: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=256,
            intermediate_size=688,
            num_hidden_layers=6,
            num_attention_heads=8,
            num_key_value_heads=4,
            max_position_embeddings=MAX_LENGTH,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
            bos_token_id=None,
            eos_token_id=0,
            pad_token_id=None,
            attn_implementation="products",
        )
    )


def products(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    scaling: float = 1.0,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention as two products and a softmax. query [B, heads, T, d]; key, value [B, kv heads, K, d].

    torch's fused attention took 60% of a step on CPU in bfloat16, this takes 20%.
    """
    b, heads, t, d = query.shape
    kv, n = key.shape[1:3]
    hidden = torch.full((t, n), float("-inf"), dtype=torch.bfloat16, device=query.device)
    with torch.autocast(query.device.type, enabled=False):
        q = (query.bfloat16() * scaling).reshape(b * kv, heads // kv * t, d)
        k, v = (x.bfloat16().reshape(b * kv, n, d) for x in (key, value))
        scores = torch.bmm(q, k.transpose(1, 2)).view(-1, t, n) + hidden.triu(n - t + 1)
        weights = torch.softmax(scores, dim=-1).view(b * kv, -1, n)
        return torch.bmm(weights, v).view(b, heads, t, d).transpose(1, 2), None


AttentionInterface.register("products", products)
AttentionMaskInterface.register("products", lambda *_, **__: None)


def optimizers(model: torch.nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for embeddings and norms (Jordan et al. 2024)."""
    inner = {n: p for n, p in model.named_parameters() if p.ndim == 2 and ".layers." in n}
    matrices = list(inner.values())
    others = [p for n, p in model.named_parameters() if n not in inner]
    return [
        torch.optim.Muon(matrices, lr=lr, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


class Student(torch.nn.Module):
    """The model, and heads that read the board from a middle layer; they only help it learn and are not exported."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.llama = new_model(vocab_size)
        self.boards = torch.nn.ModuleDict()
        for name in games.list_games():
            game = games.get_game(name)
            classes = game.files * game.ranks * (2 * len(game.pieces) + 1)
            self.boards[name] = torch.nn.Linear(self.llama.config.hidden_size, classes)

    def losses(self, batch: Batch) -> dict[str, torch.Tensor]:
        """In nats: `move` per learned token, `legal` -log(legal mass) per token of a move, `board` per square.

        The rules are computed once per batch and their keys and values lent to every row.
        """
        shared = self.llama.model(input_ids=batch.rules, use_cache=True).past_key_values
        cache = DynamicCache()
        for index, layer in enumerate(shared.layers):
            rows = (len(batch.ids), -1, -1, -1)
            cache.update(layer.keys.expand(rows), layer.values.expand(rows), index)
        output = self.llama.model(
            input_ids=batch.ids, past_key_values=cache, output_hidden_states=True
        )
        wanted = batch.labels[:, 1:].flatten()
        logits = self.llama.lm_head(output.last_hidden_state).flatten(0, 1).float()
        weight = torch.logsumexp(logits, dim=-1)
        learned = (batch.labels[:, 1:] != IGNORE).nonzero()
        rows = learned[:, 0] * batch.ids.shape[1] + learned[:, 1]
        tokens = wanted[wanted != IGNORE]
        move = (weight[rows] - logits[rows, tokens]).mean()
        legal = [
            weight[batch.plies + offset] - legal_weight(logits, batch.plies + offset, tokens)
            for offset, tokens in enumerate((batch.first, batch.second))
        ]
        middle = output.hidden_states[BOARD_LAYER].flatten(0, 1)[batch.plies]
        board = self.boards[batch.game](middle).view(*batch.board.shape, -1)
        return {
            "move": move,
            "legal": torch.cat(legal).mean(),
            "board": torch.nn.functional.cross_entropy(
                board.flatten(0, 1).float(), batch.board.flatten()
            ),
        }


def legal_weight(logits: torch.Tensor, rows: torch.Tensor, legal: torch.Tensor) -> torch.Tensor:
    """[n] logsumexp over the legal tokens. logits: [N, V]; rows: [n]; legal: [m, 2] an index into rows and a token."""
    mask = torch.ones((len(rows), logits.shape[1]), dtype=torch.bool, device=logits.device)
    mask[legal[:, 0], legal[:, 1]] = False
    return torch.logsumexp(logits[rows].masked_fill(mask, float("-inf")), dim=-1)


@torch.no_grad()
def evaluate(
    model: Student, records: list[Record], sequences: Sequences, device: str
) -> dict[str, dict[str, float]]:
    """The losses per game over 96 held-out games of middle length, and `mass`, exp(-2 legal): about a move's."""
    model.eval()
    result = {}
    for name in sorted({r.game for r in records}):
        chosen = sorted((r for r in records if r.game == name), key=lambda r: len(r.moves))
        middle = max(len(chosen) // 2 - 48, 0)
        chosen = chosen[middle : middle + 96]
        sums: dict[str, float] = {}
        for i in range(0, len(chosen), 16):
            batch = make_batch(chosen[i : i + 16], sequences, random.Random(i)).to(device)
            with torch.autocast(device, dtype=torch.bfloat16):
                for key, loss in model.losses(batch).items():
                    sums[key] = sums.get(key, 0.0) + float(loss) * len(batch.ids) / len(chosen)
        result[name] = {key: round(loss, 4) for key, loss in sums.items()}
        result[name]["mass"] = round(math.exp(-2 * sums["legal"]), 4)
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
    model = Student(tokenizer.get_vocab_size()).to(device)
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
        scale = min(1.0, (step + 1) / 100, left / DECAY_SHARE)
        for opt in opts:
            for group in opt.param_groups:
                group["lr"] = args.lr * scale
        with torch.autocast(device, dtype=torch.bfloat16):
            losses = model.losses(batch.to(device))
        weighted = LEGAL_WEIGHT * losses["legal"] + BOARD_WEIGHT * losses["board"]
        (losses["move"] + weighted).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt in opts:
            opt.step()
            opt.zero_grad(set_to_none=True)
        step += 1
        tokens += batch.ids.numel()
        for key, loss in losses.items():
            running[key] = running.get(key, 0.0) + loss.item() / args.log_every
        if step % args.log_every == 0 or step == args.steps:
            elapsed = time.monotonic() - started
            entry: dict[str, Any] = {
                "step": step,
                **{key: round(loss, 4) for key, loss in running.items()},
                "tokens_per_s": round(tokens / elapsed),
                "seconds": round(seconds + elapsed),
                "lr": round(args.lr * scale, 6),
            }
            if step % (args.log_every * 5) == 0 or step == args.steps:
                entry["held_out"] = evaluate(model, held_out, sequences, device)
            running = {}
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
    units = {"move": "nats per token", "legal": "nats per token", "board": "nats per square"}
    figure, panels = pyplot.subplots(1, len(units), figsize=(13, 4), layout="constrained")
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
    student = Student(tokenizer.get_vocab_size())
    student.load_state_dict(torch.load(work / "checkpoint.pt", map_location="cpu")["model"])
    model = student.llama
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
