"""Drawing tokens under Triton's interpreter: the draws of `engine.sampling`, which is the twin.

Sums are in float32 and not in float64, so a draw may differ where its number falls to the last digits between two
tokens: at most 1 row a test here.
"""

import random
from typing import Any

import pytest
import torch

from engine import SamplingParams
from engine.kernels.sampling import sample_tokens, sample_tokens_twin
from engine.sampling import Draw, pack
from tests.engine.test_sampling import mixed_draws


def sampled(logits: torch.Tensor, draws: list[Draw]) -> list[int]:
    tokens: list[int] = sample_tokens(logits, torch.from_numpy(pack(draws))).tolist()
    return tokens


def normal(rows: int, size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows + size)
    return (torch.randn((rows, size), generator=generator) * 3).to(dtype)


@pytest.mark.parametrize(
    ("rows", "size", "dtype"),
    [
        (8, 257, torch.float32),
        (8, 600, torch.bfloat16),
        (2, 1, torch.float32),
        pytest.param(40, 4500, torch.bfloat16, marks=pytest.mark.slow),
    ],
)
def test_draws_are_those_of_torch_with_every_mixture_of_parameters(
    rows: int, size: int, dtype: torch.dtype
) -> None:
    # Weights of bfloat16 logits are often equal, so that cuts fall among them.
    logits, draws = normal(rows, size, dtype), mixed_draws(rows, random.Random(size))
    expected = sample_tokens_twin(logits, draws).tolist()
    assert sum(a != b for a, b in zip(sampled(logits, draws), expected, strict=True)) <= 1


@pytest.mark.slow
def test_many_draws_are_those_of_torch() -> None:
    logits, draws = normal(200, 3001), mixed_draws(200, random.Random(7))
    expected = sample_tokens_twin(logits, draws).tolist()
    assert sum(a != b for a, b in zip(sampled(logits, draws), expected, strict=True)) <= 1


def test_equal_tokens_are_cut_in_the_order_of_their_ids() -> None:
    logits = torch.zeros(1, 900)
    logits[0, 400:800] = 1.0
    for params, last in (
        (SamplingParams(top_k=3), 402),
        (SamplingParams(top_k=300), 699),
        (SamplingParams(top_k=400, top_p=0.5), 599),
    ):
        draws = [Draw(params, seed, 0) for seed in range(2)]
        found = sampled(logits.expand(len(draws), -1).contiguous(), draws)
        assert min(found) >= 400 and max(found) <= last
        assert found == sample_tokens_twin(logits.expand(len(draws), -1), draws).tolist()


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
def test_a_row_that_is_not_numbers_is_told_and_harms_no_other() -> None:
    logits = normal(5, 500)
    bad = logits.clone()
    bad[1, 7], bad[2], bad[3, 0] = float("nan"), float("-inf"), float("inf")
    every: list[dict[str, Any]] = [{}, {"temperature": 0.0}, {"top_k": 4}]
    for limits in every:
        draws = [Draw(SamplingParams(**limits), 5, i) for i in range(5)]
        good = sampled(logits, draws)
        assert sampled(bad, draws) == [good[0], -1, -1, -1, good[4]]


def test_a_token_of_no_probability_is_never_drawn() -> None:
    logits = torch.full((8, 900), float("-inf"))
    logits[:, [255, 256, 600]] = 0.0
    every: list[dict[str, Any]] = [{}, {"min_p": 0.5}, {"temperature": 1e-40}]
    for limits in every:
        draws = [Draw(SamplingParams(**limits), seed, 0) for seed in range(8)]
        assert set(sampled(logits, draws)) == {255, 256, 600}


def test_numbers_at_the_ends_draw_the_first_and_the_last_token() -> None:
    logits = normal(1, 300)
    order = torch.argsort(logits[0], descending=True).tolist()
    ends = {0.0: 0, 1.0: 299}
    for number, token in ends.items():
        for params, expected in (([1.0, number, 0, 1, 0], token), ([1.0, number, 40, 1, 0], None)):
            found = sample_tokens(logits, torch.tensor([params]))
            likeliest = order[0] if number == 0.0 else order[39]
            assert found.tolist() == [likeliest if expected is None else expected]


def test_a_row_draws_the_same_alone_and_in_a_batch() -> None:
    logits, draws = normal(3, 700), mixed_draws(3, random.Random(3))
    together = sampled(logits, draws)
    assert [sampled(logits[i : i + 1], [draws[i]])[0] for i in range(3)] == together
