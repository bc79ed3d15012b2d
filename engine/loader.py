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
        length = min(max_model_len or config.max_position_embeddings, config.max_position_embeddings)
        decoder = Decoder(config, take, device, dtype, length)
    if decoder.embedding.shape != (config.vocab_size, config.hidden_size):
        raise ModelLoadError(
            f"The weights of {files.name} do not match its configuration; fetch it again."
        )
    return decoder


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
            raise ModelLoadError(f"The model in {directory} lacks the weight {name}; fetch it again.")
        tensor: Tensor = where[name].get_tensor(name)
        return tensor

    return take


def _gguf(path: Path) -> tuple[ModelConfig, Callable[[str], Tensor]]:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, dtype=torch.float32
        )
    except Exception as error:  # the reader raises whatever its parsing runs into
        raise _damaged(path, error) from None
    finally:
        if shown:
            logging.enable_progress_bar()
    config = ModelConfig.from_dict(model.config.to_dict() | {"architectures": [type(model).__name__]})
    weights = model.state_dict()

    def take(name: str) -> Tensor:
        if name not in weights:
            raise ModelLoadError(f"{path} lacks the weight {name}; fetch it again.")
        tensor: Tensor = weights.pop(name)
        return tensor

    return config, take


def _damaged(path: Path, error: Exception) -> ModelLoadError:
    detail = str(error).strip().split("\n", 1)[0].rstrip(".") or type(error).__name__
    return ModelLoadError(
        f"{path} is damaged or of an unsupported kind ({detail}); fetch it again."
    )
