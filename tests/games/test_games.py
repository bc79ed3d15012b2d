"""What holds for every game: record and interface, and a parser that reads all that is shown."""

from __future__ import annotations

import hashlib
import json
import pickle
import random
from collections.abc import Iterator

import pytest

import games
from games.core import GameError, InvalidFen, ParseFailure, Position

NAMES = games.list_games()


def random_play(name: str, plies: int, seed: int) -> Iterator[Position]:
    """Positions of random games over all rule sets and setups; the same object, changed between."""
    draw = random.Random(seed)
    game = games.get_game(name)
    while plies:
        setup = draw.choice(game.setups) if game.setups else None
        position = game.position(rules=draw.choice(game.rule_sets), setup=setup)
        while plies and position.outcome() is None:
            yield position
            plies -= 1
            position.push(draw.choice(position.legal_moves()))


def test_names() -> None:
    assert NAMES == ["chess", "janggi"]
    with pytest.raises(games.UnknownGame, match="chess, janggi"):
        games.get_game("go")


@pytest.mark.parametrize("name", NAMES)
def test_record(name: str) -> None:
    game = games.get_game(name)
    record = json.loads(json.dumps(game.to_dict()))
    assert record["name"] == name
    assert record["pieces"][0].keys() == {"letter", "name", "value", "glyphs"}
    assert pickle.loads(pickle.dumps(game)) == game
    start = game.position()
    assert start.game is game
    assert start.fen() == game.start_fen
    assert start.rules == game.rule_sets[0]
    squares = {f"{file}{rank}" for file in "abcdefghi"[: game.files] for rank in range(1, 11)}
    assert {square for line in game.lines for square in line} <= squares
    letters = {piece.letter for piece in game.pieces}
    assert {letter.upper() for letter in start.pieces().values()} == letters
    values = {piece.letter: piece.value for piece in game.pieces}
    for side, total in enumerate(start.material()):
        own = [c for c in start.pieces().values() if c.isupper() == (side == 0)]
        assert total == sum(values[letter.upper()] for letter in own)


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("chess", "fb3bc5c4d559b563e0de143df0fca4ce9d221809157e5bfd8ea5fa26debe4bfc"),
        ("janggi", "33b30aa9044a17f68159b8a0347fd026b8a6db9f0461b5bc2e2b842277190aab"),
    ],
)
def test_rules_text_is_the_one_the_bundled_model_was_trained_on(name: str, digest: str) -> None:
    text = (
        games.get_game(name).rules_text()
        + " Answer with one legal move in this notation and nothing else."
    )
    assert hashlib.sha256(text.encode()).hexdigest() == digest


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_what_a_prompt_shows_is_what_the_parser_reads(name: str) -> None:
    """Every legal move of 1,000 positions, in every notation."""
    for position in random_play(name, 1000, seed=1):
        legal = position.legal_moves()
        for style in position.game.notations:
            shown = [position.notation(uci, style) for uci in legal]
            assert len(set(shown)) == len(shown)
            assert [position.parse(text).move for text in shown] == legal


@pytest.mark.parametrize("name", NAMES)
def test_an_illegal_move_is_never_turned_into_another(name: str) -> None:
    draw = random.Random(3)
    for position in random_play(name, 150, seed=3):
        squares = list(position.pieces())
        uci = draw.choice(squares) + draw.choice(squares)
        result = position.parse(uci)
        if uci in position.legal_moves():
            assert result.move == uci
        else:
            assert result.move is None
            assert result.failure == ParseFailure.ILLEGAL
            fen = position.fen()
            with pytest.raises(games.IllegalMove):
                position.push(uci)
            assert position.fen() == fen


@pytest.mark.parametrize("name", NAMES)
def test_positions_are_rebuilt_from_their_fen(name: str) -> None:
    for position in random_play(name, 150, seed=4):
        again = position.game.position(position.fen(), position.rules)
        assert again.fen() == position.fen()
        assert again.key() == position.key()
        assert again.legal_moves() == position.legal_moves()
        assert again.in_check() == position.in_check()
        assert again.material() == position.material()
        assert again.pieces() == position.pieces()
        assert again.ascii() == position.ascii()


@pytest.mark.parametrize("name", NAMES)
def test_copies_are_independent(name: str) -> None:
    position = games.get_game(name).position()
    position.push(position.legal_moves()[0])
    twin = position.copy()
    twin.push(twin.legal_moves()[0])
    assert (position.ply, twin.ply) == (1, 2)
    assert twin.pop() != ""
    assert twin.fen() == position.fen()
    assert pickle.loads(pickle.dumps(position)).moves() == position.moves()


@pytest.mark.parametrize("name", NAMES)
def test_bad_requests(name: str) -> None:
    game = games.get_game(name)
    with pytest.raises(games.UnknownRules, match=game.rule_sets[0]):
        game.position(rules="none such")
    with pytest.raises(games.UnknownSetup):
        game.position(setup="none such")
    with pytest.raises(InvalidFen):
        game.position("")
    with pytest.raises(GameError):
        game.position().notation(game.position().legal_moves()[0], "none such")
    with pytest.raises(games.IllegalMove):
        game.position().notation("a1a9", "uci")


