"""Norm, rotary embedding and cache write in one, under Triton's interpreter, against the torch twin.

Tolerances: float32 1e-5; bfloat16 one step (2^-7 of the larger of a pair); what a cache of 8 bits keeps may be one
step of it off where the numbers before rounding differ. Without norms the bits are the same.
"""

from dataclasses import dataclass

import pytest
import torch

from engine.kernels.rope import place, place_twin

SLOTS, MAX_LEN, EPS = 24, 64, 1e-6


@dataclass
class Case:
    heads: int
    kv_heads: int
    size: int
    rows: int
    dtype: torch.dtype = torch.float32
    kept: torch.dtype | None = None
    pairs: int | None = None  # None: half of the size, 0: no rotary embedding
    norms: torch.dtype | None = None

    def inputs(self) -> dict[str, object]:
        generator = torch.Generator().manual_seed(self.heads + self.size + self.rows)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator)

        pairs = self.size // 2 if self.pairs is None else self.pairs
        angles = torch.outer(torch.arange(MAX_LEN), 1e4 ** -(torch.arange(pairs) / max(pairs, 1)))
        cos, sin = angles.cos(), angles.sin()
        rest = torch.zeros(MAX_LEN, self.size - 2 * pairs)
        table = torch.cat([cos, cos, rest + 1], dim=1), torch.cat([-sin, sin, rest], dim=1)
        weights = None
        if self.norms is not None:
            weights = (1 + 0.3 * normal(self.heads + self.kv_heads, self.size)).to(self.norms)
        return {
            "qkv": normal(self.rows, self.heads + 2 * self.kv_heads, self.size).to(self.dtype),
            "positions": torch.randint(MAX_LEN, (self.rows,), generator=generator),
            "slots": torch.randperm(SLOTS, generator=generator)[: self.rows],
            "table": tuple(part.to(self.dtype) for part in table) if pairs else None,
            "pairs": pairs,
            "weights": weights,
            "eps": EPS,
        }

    def cache(self) -> dict[str, torch.Tensor | None]:
        shape = SLOTS, 2, self.kv_heads, self.size
        if self.kept is None:
            return {"data": torch.zeros(shape, dtype=self.dtype), "scales": None}
        scales = torch.zeros((*shape[:-1], 1), dtype=torch.bfloat16)
        return {"data": torch.zeros(shape, dtype=torch.int8).view(self.kept), "scales": scales}


def read(cache: dict[str, torch.Tensor | None]) -> torch.Tensor:
    data, scales = cache["data"], cache["scales"]
    assert data is not None
    return data.float() if scales is None else data.float() * scales.float()


CASES = [
    Case(1, 1, 64, 1),
    Case(9, 3, 64, 5),
    Case(9, 3, 64, 5, torch.bfloat16),
    Case(9, 3, 64, 5, torch.bfloat16, torch.int8),
    Case(9, 3, 64, 5, torch.float16, torch.float8_e4m3fn),
    Case(4, 4, 96, 3, pairs=24),  # partial rotary embedding, and a size that is no power of two
    Case(4, 2, 80, 3, torch.bfloat16, torch.int8, pairs=0),
    Case(16, 8, 128, 2, torch.float32, None, None, torch.float32),
    Case(16, 8, 128, 2, torch.bfloat16, None, None, torch.bfloat16),
    Case(8, 4, 256, 2, torch.bfloat16, torch.float8_e4m3fn, None, torch.float32),
    Case(8, 4, 256, 2, torch.bfloat16, torch.int8, 32, torch.float32),
    Case(64, 8, 64, 2),
]


SWEEP = [
    Case(heads, max(heads // group, 1), size, 2, dtype, kept, None, norms)
    for heads in (1, 14, 64)
    for group in (1, 7, 8)
    for size in (64, 96, 256)
    for dtype in (torch.float32, torch.bfloat16)
    for kept in (None, torch.int8, torch.float8_e4m3fn)
    for norms in (None, dtype)
    if heads % max(heads // group, 1) == 0 and (heads < 64 or group > 1)
]


@pytest.mark.slow
def test_queries_and_cache_are_those_of_torch_over_many_shapes() -> None:
    for case in SWEEP:
        test_queries_and_cache_are_those_of_torch(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_queries_and_cache_are_those_of_torch(case: Case) -> None:
    inputs, cache, expected_cache = case.inputs(), case.cache(), case.cache()
    queries = place(**inputs, **cache)  # type: ignore[arg-type]
    expected = place_twin(**inputs, **expected_cache)  # type: ignore[arg-type]
    assert queries.dtype == case.dtype and queries.shape == expected.shape
    step = 1e-5 if case.dtype == torch.float32 else 2**-7
    largest = float(expected.float().abs().max())
    assert torch.allclose(queries.float(), expected.float(), rtol=step, atol=step)
    kept, wanted = read(cache), read(expected_cache)
    # fp8 has 3 bits of mantissa.
    off = {None: step, torch.int8: 1 / 127, torch.float8_e4m3fn: 1 / 8}[case.kept]
    assert float((kept - wanted).abs().max()) <= off * max(largest, float(wanted.abs().max()))
    assert float((kept - wanted).abs().mean()) <= 0.02 * off * float(wanted.abs().mean())
    if case.norms is None and case.dtype == torch.bfloat16:
        assert torch.equal(queries, expected) and torch.equal(kept, wanted)


def test_what_is_behind_the_turned_dimensions_and_the_values_stay_as_they_are() -> None:
    case = Case(4, 2, 64, 3, pairs=8)
    inputs, cache = case.inputs(), case.cache()
    queries = place(**inputs, **cache)  # type: ignore[arg-type]
    qkv, slots = inputs["qkv"], inputs["slots"]
    assert isinstance(qkv, torch.Tensor) and cache["data"] is not None
    assert torch.equal(queries[..., 16:], qkv[:, :4, 16:])
    assert torch.equal(cache["data"][slots, 1], qkv[:, 6:])  # type: ignore[index]


@pytest.mark.parametrize("kept", [None, torch.int8, torch.float8_e4m3fn])
def test_a_row_has_the_same_bits_alone_and_in_a_batch(kept: torch.dtype | None) -> None:
    case = Case(8, 2, 64, 6, torch.bfloat16, kept, None, torch.float32)
    inputs, cache, alone = case.inputs(), case.cache(), case.cache()
    queries = place(**inputs, **cache)  # type: ignore[arg-type]
    one = {name: inputs[name][3:4] for name in ("qkv", "positions", "slots")}  # type: ignore[index]
    assert torch.equal(place(**(inputs | one), **alone)[0], queries[3])  # type: ignore[arg-type]
    assert torch.equal(read(cache)[one["slots"]], read(alone)[one["slots"]])


def test_other_slots_are_left_alone() -> None:
    case = Case(4, 2, 64, 3)
    cache = case.cache()
    assert cache["data"] is not None
    cache["data"].fill_(7)
    inputs = case.inputs()
    place(**inputs, **cache)  # type: ignore[arg-type]
    others = sorted(set(range(SLOTS)) - set(inputs["slots"].tolist()))  # type: ignore[attr-defined]
    assert bool((cache["data"][others] == 7).all())
