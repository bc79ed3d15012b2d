"""What a model is, read from its config.json: the only place that knows the families' differences.

The names and rules are those of the families' configurations in transformers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.errors import ModelLoadError
from engine.kv_pool import bytes_per_vector

# What a configuration means when it does not say so.
_GEMMA = {
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "hidden_act": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {},
    "MistralForCausalLM": {},
    "SmolLM3ForCausalLM": {"rope_theta": 2e6, "tie_word_embeddings": True},
    "Qwen2ForCausalLM": {},
    "Qwen3ForCausalLM": {"head_dim": 128},
    "Phi3ForCausalLM": {"rms_norm_eps": 1e-5},
    "Gemma2ForCausalLM": _GEMMA | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "Gemma3ForCausalLM": _GEMMA | {"rope_theta": 1e6, "rope_local_base_freq": 1e4},
}
SUPPORTED = tuple(_DEFAULTS)
_ACTIVATIONS = ("silu", "gelu_pytorch_tanh")
_ROPES = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


@dataclass(frozen=True)
class Rope:
    """A rotary embedding: radians a position for each rotated pair, and what the rotated is multiplied with.

    Fewer pairs than half of a head's dimensions leave the rest of the head as it is.
    """

    frequencies: tuple[float, ...]
    scale: float = 1.0


@dataclass(frozen=True)
class LayerKind:
    """windowed: sees the last `sliding_window` tokens alone. rope: which of the model's, None for none."""

    windowed: bool
    rope: int | None


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and constants of a decoder, under the names of Hugging Face's config.json.

    attention_scale: what queries are multiplied with. softcap: c of tanh(score / c) * c, before masks.
    norms_add_one: norms multiply with 1 + weight. norms_after: outputs of attention and MLP are normed.
    joined_weights: the file holds q, k, v and gate, up as one weight each.
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
    max_position_embeddings: int
    tie_word_embeddings: bool
    ropes: tuple[Rope, ...]
    layers: tuple[LayerKind, ...]
    sliding_window: int | None
    attention_scale: float
    attention_softcap: float | None
    final_softcap: float | None
    embedding_scale: float
    activation: str
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norms: bool
    norms_add_one: bool
    norms_after: bool
    joined_weights: bool

    @classmethod
    def from_dict(cls, config: Mapping[str, Any], max_len: int | None = None) -> "ModelConfig":
        """From the contents of config.json; ModelLoadError names what is not supported.

        max_len: tokens of the longest sequence, if fewer than the model can take. The rotary embedding
        `longrope` has one set of frequencies up to the length of training and one for more; a sequence
        that grows must keep its keys, so this decides for all of them (as vLLM does).
        """
        architecture = (config.get("architectures") or ["(none named)"])[0]
        if architecture not in SUPPORTED:
            raise ModelLoadError(
                f"The architecture {architecture} is not supported; supported: {', '.join(SUPPORTED)}."
            )
        config = _DEFAULTS[architecture] | dict(config)
        gemma = architecture.startswith("Gemma")
        activation = (gemma and config.get("hidden_activation")) or config.get("hidden_act", "silu")
        if activation not in _ACTIVATIONS:
            raise ModelLoadError(
                f"The activation {activation} is not supported; supported: {', '.join(_ACTIVATIONS)}."
            )
        if config.get("use_bidirectional_attention"):
            raise ModelLoadError(
                "The model sees later tokens (use_bidirectional_attention), which is not supported; "
                "use a model that generates text."
            )
        try:
            heads = int(config["num_attention_heads"])
            hidden = int(config["hidden_size"])
            dim = int(config.get("head_dim") or hidden // heads)
            limit = int(config.get("max_position_embeddings") or 2048)
            ropes = _ropes(config, architecture, dim, limit, min(max_len or limit, limit))
            layers, window = _layers(config, architecture, len(ropes))
            attention_bias = bool(config.get("attention_bias"))
            return cls(
                architecture=architecture,
                vocab_size=int(config["vocab_size"]),
                hidden_size=hidden,
                intermediate_size=int(config["intermediate_size"]),
                num_layers=len(layers),
                num_heads=heads,
                num_kv_heads=int(config.get("num_key_value_heads") or heads),
                head_dim=dim,
                rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
                max_position_embeddings=limit,
                tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
                ropes=ropes,
                layers=layers,
                sliding_window=window,
                attention_scale=float(config.get("query_pre_attn_scalar") or dim) ** -0.5,
                attention_softcap=config.get("attn_logit_softcapping"),
                final_softcap=config.get("final_logit_softcapping"),
                embedding_scale=hidden**0.5 if gemma else 1.0,
                activation=activation,
                qkv_bias=attention_bias or architecture == "Qwen2ForCausalLM",
                output_bias=attention_bias,
                mlp_bias=bool(config.get("mlp_bias")),
                qk_norms=architecture in ("Qwen3ForCausalLM", "Gemma3ForCausalLM"),
                norms_add_one=gemma,
                norms_after=gemma,
                joined_weights=architecture == "Phi3ForCausalLM",
            )
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise ModelLoadError(
                f"The model's configuration is incomplete or wrong ({error!r}); fetch it again."
            ) from None

    def kv_bytes_per_token(self, kv_dtype: torch.dtype) -> int:
        """Memory of one token's keys and values in all layers, with their scales if they are quantised."""
        vectors = 2 * self.num_layers * self.num_kv_heads
        return vectors * bytes_per_vector(self.head_dim, kv_dtype)


def _layers(
    config: Mapping[str, Any], architecture: str, num_ropes: int
) -> tuple[tuple[LayerKind, ...], int | None]:
    count = int(config["num_hidden_layers"])
    window = config.get("sliding_window")
    if architecture == "LlamaForCausalLM":
        window = None
    elif architecture in ("Qwen2ForCausalLM", "Qwen3ForCausalLM", "SmolLM3ForCausalLM"):
        window = window if config.get("use_sliding_window") else None
    roped = [True] * count
    if architecture == "SmolLM3ForCausalLM":
        every = int(config.get("no_rope_layer_interval", 4))
        roped = config.get("no_rope_layers") or [(i + 1) % every != 0 for i in range(count)]
    types = config.get("layer_types")
    if architecture in ("MistralForCausalLM", "Phi3ForCausalLM"):
        windowed = [True] * count
    elif types:
        unknown = set(types) - {"full_attention", "sliding_attention"}
        if unknown:
            raise ModelLoadError(
                f"Layers of the type {min(unknown)} are not supported; "
                "supported: full_attention, sliding_attention."
            )
        windowed = [kind == "sliding_attention" for kind in types]
    elif architecture == "SmolLM3ForCausalLM":
        windowed = [not has for has in roped]
    elif architecture.startswith("Gemma"):
        every = (
            2 if architecture == "Gemma2ForCausalLM" else config.get("sliding_window_pattern", 6)
        )
        windowed = [(i + 1) % every != 0 for i in range(count)]
    else:
        windowed = [i >= int(config.get("max_window_layers", 28)) for i in range(count)]
    windowed_now = [False] * count if window is None else windowed
    kinds = tuple(
        LayerKind(now, (1 if local and num_ropes > 1 else 0) if has else None)
        for now, local, has in zip(windowed_now, windowed, roped, strict=True)
    )
    return kinds, int(window) if window is not None and any(windowed_now) else None


def _ropes(
    config: Mapping[str, Any], architecture: str, dim: int, limit: int, max_len: int
) -> tuple[Rope, ...]:
    """The rotary embedding of full layers and, where it differs, that of windowed ones."""
    # transformers 5 writes rope_parameters; earlier files have rope_theta and rope_scaling.
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if "full_attention" in given:
        kinds = [given["full_attention"] or {}, given.get("sliding_attention") or {}]
    else:
        kinds = [given, {}]
    full = _rope(kinds[0], config, architecture, dim, limit, max_len)
    if "full_attention" not in given and "rope_local_base_freq" not in config:
        return (full,)
    local = {"rope_theta": config.get("rope_local_base_freq")} | kinds[1]
    return full, _rope(local, config, architecture, dim, limit, max_len)


def _rope(
    rope: Mapping[str, Any],
    config: Mapping[str, Any],
    architecture: str,
    dim: int,
    limit: int,
    max_len: int,
) -> Rope:
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    share = rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    dim = int(dim * float(share))
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if architecture == "Phi3ForCausalLM" and kind in ("su", "yarn"):  # its earlier files say so
        kind = "longrope"
    frequencies = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    original = int(
        config.get("original_max_position_embeddings")
        or rope.get("original_max_position_embeddings")
        or limit
    )
    factor = float(rope.get("factor") or limit / original)
    scale = rope.get("attention_factor")
    if kind in (
        "default",
        "dynamic",
    ):  # dynamic changes the frequencies past the limit, where none go
        return Rope(tuple(frequencies.tolist()))
    if kind == "linear":
        return Rope(tuple((frequencies / factor).tolist()))
    if kind == "llama3":
        # Long waves are slowed by `factor`, short ones kept, those between interpolated.
        low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
        smooth = ((original * frequencies / (2 * math.pi) - low) / (high - low)).clamp(0.0, 1.0)
        return Rope(tuple((frequencies * (smooth + (1.0 - smooth) / factor)).tolist()))
    if kind == "yarn":
        if scale is None:
            scale = _yarn_scale(factor, rope.get("mscale"), rope.get("mscale_all_dim"))
        kept = _yarn_kept(rope, theta, dim, original)
        return Rope(tuple((frequencies * (kept + (1.0 - kept) / factor)).tolist()), float(scale))
    if kind == "longrope":
        # https://arxiv.org/abs/2402.13753; one divisor for each pair.
        divisors = torch.tensor(rope["long_factor" if max_len > original else "short_factor"])
        if scale is None:
            scale = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
        return Rope(tuple((frequencies / divisors).tolist()), float(scale))
    raise ModelLoadError(
        f"The rotary embedding {kind!r} is not supported; supported: {', '.join(_ROPES)}."
    )


def _yarn_kept(rope: Mapping[str, Any], theta: float, dim: int, original: int) -> Tensor:
    """How much of each pair's frequency is kept, 0 to 1: https://arxiv.org/abs/2309.00071, section 3.2."""

    def pair_turning(times: float) -> float:
        """The pair that turns so often over the length of training."""
        return dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(theta))

    low = pair_turning(float(rope.get("beta_fast") or 32))
    high = pair_turning(float(rope.get("beta_slow") or 1))
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = (torch.arange(dim // 2, dtype=torch.float32) - low) / max(high - low, 0.001)
    return 1.0 - ramp.clamp(0.0, 1.0)


def _yarn_scale(factor: float, mscale: float | None, mscale_all_dim: float | None) -> float:
    def log_scale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    if mscale and mscale_all_dim:
        return log_scale(mscale) / log_scale(mscale_all_dim)
    return log_scale(1.0)
