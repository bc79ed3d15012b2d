"""Random janggi games against pyffish (Fairy-Stockfish) over its four variants: every difference in
legal moves, check, end, result or points is printed, with the moves that lead to it.

What is compared on every ply: the list of legal moves (empty once the game is over), and check and
mate through the SAN of the move. On every end: whether it comes by itself and who has won. On every
ply on which a player might claim an end (the position stood before, a man went back and forth, 98
plies without a capture), and on every eighth besides: whether he may, and who wins then. Every ten
plies and at the end of each game: who leads by points. At the end of each game: the FEN.

pyffish needs one to two milliseconds for a call, so a million plies take about an hour of one
processor. Usage: `python scripts/check_janggi.py [--plies N] [--seed N] [--report FILE]`; with
other seeds other games are played. Exits with 1 if there was a difference.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pyffish

from games.core import Outcome
from games.janggi import SETUPS, Board, Move
from games.janggi.rules import setup_fen

VARIANTS = ("janggi", "janggitraditional", "janggimodern", "janggicasual")
# What a player of a game likes to do; rare ends need players who look for them.
HABITS = {"any": 60, "shuttle": 12, "check": 12, "face": 8, "pass": 8}
LONGEST = 250  # plies of a game


class Difference(Exception):
    """The board and the oracle do not agree."""


def same(what: str, ours: object, theirs: object) -> None:
    if ours != theirs:
        raise Difference(f"{what}: ours {ours}, pyffish {theirs}")


def value(board: Board, outcome: Outcome | None) -> int | None:
    """An outcome as pyffish gives it, from the view of the side to move."""
    if outcome is None:
        return None
    if outcome.winner is None:
        return 0
    return 32000 if outcome.winner == board.turn else -32000


class Match:
    """One game and what has been compared in it."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.variant = draw.choice(VARIANTS)
        self.habit = draw.choices(list(HABITS), HABITS.values())[0]
        self.root = setup_fen(draw.choice(SETUPS))
        self.board = Board(self.root, self.variant)
        self.moves: list[str] = []
        self.sans: list[str] = []
        self.fens = [self.board.fen()]
        self.checks: list[bool] = []
        self.last_capture = 0  # the ply after it
        self.counts: Counter[str] = Counter()

    def since(self, ply: int) -> tuple[str, str, list[str]]:
        """Arguments for pyffish: the position now, with the history since `ply`."""
        ply = max(0, ply)
        return self.variant, self.fens[ply], self.moves[ply:]

    def play(self) -> None:
        """Play to the end. Raises `Difference`."""
        while self.compare() and len(self.moves) < LONGEST:
            self.push(self.choose())
        self.compare_points()
        if self.moves:
            theirs = pyffish.get_san_moves(self.variant, self.root, self.moves)
            same("SAN", self.sans, theirs)
            same("check", self.checks, [san[-1] in "+#" for san in theirs])
        theirs = pyffish.get_fen(self.variant, self.root, self.moves)
        same("FEN", self.fens[-1], theirs)

    def push(self, move: Move) -> None:
        self.sans.append(self.board.san(move))
        self.board.push(move)
        self.moves.append(move.uci())
        self.fens.append(self.board.fen())
        self.checks.append(self.board.is_check())
        if self.board.halfmove_clock == 0:
            self.last_capture = len(self.moves)
        self.counts["plies"] += 1
        self.counts["checks"] += self.checks[-1]
        self.counts["facing"] += self.board.is_bikjang()

    def compare(self) -> bool:
        """Compare the position; whether the game goes on."""
        board, ply = self.board, len(self.moves)
        legal = sorted(move.uci() for move in board.legal_moves)
        # Two plies of history decide whether bikjang was accepted or both have passed.
        recent = self.since(ply - 2)
        same("legal moves", legal, sorted(pyffish.legal_moves(*recent)))
        self.counts["lists"] += 1
        if not legal or ply % 8 == 0:
            ended, theirs = pyffish.is_immediate_game_end(*recent)
            if not legal and not ended:
                same("mate", board.is_checkmate(), pyffish.gives_check(*recent))
                ended, theirs = True, pyffish.game_result(*recent)
            same("end", value(board, board.outcome()), theirs if ended else None)
        if ply % 10 == 0:
            self.compare_points()
        if not legal:
            outcome = board.outcome()
            assert outcome is not None
            self.counts["end: " + outcome.reason] += 1
            return False
        if not self.could_claim() and ply % 8:
            same("claim", board.outcome(claim=True), None)
            return True
        # A repetition looks back to the last capture, a shuttle one move further.
        ended, theirs = pyffish.is_optional_game_end(*self.since(self.last_capture - 4))
        outcome = board.outcome(claim=True)
        same("claim", value(board, outcome), theirs if ended else None)
        self.counts["claims compared"] += 1
        if outcome is not None:
            self.counts["claim: " + outcome.reason] += 1
        return outcome is None or self.draw.random() > 0.1

    def could_claim(self) -> bool:
        """Whether an end could be claimed; looks at the texts alone, not at the board's history."""
        if len(self.moves) - self.last_capture < 4:
            return False
        if self.board.halfmove_clock >= 98:
            return True
        last = Move.from_uci(self.moves[-1])
        back = Move(last.to_square, last.from_square).uci()
        if back in (self.moves[-3], *self.moves[-5:-4]):
            return True
        now = self.fens[-1].split()[:2]
        return any(fen.split()[:2] == now for fen in self.fens[self.last_capture : -1])

    def compare_points(self) -> None:
        """Who leads, as two passes tell in a variant that counts points and has no bikjang."""
        fen = self.fens[-1]
        board = Board(fen, "janggimodern")
        passes = []
        for _ in range(2):
            if board.is_check():
                return
            passes.append(board.pass_move.uci())
            board.push_uci(passes[-1])
        ended, theirs = pyffish.is_immediate_game_end("janggimodern", fen, passes)
        points = self.board.points()
        leader = int(points["cho"] < points["han"])
        same("points", 32000 if leader == board.turn else -32000, theirs if ended else None)
        self.counts["points compared"] += 1

    def choose(self) -> Move:
        """A random move, seven times out of eight one that the habit likes."""
        moves = list(self.board.legal_moves)
        liked = moves
        if self.draw.random() < 7 / 8:
            if self.habit == "shuttle" and len(self.moves) > 1:
                mine = Move.from_uci(self.moves[-2])
                liked = [m for m in moves if m == Move(mine.to_square, mine.from_square)]
            elif self.habit == "pass":
                liked = [m for m in moves if m.is_pass]
            elif self.habit in ("check", "face"):
                liked = [m for m in moves if self.reaches(m)]
        return self.draw.choice(liked or moves)

    def reaches(self, move: Move) -> bool:
        self.board.push(move)
        reached = self.board.is_check() if self.habit == "check" else self.board.is_bikjang()
        self.board.pop()
        return reached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--plies", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path, help="JSON file, written every 50 games")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter({"games": 0, "plies": 0, "differences": 0})
    start = time.process_time()
    while counts["plies"] < arguments.plies:
        match = Match(random.Random(f"{arguments.seed}/{counts['games']}"))
        try:
            match.play()
        except Difference as difference:
            counts["differences"] += 1
            moves = " ".join(match.moves)
            print(f"{match.variant}, {match.root}, moves {moves}: {difference}", flush=True)
        counts["games"] += 1
        counts["games of " + match.variant] += 1
        counts.update(match.counts)
        if arguments.report and counts["games"] % 50 == 0:
            seconds = round(time.process_time() - start)
            report = {"seed": arguments.seed, **counts, "cpu_seconds": seconds}
            arguments.report.write_text(json.dumps(report, indent=1))
    print(json.dumps(counts, indent=1))
    sys.exit(counts["differences"] > 0)


if __name__ == "__main__":
    main()
