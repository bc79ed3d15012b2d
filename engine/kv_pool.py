"""The memory of the key-value cache: the only place that knows how keys and values are stored."""

import torch
from torch import Tensor

_LEVELS = 127.0  # int8 steps on each side of zero
_SCALE = torch.bfloat16  # of int8 vectors: float32's range in two bytes


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

    def read(self, layer: int, slots: Tensor) -> Tensor:
        """[N, 2, kv_heads, head_dim], keys then values, of slots [N]."""
        return self._data[layer].index_select(0, slots)


class Int8KVPool(KVPool):
    """The same in int8, with one scale for each token, head, and key or value.

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
    ) -> None:
        """dtype: of what `read` gives."""
        super().__init__(num_layers, num_slots, num_kv_heads, head_dim, torch.int8, device)
        self._dtype = dtype
        self._scales = torch.empty((*self._data.shape[:-1], 1), dtype=_SCALE, device=device)

    def write(self, layer: int, slots: Tensor, keys_values: Tensor) -> None:
        """Round keys_values [N, 2, kv_heads, head_dim] to slots [N]; what comes back is at most half a step off,
        a step being 1/127 of its vector's largest element. A vector with NaN or infinities comes back as such."""
        wide = keys_values.float()
        # The scales are rounded first, so that the product has no error but that of the integers.
        scales = wide.abs().amax(dim=-1, keepdim=True).div_(_LEVELS).to(_SCALE)
        scales.clamp_min_(torch.finfo(_SCALE).tiny)  # a vector of zeros
        integers = (wide / scales.float()).round_().to(torch.int8)
        self._data[layer].index_copy_(0, slots, integers)
        self._scales[layer].index_copy_(0, slots, scales)

    def read(self, layer: int, slots: Tensor) -> Tensor:
        scales = self._scales[layer].index_select(0, slots).float()
        return self._data[layer].index_select(0, slots).float().mul_(scales).to(self._dtype)


def bytes_per_vector(head_dim: int, dtype: torch.dtype) -> int:
    """What one head's key or value takes when it is kept in `dtype`, with its scale if that is int8."""
    return head_dim * dtype.itemsize + (_SCALE.itemsize if dtype == torch.int8 else 0)
