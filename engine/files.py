"""Where a model's files are: turns a directory, a GGUF file or a Hugging Face id into paths. Reads no weights."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import ModelLoadError

_WANTED = ("*.json", "*.jinja", "*.safetensors", "tokenizer.model")


@dataclass(frozen=True)
class ModelFiles:
    """A model's directory, and the GGUF file in it if the model is one file."""

    name: str
    directory: Path
    gguf: Path | None = None


def resolve_model(model: str) -> ModelFiles:
    """Find the files of a model reference; ModelLoadError says what to give instead."""
    path = Path(model).expanduser()
    if path.is_file():
        return _gguf_file(model, path)
    if path.is_dir():
        return _directory(model, path)
    if path.suffix == ".gguf" or path.is_absolute() or model.startswith((".", "~")):
        raise ModelLoadError(f"There is no model at {model}; check the path.")
    if model.count("/") > 1:
        raise ModelLoadError(f"There is no model directory or file {model}; check the path.")
    from huggingface_hub import snapshot_download

    try:
        found = snapshot_download(model, allow_patterns=list(_WANTED))
    except Exception as error:  # network, authorisation and naming errors have no common base
        raise ModelLoadError(
            f"{model!r} is neither a local model nor available from Hugging Face "
            f"({type(error).__name__}); check the name, or give a directory or GGUF file."
        ) from None
    return _directory(model, Path(found))


def _gguf_file(model: str, path: Path) -> ModelFiles:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise ModelLoadError(
            f"{model} is not a GGUF file; give a GGUF file or a directory with config.json and safetensors."
        )
    return ModelFiles(model, path.parent, path)


def _directory(model: str, path: Path) -> ModelFiles:
    if (path / "config.json").exists():
        return ModelFiles(model, path)
    gguf = sorted(path.glob("*.gguf"))
    if len(gguf) == 1:
        return _gguf_file(str(gguf[0]), gguf[0])
    if gguf:
        raise ModelLoadError(f"{model} holds {len(gguf)} GGUF files; give the path of one of them.")
    raise ModelLoadError(f"{model} has no config.json; give the directory of a Hugging Face model.")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a model's file; ModelLoadError when it is damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path} cannot be read ({error}); fetch it again.") from None
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path} does not hold a JSON object; fetch it again.")
    return value
