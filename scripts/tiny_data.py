"""What the bundled model `tiny` learns from: rated positions of games, as token ids with what each token should be.

A game is a trunk, the moves so far, from which its rated positions branch off: the list of legal moves, and then a tree
of them. A persona's strength says how much worse than the best a move may be: a move's share is exp(value / tolerance).
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.utils.data import IterableDataset

import games
from arena.config import ROSTER
from arena.prompts import (
    MOVES,
    STRENGTHS,
    answer_text,
    move_text,
    persona_text,
    shown_text,
    start_text,
    system_text,
)

VOCAB_SIZE = 1536
GAMES_PER_BATCH = 4
POSITIONS_PER_GAME = 8  # of one sequence, drawn from the rated ones
HELD_OUT = 50  # one game in this many is never trained on
TOLERANCE = {"beginner": 600, "novice": 250, "club": 110, "expert": 50, "master": 20}
"""Centipawns by which a move may fall behind the best one before its share of the target falls to 1/e."""
DECIDED = 2500  # centipawns; of what a value has beyond that, a mate most of all, a tenth counts
# Each square of a move is a token, and so is all that is said before a move of what it does.
PRE_TOKENIZER = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split(
            Regex(
                r"\n[A-Z](?= )| (?=[x+#=\-?])(?:x[a-z])?[+#=\-]?(?:\?[A-Z])?(?= )| ?[a-i](?:10|[1-9])"
                r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|[\r\n]+|\s+(?!\S)|\s+"
            ),
            behavior="isolated",
        ),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
)


@dataclass(frozen=True)
class Record:
    """One game of `make_games.py` with what `rate_moves.py` said of some of its plies; moves in UCI."""

    game: str
    setup: str | None
    levels: tuple[str, str]
    moves: tuple[str, ...]
    random: str
    rated: dict[int, dict[str, int]]


def read_records(folder: Path) -> tuple[list[Record], list[Record]]:
    """Training and held-out records; no held-out game shares its first 20 plies with a training game."""
    train, held_out, openings = [], [], set()
    for path in sorted(folder.glob("*.jsonl")):
        raws = [json.loads(x) for x in path.read_text().splitlines() if x.endswith("}")]
        plies: dict[int, dict[int, dict[str, int]]] = {}
        rated = path.with_suffix(".rated")
        for line in rated.read_text().splitlines() if rated.exists() else ():
            if line.endswith("}}"):  # else cut by a kill
                one = json.loads(line)
                plies.setdefault(one["line"], {})[one["ply"]] = one["moves"]
        for number, raw in enumerate(raws):
            record = Record(
                raw["game"],
                raw["setup"],
                tuple(raw["levels"]),
                tuple(raw["moves"]),
                raw["random"],
                plies.get(number, {}),
            )
            if number % HELD_OUT == 0:
                held_out.append(record)
            else:
                train.append(record)
                openings.add((record.game, record.setup, record.moves[:20]))
    held_out = [r for r in held_out if (r.game, r.setup, r.moves[:20]) not in openings]
    return train, held_out


def mirrored(record: Record) -> Record:
    """A janggi game with left and right exchanged: as good a game, by the rules' symmetry."""
    swap = str.maketrans("abcdefghi", "ihgfedcba")
    usual = games.get_game(record.game).setups[0]
    wings = "-".join(side[::-1] for side in (record.setup or usual).split("-"))
    return replace(
        record,
        setup=None if wings == usual else wings,
        moves=tuple(move.translate(swap) for move in record.moves),
        rated={
            ply: {move.translate(swap): value for move, value in rated.items()}
            for ply, rated in record.rated.items()
        },
    )


