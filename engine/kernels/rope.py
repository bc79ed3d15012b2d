"""Rotary embedding of queries and keys, with the norms of their heads before and the write to the cache behind it."""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import rms_norm

from engine.kernels.aot import Variant
from engine.kernels.quantize import quantise_tile, write_vectors_twin

_HEADS = 4  # of one program


@triton.jit
def _head_normed(x, mean_square, weight, eps):
    """Rounded as torch rounds: the normed to the weight's dtype, the product to it as well."""
    kind = weight.dtype
    normed = (x * tl.rsqrt(mean_square + eps)[:, None]).to(kind).to(tl.float32)
    return (normed * weight.to(tl.float32)).to(kind).to(tl.float32)


@triton.jit
def _place_kernel(
    qkv, positions, slots, cos, sin, weights, queries, data, scales, eps,
    Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr, PAIRS: tl.constexpr, NORM: tl.constexpr,
    QUANTISED: tl.constexpr, FP8: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """A row's heads: queries, then keys, then values, the two last in the order in which a slot keeps them."""
    kind = qkv.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    d = tl.arange(0, BLOCK_D)
    inside = (head < Q_HEADS + 2 * KV_HEADS)[:, None] & (d < SIZE)[None, :]
    turns = (head < Q_HEADS + KV_HEADS)[:, None] & (d < SIZE)[None, :]
    start = qkv + row * (Q_HEADS + 2 * KV_HEADS) * SIZE + head[:, None] * SIZE
    given = tl.load(start + d[None, :], mask=inside, other=0.0).to(tl.float32)
    x = given
    if NORM:
        mean_square = tl.sum(given * given, axis=1) / SIZE
        at = weights + head[:, None] * SIZE
        weight = tl.load(at + d[None, :], mask=turns, other=0.0)
        x = _head_normed(given, mean_square, weight, eps).to(kind).to(tl.float32)
    if PAIRS > 0:
        other = tl.where(d < PAIRS, d + PAIRS, tl.where(d < 2 * PAIRS, d - PAIRS, d))
        pair = tl.load(start + other[None, :], mask=turns, other=0.0).to(tl.float32)
        if NORM:
            weight = tl.load(at + other[None, :], mask=turns, other=0.0)
            pair = _head_normed(pair, mean_square, weight, eps).to(kind).to(tl.float32)
        position = tl.load(positions + row).to(tl.int64) * SIZE
        cosine = tl.load(cos + position + d, mask=d < SIZE, other=0.0).to(tl.float32)
        sine = tl.load(sin + position + d, mask=d < SIZE, other=0.0).to(tl.float32)
        x = (x * cosine[None, :]).to(kind).to(tl.float32) + pair * sine[None, :]
    x = tl.where(turns, x, given).to(kind)
    is_query = (head < Q_HEADS)[:, None]
    tl.store(
        queries + row * Q_HEADS * SIZE + head[:, None] * SIZE + d[None, :],
        x,
        mask=inside & is_query,
    )
    slot = tl.load(slots + row).to(tl.int64) * (2 * KV_HEADS)
    kept = head - Q_HEADS
    to_cache = (kept >= 0) & (kept < 2 * KV_HEADS)
    places = data + slot * SIZE + kept[:, None] * SIZE + d[None, :]
    if QUANTISED:
        rounded, scale = quantise_tile(x.to(tl.float32), FP8)
        tl.store(places, rounded, mask=inside & to_cache[:, None])
        tl.store(scales + slot + kept, scale.to(tl.bfloat16), mask=to_cache)
    else:
        tl.store(places, x, mask=inside & to_cache[:, None])


def place(
    qkv: Tensor,
    positions: Tensor,
    slots: Tensor,
    table: tuple[Tensor, Tensor] | None,
    pairs: int,
    weights: Tensor | None,
    eps: float,
    data: Tensor,
    scales: Tensor | None,
) -> Tensor:
    """Norm and turn queries and keys, write keys and values to the cache; returns queries [N, heads, head_dim].

    qkv: [N, heads + 2 * kv_heads, head_dim]. positions, slots: [N]. table: cosines and signed sines by position,
    [max_len, head_dim] each, of which the first 2 * pairs dimensions turn, a pair being `pairs` apart; None turns
    nothing. weights: [heads + kv_heads, head_dim] of the norms, in qkv's dtype or float32. data: one layer of the
    cache, [slots, 2, kv_heads, head_dim], in qkv's dtype, int8 or float8_e4m3fn; scales: [slots, 2, kv_heads, 1] in
    bfloat16 of the two last.
    """
    rows, all_heads, size = qkv.shape
    kv_heads = data.shape[2]
    heads = all_heads - 2 * kv_heads
    queries = qkv.new_empty((rows, heads, size))
    fp8 = data.dtype == torch.float8_e4m3fn
    cos, sin = (qkv, qkv) if table is None else table
    block = triton.next_power_of_2(size)
    _place_kernel[(rows, triton.cdiv(all_heads, _HEADS))](
        qkv, positions, slots, cos, sin, qkv if weights is None else weights, queries,
        data.view(torch.uint8) if fp8 else data, data if scales is None else scales, eps,
        heads, kv_heads, size, 0 if table is None else pairs, weights is not None,
        scales is not None, fp8, _HEADS, block, num_warps=_warps(block),
    )  # fmt: skip
    return queries


def place_twin(
    qkv: Tensor,
    positions: Tensor,
    slots: Tensor,
    table: tuple[Tensor, Tensor] | None,
    pairs: int,
    weights: Tensor | None,
    eps: float,
    data: Tensor,
    scales: Tensor | None,
) -> Tensor:
    kv_heads = data.shape[2]
    heads = qkv.shape[1] - 2 * kv_heads
    turned, values = qkv[:, : heads + kv_heads], qkv[:, heads + kv_heads :]
    if weights is not None:
        normed = rms_norm(turned.to(weights.dtype), turned.shape[-1:], None, eps)
        turned = (normed * weights).to(qkv.dtype)
    if table is not None:
        cos, sin = (part[positions].unsqueeze(1) for part in table)
        first, second, rest = turned.tensor_split((pairs, 2 * pairs), dim=-1)
        turned = torch.addcmul(turned * cos, torch.cat([second, first, rest], dim=-1), sin)
    new = torch.cat([turned[:, heads:], values], dim=1)
    flat = data.view(len(data), 2 * kv_heads, -1)
    if scales is None:
        flat[slots] = new
    else:
        write_vectors_twin(new, slots, flat, scales.view(len(data), 2 * kv_heads, 1))
    return turned[:, :heads]


def _warps(block: int) -> int:
    return max(1, _HEADS * block // 256)


def compiled_variants() -> Iterator[Variant]:
    """For the sizes of SmolLM2-135M, Llama-3.1-8B, Qwen3-1.7B (norms of heads) and Gemma 3 4B (in float32)."""
    shapes = (
        ("SmolLM2-135M", 9, 3, 64, None),
        ("Llama-3.1-8B", 32, 8, 128, None),
        ("Qwen3-1.7B", 16, 8, 128, "*bf16:16"),
        ("Gemma 3 4B", 8, 4, 256, "*fp32:16"),
    )
    for name, heads, kv_heads, size, weights in shapes:
        for kind in ("bf16", "int8", "fp8"):
            signature = {"qkv": "*bf16:16", "positions": "*i64:16", "slots": "*i64:16"}
            signature |= {"cos": "*bf16:16", "sin": "*bf16:16", "weights": weights or "*bf16:16"}
            data = {"bf16": "*bf16:16", "int8": "*i8:16", "fp8": "*u8:16"}[kind]
            signature |= {"queries": "*bf16:16", "data": data, "scales": "*bf16:16", "eps": "fp32"}
            shape = {"Q_HEADS": heads, "KV_HEADS": kv_heads, "SIZE": size, "PAIRS": size // 2}
            shape |= {
                "NORM": weights is not None,
                "QUANTISED": kind != "bf16",
                "FP8": kind == "fp8",
            }
            shape |= {"BLOCK_H": _HEADS, "BLOCK_D": size}
            yield Variant(_place_kernel, f"{name}, {kind} cache", signature, shape, _warps(size))
