"""`kv_cache_dtype` "int8" and "fp8": keys and values in 8 bits, against the same engine with an unquantised cache."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from engine import LLM, ChoiceOutput, ChoiceParams, EngineConfig, SamplingParams
from engine.attention import attend, plan_attention
from engine.fixed_order import attend_in_order, plan_in_order
from engine.kv_pool import KVPool, QuantisedKVPool, bytes_per_vector, vectors_by_head
from tests.engine.conftest import MOVES, SYSTEM, config
from tests.engine.test_attention import DIM, HEADS, KV_HEADS, SLOTS, dense, spans_of

CPU = torch.device("cpu")
TURNS, GAMES = 10, 8
GREEDY = ChoiceParams(temperature=0)
INT8, FP8 = torch.int8, torch.float8_e4m3fn
both_kinds = pytest.mark.parametrize("kept", [INT8, FP8], ids=["int8", "fp8"])
both_names = pytest.mark.parametrize("kind", ["int8", "fp8"])


def new_pool(
    kept: torch.dtype, dtype: torch.dtype = torch.float32, dim: int = DIM
) -> QuantisedKVPool:
    return QuantisedKVPool(1, SLOTS, KV_HEADS, dim, dtype, CPU, kept)


def read(pool: KVPool, slots: torch.Tensor) -> torch.Tensor:
    """[N, 2, KV_HEADS, dim] of slots [N]."""
    vectors = torch.from_numpy(vectors_by_head(slots.numpy(), KV_HEADS))
    return pool.read_by_head(0, vectors).permute(2, 0, 1, 3)


def there_and_back(
    given: torch.Tensor, kept: torch.dtype, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """given [N, 2, KV_HEADS, dim] as the pool gives it back."""
    pool = new_pool(kept, dtype, given.shape[-1])
    slots = torch.randperm(SLOTS, generator=torch.Generator().manual_seed(1))[: len(given)]
    pool.write(0, slots, given.to(dtype))
    back = read(pool, slots)
    assert back.dtype == dtype
    return back.float()


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


def half_step(given: torch.Tensor, kept: torch.dtype) -> torch.Tensor:
    """What rounding may change of each element, with the rounding of the scale to bfloat16."""
    largest = given.abs().amax(dim=-1, keepdim=True)
    if kept == INT8:
        return 0.502 / 127 * largest
    below = 2.0 ** given.abs().clamp_min(1e-38).log2().floor()  # a scale just off changes the step
    return torch.maximum(2 / 16 * below, 1.01 * 2**-10 / 448 * largest)


@both_kinds
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_read_is_half_a_step_of_its_own_head_off_at_most(
    dtype: torch.dtype, kept: torch.dtype
) -> None:
    given = normal(300, 2, KV_HEADS, 64).to(dtype).float()
    given *= torch.logspace(-3, 2, 300 * 2 * KV_HEADS).view(300, 2, KV_HEADS, 1).to(dtype).float()
    given = given.to(dtype).float()
    off = (there_and_back(given, kept, dtype) - given).abs()
    rounding = torch.finfo(dtype).eps * given.abs().clamp_min(torch.finfo(dtype).tiny)
    assert bool((off <= half_step(given, kept) + rounding).all())
    # On average a vector's error is far below its size: 0.6% in int8, 2.5% with three bits of mantissa.
    assert (
        off.square().mean().sqrt() < (0.01 if kept == INT8 else 0.03) * given.square().mean().sqrt()
    )


@both_kinds
def test_zero_vectors_come_back_as_zeros(kept: torch.dtype) -> None:
    given = normal(20, 2, KV_HEADS, DIM)
    given[3] = 0.0
    given[5, 1, 0] = -0.0
    back = there_and_back(given, kept)
    assert bool((back[3] == 0).all()) and bool((back[5, 1, 0] == 0).all())
    assert bool(torch.isfinite(back).all())


@both_kinds
@pytest.mark.parametrize("size", [1e-42, 1e-30, 1e4, 1e30])
def test_an_outlier_spoils_no_other_head_or_token(size: float, kept: torch.dtype) -> None:
    given = normal(20, 2, KV_HEADS, DIM)
    spoilt = given.clone()
    spoilt[4, 0, 1, 3] *= size  # a key's element
    expected, back = there_and_back(given, kept), there_and_back(spoilt, kept)
    assert bool(torch.isfinite(back).all())
    assert back[4, 0, 1, 3] == pytest.approx(float(spoilt[4, 0, 1, 3]), rel=0.005, abs=0.01)
    back[4, 0, 1] = expected[4, 0, 1]
    assert torch.equal(back, expected)


@both_kinds
def test_all_of_a_vector_may_be_huge_or_tiny(kept: torch.dtype) -> None:
    for size in (1e-44, 1e-38, 1e-20, 1e20, 1e37):
        given = normal(20, 2, KV_HEADS, DIM).clamp(-3, 3) * size
        off = (there_and_back(given, kept) - given).abs()
        assert bool((off <= half_step(given, kept) + 1e-38).all())


@both_kinds
def test_values_that_are_no_numbers_do_not_come_back_as_numbers(kept: torch.dtype) -> None:
    given = normal(3, 2, KV_HEADS, DIM)
    given[0, 0, 0, 0], given[1, 1, 1, 1] = float("nan"), float("inf")
    back = there_and_back(given, kept)
    assert not bool(torch.isfinite(back[0, 0, 0]).any())
    assert not bool(torch.isfinite(back[1, 1, 1]).any())
    assert bool(torch.isfinite(back[2]).all())


@both_kinds
def test_attention_is_dense_attention_over_what_is_read(kept: torch.dtype) -> None:
    shapes = [(5, 90), (40, 300), (1, 300), (1, 5), (17, 190)]
    rows = sum(q for q, _ in shapes)
    spans = spans_of(shapes, 60, np.random.default_rng(0))
    queries, pool = normal(rows, HEADS, DIM), new_pool(kept)
    pool.write(0, torch.arange(SLOTS), normal(SLOTS, 2, KV_HEADS, DIM))
    expected = dense(queries, read(pool, torch.arange(SLOTS)), spans)
    plan = plan_attention(spans, KV_HEADS, CPU, torch.float32)
    assert torch.allclose(attend(queries, pool, 0, plan, DIM**-0.5), expected, atol=1e-5)
    ordered = plan_in_order(spans, rows, KV_HEADS, CPU, torch.float32)
    assert torch.allclose(
        attend_in_order(queries, pool, 0, ordered, DIM**-0.5), expected, atol=1e-5
    )


def test_the_same_memory_holds_nearly_twice_the_tokens_of_bfloat16(checkpoint: str) -> None:
    slots = {}
    for dtype, kind in (
        ("bfloat16", "auto"),
        ("bfloat16", "int8"),
        ("float32", "int8"),
        ("float32", "fp8"),
    ):
        llm = LLM(config(checkpoint, dtype=dtype, kv_cache_dtype=kind, kv_cache_memory=160_000))
        stats, pool = llm.stats(), llm._core.runner.pool
        slots[dtype, kind] = stats.kv_pages_total
        assert stats.kv_cache_dtype == {"auto": dtype, "fp8": "float8_e4m3fn"}.get(kind, kind)
        kept = [t for t in vars(pool).values() if isinstance(t, torch.Tensor)]
        assert sum(t.nbytes for t in kept) <= 160_000
        assert isinstance(pool, QuantisedKVPool) == (kind != "auto")
    # 2 layers x 2 heads x (key, value) of 8 elements: 128 bytes, or 64 and 16 of scales.
    assert slots == {
        ("bfloat16", "auto"): 1250,
        ("bfloat16", "int8"): 2000,
        ("float32", "int8"): 2000,
        ("float32", "fp8"): 2000,
    }
    for dim, least in ((64, 1.9), (128, 1.95)):  # those of real models
        ratio = bytes_per_vector(dim, torch.bfloat16) / bytes_per_vector(dim, torch.int8)
        assert least < ratio < 2.0


def positions() -> list[list[tuple[str, list[str]]]]:
    """For each turn, the prompts and choices of some games; a prompt begins with that of the turn before."""
    rng = random.Random(5)
    prompts = [SYSTEM] * GAMES
    turns = []
    for _ in range(TURNS):
        turns.append([(p, [" " + move for move in rng.sample(MOVES, 25)]) for p in prompts])
        prompts = [p + rng.choice(texts) + " " + rng.choice(MOVES) for p, texts in turns[-1]]
    return turns


def ask(llm: LLM, turn: list[tuple[str, list[str]]], **params: Any) -> list[ChoiceOutput]:
    return llm.choose(
        [prompt for prompt, _ in turn], [texts for _, texts in turn], replace(GREEDY, **params)
    )


def differences(some: list[ChoiceOutput], others: list[ChoiceOutput]) -> np.ndarray[Any, Any]:
    return np.concatenate(
        [np.abs(np.subtract(a.logprobs, b.logprobs)) for a, b in zip(some, others, strict=True)]
    )


# What rounding keys and values to 8 bits may change in a log probability of a move, on average; and at most.
MEAN, MOST = {"int8": 0.1, "fp8": 0.3}, {"int8": 0.5, "fp8": 1.5}


@pytest.mark.parametrize(
    ("dtype", "kind"), [("float32", "int8"), ("bfloat16", "int8"), ("float32", "fp8")]
)
def test_quantised_cache_is_not_garbage_from_the_tenth_turn_on_with_prefix_hits(
    checkpoint: str, dtype: str, kind: str
) -> None:
    plain = LLM(config(checkpoint, dtype=dtype))
    quantised = LLM(config(checkpoint, dtype=dtype, kv_cache_dtype=kind))
    known, agreed = [0] * GAMES, 0
    for turn in positions():
        expected, outputs = ask(plain, turn), ask(quantised, turn)
        for output, length in zip(outputs, known, strict=True):
            assert output.metrics.cached_tokens >= length
        known = [output.metrics.prompt_tokens - 1 for output in outputs]
        off = differences(expected, outputs)
        assert off.mean() < MEAN[kind] and off.max() < MOST[kind]
        agreed += sum(a.index == b.index for a, b in zip(expected, outputs, strict=True))
    assert agreed >= (0.9 if kind == "int8" else 0.8) * TURNS * GAMES

    cold = LLM(config(checkpoint, dtype=dtype, kv_cache_dtype=kind, enable_prefix_caching=False))
    computed = ask(cold, turn)
    assert all(output.metrics.cached_tokens == 0 for output in computed)
    # The same numbers in another order of sums, by which an element may fall to the next step.
    assert differences(computed, outputs).max() < (0.002 if dtype == "float32" else 0.1)


@both_names
def test_bits_with_hits_are_those_of_a_cold_cache_when_deterministic(
    checkpoint: str, kind: str
) -> None:
    settings = {"dtype": "bfloat16", "kv_cache_dtype": kind, "deterministic": True}
    warm = LLM(config(checkpoint, **settings))
    for turn in positions():
        outputs = ask(warm, turn)
    assert all(output.metrics.cached_tokens > 0 for output in outputs)
    for output, one in zip(outputs, turn, strict=True):
        [alone] = ask(LLM(config(checkpoint, **settings, enable_prefix_caching=False)), [one])
        assert (alone.logprobs, alone.legal_mass) == (output.logprobs, output.legal_mass)


def test_a_choice_in_a_tree_is_as_probable_as_alone(checkpoint: str) -> None:
    llm = LLM(config(checkpoint, kv_cache_dtype="int8"))
    prompt, texts = positions()[-1][0]
    [together] = ask(llm, [(prompt, texts)])
    assert together.logprobs is not None and together.legal_mass is not None
    alone = [output.legal_mass for output in ask(llm, [(prompt, [text]) for text in texts])]
    assert np.exp(together.logprobs) * together.legal_mass == pytest.approx(alone, rel=0.002)


def test_masked_choices_are_those_of_a_cold_cache(checkpoint: str) -> None:
    warm = LLM(config(checkpoint, kv_cache_dtype="int8"))
    for turn in positions():
        outputs = ask(warm, turn, scoring="masked")
    cold = LLM(config(checkpoint, kv_cache_dtype="int8", enable_prefix_caching=False))
    expected = ask(cold, turn, scoring="masked")
    assert [o.index for o in outputs] == [o.index for o in expected]
    assert [o.logprob for o in outputs] == pytest.approx([o.logprob for o in expected], abs=0.002)


def test_texts_and_choices_are_the_same_under_preemption(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True)
    prompts = [f"{SYSTEM} {number}" for number in range(8)]
    settings = {"kv_cache_dtype": "int8", "deterministic": True}
    roomy = LLM(config(checkpoint, **settings))
    expected = [output.token_ids for output in roomy.generate(prompts, params)]
    monkeypatch.setattr("engine.scheduler._GROWTH", 0)  # admit what is bound to outgrow the memory
    per_token = roomy._core.runner.decoder.config.kv_bytes_per_token(torch.int8)
    tight = LLM(config(checkpoint, **settings, kv_cache_memory=110 * per_token))
    assert [output.token_ids for output in tight.generate(prompts, params)] == expected
    assert tight.stats().preemptions > 0
    turn = positions()[1]
    assert differences(ask(tight, turn), ask(roomy, turn)).max() == 0.0


def test_other_number_formats_are_refused_by_name() -> None:
    for name in ("int4", "fp8_e5m2"):
        with pytest.raises(ValueError, match=rf"is '{name}'; use auto, int8 or fp8\.$"):
            EngineConfig("m", kv_cache_dtype=name)  # type: ignore[arg-type]
