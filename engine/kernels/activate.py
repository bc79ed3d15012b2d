"""The gate of an MLP: the activated first half of a row times its second."""

from collections.abc import Iterator

import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import gelu, silu

from engine.kernels.aot import Variant

_BLOCK = 1024


@triton.jit
def tanh(x):
    """The hyperbolic tangent of float32, within 2e-7; nothing overflows."""
    below = tl.exp(-2.0 * tl.abs(x))
    size = (1.0 - below) / (1.0 + below)
    return tl.where(x < 0.0, -size, size)


@triton.jit
def _activate_kernel(gate_up, out, size, SILU: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    gate = tl.load(gate_up + row * 2 * size + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + (row * 2 + 1) * size + at, mask=inside, other=0.0).to(tl.float32)
    if SILU:
        gate = gate / (1.0 + tl.exp(-gate))
    else:
        # The constant is sqrt(2 / pi).
        gate = (
            0.5 * gate * (1.0 + tanh(0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)))
        )
    gate = gate.to(out.dtype.element_ty).to(tl.float32)
    tl.store(out + row * size + at, (gate * up).to(out.dtype.element_ty), mask=inside)


def activate(gate_up: Tensor, activation: str) -> Tensor:
    """[rows, size] from gate_up [rows, 2 * size]. activation: silu or gelu_pytorch_tanh."""
    rows, size = len(gate_up), gate_up.shape[1] // 2
    out = gate_up.new_empty((rows, size))
    grid = rows, triton.cdiv(size, _BLOCK)
    _activate_kernel[grid](gate_up, out, size, activation == "silu", _BLOCK, num_warps=4)
    return out


def activate_twin(gate_up: Tensor, activation: str) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return (silu(gate) if activation == "silu" else gelu(gate, approximate="tanh")) * up


def compiled_variants() -> Iterator[Variant]:
    for silu_ in (True, False):
        signature = {"gate_up": "*bf16:16", "out": "*bf16:16", "size": "i32:16"}
        config = f"{'silu' if silu_ else 'gelu'}, bf16"
        yield Variant(_activate_kernel, config, signature, {"SILU": silu_, "BLOCK": _BLOCK})
