"""Draws the next tokens of texts on the GPU: the draws of `engine.sampling`, without sorting and without waiting.

A program draws for one row. Weights are exp((logit - largest) / temperature), at most 1, whose bits as integers are in
their order: what sorting would show is found by bisection, each step of which adds up the weights from a threshold
on. Floating-point sums of the same order grow with each of their terms, so the bisection never contradicts itself.
Sums are in float32 here and in float64 there: a number that falls that close to the border of two tokens draws the
other.
"""

from collections.abc import Iterator, Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.aot import Variant
from engine.sampling import Draw, sample

_BLOCK, _WARPS = 4096, 8  # tokens that a program takes at a time


@triton.jit
def _from(weights, size, least, BLOCK: tl.constexpr):
    """The sum and the number of the weights [size] that are `least` or more."""
    sums = tl.zeros((BLOCK,), tl.float32)
    counts = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, size, BLOCK):
        at = first + tl.arange(0, BLOCK)
        weight = tl.load(weights + at, mask=at < size, other=-1.0)
        sums += tl.where(weight >= least, weight, 0.0)
        counts += (weight >= least).to(tl.int32)
    return tl.sum(sums, axis=0), tl.sum(counts, axis=0)


@triton.jit
def _around(weights, size, key, BLOCK: tl.constexpr):
    """The sum and the number of the weights [size] above `key`, and the number of those equal to it."""
    sums = tl.zeros((BLOCK,), tl.float32)
    above = tl.zeros((BLOCK,), tl.int32)
    equal = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, size, BLOCK):
        at = first + tl.arange(0, BLOCK)
        weight = tl.load(weights + at, mask=at < size, other=-1.0)
        sums += tl.where(weight > key, weight, 0.0)
        above += (weight > key).to(tl.int32)
        equal += (weight == key).to(tl.int32)
    return tl.sum(sums, axis=0), tl.sum(above, axis=0), tl.sum(equal, axis=0)


@triton.jit
def _last_key(weights, size, least, goal, COUNTED: tl.constexpr, BLOCK: tl.constexpr):
    """The largest weight, `least` or more, from which on the others reach the goal: a number of them, or more than a
    sum."""
    low = least.to(tl.int32, bitcast=True)
    high = tl.cast(0x3F800001, tl.int32)  # just above 1
    while high - low > 1:
        middle = low + (high - low) // 2
        mass, count = _from(weights, size, middle.to(tl.float32, bitcast=True), BLOCK)
        if COUNTED:  # noqa: SIM108 (decided when compiled)
            reached = count >= goal
        else:
            reached = mass > goal
        low = tl.where(reached, middle, low)
        high = tl.where(reached, high, middle)
    return low.to(tl.float32, bitcast=True)


@triton.jit
def _draw_in_order(weights, size, number, BLOCK: tl.constexpr):
    """The token at which the running sum of the weights [size] exceeds number * their sum."""
    total = number * 0.0
    for first in range(0, size, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(weights + at, mask=at < size, other=0.0), axis=0)
    target = tl.minimum(number * total, total * 0.99999988)  # below the sum also when rounded
    token = tl.cast(-1, tl.int32)
    before = number * 0.0
    for first in range(0, size, BLOCK):
        at = first + tl.arange(0, BLOCK)
        weight = tl.load(weights + at, mask=at < size, other=0.0)
        after = before + tl.sum(weight, axis=0)
        if (token < 0) & (after > target):
            running = before + tl.cumsum(weight, axis=0)
            place = tl.sum((running <= target).to(tl.int32), axis=0)
            token = first + tl.minimum(place, tl.minimum(BLOCK, size - first) - 1)
        before = after
    return token


