"""Keys and values in 8 bits: written to slots of the cache and read back, with one scale for each vector.

The numbers are those of `engine.kv_pool.quantise_vectors`. fp8 (e4m3) is made and read by its bits, because GPUs before
sm_89 have no such type: to kernels it is uint8.
"""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.aot import Variant
from engine.kv_pool import quantise_vectors

_HEADS = 4  # vectors of one program


@triton.jit
def round_to_integer(x):
    """x in float32, of less than 2^22, to the nearest integer, halves to even: there are no others at 1.5 * 2^23."""
    return (x + 12582912.0) - 12582912.0


@triton.jit
def float_to_fp8(x):
    """The bits of float32 x, of at most 464, as e4m3: as uint8, to nearest, halves to even."""
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    # A bias of 7 instead of 127, and 3 bits of mantissa instead of 23.
    normal = (size - (120 << 23) + 0x7FFFF + ((size >> 20) & 1)) >> 20
    # Below 2^-6 the steps are 2^-9, which are those of float32 from 2^14 (0x46800000) on.
    below = (size.to(tl.float32, bitcast=True) + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    kept = tl.where(size < (121 << 23), below, normal)
    return (kept | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def fp8_to_float(bits):
    """e4m3 in uint8 as float32; what is not a number comes back as 480."""
    wide = bits.to(tl.int32)
    moved = ((wide & 0x80) << 24) | ((wide & 0x7F) << 20)
    return (
        moved.to(tl.float32, bitcast=True) * 1.329227995784916e36
    )  # 2^120, the difference of the biases


@triton.jit
def quantise_tile(x, FP8: tl.constexpr):
    """Vectors x [rows, size] in float32, zeros behind their ends, as uint8 or int8 [rows, size], and their scales
    [rows] in float32, exact in bfloat16."""
    size = tl.where(x == x, tl.abs(x), float("inf"))  # so that the scale tells of what is no number
    top = tl.max(size, axis=1)
    scale = tl.div_rn(top, tl.full(top.shape, 448.0 if FP8 else 127.0, tl.float32))
    # Rounded first, so that the product has no error but that of the rounded elements; at least bfloat16's smallest
    # normal number, for vectors of zeros.
    scale = tl.maximum(scale.to(tl.bfloat16).to(tl.float32), 1.1754943508222875e-38)
    share = tl.div_rn(x, tl.broadcast_to(scale[:, None], x.shape))
    share = tl.where(size < float("inf"), share, 1.0)
    if FP8:  # noqa: SIM108 (decided when compiled)
        kept = float_to_fp8(share)
    else:
        kept = round_to_integer(share).to(tl.int8)
    return kept, scale


@triton.jit
def _write_kernel(x, slots, data, scales, heads, SIZE: tl.constexpr, FP8: tl.constexpr,
                  BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row).to(tl.int64)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    at = head[:, None] * SIZE + tl.arange(0, BLOCK_D)[None, :]
    inside = (head < heads)[:, None] & (tl.arange(0, BLOCK_D) < SIZE)[None, :]
    vectors = tl.load(x + row * heads * SIZE + at, mask=inside, other=0.0).to(tl.float32)
    kept, scale = quantise_tile(vectors, FP8)
    tl.store(data + slot * heads * SIZE + at, kept, mask=inside)
    tl.store(scales + slot * heads + head, scale.to(tl.bfloat16), mask=head < heads)


@triton.jit
def _read_kernel(slots, data, scales, out, heads, SIZE: tl.constexpr, FP8: tl.constexpr,
                 BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row).to(tl.int64)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    at = head[:, None] * SIZE + tl.arange(0, BLOCK_D)[None, :]
    inside = (head < heads)[:, None] & (tl.arange(0, BLOCK_D) < SIZE)[None, :]
    kept = tl.load(data + slot * heads * SIZE + at, mask=inside, other=0)
    scale = tl.load(scales + slot * heads + head, mask=head < heads, other=0.0).to(tl.float32)
    vectors = fp8_to_float(kept) if FP8 else kept.to(tl.float32)
    vectors = (vectors * scale[:, None]).to(out.dtype.element_ty)
    tl.store(out + row * heads * SIZE + at, vectors, mask=inside)


def write_vectors(x: Tensor, slots: Tensor, data: Tensor, scales: Tensor) -> None:
    """Round x [N, heads, size] to slots [N] of data [slots, heads, size], int8 or float8_e4m3fn, and of scales
    [slots, heads, 1] in bfloat16."""
    rows, heads, size = x.shape
    fp8 = data.dtype == torch.float8_e4m3fn
    _write_kernel[(rows, triton.cdiv(heads, _HEADS))](
        x.contiguous(), slots, data.view(torch.uint8) if fp8 else data, scales, heads, size, fp8,
        _HEADS, triton.next_power_of_2(size), num_warps=_warps(size),
    )  # fmt: skip


def write_vectors_twin(x: Tensor, slots: Tensor, data: Tensor, scales: Tensor) -> None:
    kept, new_scales = quantise_vectors(x, data.dtype)
    data.view(torch.int8)[slots] = kept.view(torch.int8)
    scales[slots] = new_scales


def read_vectors(slots: Tensor, data: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """[N, heads, size] in `dtype` of slots [N], as `write_vectors` left them."""
    _, heads, size = data.shape
    out = torch.empty((len(slots), heads, size), dtype=dtype, device=data.device)
    fp8 = data.dtype == torch.float8_e4m3fn
    _read_kernel[(len(slots), triton.cdiv(heads, _HEADS))](
        slots, data.view(torch.uint8) if fp8 else data, scales, out, heads, size, fp8,
        _HEADS, triton.next_power_of_2(size), num_warps=_warps(size),
    )  # fmt: skip
    return out


def read_vectors_twin(slots: Tensor, data: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    kept = data.view(torch.int8)[slots].view(data.dtype)
    return (kept.float() * scales[slots].float()).to(dtype)


def _warps(size: int) -> int:
    return max(1, _HEADS * int(triton.next_power_of_2(size)) // 256)


def compiled_variants() -> Iterator[Variant]:
    for size, fp8 in ((64, False), (128, False), (128, True), (256, True)):
        kept = "*u8:16" if fp8 else "*i8:16"
        shape = {"SIZE": size, "FP8": fp8, "BLOCK_H": _HEADS, "BLOCK_D": size}
        config = f"{'fp8' if fp8 else 'int8'}, head {size}"
        common = {"slots": "*i64:16", "data": kept, "scales": "*bf16:16"}
        yield Variant(
            _write_kernel,
            config,
            {"x": "*bf16:16"} | common | {"heads": "i32"},
            shape,
            _warps(size),
        )
        yield Variant(
            _read_kernel, config, common | {"out": "*bf16:16", "heads": "i32"}, shape, _warps(size)
        )
