"""What a layer computes beside its products and its attention, in plain torch."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import gelu, rms_norm, silu

from engine.kv_pool import KVPool
from engine.linear import AnyLinear
from engine.model_config import ModelConfig

# Cosines and signed sines by position, [max_len, head_dim] each; 1 and 0 for what is not turned.
RopeTable = tuple[Tensor, Tensor]


class TorchOps:
    """The operations of one model's layers."""

    def __init__(self, config: ModelConfig, ropes: Sequence[RopeTable]) -> None:
        """ropes: the tables of the model's rotary embeddings."""
        self.config = config
        self._tables = ropes
        self._rows: list[RopeTable] = []

    def begin(self, positions: Tensor) -> None:
        """Before the layers of a step, whose rows have these positions [N]."""
        self._rows = [
            (cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)) for cos, sin in self._tables
        ]

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """The root mean square norm of x [rows, size], in the dtype of x."""
        # Gemma's norms multiply in float32, and so its weights are kept: 1 + w is coarse in bfloat16.
        if weight.dtype != x.dtype:
            return rms_norm(x.float(), x.shape[-1:], weight, self.config.rms_norm_eps).to(x.dtype)
        return rms_norm(x, x.shape[-1:], weight, self.config.rms_norm_eps)

    def add_norm(
        self, linear: AnyLinear, x: Tensor, residual: Tensor, first: Tensor | None, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """residual plus linear(x), which is normed by `first` before if there is one; and the norm of that sum."""
        if first is None:
            residual = linear.add_to(residual, x)
            return residual, self.norm(residual, weight)
        residual = residual + self.norm(linear(x), first)
        return residual, self.norm(residual, weight)

    def place(
        self,
        qkv: Tensor,
        qk_norm: Tensor | None,
        rope: int | None,
        pool: KVPool,
        layer: int,
        slots: Tensor,
    ) -> Tensor:
        """Norm and turn what is to be; keys and values go to the pool, the queries [rows, heads, dim] come back.

        qkv: [rows, heads + 2 * kv_heads, dim], queries, keys and values.
        """
        q_heads = self.config.num_heads
        turned_heads = q_heads + self.config.num_kv_heads
        turned = qkv[:, :turned_heads]
        if qk_norm is not None:
            turned = self._norm_heads(turned, qk_norm)
        if rope is not None:
            turned = self._turn(turned, rope)
        new = torch.stack([turned[:, q_heads:], qkv[:, turned_heads:]], dim=1)
        pool.write(layer, slots, new)
        return turned[:, :q_heads]

    def activate(self, gate_up: Tensor) -> Tensor:
        """[rows, inner] from [rows, 2 * inner]: the activated first half times the second."""
        gate, up = gate_up.chunk(2, dim=-1)
        gate = silu(gate) if self.config.activation == "silu" else gelu(gate, approximate="tanh")
        return gate.mul_(up)

    def _norm_heads(self, x: Tensor, weights: Tensor) -> Tensor:
        """x [rows, heads, head_dim], every head with its own of weights [heads, head_dim]."""
        normed = rms_norm(x.to(weights.dtype), x.shape[-1:], None, self.config.rms_norm_eps)
        return (normed * weights).to(x.dtype)

    def _turn(self, x: Tensor, rope: int) -> Tensor:
        """x [rows, heads, head_dim] turned by its rows' positions; a pair is two dimensions half apart."""
        cos, sin = self._rows[rope]
        half = len(self.config.ropes[rope].frequencies)
        parts = [x[..., half : 2 * half], x[..., :half]]
        if 2 * half < x.shape[-1]:
            parts.append(x[..., 2 * half :])
        return torch.addcmul(x * cos, torch.cat(parts, dim=-1), sin)
