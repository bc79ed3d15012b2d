"""What the janggi board offers beside the rules: containers, claims, attackers, mirror, pictures."""

from __future__ import annotations

import pickle
import random
import xml.etree.ElementTree as ET

import pytest
from janggi_data import random_fen

from games.core import AmbiguousMove, IllegalMove, InvalidFen, UnknownSetup
from games.janggi import CHO, HAN, SETUPS, WINGS, Board, Move, parse_square, square_name, svg
from games.janggi.movegen import attacked

CYCLE = ["e2e1", "e9e10", "e1e2", "e10e9"]
GENERALS = "3k5/9/9/9/9/9/9/9/4K4/9"


def played(board: Board, moves: list[str]) -> Board:
    for uci in moves:
        board.push_uci(uci)
    return board


def test_legal_moves_are_a_container() -> None:
    board = Board()
    moves = board.legal_moves
    assert len(moves) == moves.count() == 32
    assert Move.from_uci("e2e2") in moves
    assert Move.from_uci("a1a9") not in moves
    assert "e2e2" not in moves
    assert moves.count(Move.from_uci("e2e2")) == 1
    assert moves.count(Move.from_uci("a1a9")) == 0
    assert list(moves) == [moves[index] for index in range(32)] == moves
    assert moves[-2:] == list(moves)[-2:]
    assert random.Random(1).choice(moves) in moves
    assert "e2e2" in repr(moves)
    with pytest.raises(IndexError):
        moves[32]


def test_legal_moves_do_not_change_when_the_board_moves_on() -> None:
    board = Board()
    moves = board.legal_moves
    for move in moves:
        board.push(move)
        assert board.legal_moves != moves
        board.pop()
    assert board.legal_moves == moves


def test_there_are_no_legal_moves_after_the_end() -> None:
    moves = played(Board(), ["e2e2", "e9e9"]).legal_moves
    assert not moves
    assert moves == []


def test_a_man_that_is_not_the_movers_cannot_be_pushed() -> None:
    board = Board()
    for uci in ("a5a6", "a7a6", "a1a1", "e5e5"):
        with pytest.raises(IllegalMove, match=f"{uci} cannot be played: Cho is to move and has no"):
            board.push(Move.from_uci(uci))
    assert board == Board()


def test_moves_can_be_played_in_every_notation() -> None:
    board = Board()
    assert board.push_san("Hc3").uci() == "b1c3"
    assert board.push_korean("12마33").uci() == "b10c8"
    for push, text in ((board.push_san, "Hc3"), (board.push_korean, "12마33")):
        with pytest.raises(IllegalMove):
            push(text)
    with pytest.raises(AmbiguousMove):
        board.push_san("Pb4")
    assert len(board.move_stack) == 2


def test_variations_are_numbered_from_the_position_and_leave_the_board() -> None:
    board = played(Board(), ["a4a5"])
    moves = [Move.from_uci(uci) for uci in ("e9e9", "b1c3", "b10c8")]
    assert board.variation_san(moves) == "1... Ke9 2. Hc3 Hc8"
    assert board.variation_san([]) == ""
    assert board == played(Board(), ["a4a5"])
    with pytest.raises(IllegalMove):
        board.variation_san([moves[0], moves[0]])


def test_claims_are_told_apart() -> None:
    board = Board()
    assert not board.can_claim_repetition()
    played(board, CYCLE * 2)
    assert board.can_claim_repetition()
    assert not board.can_claim_no_capture()
    assert not board.can_claim_back_and_forth()
    assert not board.is_game_over()
    assert board.is_game_over(claim=True)
    assert (board.result(), board.result(claim=True)) == ("*", "0-1")

    modern = played(Board(rules="janggimodern"), CYCLE * 2)
    assert not modern.can_claim_repetition()
    assert played(modern, CYCLE).can_claim_repetition()

    quiet = Board(f"{GENERALS} w - - 100 60", "janggitraditional")
    assert quiet.can_claim_no_capture()
    assert quiet.result(claim=True) == "1/2-1/2"
    assert not Board(f"{GENERALS} w - - 100 60", "janggimodern").can_claim_no_capture()

    shuttle = Board("3k5/9/9/9/r8/9/9/5K3/9/8R w - - 0 1", "janggimodern")
    walk = ["i1i2", "i2i3", "i3i5", "i5i6", "i6i7"]
    for step, back in zip(walk, ["a6a4", "a4a6", "a6a4", "a4a6", "a6a4"], strict=True):
        assert not shuttle.can_claim_back_and_forth()
        played(shuttle, [step, back])
    assert shuttle.can_claim_back_and_forth()
    assert shuttle.result(claim=True) == "1-0"


def test_nothing_can_be_claimed_once_the_game_is_over() -> None:
    board = Board(f"{GENERALS} w - - 98 60")
    played(board, ["e2e2", "d10d10"])
    assert board.is_game_over()
    assert not board.can_claim_no_capture()


def test_attackers_are_the_men_that_could_capture() -> None:
    draw = random.Random(7)
    for _ in range(150):
        board = Board(random_fen(draw))
        for side in (CHO, HAN):
            # Another implementation of the same: only generals and guards are missing in it.
            general = board.general(1 - side)
            assert board.is_attacked_by(side, general) == attacked(board.squares, general, 1 - side)
        checkers = board.checkers()
        assert board.attackers(1 - board.turn, board.general(board.turn)) == checkers
        for move in board.legal_moves:
            if board.is_capture(move):
                assert move.from_square in board.attackers(board.turn, move.to_square)


