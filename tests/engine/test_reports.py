"""What users of other inference engines reported, and where it is tested here. The reports in short:

- output changed after a stop string, or by a cache hit: test_generate (stop string, cold and cached)
- a hash collision read another's keys: test_sharing (hash collision)
- retried look-ups or recomputing counted as hits: test_sharing (counts once, is no hit)
- a seed ignored beside unseeded requests, outputs that depend on the batch: test_generate, test_deterministic
- shared-prefix attention corrupted outputs: test_attention (dense, common prefix)
- cold requests starved, a long prompt hid short ones, a blocked head: test_sharing, test_scheduler
- a preempted request lost its place, much was recomputed: test_sharing (order, hardly anything twice)
- abort leaked pages: test_sharing (five states), test_async_llm
- sizes counted twice: test_scheduler_fuzz (the pool balances after every step)
- unbounded queues: test_async_llm (queue full), test_sharing
- a wholly cached prompt produced an empty query: here
- choices: a greedy walk is not the likeliest, wrong prefix, forced tokens, one the prefix of another: here, test_choose
- unbounded grammar cache: test_choose (ten thousand move sets)
- a quantised cache was garbage from the tenth turn on: test_kv_int8
- over-long requests dropped without an answer: test_choose, test_async_llm (refused)
"""

import math
import random
from typing import Any

import pytest

from engine import LLM, ChoiceParams, SamplingParams, Tokenizer
from tests.engine.conftest import MOVES, SYSTEM, config
from tests.engine.test_choose import brute_force


@pytest.fixture(scope="module")
def llm(checkpoint: str) -> LLM:
    return LLM(config(checkpoint))


def test_a_greedy_walk_is_not_always_the_likeliest_choice_and_likelihood_finds_it(
    llm: LLM, reference: Any, tokenizer: Tokenizer
) -> None:
    rng = random.Random(3)
    worse = 0
    for _ in range(40):
        prompt = SYSTEM + "".join(" " + rng.choice(MOVES) for _ in range(4))
        texts = [" " + move for move in rng.sample(MOVES, 30)]
        expected = brute_force(
            reference, tokenizer.encode(prompt), [tokenizer.encode_choice(t) for t in texts]
        )
        likelihood, masked = (
            llm.choose([prompt], [texts], ChoiceParams(scoring=scoring, temperature=0))[0]
            for scoring in ("likelihood", "masked")
        )
        assert expected[likelihood.index] == pytest.approx(max(expected), abs=1e-4)
        worse += expected[masked.index] < max(expected) - 1e-3
    assert worse, "no position of this test tells the two apart"


@pytest.mark.parametrize("scoring", ["likelihood", "masked"])
def test_forced_tokens_do_not_shift_later_probabilities(
    llm: LLM, reference: Any, tokenizer: Tokenizer, scoring: Any
) -> None:
    """Choices that share everything but their last token, alone and beside others."""
    texts = [f" e2e4e5{end}" for end in "12345678"]
    ids = [tokenizer.encode_choice(text) for text in texts]
    assert len({i[:-1] for i in ids}) == 1
    expected = brute_force(reference, tokenizer.encode(SYSTEM), ids)
    mass = sum(math.exp(value) for value in expected)
    [output] = llm.choose([SYSTEM], [texts], ChoiceParams(scoring=scoring, temperature=0))
    assert output.index == max(range(8), key=expected.__getitem__)
    assert output.logprob == pytest.approx(expected[output.index] - math.log(mass), abs=1e-4)


def test_two_hundred_choices_equal_brute_force(
    llm: LLM, reference: Any, tokenizer: Tokenizer
) -> None:
    texts = [" " + move for move in random.Random(5).sample(MOVES, 200)]
    expected = brute_force(
        reference, tokenizer.encode(SYSTEM), [tokenizer.encode_choice(text) for text in texts]
    )
    mass = sum(math.exp(value) for value in expected)
    [output] = llm.choose([SYSTEM], [texts])
    assert output.logprobs is not None
    assert output.logprobs == pytest.approx([v - math.log(mass) for v in expected], abs=1e-4)


def test_a_ply_computes_at_most_one_token_seen_before(checkpoint: str) -> None:
    llm = LLM(config(checkpoint))
    rng = random.Random(6)
    ids = list(llm.tokenizer.encode(SYSTEM))
    llm.choose([ids], [[" e2e4", " d2d4"]])
    known = len(ids)
    for _ in range(12):
        texts = [" " + move for move in rng.sample(MOVES, 12)]
        before = llm.stats().computed_tokens
        [output] = llm.choose([ids], [texts], ChoiceParams(seed=rng.randrange(1 << 30)))
        scored = output.metrics.scored_rows
        again = llm.stats().computed_tokens - before - (scored - 1) - (len(ids) - known)
        assert again <= 1
        # The chosen path was committed: only the choice's last token and the reply are new to the next ply.
        known = len(ids) + len(llm.tokenizer.encode_choice(output.text)) - 1
        ids += llm.tokenizer.encode_choice(output.text)
        ids += llm.tokenizer.encode_choice(" " + rng.choice(MOVES))


@pytest.mark.parametrize("length", [15, 16, 17, 31, 32, 33, 63, 64, 65])
@pytest.mark.parametrize("caching", [True, False])
def test_a_wholly_cached_prompt_of_any_length_is_answered_like_a_cold_one(
    checkpoint: str, length: int, caching: bool
) -> None:
    llm = LLM(config(checkpoint, enable_prefix_caching=caching))
    prompt = (llm.tokenizer.encode(SYSTEM) * 4)[:length]
    greedy = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)
    [cold] = llm.generate([prompt], greedy)
    [warm] = llm.generate([prompt], greedy)
    assert warm.token_ids == cold.token_ids
    assert warm.metrics.cached_tokens == (length - 1 if caching else 0)
    tight = LLM(config(checkpoint, kv_cache_memory=llm_memory(llm, length + 20)))
    pressed = tight.generate([prompt] * 3, greedy)
    assert {out.token_ids for out in pressed} == {cold.token_ids}


def llm_memory(llm: LLM, slots: int) -> int:
    """Bytes of a cache with so many slots."""
    decoder = llm._core.runner.decoder
    return slots * decoder.config.kv_bytes_per_token(decoder.dtype)
