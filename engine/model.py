"""One configured decoder for all supported families: the only place that knows what a layer computes.

It takes rows of any requests mixed, writes their keys and values to the paged cache, and returns hidden
states. It knows nothing of requests, trees and sampling.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.attention_backend import Plan
from engine.devices import BackendName
from engine.errors import ModelLoadError
from engine.kv_pool import KVPool, QuantisedKVPool
from engine.linear import AnyLinear, Head, Quantization, make_linear
from engine.model_config import LayerKind, ModelConfig, Rope
from engine.ops import RopeTable, TorchOps

if TYPE_CHECKING:
    from engine.kernels.ops import TritonOps


@dataclass(frozen=True)
class Layer:
    """Weights of one layer; products with the same input are joined. None where a family has no such norm.

    qk_norm: [query and key heads, head_dim]; output_norm and down_norm: of what is added to the residual.
    """

    kind: LayerKind
    input_norm: Tensor
    qkv: AnyLinear
    qk_norm: Tensor | None
    output: AnyLinear
    output_norm: Tensor | None
    mlp_norm: Tensor
    gate_up: AnyLinear
    down: AnyLinear
    down_norm: Tensor | None


@dataclass(frozen=True)
class Batch:
    """Rows of one step. token_ids, positions, slots: [N]; out_rows: the rows whose hidden state is asked for.

    attention: who sees what; windowed: the same cut to the model's sliding window, if it has one.
    """

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    attention: Plan
    out_rows: Tensor
    windowed: Plan | None = None


class Decoder:
    """The model's weights and its forward pass. max_len: tokens of the longest sequence."""

    def __init__(
        self,
        config: ModelConfig,
        take: Callable[[str], Tensor],
        device: torch.device,
        dtype: torch.dtype,
        max_len: int,
        quantization: Quantization = None,
        backend: BackendName = "torch",
    ) -> None:
        """`take` gives a weight by its Hugging Face name; each is asked for once and not kept."""
        self.config = config
        self.device = device
        self.dtype = dtype
        self.max_len = max_len
        c = config
        hidden, inner = c.hidden_size, c.intermediate_size
        norm_dtype = torch.float32 if c.norms_add_one else dtype

        def weight(shape: tuple[int, ...], *names: str, to: torch.dtype = dtype) -> Tensor:
            # Copied in any case: what a reader gives may be the file itself, mapped, and files change.
            parts = [take(name).to(dtype=to, copy=True) for name in names]
            whole = parts[0] if len(parts) == 1 else torch.cat(parts)
            if whole.shape != shape:
                raise ModelLoadError(
                    f"The weight {names[0]} does not match the model's configuration; fetch the model again."
                )
            return whole.contiguous().to(device)

        def matrix(shape: tuple[int, int], *names: str, bias: bool) -> AnyLinear:
            offset = weight(shape[:1], *(f"{n}.bias" for n in names)) if bias else None
            return make_linear(weight(shape, *(f"{n}.weight" for n in names)), offset, quantization)

        def norm(name: str, size: int = hidden) -> Tensor:
            scale = weight((size,), f"{name}.weight", to=norm_dtype)
            return scale + 1.0 if c.norms_add_one else scale

        def layer(kind: LayerKind, p: str) -> Layer:
            wide = c.num_heads * c.head_dim
            joined = wide + 2 * c.num_kv_heads * c.head_dim
            attention, mlp = f"{p}.self_attn", f"{p}.mlp"
            qkv = [f"{attention}.{x}_proj" for x in ("q", "k", "v")]
            gate_up = [f"{mlp}.gate_proj", f"{mlp}.up_proj"]
            if c.joined_weights:
                qkv, gate_up = [f"{attention}.qkv_proj"], [f"{mlp}.gate_up_proj"]
            qk_norm = None
            if c.qk_norms:
                query, key = (norm(f"{attention}.{x}_norm", c.head_dim) for x in "qk")
                qk_norm = torch.stack([query] * c.num_heads + [key] * c.num_kv_heads)
            # Gemma's post_attention_layernorm comes before the sum, everybody else's after it.
            before = "pre_feedforward" if c.norms_after else "post_attention"
            return Layer(
                kind=kind,
                input_norm=norm(f"{p}.input_layernorm"),
                qkv=matrix((joined, hidden), *qkv, bias=c.qkv_bias),
                qk_norm=qk_norm,
                output=matrix((hidden, wide), f"{attention}.o_proj", bias=c.output_bias),
                output_norm=norm(f"{p}.post_attention_layernorm") if c.norms_after else None,
                mlp_norm=norm(f"{p}.{before}_layernorm"),
                gate_up=matrix((2 * inner, hidden), *gate_up, bias=c.mlp_bias),
                down=matrix((hidden, inner), f"{mlp}.down_proj", bias=c.mlp_bias),
                down_norm=norm(f"{p}.post_feedforward_layernorm") if c.norms_after else None,
            )

        self.embedding = weight((c.vocab_size, hidden), "model.embed_tokens.weight")
        self.layers = [layer(kind, f"model.layers.{i}") for i, kind in enumerate(c.layers)]
        self.norm = norm("model.norm")
        head = self.embedding
        if not c.tie_word_embeddings:
            head = weight((c.vocab_size, hidden), "lm_head.weight")
        self.head = Head(head, quantization, self.embedding if c.tie_word_embeddings else None)
        ropes = [self._rope_table(rope) for rope in c.ropes]
        self.kernels = _triton_ops(c, ropes) if backend == "triton" else None
        self.ops: TorchOps | TritonOps = self.kernels or TorchOps(c, ropes)

    def _rope_table(self, rope: Rope) -> RopeTable:
        angles = torch.outer(torch.arange(self.max_len).float(), torch.tensor(rope.frequencies))
        cos, sin = angles.cos() * rope.scale, angles.sin() * rope.scale
        rest = torch.zeros(self.max_len, self.config.head_dim - 2 * angles.shape[1])
        tables = torch.cat([cos, cos, rest + 1.0], dim=1), torch.cat([-sin, sin, rest], dim=1)
        first, second = (table.to(self.dtype).to(self.device) for table in tables)
        return first, second

    def new_pool(self, num_slots: int, kv_dtype: torch.dtype | None = None) -> KVPool:
        """The memory of the key-value cache, in the model's dtype or in another, int8 or float8_e4m3fn."""
        c = self.config
        sizes = c.num_layers, num_slots, c.num_kv_heads, c.head_dim
        if kv_dtype is None or kv_dtype == self.dtype:
            return KVPool(*sizes, self.dtype, self.device)
        return QuantisedKVPool(*sizes, self.dtype, self.device, kv_dtype)

    def forward(self, batch: Batch, pool: KVPool) -> Tensor:
        """Hidden states [len(out_rows), hidden] after the last norm; the keys and values go to the pool."""
        c = self.config
        ops, rows = self.ops, len(batch.token_ids)
        heads, dim = c.num_heads, c.head_dim
        ops.begin(batch.positions)
        x = self.embedding[batch.token_ids]
        if c.embedding_scale != 1.0:
            x = x * torch.tensor(c.embedding_scale, dtype=self.dtype)
        h = ops.norm(x, self.layers[0].input_norm)
        following = [layer.input_norm for layer in self.layers[1:]] + [self.norm]
        for index, (layer, next_norm) in enumerate(zip(self.layers, following, strict=True)):
            qkv = layer.qkv(h).view(rows, heads + 2 * c.num_kv_heads, dim)
            queries = ops.place(qkv, layer.qk_norm, layer.kind.rope, pool, index, batch.slots)
            plan = batch.attention
            if layer.kind.windowed:
                assert batch.windowed is not None
                plan = batch.windowed
            attended = plan.attend(queries, pool, index, c.attention_scale, c.attention_softcap)
            attended = attended.view(rows, heads * dim)
            x, h = ops.add_norm(layer.output, attended, x, layer.output_norm, layer.mlp_norm)
            inner = ops.activate(layer.gate_up(h))
            x, h = ops.add_norm(layer.down, inner, x, layer.down_norm, next_norm)
        return h[batch.out_rows]

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, vocabulary] in the model's dtype."""
        return self._capped(self.head(hidden))

    def picked_logits(self, hidden: Tensor, rows: Tensor, tokens: Tensor) -> Tensor | None:
        """[pairs] in float32: the logits of tokens [pairs] at hidden[rows]; None if that saves nothing."""
        if self.kernels is not None and self.head.weight is not None:
            return self.kernels.edge_logits(hidden, self.head.weight, rows, tokens)
        logits = self.head.picked(hidden, rows, tokens)
        return None if logits is None else self._capped(logits)

    def picked_logprobs(self, hidden: Tensor, rows: Tensor, tokens: Tensor) -> Tensor | None:
        """The same less the normaliser over the whole vocabulary; None where no kernel does it."""
        if self.kernels is None or self.head.weight is None:
            return None
        return self.kernels.edge_logprobs(hidden, self.head.weight, rows, tokens)

    def logit_blocks(self, hidden: Tensor) -> Iterator[tuple[int, Tensor]]:
        """The logits in blocks of the vocabulary: (first token, [rows, tokens]), one after the other."""
        for first, logits in self.head.blocks(hidden):
            yield first, self._capped(logits)

    def _capped(self, logits: Tensor) -> Tensor:
        cap = self.config.final_softcap
        return logits if cap is None else logits.div_(cap).tanh_().mul_(cap)


def _triton_ops(config: ModelConfig, ropes: list[RopeTable]) -> "TritonOps":
    from engine.kernels.ops import TritonOps  # needs triton, which is not everywhere

    return TritonOps(config, ropes)
