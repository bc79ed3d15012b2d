"""Norms and activations under Triton's interpreter, against the torch twins.

Tolerances: float32 2e-6 of the largest element; bfloat16 one step of it (2^-8 of each element), where sums of another
order fall to the other side of a half.
"""

import pytest
import torch

from engine.kernels.activate import activate, activate_twin
from engine.kernels.norm import add_norm, add_norm_twin, norm, norm_twin

EPS = 1e-5
both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    relative = 2e-6 if actual.dtype == torch.float32 else 2**-7
    bound = relative * expected.float().abs() + 2e-6 * expected.float().abs().max()
    assert bool(((actual.float() - expected.float()).abs() <= bound).all())


@both_dtypes
@pytest.mark.parametrize("weight_dtype", [None, torch.float32], ids=["plain", "gemma"])
@pytest.mark.parametrize(("rows", "size"), [(1, 576), (5, 32), (3, 2048), (2, 1000), (1, 5376)])
def test_norm(rows: int, size: int, dtype: torch.dtype, weight_dtype: torch.dtype | None) -> None:
    x = normal(rows, size, dtype=dtype) * 3
    weight = 1 + 0.2 * normal(size, dtype=weight_dtype or dtype)
    assert_close(norm(x, weight, EPS), norm_twin(x, weight, EPS))


@both_dtypes
@pytest.mark.parametrize("twofold", [False, True])
@pytest.mark.parametrize(("rows", "size"), [(1, 576), (4, 96), (2, 2048)])
def test_sum_and_its_norm(rows: int, size: int, dtype: torch.dtype, twofold: bool) -> None:
    x, residual = normal(rows, size, dtype=dtype), normal(size, rows, dtype=dtype).T.contiguous()
    first = 1 + 0.2 * normal(size) if twofold else None
    weight = 1 - 0.2 * normal(size, dtype=torch.float32 if twofold else dtype)
    actual = add_norm(x, residual, first, weight, EPS)
    for one, other in zip(actual, add_norm_twin(x, residual, first, weight, EPS), strict=True):
        assert_close(one, other)


def test_zeros_and_huge_numbers_are_normed_and_what_is_no_number_stays_none() -> None:
    x = torch.stack([torch.zeros(64), torch.full((64,), 1e18), normal(64)])
    x[2, 3] = float("nan")
    actual = norm(x, torch.ones(64), EPS)
    assert bool((actual[0] == 0).all())
    assert torch.allclose(actual[1], torch.ones(64))
    assert bool(actual[2].isnan().all())


@both_dtypes
@pytest.mark.parametrize("name", ["silu", "gelu_pytorch_tanh"])
@pytest.mark.parametrize(("rows", "size"), [(1, 64), (3, 1536), (2, 1100)])
def test_activation(rows: int, size: int, name: str, dtype: torch.dtype) -> None:
    x = normal(rows, 2 * size, dtype=dtype) * 4
    assert_close(activate(x, name), activate_twin(x, name))


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("name", ["silu", "gelu_pytorch_tanh"])
def test_activation_of_large_numbers_is_that_of_torch(name: str) -> None:
    x = torch.tensor([[-1e4, -100.0, -20.0, 0.0, 20.0, 100.0, 1e4, 3e4] + [1.0] * 8])
    assert torch.allclose(activate(x, name), activate_twin(x, name), rtol=1e-6, atol=1e-6)


@both_dtypes
def test_a_row_has_the_same_bits_alone_and_in_a_batch(dtype: torch.dtype) -> None:
    x, residual, weight = normal(7, 576, dtype=dtype), normal(7, 576, dtype=dtype), normal(576)
    for row in (0, 6):
        one = slice(row, row + 1)
        assert torch.equal(norm(x, weight, EPS)[one], norm(x[one], weight, EPS))
        many = add_norm(x, residual, weight, weight, EPS)
        alone = add_norm(x[one], residual[one], weight, weight, EPS)
        assert all(torch.equal(a[one], b) for a, b in zip(many, alone, strict=True))
        assert torch.equal(activate(x, "silu")[one], activate(x[one], "silu"))
