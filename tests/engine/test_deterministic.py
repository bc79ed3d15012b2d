"""`deterministic=True`: the same bits alone, in any batch, cached or not, cut into steps or not, preempted or not."""

import random
from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch

from engine import LLM, ChoiceOutput, ChoiceParams, ModelLoadError, SamplingParams
from engine.attention import Span
from engine.fixed_order import attend_in_order, plan_in_order
from engine.kv_pool import KVPool
from engine.model import Decoder
from engine.scheduler import Scheduler
from tests.engine.conftest import MOVES, SYSTEM, config
from tests.engine.test_attention import DIM, HEADS, KV_HEADS, SLOTS, dense, spans_of

LONG = " a9a10 and so on, move by move, until the choice has more than two blocks of tokens"
COUNT = 8
BITS = ["float32", "bfloat16"]


@cache
def requests(count: int) -> list[tuple[str, list[str]]]:
    """Prompts of 1 to 250 tokens and choices of all sizes, some beginning others, some longer than 32 tokens."""
    rng = random.Random(3)
    result = []
    for number in range(count):
        played = "".join(" " + rng.choice(MOVES) for _ in range(rng.randint(1, 20)))
        texts = [" " + move for move in rng.sample(MOVES, rng.randint(1, 30))]
        texts += [" O-O", " O-O-O", " a9a1", " a9a10"]
        if number % 4 == 0:
            texts += [LONG, LONG[:-1] + "Z"]
        result.append((SYSTEM * rng.choice([0, 1, 1, 2]) + played, texts))
    return result


def choice_params(count: int) -> list[ChoiceParams]:
    return [
        ChoiceParams(scoring=scoring, temperature=2.0, seed=seed)
        for scoring in ("likelihood", "masked")
        for seed in range(count)
    ]


def text_params(count: int) -> list[SamplingParams]:
    return [
        SamplingParams(max_tokens=40, temperature=1.5, top_p=0.9, seed=seed, ignore_eos=True)
        for seed in range(count)
    ]


def bits(outputs: Sequence[Any]) -> list[Any]:
    """All that the model's numbers decide; floats are compared as they are."""
    return [
        (o.index, o.logprob, o.logprobs, o.legal_mass, o.entropy)
        if isinstance(o, ChoiceOutput)
        else o.token_ids
        for o in outputs
    ]


def answers(llm: LLM, count: int) -> list[Any]:
    """All requests at once: exact, masked, and as prompts of texts."""
    prompts = [prompt for prompt, _ in requests(count)]
    choices = [texts for _, texts in requests(count)]
    chosen = llm.choose(prompts * 2, choices * 2, choice_params(count))
    return bits(chosen) + bits(llm.generate(prompts, text_params(count)))


def answers_alone(llm: LLM, count: int) -> list[Any]:
    pairs = requests(count)
    chosen = [
        llm.choose([prompt], [texts], params)[0]
        for (prompt, texts), params in zip(pairs * 2, choice_params(count), strict=True)
    ]
    written = [
        llm.generate([prompt], params)[0]
        for (prompt, _), params in zip(pairs, text_params(count), strict=True)
    ]
    return bits(chosen) + bits(written)


def engine(checkpoint: str, dtype: str, **changes: Any) -> LLM:
    return LLM(config(checkpoint, dtype=dtype, deterministic=True, **changes))


@pytest.fixture(scope="module", params=BITS)
def alone(request: pytest.FixtureRequest, checkpoint: str) -> tuple[str, list[Any]]:
    """The number format, and each request's bits when it runs alone and nothing is kept."""
    llm = engine(checkpoint, request.param, enable_prefix_caching=False)
    return request.param, answers_alone(llm, COUNT)


@pytest.mark.parametrize("batch", [8, 64])
@pytest.mark.parametrize("cached", [True, False])
def test_bits_do_not_depend_on_the_batch_or_the_cache(
    checkpoint: str, alone: tuple[str, list[Any]], batch: int, cached: bool
) -> None:
    dtype, expected = alone
    llm = engine(checkpoint, dtype, max_num_seqs=batch, enable_prefix_caching=cached)
    assert answers(llm, COUNT) == expected
    assert answers(llm, COUNT) == expected  # warm, if there is a cache


def test_bits_of_a_request_alone_do_not_depend_on_a_warm_cache(
    checkpoint: str, alone: tuple[str, list[Any]]
) -> None:
    dtype, expected = alone
    assert answers_alone(engine(checkpoint, dtype), COUNT) == expected


@pytest.mark.parametrize("budget", [7, 50])
def test_bits_do_not_depend_on_where_prompts_and_trees_are_cut(
    checkpoint: str, alone: tuple[str, list[Any]], budget: int
) -> None:
    dtype, expected = alone
    assert answers(engine(checkpoint, dtype, max_num_batched_tokens=budget), COUNT) == expected


