"""What the bundled model `tiny` learns from: games as token ids, with what is legal and what stands where at every ply.

The rules, not the data, say what is legal, so every ply of every game teaches the whole list of legal moves and the
whole board, besides the one move that was played.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.utils.data import IterableDataset

import games
from arena.config import ROSTER
from arena.prompts import (
    STRENGTHS,
    board_text,
    move_text,
    persona_text,
    start_text,
    system_text,
)

VOCAB_SIZE = 1536
TOKENS_PER_BATCH = 4096  # not counting the rules, which a batch computes once
HELD_OUT = 50  # one game in this many is never trained on
IGNORE = -100
BOARD_PLIES = ROSTER[0].board_plies
# Where the engine's levels play at random on purpose, the random moves are part of the style and are learned.
LEARN_RANDOM = ("beginner", "novice")
# A piece and its square are one token, the square it goes to the next: a move is two tokens, never split otherwise.
PRE_TOKENIZER = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split(
            Regex(
                r" ?[A-Z]?[a-i](?:10|[1-9])| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|[\r\n]+|\s+(?!\S)|\s+"
            ),
            behavior="isolated",
        ),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
)

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Record:
    """One game of the training data, as `make_games.py` wrote it; moves in UCI."""

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


def mirrored(record: Record) -> Record:
    """A janggi game with left and right exchanged: as good a game, by the rules' symmetry."""
    swap = str.maketrans("abcdefghi", "ihgfedcba")
    usual = games.get_game(record.game).setups[0]
    wings = "-".join(side[::-1] for side in (record.setup or usual).split("-"))
    moves = tuple(move.translate(swap) for move in record.moves)
    return replace(record, setup=None if wings == usual else wings, moves=moves)


def train_tokenizer() -> Tokenizer:
    """A byte-level BPE in which every word of the prompts, every square and every piece on its square is one token."""
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
        corpus += [f" {piece.letter}{s}{s}" for piece in game.pieces for s in squares] * 50
        for agent in ROSTER:
            for strength in STRENGTHS:
                for setup in game.setups or (None,):
                    text = persona_text(agent.name, strength, agent.style) + start_text(setup)
                    corpus.append(system_text(game) + text + board_text(game.position()))
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


@dataclass(frozen=True)
class Labels:
    """What the rules say of a game of n plies.

    moves: the played moves as tokens, one list a ply. lists: by ply, the list of pieces that the transcript has before
    it. legal: [m, 3] ply, first and second token of each legal move. board: [n, squares] what stands on each square
    before the ply, 0 for nothing.
    """

    moves: list[list[int]]
    lists: dict[int, list[int]]
    legal: Ids
    board: npt.NDArray[np.uint8]


