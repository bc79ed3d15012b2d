"""How a janggi game ends besides mate: points, repetition, perpetual check, shuttling, limits.

Follows Fairy-Stockfish's behaviour, with which the tests compare it. Reads a board and its history
and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from games.core import Outcome
from games.janggi.geometry import CHO, GENERAL, GUARD, HAN
from games.janggi.rules import Rules, Verdict

if TYPE_CHECKING:
    from games.janggi.board import Board


def decide(board: Board, verdict: Verdict, reason: str) -> Outcome:
    """The outcome of an end that is a draw or decided by points."""
    if verdict != "points":
        return Outcome(None, reason)
    cho, han = board.material[CHO], board.material[HAN] + board.rules.komi
    return Outcome(CHO if cho > han else HAN, reason, by_points=True, points=(cho, han))


def verdict(rules: Rules, reason: str) -> Verdict:
    """How the rule set decides an end that comes without a claim."""
    if reason == "bikjang":
        return rules.bikjang
    return rules.double_pass if reason == "double_pass" else rules.ply_cap


def claimable(board: Board) -> Outcome | None:
    """The end that a player may claim now, if any: no capture for long, repetition, shuttling."""
    if no_capture(board):
        return decide(board, board.rules.no_capture, "no_capture_limit")
    shuttle, found = back_and_forth(board), repetition(board)
    # Both on one ply: the shorter look back speaks first.
    if shuttle is not None and (found is None or shuttle <= found[0]):
        return Outcome(board.turn, "back_and_forth")
    return found[1] if found else None


def no_capture(board: Board) -> bool:
    """Whether so many plies have passed without a capture that the rule set ends the game."""
    rules = board.rules
    return rules.no_capture != "off" and board.halfmove_clock >= rules.no_capture_limit


def _window(board: Board) -> int:
    """How many plies repetition and shuttling look back; 0 if they are too few to matter."""
    window = min(board.halfmove_clock, len(board.history))
    return window if window >= 4 else 0


def repetition(board: Board) -> tuple[int, Outcome] | None:
    """The n-th occurrence of the position, with the distance in plies to the first of the n.

    Looks back no further than the last capture. The side that gave check at every turn since then
    loses, unless both did.
    """
    window = _window(board)
    if not window or board.rules.repetition == "off":
        return None
    history, turn = board.history, board.turn
    wanted = board.rules.repetition_count - 1
    for distance in range(4, window + 1, 2):
        if history[-distance].key == board.key:
            wanted -= 1
            if wanted == 0:
                break
    else:
        return None
    we_were_checked = board.is_check() and all(
        history[-back].checkers for back in range(2, distance + 1, 2)
    )
    they_were_checked = all(history[-back].checkers for back in range(1, distance + 1, 2))
    if we_were_checked != they_were_checked:
        winner = turn if we_were_checked else 1 - turn
        return distance, Outcome(winner, "perpetual_check")
    return distance, decide(board, board.rules.repetition, "repetition")


def back_and_forth(board: Board) -> int | None:
    """The distance in plies to the first of five moves that shuttle one piece, the last just made.

    The mover's last four moves go A-B, B-A, A-B, B-A, and the one before them came to A without a
    capture; none of them answers a check. Guards and generals may shuttle. One pass just before the
    last move is skipped. Fairy-Stockfish takes the root for a move to a1, and so does this.
    """
    window = _window(board)
    if not window or not board.rules.back_and_forth:
        return None
    own = board.history[-1::-2]  # the mover's moves, latest first
    last = own[0].move
    here, back = last & 127, (last & 127) << 7 | last >> 7
    if board.squares[here] & 7 in (GENERAL, GUARD) or own[0].checkers or own[1].checkers:
        return None
    second = 2 if own[1].move >> 7 == own[1].move & 127 else 1
    first = second + 3
    if window < 2 * first or [move.move for move in own[second:first]] != [back, last, back]:
        return None
    if any(move.checkers for move in own[2 : first + 1]):
        return None
    if first == len(own):
        return 2 * first if here == 0 else None
    arrived = own[first]
    return 2 * first if arrived.move & 127 == here and not arrived.captured else None
