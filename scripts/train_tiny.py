"""Train the bundled model `tiny`: a small Llama that plays both games from the very prompts that agents send.

    python scripts/make_games.py --game chess  --out data/chess.jsonl
    python scripts/make_games.py --game janggi --out data/janggi.jsonl
    python scripts/train_tiny.py --data data --work work --steps 6000
    python scripts/train_tiny.py --work work --export arena/models/tiny

The loss is on the moves of one side per sequence, whose strength the persona names. Training can be killed and
called again: it goes on from the last checkpoint in --work, and `--steps` may differ then. The learning rate stays
constant and falls to zero over the last quarter of the steps, so a run can be cut short by a smaller `--steps`.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import games
from arena.config import ROSTER
from arena.prompts import STRENGTHS, move_text, persona_text, prompt_text, start_text, system_text

VOCAB_SIZE = 1024
MAX_LENGTH = 1024  # tokens; the longest prompt an agent may send
TOKENS_PER_BATCH = 4096  # not counting the rules, which a batch computes once
HELD_OUT = 50  # one game in this many is never trained on
DECAY_SHARE = 0.25
IGNORE = -100
# Where the engine's levels play at random on purpose, the random moves are part of the style and are learned.
LEARN_RANDOM = ("beginner", "novice")
# A square is one token, with the space before it when it opens a move: a move is two tokens, never split otherwise.
PRE_TOKENIZER = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split(
            Regex(
                r" ?[a-i](?:10|[1-9])| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|[\r\n]+|\s+(?!\S)|\s+"
            ),
            behavior="isolated",
        ),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
)


@dataclass(frozen=True)
class Record:
    """One game of the training data, as `make_games.py` wrote it."""

    game: str
    setup: str | None
    levels: tuple[str, str]
    moves: tuple[str, ...]
    random: str


def read_records(folder: Path) -> tuple[list[Record], list[Record]]:
    """Training and held-out records; no held-out game shares its first 20 plies with a training game."""
    train, held_out, openings = [], [], set()
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_text().splitlines()):
            if not line.endswith("}"):
                continue  # a line cut by a kill
            raw = json.loads(line)
            record = Record(
                raw["game"], raw["setup"], tuple(raw["levels"]), tuple(raw["moves"]), raw["random"]
            )
            if number % HELD_OUT == 0:
                held_out.append(record)
            else:
                train.append(record)
                openings.add((record.game, record.setup, record.moves[:20]))
    held_out = [r for r in held_out if (r.game, r.setup, r.moves[:20]) not in openings]
    return train, held_out


def train_tokenizer(records: list[Record]) -> Tokenizer:
    """A byte-level BPE in which every square and every word of the prompts is one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = PRE_TOKENIZER
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    squares = [f"{file}{rank}" for file in "abcdefghi" for rank in range(1, 11)]
    corpus = [f" {s}{s}" for s in squares] * 50
    for name in games.list_games():
        game = games.get_game(name)
        for agent in ROSTER:
            for strength in STRENGTHS:
                setup = game.setups[0] if game.setups else None
                corpus.append(
                    prompt_text(system_text(game), agent.name, strength, agent.style, setup, [])
                )
    corpus += ["".join(move_text(m) for m in r.moves) for r in records[:2000]]
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