@triton.jit
def _draw_cut(weights, size, number, top_k, top_p, min_p, BLOCK: tl.constexpr):
    """A token of the likeliest: all whose weight is above `key`, and the first `equals` of those equal to it."""
    key = number * 0.0
    equals = size
    if (top_k > 0) & (top_k < size):
        key = _last_key(weights, size, key, top_k, True, BLOCK)
        _, above, _ = _around(weights, size, key, BLOCK)
        equals = top_k - above
    if min_p > key:
        key = min_p
        equals = size
    mass, above, ties = _around(weights, size, key, BLOCK)
    mass += tl.minimum(equals, ties) * key
    if top_p < 1.0:
        goal = top_p * mass
        # As many as are needed to reach the goal: those before the last sum to less.
        edge = _last_key(weights, size, key, tl.minimum(goal, mass * 0.99999988), False, BLOCK)
        before, above, ties = _around(weights, size, edge, BLOCK)
        needed = tl.ceil((goal - before) / edge).to(tl.int32)
        needed = tl.maximum(tl.minimum(needed, ties), 1)
        equals = tl.where(edge > key, needed, tl.minimum(needed, equals))
        key = edge
        mass = before + equals * key
    target = tl.minimum(number * mass, mass * 0.99999988)
    chosen = _last_key(weights, size, key, target, False, BLOCK)
    before, above, ties = _around(weights, size, chosen, BLOCK)
    ties = tl.where(chosen > key, ties, tl.minimum(ties, equals))
    rank = tl.floor((target - before) / chosen).to(tl.int32)
    rank = tl.maximum(tl.minimum(rank, ties - 1), 0)
    token = tl.cast(-1, tl.int32)
    seen = tl.cast(0, tl.int32)
    for first in range(0, size, BLOCK):
        at = first + tl.arange(0, BLOCK)
        equal = (tl.load(weights + at, mask=at < size, other=-1.0) == chosen).to(tl.int32)
        hit = (equal > 0) & (seen + tl.cumsum(equal, axis=0) - 1 == rank)
        token = tl.maximum(token, tl.max(tl.where(hit, at, -1), axis=0))
        seen += tl.sum(equal, axis=0)
    return token


@triton.jit
def _sample_kernel(logits, params, weights, tokens, size, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    logits += row.to(tl.int64) * size
    weights += row.to(tl.int64) * size
    temperature = tl.load(params + row * 5)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    where = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, size, BLOCK):
        at = first + tl.arange(0, BLOCK)
        logit = tl.load(logits + at, mask=at < size, other=float("-inf")).to(tl.float32)
        logit = tl.where(logit == logit, logit, float("inf"))  # so that the largest tells of it
        where = tl.where(logit > top, at, where)
        top = tl.maximum(top, logit)
    largest = tl.max(top, axis=0)
    token = tl.min(tl.where(top == largest, where, size), axis=0)
    if (largest == float("inf")) | (largest == float("-inf")):
        token = tl.cast(-1, tl.int32)
    elif temperature > 0.0:
        temperature = tl.maximum(temperature, 1.1754943508222875e-38)
        for first in range(0, size, BLOCK):
            at = first + tl.arange(0, BLOCK)
            logit = tl.load(logits + at, mask=at < size, other=float("-inf")).to(tl.float32)
            tl.store(weights + at, tl.exp((logit - largest) / temperature), mask=at < size)
        tl.debug_barrier()  # other threads read what was written here
        number = tl.load(params + row * 5 + 1)
        top_k = tl.load(params + row * 5 + 2).to(tl.int32)
        top_p = tl.load(params + row * 5 + 3)
        min_p = tl.load(params + row * 5 + 4)
        if (top_k > 0) | (top_p < 1.0) | (min_p > 0.0):
            token = _draw_cut(weights, size, number, top_k, top_p, min_p, BLOCK)
        else:
            token = _draw_in_order(weights, size, number, BLOCK)
    tl.store(tokens + row, token)


def sample_tokens(logits: Tensor, params: Tensor) -> Tensor:
    """Next token of each row of `logits` [rows, vocabulary]: [rows] int32; -1 where they are not numbers. params: of
    `engine.sampling.pack`, on the same device."""
    rows, size = logits.shape
    weights = torch.empty((rows, size), dtype=torch.float32, device=logits.device)
    tokens = torch.empty(rows, dtype=torch.int32, device=logits.device)
    _sample_kernel[(rows,)](logits, params, weights, tokens, size, _BLOCK, num_warps=_WARPS)
    return tokens


def sample_tokens_twin(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    return torch.tensor(sample(logits.float(), draws), dtype=torch.int32)


def compiled_variants() -> Iterator[Variant]:
    for name in ("bf16", "fp32"):
        signature = {"logits": f"*{name}:16", "params": "*fp32:16", "weights": "*fp32:16"}
        signature |= {"tokens": "*i32:16", "size": "i32:16"}
        yield Variant(_sample_kernel, name, signature, {"BLOCK": _BLOCK}, _WARPS)
