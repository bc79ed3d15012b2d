"""`choose` against brute force: transformers, one option at a time."""

import math
import random
from typing import Any

import numpy as np
import pytest
import torch

from engine import (
    LLM,
    BoundaryMerge,
    ChoiceOutput,
    ChoiceParams,
    NoChoices,
    PromptTooLong,
    Tokenizer,
)
from engine.choice import ChoiceTree, draw, up_to_last_draws
from tests.engine.conftest import MOVES, SYSTEM, config


def brute_force(model: Any, prompt: list[int], choices: list[tuple[int, ...]]) -> list[float]:
    """log p(choice) with the longest match counting, each option scored on its own."""
    result = []
    for ids in choices:
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *ids]])).logits[0].double()
        logs = torch.log_softmax(logits, dim=-1)
        total = sum(float(logs[len(prompt) - 1 + i, token]) for i, token in enumerate(ids))
        longer = {
            other[len(ids)]
            for other in choices
            if len(other) > len(ids) and other[: len(ids)] == ids
        }
        if longer:
            total += math.log(1.0 - sum(math.exp(float(logs[-1, token])) for token in longer))
        result.append(total)
    return result


def test_choose_equals_brute_force(checkpoint: str, reference: Any, tokenizer: Tokenizer) -> None:
    rng = random.Random(1)
    llm = LLM(config(checkpoint))
    prompts, choices = [], []
    for ply in range(24):
        prompts.append(SYSTEM + "".join(" " + rng.choice(MOVES) for _ in range(ply)))
        texts = [" " + move for move in rng.sample(MOVES, 1 + ply)]
        choices.append([*texts, " O-O", " O-O-O", " a9a1", " a9a10"])
    outputs = llm.choose(prompts, choices, ChoiceParams(temperature=0))
    for prompt, texts, output in zip(prompts, choices, outputs, strict=True):
        expected = brute_force(
            reference, tokenizer.encode(prompt), [tokenizer.encode_choice(text) for text in texts]
        )
        mass = sum(math.exp(value) for value in expected)
        assert output.logprobs is not None and output.legal_mass is not None
        assert output.legal_mass == pytest.approx(mass, rel=1e-4)
        for value, got in zip(expected, output.logprobs, strict=True):
            assert got == pytest.approx(value - math.log(mass), abs=1e-4)
        best = max(range(len(texts)), key=expected.__getitem__)
        assert output.index == best and output.text == texts[best]
        assert output.logprob == output.logprobs[best]
        probabilities = [math.exp(value) / mass for value in expected]
        assert output.entropy == pytest.approx(
            -sum(p * math.log(p) for p in probabilities), abs=1e-4
        )


@pytest.fixture(scope="module")
def llm(checkpoint: str) -> LLM:
    return LLM(config(checkpoint))


def test_masked_scoring_walks_one_path(llm: LLM, reference: Any, tokenizer: Tokenizer) -> None:
    texts = [" e2e4", " e2e3", " d2d4", " O-O", " O-O-O", " a9a1", " a9a10"]
    params = ChoiceParams(scoring="masked", temperature=0)
    for ply in range(6):
        prompt = SYSTEM + " e2e4" * ply
        [output] = llm.choose([prompt], [texts], params)
        ids = [tokenizer.encode_choice(text) for text in texts]
        walked: tuple[int, ...] = ()
        total = 0.0
        while True:
            below = [i for i in ids if i[: len(walked)] == walked and len(i) > len(walked)]
            if not below:
                break
            with torch.inference_mode():
                logits = reference(torch.tensor([[*tokenizer.encode(prompt), *walked]])).logits[
                    0, -1
                ]
            logs = torch.log_softmax(logits.double(), dim=-1)
            options = {i[len(walked)]: float(logs[i[len(walked)]]) for i in below}
            if walked in ids:
                options[-1] = math.log(1.0 - sum(math.exp(value) for value in options.values()))
            mass = math.log(sum(math.exp(value) for value in options.values()))
            token = max(options, key=options.__getitem__)
            total += options[token] - mass
            if token < 0:
                break
            walked = (*walked, token)
        assert tokenizer.encode_choice(output.text) == walked
        assert output.logprob == pytest.approx(total, abs=1e-4)
        assert output.logprobs is None and output.legal_mass is None and output.entropy is None


def test_masked_scoring_takes_one_row_for_each_draw(llm: LLM) -> None:
    [output] = llm.choose([SYSTEM], [[" e2e4"]], ChoiceParams(scoring="masked"))
    assert output.text == " e2e4" and output.logprob == 0.0 and output.metrics.scored_rows == 1


