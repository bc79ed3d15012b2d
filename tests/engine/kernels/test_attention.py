"""Attention in kernels against its definition in float64, over prefixes, trees, windows, caps and 8-bit caches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.attention_backend import Part, make_attention
from engine.choice import ChoiceTree
from engine.kernels.attention import attend_definition
from engine.kv_pool import KVPool, QuantisedKVPool
from engine.model_config import ModelConfig

CPU = torch.device("cpu")
TREE = ChoiceTree([(1, 2, 3), (1, 2, 4), (1, 5, 6), (7, 8), (9, 3, 3, 1), (2, 2)])
CHAIN = ChoiceTree([(1, 2, 3, 4, 5)])


def model(heads: int, kv_heads: int, dim: int, window: int | None = None) -> ModelConfig:
    return ModelConfig.from_dict(
        {
            "architectures": ["MistralForCausalLM"],
            "vocab_size": 100,
            "hidden_size": heads * dim,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": dim,
            "sliding_window": window,
        }
    )


Request = tuple[int, int, ChoiceTree | None]


def parts_of(requests: Sequence[Request], common: int, num_slots: int) -> list[Part]:
    """Requests of (tokens, of them rows of this step, tree), all but the last with `common` first keys."""
    free = np.random.default_rng(3).permutation(num_slots)
    used, first, parts = common, 0, []
    for index, (tokens, rows, tree) in enumerate(requests):
        total = tokens + (tree.num_inner - 1 if tree else 0)
        slots = free[used : used + total].copy()
        used += total
        if index < len(requests) - 1:
            slots[: min(common, tokens - rows)] = free[: min(common, tokens - rows)]
        for low in range(tokens - rows, total, 256):
            parts.append(Part(first, low, slots[: min(low + 256, total)], tokens, tree))
            first += parts[-1].end - low
    return parts


def defined(
    queries: Tensor, pool: KVPool, parts: Sequence[Part], cap: float | None, window: int | None
) -> Tensor:
    return attend_definition(queries, pool, 0, parts, queries.shape[2] ** -0.5, cap, window)


def filled(num_slots: int, kv_heads: int, dim: int, dtype: torch.dtype, kept: Any = None) -> KVPool:
    sizes = (1, num_slots, kv_heads, dim, dtype, CPU)
    pool = KVPool(*sizes) if kept is None else QuantisedKVPool(*sizes, kept)
    torch.manual_seed(5)
    pool.write(0, torch.arange(num_slots), torch.randn(num_slots, 2, kv_heads, dim).to(dtype))
    return pool


def attend(
    config: ModelConfig,
    pool: KVPool,
    parts: Sequence[Part],
    queries: Tensor,
    *,
    cap: float | None = None,
    in_order: bool = False,
    padded: bool = False,
) -> Tensor:
    backend: Any = make_attention("triton", config, CPU, queries.dtype, in_order)
    backend._padded = padded
    full, windowed = backend.plan(parts, len(queries), torch.from_numpy)
    plan = full if config.sliding_window is None else windowed
    return plan.attend(queries, pool, 0, config.head_dim**-0.5, cap)  # type: ignore[no-any-return]


MIXED: list[Request] = [(40, 1, TREE), (37, 1, None), (36, 9, None), (1, 1, None)]
LOADS: dict[str, tuple[list[Request], int]] = {
    "mixed": (MIXED, 32),
    "long": ([(530, 1, CHAIN), (600, 3, None), (290, 2, TREE)], 270),
    "many": ([(280, 1, None)] * 9 + [(5, 5, None)], 270),
    "alone": ([(1, 1, None)], 0),
}


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_rows_see_their_keys_wherever_these_are(load: str, in_order: bool, padded: bool) -> None:
    requests, common = LOADS[load]
    parts = parts_of(requests, common, 4000)
    config, pool = model(4, 2, 16), filled(4000, 2, 16, torch.float32)
    rows = sum(part.end - part.start for part in parts)
    queries = torch.randn(rows, 4, 16)
    out = attend(config, pool, parts, queries, in_order=in_order, padded=padded)
    torch.testing.assert_close(
        out.double(), defined(queries, pool, parts, None, None), atol=2e-6, rtol=2e-5
    )


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"),
    [
        (1, 1, 64),
        (8, 1, 64),
        (9, 3, 64),
        (6, 3, 32),
        (14, 2, 64),
        (20, 5, 64),
        (10, 2, 80),
        (12, 2, 64),
        (64, 8, 64),
        (4, 4, 96),
        (4, 2, 128),
        (4, 2, 256),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_heads_of_all_sizes_and_groups(
    heads: int, kv_heads: int, dim: int, dtype: torch.dtype
) -> None:
    parts = parts_of(MIXED, 32, 300)
    pool = filled(300, kv_heads, dim, dtype)
    rows = sum(part.end - part.start for part in parts)
    queries = torch.randn(rows, heads, dim).to(dtype)
    out = attend(model(heads, kv_heads, dim), pool, parts, queries)
    right = defined(queries, pool, parts, None, None)
    # bfloat16: weights and results are rounded, by 2^-9 each.
    bound = 2e-6 if dtype == torch.float32 else 1.5e-2
    torch.testing.assert_close(out.double(), right, atol=bound, rtol=bound)


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("window", [1, 7, 20, 200])
def test_windows_count_positions_and_not_rows(window: int, in_order: bool) -> None:
    requests, common = LOADS["long"]
    for requests, common in (LOADS["long"], LOADS["mixed"]):
        parts = parts_of(requests, common, 4000)
        pool = filled(4000, 2, 16, torch.float32)
        rows = sum(part.end - part.start for part in parts)
        queries = torch.randn(rows, 4, 16)
        out = attend(model(4, 2, 16, window), pool, parts, queries, in_order=in_order, cap=5.0)
        right = defined(queries, pool, parts, 5.0, window)
        torch.testing.assert_close(out.double(), right, atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kept", [torch.int8, torch.float8_e4m3fn])
def test_caches_of_eight_bits_are_read_as_they_are(kept: torch.dtype, dtype: torch.dtype) -> None:
    parts = parts_of(MIXED, 32, 300)
    pool = filled(300, 2, 32, dtype, kept)
    rows = sum(part.end - part.start for part in parts)
    queries = torch.randn(rows, 4, 32).to(dtype)
    out = attend(model(4, 2, 32), pool, parts, queries)
    right = defined(queries, pool, parts, None, None)
    bound = 5e-6 if dtype == torch.float32 else 1.5e-2
    torch.testing.assert_close(out.double(), right, atol=bound, rtol=4 * bound)


def test_in_order_a_row_has_the_same_bits_in_every_company() -> None:
    config, pool = model(4, 2, 16), filled(2000, 2, 16, torch.float32)
    length = 300
    slots = np.random.default_rng(1).permutation(2000)[: length + TREE.num_inner - 1]
    queries = torch.randn(len(slots), 4, 16)

    def run(parts: list[Part], at: list[Tensor]) -> Tensor:
        rows = torch.cat(at)
        missing = 16 - len(rows)
        rows = torch.cat([rows, rows[: max(missing, 0)]])
        return attend(config, pool, parts, rows, in_order=True)

    tree = [Part(0, length - 1, slots, length, TREE)]
    alone = run(tree, [queries[length - 1 :]])[: TREE.num_inner]
    cold = [Part(low, low, slots[: min(low + 256, len(slots))], length, TREE) for low in (0, 256)]
    assert torch.equal(run(cold, [queries])[length - 1 :], alone)
    other = np.random.default_rng(2).permutation(2000)[:40]
    beside = [Part(0, 10, other, 40), Part(30, length - 1, slots, length, TREE)]
    both = run(beside, [torch.randn(30, 4, 16), queries[length - 1 :]])
    assert torch.equal(both[30 : 30 + TREE.num_inner], alone)
    # A chosen node, computed as a token of the next prompt.
    path = TREE.path(0)
    taken = np.concatenate([slots[:length], slots[length - 1 + np.array(path)]])
    grown = [Part(0, length - 1, taken, length + len(path))]
    rows = queries[[length - 1, *(length - 1 + node for node in path)]]
    assert torch.equal(run(grown, [rows])[: len(path) + 1], alone[[0, *path]])
