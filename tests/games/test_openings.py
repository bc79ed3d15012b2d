"""Openings: the games' own sets, books from files, and where they stop."""

from pathlib import Path

import chess
import pytest

import games
from games.core import GameError
from games.openings import load_openings

CHESS, JANGGI = games.get_game("chess"), games.get_game("janggi")
PGN = """[Event "book"]\n[Result "*"]\n\n1. e4 e5 2. Nf3 Nc6 *\n
[Event "mate"]\n[Result "0-1"]\n\n1. f3 e5 2. g4 Qh4# 0-1\n
[Event "cut"]\n[Result "*"]\n\n1. d4 d5 2. c4 *\n"""


@pytest.mark.parametrize("game", [CHESS, JANGGI], ids=lambda game: game.name)
def test_every_line_of_a_games_own_set_can_be_played_and_leaves_the_game_open(
    game: games.Game,
) -> None:
    openings = load_openings(game, "balanced")
    assert tuple(openings) == game.openings
    assert len(openings) >= 24
    keys = set()
    for opening in openings:
        position = game.position(opening.start_fen, None, opening.setup)
        for uci in opening.moves:
            position.push(uci)
        assert position.outcome() is None
        keys.add(position.key())
    assert len(keys) == len(openings)


def test_a_line_stops_before_the_game_is_over(tmp_path: Path) -> None:
    book = tmp_path / "book.pgn"
    book.write_text(PGN)
    assert [opening.moves for opening in load_openings(CHESS, str(book))] == [
        ("e2e4", "e7e5", "g1f3", "b8c6"),
        ("f2f3", "e7e5", "g2g4"),
        ("d2d4", "d7d5", "c2c4"),
    ]
    cut = load_openings(CHESS, str(book), plies=2)
    assert [opening.moves for opening in cut] == [
        ("e2e4", "e7e5"),
        ("f2f3", "e7e5"),
        ("d2d4", "d7d5"),
    ]


def test_an_opening_line_past_a_threefold_repetition_is_cut_there(tmp_path: Path) -> None:
    shuffle = "1. Nf3 Nf6 2. Ng1 Ng8 3. Nf3 Nf6 4. Ng1 Ng8 5. e4 e5 *"
    book = tmp_path / "book.pgn"
    book.write_text(f'[Event "?"]\n[Result "*"]\n\n{shuffle}\n')
    [opening] = load_openings(CHESS, str(book))
    assert len(opening.moves) == 7


def test_positions_are_openings_without_moves(tmp_path: Path) -> None:
    board = chess.Board()
    board.push_san("e4")
    mated = "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3"
    book = tmp_path / "book.epd"
    book.write_text(f'{board.epd()} id "one";\n{board.fen()}\n{mated}\n')
    [opening] = load_openings(CHESS, str(book))
    assert (opening.start_fen, opening.moves) == (board.fen(), ())


def test_a_latin_1_book_of_positions_is_read(tmp_path: Path) -> None:
    book = tmp_path / "book.epd"
    book.write_bytes(
        'rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - id "Köln";\n'.encode("latin-1")
    )
    assert len(load_openings(CHESS, str(book))) == 1


def test_a_book_of_another_game_has_no_openings(tmp_path: Path) -> None:
    book = tmp_path / "book.pgn"
    book.write_text(PGN)
    with pytest.raises(GameError, match="no opening for Janggi"):
        load_openings(JANGGI, str(book))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("none.pgn", None, "cannot be read: No such file"),
        ("book.bin", "x", "unknown kind; use .pgn, .gib, .epd or .fen"),
        ("book.epd", "not a position\n", r"book\.epd: Line 1"),
        ("book.pgn", "1. d4 d5 2. Kd8 *", r"book\.pgn .* game 1, ply 3, 'Kd8'"),
        ("book.pgn", "1. d4 {odd 1... d5 *", r"book\.pgn .* without its }"),
    ],
)
def test_a_book_that_cannot_be_read_is_refused_in_one_sentence(
    tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    book = tmp_path / name
    if text is not None:
        book.write_text(text)
    with pytest.raises(GameError, match=message):
        load_openings(CHESS, str(book))
