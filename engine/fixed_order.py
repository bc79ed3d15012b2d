"""Attention whose result for a row has the same bits in every batch: `EngineConfig.deterministic`.

Sums of floating-point numbers depend on their order. Here it is fixed by the position of a key alone, so it is the
same for a row alone or in a batch, wherever a prompt was cut into steps, and for a token that was computed as a
node of a choice tree or in a prompt:

- the far keys of a row, up to the block of 8 before its own, stand in the columns of their positions and are
  summed in products of exactly 128 positions each, which are added in float32 in order;
- its last 9 to 16 keys, where a tree's rows differ, are gathered for each row into columns of their own.

What is left to the kernels is that a product of fixed depth does not depend on how many rows or batches it has
(from the number on that all steps are padded to), and that a softmax does not depend on columns of zero weight
that are added a vector at a time. `engine.kernel_check` tests that when an engine is built.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.attention import Span
from engine.kv_pool import KVPool, vectors_by_head

Ids = npt.NDArray[np.int64]

MIN_ROWS = 16  # rows of a step at least: products of few rows are summed in another order
_CHUNK = 128  # positions of far keys in one product
_NEAR = 16  # columns of the nearest keys
_BLOCK = 8  # the far keys of a row end at a multiple of this
_MIN_QUERIES, _MIN_GROUP = 4, 8  # query rows of a request, and of a group, at least
_WASTE, _SMALL, _LARGE = 1.5, 4096, 1 << 21  # as in `engine.attention`


@dataclass(frozen=True)
class _Piece:
    """Rows of one request. rows: [Q] in the batch; slots: of the far keys; fars: [Q] how many of them each row
    sees; near: [Q, 16] slots and seen: [Q] how many of these it sees."""

    rows: Ids
    slots: Ids
    fars: Ids
    near: Ids
    seen: Ids

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.slots)


@dataclass(frozen=True)
class OrderedGroup:
    """B requests of Q rows each, with S far keys that all rows see and P more, both multiples of 128.

    rows: [B * Q]. The `vectors_by_head` of shared: S slots, own: B * P slots, and near: 16 slots of each row, row by
    row. bias: [B, 1, Q, W], of the last W of the P keys, or None; near_bias: [B * Q, 1, 16]. Padding repeats the first
    row.
    """

    shape: tuple[int, int, int, int]
    rows: Tensor
    shared: Tensor
    own: Tensor
    bias: Tensor | None
    near: Tensor
    near_bias: Tensor


@dataclass(frozen=True)
class OrderedPlan:
    """The groups of a step. places: [N], where each batch row is among the rows of all groups."""

    groups: list[OrderedGroup]
    places: Tensor

    def attend(
        self, queries: Tensor, pool: KVPool, layer: int, scale: float, softcap: float | None
    ) -> Tensor:
        assert softcap is None  # refused when the engine is built
        return attend_in_order(queries, pool, layer, self, scale)


def plan_in_order(
    spans: Sequence[Span],
    num_rows: int,
    num_kv_heads: int,
    device: torch.device,
    dtype: torch.dtype,
) -> OrderedPlan:
    """For the spans of a step. Rows beyond theirs, up to `num_rows`, are copies of the first ones in order."""
    pieces = [piece for span in spans for piece in _pieces(span)]
    groups: list[list[_Piece]] = []
    needed = height = width = 0
    for piece in sorted(pieces, key=lambda p: p.shape, reverse=True):
        q, k = piece.shape
        area = (len(groups[-1]) + 1 if groups else 0) * height * max(width, k)
        waste = area - needed - q * k
        if groups and area <= _LARGE and (waste <= _SMALL or area <= _WASTE * (needed + q * k)):
            groups[-1].append(piece)
            needed, width = needed + q * k, max(width, k)
        else:
            groups.append([piece])
            needed, height, width = q * k, q, k
    places = np.empty(sum(len(piece.rows) for piece in pieces), dtype=np.int64)
    padded: list[OrderedGroup] = []
    first = 0
    for members in groups:
        group = _pad(members, num_kv_heads, device, dtype)
        b, q, _, _ = group.shape
        for at, piece in zip(range(first, first + b * q, q), members, strict=True):
            places[piece.rows] = np.arange(at, at + len(piece.rows))
        padded.append(group)
        first += b * q
    # A copy must attend like its row: it writes its keys to the same slot.
    return OrderedPlan(padded, torch.from_numpy(np.resize(places, num_rows)).to(device))


def _pieces(span: Span) -> Iterator[_Piece]:
    """The rows of a span whose far keys are those of the first positions, and each other row (one deep in a tree,
    which has ancestors among its far keys) as a span of its own, in the order of positions."""
    mask = span.mask
    visible = mask.sum(axis=1)
    fars = np.maximum((visible - 1) // _BLOCK * _BLOCK - _BLOCK, 0)
    straight = np.where(mask.all(axis=1), visible, mask.argmin(axis=1))
    for row in np.flatnonzero(straight < fars):
        keys = span.slots[: mask.shape[1]][mask[row]]
        yield from _pieces(Span(span.first + int(row), keys, np.ones((1, len(keys)), np.bool_)))
    kept = np.flatnonzero(straight >= fars)
    if not len(kept):
        return
    fars, visible = fars[kept], visible[kept]
    low = int(fars.min())
    # Stable: the columns that a row sees come first, in the order of positions.
    columns = np.argsort(~mask[kept, low:], axis=1, kind="stable")
    taken = (fars - low)[:, None] + np.arange(_NEAR)
    columns = low + np.take_along_axis(columns, np.minimum(taken, columns.shape[1] - 1), axis=1)
    seen = visible - fars
    near = np.where(np.arange(_NEAR) < seen[:, None], span.slots[columns], span.slots[0])
    yield _Piece(span.first + kept, span.slots[: fars.max()], fars, near, seen)


def _pad(
    pieces: list[_Piece], num_kv_heads: int, device: torch.device, dtype: torch.dtype
) -> OrderedGroup:
    b = len(pieces)
    q = max(max(len(piece.rows) for piece in pieces), _MIN_QUERIES, -(-_MIN_GROUP // b))
    s = _num_shared(pieces)
    p = max(len(piece.slots) for piece in pieces) - s
    p += -p % _CHUNK
    rows = np.empty((b, q), dtype=np.int64)
    slots = np.empty((b, p), dtype=np.int64)
    fars = np.empty((b, q), dtype=np.int64)
    near = np.empty((b, q, _NEAR), dtype=np.int64)
    seen = np.empty((b, q), dtype=np.int64)
    for i, piece in enumerate(pieces):
        n, m = piece.shape
        for whole, part in (
            (rows, piece.rows),
            (fars, piece.fars),
            (near, piece.near),
            (seen, piece.seen),
        ):
            whole[i, :n], whole[i, n:] = part, part[0]
        slots[i, : m - s], slots[i, m - s :] = piece.slots[s:], piece.near[0, 0]
    hidden = np.arange(s, s + p) >= fars[:, :, None]
    hidden = hidden[:, :, (int(fars.min()) - s) // _CHUNK * _CHUNK :]
    near_hidden = np.arange(_NEAR) >= seen.reshape(-1, 1, 1)

    def bias(mask: npt.NDArray[np.bool_]) -> Tensor:
        zeros = torch.zeros(mask.shape, dtype=dtype)
        return zeros.masked_fill_(torch.from_numpy(mask), float("-inf")).to(device)

    def ids(array: Ids) -> Tensor:
        return torch.from_numpy(array.ravel()).to(device)

    by_head = vectors_by_head(near.ravel(), num_kv_heads).reshape(2, num_kv_heads, b * q, _NEAR)
    return OrderedGroup(
        shape=(b, q, p, s),
        rows=ids(rows),
        shared=ids(vectors_by_head(pieces[0].slots[:s], num_kv_heads)),
        own=ids(vectors_by_head(slots.ravel(), num_kv_heads)),
        bias=bias(hidden[:, None]) if hidden.any() else None,
        near=ids(by_head.swapaxes(1, 2)),
        near_bias=bias(near_hidden),
    )


def _num_shared(pieces: list[_Piece]) -> int:
    """How many first keys all pieces have in common and all of their rows see, in whole chunks."""
    if len(pieces) == 1:
        return 0
    limit = min(int(piece.fars.min()) for piece in pieces)
    first = pieces[0].slots
    for piece in pieces:
        alike = piece.slots[:limit] == first[:limit]
        limit = limit if alike.all() else int(alike.argmin())
    return limit - limit % _CHUNK


def attend_in_order(
    queries: Tensor, pool: KVPool, layer: int, plan: OrderedPlan, scale: float
) -> Tensor:
    """Attention of one layer: [N, heads, head_dim] like the queries."""
    _, heads, dim = queries.shape
    kv_heads = pool.num_kv_heads
    ratio = heads // kv_heads
    results: list[Tensor] = []
    for group in plan.groups:
        b, q, p, s = group.shape
        far = s + p
        query = queries.index_select(0, group.rows).mul_(scale)
        near = pool.read_by_head(layer, group.near).view(2, b * q * kv_heads, _NEAR, dim)
        scores = queries.new_empty((kv_heads, b * ratio * q, far + _NEAR))
        by_row = torch.bmm(query.view(b * q * kv_heads, ratio, dim), near[0].transpose(1, 2))
        by_row.view(b * q, heads, _NEAR).add_(group.near_bias)
        columns = scores[:, :, far:].view(kv_heads, b, ratio, q, _NEAR)
        columns.copy_(by_row.view(b, q, kv_heads, ratio, _NEAR).permute(2, 0, 3, 1, 4))
        if far:
            query = query.view(b, q, kv_heads, ratio, dim).permute(2, 0, 3, 1, 4)
            query = query.reshape(kv_heads, b * ratio * q, dim)
            common = pool.read_by_head(layer, group.shared)
            own = pool.read_by_head(layer, group.own).view(2, kv_heads * b, p, dim)
            if s:
                torch.bmm(query, common[0].transpose(1, 2), out=scores[:, :, :s])
            if p:
                blocks = scores[:, :, s:far].view(kv_heads * b, ratio * q, p)
                torch.bmm(
                    query.view(kv_heads * b, ratio * q, dim), own[0].transpose(1, 2), out=blocks
                )
                if group.bias is not None:
                    late = blocks.view(kv_heads, b, ratio, q, p)
                    late[..., p - group.bias.shape[-1] :].add_(group.bias)
        weights = torch.softmax(scores, dim=-1)
        total = queries.new_zeros((kv_heads, b, ratio, q, dim), dtype=torch.float32)
        for at in range(0, s, _CHUNK):
            part = torch.bmm(weights[:, :, at : at + _CHUNK], common[1][:, at : at + _CHUNK])
            total.view(kv_heads, b * ratio * q, dim).add_(part)
        blocks = weights[:, :, s:far].view(kv_heads * b, ratio * q, p)
        for at in range(0, p, _CHUNK):
            part = torch.bmm(blocks[:, :, at : at + _CHUNK], own[1][:, at : at + _CHUNK])
            total.view(kv_heads * b, ratio * q, dim).add_(part)
        columns = weights[:, :, far:].view(kv_heads, b, ratio, q, _NEAR).permute(1, 3, 0, 2, 4)
        by_row = torch.bmm(columns.reshape(b * q * kv_heads, ratio, _NEAR), near[1])
        total = total.permute(1, 3, 0, 2, 4).reshape(b * q, heads, dim)
        results.append(total.add_(by_row.view(b * q, heads, dim)).to(queries.dtype))
    return torch.cat(results).index_select(0, plan.places)
