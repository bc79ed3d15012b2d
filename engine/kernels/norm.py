"""The root mean square norm, alone and with the sum before it, so that a row is read and written once.

A program takes a whole row, so a row's numbers do not depend on the others.
"""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import rms_norm

from engine.kernels.aot import Variant


@triton.jit
def _normed(x, weight, SIZE: tl.constexpr, eps):
    """x and weight [BLOCK] in float32, zeros behind SIZE."""
    return x * tl.rsqrt(tl.sum(x * x, axis=0) / SIZE + eps) * weight


@triton.jit
def _norm_kernel(x, weight, out, eps, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * SIZE
    at = tl.arange(0, BLOCK)
    inside = at < SIZE
    values = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(
        out + row + at, _normed(values, scale, SIZE, eps).to(out.dtype.element_ty), mask=inside
    )


@triton.jit
def _add_norm_kernel(x, residual, first, weight, total, out, eps, SIZE: tl.constexpr, FIRST: tl.constexpr,
                     BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * SIZE
    at = tl.arange(0, BLOCK)
    inside = at < SIZE
    values = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    if FIRST:
        scale = tl.load(first + at, mask=inside, other=0.0).to(tl.float32)
        values = _normed(values, scale, SIZE, eps).to(x.dtype.element_ty).to(tl.float32)
    values += tl.load(residual + row + at, mask=inside, other=0.0).to(tl.float32)
    kept = values.to(total.dtype.element_ty)
    tl.store(total + row + at, kept, mask=inside)
    scale = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    values = _normed(kept.to(tl.float32), scale, SIZE, eps)
    tl.store(out + row + at, values.to(out.dtype.element_ty), mask=inside)


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The root mean square norm of x [rows, size] times weight [size], in float32, as x's dtype.

    weight: in x's dtype, or in float32 (Gemma's 1 + w).
    """
    out = torch.empty_like(x)
    size = x.shape[-1]
    block = triton.next_power_of_2(size)
    _norm_kernel[(len(x),)](x, weight, out, eps, size, block, num_warps=_warps(block))
    return out


def norm_twin(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return rms_norm(x.float(), x.shape[-1:], weight.float(), eps).to(x.dtype)


def add_norm(
    x: Tensor, residual: Tensor, first: Tensor | None, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """residual + x, or + norm(x, first) where there is one, and the norm of that sum; all [rows, size]."""
    total, out = torch.empty_like(x), torch.empty_like(x)
    size = x.shape[-1]
    block = triton.next_power_of_2(size)
    _add_norm_kernel[(len(x),)](
        x, residual, weight if first is None else first, weight, total, out, eps, size,
        first is not None, block, num_warps=_warps(block),
    )  # fmt: skip
    return total, out


def add_norm_twin(
    x: Tensor, residual: Tensor, first: Tensor | None, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    total = residual + (x if first is None else norm_twin(x, first, eps))
    return total, norm_twin(total, weight, eps)


def _warps(block: int) -> int:
    return min(max(block // 512, 1), 16)


def compiled_variants() -> Iterator[Variant]:
    # The hidden sizes of SmolLM2-135M, Llama-3.1-8B and Gemma 3 27B, whose norms are in float32 and twofold.
    for size, after in ((576, False), (4096, False), (5376, True)):
        weight = "*fp32:16" if after else "*bf16:16"
        block = triton.next_power_of_2(size)
        shape = {"SIZE": size, "BLOCK": block}
        ends = {"out": "*bf16:16", "eps": "fp32"}
        config = f"size {size}, bf16"
        first = {"x": "*bf16:16", "weight": weight}
        yield Variant(_norm_kernel, config, first | ends, shape, _warps(block))
        names = {"x": "*bf16:16", "residual": "*bf16:16", "first": weight, "weight": weight}
        names |= {"total": "*bf16:16"} | ends
        config += ", twofold" if after else ""
        yield Variant(_add_norm_kernel, config, names, shape | {"FIRST": after}, _warps(block))
