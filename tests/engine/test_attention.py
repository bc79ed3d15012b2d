"""The batched attention against one request, one row, one head at a time."""

import numpy as np
import pytest
import torch

from engine.attention import Span, attend, plan_attention
from engine.kv_pool import KVPool

HEADS, KV_HEADS, DIM, SLOTS = 4, 2, 8, 600


def dense(queries: torch.Tensor, pool: torch.Tensor, spans: list[Span]) -> torch.Tensor:
    out = torch.zeros_like(queries)
    for span in spans:
        for row in range(span.mask.shape[0]):
            keys = span.slots[span.mask[row]]
            for head in range(HEADS):
                kv = pool[torch.from_numpy(keys)][:, :, head // (HEADS // KV_HEADS)]
                scores = (kv[:, 0] @ queries[span.first + row, head]) * DIM**-0.5
                out[span.first + row, head] = torch.softmax(scores, dim=0) @ kv[:, 1]
    return out


def spans_of(shapes: list[tuple[int, int]], shared: int, rng: np.random.Generator) -> list[Span]:
    """Requests of (rows, keys) whose first `shared` keys are the same slots."""
    prefix = rng.permutation(SLOTS)[:shared]
    spans, first = [], 0
    for rows, keys in shapes:
        own = rng.permutation(SLOTS)[: max(0, keys - shared)]
        mask = np.tri(rows, keys, keys - rows, dtype=np.bool_)
        mask[:, keys - rows :] &= rng.random((rows, rows)) < 0.5
        mask[np.arange(rows), np.arange(keys - rows, keys)] = True
        spans.append(Span(first, np.concatenate([prefix[:keys], own]), mask))
        first += rows
    return spans


@pytest.mark.parametrize(
    ("shapes", "shared"),
    [
        ([(1, 1)], 0),
        ([(5, 90)] * 3, 60),
        ([(5, 90), (7, 70), (1, 61), (3, 200)], 60),
        ([(1, 100)] * 8, 99),
        ([(40, 40), (1, 300), (1, 5), (17, 120)], 0),
        ([(80, 80), (1, 300), (1, 90)], 40),
        ([(2, 33)] * 4, 33),
    ],
)
def test_mixed_requests_equal_dense_attention(shapes: list[tuple[int, int]], shared: int) -> None:
    rng = np.random.default_rng(0)
    spans = spans_of(shapes, shared, rng)
    generator = torch.Generator().manual_seed(1)
    rows = sum(q for q, _ in shapes)
    queries = torch.randn((rows, HEADS, DIM), generator=generator)
    kept = torch.randn((SLOTS, 2, KV_HEADS, DIM), generator=generator)
    pool = KVPool(1, SLOTS, KV_HEADS, DIM, torch.float32, torch.device("cpu"))
    pool.write(0, torch.arange(SLOTS), kept)
    plan = plan_attention(spans, KV_HEADS, torch.device("cpu"), torch.float32)
    out = attend(queries, pool, 0, plan, DIM**-0.5)
    assert torch.allclose(out, dense(queries, kept, spans), atol=1e-5)


def test_a_common_prefix_is_gathered_once() -> None:
    spans = spans_of([(5, 128)] * 8, 100, np.random.default_rng(0))
    [group] = plan_attention(spans, KV_HEADS, torch.device("cpu"), torch.float32).groups
    assert len(group.shared) == 2 * KV_HEADS * 96 and len(group.own) == 2 * KV_HEADS * 8 * 32


def test_padding_is_bounded() -> None:
    spans = spans_of([(250, 500)] + [(1, 500)] * 60, 0, np.random.default_rng(0))
    groups = plan_attention(spans, KV_HEADS, torch.device("cpu"), torch.float32).groups
    padded = sum(b * q * (p + s) for b, q, p, s in (group.shape for group in groups))
    assert padded <= 1.6 * sum(span.mask.size for span in spans)
