"""CUDA graphs: a step's hundreds of launches made once and replayed.

Numbers of rows are padded to a few sizes. What a graph reads are places that stay: the tensors of a new batch are
copied there, and the kernels run over them again. Everything of a batch that is not the contents of a tensor (shapes,
launch constants) must be the same, so it makes up the key by which a graph is found.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

_REMEMBERED = 4096  # keys that came once


def row_sizes(largest: int) -> tuple[int, ...]:
    """The numbers of rows that steps are padded to, up to `largest`: 1, 2, 4, 8, from 16 on two for each doubling, and
    from 256 on, where products begin to cost more than reading the weights, every 64. Each is recorded on its own."""
    sizes = [1, 2, 4, 8]
    for step in (16, 32, 64, 128):
        sizes += [step, step * 3 // 2]
    sizes += range(256, largest + 1, 64)
    return tuple(size for size in sizes if size <= largest)


def padded_size(rows: int, sizes: Sequence[int]) -> int | None:
    """The smallest of the ascending `sizes` that holds the rows; None if none does."""
    return next((size for size in sizes if size >= rows), None)


class Recorded(Protocol):
    """A call that can be made again over the same tensors. result: what it returned, which every replay overwrites."""

    result: Tensor

    def replay(self) -> None: ...


Record = Callable[[Callable[[], Tensor]], Recorded]


class Graphs:
    """Finds or records the graph of a call, and replays it over the arguments."""

    def __init__(self, call: Callable[[Any], Tensor], record: Record, most: int) -> None:
        """call: from a dataclass of tensors (nested dataclasses, lists and plain values may be in it) to a tensor.
        most: graphs kept. The call is made without one when a key comes for the first time, since a recording costs as
        much as many calls, and when there are so many and none fits."""
        self._call = call
        self._record = record
        self._most = most
        self._known: dict[Hashable, tuple[list[Tensor], Recorded]] = {}
        self._seen: set[Hashable] = set()
        self.replays = 0

    def __len__(self) -> int:
        return len(self._known)

    def __call__(self, argument: Any) -> Tensor:
        """What the call returns; to be used before the next one."""
        key = _shape_of(argument)
        found = self._known.get(key)
        given = list(_tensors_of(argument))
        if found is None:
            if key not in self._seen or len(self._known) >= self._most:
                if len(self._seen) > _REMEMBERED:
                    self._seen.clear()
                self._seen.add(key)
                return self._call(argument)
            kept = [tensor.clone() for tensor in given]
            places = iter(kept)
            copy = _with_tensors(argument, places)
            found = self._known[key] = kept, self._record(lambda: self._call(copy))
        kept, recorded = found
        torch._foreach_copy_(kept, given)
        recorded.replay()
        self.replays += 1
        return recorded.result


class CudaGraph:
    """A call recorded as a CUDA graph. It is made before, too: what is set up at first use must not be recorded.

    All graphs of a `pool` share their memory, so that it is that of the largest.
    """

    def __init__(self, call: Callable[[], Tensor], pool: Any) -> None:
        call()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self.result = call()

    def replay(self) -> None:
        self._graph.replay()


def _shape_of(value: Any) -> Hashable:
    """All of a value but the contents of its tensors."""
    if isinstance(value, Tensor):
        return tuple(value.shape), value.stride(), value.dtype
    if isinstance(value, list | tuple):
        return tuple(_shape_of(part) for part in value)
    if is_dataclass(value):
        return type(value), *(_shape_of(getattr(value, field.name)) for field in fields(value))
    assert isinstance(value, Hashable)
    return value


def _tensors_of(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors_of(part)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _tensors_of(getattr(value, field.name))


def _with_tensors(value: Any, tensors: Iterator[Tensor]) -> Any:
    """The value with other tensors, in the order of `_tensors_of`."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, list | tuple):
        return type(value)(_with_tensors(part, tensors) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: _with_tensors(getattr(value, f.name), tensors) for f in fields(value)}
        return type(value)(**parts)
    return value