def test_janggi_refuses_impossible_positions_by_name() -> None:
    game = games.get_game("janggi")
    with pytest.raises(InvalidFen, match="opposite_check") as error:
        game.position("3k5/9/9/9/3R5/9/9/9/5K3/P8 w - - 0 1")
    assert set(error.value.problems) == {"opposite_check", "soldier_behind_start"}


def test_setups_are_read_by_their_korean_names() -> None:
    game = games.get_game("janggi")
    assert game.position(setup="마상상마-상마마상").fen() == game.position(setup="NBBN-BNNB").fen()
    with pytest.raises(games.UnknownSetup, match=r"마상상마.*NBBN"):
        game.position(setup="마마마마-마상상마")


def test_janggi_setups_start_the_game() -> None:
    game = games.get_game("janggi")
    position = game.position(setup="BNBN-NBNB")
    assert [position.pieces()[square] for square in ("b1", "c1", "g1", "h1")] == list("BNBN")
    assert [position.pieces()[square] for square in ("b10", "c10", "g10", "h10")] == list("nbnb")
    with pytest.raises(GameError, match="not both"):
        game.position(game.start_fen, setup="BNBN-NBNB")


@pytest.mark.parametrize(
    ("text", "move", "failure"),
    [
        ("a4a5", "a4a5", None),
        (" a4a5\n", "a4a5", None),
        ("0000", "e2e2", None),
        ("@@@@", "e2e2", None),
        ("Ke2", "e2e2", None),
        ("Hc3", "b1c3", None),
        ("Nc3", "b1c3", None),
        ("Hb1-c3", "b1c3", None),
        ("H02-83", "b1c3", None),
        ("", None, ParseFailure.EMPTY),
        ("Pb4", None, ParseFailure.AMBIGUOUS),
        ("a4a6", None, ParseFailure.ILLEGAL),
        ("Ra9", None, ParseFailure.ILLEGAL),
        ("H02-99", None, ParseFailure.ILLEGAL),
        ("my move is a4a5", "a4a5", None),
        ("Resign", None, ParseFailure.RESIGN),
    ],
)
def test_janggi_parse(text: str, move: str | None, failure: ParseFailure | None) -> None:
    result = games.get_game("janggi").position().parse(text)
    assert (result.move, result.failure) == (move, failure)


@pytest.mark.parametrize("name", NAMES)
def test_facts_of_a_move_are_what_playing_it_shows(name: str) -> None:
    for position in random_play(name, plies=120, seed=8):
        side, before = position.turn, (position.fen(), position.moves())
        values = {piece.letter: piece.value for piece in position.game.pieces}
        for uci in position.legal_moves():
            facts, material = position.facts(uci), position.material()
            position.push(uci)
            lost = material[1 - side] - position.material()[1 - side]
            assert values.get(facts.captured or "", 0.0) == lost
            assert facts.check == position.in_check()
            assert facts.outcome == position.outcome()
            assert facts.at_risk is None or facts.outcome is None
            position.pop()
        assert (position.fen(), position.moves()) == before
        with pytest.raises(games.IllegalMove):
            position.facts("a1a10")


def test_at_risk_is_the_dearest_loss_by_one_exchange() -> None:
    chess = games.get_game("chess")
    for fen, uci, at_risk in (
        ("4k3/8/2p5/8/4N3/8/8/4K3 w - - 0 1", "e4d6", None),  # nobody attacks it
        ("4k3/8/8/2p5/8/4N3/8/4K3 w - - 0 1", "e3d5", None),
        ("4k3/8/2p5/8/8/4N3/8/4K3 w - - 0 1", "e3d5", "N"),  # a pawn takes it for nothing
        ("4k3/8/2p5/8/4P3/4N3/8/4K3 w - - 0 1", "e3d5", "N"),  # or for a pawn
        ("4k3/8/5n2/8/2P5/4N3/8/4K3 w - - 0 1", "e3d5", None),  # a knight for a knight
        ("4k3/8/5n2/8/8/4N3/8/4K3 w - - 0 1", "e3c4", None),
        ("4k3/8/5n2/3N4/8/8/8/R3K3 w - - 0 1", "a1a2", "N"),  # left where it can be taken
        ("4k3/3N4/8/8/8/8/P7/3RK3 w - - 0 1", "e1e2", None),  # a king takes nothing protected
        ("4k3/3N4/8/8/8/8/P7/4K3 w - - 0 1", "e1e2", "N"),
    ):
        assert chess.position(fen).facts(uci).at_risk == at_risk, (fen, uci)
    janggi = games.get_game("janggi")
    for fen, uci, at_risk in (
        ("3k5/9/9/9/r8/9/9/9/5K3/R8 w - - 0 1", "f2e2", "R"),  # on one file, unprotected
        ("3k5/9/9/9/r8/9/9/2N6/5K3/R8 w - - 0 1", "c3b1", "R"),
        ("3k5/9/9/9/r8/9/P8/9/5K3/R8 w - - 0 1", "f2e2", None),  # a protected soldier between
        ("3k5/9/9/9/r8/9/P8/9/5K3/1R7 w - - 0 1", "f2e2", "P"),
        ("3k5/c8/9/p8/9/9/P8/9/5K3/R8 w - - 0 1", "f2e2", None),  # two men before the cannon's goal
        ("3k5/c8/9/p8/9/9/9/9/5K3/R8 w - - 0 1", "f2e2", "R"),  # over a screen
    ):
        assert janggi.position(fen).facts(uci).at_risk == at_risk, (fen, uci)
