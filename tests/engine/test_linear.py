"""The kinds of weights against a plain product."""

import sys

import pytest
import torch
from torch import Tensor

from engine.errors import ModelLoadError
from engine.linear import Head, Int8Linear, Linear, PackedLinear, make_linear, quantise

ROWS = (1, 8, 17, 300)


def made(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", ROWS)
def test_a_packed_weight_multiplies_like_a_plain_one(dtype: torch.dtype, rows: int) -> None:
    if not PackedLinear.is_possible(torch.device("cpu"), dtype):
        pytest.skip("this processor or torch has no packed product")
    weight, bias = made(48, 40, dtype=dtype), made(48, dtype=dtype, seed=1)
    x, residual = made(rows, 40, dtype=dtype, seed=2), made(rows, 48, dtype=dtype, seed=3)
    for offset in (None, bias):
        plain, packed = Linear(weight, offset), PackedLinear(weight, offset)
        close = {"atol": 0.2, "rtol": 0.02} if dtype == torch.bfloat16 else {}
        torch.testing.assert_close(packed(x), plain(x), **close)
        torch.testing.assert_close(packed.add_to(residual, x), plain.add_to(residual, x), **close)


@pytest.mark.parametrize("missing", ["_linear_pointwise", "_is_mkldnn_bf16_supported"])
def test_without_the_operator_the_weight_stays_plain(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Operators:
        _reorder_linear_weight = None
        _linear_pointwise = None

        @staticmethod
        def _is_mkldnn_bf16_supported() -> bool:
            return False

    if missing == "_linear_pointwise":
        del Operators._linear_pointwise
    monkeypatch.setattr(torch.ops, "mkldnn", Operators)
    assert type(make_linear(made(8, 8, dtype=torch.bfloat16))) is Linear


@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_int8_products_are_those_of_the_rounded_operands(
    onednn: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.linear._onednn_has_int8", lambda: onednn)
    weight, bias = made(48, 40, dtype=dtype), made(48, dtype=dtype, seed=1)
    scales = weight.float().abs().amax(1, keepdim=True) / 127
    rounded = (weight.float() / scales).round() * scales
    for rows in ROWS:
        x, residual = made(rows, 40, dtype=dtype, seed=2), made(rows, 48, dtype=dtype, seed=3)
        x[0] = 0.0
        integers, steps = quantise(x)
        expected = (integers.float() * steps.float()) @ rounded.t()
        close = {"rtol": 2e-5, "atol": 2e-5}
        if dtype != torch.float32:
            close = {"rtol": 0.01, "atol": 0.05}
        for offset in (None, bias):
            plus = 0.0 if offset is None else offset.float()
            product = Int8Linear(weight, offset)
            torch.testing.assert_close(product(x).float(), expected + plus, **close)
            added = product.add_to(residual, x).float()
            torch.testing.assert_close(added, expected + plus + residual.float(), **close)


def test_an_int8_row_does_not_depend_on_its_neighbours() -> None:
    product = Int8Linear(made(64, 96, dtype=torch.bfloat16))
    x = made(300, 96, dtype=torch.bfloat16, seed=1)
    x[7] *= 1000.0
    together = product(x)
    for rows in (1, 8, 37):
        assert torch.equal(product(x[20 : 20 + rows]), together[20 : 20 + rows])


def test_rounding_an_activation_loses_at_most_half_a_step() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = made(64, 96, dtype=dtype, seed=1) * torch.logspace(-2, 2, 64).unsqueeze(1).to(dtype)
        integers, scales = quantise(x)
        assert integers.abs().max() == 127
        off = (integers.float() * scales.float() - x.float()).abs()
        assert bool((off <= 0.502 * scales.float()).all())


def test_values_that_are_no_numbers_stay_so() -> None:
    product = Int8Linear(made(8, 8))
    x = made(2, 8)
    x[0, 3], x[1, 3] = float("nan"), float("inf")
    assert not bool(torch.isfinite(product(x)).any())


@pytest.mark.parametrize("quantization", [None, "int8"])
def test_the_blocks_of_a_head_are_its_whole(quantization: str | None) -> None:
    weight, x = made(9000, 32), made(5, 32, seed=1)
    head = Head(weight, quantization)  # type: ignore[arg-type]
    whole = head(x)
    assert whole.shape == (5, 9000) and head.vocab_size == 9000
    for first, logits in head.blocks(x):
        assert torch.equal(whole[:, first : first + logits.shape[1]], logits)
    torch.testing.assert_close(whole, x @ weight.t(), atol=0.5 if quantization else 1e-4, rtol=0.0)


def test_weight_only_formats_need_torchao_and_int4_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao", None)
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    weight = made(48, 128, dtype=torch.bfloat16)
    with pytest.raises(ModelLoadError, match=r"torchao; install 'arena\[quantization\]'"):
        make_linear(weight, None, "int8_weight_only")
    with pytest.raises(ModelLoadError, match=r"CUDA device.*use int8_weight_only"):
        make_linear(weight, None, "int4_weight_only")
    # A vocabulary stays as it is.
    assert torch.equal(Head(weight, "int8_weight_only")(weight), Head(weight)(weight))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_int8_weight_leaves_activations_alone(dtype: torch.dtype) -> None:
    pytest.importorskip("torchao")
    weight, bias = made(48, 64, dtype=dtype), made(48, dtype=dtype, seed=1)
    x, residual = made(5, 64, dtype=dtype, seed=2), made(5, 48, dtype=dtype, seed=3)
    linear = make_linear(weight.clone(), bias, "int8_weight_only")
    # Half a step of the weights' scale at most, for each of them.
    steps = weight.double().abs().amax(dim=1) / 127
    bound = 0.55 * steps * x.double().abs().sum(dim=1, keepdim=True)
    exact = x.double() @ weight.double().t() + bias.double()
    slack = 0.0 if dtype == torch.float32 else 0.02
    assert ((linear(x).double() - exact).abs() <= bound + slack * exact.abs() + slack).all()
    total = linear.add_to(residual, x)
    torch.testing.assert_close(total, residual + linear(x))
