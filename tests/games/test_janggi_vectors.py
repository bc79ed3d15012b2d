"""Janggi against the reference vectors: moves, check, mate, perft, whole games, ends, points, FEN,
notation.
"""

from __future__ import annotations

from typing import Any

import pytest
from janggi_data import SIDES, VARIANTS, by_id, records, uci_moves

from games.core import InvalidFen
from games.janggi import Board, Move, square_name

REASONS = {"n_move": "no_capture_limit", "move_repetition": "back_and_forth", "unfinished": None}


@pytest.mark.parametrize("record", records("edge"), ids=by_id)
def test_edge_positions(record: dict[str, Any]) -> None:
    board = Board(record["fen"], record["variant"])
    assert board.fen() == record["fen"]
    assert board.is_valid()
    assert uci_moves(board) == record["legal"]
    assert len(board.legal_moves) == record["n"]
    assert board.is_check() == record["in_check"]
    assert {square_name(square) for square in board.checkers()} == set(record["checkers"])
    assert board.is_bikjang() == record["kings_facing"]
    assert board.is_legal(board.pass_move) == record["pass_legal"]
    assert board.is_checkmate() == record["checkmate"]
    if "game_result_stm" in record:
        outcome = board.outcome()
        assert outcome is not None
        assert (outcome.winner == board.turn) == (record["game_result_stm"] > 0)


@pytest.mark.parametrize("record", records("issues"), ids=by_id)
def test_positions_of_public_bug_reports(record: dict[str, Any]) -> None:
    board = Board(record["fen"], record["variant"])
    for uci in record["moves"]:
        board.push_uci(uci)
    assert board.fen() == record["fen_after"]
    assert uci_moves(board) == record["legal"]
    assert board.is_check() == record["in_check"]
    assert board.is_bikjang() == record["kings_facing"]
    ended, value = record["immediate_end"]
    outcome = board.outcome()
    if ended:
        assert outcome is not None
        assert value_to_move(board) == value
    elif record["legal"]:
        assert outcome is None
    for depth, nodes in record.get("perft", {}).items():
        assert board.perft(int(depth)) == nodes


@pytest.mark.parametrize("record", records("perft"), ids=by_id)
def test_perft(record: dict[str, Any]) -> None:
    board = Board(record["fen"], record["variant"])
    for depth, nodes in record["nodes"].items():
        assert board.perft(int(depth)) == nodes
    if "legal" in record:
        assert uci_moves(board) == record["legal"]
    for uci, replies in record.get("divide2", {}).items():
        board.push_uci(uci)
        assert len(board.legal_moves) == replies
        board.pop()
    assert board.fen() == record["fen"]


def test_perft_of_the_start() -> None:
    assert [Board().perft(depth) for depth in (1, 2, 3)] == [32, 1024, 33000]


@pytest.mark.slow
def test_perft_of_the_start_to_depth_4() -> None:
    assert Board().perft(4) == 1065277


def value_to_move(board: Board, claim: bool = False) -> int | None:
    """The outcome as the oracle gives it, from the view of the side to move."""
    outcome = board.outcome(claim)
    if outcome is None:
        return None
    return 0 if outcome.winner is None else 32000 if outcome.winner == board.turn else -32000


@pytest.mark.parametrize("record", records("games"), ids=by_id)
def test_games(record: dict[str, Any]) -> None:
    board = Board(record["start_fen"], record["variant"])
    for ply, uci in enumerate(record["moves"], start=1):
        assert board.outcome(claim=True) is None
        board.push_uci(uci)
        if str(ply) in record["fens"]:
            assert board.fen() == record["fens"][str(ply)]
    final = record["final"]
    assert board.fen() == record["final_fen"]
    assert "wb"[board.turn] == final["stm"]
    assert len(board.history) == final["ply"]
    assert board.is_check() == final["in_check"]
    assert board.is_bikjang() == final["kings_facing"]
    assert len(board.legal_moves) == final["legal_count"]
    assert board.halfmove_clock == final["halfmove"]
    assert board.points() == final["points"]
    outcome = board.outcome(claim=True)
    reason = REASONS.get(final["reason"], final["reason"])
    assert (outcome.reason if outcome else None) == reason
    if outcome:
        assert outcome.winner == SIDES[final["winner"]]
    for kind, claim in (("immediate", False), ("optional", True)):
        ended, value = final[kind]
        if ended:
            assert value_to_move(board, claim) == value
    if final["game_result_stm"] is not None:
        assert value_to_move(board) == final["game_result_stm"]
    # Back to the start: make/unmake restores everything.
    fens = {int(ply): fen for ply, fen in record["fens"].items()}
    for ply in range(len(record["moves"]), 0, -1):
        assert fens.get(ply, board.fen()) == board.fen()
        assert board.pop().uci() == record["moves"][ply - 1]
    assert board == Board(record["start_fen"], record["variant"])


@pytest.mark.parametrize("record", records("scoring"), ids=by_id)
def test_points_after_two_passes(record: dict[str, Any]) -> None:
    assert set(record["result_after_two_passes"]) == set(VARIANTS)
    for variant, winner in record["result_after_two_passes"].items():
        board = Board(record["fen"], variant)
        assert board.points() == record["points"]
        for uci in record["passes"]:
            board.push_uci(uci)
        outcome = board.outcome()
        assert outcome is not None
        assert (outcome.reason, outcome.winner) == ("double_pass", SIDES[winner])
        assert outcome.by_points == (winner != "draw")
        if outcome.by_points:
            assert outcome.points == (record["points"]["cho"], record["points"]["han"])


@pytest.mark.parametrize("record", records("fen"), ids=by_id)
def test_fen(record: dict[str, Any]) -> None:
    if record["oracle_ok"]:
        assert Board(record["fen"]).fen() == record["normalized"]
    else:
        with pytest.raises(InvalidFen) as error:
            Board(record["fen"])
        assert error.value.problems


@pytest.mark.parametrize("record", records("notation"), ids=by_id)
def test_notation(record: dict[str, Any]) -> None:
    board = Board(record["fen"], record["variant"])
    move = Move.from_uci(record["uci"])
    assert board.san(move) == record["san"]
    assert board.lan(move) == record["lan"]
    assert board.janggi(move) == record["janggi"]
    assert board.parse_san(record["san"]) == move
    assert board.parse_san(record["lan"]) == move
    assert board.parse_janggi(record["janggi"]) == move
    assert board.parse_korean(board.korean(move)) == move
    assert board.gives_check(move) == record["gives_check"]
    assert board.korean(move).endswith("장군") == record["gives_check"]
