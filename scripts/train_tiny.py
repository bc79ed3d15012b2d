"""Train the bundled model `tiny`: a small Llama that plays both games from the very prompts that agents send.

    python scripts/make_games.py --game chess  --out data/chess.jsonl
    python scripts/make_games.py --game janggi --out data/janggi.jsonl
    python scripts/rate_moves.py --games data/chess.jsonl  --out data/chess.rated
    python scripts/rate_moves.py --games data/janggi.jsonl --out data/janggi.rated
    python scripts/train_tiny.py --data data --work work --steps 3000
    python scripts/train_tiny.py --work work --export arena/models/tiny

The loss is on the moves alone: on all legal ones of a position, each as likely as it is good in the eyes of an engine,
and the more so the stronger the persona says that the agent is. Training can be killed and called again: it goes on
from the last checkpoint in --work, and `--steps` may differ then. The learning rate stays constant for a quarter of the
steps and falls to zero from there. The log is log.jsonl in --work, and log.png where matplotlib is installed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import argparse
import ctypes
import json
import random
import re
import time
from pathlib import Path
from typing import Any

import torch
from tiny_data import (
    GAMES_PER_BATCH,
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

MAX_LENGTH = 2048  # tokens; the longest prompt an agent may send
DECAY_SHARE = 0.75
EVEN_SHARE = 0.5  # of the loss after a move's first token is spread evenly over the pieces, the rest by their share
ALIKE, COPIED, COMMON, BACK, WRITTEN, FOUND = (
    0.5,
    0.4,
    0.3,
    1.2,
    0.5,
    2.0,
)  # sizes of what `prepare_to_copy` adds
PART, WHOLE = 0.2, 0.5  # standard deviations of parts of embeddings and of their sums
OUTPUT = 0.15  # scale of what comes out, for first logits of about 1
SQUARE = re.compile(r"( ?)([a-i])(10|[1-9])")
FACTS = re.compile(r" (x[a-z])?([+#=-])?(\?[A-Z])?")


def new_model(vocab_size: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=5,
            num_attention_heads=8,
            num_key_value_heads=4,
            max_position_embeddings=MAX_LENGTH,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
            bos_token_id=None,
            eos_token_id=0,
            pad_token_id=None,
            attn_implementation="products",
        )
    )


@torch.no_grad()
def prepare_to_copy(model: LlamaForCausalLM) -> None:
    """Start near what copying a move from a list takes, which random weights need many hundred steps to find.

    Half of the heads of the first layer look one token back and write down what stands there, a quarter two tokens.
    Half of those of the second look for a token before which the present one stood, and copy it (an induction head,
    Olsson et al. 2022). All others look for tokens like their own and copy them (mimetic initialization, Trockman &
    Kolter 2023).
    """
    config = model.config
    width, size, heads = config.hidden_size, config.head_dim, config.num_attention_heads
    group = heads // config.num_key_value_heads
    pairs = (
        size // 2
    )  # of dimensions i and i + pairs; RoPE turns them by theta ** -(i / pairs) a place
    turns = config.rope_parameters["rope_theta"] ** -(torch.arange(pairs) / pairs)
    slow = (turns < 0.01).repeat(2).float()[:, None]  # hardly turned within a list
    common = torch.nn.functional.normalize(torch.randn(width), dim=0)
    # What all tokens have in common, for heads that look at places alone; the same logit for all, so no bias.
    model.model.embed_tokens.weight += COMMON * width**0.5 * common
    model.model.norm.weight.fill_(OUTPUT)
    for layer in model.model.layers:
        attention = layer.self_attn
        keys, values = (
            torch.nn.init.orthogonal_(torch.empty(width, width))[: heads // group * size]
            for _ in range(2)
        )
        attention.k_proj.weight += ALIKE * keys
        attention.v_proj.weight += values
        for head in range(heads):
            own, shared = (slice(h * size, (h + 1) * size) for h in (head, head // group))
            attention.q_proj.weight[own] += ALIKE * keys[shared]
            attention.o_proj.weight[:, own] += COPIED * values[shared].T
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    fast = (turns > 0.15).float()
    here = torch.cat([fast, torch.zeros(pairs)])
    bases = torch.nn.init.orthogonal_(torch.empty(width, width))
    for head in range(heads * 3 // 4):
        distance = 1 if head < heads // 2 else 2
        back = torch.cat([fast * (turns * distance).cos(), -fast * (turns * distance).sin()])
        own, shared = (slice(h * size, (h + 1) * size) for h in (head, head // group))
        read, write = bases[shared], bases[width // 2 :][shared]
        first.q_proj.weight[own] = BACK * torch.outer(back, common)
        first.k_proj.weight[shared] = BACK * torch.outer(here, common)
        first.v_proj.weight[shared] = read
        first.o_proj.weight[:, own] = WRITTEN * write.T
        if distance == 1:
            second.q_proj.weight[own] = FOUND * slow * read
            second.k_proj.weight[shared] = FOUND * slow * write


def products(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    scaling: float = 1.0,
    bias: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as two products and a softmax. query [B, heads, T, d]; key, value [B, kv heads, K, d]; bias [B, T, K]
    is 0 where a token may look and -inf elsewhere, None for causal.

    torch's fused attention took 60% of a step on CPU in bfloat16, this takes 20%.
    """
    b, heads, t, d = query.shape
    kv, n = key.shape[1:3]
    if bias is None:
        hidden = torch.full((t, n), float("-inf"), dtype=torch.bfloat16, device=query.device)
        bias = hidden.triu(n - t + 1)[None]
    with torch.autocast(query.device.type, enabled=False):
        q = (query.bfloat16() * scaling).reshape(b * kv, heads // kv * t, d)
        k, v = (x.bfloat16().reshape(b * kv, n, d) for x in (key, value))
        scores = torch.bmm(q, k.transpose(1, 2)).view(b, heads, t, n) + bias[:, None]
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


class Factored(torch.nn.Module):
    """Embeddings of squares and of what moves do as sums: what is learned of d4 says something of its file, rank and
    diagonals, and of taking a queen something of every move that takes one. They are added up for the export.
    """

    def __init__(self, vocabulary: dict[str, int], width: int) -> None:
        super().__init__()
        names: dict[str, int] = {}
        marks = []
        for word, number in sorted(vocabulary.items(), key=lambda item: item[1]):
            for part in parts_of(word.replace("\u0120", " ")):
                marks.append((number, names.setdefault(part, len(names))))
        has = torch.zeros(max(vocabulary.values()) + 1, len(names))
        has[tuple(torch.tensor(marks).T)] = 1.0
        self.register_buffer("has", has)
        self.parts = torch.nn.Parameter(PART * torch.randn(len(names), width))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight + self.has @ self.parts


def parts_of(word: str) -> list[str]:
    """What a token shares with others of its kind; nothing for a token that is no square and says nothing of a move."""
    if match := SQUARE.fullmatch(word):
        file, rank = ord(match[2]), int(match[3])
        return [
            f"place {match[1]}",
            f"square {match[2]}{rank}",
            f"file {file}",
            f"rank {rank}",
            f"rising {rank - file}",
            f"falling {rank + file}",
        ]
    if match := FACTS.fullmatch(word):
        return [part for part in match.groups() if part]
    return []


class Student(torch.nn.Module):
    """The model as it learns: its embeddings are made of parts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.llama = new_model(tokenizer.get_vocab_size())
        self.parts = Factored(tokenizer.get_vocab(), self.llama.config.hidden_size)
        with torch.no_grad():  # all sums equally large
            rest = (WHOLE**2 - PART**2 * self.parts.has.sum(1)).clamp(min=PART**2).sqrt()
            self.llama.model.embed_tokens.weight.normal_().mul_(rest[:, None])
        prepare_to_copy(self.llama)

    def table(self) -> torch.Tensor:
        """[vocabulary, width] the embeddings, added up."""
        return self.parts(self.llama.model.embed_tokens.weight)

    def hidden(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """[n, width] what comes out for the batch's nodes, and the embeddings.

        The rules are computed once per batch, each trunk once for its branches.
        """
        table = self.table()
        embed = torch.nn.functional.embedding
        model = self.llama.model
        shared = model(inputs_embeds=embed(batch.rules, table), use_cache=True).past_key_values
        cache = DynamicCache()
        for index, layer in enumerate(shared.layers):
            rows = (len(batch.trunks), -1, -1, -1)
            cache.update(layer.keys.expand(rows), layer.values.expand(rows), index)
        trunks = model(
            inputs_embeds=embed(batch.trunks, table), past_key_values=cache, use_cache=True
        )
        cache = DynamicCache()
        for index, layer in enumerate(trunks.past_key_values.layers):
            cache.update(layer.keys[batch.row], layer.values[batch.row], index)
        n, size = batch.ids.shape
        rules = torch.ones(n, batch.rules.shape[1], dtype=torch.bool, device=batch.ids.device)
        before = torch.cat([rules, batch.seen], dim=1)[:, None].expand(-1, size, -1)
        sees = torch.cat([before, batch.visible], dim=2)
        bias = torch.zeros(sees.shape, dtype=torch.bfloat16, device=sees.device)
        output = model(
            inputs_embeds=embed(batch.ids, table),
            position_ids=batch.positions,
            past_key_values=cache,
            use_cache=True,
            bias=bias.masked_fill(~sees, float("-inf")),
        )
        return output.last_hidden_state.flatten(0, 1)[batch.nodes], table

    def losses(self, batch: Batch) -> dict[str, torch.Tensor]:
        """In nats: `first` and `next`, how far the first and the further tokens of moves are from their targets (the
        divergence, zero at best); `mass` the legal mass, which is not learned from.
        """
        hidden, table = self.hidden(batch)
        logits = torch.nn.functional.linear(hidden, table).float()
        logprobs = torch.log_softmax(logits, dim=-1)[tuple(batch.entries.T)]
        node = batch.entries[:, 0]
        zeros = torch.zeros(len(batch.nodes), device=logits.device)
        total = zeros.index_add(0, node, batch.share)
        wanted = batch.share / total[node].clamp(min=1e-9)
        apart = torch.where(wanted > 0, wanted * (wanted.clamp(min=1e-9).log() - logprobs), 0.0)
        divergence = zeros.index_add(0, node, apart)
        start = batch.depth == 0
        even = 1.0 / ((~start).sum() / start.sum())
        weight = EVEN_SHARE * even + (1 - EVEN_SHARE) * total
        with torch.no_grad():
            mass = zeros.clone()
            for depth in range(int(batch.depth.max()), -1, -1):
                here = batch.depth[node] == depth
                onward = torch.where(batch.child < 0, 1.0, mass[batch.child])
                mass.index_add_(0, node[here], (logprobs.exp() * onward)[here])
        return {
            "first": divergence[start].mean(),
            "next": (divergence * weight)[~start].sum() / start.sum(),
            "mass": mass[start].mean(),
        }


@torch.no_grad()
def evaluate(
    model: Student, records: list[Record], sequences: Sequences, device: str
) -> dict[str, dict[str, float]]:
    """The losses per game over 64 held-out games."""
    model.eval()
    result = {}
    for name in sorted({r.game for r in records}):
        chosen = [r for r in records if r.game == name and r.rated][:64]
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
        (losses["first"] + losses["next"]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt in opts:
            opt.step()
            opt.zero_grad(set_to_none=True)
        step += 1
        tokens += batch.ids.numel() + batch.trunks.numel()
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
    units = {"first": "nats per move", "next": "nats per move", "mass": "legal mass"}
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
