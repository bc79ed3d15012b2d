"""One configured decoder for the Llama family: the only place that knows what a layer computes.

It takes rows of any requests mixed, writes their keys and values to the paged cache, and returns hidden
states. It knows nothing of requests, trees and sampling.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from engine.attention import AttentionPlan, attend
from engine.errors import ModelLoadError
from engine.fixed_order import OrderedPlan, attend_in_order
from engine.kv_pool import KVPool
from engine.linear import AnyLinear, Head, Quantization, make_linear

SUPPORTED = ("LlamaForCausalLM", "MistralForCausalLM")


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and constants of a decoder, under the names of Hugging Face's config.json.

    rope_divisors: what the rotary frequencies are divided by, one per pair of a head's dimensions, for models
    whose context was stretched.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_divisors: tuple[float, ...] | None
    max_position_embeddings: int
    tie_word_embeddings: bool

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> "ModelConfig":
        """From the contents of config.json; ModelLoadError names what is not supported."""
        architecture = (config.get("architectures") or ["(none named)"])[0]
        if architecture not in SUPPORTED:
            raise ModelLoadError(
                f"The architecture {architecture} is not supported; supported: {', '.join(SUPPORTED)}."
            )
        for name in ("attention_bias", "mlp_bias"):
            if config.get(name):
                raise ModelLoadError(
                    f"The model sets {name}, which is not supported; use a model without."
                )
        if config.get("hidden_act", "silu") != "silu":
            raise ModelLoadError(
                f"The activation {config['hidden_act']} is not supported; use a model with silu."
            )
        window = config.get("sliding_window")
        limit = int(config.get("max_position_embeddings", 2048))
        if window is not None:
            limit = min(limit, int(window))  # within the window, attention is the full one
        try:
            heads = int(config["num_attention_heads"])
            hidden = int(config["hidden_size"])
            dim = int(config.get("head_dim") or hidden // heads)
            theta, divisors = _rope(config, dim)
            return cls(
                architecture=architecture,
                vocab_size=int(config["vocab_size"]),
                hidden_size=hidden,
                intermediate_size=int(config["intermediate_size"]),
                num_layers=int(config["num_hidden_layers"]),
                num_heads=heads,
                num_kv_heads=int(config.get("num_key_value_heads") or heads),
                head_dim=dim,
                rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
                rope_theta=theta,
                rope_divisors=divisors,
                max_position_embeddings=limit,
                tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelLoadError(
                f"The model's configuration is incomplete or wrong ({error!r}); fetch it again."
            ) from None

    def kv_bytes_per_token(self, dtype: torch.dtype) -> int:
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * dtype.itemsize


def _rope(config: Mapping[str, Any], dim: int) -> tuple[float, tuple[float, ...] | None]:
    # transformers 5 writes rope_parameters; earlier files have rope_theta and rope_scaling.
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, (float(rope["factor"]),) * (dim // 2)
    if kind == "llama3":
        # Long waves are slowed by `factor`, short ones kept, those between interpolated.
        factor, original = float(rope["factor"]), int(rope["original_max_position_embeddings"])
        low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
        wavelengths = 2 * math.pi / _frequencies(theta, dim)
        smooth = ((original / wavelengths - low) / (high - low)).clamp(0.0, 1.0)
        return theta, tuple((1.0 / (smooth + (1.0 - smooth) / factor)).tolist())
    raise ModelLoadError(
        f"The rotary embedding {kind!r} is not supported; supported: default, linear, llama3."
    )


def _frequencies(theta: float, dim: int) -> Tensor:
    return 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)


@dataclass(frozen=True)
class Layer:
    """Weights of one layer; products with the same input are joined."""

    input_norm: Tensor
    qkv: AnyLinear
    output: AnyLinear
    post_norm: Tensor
    gate_up: AnyLinear
    down: AnyLinear


@dataclass(frozen=True)
class Batch:
    """Rows of one step. token_ids, positions, slots: [N]; out_rows: the rows whose hidden state is asked for."""

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    attention: AttentionPlan | OrderedPlan
    out_rows: Tensor


class Decoder:
    """The model's weights and its forward pass."""

    def __init__(
        self,
        config: ModelConfig,
        take: Callable[[str], Tensor],
        device: torch.device,
        dtype: torch.dtype,
        max_len: int,
        quantization: Quantization = None,
    ) -> None:
        """`take` gives a weight by its Hugging Face name; each is asked for once and not kept."""
        self.config = config
        self.device = device
        self.dtype = dtype

        def weight(shape: tuple[int, ...], *names: str) -> Tensor:
            # Copied in any case: what a reader gives may be the file itself, mapped, and files change.
            parts = [take(name).to(dtype=dtype, copy=True) for name in names]
            whole = parts[0] if len(parts) == 1 else torch.cat(parts)
            if whole.shape != shape:
                raise ModelLoadError(
                    f"The weight {names[0]} does not match the model's configuration; fetch the model again."
                )
            return whole.contiguous().to(device)

        def matrix(shape: tuple[int, int], *names: str) -> AnyLinear:
            return make_linear(weight(shape, *names), None, quantization)

        c = config
        hidden, inner = c.hidden_size, c.intermediate_size
        wide = c.num_heads * c.head_dim
        joined = wide + 2 * c.num_kv_heads * c.head_dim
        self.embedding = weight((c.vocab_size, hidden), "model.embed_tokens.weight")
        self.layers = [
            Layer(
                input_norm=weight((hidden,), f"{p}.input_layernorm.weight"),
                qkv=matrix((joined, hidden), *(f"{p}.self_attn.{x}_proj.weight" for x in "qkv")),
                output=matrix((hidden, wide), f"{p}.self_attn.o_proj.weight"),
                post_norm=weight((hidden,), f"{p}.post_attention_layernorm.weight"),
                gate_up=matrix(
                    (2 * inner, hidden), f"{p}.mlp.gate_proj.weight", f"{p}.mlp.up_proj.weight"
                ),
                down=matrix((hidden, inner), f"{p}.mlp.down_proj.weight"),
            )
            for p in (f"model.layers.{i}" for i in range(c.num_layers))
        ]
        self.norm = weight((hidden,), "model.norm.weight")
        head = self.embedding
        if not c.tie_word_embeddings:
            head = weight((c.vocab_size, hidden), "lm_head.weight")
        self.head = Head(head, quantization, self.embedding if c.tie_word_embeddings else None)
        frequencies = _frequencies(c.rope_theta, c.head_dim)
        if c.rope_divisors is not None:
            frequencies = frequencies / torch.tensor(c.rope_divisors)
        angles = torch.outer(torch.arange(max_len).float(), frequencies)
        self.cos = angles.cos().repeat(1, 2).to(dtype).to(device)
        self.sin = torch.cat([-angles.sin(), angles.sin()], dim=1).to(dtype).to(device)

    def new_pool(self, num_slots: int) -> KVPool:
        """The memory of the key-value cache."""
        c = self.config
        return KVPool(c.num_layers, num_slots, c.num_kv_heads, c.head_dim, self.dtype, self.device)

    def forward(self, batch: Batch, pool: KVPool) -> Tensor:
        """Hidden states [len(out_rows), hidden] after the last norm; the keys and values go to the pool."""
        c = self.config
        rows = len(batch.token_ids)
        q_heads, kv_heads, dim = c.num_heads, c.num_kv_heads, c.head_dim
        cos = self.cos[batch.positions].unsqueeze(1)
        sin = self.sin[batch.positions].unsqueeze(1)
        scale = dim**-0.5
        x = self.embedding[batch.token_ids]
        for index, layer in enumerate(self.layers):
            h = rms_norm(x, (c.hidden_size,), layer.input_norm, c.rms_norm_eps)
            qkv = layer.qkv(h).view(rows, q_heads + 2 * kv_heads, dim)
            turned = qkv[:, : q_heads + kv_heads]
            swapped = torch.cat([turned[..., dim // 2 :], turned[..., : dim // 2]], dim=-1)
            turned = torch.addcmul(turned * cos, swapped, sin)
            new = torch.stack([turned[:, q_heads:], qkv[:, q_heads + kv_heads :]], dim=1)
            pool.write(index, batch.slots, new)
            queries, plan = turned[:, :q_heads], batch.attention
            if isinstance(plan, OrderedPlan):
                attended = attend_in_order(queries, pool, index, plan, scale)
            else:
                attended = attend(queries, pool, index, plan, scale)
            x = layer.output.add_to(x, attended.view(rows, q_heads * dim))
            h = rms_norm(x, (c.hidden_size,), layer.post_norm, c.rms_norm_eps)
            gate, up = layer.gate_up(h).chunk(2, dim=-1)
            x = layer.down.add_to(x, silu(gate).mul_(up))
        return rms_norm(x[batch.out_rows], (c.hidden_size,), self.norm, c.rms_norm_eps)

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, vocabulary] in the model's dtype."""
        return self.head(hidden)

    def picked_logits(self, hidden: Tensor, rows: Tensor, tokens: Tensor) -> Tensor | None:
        """[pairs] in float32: the logits of tokens [pairs] at hidden[rows]; None if that saves nothing."""
        return self.head.picked(hidden, rows, tokens)

    def logit_blocks(self, hidden: Tensor) -> Iterator[tuple[int, Tensor]]:
        """The logits in blocks of the vocabulary: (first token, [rows, tokens]), one after the other."""
        return self.head.blocks(hidden)
