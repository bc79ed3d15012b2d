"""How janggi games end: one directed example for each rule, and the quirk of the oracle."""

from __future__ import annotations

import pyffish
import pytest
from janggi_data import VARIANTS

import games
from games.core import IllegalMove, Outcome, UnknownRules
from games.janggi import CHO, HAN, RULE_SETS, Board

# A lone Han chariot that shuttles while Cho's chariot walks up the i file.
SHUTTLE = "3k5/9/9/9/r8/9/9/5K3/9/8R w - - 0 1"
WALK = ["i1i2", "i2i3", "i3i5", "i5i6", "i6i7", "i7i8", "i8i9", "i9i8"]


def played(fen: str, rules: str, moves: list[str]) -> Board:
    board = Board(fen, rules)
    for uci in moves:
        board.push_uci(uci)
    return board


def ends_on(fen: str, rules: str, moves: list[str]) -> list[tuple[int, Outcome]]:
    """Plies on which a player could claim the end, checked against the oracle."""
    found = []
    board = Board(fen, rules)
    for ply in range(len(moves) + 1):
        outcome = board.outcome(claim=True)
        ended, value = pyffish.is_optional_game_end(rules, fen, moves[:ply])
        assert ended == (outcome is not None)
        if outcome is not None:
            assert (outcome.winner == board.turn) == (value > 0)
            found.append((ply, outcome))
        if ply < len(moves):
            board.push_uci(moves[ply])
    return found


def interleave(cho: list[str], han: list[str]) -> list[str]:
    return [move for pair in zip(cho, han, strict=False) for move in pair]


def test_shuttling_loses_at_the_fifth_move() -> None:
    moves = interleave(WALK, ["a6a4", "a4a6"] * 3)
    found = ends_on(SHUTTLE, "janggimodern", moves)
    assert found[0] == (10, Outcome(CHO, "back_and_forth"))


def test_shuttling_is_allowed_elsewhere() -> None:
    for rules in ("janggi", "janggitraditional", "janggicasual"):
        assert ends_on(SHUTTLE, rules, interleave(WALK, ["a6a4", "a4a6"] * 3)) == []


def test_shuttling_counts_from_the_arrival_on_the_pair() -> None:
    moves = interleave(WALK, ["a6b6", "b6b5", "b5b6", "b6b5", "b5b6", "b6b5"])
    found = ends_on(SHUTTLE, "janggimodern", moves)
    assert found[0] == (10, Outcome(CHO, "back_and_forth"))


def test_shuttling_from_a1_at_the_root_is_flagged_one_move_earlier() -> None:
    fen = "3k5/9/9/9/9/9/9/5K3/9/r7R w - - 0 1"
    moves = interleave(WALK, ["a1a4", "a4a1"] * 2)
    assert ends_on(fen, "janggimodern", moves) == [(8, Outcome(CHO, "back_and_forth"))]


def test_one_pass_before_the_last_move_does_not_break_a_shuttle() -> None:
    han = ["a6b6", "b6b5", "b5b6", "b6b5", "d10d10", "b5b6"]
    found = ends_on(SHUTTLE, "janggimodern", interleave(WALK, han))
    assert found == [(12, Outcome(CHO, "back_and_forth"))]


def test_guards_and_generals_may_shuttle() -> None:
    fen = "3k5/9/9/9/9/9/9/5K3/9/8R w - - 0 1"
    moves = interleave(WALK, ["d10d9", "d9d10"] * 3)
    assert ends_on(fen, "janggimodern", moves) == []


def test_repetition_by_points_as_a_draw_and_at_the_fourth_time() -> None:
    cycle = ["e2e1", "e9e10", "e1e2", "e10e9"]
    for rules, times in (("janggi", 2), ("janggitraditional", 2), ("janggimodern", 3)):
        fen = games.get_game("janggi").start_fen
        board = played(fen, rules, cycle * times)
        assert board.outcome() is None
        outcome = board.outcome(claim=True)
        assert outcome is not None
        assert outcome.reason == "repetition"
        assert outcome.by_points == (rules != "janggitraditional")
        assert outcome.winner == (HAN if outcome.by_points else None)
        board.pop()
        assert board.outcome(claim=True) is None


def test_repetition_counts_the_root_and_not_the_passes() -> None:
    fen = games.get_game("janggi").start_fen
    # A pass by each side, never two in a row, reaches the start position again.
    moves = ["e2e2", "e9e10", "e2e1", "e10e10", "e1e2", "e10e9"]
    points = Outcome(HAN, "repetition", True, (72, 73.5))
    assert ends_on(fen, "janggi", moves * 2) == [(12, points)]


