"""Write the move-request workload on which engines are compared: G games of P plies under one
common system prompt.

Each line is a JSON object {"game", "ply", "system", "transcript", "choices", "played"}: the prompt
of a ply is `system + transcript`, `choices` are the legal moves in UCI notation with a leading
space. With the default arguments the file is the same byte for byte everywhere (python-chess,
`random.Random(seed)`), so figures of different machines compare.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

import chess

SYSTEM = (
    "You are a chess player in a tournament. You see the moves of the game so far, in long "
    "algebraic notation: the square a piece leaves, then the square it goes to, then a "
    "letter if a pawn promotes. White moves first and the sides take turns. Answer with "
    "exactly one legal move for the side to move and nothing else. Develop your knights and "
    "bishops early, castle to bring your king to safety, and fight for the four squares in "
    "the middle of the board. Before you choose, look at every capture and every check that "
    "you have, and at every capture and check that your opponent will have after your move. "
    "Do not leave a piece where it can be taken for nothing. When you are ahead in material, "
    "trade pieces; when you are behind, keep them and look for complications. In the endgame "
    "bring your king towards the middle, push your passed pawns, and put your rooks behind "
    "them. A knight is worth three pawns, a bishop three, a rook five and the queen nine. A "
    "game is drawn when the same position has come three times, when fifty moves pass "
    "without a capture or a pawn move, or when neither side has enough left to give mate. "
    "You lose the game if you answer with a move that is not legal, if you run out of time, "
    "or if you resign.\n\nGame:"
)
CAPTURE_SHARE = 0.6  # how often a capture is played where there is one: it keeps positions open


class Row(TypedDict):
    """One move request."""

    game: int
    ply: int
    system: str
    transcript: str
    choices: list[str]
    played: str


def workload(games: int = 8, plies: int = 40, seed: int = 7) -> Iterator[Row]:
    """Yield the requests ply by ply, within a ply game by game. A finished game starts anew in the
    same place.
    """
    rng = random.Random(seed)
    boards = [chess.Board() for _ in range(games)]
    transcripts = [""] * games
    for ply in range(plies):
        for game in range(games):
            board = boards[game]
            legal = sorted(move.uci() for move in board.legal_moves)
            captures = sorted(move.uci() for move in board.legal_moves if board.is_capture(move))
            # The order of the draws is part of the format: no draw is made where there is no
            # capture.
            prefer_capture = bool(captures) and rng.random() < CAPTURE_SHARE
            played = " " + rng.choice(captures if prefer_capture else legal)
            choices = [" " + uci for uci in legal]
            yield Row(
                game=game,
                ply=ply,
                system=SYSTEM,
                transcript=transcripts[game],
                choices=choices,
                played=played,
            )
            transcripts[game] += played
            board.push_uci(played.strip())
            if board.is_game_over():
                boards[game], transcripts[game] = chess.Board(), ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--games", type=int, default=8)
    parser.add_argument("--plies", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("chess_moves.jsonl"))
    args = parser.parse_args()
    with args.out.open("w", encoding="utf-8", newline="\n") as file:
        for row in workload(args.games, args.plies, args.seed):
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
