"""Writing to and reading from a cache of 8 bits, under Triton's interpreter, against the torch twins."""

import pytest
import torch

from engine.kernels.quantize import (
    read_vectors,
    read_vectors_twin,
    write_vectors,
    write_vectors_twin,
)

SLOTS = 40
both_kinds = pytest.mark.parametrize("kept", [torch.int8, torch.float8_e4m3fn], ids=["int8", "fp8"])


def empty_cache(heads: int, size: int, kept: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    data = torch.zeros((SLOTS, heads, size), dtype=torch.int8).view(kept)
    return data, torch.zeros((SLOTS, heads, 1), dtype=torch.bfloat16)


def vectors(rows: int, heads: int, size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows + heads + size)
    scales = torch.logspace(-4, 3, rows * heads).view(rows, heads, 1)
    return (torch.randn((rows, heads, size), generator=generator) * scales).to(dtype)


def some_slots(rows: int) -> torch.Tensor:
    return torch.randperm(SLOTS, generator=torch.Generator().manual_seed(rows))[:rows]


@both_kinds
@pytest.mark.parametrize(
    ("rows", "heads", "size", "dtype"),
    [
        (1, 1, 64, torch.float32),
        (7, 6, 64, torch.bfloat16),
        (2, 16, 128, torch.float32),
        (3, 5, 96, torch.float16),
        (2, 3, 256, torch.bfloat16),
    ],
)
def test_the_same_bytes_are_kept_and_read_as_in_torch(
    rows: int, heads: int, size: int, dtype: torch.dtype, kept: torch.dtype
) -> None:
    given, slots = vectors(rows, heads, size, dtype), some_slots(rows)
    data, scales = empty_cache(heads, size, kept)
    expected, expected_scales = empty_cache(heads, size, kept)
    write_vectors(given, slots, data, scales)
    write_vectors_twin(given, slots, expected, expected_scales)
    assert torch.equal(data.view(torch.int8), expected.view(torch.int8))
    assert torch.equal(scales, expected_scales)
    back = read_vectors(slots, data, scales, dtype)
    assert back.dtype == dtype
    assert torch.equal(back, read_vectors_twin(slots, data, scales, dtype))


def test_every_number_of_fp8_and_every_half_way_between_is_rounded_as_in_torch() -> None:
    codes = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    halves = (codes[1:] + codes[:-1]) / 2
    beside = [torch.nextafter(halves, torch.tensor(s)) for s in (0.0, 448.0)]
    given = torch.cat([codes, halves, *beside])
    given = torch.cat([given, -given])
    given = torch.nn.functional.pad(given, (0, -len(given) % 63)).view(-1, 1, 63)
    given = torch.cat([given, torch.full((len(given), 1, 1), 448.0)], dim=2)  # a scale of 1
    data, scales = empty_cache(1, 64, torch.float8_e4m3fn)
    slots = torch.arange(len(given))
    write_vectors(given, slots, data, scales)
    assert bool((scales[: len(given)] == 1).all())
    assert torch.equal(data[: len(given)].float(), given.to(torch.float8_e4m3fn).float())
    assert torch.equal(read_vectors(slots, data, scales, torch.float32), data[slots].float())


@both_kinds
@pytest.mark.filterwarnings("ignore:invalid value")
def test_zeros_and_the_smallest_numbers_come_back_and_no_number_comes_back_as_none(
    kept: torch.dtype,
) -> None:
    given = vectors(6, 2, 64)
    given[0] = 0.0
    given[1] = 1e-42
    given[2, 0, 3], given[3, 1, 4] = float("nan"), float("-inf")
    given[4] = 3e38
    data, scales = empty_cache(2, 64, kept)
    slots = some_slots(6)
    write_vectors(given, slots, data, scales)
    back = read_vectors(slots, data, scales, torch.float32)
    assert bool((back[0] == 0).all())
    assert not bool(torch.isfinite(back[2, 0]).any()) and bool(torch.isfinite(back[2, 1]).all())
    assert not bool(torch.isfinite(back[3, 1]).any()) and bool(torch.isfinite(back[3, 0]).all())
    finite = [1, 4]
    assert torch.allclose(back[finite], given[finite], rtol=0.07, atol=1e-38)


@both_kinds
def test_a_vector_is_kept_alike_alone_and_among_others(kept: torch.dtype) -> None:
    given = vectors(5, 3, 64)
    data, scales = empty_cache(3, 64, kept)
    alone, alone_scales = empty_cache(3, 64, kept)
    write_vectors(given, torch.arange(5), data, scales)
    write_vectors(given[4:], torch.tensor([4]), alone, alone_scales)
    assert torch.equal(data[4].view(torch.int8), alone[4].view(torch.int8))
    assert torch.equal(scales[4], alone_scales[4])
