"""A small set of balanced chess openings: main lines of many kinds, eight plies each, given as SAN.

Stockfish sees less than a pawn between the sides after 200,000 nodes.
"""

from __future__ import annotations

import chess

from games.core import Opening

_LINES = """
e4 e5 Nf3 Nc6 Bb5 a6 Ba4 Nf6
e4 e5 Nf3 Nc6 Bc4 Bc5 c3 Nf6
e4 e5 Nf3 Nc6 d4 exd4 Nxd4 Nf6
e4 e5 Nf3 Nf6 Nxe5 d6 Nf3 Nxe4
e4 e5 Nc3 Nf6 Bc4 Nc6 d3 Bb4
e4 c5 Nf3 d6 d4 cxd4 Nxd4 Nf6
e4 c5 Nf3 Nc6 d4 cxd4 Nxd4 g6
e4 c5 Nf3 e6 d4 cxd4 Nxd4 a6
e4 c5 c3 Nf6 e5 Nd5 d4 cxd4
e4 c5 Nc3 Nc6 g3 g6 Bg2 Bg7
e4 e6 d4 d5 Nc3 Nf6 Bg5 Be7
e4 e6 d4 d5 e5 c5 c3 Nc6
e4 c6 d4 d5 e5 Bf5 Nf3 e6
e4 c6 d4 d5 exd5 cxd5 Bd3 Nc6
e4 d5 exd5 Qxd5 Nc3 Qa5 d4 Nf6
e4 Nf6 e5 Nd5 d4 d6 Nf3 Bg4
d4 d5 c4 e6 Nc3 Nf6 cxd5 exd5
d4 d5 c4 c6 Nf3 Nf6 Nc3 e6
d4 d5 c4 dxc4 Nf3 Nf6 e3 e6
d4 d5 Nf3 Nf6 Bf4 c5 e3 Nc6
d4 Nf6 c4 e6 Nc3 Bb4 e3 O-O
d4 Nf6 c4 e6 Nf3 b6 g3 Bb7
d4 Nf6 c4 g6 Nc3 Bg7 e4 d6
d4 Nf6 c4 g6 Nc3 d5 Nf3 Bg7
d4 f5 g3 Nf6 Bg2 e6 Nf3 Be7
c4 e5 Nc3 Nf6 Nf3 Nc6 g3 d5
c4 c5 Nf3 Nf6 Nc3 Nc6 g3 g6
c4 Nf6 Nc3 e6 e4 d5 e5 d4
Nf3 d5 g3 Nf6 Bg2 e6 O-O Be7
Nf3 Nf6 c4 g6 g3 Bg7 Bg2 O-O
b3 e5 Bb2 Nc6 e3 Nf6 Bb5 Bd6
f4 d5 Nf3 Nf6 e3 g6 Be2 Bg7
"""


def _opening(line: str) -> Opening:
    board = chess.Board()
    for san in line.split():
        board.push_san(san)
    return Opening(tuple(move.uci() for move in board.move_stack))


OPENINGS = tuple(_opening(line) for line in _LINES.strip().splitlines())
