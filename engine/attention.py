"""Attention of a mixed batch over the paged cache, in plain torch.

Requests of like size are padded to one rectangle, and the keys that all of them begin with are gathered and
multiplied once, so a layer is a few large products however many requests there are. It knows nothing of
requests: it gets rows, slots and masks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.kv_pool import KVPool, vectors_by_head

Mask = npt.NDArray[np.bool_]
_WASTE = 1.5  # padded over needed work up to which requests share a rectangle
_SMALL = 4096  # query times key rows below which padding costs less than another product
_LARGE = (
    1 << 16
)  # query times key rows of a rectangle at most: beyond it the scores leave the processor's cache
_MIN_SHARED = 32  # keys in common from which on they are multiplied once for the whole rectangle
_ALIGN = (
    32  # numbers of keys are made multiples of this: rows of scores then begin at vector boundaries
)


@dataclass(frozen=True)
class Span:
    """What one request brings: batch rows first..first+Q-1, the slots of its K keys, and who sees what [Q, K]."""

    first: int
    slots: npt.NDArray[np.int64]
    mask: Mask


@dataclass(frozen=True)
class AttentionGroup:
    """B requests padded to Q query rows each, and to P keys each besides the S keys that all of them see.

    rows: [B * Q] batch rows (padding repeats row 0); shared: of S slots, and own: of B * P slots, the
    `vectors_by_head`; bias: [B, 1, Q, W], 0 or -inf, of the last W of the P keys, or None if all is seen.
    """

    shape: tuple[int, int, int, int]
    rows: Tensor
    shared: Tensor
    own: Tensor
    bias: Tensor | None


@dataclass(frozen=True)
class AttentionPlan:
    """The groups of a step. places: [N], where each batch row is among the rows of all groups, padding included."""

    groups: list[AttentionGroup]
    places: Tensor

    def attend(
        self, queries: Tensor, pool: KVPool, layer: int, scale: float, softcap: float | None
    ) -> Tensor:
        return attend(queries, pool, layer, self, scale, softcap)


def plan_attention(
    spans: Sequence[Span], num_kv_heads: int, device: torch.device, dtype: torch.dtype
) -> AttentionPlan:
    """Rectangles for all spans of a step, with bounded padding and bounded size."""
    groups: list[list[Span]] = []
    needed = height = width = 0
    for span in sorted(spans, key=lambda s: s.mask.shape, reverse=True):
        q, k = span.mask.shape
        area = (len(groups[-1]) + 1 if groups else 0) * height * max(width, k)
        waste = area - needed - q * k
        if groups and area <= _LARGE and (waste <= _SMALL or area <= _WASTE * (needed + q * k)):
            groups[-1].append(span)
            needed, width = needed + q * k, max(width, k)
        else:
            groups.append([span])
            needed, height, width = q * k, q, k
    places: list[npt.NDArray[np.int64]] = []
    padded: list[AttentionGroup] = []
    first = 0
    for members in groups:
        padded.append(_pad(members, num_kv_heads, device, dtype))
        b, q, _, _ = padded[-1].shape
        starts = range(first, first + b * q, q)
        places += [
            np.arange(at, at + len(span.mask)) for at, span in zip(starts, members, strict=True)
        ]
        first += b * q
    order = np.concatenate([np.arange(s.first, s.first + len(s.mask)) for g in groups for s in g])
    by_row = np.empty(len(order), dtype=np.int64)
    by_row[order] = np.concatenate(places)
    return AttentionPlan(padded, torch.from_numpy(by_row).to(device))


def _pad(
    spans: list[Span], num_kv_heads: int, device: torch.device, dtype: torch.dtype
) -> AttentionGroup:
    s = _num_shared(spans)
    b = len(spans)
    q = max(span.mask.shape[0] for span in spans)
    p = max(span.mask.shape[1] for span in spans) - s
    p += -p % _ALIGN
    rows = np.zeros((b, q), dtype=np.int64)
    slots = np.zeros((b, p), dtype=np.int64)
    mask = np.zeros((b, q, p), dtype=np.bool_)
    for i, span in enumerate(spans):
        n, m = span.mask.shape
        rows[i, :n] = np.arange(span.first, span.first + n)
        slots[i, : m - s] = span.slots[s:]
        mask[i, :n, : m - s] = span.mask[:, s:]
        mask[i, n:] = True  # padding must see something: a softmax over nothing is not a number
    bias = None
    if not mask.all():
        # What some row does not see stands at the end: the last keys of others, and what fills up the rectangle.
        seen = int(mask.all(axis=(0, 1)).argmin())
        mask = mask[:, :, seen - seen % _ALIGN :]
        bias = torch.zeros((b, 1, *mask.shape[1:]), dtype=dtype)
        bias.masked_fill_(~torch.from_numpy(mask).unsqueeze(1), float("-inf"))
        bias = bias.to(device)
    return AttentionGroup(
        (b, q, p, s),
        torch.from_numpy(rows.ravel()).to(device),
        torch.from_numpy(vectors_by_head(spans[0].slots[:s], num_kv_heads)).to(device),
        torch.from_numpy(vectors_by_head(slots.ravel(), num_kv_heads)).to(device),
        bias,
    )


def _num_shared(spans: list[Span]) -> int:
    """How many first keys all spans have in common and all of their rows see; 0 if too few to matter."""
    if len(spans) == 1:
        return 0
    # Some key of its own stays to every span, so that no rectangle is empty.
    limit = min(len(span.slots) for span in spans) - 1
    first = spans[0].slots[:limit]
    for span in spans:
        alike = (span.slots[:limit] == first[:limit]) & span.mask[:, :limit].all(axis=0)
        limit = limit if alike.all() else int(alike.argmin())
    limit -= limit % _ALIGN
    return limit if limit >= _MIN_SHARED else 0


def attend(
    queries: Tensor,
    pool: KVPool,
    layer: int,
    plan: AttentionPlan,
    scale: float,
    softcap: float | None = None,
) -> Tensor:
    """Attention of one layer: [N, heads, head_dim] like the queries. softcap: c of tanh(score / c) * c."""
    _, heads, dim = queries.shape
    kv_heads = pool.num_kv_heads
    ratio = heads // kv_heads
    results: list[Tensor] = []
    for group in plan.groups:
        b, q, p, s = group.shape
        query = queries.index_select(0, group.rows).view(b, q, kv_heads, ratio, dim)
        query = query.permute(2, 0, 3, 1, 4).reshape(kv_heads, b * ratio * q, dim).mul_(scale)
        keys, values = pool.read_by_head(layer, group.own).view(2, kv_heads * b, p, dim)
        scores = queries.new_empty((kv_heads, b * ratio * q, s + p))
        # The columns of the keys of one's own, one block a request.
        blocks = scores[:, :, s:].view(kv_heads * b, ratio * q, p)
        torch.bmm(query.view(kv_heads * b, ratio * q, dim), keys.transpose(1, 2), out=blocks)
        if s:
            common = pool.read_by_head(layer, group.shared)
            torch.bmm(query, common[0].transpose(1, 2), out=scores[:, :, :s])
        if softcap is not None:
            scores.div_(softcap).tanh_().mul_(softcap)
        if group.bias is not None:
            hidden = blocks.view(kv_heads, b, ratio, q, p)[..., p - group.bias.shape[-1] :]
            hidden.add_(group.bias)
        weights = torch.softmax(scores, dim=-1)
        blocks = weights[:, :, s:].view(kv_heads * b, ratio * q, p)
        result = torch.bmm(blocks, values)
        if s:
            result.view(kv_heads, b * ratio * q, dim).baddbmm_(weights[:, :, :s], common[1])
        result = result.view(kv_heads, b, ratio, q, dim).permute(1, 3, 0, 2, 4)
        results.append(result.reshape(b * q, heads, dim))
    return torch.cat(results).index_select(0, plan.places)
