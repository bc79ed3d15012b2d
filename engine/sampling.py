"""Draws the next token of a text. Each draw is a function of its row's logits, seed and position alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.choice import uniform
from engine.params import SamplingParams


@dataclass(frozen=True)
class Draw:
    """What decides the draw of one row: its parameters, its seed and the number of tokens drawn before."""

    params: SamplingParams
    seed: int
    position: int


def sample(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
    """Next token of each row of `logits` [rows, vocabulary], float32; -1 where they are not numbers.

    Ties of the likeliest go to the smallest id.
    """
    top, likeliest = logits.max(dim=-1)
    tokens: list[int] = likeliest.tolist()
    for row, draw in enumerate(draws):
        if not math.isfinite(float(top[row])):
            tokens[row] = -1
        elif draw.params.temperature > 0.0:
            tokens[row] = _draw(logits[row] - top[row], draw)
    return tokens


def _draw(logits: Tensor, draw: Draw) -> int:
    params = draw.params
    values = logits / params.temperature
    ids: Tensor | None = None
    if params.top_k or params.top_p < 1.0 or params.min_p > 0.0:
        keep = min(params.top_k, len(values)) if params.top_k else len(values)
        values, ids = torch.sort(values, descending=True, stable=True)
        values = values[:keep]
        weights = torch.softmax(values, dim=-1)
        if params.min_p > 0.0:
            weights = weights[weights >= params.min_p * weights[0]]
            weights = weights / weights.sum()
        if params.top_p < 1.0:
            before = weights.cumsum(0) - weights
            weights = weights[before < params.top_p]
    else:
        weights = torch.softmax(values, dim=-1)
    sums = weights.double().cumsum(0)
    target = uniform(draw.seed, f"token {draw.position}") * float(sums[-1])
    index = min(int(torch.searchsorted(sums, target, right=True)), len(weights) - 1)
    return int(ids[index]) if ids is not None else index