class Sequences:
    """Turns records into token ids and labels."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: dict[str, list[int]] = {}
        self._moves: dict[tuple[str, str, str], list[int]] = {}
        self._labels: dict[Record, Labels] = {}

    def ids(self, text: str) -> list[int]:
        found = self._ids.get(text)
        if found is None:
            found = self._ids[text] = self._tokenizer.encode(text).ids
        return found

    def rules(self, game: str) -> list[int]:
        """The layer that all sequences of a game share."""
        return self.ids(system_text(games.get_game(game)))

    def labels(self, record: Record) -> Labels:
        """Worked out once and remembered: a record comes again in every epoch."""
        found = self._labels.get(record)
        if found is None:
            found = self._labels[record] = self._ask_the_rules(record)
        return found

    def _ask_the_rules(self, record: Record) -> Labels:
        game = games.get_game(record.game)
        kinds = {piece.letter: kind for kind, piece in enumerate(game.pieces, 1)}
        kinds |= {
            piece.letter.lower(): kind + len(kinds) for kind, piece in enumerate(game.pieces, 1)
        }
        position = game.position(setup=record.setup)
        moves: list[list[int]] = []
        lists: dict[int, list[int]] = {}
        legal: list[tuple[int, int, int]] = []
        board = np.zeros((len(record.moves), game.files * game.ranks), dtype=np.uint8)
        for ply, played in enumerate(record.moves):
            pieces = position.pieces()
            if ply % BOARD_PLIES == 0:
                lists[ply] = self._tokenizer.encode(board_text(position)).ids
            for square, letter in pieces.items():
                board[ply, square_number(square, game.files)] = kinds[letter]
            for move in position.legal_moves():
                letter = pieces[move[: 3 if move[1:3] == "10" else 2]].upper()
                tokens = self._moves.get((record.game, letter, move))
                if tokens is None:
                    text = move_text(position.notation(move, game.notations[0]))
                    tokens = self._moves[record.game, letter, move] = self.ids(text)
                legal.append((ply, tokens[0], tokens[1]))
                if move == played:
                    moves.append(tokens)
            position.push(played)
        return Labels(moves, lists, np.array(legal, dtype=np.int16).reshape(-1, 3), board)

    def build(self, record: Record, rng: random.Random) -> Sequence:
        """What follows the rules, as one side sees the game; the moves of both are learned if equally strong."""
        side = rng.randrange(2)
        strength = record.levels[side]
        both = record.levels[0] == record.levels[1]
        persona = rng.choice(ROSTER)
        if games.get_game(record.game).setups and rng.random() < 0.5:
            record = mirrored(record)
        known = self.labels(record)
        ids = list(self.ids(persona_text(persona.name, strength, persona.style)))
        ids += self.ids(start_text(record.setup))
        labels = [IGNORE] * len(ids)
        starts = []
        for ply, tokens in enumerate(known.moves):
            listed = known.lists.get(ply, [])
            ids += listed
            labels += [IGNORE] * len(listed)
            mine = both or ply % 2 == side
            learn = mine and (record.random[ply] == "0" or strength in LEARN_RANDOM)
            starts.append(len(ids))
            ids += tokens
            labels += tokens if learn else [IGNORE] * len(tokens)
        return Sequence(ids, labels, np.array(starts), known)


def square_number(name: str, files: int) -> int:
    """0 for a1, 1 for b1 and so on, rank by rank."""
    return ord(name[0]) - ord("a") + files * (int(name[1:]) - 1)


@dataclass(frozen=True)
class Sequence:
    """One game as ids and labels; starts: where in ids the move of each ply begins."""

    ids: list[int]
    labels: list[int]
    starts: Ids
    known: Labels


@dataclass(frozen=True)
class Batch:
    """Sequences of one game: the rules (1 x P) once, then ids and labels (B x T), right-padded.

    plies: [n] where in the flattened ids the token before each ply stands, whose output is the ply's first token; the
    next one's output is the second. board: [n, squares]. first, second: [m, 2] the ply and a legal token of it; the
    second ones are those that may follow the first token that was played.
    """

    game: str
    rules: torch.Tensor
    ids: torch.Tensor
    labels: torch.Tensor
    plies: torch.Tensor
    board: torch.Tensor
    first: torch.Tensor
    second: torch.Tensor

    def to(self, device: str) -> Batch:
        tensors = {k: v.to(device) for k, v in vars(self).items() if isinstance(v, torch.Tensor)}
        return replace(self, **tensors)


class Batches(IterableDataset[Batch]):
    """Endless batches of about TOKENS_PER_BATCH tokens and one game each, from number `start` on."""

    def __init__(self, records: list[Record], sequences: Sequences, seed: int, start: int) -> None:
        self._records, self._sequences, self._seed, self._start = records, sequences, seed, start

    def __iter__(self) -> Iterator[Batch]:
        number = 0
        for epoch in itertools.count():
            for group in self._groups(random.Random(f"{self._seed}/{epoch}")):
                number += 1
                if number > self._start:
                    rng = random.Random(f"{self._seed}/{epoch}/{number}")
                    yield make_batch(group, self._sequences, rng)

    def _groups(self, rng: random.Random) -> list[list[Record]]:
        """All records once; sorted within a chunk, so that a batch holds games of like length and little padding."""
        order = self._records[:]
        rng.shuffle(order)
        groups = []
        for start in range(0, len(order), 2048):
            chunk = order[start : start + 2048]
            for name in sorted({r.game for r in chunk}):
                groups += split([r for r in chunk if r.game == name])
        rng.shuffle(groups)
        return groups


def split(records: list[Record]) -> list[list[Record]]:
    """Groups of like length with at most TOKENS_PER_BATCH tokens each."""
    groups: list[list[Record]] = [[]]
    for record in sorted(records, key=lambda r: len(r.moves)):
        if (len(groups[-1]) + 1) * (64 + 4 * len(record.moves)) > TOKENS_PER_BATCH:
            groups.append([])
        groups[-1].append(record)
    return [g for g in groups if g]


def make_batch(group: list[Record], sequences: Sequences, rng: random.Random) -> Batch:
    built = [sequences.build(record, rng) for record in group]
    longest = max(len(one.ids) for one in built)
    ids = torch.zeros(len(built), longest, dtype=torch.long)
    labels = torch.full((len(built), longest), IGNORE)
    plies, first, second = [], [], []
    at = 0
    for row, one in enumerate(built):
        ids[row, : len(one.ids)] = torch.tensor(one.ids)
        labels[row, : len(one.labels)] = torch.tensor(one.labels)
        plies.append(one.starts - 1 + row * longest)
        legal = one.known.legal.astype(np.int64)
        played = np.array([tokens[0] for tokens in one.known.moves])
        fits = legal[:, 1] == played[legal[:, 0]]
        legal[:, 0] += at
        first.append(legal[:, [0, 1]])
        second.append(legal[fits][:, [0, 2]])
        at += len(one.starts)
    board = np.concatenate([one.known.board for one in built])
    return Batch(
        game=group[0].game,
        rules=torch.tensor([sequences.rules(group[0].game)]),
        ids=ids,
        labels=labels,
        plies=torch.from_numpy(np.concatenate(plies)),
        board=torch.from_numpy(board.astype(np.int64)),
        first=torch.from_numpy(np.concatenate(first)),
        second=torch.from_numpy(np.concatenate(second)),
    )