def test_looking_ahead_saves_passes_and_changes_no_draw(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(5)
    texts = [[" " + move for move in rng.sample(MOVES, 30)] for _ in range(6)]
    texts[0] += [" a9a1", " a9a10"]  # the end of one is scored in another way
    drawn, logprobs, steps = [], [], []
    for most in (1, 10):
        monkeypatch.setattr("engine.request._LOOK_AHEAD", most)
        monkeypatch.setattr("engine.request._LOOK_AHEAD_TOGETHER", 10 * most)
        before = llm.stats().steps
        outputs: list[ChoiceOutput] = []
        for seed, temperature in enumerate([0.0, 2.0, 2.0, 5.0, 5.0]):
            params = ChoiceParams(scoring="masked", temperature=temperature, seed=seed)
            outputs += llm.choose([SYSTEM] * 6, texts, params)
        steps.append(llm.stats().steps - before)
        drawn.append([output.index for output in outputs])
        logprobs.append([output.logprob for output in outputs])
    assert drawn[0] == drawn[1] and logprobs[0] == pytest.approx(logprobs[1], abs=1e-4)
    assert steps[0] > steps[1]


def test_what_has_no_alternative_is_not_scored() -> None:
    assert up_to_last_draws([(1, 2, 3, 4), (1, 2, 5, 6), (7, 8, 9)]) == [(1, 2, 3), (1, 2, 5), (7,)]
    assert up_to_last_draws([(5, 6, 7)]) == [(5,)]
    assert up_to_last_draws([(1, 2, 3), (1,)]) == [(1, 2), (1,)]


def test_the_tree_below_a_node_has_the_choices_that_pass_it() -> None:
    tree = ChoiceTree([(1, 2, 3), (4,), (1, 2), (1, 5)])
    node = tree.path(0)[0]
    below, choices = tree.below(node)
    assert choices == [0, 2, 3] and tree.num_below(node) == below.num_inner == 2
    assert below.edge_tokens.tolist() == [2, 5, 3] and below.has_stops
    assert [below.leaf_choice(edge) for edge in range(3)] == [-1, 2, 0]
    below, choices = tree.below(tree.path(0)[1])
    assert choices == [0, 2] and below.stop_choice(0) == 1


def test_a_single_choice_is_certain(llm: LLM) -> None:
    [output] = llm.choose([SYSTEM], [[" e2e4"]])
    assert output.logprobs == (0.0,) and output.entropy == 0.0
    assert output.legal_mass is not None and 0.0 < output.legal_mass < 1.0


def test_a_seed_decides_whatever_the_neighbours_and_the_order(llm: LLM) -> None:
    texts = [" " + move for move in MOVES[:40]]
    prompts = [SYSTEM + " " + move for move in MOVES[100:130]]
    params = [ChoiceParams(temperature=3.0, seed=seed) for seed in range(30)]
    alone = [llm.choose([p], [texts], one)[0].text for p, one in zip(prompts, params, strict=True)]
    assert len(set(alone)) > 10
    together = llm.choose(prompts, [texts] * 30, params)
    assert [output.text for output in together] == alone
    turned = llm.choose(prompts[::-1], [texts[::-1]] * 30, params[::-1])
    assert [output.text for output in turned] == alone[::-1]


def test_requests_without_a_seed_differ_between_requests_not_between_runs(checkpoint: str) -> None:
    texts = [" " + move for move in MOVES[:40]]
    hot = ChoiceParams(temperature=5.0)
    runs = [
        [output.text for output in LLM(config(checkpoint)).choose([SYSTEM] * 20, [texts] * 20, hot)]
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 5


def test_draws_follow_the_tempered_probabilities() -> None:
    logs = np.log(np.array([0.5, 0.3, 0.15, 0.05]))
    keys = ["a", "b", "c", "d"]

    def shares(params: ChoiceParams) -> list[float]:
        drawn = [draw(logs, keys, params, seed) for seed in range(4000)]
        return [drawn.count(i) / len(drawn) for i in range(4)]

    assert shares(ChoiceParams()) == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.03)
    squared = np.array([0.25, 0.09, 0.0225, 0.0025])
    assert shares(ChoiceParams(temperature=0.5)) == pytest.approx(squared / squared.sum(), abs=0.03)
    assert shares(ChoiceParams(top_p=0.7)) == pytest.approx([0.625, 0.375, 0, 0], abs=0.03)
    assert shares(ChoiceParams(min_p=0.25)) == pytest.approx(
        [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0], abs=0.03
    )
    assert shares(ChoiceParams(temperature=0)) == [1.0, 0, 0, 0]


def test_ties_do_not_depend_on_the_order() -> None:
    logs = np.zeros(3)
    greedy = ChoiceParams(temperature=0)
    assert draw(logs, ["b", "a", "c"], greedy, 0) == 1
    assert draw(logs, ["c", "b", "a"], greedy, 0) == 2


def test_only_inner_nodes_get_rows() -> None:
    tree = ChoiceTree([(1, 2, 3), (1, 2, 4), (1, 2), (5,)])
    assert tree.num_inner == 3  # the root, (1,) and (1, 2)
    assert tree.height == 3
    assert [tree.stop_choice(node) for node in range(3)] == [-1, -1, 2]
    assert [tree.leaf_choice(edge) for edge in range(5)] == [-1, 3, -1, 0, 1]
    assert [tree.path(choice) for choice in range(4)] == [[1, 2], [1, 2], [1, 2], []]
    assert tree.ancestors().tolist() == [[True, False, False], [True, True, False], [True] * 3]
    edges = np.log(np.array([0.6, 0.3, 0.9, 0.2, 0.5]))  # 1, 5, then 2, then 3 and 4
    assert np.exp(tree.log_probabilities(edges)) == pytest.approx(
        [0.6 * 0.9 * 0.2, 0.6 * 0.9 * 0.5, 0.6 * 0.9 * 0.3, 0.3]
    )


def test_no_choices_are_refused(llm: LLM) -> None:
    for texts in ([], [""], [" e2e4", ""], [" e2e4", " e2e4"]):
        with pytest.raises(NoChoices):
            llm.choose([SYSTEM], [texts])
    assert llm.stats().num_running == 0


def test_texts_that_the_model_cannot_tell_apart_are_refused(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = llm.tokenizer.encode_choice(" e2e4")
    monkeypatch.setattr(llm.tokenizer, "encode_choice", lambda text: same)
    with pytest.raises(NoChoices, match="have the same tokens"):
        llm.choose([SYSTEM], [[" 車a1", " 馬a1"]])


def test_a_choice_that_merges_with_the_prompt_is_refused(llm: LLM) -> None:
    with pytest.raises(BoundaryMerge, match="begin choices with it"):
        llm.choose(["You are a ch"], [["ess player"]])
    assert llm.choose(["You are a ch"], [[" ess"]])[0].index == 0


def test_a_prompt_longer_than_the_context_is_refused(checkpoint: str) -> None:
    llm = LLM(config(checkpoint, max_model_len=64))
    room = 64 - len(llm.tokenizer.encode_choice(" e2e4"))
    for length, fits in ((room, True), (room + 1, False), (400, False)):
        prompt = [5] * length
        if fits:
            assert llm.choose([prompt], [[" e2e4"]])[0].index == 0
        else:
            with pytest.raises(PromptTooLong, match="limit of 64"):
                llm.choose([prompt], [[" e2e4"]])


@pytest.mark.parametrize("budget", [1, 3, 7, 50])
def test_a_tree_cut_into_steps_scores_the_same(checkpoint: str, llm: LLM, budget: int) -> None:
    texts = [" " + move for move in MOVES[::200]] + [" O-O", " O-O-O"]
    greedy = ChoiceParams(temperature=0)
    [whole] = llm.choose([SYSTEM], [texts], greedy)
    small = LLM(config(checkpoint, max_num_batched_tokens=budget))
    [cut] = small.choose([SYSTEM], [texts], greedy)
    assert cut.index == whole.index
    assert cut.logprobs == pytest.approx(whole.logprobs, abs=1e-4)
    assert small.stats().steps >= whole.metrics.scored_rows / budget


@pytest.mark.slow
def test_ten_thousand_move_sets_leave_no_memory_behind(checkpoint: str) -> None:
    import tracemalloc

    llm = LLM(config(checkpoint, kv_cache_memory=2_000_000))
    rng = random.Random(5)

    def play(rounds: int) -> None:
        for _ in range(rounds):
            sets = [[" " + move for move in rng.sample(MOVES, 2)] for _ in range(50)]
            llm.choose([SYSTEM] * 50, sets, ChoiceParams(temperature=0))

    play(20)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    play(180)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 4_000_000
    assert llm.stats().requests_finished == 10_000