def train_tokenizer() -> Tokenizer:
    """A byte-level BPE in which every word of the prompts, every square and all that is said of a move is one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = PRE_TOKENIZER
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    corpus = []
    for name in games.list_games():
        game = games.get_game(name)
        squares = [f"{f}{r}" for f in "abcdefghi"[: game.files] for r in range(1, game.ranks + 1)]
        letters = [piece.letter for piece in game.pieces]
        taken = ["", *(f"x{letter.lower()}" for letter in letters)]
        risks = ["", *(f"?{letter}" for letter in letters)]
        facts = [x + mark + risk for x in taken for mark in ("", "+") for risk in risks]
        facts += [x + mark for x in taken for mark in "#=-"]
        corpus += [f" {s}{s}" for s in squares] * 50
        corpus += [f" {text} " for text in facts if text] * 50
        corpus += [f"\n{letter} " for letter in letters] * 50
        for agent in ROSTER:
            for strength in STRENGTHS:
                for setup in game.setups or (None,):
                    text = persona_text(agent.name, strength, agent.style) + start_text(setup)
                    text += MOVES + shown_text(agent, game.position()) + answer_text(strength)
                    corpus.append(system_text(game) + text)
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def shares(rated: dict[str, int], strength: str) -> dict[str, float]:
    """The target of a position: what share of the moves of an agent of this strength each one should be."""
    values = {}
    for move, value in rated.items():
        beyond = max(abs(value) - DECIDED, 0)
        values[move] = math.copysign(min(abs(value), DECIDED) + beyond / 10, value)
    best = max(values.values())
    weights = {move: math.exp((v - best) / TOLERANCE[strength]) for move, v in values.items()}
    total = sum(weights.values())
    return {move: weight / total for move, weight in weights.items()}


@dataclass
class Branch:
    """A rated position: tokens of what follows the trunk's first `seen` tokens, as a tree.

    parents: of each token, which token of the branch it follows. The first `listed` tokens are no moves. targets:
    (token of the branch, what may follow it, which token of the branch that is or -1 where it ends a move, share of
    the moves).
    """

    seen: int
    ids: list[int]
    parents: list[int]
    listed: int
    targets: list[tuple[int, int, int, float]]


class Sequences:
    """Turns records into token ids and targets."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: dict[str, list[int]] = {}

    def ids(self, text: str) -> list[int]:
        found = self._ids.get(text)
        if found is None:
            found = self._ids[text] = self._tokenizer.encode(text).ids
        return found

    def text(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids)

    def rules(self, game: str) -> list[int]:
        """The layer that all sequences of a game share."""
        return self.ids(system_text(games.get_game(game)))

    def build(self, record: Record, rng: random.Random) -> tuple[list[int], list[Branch]]:
        """What follows the rules: the trunk (persona, start, moves) and the branches."""
        strength = rng.choice(STRENGTHS)
        persona = rng.choice(ROSTER)
        game = games.get_game(record.game)
        if game.setups and rng.random() < 0.5:
            record = mirrored(record)
        trunk = list(self.ids(persona_text(persona.name, strength, persona.style)))
        trunk += self.ids(start_text(record.setup) + MOVES)
        position = game.position(setup=record.setup)
        branches = []
        chosen = rng.sample(sorted(record.rated), min(POSITIONS_PER_GAME, len(record.rated)))
        for ply in range(max(chosen, default=-1) + 1):
            if ply in chosen:
                branches.append(self._branch(position, len(trunk), record.rated[ply], strength))
            if ply < len(record.moves):
                trunk += self._move(position, record.moves[ply])
                position.push(record.moves[ply])
        return trunk[: branches[-1].seen if branches else 0], branches

    def _move(self, position: games.Position, move: str) -> list[int]:
        return self.ids(move_text(position.notation(move, position.game.notations[0])))

    def _branch(
        self, position: games.Position, seen: int, rated: dict[str, int], strength: str
    ) -> Branch:
        ids = list(self._tokenizer.encode(shown_text(ROSTER[0], position)).ids)
        ids += self.ids(answer_text(strength))
        branch = Branch(seen, ids, list(range(-1, len(ids) - 1)), len(ids), [])
        nodes: dict[tuple[int, ...], int] = {(): len(ids) - 1}
        entries: dict[tuple[tuple[int, ...], int], float] = {}
        for move, share in shares(rated, strength).items():
            tokens = self._move(position, move)
            for length, token in enumerate(tokens):
                prefix = tuple(tokens[:length])
                if prefix not in nodes:
                    nodes[prefix] = len(branch.ids)
                    branch.ids.append(tokens[length - 1])
                    branch.parents.append(nodes[prefix[:-1]])
                entries[prefix, token] = entries.get((prefix, token), 0.0) + share
        branch.targets = [
            (nodes[prefix], token, nodes.get((*prefix, token), -1), share)
            for (prefix, token), share in entries.items()
        ]
        return branch


@dataclass(frozen=True)
class Batch:
    """Games of one kind. rules [1, P]; trunks [B, T]; the branches of all of them as ids and positions [N, S].

    sizes: [N] tokens of each branch, the longest first. row: [N] whose branch it is. seen: [N, T] bool, the tokens of
    the trunk before it. visible: [N, S, S] bool, what a token of a branch sees of its branch. nodes: [n] where in the
    flattened branches the tokens stand after which a move begins or goes on, and depth: [n] how much of the move there
    is, 0 at its start. entries: [m, 2] a node, as a number in `nodes`, and a token that may follow; child: [m] the node
    that this leads to, -1 where the move ends; share: [m] the target, which sums up to 1 at depth 0.
    """

    game: str
    rules: torch.Tensor
    trunks: torch.Tensor
    ids: torch.Tensor
    positions: torch.Tensor
    sizes: torch.Tensor
    row: torch.Tensor
    seen: torch.Tensor
    visible: torch.Tensor
    nodes: torch.Tensor
    depth: torch.Tensor
    entries: torch.Tensor
    child: torch.Tensor
    share: torch.Tensor

    def to(self, device: str) -> Batch:
        tensors = {k: v.to(device) for k, v in vars(self).items() if isinstance(v, torch.Tensor)}
        return replace(self, **tensors)


