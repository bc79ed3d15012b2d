"""The bundled model `tiny` and what it is trained on."""

import json
import random
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import pytest

import games
from arena.config import ROSTER, bundled_model
from arena.prompts import STRENGTHS, move_text
from engine import load_tokenizer
from tests.engine.smollm2 import script

NAMES = games.list_games()


@pytest.fixture(scope="module")
def tiny_data() -> ModuleType:
    return script("tiny_data")


def random_record(tiny_data, name: str, seed: int, plies: int = 60):
    rng = random.Random(seed)
    game = games.get_game(name)
    setup = rng.choice(game.setups) if game.setups else None
    position = game.position(setup=setup)
    while position.ply < plies and not position.outcome():
        position.push(rng.choice(position.legal_moves()))
    moves = tuple(position.moves())
    return tiny_data.Record(name, setup, ("club", "club"), moves, "0" * len(moves))


def test_bundled_model_is_small() -> None:
    size = sum(file.stat().st_size for file in Path(bundled_model()).iterdir())
    assert size <= 16e6
    config = json.loads((files("arena") / "models" / "tiny" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]


@pytest.mark.parametrize("name", NAMES)
def test_a_move_is_two_tokens_to_the_bundled_model(name: str) -> None:
    tokenizer = load_tokenizer(bundled_model())
    position = games.get_game(name).position()
    rng = random.Random(1)
    for _ in range(60):
        for uci in position.legal_moves():
            text = move_text(position.notation(uci, position.game.notations[0]))
            promotion = uci[-1].isalpha()
            assert len(tokenizer.encode_choice(text)) == 2 + promotion, text
        if position.outcome():
            break
        position.push(rng.choice(position.legal_moves()))


def test_roster_goes_from_weak_to_strong() -> None:
    order = [STRENGTHS.index(agent.strength) for agent in ROSTER]
    assert order == sorted(order)
    assert set(order) == set(range(len(STRENGTHS)))


@pytest.mark.parametrize("name", NAMES)
def test_training_labels_are_what_the_rules_say(tiny_data, name: str) -> None:
    sequences = tiny_data.Sequences(tiny_data.train_tokenizer())
    record = random_record(tiny_data, name, seed=3)
    known = sequences.labels(record)
    game = games.get_game(name)
    position = game.position(setup=record.setup)
    for ply, played in enumerate(record.moves):
        legal = {
            tuple(sequences.ids(move_text(position.notation(m, game.notations[0])))[:2])
            for m in position.legal_moves()
        }
        rows = known.legal[known.legal[:, 0] == ply]
        assert {(a, b) for _, a, b in rows.tolist()} == legal
        assert tuple(known.moves[ply][:2]) in legal
        assert (known.board[ply] > 0).sum() == len(position.pieces())
        position.push(played)


def test_a_mirrored_janggi_game_is_legal_and_mirrors_back(tiny_data) -> None:
    for seed in range(20):
        record = random_record(tiny_data, "janggi", seed)
        twin = tiny_data.mirrored(record)
        position = games.get_game("janggi").position(setup=twin.setup)
        for move in twin.moves:
            position.push(move)
        usual = games.get_game("janggi").setups[0]
        again = tiny_data.mirrored(twin)
        assert (again.moves, again.setup or usual) == (record.moves, record.setup)


def test_no_held_out_game_begins_like_a_training_game(tiny_data, tmp_path: Path) -> None:
    games_of = [random_record(tiny_data, "chess", seed, plies=30) for seed in range(120)]
    lines = [
        json.dumps(
            {
                "game": r.game,
                "setup": r.setup,
                "levels": r.levels,
                "moves": list(r.moves),
                "random": r.random,
            }
        )
        for r in games_of
    ]
    lines[1] = lines[0]  # a training game that begins like the first held-out one
    (tmp_path / "chess.jsonl").write_text("\n".join(lines) + "\n" + lines[3][:50])
    train, held_out = tiny_data.read_records(tmp_path)
    assert len(train) == 117  # the line that was cut off is nobody's
    openings = {record.moves[:20] for record in train}
    assert held_out
    assert not any(record.moves[:20] in openings for record in held_out)


@pytest.mark.parametrize("name", NAMES)
def test_batches_point_at_the_tokens_before_each_move(tiny_data, name: str) -> None:
    sequences = tiny_data.Sequences(tiny_data.train_tokenizer())
    records = [random_record(tiny_data, name, seed, plies=20 + seed) for seed in range(5)]
    batch = tiny_data.make_batch(records, sequences, random.Random(1))
    flat = batch.ids.flatten()
    first = dict.fromkeys(range(len(batch.plies)), False)
    for ply, token in batch.first.tolist():
        first[ply] |= token == flat[batch.plies[ply] + 1]
    assert all(first.values())  # what was played is among what is legal
    second = dict.fromkeys(range(len(batch.plies)), False)
    for ply, token in batch.second.tolist():
        second[ply] |= token == flat[batch.plies[ply] + 2]
    assert all(second.values())
