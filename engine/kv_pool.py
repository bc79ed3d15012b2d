"""The memory of the key-value cache: the only place that knows how keys and values are stored."""

import torch
from torch import Tensor


class KVPool:
    """Keys and values of every layer by slot; a slot holds one token."""

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
