"""Drawing the tokens of a step: as each row alone and one at a time, with every mixture of parameters."""

import random
from typing import Any

import numpy as np
import torch

from engine import SamplingParams
from engine.choice import uniform
from engine.sampling import Draw, sample


def expected(logits: torch.Tensor, draw: Draw) -> int:
    """One row the plain way: all tokens in order, in float64."""
    params = draw.params
    values = logits.double().numpy()
    if params.temperature == 0.0:
        return int(values.argmax())
    weights = np.exp((values - values.max()) / params.temperature)
    ids = np.arange(len(values))
    if draw.is_cut:
        ids = np.argsort(-values, kind="stable")[: params.top_k or None]
        ids = ids[weights[ids] >= params.min_p]
        share = weights[ids] / weights[ids].sum()
        ids = ids[share.cumsum() - share < params.top_p]
    sums = weights[ids].cumsum()
    target = uniform(draw.seed, f"token {draw.position}") * sums[-1]
    return int(ids[np.searchsorted(sums, target, side="right")])


def mixed_draws(count: int, rng: random.Random) -> list[Draw]:
    def pick(*values: float) -> float:
        return rng.choice(values)

    return [
        Draw(
            SamplingParams(
                temperature=pick(0, 0.3, 0.7, 1, 1.5, 4),
                top_k=int(pick(0, 0, 1, 5, 300, 5000, 10**6)),
                top_p=pick(1, 1, 0.3, 0.9, 0.99),
                min_p=pick(0, 0, 0.01, 0.2),
            ),
            rng.getrandbits(40),
            rng.randrange(100),
        )
        for _ in range(count)
    ]


def test_a_step_draws_what_each_row_alone_would_with_every_mixture_of_parameters() -> None:
    rng = random.Random(1)
    for vocabulary in (9000, 257, 3):
        logits = torch.randn(60, vocabulary, generator=torch.Generator().manual_seed(2)) * 3
        draws = mixed_draws(60, rng)
        drawn = sample(logits, draws)
        assert [sample(logits[i : i + 1], [draws[i]])[0] for i in range(60)] == drawn
        plain = [expected(row, draw) for row, draw in zip(logits, draws, strict=True)]
        # A number that falls between two tokens to the last digit may go to either.
        assert sum(a != b for a, b in zip(drawn, plain, strict=True)) <= 1


def test_equal_tokens_are_cut_in_the_order_of_their_ids() -> None:
    logits = torch.zeros(1, 9000)
    logits[0, 7000:7400] = 1.0
    for top_k, last in ((3, 7002), (300, 7299), (400, 7399)):
        draws = [Draw(SamplingParams(top_k=top_k), seed, 0) for seed in range(4 * top_k)]
        found = sample(logits.expand(len(draws), -1), draws)
        assert (min(found), max(found) > last - 10, max(found) <= last) == (7000, True, True)


def test_a_row_that_is_not_numbers_is_told_and_harms_no_other() -> None:
    logits = torch.randn(6, 500, generator=torch.Generator().manual_seed(3))
    bad = logits.clone()
    bad[1, 7] = float("nan")
    bad[2] = float("-inf")
    bad[3, 0] = float("inf")
    every: list[dict[str, Any]] = [{}, {"temperature": 0.0}, {"top_p": 0.9}, {"top_k": 4}]
    for limits in every:
        draws = [Draw(SamplingParams(**limits), 5, i) for i in range(6)]
        good = sample(logits, draws)
        assert sample(bad, draws) == [good[0], -1, -1, -1, good[4], good[5]]


def test_a_token_of_no_probability_is_never_drawn() -> None:
    logits = torch.full((1, 1000), float("-inf"))
    logits[0, [255, 256, 999]] = 0.0
    every: list[dict[str, Any]] = [{}, {"top_p": 0.999}, {"min_p": 0.5}]
    for limits in every:
        draws = [Draw(SamplingParams(**limits), seed, 0) for seed in range(100)]
        assert {sample(logits, [draw])[0] for draw in draws} == {255, 256, 999}
