"""Reads a model's configuration and weights from safetensors or GGUF and builds the decoder.

The only module that knows file formats of weights. Weights are handed on one by one and not kept.
"""

from collections.abc import Callable, Mapping, Set
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.devices import BackendName
from engine.errors import ModelLoadError
from engine.files import ModelFiles, read_json
from engine.linear import Quantization
from engine.model import Decoder
from engine.model_config import ModelConfig, Rope

_ROPE_DIVISORS = (
    "rope_freqs.weight"  # llama.cpp's place for Llama 3's change of the rotary frequencies
)
_STD = 0.02  # of random weights, as in transformers


def load_decoder(
    files: ModelFiles,
    device: torch.device,
    dtype: torch.dtype,
    max_model_len: int | None,
    quantization: Quantization = None,
    dummy: bool = False,
    backend: BackendName = "torch",
) -> Decoder:
    """The model on its device. Raises ModelLoadError with what is wrong with the files. dummy: random weights, of a
    directory that needs no more than a config.json. backend: of all but products and attention."""
    with ExitStack() as stack:
        if files.gguf is None:
            config = ModelConfig.from_dict(
                read_json(files.directory / "config.json"), max_model_len
            )
            take = _random(config, device, dtype) if dummy else _safetensors(files.directory, stack)
        else:
            config, take = _gguf(files.gguf)
        length = min(
            max_model_len or config.max_position_embeddings, config.max_position_embeddings
        )
        return Decoder(config, take, device, dtype, length, quantization, backend)


def _safetensors(directory: Path, stack: ExitStack) -> Callable[[str], Tensor]:
    from safetensors import SafetensorError, safe_open

    paths = sorted(directory.glob("*.safetensors"))
    index = directory / "model.safetensors.index.json"
    if index.exists():
        wanted = set(read_json(index).get("weight_map", {}).values())
        missing = sorted(wanted - {path.name for path in paths})
        if missing:
            raise ModelLoadError(f"{directory} lacks {missing[0]}; fetch the model again.")
        paths = [path for path in paths if path.name in wanted]
    if not paths:
        raise ModelLoadError(
            f"{directory} has no safetensors files; convert the model with save_pretrained first."
        )
    where: dict[str, Any] = {}
    for path in paths:
        try:
            file = stack.enter_context(safe_open(str(path), framework="pt"))
        except (SafetensorError, OSError) as error:
            raise _damaged(path, error) from None
        where.update(dict.fromkeys(file.keys(), file))

    def take(name: str) -> Tensor:
        if name not in where:
            raise ModelLoadError(
                f"The model in {directory} lacks the weight {name}; fetch it again."
            )
        tensor: Tensor = where[name].get_tensor(name)
        return tensor

    return take


def _random(
    config: ModelConfig, device: torch.device, dtype: torch.dtype
) -> Callable[[str], Tensor]:
    """Weights of the configuration's sizes, made on the device; the same ones every time."""
    generator = torch.Generator(device).manual_seed(0)
    hidden, inner, dim = config.hidden_size, config.intermediate_size, config.head_dim
    wide, narrow = config.num_heads * dim, config.num_kv_heads * dim
    shapes = {
        **dict.fromkeys(("embed_tokens", "lm_head"), (config.vocab_size, hidden)),
        "qkv_proj": (wide + 2 * narrow, hidden),
        "q_proj": (wide, hidden),
        **dict.fromkeys(("k_proj", "v_proj"), (narrow, hidden)),
        "o_proj": (hidden, wide),
        "gate_up_proj": (2 * inner, hidden),
        **dict.fromkeys(("gate_proj", "up_proj"), (inner, hidden)),
        "down_proj": (hidden, inner),
        **dict.fromkeys(("q_norm", "k_norm"), (dim,)),
    }

    def take(name: str) -> Tensor:
        *_, module, kind = name.split(".")
        shape = shapes.get(module, (hidden,))
        if kind == "bias":
            return torch.zeros(shape[:1], dtype=dtype, device=device)
        if len(shape) == 1:  # norms, of which Gemma's add one
            return torch.full(shape, float(not config.norms_add_one), dtype=dtype, device=device)
        weight = torch.empty(shape, dtype=dtype, device=device)
        return weight.normal_(std=_STD, generator=generator)

    return take