class Sequences:
    """Turns records into token ids and labels."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._cache: dict[str, list[int]] = {}

    def ids(self, text: str) -> list[int]:
        found = self._cache.get(text)
        if found is None:
            found = self._cache[text] = self._tokenizer.encode(text).ids
        return found

    def rules(self, game: str) -> list[int]:
        """The layer that all sequences of a game share."""
        return self.ids(system_text(games.get_game(game)))

    def build(self, record: Record, rng: random.Random) -> tuple[list[int], list[int]]:
        """Ids and labels after the rules, as one side sees the game (both sides if equally strong)."""
        side = rng.randrange(2)
        strength = record.levels[side]
        both = record.levels[0] == record.levels[1]
        persona = rng.choice(ROSTER)
        ids = list(self.ids(persona_text(persona.name, strength, persona.style)))
        ids += self.ids(start_text(record.setup))
        labels = [IGNORE] * len(ids)
        for ply, move in enumerate(record.moves):
            tokens = self.ids(move_text(move))
            mine = both or ply % 2 == side
            learn = mine and (record.random[ply] == "0" or strength in LEARN_RANDOM)
            ids += tokens
            labels += tokens if learn else [IGNORE] * len(tokens)
        return ids, labels


@dataclass(frozen=True)
class Batch:
    """Sequences of one game: the rules (1 x P) once, then ids and labels (B x T), right-padded."""

    rules: torch.Tensor
    ids: torch.Tensor
    labels: torch.Tensor

    def to(self, device: str) -> Batch:
        return Batch(self.rules.to(device), self.ids.to(device), self.labels.to(device))


def batches(records: list[Record], sequences: Sequences, seed: int, start: int) -> Iterator[Batch]:
    """Endless batches of about TOKENS_PER_BATCH tokens and one game each, from number `start` on."""
    number, epoch = 0, 0
    while True:
        rng = random.Random(f"{seed}/{epoch}")
        order = records[:]
        rng.shuffle(order)
        groups = []
        for chunk_start in range(0, len(order), 2048):
            # Sorted within a chunk so that a batch holds games of like length and little padding.
            chunk = order[chunk_start : chunk_start + 2048]
            for name in sorted({r.game for r in chunk}):
                groups += split([r for r in chunk if r.game == name])
        rng.shuffle(groups)
        for group in groups:
            number += 1
            if number > start:
                rng = random.Random(f"{seed}/{epoch}/{number}")
                yield make_batch(group, sequences, rng)
        epoch += 1


def split(records: list[Record]) -> list[list[Record]]:
    """Groups of like length with at most TOKENS_PER_BATCH tokens each."""
    groups: list[list[Record]] = [[]]
    for record in sorted(records, key=lambda r: len(r.moves)):
        if (len(groups[-1]) + 1) * (32 + 2 * len(record.moves)) > TOKENS_PER_BATCH:
            groups.append([])
        groups[-1].append(record)
    return [g for g in groups if g]


def make_batch(group: list[Record], sequences: Sequences, rng: random.Random) -> Batch:
    rules = torch.tensor([sequences.rules(group[0].game)])
    return Batch(rules, *pad([sequences.build(r, rng) for r in group]))


def pad(built: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded ids (B x T) and labels (B x T)."""
    longest = max(len(ids) for ids, _ in built)
    ids = torch.zeros(len(built), longest, dtype=torch.long)
    labels = torch.full((len(built), longest), IGNORE)
    for row, (i, lab) in enumerate(built):
        ids[row, : len(i)] = torch.tensor(i)
        labels[row, : len(lab)] = torch.tensor(lab)
    return ids, labels


def new_model(vocab_size: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=192,
            intermediate_size=512,
            num_hidden_layers=6,
            num_attention_heads=6,
            num_key_value_heads=3,
            max_position_embeddings=MAX_LENGTH,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
            bos_token_id=None,
            eos_token_id=0,
            pad_token_id=None,
            attn_implementation="sdpa",
        )
    )


