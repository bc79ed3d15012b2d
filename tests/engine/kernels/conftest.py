"""Triton's interpreter does with bfloat16 what GPUs do not; these tests are about what GPUs do.

It cuts float32 off where it is to be rounded, makes garbage of integers that become bfloat16, multiplies matrices of
bfloat16 as if they were integers, and gives a row of a product bits that depend on its place.
"""

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

_cast = InterpreterBuilder.cast_impl


def _rounding_cast(self: InterpreterBuilder, src: TensorHandle, kind: Any) -> TensorHandle:
    if kind.scalar != tl.bfloat16 or src.dtype.scalar == tl.bfloat16:
        return _cast(self, src, kind)
    if src.dtype.scalar != tl.float32:
        src = _cast(self, src, tl.float32)
    rounded = torch.from_numpy(np.array(src.data, dtype=np.float32)).to(torch.bfloat16)
    return TensorHandle(rounded.view(torch.int16).numpy().view(np.uint16), kind.scalar)


def _exact_dot(
    self: InterpreterBuilder, a: TensorHandle, b: TensorHandle, added: TensorHandle, *rest: Any
) -> TensorHandle:
    # numpy's product gives a row other bits at another place of the matrix, which a GPU's does not.
    wide = [self.cast_impl(part, tl.float32).data.astype(np.float64) for part in (a, b)]
    product = (wide[0] @ wide[1]).astype(np.float32)
    return TensorHandle(product + added.data, added.dtype.scalar)


InterpreterBuilder.cast_impl = _rounding_cast
InterpreterBuilder.create_dot = _exact_dot
assert triton.knobs.runtime.interpret, "TRITON_INTERPRET was unset after tests/conftest.py"