class Batches(IterableDataset[Batch]):
    """Endless batches of GAMES_PER_BATCH games of one kind, from number `start` on."""

    def __init__(self, records: list[Record], sequences: Sequences, seed: int, start: int) -> None:
        self._records = [record for record in records if record.rated]
        self._sequences, self._seed, self._start = sequences, seed, start

    def __iter__(self) -> Iterator[Batch]:
        number = 0
        for epoch in itertools.count():
            for group in self._groups(random.Random(f"{self._seed}/{epoch}")):
                number += 1
                if number > self._start:
                    rng = random.Random(f"{self._seed}/{epoch}/{number}")
                    yield make_batch(group, self._sequences, rng)

    def _groups(self, rng: random.Random) -> list[list[Record]]:
        """All records once, those of the game that has fewer again until both have as many; sorted within a chunk, so
        that a batch holds games of like length and little padding.
        """
        kinds = [
            [r for r in self._records if r.game == name]
            for name in sorted({r.game for r in self._records})
        ]
        order = []
        for records in kinds:
            rng.shuffle(records)
            order += itertools.islice(itertools.cycle(records), max(map(len, kinds)))
        rng.shuffle(order)
        groups = []
        for start in range(0, len(order), 2048):
            chunk = order[start : start + 2048]
            for name in sorted({r.game for r in chunk}):
                alike = sorted(
                    (r for r in chunk if r.game == name), key=lambda r: max(r.rated, default=0)
                )
                groups += [
                    alike[i : i + GAMES_PER_BATCH] for i in range(0, len(alike), GAMES_PER_BATCH)
                ]
        rng.shuffle(groups)
        return groups


def make_batch(group: Sequence[Record], sequences: Sequences, rng: random.Random) -> Batch:
    built = [sequences.build(record, rng) for record in group]
    rules = sequences.rules(group[0].game)
    longest = max(len(trunk) for trunk, _ in built)
    trunks = torch.zeros(len(built), longest, dtype=torch.long)
    branches = []
    for row, (trunk, found) in enumerate(built):
        trunks[row, : len(trunk)] = torch.tensor(trunk)
        branches += [(row, branch) for branch in found]
    branches.sort(key=lambda item: len(item[1].ids), reverse=True)
    size = max(len(branch.ids) for _, branch in branches)
    count = len(branches)
    ids = torch.zeros(count, size, dtype=torch.long)
    positions = torch.zeros(count, size, dtype=torch.long)
    visible = torch.eye(size, dtype=torch.bool).expand(count, size, size).clone()
    seen = torch.zeros(count, longest, dtype=torch.bool)
    numbers: dict[int, int] = {}  # of the nodes, by their place in the flattened branches
    depth: list[int] = []
    entries: list[tuple[int, int]] = []
    children: list[int] = []
    share: list[float] = []
    for n, (_, branch) in enumerate(branches):
        ids[n, : len(branch.ids)] = torch.tensor(branch.ids)
        seen[n, : branch.seen] = True
        listed = branch.listed
        visible[n, :listed, :listed] = torch.ones(listed, listed, dtype=torch.bool).tril()
        place = list(range(listed))
        for token in range(listed, len(branch.ids)):
            parent = branch.parents[token]
            visible[n, token] |= visible[n, parent]
            place.append(place[parent] + 1)
        positions[n, : len(place)] = torch.tensor(place) + len(rules) + branch.seen
        for token, following, child, part in branch.targets:
            at = n * size + token
            if at not in numbers:
                numbers[at] = len(numbers)
                depth.append(place[token] - listed + 1)
            entries.append((numbers[at], following))
            children.append(n * size + child if child >= 0 else -1)
            share.append(part)
    return Batch(
        game=group[0].game,
        rules=torch.tensor([rules]),
        trunks=trunks,
        ids=ids,
        positions=positions,
        sizes=torch.tensor([len(branch.ids) for _, branch in branches]),
        row=torch.tensor([row for row, _ in branches]),
        seen=seen,
        visible=visible,
        nodes=torch.tensor(list(numbers)),
        depth=torch.tensor(depth),
        entries=torch.tensor(entries),
        child=torch.tensor([numbers[at] if at >= 0 else -1 for at in children]),
        share=torch.tensor(share),
    )
