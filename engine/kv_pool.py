"""The memory of the key-value cache: the only place that knows how keys and values are stored."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Ids = npt.NDArray[np.int64]

_LEVELS = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}  # the largest number of each
_SCALE = torch.bfloat16  # of quantised vectors: float32's range in two bytes


class KVPool:
    """Keys and values of every layer by slot, in the model's dtype; a slot holds one token."""

    def __init__(
        self,
        num_layers: int,
        num_slots: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.num_slots = num_slots
        self.num_kv_heads = num_kv_heads
        shape = (num_layers, num_slots, 2, num_kv_heads, head_dim)
        self._data = torch.empty(shape, dtype=dtype, device=device)

    def write(self, layer: int, slots: Tensor, keys_values: Tensor) -> None:
        """Keep keys_values [N, 2, kv_heads, head_dim] (keys, then values) in slots [N]."""
        self._data[layer].index_copy_(0, slots, keys_values)

    def read_by_head(self, layer: int, vectors: Tensor) -> Tensor:
        """[2, kv_heads, N, head_dim] of slots whose `vectors_by_head` these are: one head's keys beside each other."""
        read = self._data[layer].flatten(0, 2).index_select(0, vectors)
        return read.view(2, self.num_kv_heads, -1, read.shape[1])

    def layer(self, layer: int) -> tuple[Tensor, Tensor | None]:
        """All keys and values of a layer as they are kept, [slots, 2, kv_heads, head_dim], and their scales
        [slots, 2, kv_heads, 1] if they are quantised: for kernels."""
        return self._data[layer], None


class QuantisedKVPool(KVPool):
    """The same in int8 or fp8 (e4m3), with one scale for each token, head, and key or value.

    A vector is rounded once, when it is written, from itself alone: every later read gives the same numbers, in
    the step that wrote it or ten turns on, and no scale has to be known beforehand or kept for a page.
    """

    def __init__(
        self,
        num_layers: int,
        num_slots: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        kept: torch.dtype,
    ) -> None:
        """dtype: of what `read_by_head` gives. kept: torch.int8 or torch.float8_e4m3fn."""
        super().__init__(num_layers, num_slots, num_kv_heads, head_dim, kept, device)
        self._dtype = dtype
        self._scales = torch.empty((*self._data.shape[:-1], 1), dtype=_SCALE, device=device)

    def write(self, layer: int, slots: Tensor, keys_values: Tensor) -> None:
        """Round keys_values [N, 2, kv_heads, head_dim] to slots [N], as `quantise_vectors` does."""
        rounded, scales = quantise_vectors(keys_values, self._data.dtype)
        # torch moves bytes where it does not move fp8.
        self._bytes(layer).index_copy_(0, slots, rounded.view(torch.int8))
        self._scales[layer].index_copy_(0, slots, scales)

    def read_by_head(self, layer: int, vectors: Tensor) -> Tensor:
        rounded = self._bytes(layer).flatten(0, 2).index_select(0, vectors).view(self._data.dtype)
        scales = self._scales[layer].flatten(0, 2).index_select(0, vectors)
        read = rounded.float().mul_(scales.float()).to(self._dtype)
        return read.view(2, self.num_kv_heads, -1, read.shape[1])

    def layer(self, layer: int) -> tuple[Tensor, Tensor | None]:
        return self._data[layer], self._scales[layer]

    def _bytes(self, layer: int) -> Tensor:
        return self._data[layer].view(torch.int8)


def vectors_by_head(slots: Ids, num_kv_heads: int) -> Ids:
    """Where the vectors of slots [N] are among all of a layer: [2 * kv_heads * N], for each of keys and values, and
    each head, those of all slots."""
    heads = np.arange(2 * num_kv_heads)[:, np.newaxis]
    return (slots * (2 * num_kv_heads) + heads).ravel()


def quantise_vectors(x: Tensor, kept: torch.dtype) -> tuple[Tensor, Tensor]:
    """x [..., head_dim] as `kept` [..., head_dim] times bfloat16 scales [..., 1].

    An element is at most half a step off. In int8 a step is 1/127 of its vector's largest element; in fp8 it is an
    eighth of the power of two below the element, down to 2^-9 / 448 of the largest. A vector with NaN or infinities
    comes back as such.
    """
    wide = x.float()
    # The scales are rounded first, so that the product has no error but that of the rounded elements.
    scales = wide.abs().amax(dim=-1, keepdim=True).div_(_LEVELS[kept]).to(_SCALE)
    scales.clamp_min_(torch.finfo(_SCALE).tiny)  # a vector of zeros
    shares = wide / scales.float()
    return (shares.round_() if kept == torch.int8 else shares).to(kept), scales


def bytes_per_vector(head_dim: int, dtype: torch.dtype) -> int:
    """What one head's key or value takes when it is kept in `dtype`, with its scale if that is quantised."""
    return head_dim * dtype.itemsize + (_SCALE.itemsize if dtype in _LEVELS else 0)
