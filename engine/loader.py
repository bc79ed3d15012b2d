"""Reads a model's configuration and weights from safetensors or GGUF and builds the decoder.

The only module that knows file formats of weights. Weights are handed on one by one and not kept.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.errors import ModelLoadError
from engine.files import ModelFiles, read_json
from engine.model import Decoder, ModelConfig


def load_decoder(
    files: ModelFiles, device: torch.device, dtype: torch.dtype, max_model_len: int | None
) -> Decoder:
    """The model on its device. Raises ModelLoadError with what is wrong with the files."""
    with ExitStack() as stack:
        if files.gguf is None:
            config = ModelConfig.from_dict(read_json(files.directory / "config.json"))
            take = _safetensors(files.directory, stack)
        else:
            config, take = _gguf(files.gguf)
        length = min(
            max_model_len or config.max_position_embeddings, config.max_position_embeddings
        )
        return Decoder(config, take, device, dtype, length)


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


def _gguf(path: Path) -> tuple[ModelConfig, Callable[[str], Tensor]]:
    from gguf import MODEL_ARCH, GGUFReader, dequantize, get_tensor_name_map
    from transformers import AutoConfig

    try:
        found = AutoConfig.from_pretrained(str(path.parent), gguf_file=path.name)
        reader = GGUFReader(str(path))
    except Exception as error:  # the readers raise whatever their parsing runs into
        raise _damaged(path, error) from None
    architecture = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM"}.get(
        found.model_type, found.model_type
    )
    config = ModelConfig.from_dict(found.to_dict() | {"architectures": [architecture]})
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_layers)
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def take(name: str) -> Tensor:
        stored = f"{names.get_name(name.removesuffix('.weight'))}.weight"
        if stored not in tensors:
            raise ModelLoadError(f"{path} lacks the weight {stored}; fetch it again.")
        tensor = tensors[stored]
        try:
            weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        except (ValueError, NotImplementedError) as error:
            raise _damaged(path, error) from None
        # llama.cpp keeps the two halves of a head's rotary pairs interleaved.
        for part, heads in (("q_proj", config.num_heads), ("k_proj", config.num_kv_heads)):
            if part in name:
                pairs = weight.view(heads, config.head_dim // 2, 2, -1)
                weight = pairs.transpose(1, 2).reshape(weight.shape)
        return weight

    return config, take


def _damaged(path: Path, error: Exception) -> ModelLoadError:
    detail = str(error).strip().split("\n", 1)[0].rstrip(".") or type(error).__name__
    return ModelLoadError(
        f"{path} is damaged or of an unsupported kind ({detail}); fetch it again."
    )
