"""Make the training games of the bundled model: Stockfish and Fairy-Stockfish play themselves over UCI.

Each side of a game has one of five strengths (a node limit and a share of random moves); openings are random, and
half of the janggi games start from one of the other fifteen setups. One JSON line a game:

    {"game": "janggi", "setup": "NBBN-BNNB" | null, "levels": ["club", "master"], "moves": ["a4a5", ...],
     "random": "0110..."}            # "1" where the move was drawn at random and not chosen by the engine

One engine plays on each core; a game depends on --seed and its number alone. The file is appended to game by game and a
second call goes on where the first stopped, so it can be killed at any time.
Only the engines know the rules here; nothing of `games` is imported, so that a bug there cannot hide in the data.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from rich.progress import Progress

MAX_PLIES = 200
MAX_RANDOM_OPENING = 6
WINGS = ("NB", "BN")
ENGINES = {"chess": "stockfish", "janggi": "fairy-stockfish"}
MOVE = re.compile(r"^(\S+): 1$")
Engine = TypeVar("Engine")
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Level:
    """One strength: how many nodes the engine searches, and the share of moves drawn at random instead."""

    nodes: int
    random_share: float


LEVELS = {
    "beginner": Level(nodes=1, random_share=0.5),
    "novice": Level(nodes=20, random_share=0.2),
    "club": Level(nodes=100, random_share=0.05),
    "expert": Level(nodes=400, random_share=0.0),
    "master": Level(nodes=1500, random_share=0.0),
}


class UciEngine:
    """A line-based UCI client that asks for the legal moves and for the best move within a node limit."""

    def __init__(self, command: str, options: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._send("uci")
        self._read_until("uciok")
        for name, value in options.items():
            self._send(f"setoption name {name} value {value}")
        self.new_game()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _read_until(self, start: str) -> list[str]:
        assert self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            lines.append(line.rstrip())
            if line.startswith(start):
                return lines
        raise RuntimeError(f"the engine ended while {start!r} was expected: {lines[-3:]}")

    def new_game(self) -> None:
        self._send("ucinewgame")
        self._send("isready")
        self._read_until("readyok")

    def set_position(self, fen: str | None, moves: list[str]) -> None:
        start = f"fen {fen}" if fen else "startpos"
        self._send(f"position {start}" + (f" moves {' '.join(moves)}" if moves else ""))

    def legal_moves(self) -> list[str]:
        self._send("go perft 1")
        return [m[1] for line in self._read_until("Nodes searched") if (m := MOVE.match(line))]

    def best_move(self, nodes: int) -> str | None:
        self._send(f"go nodes {nodes}")
        move = self._read_until("bestmove")[-1].split()[1]
        return None if move in ("(none)", "0000") else move

    def close(self) -> None:
        self._send("quit")
        self._process.wait(timeout=10)


def janggi_start(setup: str) -> str:
    """FEN of a setup such as "NBBN-BNNB": Cho's letters on the files b c g h, then Han's, both as seen by Cho."""
    cho, han = setup.split("-")
    b, c, g, h = han.lower()
    first = f"r{b}{c}a1a{g}{h}r/4k4/1c5c1/p1p1p1p1p/9/9/P1P1P1P1P/1C5C1/4K4/"
    b, c, g, h = cho
    return first + f"R{b}{c}A1A{g}{h}R w - - 0 1"


def is_pass(move: str) -> bool:
    """True for a janggi pass, written as a general's square twice."""
    return move[: len(move) // 2] == move[len(move) // 2 :]


def shuffles(moves: list[str]) -> bool:
    """True when both sides have repeated the same four plies three times: nothing more can be learned."""
    return len(moves) >= 12 and moves[-4:] == moves[-8:-4] == moves[-12:-8]


def play(engine: UciEngine, game: str, rng: random.Random) -> dict[str, Any]:
    """Play one game and return its record."""
    names = list(LEVELS)
    first = rng.choice(names)
    levels = [first, first if rng.random() < 0.6 else rng.choice(names)]
    setup = None
    if game == "janggi" and rng.random() < 0.5:
        setup = "-".join(rng.choice(WINGS) + rng.choice(WINGS) for _ in range(2))
    fen = janggi_start(setup) if setup else None
    opening = rng.randint(0, MAX_RANDOM_OPENING)
    moves: list[str] = []
    drawn: list[str] = []
    engine.new_game()
    while len(moves) < MAX_PLIES and not shuffles(moves):
        engine.set_position(fen, moves)
        level = LEVELS[levels[len(moves) % 2]]
        at_random = len(moves) < opening or rng.random() < level.random_share
        if at_random:
            legal = engine.legal_moves()
            # Two random passes in a row would end many a janggi game that has hardly begun.
            legal = [move for move in legal if not is_pass(move)] or legal
            move = rng.choice(legal) if legal else None
        else:
            move = engine.best_move(level.nodes)
        if move is None:
            break
        moves.append(move)
        drawn.append("1" if at_random else "0")
    return {
        "game": game,
        "setup": setup,
        "levels": levels,
        "moves": moves,
        "random": "".join(drawn),
    }


def side_by_side(
    function: Callable[[Engine, Item], Result], engines: list[Engine], items: Iterable[Item]
) -> Iterator[Result]:
    """function(engine, item) of every item, in their order, while each engine is busy with one of them."""
    free: SimpleQueue[Engine] = SimpleQueue()
    for engine in engines:
        free.put(engine)

    def call(item: Item) -> Result:
        engine = free.get()
        try:
            return function(engine, item)
        finally:
            free.put(engine)

    with ThreadPool(len(engines)) as pool:
        yield from pool.imap(call, items)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--game", choices=sorted(ENGINES), required=True)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines file, appended to")
    parser.add_argument("--count", type=int, default=25_000, help="games wanted in the file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", help="path of the UCI engine")
    args = parser.parse_args()

    args.out.parent.mkdir(parents=True, exist_ok=True)
    lines = args.out.read_text().splitlines() if args.out.exists() else []
    records = [json.loads(line) for line in lines if line.endswith("}")]
    seen = {tuple(record["moves"]) for record in records}
    options = {"Threads": "1", "Hash": "16"}
    if args.game == "janggi":
        options["UCI_Variant"] = "janggi"
    engines = [
        UciEngine(args.engine or ENGINES[args.game], options) for _ in range(os.cpu_count() or 1)
    ]

    def numbered(engine: UciEngine, number: int) -> dict[str, Any]:
        rng = random.Random(f"{args.seed}/{args.game}/{number}")
        return play(engine, args.game, rng) | {"number": number}

    # More than there are games: one that came twice used up a number, too.
    number = max([len(records), *(record.get("number", 0) for record in records)])
    with args.out.open("a") as out, Progress() as progress:
        task = progress.add_task(f"{args.game} games", total=args.count, completed=len(seen))
        if lines and not lines[-1].endswith("}"):
            out.write("\n")  # the last run was killed inside a line
        while missing := max(args.count - len(seen), 0):
            numbers = range(number + 1, number + 1 + missing)
            for record in side_by_side(numbered, engines, numbers):
                key = tuple(record["moves"])
                if key not in seen:
                    seen.add(key)
                    out.write(json.dumps(record, separators=(",", ":")) + "\n")
                    out.flush()
                    progress.advance(task)
            number = numbers[-1]
    for engine in engines:
        engine.close()


if __name__ == "__main__":
    main()
