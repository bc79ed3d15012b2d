"""The way of a step's indices from the host to the device: one copy for all, which nobody waits for.

On CUDA the arrays of a step are written one after the other into pinned memory, and its results come back through
pinned memory, too. On CPU nothing is copied.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[np.generic]
Put = Callable[[Array], Tensor]

_ALIGN = 16  # bytes: kernels read vectors
_FIRST = 1 << 20


class Staging:
    """`put` gives the place on the device where an array will be; `flush` sends what was put.

    A step calls `begin` first. Its places stay until the `begin` of the next step but one.
    """

    def __init__(self, device: torch.device, copies: bool | None = None) -> None:
        """copies: whether arrays are copied; None: where the device is not the host."""
        self._copies = device.type == "cuda" if copies is None else copies
        self._buffers = [_Buffer(device), _Buffer(device)]

    def begin(self) -> None:
        """Begin a step."""
        self._buffers.reverse()
        self._buffers[0].begin()

    def put(self, array: Array) -> Tensor:
        """The tensor of an array, of the same type and shape; its contents are there after `flush`."""
        return self._buffers[0].put(array) if self._copies else torch.from_numpy(array)

    def flush(self) -> None:
        """Send what was put; what is launched afterwards finds it."""
        self._buffers[0].flush()

    def send(self, array: Array) -> Tensor:
        """`put` and `flush`."""
        place = self.put(array)
        self.flush()
        return place


class _Buffer:
    """Pinned memory, and as much on the device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._size = _FIRST
        self._host = self._place = torch.empty(0, dtype=torch.uint8)
        self._used = self._flushed = 0
        self._sent: torch.cuda.Event | None = None

    def begin(self) -> None:
        if self._sent is not None:
            self._sent.synchronize()  # the copies of the last but one step read this memory
        self._used = self._flushed = 0

    def put(self, array: Array) -> Tensor:
        source = torch.from_numpy(np.ascontiguousarray(array))
        needed = source.numel() * source.itemsize
        if self._used + needed > len(self._host):
            self._grow(needed)
        first, last = self._used, self._used + needed
        self._used = last + -last % _ALIGN
        self._host[first:last].view(source.dtype).view(array.shape).copy_(source)
        return self._place[first:last].view(source.dtype).view(array.shape)

    def _grow(self, needed: int) -> None:
        """New memory for what comes. The old lives as long as the tensors given out, and the copies from it."""
        self.flush()
        while self._size < needed + _ALIGN:
            self._size *= 2
        pin = self._device.type == "cuda"
        self._host = torch.empty(self._size, dtype=torch.uint8, pin_memory=pin)
        self._place = torch.empty(self._size, dtype=torch.uint8, device=self._device)
        self._used = self._flushed = 0
        self._size *= 2

    def flush(self) -> None:
        if self._used == self._flushed:
            return
        sent = slice(self._flushed, self._used)
        self._place[sent].copy_(self._host[sent], non_blocking=True)
        self._flushed = self._used
        if self._device.type == "cuda":
            self._sent = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._sent.record()


def fetch(tensors: list[Tensor]) -> Callable[[], list[Tensor]]:
    """Begin to copy results to the host; what is returned waits for them. On CPU they are there."""
    if not tensors or not tensors[0].is_cuda:
        return lambda: tensors
    found = []
    for tensor in tensors:
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        found.append(host.copy_(tensor, non_blocking=True))
    ended = torch.cuda.Event()  # type: ignore[no-untyped-call]
    ended.record()

    def wait() -> list[Tensor]:
        ended.synchronize()
        return found

    return wait
