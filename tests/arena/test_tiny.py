"""The bundled model `tiny` and what it is trained on."""

import json
import random
import shutil
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import pytest
import torch
from transformers import LlamaForCausalLM

import games
from arena.config import ROSTER, bundled_model
from arena.prompts import STRENGTHS, move_text, prompt_text
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
    rated = {}
    for ply in rng.sample(range(len(moves)), min(5, len(moves))):
        before = game.position(setup=setup)
        for move in moves[:ply]:
            before.push(move)
        rated[ply] = {move: rng.randint(-900, 900) for move in before.legal_moves()}
    return tiny_data.Record(name, setup, ("club", "club"), moves, "0" * len(moves), rated)


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
    temperatures = [agent.temperature for agent in ROSTER]
    assert temperatures == sorted(temperatures, reverse=True)  # chance weakens, too


@pytest.mark.parametrize("name", NAMES)
def test_training_prompts_and_targets_are_those_of_an_agent(tiny_data, name: str) -> None:
    """Word for word what the agent sends, and after it all moves that the rules allow, with their shares."""
    sequences = tiny_data.Sequences(tiny_data.train_tokenizer())
    record = random_record(tiny_data, name, seed=3)
    game = games.get_game(name)
    usual = game.setups[0] if game.setups else None
    for seed in range(4):
        trunk, branches = sequences.build(record, random.Random(seed))
        text = sequences.text(trunk)
        persona = next(a for a in ROSTER if f"You are {a.name}." in text)
        strength = next(s for s in STRENGTHS if f"Strength: {s}." in text)
        persona = persona.model_copy(update={"strength": strength})
        expected = {}
        for one in (record, tiny_data.mirrored(record)) if game.setups else (record,):
            position = game.position(setup=one.setup)
            start = None if one.setup == usual else one.setup
            for ply, played in enumerate(one.moves):
                if ply in one.rated:
                    prompt = prompt_text(persona, start, position)
                    moves = tiny_data.shares(one.rated[ply], strength)
                    expected[prompt] = {
                        move_text(position.notation(m, game.notations[0])): share
                        for m, share in moves.items()
                    }
                position.push(played)
        assert len(branches) == len(record.rated)
        for branch in branches:
            asked = branch.ids[: branch.listed]
            prompt = sequences.text(sequences.rules(name) + trunk[: branch.seen] + asked)
            found = {}
            for tokens, share in walked(branch).items():
                found[sequences.text(list(tokens))] = share
            assert found == pytest.approx(expected[prompt])


def walked(branch) -> dict[tuple[int, ...], float]:
    """The moves of a branch's tree as tokens, each with its share."""
    moves = {}
    for token, following, child, share in branch.targets:
        path, at = [following], token
        while at >= branch.listed:
            path.append(branch.ids[at])
            at = branch.parents[at]
        assert at == branch.listed - 1
        if child < 0:
            moves[tuple(reversed(path))] = share
    return moves


def test_the_stronger_an_agent_the_better_its_moves_are_to_be(tiny_data) -> None:
    rated = {"e2e4": 100, "e2e3": 40, "f2f3": -200, "g2g4": -9999}
    before = 0.0
    for strength in STRENGTHS:
        shares = tiny_data.shares(rated, strength)
        assert sum(shares.values()) == pytest.approx(1)
        assert list(shares.values()) == sorted(shares.values(), reverse=True)
        assert shares["e2e4"] > before
        before = shares["e2e4"]
    assert before > 0.9