@pytest.mark.parametrize(
    ("square", "attackers"),
    [
        ("c3", ["b1"]),  # the horse
        ("d1", ["e2"]),  # the general defends his guard
        ("e1", ["d1", "f1", "e2"]),
        ("a3", ["a1", "b1"]),
        ("b4", ["a4", "c4"]),
        ("h3", []),  # without a screen the other cannon does not reach it
        ("e5", ["e4"]),
        ("a6", []),
    ],
)
def test_attackers_at_the_start(square: str, attackers: list[str]) -> None:
    found = Board().attackers(CHO, parse_square(square))
    assert [square_name(point) for point in found] == attackers


def test_cannons_do_not_attack_cannons() -> None:
    board = Board("3k5/9/9/9/9/9/9/4c4/4P4/4CK3 b")
    assert board.attackers(CHO, parse_square("e3")) == [parse_square("e2")]
    board = Board("3k5/9/9/9/9/9/9/4r4/4P4/4CK3 b")
    assert board.attackers(CHO, parse_square("e3")) == [parse_square("e1"), parse_square("e2")]


def test_mirror_exchanges_the_sides_and_is_its_own_inverse() -> None:
    draw = random.Random(8)
    for _ in range(60):
        board = Board(random_fen(draw), "janggimodern")
        other = board.mirror()
        assert other.turn != board.turn
        assert other.rules == board.rules
        assert len(other.legal_moves) == len(board.legal_moves)
        assert other.is_check() == board.is_check()
        assert other.is_bikjang() == board.is_bikjang()
        assert other.mirror() == board


def test_root_is_the_board_before_the_first_move() -> None:
    board = played(Board(rules="kakao"), CYCLE)
    assert board.root() == Board(rules="kakao")
    assert len(board.move_stack) == 4


def test_the_men_by_their_points() -> None:
    board = Board()
    assert len(board.piece_map()) == 32
    assert all(board.piece_at(point) == letter for point, letter in board.piece_map().items())
    assert board.piece_at(parse_square("e5")) is None
    assert [square_name(board.general(side)) for side in (CHO, HAN)] == ["e2", "e9"]


def test_boards_have_keys_and_no_hash() -> None:
    with pytest.raises(TypeError):
        hash(Board())
    assert played(Board(), CYCLE).key == Board().key


def test_setups_by_every_name() -> None:
    for setup in SETUPS:
        cho, han = setup.split("-")
        board = Board.from_setup(setup)
        assert board.setup() == setup
        assert Board.from_setup(f"{WINGS[cho]}-{WINGS[han]}") == board
        letters = setup.lower().replace("n", "h").replace("b", "e")
        assert Board.from_setup(letters) == board
    assert Board.from_setup("馬象象馬-象馬馬象") == Board.from_setup("안상-바깥상")
    assert played(Board(), ["a4a5"]).setup() is None


@pytest.mark.parametrize(
    "setup", ["", "NBBN", "NNBB-NBBN", "왼상-오른상", "NBBN-NBBN-NBBN", "마상"]
)
def test_unknown_setups_are_told_what_to_give(setup: str) -> None:
    with pytest.raises(UnknownSetup, match="NBBN-BNNB or 마상상마-상마마상"):
        Board.from_setup(setup)


def test_a_bad_fen_leaves_the_board_as_it_was() -> None:
    board = played(Board(), ["a4a5"])
    with pytest.raises(InvalidFen):
        board.set_fen("9/9/9")
    assert board == played(Board(), ["a4a5"])
    assert len(board.move_stack) == 1


def test_unicode_names_cho_in_hangul_and_han_in_hanja() -> None:
    rows = Board().unicode().splitlines()
    assert rows[0] == "10 車 馬 象 士 ·  士 象 馬 車"
    assert rows[6] == " 4 졸 ·  졸 ·  졸 ·  졸 ·  졸"
    assert rows[-1].split() == list("abcdefghi")
    assert "＋" in Board().unicode(empty="＋")


def texts(drawing: str) -> list[str]:
    return [
        node.text or "" for node in ET.fromstring(drawing).iter("{http://www.w3.org/2000/svg}text")
    ]


def test_svg_shows_every_man_and_marks_the_last_move_and_check() -> None:
    start = Board()._repr_svg_()
    assert [name for name in texts(start) if name in "楚漢"] == ["楚", "漢"]
    assert len(texts(start)) == 32 + 9 + 10
    moved = played(Board(), ["a4a5"])._repr_svg_()
    assert svg.MARK not in start
    assert svg.MARK in moved
    assert "dasharray" in played(Board(), ["e2e2"])._repr_svg_()
    assert svg.ALARM not in moved
    assert svg.ALARM in Board("3k5/9/9/9/9/9/9/9/4K4/3R5 b")._repr_svg_()


def test_svg_options() -> None:
    plain = svg.board(Board(), coordinates=False, hangul=True, size=450)
    assert sorted(set(texts(plain))) == sorted("초한사마상차포졸병")
    assert 'width="450" height="500"' in plain
    turned = svg.board(GENERALS, orientation=HAN)
    assert turned != svg.board(GENERALS)
    assert svg.board(Board(GENERALS).squares) == svg.board(GENERALS) == svg.board(Board(GENERALS))
    with pytest.raises(InvalidFen):
        svg.board("9/9")


def test_boards_and_legal_moves_survive_pickling() -> None:
    board = played(Board(), CYCLE)
    twin = pickle.loads(pickle.dumps(board))
    assert twin.key == board.key
    assert twin.root() == Board()
    assert pickle.loads(pickle.dumps(board.legal_moves)) == board.legal_moves
