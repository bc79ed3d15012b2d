"""Log probabilities of a few tokens without the logits of the others ever being in memory.

The vocabulary is split into parts of fixed size. A program multiplies 64 rows with one part and keeps the largest logit
and the sum of the exponentials; the program of a pair (row, token) merges those of its row in the order of the
parts. There are no atomic operations, and no size depends on the number of rows, so a row's result has the same
bits in every batch. Logits are in float32 throughout, where the torch path rounds them to the model's dtype.
"""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.activate import tanh
from engine.kernels.aot import Variant

_PART = (
    256  # tokens of one program: as many programs as a large GPU holds at a time, for 50,000 tokens
)
_ROWS = 64  # rows of one program, few or many: products of other sizes may sum in another order
_PAIRS, _PARTS, _DEPTH = (
    16,
    128,
    128,
)  # of a program that merges: pairs, parts at a time, width at a time


@triton.jit
def _sums_kernel(
    hidden, weight, tops, sums, rows, vocabulary, width, softcap, parts,
    CAPPED: tl.constexpr, PART: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    # Programs of the same part are beside each other, so that its weights are read once from memory.
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    part = tl.program_id(1)
    depth = tl.arange(0, DEPTH)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for first in range(part * PART, part * PART + PART, COLUMNS):
        token = first + tl.arange(0, COLUMNS)
        logits = tl.zeros((ROWS, COLUMNS), tl.float32)
        x_at = hidden + row.to(tl.int64)[:, None] * width + depth[None, :]
        w_at = weight + token.to(tl.int64)[:, None] * width + depth[None, :]
        for at in range(0, width, DEPTH):
            inside = depth < width - at
            x = tl.load(x_at + at, mask=(row < rows)[:, None] & inside[None, :], other=0.0)
            w = tl.load(w_at + at, mask=(token < vocabulary)[:, None] & inside[None, :], other=0.0)
            logits = tl.dot(x, w.T, logits, input_precision=PRECISION)
        if CAPPED:
            logits = softcap * tanh(logits / softcap)
        logits = tl.where((token < vocabulary)[None, :], logits, float("-inf"))
        new_top = tl.maximum(top, tl.max(logits, axis=1))
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(logits - new_top[:, None]), axis=1)
        top = new_top
    place = row.to(tl.int64) * parts + part
    tl.store(tops + place, top, mask=row < rows)
    tl.store(sums + place, total, mask=row < rows)