def test_a_mate_is_better_than_any_other_gain(tiny_data) -> None:
    shares = tiny_data.shares({"d1h5": 9_999, "d1a4": 4_000}, "master")
    assert shares["d1h5"] > 0.99


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
def test_branches_of_a_batch_have_the_logits_of_each_prompt_alone(tiny_data, name: str) -> None:
    model = script("tiny_model")
    tokenizer = tiny_data.train_tokenizer()
    sequences = tiny_data.Sequences(tokenizer)
    records = [random_record(tiny_data, name, seed, plies=8 + 9 * seed) for seed in range(3)]
    batch = tiny_data.make_batch(records, sequences, random.Random(1))
    torch.manual_seed(1)
    student = model.Student(tokenizer).eval()
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        packed, table = student.hidden(batch)
    llama = student.llama
    llama.set_attn_implementation("eager")
    rng = random.Random(1)
    examples = [sequences.build(record, rng) for record in records]
    branches = [(trunk, branch) for trunk, found in examples for branch in found]
    branches.sort(key=lambda item: len(item[1].ids), reverse=True)
    seen = 0
    for row, at in list(enumerate(batch.nodes.tolist()))[::7]:
        trunk, branch = branches[at // batch.ids.shape[1]]
        token, path = at % batch.ids.shape[1], []
        while token >= 0:
            path.append(branch.ids[token])
            token = branch.parents[token]
        prompt = sequences.rules(name) + trunk[: branch.seen] + path[::-1]
        with torch.inference_mode():
            embedded = torch.nn.functional.embedding(torch.tensor([prompt]), table)
            alone = llama.model(inputs_embeds=embedded).last_hidden_state[0, -1]
        assert torch.nn.functional.cosine_similarity(packed[row], alone, dim=0) > 0.999, row
        seen += 1
    assert seen > 20


def test_the_exported_model_says_what_the_student_does(tiny_data, tmp_path: Path) -> None:
    train = script("train_tiny")
    tokenizer = tiny_data.train_tokenizer()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    student = train.Student(tokenizer).eval()
    torch.save({"model": student.state_dict()}, tmp_path / "checkpoint.pt")
    train.export(tmp_path, tmp_path / "tiny")
    batch = tiny_data.make_batch(
        [random_record(tiny_data, "chess", 1)], tiny_data.Sequences(tokenizer), random.Random(1)
    )
    exported = LlamaForCausalLM.from_pretrained(tmp_path / "tiny", dtype=torch.float32)
    student.llama.set_attn_implementation("eager")
    with torch.no_grad():
        table = student.table().bfloat16().float()  # as exported
        for weight in student.llama.parameters():
            weight.data = weight.data.bfloat16().float()
        embedded = torch.nn.functional.embedding(batch.rules, table)
        hidden = student.llama.model(inputs_embeds=embedded)
        logits = exported(batch.rules).logits
    torch.testing.assert_close(logits, hidden.last_hidden_state @ table.T, atol=1e-4, rtol=1e-4)


def test_every_move_of_a_position_is_rated(tmp_path: Path) -> None:
    if not shutil.which("stockfish"):
        pytest.skip("stockfish is not installed")
    rater = script("rate_moves").Rater("stockfish", "chess")
    rater.set_position("6k1/5ppp/8/8/8/8/r4PPP/1R4K1 w - - 0 1", [])
    rated = rater.rate()
    rater.close()
    position = games.get_game("chess").position("6k1/5ppp/8/8/8/8/r4PPP/1R4K1 w - - 0 1")
    assert sorted(rated) == sorted(position.legal_moves())
    assert max(rated, key=rated.__getitem__) == "b1b8" and rated["b1b8"] == 9_999


def test_games_and_ratings_go_on_where_a_kill_left_them(tmp_path: Path, monkeypatch) -> None:
    if not shutil.which("stockfish"):
        pytest.skip("stockfish is not installed")

    def call(name: str, *words: object) -> None:
        monkeypatch.setattr("sys.argv", [name, *map(str, words)])
        script(name).main()

    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    for path, count in ((whole, 5), (cut, 3)):
        call("make_games", "--game", "chess", "--out", path, "--count", count)
    cut.write_text(cut.read_text()[:-40])
    call("make_games", "--game", "chess", "--out", cut, "--count", 4)
    torn = cut.read_text().splitlines()[2]
    assert [line for line in cut.read_text().splitlines() if line != torn] == (
        whole.read_text().splitlines()[:4]
    )
    rated, again = tmp_path / "whole.rated", tmp_path / "again.rated"
    call("rate_moves", "--games", whole, "--out", rated, "--plies", 3)
    lines = rated.read_text().splitlines(keepends=True)
    again.write_text("".join(lines[:7]) + lines[7][:30])  # inside a line of the third game
    call("rate_moves", "--games", whole, "--out", again, "--plies", 3)
    assert again.read_text() == rated.read_text()
