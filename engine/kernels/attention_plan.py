"""Which program of the attention kernel takes which rows and keys: the plan of a step, in numpy alone.

The keys of a request are cut every SPLIT positions, counted from its first token, and its rows are dealt to tiles. A
tile is some rows and one range of keys that all of them have, whichever requests they are of: so a common prefix
is read once for all rows, and a long context is spread over the chip. What the tiles of a row found is merged in
the order of positions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod

import numpy as np
import numpy.typing as npt

from engine.attention_backend import Part

Ids = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

SPLIT = 256  # positions; with `in_order` every sum over keys begins anew at a multiple of it
TILE_FIELDS = 8  # first key, end, offset of the slots, first key in a tree, offset of its data; three to spare
_FEWER = 2  # wide tiles are taken where they are so many times fewer than narrow ones
_BLOCK = 128  # keys; windows begin at multiples of it, as every block size divides it
_ALIGN = 4  # ints: tensors begin at multiples of 16 bytes, which compiled kernels rely on


@dataclass(frozen=True)
class PlanShape:
    """Sizes of a plan's tensors, on which a kernel's grid and the place of every tensor depend, and nothing else.

    lanes: rows of a tile; keys: slots; tails: keys that are nodes of trees; parts: results to be merged.
    """

    rows: int
    tiles: int
    lanes: int
    keys: int
    tails: int
    parts: int

    def padded(self) -> "PlanShape":
        """Rounded up, by a quarter or 16 at most, so that plans have few different shapes."""
        return replace(
            self,
            tiles=_few(self.tiles),
            keys=_few(self.keys),
            tails=_few(self.tails),
            parts=_few(self.parts),
        )

    def sections(self) -> list[tuple[str, tuple[int, ...], int]]:
        """Name, shape and first int of each tensor in the plan's buffer; the last is the buffer's end."""
        shapes: list[tuple[str, tuple[int, ...]]] = [
            ("tiles", (self.tiles, TILE_FIELDS)),
            ("tile_rows", (self.tiles, self.lanes)),
            ("tile_parts", (self.tiles, self.lanes)),
            ("ats", (self.rows,)),
            ("positions", (self.rows,)),
            ("merges", (self.rows, 2)),
            ("enters", (self.tails,)),
            ("leaves", (self.tails,)),
            ("tail_positions", (self.tails,)),
            ("slots", (self.keys,)),
            ("end", (0,)),
        ]
        sizes = (-(-prod(shape) // _ALIGN) * _ALIGN for _, shape in shapes)
        firsts = accumulate(sizes, initial=0)
        return [(name, shape, first) for (name, shape), first in zip(shapes, firsts, strict=False)]


def _few(count: int) -> int:
    step = max(16, 1 << max(count.bit_length() - 3, 0))
    return -(-count // step) * step


@dataclass(frozen=True)
class HostPlan:
    """The plan of a step before it goes to the device. buffer: int32, laid out by `shape.sections()`.

    tiles: [T, TILE_FIELDS]; tile_rows and tile_parts: [T, lanes] batch rows (-1: none), and where the result of each
    goes among those to be merged (-1: it is the row's only one); ats and positions: [rows]; merges: [rows, 2] first
    result and how many, 0 if nothing is to be merged; enters, leaves, tail_positions: of the keys in trees.
    A row sees a key that enters <= at < leaves; a token's key enters at its index and is never left.
    """

    shape: PlanShape
    buffer: Ints
    window: int | None
    in_order: bool

    def views(self) -> dict[str, Ints]:
        return {
            name: self.buffer[first : first + prod(size)].reshape(size)
            for name, size, first in self.shape.sections()[:-1]
        }


def plan_tiles(
    parts: Sequence[Part],
    num_rows: int,
    lanes: tuple[int, int],
    programs: int,
    window: int | None = None,
    in_order: bool = False,
    padded: bool = False,
) -> HostPlan:
    """For the parts of a step, in the order of their rows; rows beyond theirs, up to `num_rows`, are copies of the
    first ones.

    lanes: rows of a tile when few rows have keys in common, and when many have. programs: tiles that fill the chip.
    window: tokens that a row sees, itself among them. in_order: sums are the same whatever else is in the step:
    each begins at a multiple of SPLIT, or takes all of a row's keys to there from the first, and every key stands at
    its position, for which nodes of trees get keys of their own. padded: see `PlanShape.padded`.
    """
    pieces = _Pieces(num_rows, window)
    for part in _with_copies(parts, num_rows):
        if in_order:
            pieces.add_in_order(part)
        else:
            pieces.add(part)
    return _deal(pieces, lanes, programs, in_order, padded)


def _with_copies(parts: Sequence[Part], num_rows: int) -> Iterator[Part]:
    first = 0
    while first < num_rows:
        for part in parts:
            rows = min(part.end - part.start, num_rows - first)
            if rows > 0:
                yield replace(part, first=first, slots=part.slots[: part.start + rows])
            first += rows


class _Pieces:
    """Runs of keys with the rows that have them all, and the data of rows and keys. Columns of equal length:

    first, count: of the batch rows; begin, end: of the keys, begin at a multiple of SPLIT; plain: the first key that
    is a node of a tree; tail: the offset of its data; base: slots[base + key] is the slot of a key; leading: 1 if
    these rows have no keys before.
    """

    def __init__(self, num_rows: int, window: int | None) -> None:
        self.window = window
        self.ats = np.zeros(num_rows, dtype=np.int64)
        self.positions = np.zeros(num_rows, dtype=np.int64)
        self._slots: list[Ids] = []
        self._tails: list[Ids] = []
        self._columns: list[Ids] = []
        self._num_slots = self._num_tails = 0

    def add(self, part: Part) -> None:
        """All rows over all keys, each key in the place of its row in the request."""
        length, end = min(part.length, part.end), part.end
        ats = np.arange(part.start, end)
        positions = ats
        tail = self._num_tails
        if end > length:
            assert part.tree is not None
            nodes = slice(1, end - length + 1)
            enters, leaves = part.tree.nesting
            keys = np.stack([enters[nodes], leaves[nodes], part.tree.depths[nodes]]) + (length - 1)
            self._tails.append(keys)
            self._num_tails += end - length
            first = max(part.start - length, 0)
            ats = np.concatenate([ats[: max(length - part.start, 0)], keys[0, first:]])
            positions = np.concatenate([positions[: max(length - part.start, 0)], keys[2, first:]])
        self._set_rows(part.first, ats, positions)
        base = self._keep(part.slots)
        self._piece(part.first, len(ats), 0, end, length, tail, base, 1)

    def add_in_order(self, part: Part) -> None:
        """The same with each key in the place of its position: the nodes of a tree have the prompt's whole splits in
        common, and after these each has its own keys."""
        length, start, end = part.length, part.start, part.end
        if start < length:
            head = replace(part, slots=part.slots[:length], tree=None)
            self.add(head)
        if end <= length:
            return
        assert part.tree is not None
        nodes = np.arange(max(start - length, 0) + 1, end - length + 1)
        depths = part.tree.depths[nodes]
        first, count = part.first + max(length - start, 0), len(nodes)
        ats = depths + (length - 1)
        self._set_rows(first, ats, ats)
        low = length - length % SPLIT
        base = self._keep(part.slots[:length])
        common = low > 0 and self._piece(first, count, 0, low, low, 0, base, 1)
        # The way down to each node, in the columns of the depths.
        paths = np.zeros((count, int(depths.max())), dtype=np.int64)
        above = nodes
        while (rows := np.flatnonzero(above)).size:
            paths[rows, part.tree.depths[above[rows]] - 1] = above[rows]
            above = np.maximum(part.tree.parents[above], 0)
        own = np.empty((count, length - low + paths.shape[1]), dtype=np.int64)
        own[:, : length - low] = part.slots[low:length]
        own[:, length - low :] = part.slots[length - 1 + paths]
        bases = self._keep(own.ravel()) + np.arange(count) * own.shape[1] - low
        self._piece(first + np.arange(count), 1, low, ats + 1, ats + 1, 0, bases, int(not common))

    def _set_rows(self, first: int, ats: Ids, positions: Ids) -> None:
        self.ats[first : first + len(ats)] = ats
        self.positions[first : first + len(ats)] = positions

    def _keep(self, slots: Ids) -> int:
        self._slots.append(slots)
        self._num_slots += len(slots)
        return self._num_slots - len(slots)

    def _piece(self, *columns: int | Ids) -> bool:
        """Note pieces, without the keys that are out of their rows' sight; whether any is left."""
        piece = np.stack(np.broadcast_arrays(*columns)).reshape(len(columns), -1)
        if self.window is not None:
            first, count = piece[:2]
            # A piece of several rows is alone, so that its rows are beside each other.
            nearest = np.minimum.reduceat(self.positions[: first[-1] + count[-1]], first)
            seen = np.maximum(nearest - self.window + 1, 0) // SPLIT * SPLIT
            piece[2] = np.maximum(piece[2], seen)
            piece = piece[:, piece[2] < piece[3]]
        self._columns.append(piece)
        return piece.shape[1] > 0

    def columns(self) -> Ids:
        """[8, pieces]"""
        return np.concatenate(self._columns, axis=1)

    def slots(self) -> Ids:
        return np.concatenate(self._slots)

    def tails(self) -> Ids:
        """[3, keys in trees]"""
        return np.concatenate(self._tails, axis=1) if self._tails else np.zeros((3, 0), np.int64)


def _deal(
    pieces: _Pieces, lanes: tuple[int, int], programs: int, in_order: bool, padded: bool
) -> HostPlan:
    """Deal the rows of pieces to tiles."""
    window = pieces.window
    slots = pieces.slots()
    first, count, begin, end, plain, tail, base, leading = pieces.columns()

    # Every piece at every split. Where two requests have the same slot at the same position, they have the same ones
    # before it: what a slot holds depends on all tokens up to its own.
    splits = -(-end // SPLIT) - begin // SPLIT
    piece = np.repeat(np.arange(len(first)), splits)
    split = np.arange(len(piece)) - np.repeat(np.cumsum(splits) - splits, splits)
    opening = split == 0
    split += begin[piece] // SPLIT
    stop = np.minimum((split + 1) * SPLIT, end[piece])
    alone = ((split + 1) * SPLIT > np.minimum(plain, end)[piece]) | (begin[piece] > 0)
    if window is not None:
        alone[:] = True
    same = split * (np.int64(1) << 32) + slots[base[piece] + stop - 1]
    same[alone] = -1 - np.flatnonzero(alone)
    _, spokesman, group = np.unique(same, return_index=True, return_inverse=True)
    sizes = np.bincount(group, weights=count[piece]).astype(np.int64)
    few, many = (int((-(-sizes // n)).sum()) for n in lanes)
    wide = in_order or few > _FEWER * many
    width = lanes[wide]
    fold = max(1, -(-(many if wide else few) // programs))

    # Splits after each other with the same rows make up ranges. Who has the keys of a split has those before it, so
    # groups of equal size are the same rows.
    steady = ~opening
    steady[1:] &= sizes[group[1:]] == sizes[group[:-1]]
    run = np.maximum.accumulate(np.where(steady, 0, np.arange(len(piece))))
    nth = np.arange(len(piece)) - run
    joins = nth % fold > 0
    if in_order:
        joins = steady & opening[run] & (leading[piece] > 0) & (nth < fold)
    starts = np.flatnonzero(~joins)
    stops = stop[np.append(starts[1:], len(piece)) - 1]

    # The rows of every group, and their tiles.
    order = np.argsort(group[starts], kind="stable")
    members = piece[starts][order]
    counts = count[members]
    rows = np.repeat(first[members] - (np.cumsum(counts) - counts), counts)
    rows += np.arange(len(rows))
    speaks = np.flatnonzero(spokesman[group[starts]] == starts)
    speaks = speaks[np.argsort(group[starts[speaks]], kind="stable")]
    heights = sizes[group[starts[speaks]]]
    deals = -(-heights // width)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(heights) - heights, heights)
    lane = place % width
    tile = np.repeat(np.cumsum(deals) - deals, heights) + place // width

    # Only the slots that some tile reads.
    owner = piece[starts[speaks]]
    low = end.copy()
    np.minimum.at(low, owner, split[starts[speaks]] * SPLIT)
    kept = end - low
    offsets = np.cumsum(kept) - kept
    slots = slots[np.repeat(base + low - offsets, kept) + np.arange(kept.sum())]

    firsts = np.flatnonzero(lane == 0)
    owner = np.repeat(owner, deals)
    tiles = np.zeros((len(firsts), TILE_FIELDS), dtype=np.int64)
    tiles[:, 0] = np.repeat(split[starts[speaks]] * SPLIT, deals)
    tiles[:, 1] = np.repeat(stops[speaks], deals)
    tiles[:, 2] = (offsets - low)[owner]
    tiles[:, 3] = plain[owner]
    tiles[:, 4] = tail[owner] - plain[owner]
    seen = np.maximum.reduceat(pieces.ats[rows], firsts) + 1
    tiles[:, 1] = np.where(tiles[:, 1] > tiles[:, 3], tiles[:, 1], np.minimum(tiles[:, 1], seen))
    if window is not None:
        nearest = np.minimum.reduceat(pieces.positions[rows], firsts) - window + 1
        tiles[:, 0] = np.maximum(tiles[:, 0], nearest // _BLOCK * _BLOCK)

    # The results of a row that has several, in the order of positions.
    number = np.bincount(rows, minlength=len(pieces.ats))
    number[number == 1] = 0
    sequence = np.lexsort((tiles[tile, 0], rows))
    part = np.empty(len(rows), dtype=np.int64)
    part[sequence] = np.cumsum(number[rows[sequence]] > 0) - 1
    part[number[rows] == 0] = -1

    tails = pieces.tails()
    total = int(number.sum())
    shape = PlanShape(len(number), len(tiles), width, len(slots), tails.shape[1], total)
    if padded:
        shape = shape.padded()
    plan = HostPlan(shape, np.zeros(shape.sections()[-1][2], dtype=np.int32), window, in_order)
    into = plan.views()
    into["tiles"][: len(tiles)] = tiles
    into["tile_rows"][:] = into["tile_parts"][:] = -1
    into["tile_rows"][tile, lane] = rows
    into["tile_parts"][tile, lane] = part
    into["ats"][:], into["positions"][:] = pieces.ats, pieces.positions
    into["merges"][:, 0], into["merges"][:, 1] = np.cumsum(number) - number, number
    for name, data in zip(("enters", "leaves", "tail_positions"), tails, strict=True):
        into[name][: len(data)] = data
    into["slots"][: len(slots)] = slots
    return plan
