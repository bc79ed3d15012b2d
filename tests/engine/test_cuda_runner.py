"""What the runner does for a GPU, as far as a machine without one can show it: staging, padding, recorded calls."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.graphs import Graphs, padded_size, row_sizes
from engine.staging import Staging

CPU = torch.device("cpu")


def test_staged_arrays_arrive_with_type_and_shape_and_stay_for_two_steps() -> None:
    staging = Staging(CPU, copies=True)
    rng = np.random.default_rng(0)
    steps: list[list[tuple[Tensor, np.ndarray]]] = []
    for step in range(6):
        staging.begin()
        arrays = [
            rng.integers(0, 100, (3, step + 1)),
            rng.random(7).astype(np.float32),
            np.zeros(0, dtype=np.int64),
            rng.integers(0, 2, 5).astype(np.bool_),
            # every other step outgrows the memory of the ones before
            rng.integers(0, 9, (1 << 18) * (1 + step % 2), dtype=np.int32),
        ]
        places = [staging.put(array) for array in arrays[:-1]]
        staging.flush()
        places.append(staging.send(arrays[-1]))
        steps.append(list(zip(places, arrays, strict=True)))
        for place, array in [pair for pairs in steps[-2:] for pair in pairs]:
            assert place.shape == array.shape
            assert torch.equal(place, torch.from_numpy(array))


def test_rows_are_padded_to_the_next_size() -> None:
    sizes = row_sizes(512)
    assert sizes[:6] == (1, 2, 4, 8, 16, 24) and sizes[-2:] == (496, 512) and 256 in sizes
    assert [padded_size(n, sizes) for n in (1, 3, 9, 256, 257, 512, 513)] == [
        *(1, 4, 16, 256, 272, 512),
        None,
    ]
    assert row_sizes(20) == (1, 2, 4, 8, 16) and row_sizes(0) == ()


@dataclass(frozen=True)
class Inner:
    table: Tensor
    scale: float
    missing: Tensor | None = None


@dataclass(frozen=True)
class Outer:
    x: Tensor
    parts: list[Inner]
    launch: tuple[int, ...]


class Again:
    """Records a call as a graph does: later it sees nothing but the places it saw at first."""

    def __init__(self, call: object) -> None:
        self._call = call
        self.result = call()  # type: ignore[operator]

    def replay(self) -> None:
        self.result.copy_(self._call())  # type: ignore[operator]


def test_a_recorded_call_sees_the_contents_of_every_new_argument() -> None:
    calls: list[int] = []

    def total(value: Outer) -> Tensor:
        calls.append(len(value.x))
        result = value.x.clone()
        for part in value.parts:
            result += part.scale * part.table.sum()
        return result

    def make(seed: int, rows: int = 4, scale: float = 2.0) -> Outer:
        torch.manual_seed(seed)
        parts = [Inner(torch.rand(3, 2), scale), Inner(torch.rand(5), 1.0)]
        return Outer(torch.rand(rows), parts, (rows, 7))

    graphs = Graphs(total, Again, most=2)
    for seed in range(4):
        for rows in (4, 8):
            value = make(seed, rows)
            assert torch.equal(graphs(value), total(value))
    assert len(graphs) == 2 and graphs.replays == 8
    # Another constant would be another graph, of which there are enough.
    other = make(9, scale=3.0)
    assert torch.equal(graphs(other), total(other))
    assert len(graphs) == 2 and graphs.replays == 8


def test_an_argument_that_differs_in_a_constant_is_not_served_by_another_ones_graph() -> None:
    graphs = Graphs(lambda v: v.x * v.parts[0].scale, Again, most=8)
    x = torch.ones(2)
    for scale in (1.0, 2.0):
        value = Outer(x, [Inner(x, scale)], (2,))
        assert graphs(value).tolist() == pytest.approx([scale, scale])
    strided = Outer(torch.ones(4)[::2], [Inner(x, 2.0)], (2,))
    graphs(strided)
    assert len(graphs) == 3