def optimizers(model: LlamaForCausalLM, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for embeddings and norms (Jordan et al. 2024)."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    return [
        torch.optim.Muon(matrices, lr=lr, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def move_loss(model: LlamaForCausalLM, batch: Batch) -> torch.Tensor:
    """Mean cross entropy (nats per token) over the labelled tokens; only their rows meet the vocabulary.

    The rules are computed once per batch and their keys and values lent to every row.
    """
    shared = model.model(input_ids=batch.rules, use_cache=True).past_key_values
    cache = DynamicCache()
    for index, layer in enumerate(shared.layers):
        rows = (len(batch.ids), -1, -1, -1)
        cache.update(layer.keys.expand(rows), layer.values.expand(rows), index)
    hidden = model.model(input_ids=batch.ids, past_key_values=cache).last_hidden_state[:, :-1]
    wanted = batch.labels[:, 1:]
    mask = wanted != IGNORE
    logits = model.lm_head(hidden[mask])
    return torch.nn.functional.cross_entropy(logits.float(), wanted[mask])


@torch.no_grad()
def evaluate(
    model: LlamaForCausalLM, records: list[Record], sequences: Sequences, device: str
) -> dict[str, float]:
    """Held-out loss in nats per token, per game, over the shortest hundred held-out games."""
    model.eval()
    losses = {}
    for name in sorted({r.game for r in records}):
        chosen = sorted((r for r in records if r.game == name), key=lambda r: len(r.moves))[:96]
        total = 0.0
        for i in range(0, len(chosen), 16):
            batch = make_batch(chosen[i : i + 16], sequences, random.Random(i)).to(device)
            with torch.autocast(device, dtype=torch.bfloat16):
                total += float(move_loss(model, batch)) * len(batch.ids)
        losses[name] = round(total / len(chosen), 4)
    model.train()
    return losses


def train(args: argparse.Namespace) -> None:
    args.work.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(args.threads)
    records, held_out = read_records(args.data)
    print(f"{len(records)} games to learn from, {len(held_out)} held out, on {device}", flush=True)
    tokenizer_file = args.work / "tokenizer.json"
    if not tokenizer_file.exists():
        train_tokenizer(records).save(str(tokenizer_file))
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    sequences = Sequences(tokenizer)
    model = new_model(tokenizer.get_vocab_size()).to(device)
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
    parameters = sum(p.numel() for p in model.parameters())
    print(
        f"{parameters / 1e6:.2f} M parameters, vocabulary {tokenizer.get_vocab_size()}", flush=True
    )

    log = (args.work / "log.jsonl").open("a")
    started, last_save, tokens, running = time.monotonic(), time.monotonic(), 0, 0.0

    def save() -> None:
        state = {
            "model": model.state_dict(),
            "optimizers": [o.state_dict() for o in opts],
            "step": step,
            "seconds": seconds + time.monotonic() - started,
        }
        torch.save(state, checkpoint.with_suffix(".new"))
        checkpoint.with_suffix(".new").replace(checkpoint)

    for batch in batches(records, sequences, seed=args.seed, start=step):
        if step >= args.steps:
            break
        left = (args.steps - step) / args.steps
        scale = min(1.0, (step + 1) / 100, left / DECAY_SHARE)
        for opt in opts:
            for group in opt.param_groups:
                group["lr"] = args.lr * scale
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = move_loss(model, batch.to(device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt in opts:
            opt.step()
            opt.zero_grad(set_to_none=True)
        step += 1
        tokens += batch.ids.numel()
        running += loss.item()
        if step % args.log_every == 0 or step == args.steps:
            elapsed = time.monotonic() - started
            entry: dict[str, Any] = {
                "step": step,
                "loss": round(running / args.log_every, 4),
                "tokens_per_s": round(tokens / elapsed),
                "seconds": round(seconds + elapsed),
                "lr": round(args.lr * scale, 6),
            }
            if step % (args.log_every * 5) == 0 or step == args.steps:
                entry["held_out"] = evaluate(model, held_out, sequences, device)
            running = 0.0
            print(json.dumps(entry), flush=True)
            log.write(json.dumps(entry) + "\n")
            log.flush()
        if time.monotonic() - last_save > 120:
            save()
            last_save = time.monotonic()
    save()


def export(work: Path, folder: Path) -> None:
    """Write the Hugging Face directory that the package contains."""
    tokenizer = Tokenizer.from_file(str(work / "tokenizer.json"))
    model = new_model(tokenizer.get_vocab_size())
    model.load_state_dict(torch.load(work / "checkpoint.pt", map_location="cpu")["model"])
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
