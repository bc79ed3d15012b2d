"""Weight matrices and what they are multiplied with: the only place that knows how a weight is stored.

Four kinds, chosen by `make_linear`:

- `Linear`: the weight as it is, in the model's dtype.
- `PackedLinear`: on CPU, in the order in which oneDNN multiplies; the same numbers, and a fixed cost
  saved at every product, so that steps of few rows take half the time.
- `Int8Linear`: symmetric int8 with one scale for each output, times activations that are rounded to int8
  with one scale for each row when they come (the W8A8 scheme of vLLM and TensorRT-LLM). The products
  are summed in int32, so a row's result does not depend on the rows beside it.
- `WeightOnlyLinear`: an int8 or int4 weight that is multiplied in the model's dtype, by torchao's kernels.
"""

from collections.abc import Iterator
from typing import Literal, get_args

import torch
from torch import Tensor, addmm
from torch.nn.functional import linear

from engine.errors import ModelLoadError

WeightOnly = Literal["int8_weight_only", "int4_weight_only"]
Quantization = Literal[None, "int8"] | WeightOnly

# Rows of a vocabulary whose logits exist at a time; a GPU wants large products.
_BLOCK, _CUDA_BLOCK = 4096, 32768
_GROUP = 128  # int4 weights that have a scale in common
_LAYOUT_ROWS = 8  # oneDNN lays a weight out for a number of rows, and takes it for every other
_LEVELS = 127.0  # int8 steps on each side of zero
# torch._int_mm on CUDA takes more than 16 rows, and sizes that are multiples of 8.
_CUDA_ROWS, _CUDA_SIZE = 17, 8


class Linear:
    """A dense weight [out, in] with an optional bias [out], in the model's dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, out] from x [rows, in]."""
        return linear(x, self.weight, self.bias)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual [rows, out] plus the product, in one pass over the memory."""
        if self.bias is not None:
            residual = residual + self.bias
        return addmm(residual, x, self.weight.t())


class PackedLinear:
    """`Linear` for the CPU; keeps no copy in the usual order."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _LAYOUT_ROWS)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise.default(
            x, self._weight, self._bias, "none", [], ""
        )
        return product

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        total: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x, residual, self._weight, self._bias, "add"
        )
        return total

    @staticmethod
    def is_possible(device: torch.device, dtype: torch.dtype) -> bool:
        """Whether this torch and this processor have the operator for the dtype."""
        if device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            return False
        mkldnn = torch.ops.mkldnn
        if not all(hasattr(mkldnn, n) for n in ("_reorder_linear_weight", "_linear_pointwise")):
            return False
        if dtype == torch.bfloat16:
            return bool(mkldnn._is_mkldnn_bf16_supported())
        return dtype == torch.float32


class Int8Linear:
    """An int8 weight times activations rounded to int8; x and results are in the model's dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        wide = weight.float()
        scales = wide.abs().amax(dim=1).div_(_LEVELS).clamp_min_(torch.finfo().tiny)
        integers = (wide / scales.unsqueeze(1)).round_().to(torch.int8)
        self._out, self._bias = len(weight), bias
        self._scales = scales
        self._onednn = weight.device.type == "cpu" and _onednn_has_int8()
        if self._onednn:
            self._weight = torch.ops.onednn.qlinear_prepack(integers, None)
            self._zeros = torch.zeros(len(weight), dtype=torch.int64)
        elif weight.device.type == "cuda":
            padding = (0, -integers.shape[1] % _CUDA_SIZE, 0, -integers.shape[0] % _CUDA_SIZE)
            self._weight = torch.nn.functional.pad(integers, padding).t()
        else:
            self._weight = integers.t()

    def __call__(self, x: Tensor) -> Tensor:
        return self.times(*quantise(x))

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        integers, scales = quantise(x)
        if self._bias is not None:
            residual = residual + self._bias
        return torch.addcmul(residual, self._unscaled(integers, x.dtype), scales)

    def times(self, integers: Tensor, scales: Tensor) -> Tensor:
        """The product with what `quantise` made of x."""
        product = self._unscaled(integers, scales.dtype).mul_(scales)
        return product if self._bias is None else product.add_(self._bias)

    def _unscaled(self, integers: Tensor, dtype: torch.dtype) -> Tensor:
        """[rows, out] in `dtype`, with the weight's scales and without those of x."""
        if self._onednn:
            wide = torch.float32 if dtype == torch.float16 else dtype
            # The processor multiplies unsigned by signed bytes: x is moved up by 128, and oneDNN takes
            # that off again. Flipping the highest bit is the cheapest way up.
            moved = integers.bitwise_xor(-128).view(torch.uint8)
            weight, scales, zeros = self._weight, self._scales, self._zeros
            product: Tensor = torch.ops.onednn.qlinear_pointwise.default(
                moved, 1.0, 128, weight, scales, zeros, None, 1.0, 0, wide, "none", [], ""
            )
            return product.to(dtype)
        rows, width = integers.shape
        if integers.is_cuda:
            padding = (0, self._weight.shape[0] - width, 0, max(0, _CUDA_ROWS - rows))
            integers = torch.nn.functional.pad(integers, padding)
        summed = torch._int_mm(integers, self._weight)[:rows, : self._out]
        return (summed * self._scales).to(dtype)


