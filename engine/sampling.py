"""Draws the next tokens of texts, all rows of a step at once.

A draw is a function of its row's logits, seed and position alone: every sum below runs along one row, in the order
of its columns. The number drawn from (seed, position) is looked up in the running sum of the weights (inverse
transform sampling): in the order of tokens where all may be drawn, else from the likeliest on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.choice import uniform
from engine.params import SamplingParams

_CANDIDATES = (
    256,
    4096,
)  # likeliest tokens that are ordered, one try after the other; then all are
_BLOCK = (
    256  # tokens in one running sum: adding up a whole vocabulary would need float64 throughout
)


@dataclass(frozen=True)
class Draw:
    """What decides the draw of one row: its parameters, its seed and the number of tokens drawn before."""

    params: SamplingParams
    seed: int
    position: int

    @property
    def is_cut(self) -> bool:
        """Whether some tokens are never drawn."""
        params = self.params
        return bool(params.top_k) or params.top_p < 1.0 or params.min_p > 0.0

    @property
    def number(self) -> float:
        """In (0, 1), a function of seed and position."""
        return uniform(self.seed, f"token {self.position}")


def pack(draws: Sequence[Draw]) -> npt.NDArray[np.float32]:
    """[rows, 5] for a kernel: temperature, number, top_k, top_p and min_p of each draw."""
    rows = [
        (d.params.temperature, d.number, d.params.top_k, d.params.top_p, d.params.min_p)
        for d in draws
    ]
    return np.array(rows, dtype=np.float32)


def sample(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
    """Next token of each row of `logits` [rows, vocabulary], float32; -1 where they are not numbers.

    min_p is relative to the likeliest token and top_p to what top_k and min_p leave. Of equal tokens the one with
    the smallest id counts as the likeliest.
    """
    top, likeliest = logits.max(dim=-1, keepdim=True)
    tokens = likeliest[:, 0]
    whole = [i for i, d in enumerate(draws) if d.params.temperature > 0.0 and not d.is_cut]
    cut = [i for i, d in enumerate(draws) if d.params.temperature > 0.0 and d.is_cut]
    for indices, draw in ((whole, _draw), (cut, _draw_cut)):
        if indices:
            rows = torch.tensor(indices, device=logits.device)
            chosen = [draws[i] for i in indices]
            heat = _column(chosen, lambda d: d.params.temperature, rows.device).float()
            heat.clamp_min_(torch.finfo(torch.float32).tiny)
            tokens[rows] = draw((logits[rows] - top[rows]).div_(heat), chosen)
    found: list[int] = tokens.masked_fill_(~top[:, 0].isfinite(), -1).tolist()
    return found


def _draw(values: Tensor, draws: Sequence[Draw]) -> Tensor:
    """[rows] tokens from softmax(values [rows, vocabulary])."""
    weights = torch.softmax(values, dim=-1)
    weights = torch.nn.functional.pad(weights, (0, -weights.shape[1] % _BLOCK))
    within = weights.view(len(weights), -1, _BLOCK).cumsum(dim=-1)
    ends = within[:, :, -1].double().cumsum(dim=-1)
    target = _numbers(draws, ends.device) * ends[:, -1:]
    block = _search(ends, target)
    before = torch.nn.functional.pad(ends, (1, 0)).gather(1, block)
    within = within.take_along_dim(block.unsqueeze(2), dim=1)[:, 0].double()
    token = block * _BLOCK + _search(within, target - before)
    return token[:, 0].clamp_max_(values.shape[1] - 1)


def _draw_cut(values: Tensor, draws: Sequence[Draw]) -> Tensor:
    """`_draw` within top_k, min_p and top_p."""
    weights = torch.softmax(values, dim=-1)
    tokens = values.new_empty(len(values), dtype=torch.int64)
    left = torch.arange(len(values), device=values.device)
    for size in (*_CANDIDATES, values.shape[1]):
        part = values[left]
        if size < values.shape[1]:
            # By id, then by value: equal ones stay in the order of their ids.
            ids = part.topk(size, dim=-1, sorted=False).indices.sort(dim=-1).values
            ordered, order = part.gather(1, ids).sort(dim=-1, descending=True, stable=True)
            ids = ids.gather(1, order)
        else:
            ordered, ids = part.sort(dim=-1, descending=True, stable=True)
        rest = [draws[i] for i in left.tolist()]
        tokens[left], decided = _draw_ordered(ordered, ids, weights[left], rest)
        left = left[~decided]
        if not len(left):
            break
    return tokens


def _draw_ordered(
    values: Tensor, ids: Tensor, weights: Tensor, draws: Sequence[Draw]
) -> tuple[Tensor, Tensor]:
    """Tokens [rows] from the likeliest, with their values and ids [rows, candidates] in order; and which of
    them [rows] more candidates would not change. weights: of all [rows, vocabulary]."""
    size, device = weights.shape[1], weights.device
    top_k = _column(draws, lambda d: d.params.top_k or size, device)
    top_p = _column(draws, lambda d: d.params.top_p, device)
    min_p = _column(draws, lambda d: d.params.min_p, device)
    weights = weights.gather(1, ids).double()
    sums = weights.cumsum(dim=-1)
    ranks = torch.arange(ids.shape[1], device=device)
    kept = (ranks < top_k) & (weights >= min_p * weights[:, :1])
    limited = (top_k < size) | (min_p > 0.0)
    count = kept.sum(dim=-1, keepdim=True).clamp_min_(1)
    mass = torch.where(limited, sums.gather(1, count - 1), 1.0)
    nucleus = kept & (sums - weights < top_p * mass)
    num_drawn = nucleus.sum(dim=-1, keepdim=True).clamp_min_(1)
    target = _numbers(draws, device) * sums.gather(1, num_drawn - 1)
    place = torch.minimum(_search(sums, target), num_drawn - 1)
    # The next candidates are no likelier than the last one here: they matter only if they may equal what is kept.
    last = values.gather(1, torch.where(limited, count, num_drawn) - 1)
    decided = (last[:, 0] > values[:, -1]) | (ids.shape[1] == size)
    return ids.gather(1, place)[:, 0], decided


def _search(sums: Tensor, target: Tensor) -> Tensor:
    """[rows, 1]: the first column of running sums [rows, columns] above target [rows, 1]; the last if none is."""
    return torch.searchsorted(sums, target, right=True).clamp_max_(sums.shape[1] - 1)


def _numbers(draws: Sequence[Draw], device: torch.device) -> Tensor:
    return _column(draws, lambda d: d.number, device)


def _column(draws: Sequence[Draw], of: Callable[[Draw], float], device: torch.device) -> Tensor:
    return torch.tensor([[of(d)] for d in draws], dtype=torch.float64).to(device)
