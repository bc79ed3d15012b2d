"""Triton's interpreter does with bfloat16 what GPUs do not; these tests are about what GPUs do.

It cuts float32 off where it is to be rounded, and multiplies matrices of bfloat16 as if they were integers.
"""

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

_cast, _dot = InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot


def _rounding_cast(self: InterpreterBuilder, src: TensorHandle, kind: Any) -> TensorHandle:
    if (src.dtype.scalar, kind.scalar) != (tl.float32, tl.bfloat16):
        return _cast(self, src, kind)
    rounded = torch.from_numpy(np.array(src.data, dtype=np.float32)).to(torch.bfloat16)
    return TensorHandle(rounded.view(torch.int16).numpy().view(np.uint16), kind.scalar)


def _bfloat16_dot(
    self: InterpreterBuilder, a: TensorHandle, b: TensorHandle, *rest: Any
) -> TensorHandle:
    if a.dtype.scalar == tl.bfloat16:
        a, b = (self.cast_impl(part, tl.float32) for part in (a, b))
    return _dot(self, a, b, *rest)


InterpreterBuilder.cast_impl = _rounding_cast
InterpreterBuilder.create_dot = _bfloat16_dot
assert triton.knobs.runtime.interpret, "TRITON_INTERPRET was unset after tests/conftest.py"
