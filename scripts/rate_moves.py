"""Have the engines rate every legal move of some positions of the games that `make_games.py` made.

    python scripts/rate_moves.py --games data/chess.jsonl --out data/chess.rated

Stockfish and Fairy-Stockfish look a ply or two ahead (and captures to their end), which is about what a small model can
learn, and say what each move is worth. One JSON line a position, the plies of a game drawn at random:

    {"line": 17, "ply": 23, "moves": {"e2e4": 35, "e2e3": 12, ...}}   # line of the file of games; centipawns

A forced mate in n moves is MATE - n, a mate against the mover n - MATE. The file is appended to and a second call goes
on where the first stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from pathlib import Path
from typing import Any

from make_games import ENGINES, UciEngine, janggi_start, side_by_side
from rich.progress import track

MATE = 10_000
DEPTHS = {"chess": 2, "janggi": 1}


class Rater(UciEngine):
    """An engine that shows all moves (MultiPV) with their scores."""

    def __init__(self, command: str, game: str) -> None:
        options = {"Threads": "1", "Hash": "16", "MultiPV": "256"}
        super().__init__(command, options | ({"UCI_Variant": game} if game != "chess" else {}))
        self._depth = DEPTHS[game]

    def rate(self) -> dict[str, int]:
        """Centipawns of each legal move for the side to move; empty where the game is over."""
        self._send(f"go depth {self._depth}")
        rated = {}
        for line in self._read_until("bestmove"):
            words = line.split()
            if "multipv" in words and words[words.index("depth") + 1] == str(self._depth):
                at = words.index("score")
                value = int(words[at + 2])
                if words[at + 1] == "mate":
                    value = MATE - value if value > 0 else -MATE - value
                rated[words[words.index("pv") + 1]] = value
        return rated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--games", type=Path, required=True, help="file of make_games.py")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines file, appended to")
    parser.add_argument("--plies", type=int, default=8, help="positions of each game")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", help="path of the UCI engine")
    args = parser.parse_args()

    records = [json.loads(line) for line in args.games.read_text().splitlines() if line[-1:] == "}"]
    game = records[0]["game"]
    lines = args.out.read_text().splitlines(keepends=True) if args.out.exists() else []
    if lines and not lines[-1].endswith("}\n"):
        lines.pop()  # the last run was killed inside a line
    start = json.loads(lines[-1])["line"] if lines else 0
    while lines and json.loads(lines[-1])["line"] == start:
        lines.pop()  # or inside a game, which is rated again
    raters = [Rater(args.engine or ENGINES[game], game) for _ in range(os.cpu_count() or 1)]

    def rated(rater: Rater, line: int) -> list[dict[str, Any]]:
        record = records[line]
        rng = random.Random(f"{args.seed}/{game}/{line}")
        moves = record["moves"]
        fen = janggi_start(record["setup"]) if record["setup"] else None
        rater.new_game()
        found: list[dict[str, Any]] = []
        for ply in sorted(rng.sample(range(len(moves)), min(args.plies, len(moves)))):
            rater.set_position(fen, moves[:ply])
            if values := rater.rate():
                found.append({"line": line, "ply": ply, "moves": values})
        return found

    with args.out.open("a") as out:
        out.truncate(sum(map(len, lines)))
        todo = range(start, len(records))
        for found in track(
            side_by_side(rated, raters, todo), description=f"{game} positions", total=len(todo)
        ):
            for position in found:
                out.write(json.dumps(position, separators=(",", ":")) + "\n")
            out.flush()
    for rater in raters:
        rater.close()


if __name__ == "__main__":
    main()