@triton.jit
def _pairs_kernel(
    hidden, weight, tops, sums, pair_rows, pair_tokens, out, pairs, width, softcap, parts,
    CAPPED: tl.constexpr, NORMALISED: tl.constexpr, PAIRS: tl.constexpr, PARTS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    there = pair < pairs
    row = tl.load(pair_rows + pair, mask=there, other=0).to(tl.int64)
    token = tl.load(pair_tokens + pair, mask=there, other=0).to(tl.int64)
    depth = tl.arange(0, DEPTH)
    products = tl.zeros((PAIRS, DEPTH), tl.float32)
    for at in range(0, width, DEPTH):
        inside = there[:, None] & (depth < width - at)[None, :]
        x = tl.load(hidden + row[:, None] * width + at + depth[None, :], mask=inside, other=0.0)
        w = tl.load(weight + token[:, None] * width + at + depth[None, :], mask=inside, other=0.0)
        products += x.to(tl.float32) * w.to(tl.float32)
    result = tl.sum(products, axis=1)
    if CAPPED:
        result = softcap * tanh(result / softcap)
    if NORMALISED:
        top = tl.full((PAIRS,), float("-inf"), tl.float32)
        total = tl.zeros((PAIRS,), tl.float32)
        column = tl.arange(0, PARTS)
        for first in range(0, parts, PARTS):
            inside = (column < parts - first)[None, :]
            place = row[:, None] * parts + first + column[None, :]
            tops_here = tl.load(tops + place, mask=inside, other=float("-inf"))
            sums_here = tl.load(sums + place, mask=inside, other=0.0)
            new_top = tl.maximum(top, tl.max(tops_here, axis=1))
            scaled = sums_here * tl.exp(tops_here - new_top[:, None])
            total = total * tl.exp(top - new_top) + tl.sum(scaled, axis=1)
            top = new_top
        result -= top + tl.log(total)
        result = tl.where(result > 0.0, 0.0, result)  # by rounding; what is no number stays so
    tl.store(out + pair, result, mask=there)


def edge_logprobs(
    hidden: Tensor, weight: Tensor, rows: Tensor, tokens: Tensor, softcap: float | None = None
) -> Tensor:
    """[pairs] in float32: log p(token | row) of tokens [pairs] at hidden[rows], the logits being hidden [N, width]
    times weight [vocabulary, width]. softcap: c of tanh(logit / c) * c."""
    count, width = hidden.shape
    vocabulary = len(weight)
    parts = triton.cdiv(vocabulary, _PART)
    tops = hidden.new_empty((count, parts), dtype=torch.float32)
    sums = torch.empty_like(tops)
    columns, depth, precision, warps, stages = _tiles(hidden.dtype)
    if len(rows):
        _sums_kernel[(triton.cdiv(count, _ROWS), parts)](
            hidden, weight, tops, sums, count, vocabulary, width, softcap or 1.0, parts,
            softcap is not None, _PART, _ROWS, columns, depth, precision,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return _pairs(hidden, weight, tops, sums, rows, tokens, softcap, True)


def edge_logprobs_twin(
    hidden: Tensor, weight: Tensor, rows: Tensor, tokens: Tensor, softcap: float | None = None
) -> Tensor:
    logits = hidden.float() @ weight.float().T
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    return torch.log_softmax(logits, dim=-1)[rows, tokens]


def edge_logits(
    hidden: Tensor, weight: Tensor, rows: Tensor, tokens: Tensor, softcap: float | None = None
) -> Tensor:
    """[pairs] in float32: the logits that `edge_logprobs` normalises."""
    return _pairs(hidden, weight, hidden, hidden, rows, tokens, softcap, False)


def edge_logits_twin(
    hidden: Tensor, weight: Tensor, rows: Tensor, tokens: Tensor, softcap: float | None = None
) -> Tensor:
    logits = (hidden[rows].float() * weight[tokens].float()).sum(dim=-1)
    return logits if softcap is None else torch.tanh(logits / softcap) * softcap


def _pairs(
    hidden: Tensor,
    weight: Tensor,
    tops: Tensor,
    sums: Tensor,
    rows: Tensor,
    tokens: Tensor,
    softcap: float | None,
    normalised: bool,
) -> Tensor:
    out = hidden.new_empty(len(rows), dtype=torch.float32)
    if len(rows):
        _pairs_kernel[(triton.cdiv(len(rows), _PAIRS),)](
            hidden, weight, tops, sums, rows, tokens, out, len(rows), hidden.shape[1],
            softcap or 1.0, tops.shape[1], softcap is not None, normalised, _PAIRS, _PARTS, _DEPTH,
            num_warps=4,
        )  # fmt: skip
    return out


def _tiles(dtype: torch.dtype) -> tuple[int, int, str, int, int]:
    """Columns and depth of a product, its precision, warps and stages. float32 is not rounded to TF32."""
    return (64, 32, "ieee", 8, 2) if dtype == torch.float32 else (128, 64, "tf32", 8, 3)


def compiled_variants() -> Iterator[Variant]:
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float32, "fp32")):
        columns, depth, precision, warps, stages = _tiles(dtype)
        for capped in (False, True):
            config = f"{name}{', soft cap' if capped else ''}"
            pointers = {"hidden": f"*{name}:16", "weight": f"*{name}:16"}
            pointers |= {"tops": "*fp32:16", "sums": "*fp32:16"}
            sizes = {"width": "i32:16", "softcap": "fp32", "parts": "i32"}
            shape: dict[str, object] = {"CAPPED": capped, "PART": _PART, "ROWS": _ROWS}
            shape |= {"COLUMNS": columns, "DEPTH": depth, "PRECISION": precision}
            counts = {"rows": "i32", "vocabulary": "i32"}
            yield Variant(_sums_kernel, config, pointers | counts | sizes, shape, warps, stages)
            pointers |= {"pair_rows": "*i64:16", "pair_tokens": "*i64:16", "out": "*fp32:16"}
            shape = {"CAPPED": capped, "NORMALISED": True, "PAIRS": _PAIRS}
            shape |= {"PARTS": _PARTS, "DEPTH": _DEPTH}
            yield Variant(_pairs_kernel, config, pointers | {"pairs": "i32"} | sizes, shape)
