"""Attention of a mixed batch over the paged cache, in plain torch.

Requests of like size are padded to one rectangle, so the work of a layer is a few large products however many
requests there are. It knows nothing of requests: it gets rows, slots and masks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

Mask = npt.NDArray[np.bool_]
_WASTE = 1.5  # padded over needed work up to which requests share a rectangle
_SMALL = 4096  # query times key rows below which padding costs less than another product


@dataclass(frozen=True)
class Span:
    """What one request brings: batch rows first..first+Q-1, the slots of its K keys, and what sees what [Q, K]."""

    first: int
    slots: npt.NDArray[np.int64]
    mask: Mask


@dataclass(frozen=True)
class AttentionGroup:
    """B requests padded to Q query rows and K keys each.

    rows: [B * Q] batch rows (padding repeats row 0); slots: [B * K]; bias: [B, 1, Q, K], 0 or -inf;
    filled: indices of the real rows within B * Q, in the order of `targets`, their batch rows.
    """

    shape: tuple[int, int, int]
    rows: Tensor
    slots: Tensor
    bias: Tensor
    filled: Tensor
    targets: Tensor


def group_spans(spans: Sequence[Span], device: torch.device, dtype: torch.dtype) -> list[AttentionGroup]:
    """Rectangles for all requests of a step, with bounded padding."""
    groups: list[list[Span]] = []
    needed = padded_q = padded_k = 0
    for span in sorted(spans, key=lambda s: s.mask.shape, reverse=True):
        q, k = span.mask.shape
        if groups:
            new_k = max(padded_k, k)
            area = (len(groups[-1]) + 1) * padded_q * new_k
            if area <= _WASTE * (needed + q * k) or area - needed <= _SMALL:
                groups[-1].append(span)
                needed, padded_k = needed + q * k, new_k
                continue
        groups.append([span])
        needed, padded_q, padded_k = q * k, q, k
    return [_pad(group, device, dtype) for group in groups]


def _pad(spans: list[Span], device: torch.device, dtype: torch.dtype) -> AttentionGroup:
    b = len(spans)
    q = max(span.mask.shape[0] for span in spans)
    k = max(span.mask.shape[1] for span in spans)
    rows = np.zeros((b, q), dtype=np.int64)
    slots = np.zeros((b, k), dtype=np.int64)
    mask = np.zeros((b, q, k), dtype=np.bool_)
    filled = np.zeros((b, q), dtype=np.bool_)
    for i, span in enumerate(spans):
        n, m = span.mask.shape
        rows[i, :n] = np.arange(span.first, span.first + n)
        slots[i, :m] = span.slots
        mask[i, :n, :m] = span.mask
        mask[i, n:, 0] = True  # padding rows must see something: a softmax over nothing is not a number
        filled[i, :n] = True
    bias = torch.zeros((b, 1, q, k), dtype=dtype, device=device)
    bias.masked_fill_(~torch.from_numpy(mask).to(device).unsqueeze(1), float("-inf"))
    flat = np.flatnonzero(filled)
    return AttentionGroup(
        (b, q, k),
        torch.from_numpy(rows.ravel()).to(device),
        torch.from_numpy(slots.ravel()).to(device),
        bias,
        torch.from_numpy(flat).to(device),
        torch.from_numpy(rows.ravel()[flat]).to(device),
    )


def attend(
    queries: Tensor, pool: Tensor, groups: Sequence[AttentionGroup], scale: float, out: Tensor
) -> None:
    """Attention of one layer.

    queries: [N, heads, head_dim]; pool: [slots, 2, kv_heads, head_dim], keys then values; out: [N, heads,
    head_dim], written in full.
    """
    _, heads, dim = queries.shape
    kv_heads = pool.shape[2]
    ratio = heads // kv_heads
    for group in groups:
        b, q, k = group.shape
        query = queries.index_select(0, group.rows).view(b, q, kv_heads, ratio, dim)
        query = query.permute(0, 2, 3, 1, 4).reshape(b, kv_heads, ratio * q, dim)
        pages = pool.index_select(0, group.slots).view(b, k, 2, kv_heads, dim)
        key, value = pages[:, :, 0].transpose(1, 2), pages[:, :, 1].transpose(1, 2)
        bias = group.bias.repeat(1, 1, ratio, 1)
        result = scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scale)
        result = result.view(b, kv_heads, ratio, q, dim).permute(0, 3, 1, 2, 4)
        result = result.reshape(b * q, heads, dim).index_select(0, group.filled)
        out.index_copy_(0, group.targets, result)