def _gguf(path: Path) -> tuple[ModelConfig, Callable[[str], Tensor]]:
    from gguf import MODEL_ARCH, GGUFReader, dequantize, get_tensor_name_map

    try:
        reader = GGUFReader(str(path))
        tensors = {tensor.name: tensor for tensor in reader.tensors}
        config = _gguf_config(path, reader.fields, set(tensors))
    except ModelLoadError:
        raise
    except Exception as error:  # the reader raises whatever its parsing runs into
        raise _damaged(path, error) from None
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_layers)

    def stored(name: str) -> Tensor:
        if name not in tensors:
            raise ModelLoadError(f"{path} lacks the weight {name}; fetch it again.")
        tensor = tensors[name]
        try:
            return torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        except (ValueError, NotImplementedError) as error:
            raise _damaged(path, error) from None

    def take(name: str) -> Tensor:
        weight = stored(f"{names.get_name(name.removesuffix('.weight'))}.weight")
        # llama.cpp keeps the two halves of a head's rotary pairs interleaved.
        for part, heads in (("q_proj", config.num_heads), ("k_proj", config.num_kv_heads)):
            if part in name:
                pairs = weight.view(heads, config.head_dim // 2, 2, -1)
                weight = pairs.transpose(1, 2).reshape(weight.shape)
        return weight

    if _ROPE_DIVISORS in tensors:
        frequencies = torch.tensor(config.ropes[0].frequencies) / stored(_ROPE_DIVISORS)
        config = replace(config, ropes=(Rope(tuple(frequencies.tolist())),))
    return config, take


def _gguf_config(path: Path, fields: Mapping[str, Any], tensors: Set[str]) -> ModelConfig:
    """The file's metadata under the names of config.json."""

    def get(key: str, default: Any = None) -> Any:
        return fields[key].contents() if key in fields else default

    kind = get("general.architecture")
    if kind != "llama":  # llama.cpp's name for Mistral's files, too
        raise ModelLoadError(
            f"The architecture {kind} of {path} is not supported; supported: llama."
        )
    rope = {"rope_theta": get("llama.rope.freq_base", 10000.0)}
    scaling = get("llama.rope.scaling.type", "none")
    if scaling != "none":
        rope |= {"rope_type": scaling, "factor": get("llama.rope.scaling.factor")}
    tokens = fields.get("tokenizer.ggml.tokens")
    window = get("llama.attention.sliding_window")
    return ModelConfig.from_dict(
        {
            "architectures": [f"{'Mistral' if window else 'Llama'}ForCausalLM"],
            "vocab_size": get("llama.vocab_size") or (len(tokens.data) if tokens else None),
            "hidden_size": get("llama.embedding_length"),
            "intermediate_size": get("llama.feed_forward_length"),
            "num_hidden_layers": get("llama.block_count"),
            "num_attention_heads": get("llama.attention.head_count"),
            "num_key_value_heads": get("llama.attention.head_count_kv"),
            "head_dim": get("llama.attention.key_length") or get("llama.rope.dimension_count"),
            "rms_norm_eps": get("llama.attention.layer_norm_rms_epsilon", 1e-5),
            "max_position_embeddings": get("llama.context_length"),
            "sliding_window": window,
            "rope_parameters": rope,
            "tie_word_embeddings": "output.weight" not in tensors,
        }
    )


def _damaged(path: Path, error: Exception) -> ModelLoadError:
    detail = str(error).strip().split("\n", 1)[0].rstrip(".") or type(error).__name__
    return ModelLoadError(
        f"{path} is damaged or of an unsupported kind ({detail}); fetch it again."
    )
