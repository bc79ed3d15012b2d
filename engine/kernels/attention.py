"""Attention over the paged cache: prefixes and trees, shared prefixes, windows, soft caps, 8-bit caches.

`engine.kernels.attention_plan` deals rows and keys to tiles. `_attend_tile` computes one tile for one key-value
head: the query heads of its rows that read this head make up the rows of one matrix product (grouped-query
attention, Ainslie et al. 2023), and the softmax is kept as a running maximum and sum (Milakov and Gimelshein 2018;
FlashAttention-2, Dao 2023). A row with several tiles has its results merged by `_merge_parts` (split-KV:
Flash-Decoding, Dao et al. 2023; a common prefix: Hydragen, Juravsky et al. 2024). There are no atomics: results have
places of their own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.attention_backend import Part, Plan
from engine.errors import ModelLoadError
from engine.kernels.aot import Variant
from engine.kernels.attention_plan import SPLIT, TILE_FIELDS, PlanShape, plan_tiles
from engine.kernels.quantize import fp8_to_float
from engine.kv_pool import KVPool
from engine.model_config import ModelConfig
from engine.staging import Put

_LOG2_E = 1.4426950408889634
_PROGRAMS_PER_CORE = 4  # of a multiprocessor, so that long tiles do not leave it idle at the end
_USUAL_CORES = 132


@triton.jit
def _merge(m, total, acc, new_m, new_total, new_acc):
    """Softmax over two sets of keys. m: the largest score; total: sum of exp2(score - m); acc: the same with values.

    A set of no keys, (-inf, 0, 0), changes no bit. Sums are written as fused, so that every kernel rounds alike.
    """
    top = tl.maximum(m, new_m)
    base = tl.where(top == float("-inf"), 0.0, top)
    old, new = tl.exp2(m - base), tl.exp2(new_m - base)
    total = tl.fma(total, old, new_total * new)
    acc = tl.fma(acc, tl.broadcast_to(old[:, None], acc.shape), new_acc * new[:, None])
    return top, total, acc


@triton.jit
def _sum_keys(
    query,
    ats,
    positions,
    first,
    end,
    slots,
    cache,
    scales,
    plain,
    enters,
    leaves,
    tail_positions,
    scale,
    softcap,
    window,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PAD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    IS_FP8: tl.constexpr,
    HAS_TREES: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """(m, total, acc) as in `_merge`, of the keys first..end-1. All pointers are those of the tile and the head."""
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, DIM_PAD], tl.float32)
    dims = tl.arange(0, DIM_PAD)
    for low in range(first, end, BLOCK_N):
        keys = low + tl.arange(0, BLOCK_N)
        there = keys < end
        slot = tl.load(slots + keys, mask=there, other=0).to(tl.int64)
        places = cache + slot[:, None] * (2 * KV_HEADS * DIM) + dims[None, :]
        wanted = there[:, None]
        if DIM_PAD != DIM:
            wanted = wanted & (dims < DIM)[None, :]
        key = tl.load(places, mask=wanted, other=0)
        key = (fp8_to_float(key) if IS_FP8 else key).to(query.dtype)
        scores = tl.dot(query, tl.trans(key), input_precision=PRECISION)
        if HAS_SCALES:
            key_scales = tl.load(scales + slot * (2 * KV_HEADS), mask=there, other=0.0)
            scores *= key_scales.to(tl.float32)[None, :]
        scores *= scale
        if HAS_SOFTCAP:  # scale is divided by the cap: softcap * tanh(scores), by exponentials
            scores = softcap * (1.0 - 2.0 / (tl.exp2(scores * 2.8853900817779268) + 1.0))
        scores *= 1.4426950408889634
        seen = there[None, :] & (keys[None, :] <= ats[:, None])
        places_in_text = keys
        if HAS_TREES:
            node = there & (keys >= plain)
            enter = tl.load(enters + keys, mask=node, other=0)
            leave = tl.load(leaves + keys, mask=node, other=1 << 30)
            enter = tl.where(node, enter, keys)
            seen = there[None, :] & (enter[None, :] <= ats[:, None])
            seen = seen & (ats[:, None] < leave[None, :])
            if HAS_WINDOW:
                in_tree = tl.load(tail_positions + keys, mask=node, other=0)
                places_in_text = tl.where(node, in_tree, keys)
        if HAS_WINDOW:
            seen = seen & (places_in_text[None, :] > positions[:, None] - window)
        scores = tl.where(seen, scores, float("-inf"))
        top = tl.maximum(m, tl.max(scores, 1))
        base = tl.where(top == float("-inf"), 0.0, top)
        weights = tl.exp2(scores - base[:, None])
        old = tl.exp2(m - base)
        total = total * old + tl.sum(weights, 1)
        value = tl.load(places + KV_HEADS * DIM, mask=wanted, other=0)
        value = (fp8_to_float(value) if IS_FP8 else value).to(query.dtype)
        if HAS_SCALES:
            value_scales = tl.load(scales + slot * (2 * KV_HEADS) + KV_HEADS, mask=there, other=0.0)
            weights *= value_scales.to(tl.float32)[None, :]
        acc = acc * old[:, None]
        acc = tl.dot(weights.to(query.dtype), value, acc, input_precision=PRECISION)
        m = top
    return m, total, acc


@triton.jit
def _attend_tile(
    queries,  # [rows, heads, DIM], heads beside each other
    query_stride,
    cache,  # [slots, 2, KV_HEADS, DIM]; uint8 of fp8, which not all GPUs have as a type
    scales,  # [slots, 2, KV_HEADS] or anything
    out,  # [rows, heads, DIM]
    part_accs,  # [parts, heads, DIM] float32
    part_sums,  # [parts, 2, heads] float32: m and total
    tiles,
    tile_rows,
    tile_parts,
    row_ats,
    row_positions,
    enters,
    leaves,
    tail_positions,
    slots,
    scale,
    softcap,
    window,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PAD: tl.constexpr,
    LANES: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PAD: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SPLIT: tl.constexpr,
    FIELDS: tl.constexpr,
    IN_ORDER: tl.constexpr,
    HAS_PARTS: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    IS_FP8: tl.constexpr,
    HAS_TREES: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    BLOCK_M: tl.constexpr = LANES * GROUP_PAD
    heads: tl.constexpr = KV_HEADS * GROUP
    first = tl.load(tiles + tile * FIELDS)
    end = tl.load(tiles + tile * FIELDS + 1)
    if end == 0:  # a tile that fills up a plan
        return
    slots += tl.load(tiles + tile * FIELDS + 2)
    plain = tl.load(tiles + tile * FIELDS + 3)
    tail = tl.load(tiles + tile * FIELDS + 4)
    enters += tail
    leaves += tail
    tail_positions += tail
    cache += kv_head * DIM
    scales += kv_head

    places = tl.arange(0, BLOCK_M)
    lane = places // GROUP_PAD
    member = places % GROUP_PAD
    row = tl.load(tile_rows + tile * LANES + lane)
    real = (row >= 0) & (member < GROUP)
    row = tl.where(real, row, 0)
    ats = tl.load(row_ats + row)
    positions = tl.load(row_positions + row)
    dims = tl.arange(0, DIM_PAD)
    wanted = real[:, None] & (dims < DIM)[None, :]
    head = kv_head * GROUP + member
    query = tl.load(
        queries + row.to(tl.int64)[:, None] * query_stride + head[:, None] * DIM + dims[None, :],
        mask=wanted,
        other=0.0,
    )
    if IN_ORDER:
        m = tl.full([BLOCK_M], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK_M], tl.float32)
        acc = tl.zeros([BLOCK_M, DIM_PAD], tl.float32)
        for split in range(first // SPLIT * SPLIT, end, SPLIT):
            new_m, new_total, new_acc = _sum_keys(
                query,
                ats,
                positions,
                tl.maximum(first, split),
                tl.minimum(split + SPLIT, end),
                slots,
                cache,
                scales,
                plain,
                enters,
                leaves,
                tail_positions,
                scale,
                softcap,
                window,
                KV_HEADS,
                DIM,
                DIM_PAD,
                BLOCK_M,
                BLOCK_N,
                HAS_SCALES,
                IS_FP8,
                HAS_TREES,
                HAS_WINDOW,
                HAS_SOFTCAP,
                PRECISION,
            )
            m, total, acc = _merge(m, total, acc, new_m, new_total, new_acc)
    else:
        m, total, acc = _sum_keys(
            query,
            ats,
            positions,
            first,
            end,
            slots,
            cache,
            scales,
            plain,
            enters,
            leaves,
            tail_positions,
            scale,
            softcap,
            window,
            KV_HEADS,
            DIM,
            DIM_PAD,
            BLOCK_M,
            BLOCK_N,
            HAS_SCALES,
            IS_FP8,
            HAS_TREES,
            HAS_WINDOW,
            HAS_SOFTCAP,
            PRECISION,
        )
    whole = real
    if HAS_PARTS:
        part = tl.load(tile_parts + tile * LANES + lane)
        whole = real & (part < 0)
        partial = real & (part >= 0)
        at = tl.where(partial, part, 0).to(tl.int64) * heads
        tl.store(part_sums + 2 * at + head, m, mask=partial)
        tl.store(part_sums + 2 * at + heads + head, total, mask=partial)
        tl.store(
            part_accs + (at + head)[:, None] * DIM + dims[None, :],
            acc,
            mask=partial[:, None] & (dims < DIM)[None, :],
        )
    tl.store(
        out + (row.to(tl.int64) * heads + head)[:, None] * DIM + dims[None, :],
        (acc / tl.where(whole, total, 1.0)[:, None]).to(out.dtype.element_ty),
        mask=whole[:, None] & (dims < DIM)[None, :],
    )


@triton.jit
def _merge_parts(
    out,  # [rows, heads, DIM]
    part_accs,
    part_sums,
    merges,  # [rows, 2]
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PAD: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PAD: tl.constexpr,
):
    """The result of a row that has several, merged in order, for the heads of one group."""
    row = tl.program_id(0)
    kv_head = tl.program_id(1)
    heads: tl.constexpr = KV_HEADS * GROUP
    first = tl.load(merges + 2 * row)
    count = tl.load(merges + 2 * row + 1)
    if count == 0:
        return
    member = tl.arange(0, GROUP_PAD)
    dims = tl.arange(0, DIM_PAD)
    real = member < GROUP
    wanted = real[:, None] & (dims < DIM)[None, :]
    head = kv_head * GROUP + member
    m = tl.full([GROUP_PAD], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_PAD], tl.float32)
    acc = tl.zeros([GROUP_PAD, DIM_PAD], tl.float32)
    for index in range(count):
        at = (first + index).to(tl.int64) * heads
        new_m = tl.load(part_sums + 2 * at + head, mask=real, other=float("-inf"))
        new_total = tl.load(part_sums + 2 * at + heads + head, mask=real, other=0.0)
        places = part_accs + (at + head)[:, None] * DIM + dims[None, :]
        new_acc = tl.load(places, mask=wanted, other=0.0)
        m, total, acc = _merge(m, total, acc, new_m, new_total, new_acc)
    tl.store(
        out + (row.to(tl.int64) * heads + head)[:, None] * DIM + dims[None, :],
        (acc / tl.where(real, total, 1.0)[:, None]).to(out.dtype.element_ty),
        mask=wanted,
    )


@dataclass(frozen=True)
class TilePlan:
    """A plan on its device. tensors: what `HostPlan` describes, in one buffer; the rest is the same for many plans."""

    shape: PlanShape
    buffer: Tensor
    window: int | None
    in_order: bool

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        return {
            name: self.buffer[first : first + prod(size)].view(size)
            for name, size, first in self.shape.sections()[:-1]
        }

    def attend(
        self, queries: Tensor, pool: KVPool, layer: int, scale: float, softcap: float | None
    ) -> Tensor:
        return attend_tiles(queries, pool, layer, self, scale, softcap)


class TritonAttention:
    """Plans tiles, and computes them with the kernels above."""

    def __init__(
        self, config: ModelConfig, device: torch.device, dtype: torch.dtype, deterministic: bool
    ) -> None:
        """Raises ModelLoadError where the kernels cannot run."""
        if device.type != "cuda" and not triton.knobs.runtime.interpret:
            raise ModelLoadError(
                "attention_backend triton needs a CUDA device; use torch (TRITON_INTERPRET=1 is for tests)."
            )
        group = config.num_heads // config.num_kv_heads
        self._lanes = _lanes(group, config.head_dim, dtype, deterministic)
        cores = _USUAL_CORES
        if device.type == "cuda":
            cores = torch.cuda.get_device_properties(device).multi_processor_count
        self._programs = -(-_PROGRAMS_PER_CORE * cores // config.num_kv_heads)
        self._padded = device.type == "cuda"
        self._window = config.sliding_window
        self._in_order = deterministic

    def plan(self, parts: Sequence[Part], num_rows: int, put: Put) -> tuple[Plan, Plan | None]:
        full = self._plan(parts, num_rows, put, None)
        if self._window is None:
            return full, None
        # In order, a row is computed by the same kernel whatever the others see.
        longer = any(part.positions()[part.start :].max() >= self._window for part in parts)
        if not longer and not self._in_order:
            return full, full
        return full, self._plan(parts, num_rows, put, self._window)

    def _plan(self, parts: Sequence[Part], num_rows: int, put: Put, window: int | None) -> TilePlan:
        plan = plan_tiles(
            parts, num_rows, self._lanes, self._programs, window, self._in_order, self._padded
        )
        return TilePlan(plan.shape, put(plan.buffer), window, self._in_order)


def _lanes(group: int, head_dim: int, dtype: torch.dtype, in_order: bool) -> tuple[int, int]:
    """Rows of a tile where few rows have keys in common, and where many have: a matrix product has these times the
    query heads of a group. Two sums at a time, as in order, want twice the registers, and products of float32 hold
    their operands in them."""
    wide = 64 if dtype.itemsize == 2 and head_dim <= 128 and not in_order else 32
    if dtype.itemsize == 4 and head_dim > 64:
        wide = 16
    padded = triton.next_power_of_2(group)
    return max(16 // padded, 1), max(wide // padded, 1)


def _sizes(kv_heads: int, group: int, dim: int) -> dict[str, object]:
    return {
        "KV_HEADS": kv_heads,
        "GROUP": group,
        "GROUP_PAD": triton.next_power_of_2(group),
        "DIM": dim,
        "DIM_PAD": max(triton.next_power_of_2(dim), 16),
    }


def _block(head_dim: int, dtype: torch.dtype, plan: TilePlan, group: int) -> dict[str, int]:
    """Keys of a step of a tile, and how it is compiled: what spills no registers on sm_80 and sm_90
    (`scripts/compile_kernels.py`). Sums in order, those of 64 rows, and large ones of float32 are spread over more
    threads."""
    if dtype.itemsize == 4 and head_dim > 64:
        return {"BLOCK_N": 16 if head_dim <= 128 else 32, "num_warps": 8, "num_stages": 2}
    small = dtype.itemsize == 2 and head_dim <= 128
    many = small and plan.shape.lanes * triton.next_power_of_2(group) >= 64
    warps = 8 if many or (plan.in_order and dtype.itemsize == 2) else 4
    return {"BLOCK_N": 64 if small else 32, "num_warps": warps, "num_stages": 2}


def attend_tiles(
    queries: Tensor,
    pool: KVPool,
    layer: int,
    plan: TilePlan,
    scale: float,
    softcap: float | None = None,
) -> Tensor:
    """Attention of one layer: [N, heads, head_dim] like the queries. softcap: c of tanh(score / c) * c.

    Rows of float32 are multiplied in full precision; others on tensor cores with sums in float32.
    """
    rows, heads, dim = queries.shape
    if queries.stride()[1:] != (dim, 1):
        queries = queries.contiguous()
    cache, scales = pool.layer(layer)
    shape, t = plan.shape, plan.tensors
    is_fp8 = cache.dtype == torch.float8_e4m3fn
    if is_fp8:
        cache = cache.view(torch.uint8)
    kv_heads = pool.num_kv_heads
    sizes = _sizes(kv_heads, heads // kv_heads, dim)
    out = queries.new_empty((rows, heads, dim))
    accs = out.new_empty((shape.parts, heads, dim), dtype=torch.float32)
    sums = out.new_empty((shape.parts, 2, heads), dtype=torch.float32)
    _attend_tile[(shape.tiles, kv_heads)](
        queries,
        queries.stride(0),
        cache,
        cache if scales is None else scales,
        out,
        accs,
        sums,
        t["tiles"],
        t["tile_rows"],
        t["tile_parts"],
        t["ats"],
        t["positions"],
        t["enters"],
        t["leaves"],
        t["tail_positions"],
        t["slots"],
        scale if softcap is None else scale / softcap,
        1.0 if softcap is None else softcap,
        plan.window or 0,
        **sizes,
        **_choices(plan, scales is not None, is_fp8, softcap is not None, queries.dtype),
        **_block(dim, queries.dtype, plan, heads // kv_heads),
    )
    if shape.parts:
        _merge_parts[(rows, kv_heads)](out, accs, sums, t["merges"], **sizes, num_warps=2)
    return out


def _choices(
    plan: TilePlan, scaled: bool, is_fp8: bool, capped: bool, dtype: torch.dtype
) -> dict[str, object]:
    return {
        "LANES": plan.shape.lanes,
        "SPLIT": SPLIT,
        "FIELDS": TILE_FIELDS,
        "IN_ORDER": plan.in_order,
        "HAS_PARTS": plan.shape.parts > 0,
        "HAS_SCALES": scaled,
        "IS_FP8": is_fp8,
        "HAS_TREES": plan.shape.tails > 0,
        "HAS_WINDOW": plan.window is not None,
        "HAS_SOFTCAP": capped,
        "PRECISION": "ieee" if dtype == torch.float32 else "tf32",
    }


def attend_definition(
    queries: Tensor,
    pool: KVPool,
    layer: int,
    parts: Sequence[Part],
    scale: float,
    softcap: float | None = None,
    window: int | None = None,
) -> Tensor:
    """What `attend_tiles` computes, in plain torch and float64: row by row over all keys that a row sees."""
    cache, scales = pool.layer(layer)
    out = torch.zeros_like(queries, dtype=torch.float64)
    for part in parts:
        span = part.span() if window is None else part.cut(part.span(), window)
        at, seen = (torch.from_numpy(array).to(queries.device) for array in (span.slots, span.mask))
        if scales is None:
            kept = cache[at].double()
        else:  # torch gathers no fp8
            kept = cache.view(torch.int8)[at].view(cache.dtype).double() * scales[at].double()
        ratio = queries.shape[1] // kept.shape[2]
        keys, values = (kept[:, i].repeat_interleave(ratio, dim=1) for i in (0, 1))
        rows = slice(part.first, part.first + len(span.mask))
        scores = torch.einsum("rhd,khd->hrk", queries[rows].double(), keys) * scale
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
        out[rows] = torch.einsum("hrk,khd->rhd", weights, values)
    return out


def compiled_variants() -> Iterator[Variant]:
    """For the heads of SmolLM2-135M, Llama-3.1-8B and Gemma 3 4B (windows, soft caps), narrow and wide tiles."""
    shapes = (
        ("3 x 3 heads of 64", 3, 3, 64),
        ("8 x 4 heads of 128", 8, 4, 128),
        ("4 x 2 heads of 256", 4, 2, 256),
    )
    bf16 = torch.bfloat16
    for name, kv_heads, group, dim in shapes:
        for wide in (False, True):
            yield _variant(name, kv_heads, group, dim, bf16, wide)
        yield _variant(name, kv_heads, group, dim, bf16, True, in_order=True)
        yield _variant(name, kv_heads, group, dim, bf16, True, kept="*i8:16")
        yield _variant(name, kv_heads, group, dim, bf16, True, kept="*u8:16")
        yield _merge_variant(name, kv_heads, group, dim)
    yield _variant("4 x 2 heads of 256", 4, 2, 256, bf16, True, window=True, softcap=True)
    for name, kv_heads, group, dim in shapes:
        for in_order in (False, True):
            yield _variant(name, kv_heads, group, dim, torch.float32, True, in_order=in_order)


def _variant(
    name: str,
    kv_heads: int,
    group: int,
    dim: int,
    dtype: torch.dtype,
    wide: bool,
    *,
    in_order: bool = False,
    kept: str | None = None,
    window: bool = False,
    softcap: bool = False,
) -> Variant:
    kind = "*bf16:16" if dtype == torch.bfloat16 else "*fp32:16"
    ints = (
        *("tiles", "tile_rows", "tile_parts", "row_ats", "row_positions"),
        *("enters", "leaves", "tail_positions", "slots"),
    )
    signature = {
        "queries": kind,
        "query_stride": "i32:16",
        "cache": kept or kind,
        "scales": "*bf16:16" if kept else kind,
        "out": kind,
        "part_accs": "*fp32:16",
        "part_sums": "*fp32:16",
        **dict.fromkeys(ints, "*i32:16"),
        **dict.fromkeys(("scale", "softcap"), "fp32"),
        "window": "i32:16",
    }
    sizes = _sizes(kv_heads, group, dim)
    lanes = _lanes(group, dim, dtype, in_order)[wide]
    # Rows of trees, and results to be merged.
    shape = PlanShape(rows=16, tiles=1, lanes=lanes, keys=1, tails=0 if in_order else 1, parts=1)
    plan = TilePlan(shape, torch.empty(0), 16 if window else None, in_order)
    block = _block(dim, dtype, plan, group)
    warps, stages = block.pop("num_warps"), block.pop("num_stages")
    is_fp8 = kept == "*u8:16"
    constants = sizes | _choices(plan, kept is not None, is_fp8, softcap, dtype) | block
    words = [name, "fp32" if dtype == torch.float32 else "bf16", f"{lanes} rows"]
    words += ["in order"] * in_order
    words += ["fp8 cache" if is_fp8 else "int8 cache"] if kept else []
    words += ["window"] * window + ["soft cap"] * softcap
    return Variant(_attend_tile, ", ".join(words), signature, constants, warps, stages)


def _merge_variant(name: str, kv_heads: int, group: int, dim: int) -> Variant:
    signature = {"out": "*bf16:16", "part_accs": "*fp32:16", "part_sums": "*fp32:16"}
    constants = _sizes(kv_heads, group, dim)
    return Variant(_merge_parts, name, signature | {"merges": "*i32:16"}, constants, 2)
