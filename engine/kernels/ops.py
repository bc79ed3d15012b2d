"""`engine.ops.TorchOps` in kernels, which round where torch rounds, and the scores of tokens."""

from collections.abc import Sequence

from torch import Tensor

from engine.kernels.activate import activate
from engine.kernels.choice import edge_logits, edge_logprobs
from engine.kernels.norm import add_norm, norm
from engine.kernels.rope import place
from engine.kernels.sampling import sample_tokens
from engine.kv_pool import KVPool
from engine.linear import AnyLinear
from engine.model_config import ModelConfig
from engine.ops import RopeTable


class TritonOps:
    """The operations of one model's layers, on CUDA or under Triton's interpreter."""

    def __init__(self, config: ModelConfig, ropes: Sequence[RopeTable]) -> None:
        """ropes: the tables of the model's rotary embeddings."""
        self.config = config
        self._tables = ropes
        self._pairs = [len(rope.frequencies) for rope in config.ropes]
        self._positions: Tensor

    def begin(self, positions: Tensor) -> None:
        """Before the layers of a step, whose rows have these positions [N]."""
        self._positions = positions

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return norm(x, weight, self.config.rms_norm_eps)

    def add_norm(
        self, linear: AnyLinear, x: Tensor, residual: Tensor, first: Tensor | None, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        return add_norm(linear(x), residual, first, weight, self.config.rms_norm_eps)

    def place(
        self,
        qkv: Tensor,
        qk_norm: Tensor | None,
        rope: int | None,
        pool: KVPool,
        layer: int,
        slots: Tensor,
    ) -> Tensor:
        table, pairs = (None, 0) if rope is None else (self._tables[rope], self._pairs[rope])
        eps = self.config.rms_norm_eps
        return place(qkv, self._positions, slots, table, pairs, qk_norm, eps, *pool.layer(layer))

    def activate(self, gate_up: Tensor) -> Tensor:
        return activate(gate_up, self.config.activation)

    def sample(self, logits: Tensor, params: Tensor) -> Tensor:
        """Next token of each row of logits [rows, vocabulary], by params of `engine.sampling.pack`."""
        return sample_tokens(logits, params)

    def edge_logits(self, hidden: Tensor, head: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
        """[pairs] in float32: the logits of tokens [pairs] at hidden[rows], head being [vocabulary, hidden]."""
        return edge_logits(hidden, head, rows, tokens, self.config.final_softcap)

    def edge_logprobs(self, hidden: Tensor, head: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
        """[pairs] in float32: the same less the normaliser over the whole vocabulary."""
        return edge_logprobs(hidden, head, rows, tokens, self.config.final_softcap)