class WeightOnlyLinear:
    """A weight in int8, with a scale for each output, or in int4, with one for each 128 weights of an output. Products
    are in the model's dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None, kind: WeightOnly) -> None:
        """Raises ModelLoadError without torchao, or where int4 is not possible."""
        width = weight.shape[1]
        fits = weight.is_cuda and weight.dtype == torch.bfloat16 and width % _GROUP == 0
        if kind == "int4_weight_only" and not fits:
            raise ModelLoadError(
                f"quantization int4_weight_only needs a CUDA device, bfloat16 and multiples of {_GROUP} "
                f"(here {weight.device.type}, {weight.dtype}, {width}); use int8_weight_only."
            )
        try:
            from torchao.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig, quantize_
        except ImportError:
            raise ModelLoadError(
                f"quantization {kind} needs the package torchao; install 'arena[quantization]' or use int8."
            ) from None
        if kind == "int8_weight_only":
            config = Int8WeightOnlyConfig()
        else:  # the format of torch's own int4 products
            config = Int4WeightOnlyConfig(
                group_size=_GROUP, int4_packing_format="tile_packed_to_4d"
            )
        module = torch.nn.Linear(width, len(weight), bias=False, device="meta")
        module.weight = torch.nn.Parameter(weight, requires_grad=False)
        quantize_(module, config)
        self._weight: Tensor = module.weight
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self._weight, self._bias)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        return residual + self(x)


AnyLinear = Linear | PackedLinear | Int8Linear | WeightOnlyLinear


def make_linear(
    weight: Tensor, bias: Tensor | None = None, quantization: Quantization = None
) -> AnyLinear:
    """The fastest kind for the weight's device and dtype."""
    if quantization == "int8":
        return Int8Linear(weight, bias)
    if quantization is not None:
        return WeightOnlyLinear(weight, bias, quantization)
    if PackedLinear.is_possible(weight.device, weight.dtype):
        return PackedLinear(weight, bias)
    return Linear(weight, bias)


def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [rows, in] as int8 [rows, in] times scales [rows, 1] of x's dtype.

    The scales are rounded first, so that the product has no error but that of the integers.
    """
    wide = x.float()
    scales = wide.abs().amax(dim=1, keepdim=True).div_(_LEVELS).to(x.dtype)
    scales.clamp_min_(torch.finfo(x.dtype).tiny)  # a row of zeros
    return (wide / scales.float()).round_().to(torch.int8), scales


class Head:
    """A weight [vocabulary, in] whose products are also had block by block, or for single tokens."""

    def __init__(
        self, weight: Tensor, quantization: Quantization = None, embedding: Tensor | None = None
    ) -> None:
        """embedding: the weight as it is, where it is kept for another use in any case. Weight-only formats leave a
        vocabulary as it is, where rounding costs most.

        `weight` is what is multiplied with, as one, or None where it is kept in another form.
        """
        self.vocab_size = len(weight)
        self._embedding = embedding
        self._size = _CUDA_BLOCK if weight.is_cuda else _BLOCK
        if quantization in get_args(WeightOnly):
            quantization = None
        self._blocks = [
            make_linear(part, None, quantization) for part in torch.split(weight, self._size)
        ]
        kept = weight if isinstance(self._blocks[0], Linear) else embedding
        self.weight = None if quantization == "int8" else kept

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, vocabulary] from x [rows, in]."""
        return torch.cat([logits for _, logits in self.blocks(x)], dim=1)

    def picked(self, x: Tensor, rows: Tensor, tokens: Tensor) -> Tensor | None:
        """[pairs] in float32: the products of x[rows] with tokens; None where only whole blocks can be had."""
        if self._embedding is None:
            return None
        return (x[rows].float() * self._embedding[tokens].float()).sum(dim=1)

    def blocks(self, x: Tensor) -> Iterator[tuple[int, Tensor]]:
        """(first token, [rows, tokens]) one after the other, so that the whole never exists."""
        operands = quantise(x) if isinstance(self._blocks[0], Int8Linear) else None
        for index, block in enumerate(self._blocks):
            if isinstance(block, Int8Linear):
                assert operands is not None
                yield index * self._size, block.times(*operands)
            else:
                yield index * self._size, block(x)


def _onednn_has_int8() -> bool:
    # Without these instructions the sums of two products are kept in 16 bits, which is too few.
    if not torch.cpu._is_vnni_supported():
        return False
    return hasattr(torch.ops.onednn, "qlinear_pointwise")
