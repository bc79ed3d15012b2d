"""Log probabilities of a few tokens under Triton's interpreter, against the torch twin.

Tolerances: 2e-5 for float32 and bfloat16 alike, whose products are exact in float32; only the order of sums differs.
"""

import pytest
import torch

from engine.kernels.choice import (
    edge_logits,
    edge_logits_twin,
    edge_logprobs,
    edge_logprobs_twin,
)

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(
    count: int, vocabulary: int, width: int, pairs: int, dtype: torch.dtype = torch.float32
) -> Inputs:
    generator = torch.Generator().manual_seed(count + vocabulary + width)
    hidden = torch.randn((count, width), generator=generator)
    weight = torch.randn((vocabulary, width), generator=generator) * 4 / width**0.5
    rows = torch.randint(count, (pairs,), generator=generator)
    tokens = torch.randint(vocabulary, (pairs,), generator=generator)
    tokens[:2] = torch.tensor([0, vocabulary - 1])[: len(tokens)]
    return hidden.to(dtype), weight.to(dtype), rows, tokens


@pytest.mark.parametrize(
    ("count", "vocabulary", "width", "pairs", "dtype"),
    [
        (1, 1, 32, 1, torch.float32),
        (1, 257, 64, 3, torch.bfloat16),
        (3, 400, 32, 17, torch.float32),
        (5, 1009, 96, 40, torch.bfloat16),
        (70, 300, 40, 90, torch.float32),
        (2, 255, 576, 1, torch.float16),
    ],
)
@pytest.mark.parametrize("softcap", [None, 3.0])
def test_scores_are_those_of_the_whole_softmax(
    count: int,
    vocabulary: int,
    width: int,
    pairs: int,
    dtype: torch.dtype,
    softcap: float | None,
) -> None:
    given = inputs(count, vocabulary, width, pairs, dtype)
    actual = edge_logprobs(*given, softcap)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, edge_logprobs_twin(*given, softcap), rtol=1e-5, atol=2e-5)
    assert bool((actual <= 0).all())
    actual = edge_logits(*given, softcap)
    torch.testing.assert_close(actual, edge_logits_twin(*given, softcap), rtol=1e-5, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", [32_000, 33_001])
def test_scores_over_more_parts_than_are_merged_at_a_time(vocabulary: int) -> None:
    given = inputs(2, vocabulary, 64, 5, torch.bfloat16)
    expected = edge_logprobs_twin(*given)
    torch.testing.assert_close(edge_logprobs(*given), expected, rtol=1e-5, atol=2e-5)


def test_no_pairs_are_no_work() -> None:
    given = inputs(3, 400, 32, 0)
    assert edge_logprobs(*given).shape == edge_logits(*given).shape == (0,)


def test_probabilities_of_all_tokens_add_up_to_one() -> None:
    hidden, weight, _, _ = inputs(2, 300, 32, 1)
    rows, tokens = torch.arange(2).repeat_interleave(300), torch.arange(300).repeat(2)
    sums = edge_logprobs(hidden, weight, rows, tokens).view(2, 300).exp().sum(dim=1)
    torch.testing.assert_close(sums, torch.ones(2), rtol=0, atol=1e-5)


def test_logits_far_apart_lose_nothing() -> None:
    hidden = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    weight = torch.zeros((600, 4))
    weight[:, 0] = torch.linspace(-300, 300, 600)
    weight[300:, 1] = -1e4
    rows, tokens = torch.tensor([0, 0, 1, 1]), torch.tensor([599, 0, 5, 400])
    actual = edge_logprobs(hidden, weight, rows, tokens)
    expected = edge_logprobs_twin(hidden, weight, rows, tokens)
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.filterwarnings("ignore:All-NaN")
def test_what_is_no_number_stays_none_in_its_row_alone() -> None:
    hidden, weight, _, _ = inputs(3, 300, 32, 1)
    hidden[1, 5] = float("nan")
    rows, tokens = torch.tensor([0, 1, 2]), torch.tensor([7, 7, 7])
    assert edge_logprobs(hidden, weight, rows, tokens).isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_pair_has_the_same_bits_alone_and_in_a_batch(dtype: torch.dtype) -> None:
    hidden, weight, rows, tokens = inputs(67, 700, 64, 50, dtype)
    together = edge_logprobs(hidden, weight, rows, tokens)
    logits = edge_logits(hidden, weight, rows, tokens)
    for pair in (0, 33, 49):
        one, zero = slice(pair, pair + 1), torch.zeros(1, dtype=torch.int64)
        row = hidden[rows[one]]
        assert torch.equal(edge_logprobs(row, weight, zero, tokens[one]), together[one])
        assert torch.equal(edge_logits(row, weight, zero, tokens[one]), logits[one])
