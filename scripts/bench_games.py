"""Speed of the games: legal-move lists and perft leaves, ours beside pyffish and python-chess.

All contestants take turns in one run, so that the ratios hold on a busy machine. Usage:
`python scripts/bench_games.py [--positions N] [--rounds N]`.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

import chess
import pyffish

from games.janggi import START_FEN, Board

Work = Callable[[], int]  # does its work and returns how many lists or leaves it made


def random_positions(count: int) -> tuple[list[str], list[str]]:
    """FENs met in random play: janggi and chess, `count` each, the same seed every time."""
    draw = random.Random(0)
    janggi: list[str] = []
    while len(janggi) < count:
        board = Board()
        while board.legal_moves and board.ply() < 120 and len(janggi) < count:
            janggi.append(board.fen())
            board.push(draw.choice(board.legal_moves))
    chess_fens: list[str] = []
    while len(chess_fens) < count:
        position = chess.Board()
        while (moves := list(position.legal_moves)) and position.ply() < 120:
            chess_fens.append(position.fen())
            position.push(draw.choice(moves))
    return janggi, chess_fens[:count]


def chess_perft(board: chess.Board, depth: int) -> int:
    if depth == 1:
        return board.legal_moves.count()
    nodes = 0
    for move in board.legal_moves:
        board.push(move)
        nodes += chess_perft(board, depth - 1)
        board.pop()
    return nodes


def pyffish_perft(moves: list[str], depth: int) -> int:
    replies = pyffish.legal_moves("janggi", START_FEN, moves)
    if depth == 1:
        return len(replies)
    return sum(pyffish_perft([*moves, reply], depth - 1) for reply in replies)


def measure(contestants: dict[str, Callable[[], Work]], rounds: int) -> dict[str, float]:
    """Best rate per second of each, over `rounds` rounds in turn; preparation is not timed."""
    best = dict.fromkeys(contestants, 0.0)
    for _ in range(rounds):
        for name, prepare in contestants.items():
            work = prepare()
            start = time.process_time()
            done = work()
            best[name] = max(best[name], done / (time.process_time() - start))
    return best


def report(title: str, unit: str, rates: dict[str, float]) -> None:
    ours = next(iter(rates.values()))
    print(f"{title} ({unit} per CPU second)")
    for name, rate in rates.items():
        print(f"  {name:<34}{rate:>12,.0f}   ours / this: {ours / rate:6.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--positions", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    janggi, chess_fens = random_positions(arguments.positions)
    few = janggi[:: max(1, len(janggi) // 200)]  # pyffish needs milliseconds for one

    def ours() -> Work:
        boards = [Board(fen) for fen in janggi]
        return lambda: len([list(board.legal_moves) for board in boards])

    def python_chess() -> Work:
        boards = [chess.Board(fen) for fen in chess_fens]
        return lambda: len([list(board.legal_moves) for board in boards])

    def fairy() -> Work:
        return lambda: len([pyffish.legal_moves("janggi", fen, []) for fen in few])

    lists = {"games.janggi": ours, "pyffish, janggi": fairy, "python-chess, chess": python_chess}
    report("Legal-move lists", "lists", measure(lists, arguments.rounds))
    leaves: dict[str, Callable[[], Work]] = {
        "games.janggi, depth 3": lambda: lambda: Board().perft(3),
        "pyffish, janggi, depth 2": lambda: lambda: pyffish_perft([], 2),
        "python-chess, chess, depth 3": lambda: lambda: chess_perft(chess.Board(), 3),
    }
    report("Perft from the start", "leaves", measure(leaves, arguments.rounds))


if __name__ == "__main__":
    main()
