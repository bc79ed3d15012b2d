"""Triton's interpreter cuts float32 off where GPUs round it to bfloat16; these tests are about what GPUs do."""

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

_cast = InterpreterBuilder.cast_impl


def _round(self: InterpreterBuilder, src: TensorHandle, kind: Any) -> TensorHandle:
    if (src.dtype.scalar, kind.scalar) != (tl.float32, tl.bfloat16):
        return _cast(self, src, kind)
    rounded = torch.from_numpy(np.array(src.data, dtype=np.float32)).to(torch.bfloat16)
    return TensorHandle(rounded.view(torch.int16).numpy().view(np.uint16), kind.scalar)


InterpreterBuilder.cast_impl = _round
assert triton.knobs.runtime.interpret, "TRITON_INTERPRET was unset after tests/conftest.py"