@pytest.mark.parametrize("cached", [True, False])
def test_bits_do_not_depend_on_preemption(
    checkpoint: str, alone: tuple[str, list[Any]], cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtype, expected = alone
    schedule, steps = Scheduler.schedule, count()

    def preempts_the_last(self: Scheduler) -> Any:
        if next(steps) % 3 == 2 and len(self.running) > 1:
            self.preempt(self.running[-1])
        return schedule(self)

    monkeypatch.setattr(Scheduler, "schedule", preempts_the_last)
    llm = engine(checkpoint, dtype, enable_prefix_caching=cached, max_num_batched_tokens=100)
    assert answers(llm, COUNT) == expected
    assert llm.stats().preemptions > 5


def test_bits_do_not_depend_on_the_number_of_rows_with_two_threads(
    checkpoint: str, alone: tuple[str, list[Any]]
) -> None:
    dtype, expected = alone
    try:
        assert answers(engine(checkpoint, dtype, num_threads=2), COUNT) == expected
    finally:
        torch.set_num_threads(1)


def test_a_seed_is_not_ignored_when_a_neighbour_has_none(checkpoint: str) -> None:
    """With or without `deterministic`: noise is a function of the seed and the position or choice."""
    texts = [" " + move for move in MOVES[:40]]
    for changes in ({}, {"deterministic": True}):
        llm = LLM(config(checkpoint, **changes))
        [chosen] = llm.choose([SYSTEM], [texts], ChoiceParams(temperature=5.0, seed=9))
        [written] = llm.generate([SYSTEM], SamplingParams(max_tokens=16, seed=9, ignore_eos=True))
        for size in (2, 8, 64):
            mixed = [ChoiceParams(temperature=5.0)] * size
            mixed[size // 2] = ChoiceParams(temperature=5.0, seed=9)
            outputs = llm.choose([SYSTEM] * size, [texts] * size, mixed)
            assert outputs[size // 2].text == chosen.text
            noisy = [SamplingParams(max_tokens=16, ignore_eos=True)] * size
            noisy[-1] = SamplingParams(max_tokens=16, seed=9, ignore_eos=True)
            assert llm.generate([SYSTEM] * size, noisy)[-1].token_ids == written.token_ids


def test_a_device_that_cannot_keep_it_is_refused(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = Decoder.forward

    def depends_on_rows(self: Decoder, batch: Any, pool: KVPool) -> torch.Tensor:
        return forward(self, batch, pool) * (1 + 1e-6 * len(batch.token_ids))

    monkeypatch.setattr(Decoder, "forward", depends_on_rows)
    with pytest.raises(ModelLoadError, match="deterministic to False"):
        engine(checkpoint, "float32")


def test_fixed_order_equals_dense_attention() -> None:
    shapes = [(40, 300), (1, 300), (1, 5), (17, 190), (3, 3), (30, 480)]
    for shared in (0, 5, 190):
        spans = spans_of(shapes, shared, np.random.default_rng(0))
        generator = torch.Generator().manual_seed(1)
        rows = sum(q for q, _ in shapes)
        queries = torch.randn((rows, HEADS, DIM), generator=generator)
        kept = torch.randn((SLOTS, 2, KV_HEADS, DIM), generator=generator)
        pool = KVPool(1, SLOTS, KV_HEADS, DIM, torch.float32, torch.device("cpu"))
        pool.write(0, torch.arange(SLOTS), kept)
        plan = plan_in_order(spans, rows, KV_HEADS, torch.device("cpu"), torch.float32)
        out = attend_in_order(queries, pool, 0, plan, DIM**-0.5)
        assert torch.allclose(out, dense(queries, kept, spans), atol=1e-5)


def test_the_bits_of_a_row_do_not_depend_on_where_its_keys_lie() -> None:
    """A node deep in a tree, whose ancestors stand among its siblings, and the same tokens in a prompt."""
    generator = torch.Generator().manual_seed(2)
    kept = torch.randn((SLOTS, 2, KV_HEADS, DIM), generator=generator).bfloat16()
    pool = KVPool(1, SLOTS, KV_HEADS, DIM, torch.bfloat16, torch.device("cpu"))
    pool.write(0, torch.arange(SLOTS), kept)
    query = torch.randn((1, HEADS, DIM), generator=generator).bfloat16()
    rng = np.random.default_rng(3)
    for length in (40, 127, 250):
        for depth in (1, 3, 15, 40):
            keys = rng.permutation(SLOTS)[: length + 2 * depth]
            mask = np.ones((1, len(keys)), dtype=np.bool_)
            mask[0, length::2] = False
            in_tree = Span(0, keys, mask)
            path = keys[mask[0]]
            in_prompt = Span(0, path, np.ones((1, len(path)), dtype=np.bool_))
            outs = []
            for span in (in_tree, in_prompt):
                plan = plan_in_order([span], 16, KV_HEADS, torch.device("cpu"), torch.bfloat16)
                outs.append(attend_in_order(query, pool, 0, plan, 1.0)[0])
            assert torch.equal(outs[0], outs[1])