def test_perpetual_check_loses() -> None:
    fen = "3k5/9/9/9/9/9/9/9/5K3/R8 w - - 0 1"
    cycle = ["d10d9", "a10a9", "d9d10", "a9a10"]
    board = played(fen, "janggi", ["a1a10", *cycle, *cycle])
    assert board.outcome(claim=True) == Outcome(HAN, "perpetual_check")


def test_a_player_who_only_passes_does_not_offend() -> None:
    fen = "3k5/9/9/9/9/9/9/5K3/9/8R w - - 0 1"
    moves = interleave(["i1i2", "i2i3", "i3i4", "i4i5", "i5i6", "i6i7"], ["d10d10"] * 6)
    for rules in VARIANTS:
        assert ends_on(fen, rules, moves) == []


def test_no_capture_limit_by_points_and_a_capture_resets_it() -> None:
    fen = "3k5/9/9/9/9/9/p8/9/9/R3K4 w - - 98 60"
    board = played(fen, "janggi", ["a1a2", "d10d9"])
    assert board.outcome() is None
    assert board.outcome(claim=True) == Outcome(CHO, "no_capture_limit", True, (13, 3.5))
    assert board.legal_moves
    assert played(fen, "janggi", ["a1a4", "d10d9"]).outcome(claim=True) is None
    assert played(fen, "janggimodern", ["a1a2", "d10d9"]).outcome(claim=True) is None
    draw = played(fen, "janggicasual", ["a1a2", "d10d9"]).outcome(claim=True)
    assert draw == Outcome(None, "no_capture_limit")


def test_bikjang_must_be_broken_or_accepted_and_outranks_mate() -> None:
    board = Board("9/4k4/9/4N4/9/9/9/9/9/4K4 w - - 0 1")
    board.push_uci("e7c8")
    assert board.is_check()
    assert board.is_bikjang()
    assert board.is_legal(board.pass_move)
    for move in board.legal_moves:
        if not move.is_pass:
            board.push(move)
            assert not board.is_bikjang()
            board.pop()
    board.push(board.pass_move)
    assert board.legal_moves == []
    assert board.outcome() == Outcome(CHO, "bikjang", True, (5, 1.5))
    with pytest.raises(IllegalMove, match="game is over"):
        board.push_uci("e1e1")


def test_two_passes_end_the_game_at_once() -> None:
    fen = games.get_game("janggi").start_fen
    for rules in RULE_SETS:
        board = played(fen, rules, ["0000", "@@@@"])
        outcome = board.outcome()
        assert outcome is not None
        assert outcome.reason == "double_pass"
        assert outcome.winner == (None if RULE_SETS[rules].double_pass == "draw" else HAN)
        assert board.legal_moves == []


def test_kakao_counts_points_after_200_plies_and_has_no_other_limit() -> None:
    board = Board(rules="kakao")
    cycle = ["e2e1", "e9e10", "e1e2", "e10e9"]
    for ply in range(200):
        assert board.outcome(claim=True) is None
        board.push_uci(cycle[ply % 4])
    assert board.outcome() == Outcome(HAN, "ply_limit", True, (72, 73.5))
    assert board.legal_moves == []
    board.pop()
    assert board.outcome(claim=True) is None
    assert len(board.legal_moves) == len(Board(board.fen(), "janggicasual").legal_moves)


def test_kakao_facing_generals_mean_nothing() -> None:
    fen = "4k4/9/9/9/9/9/9/9/4K4/R8 w - - 0 1"
    board = played(fen, "kakao", ["a1a2", "e10e10", "a2a3"])
    assert board.is_bikjang()
    assert board.outcome(claim=True) is None


def test_a_mate_on_the_last_ply_of_kakao_is_a_mate() -> None:
    fen = "5k3/9/9/9/9/9/r8/9/1r7/3K5 b - - 0 100"
    mate = played(fen, "kakao", ["a4a1"])
    assert mate.ply() == 200
    assert mate.is_checkmate()
    assert mate.outcome() == Outcome(HAN, "checkmate")
    quiet = played(fen, "kakao", ["a4a5"])
    assert quiet.outcome() == Outcome(HAN, "ply_limit", True, (0, 27.5))


def test_adjudication_is_by_points_where_points_decide() -> None:
    game = games.get_game("janggi")
    for rules in game.rule_sets:
        outcome = game.position(rules=rules).adjudicate()
        if rules in ("janggi", "janggimodern", "kakao"):
            assert outcome == Outcome(HAN, "ply_limit", True, (72, 73.5))
        else:
            assert outcome == Outcome(None, "ply_limit")


def test_unknown_rule_set() -> None:
    with pytest.raises(UnknownRules, match="janggimodern"):
        Board(rules="xiangqi")
