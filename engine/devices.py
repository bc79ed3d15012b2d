"""Where and how an engine computes: device, number format and threads. Knows nothing of models."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import torch

from engine.errors import ModelLoadError

BackendName = Literal["torch", "triton"]


def set_threads(count: int | None) -> None:
    """torch's threads; None leaves one core to the callers, who play the games."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    torch.set_num_threads(count or max(1, (cores or 1) - 1))


def pick_device(name: str) -> torch.device:
    """ "auto" is CUDA when there is one. Raises ModelLoadError for a device that is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ModelLoadError(f"There is no device {name!r}; use auto, cpu or cuda.") from None
    if device.type not in ("cpu", "cuda"):
        raise ModelLoadError(f"The engine does not run on {name!r}; use auto, cpu or cuda.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ModelLoadError("There is no CUDA device here; use device auto or cpu.")
    return device


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """ "auto" is bfloat16 where the device is fast at it."""
    if name != "auto":
        dtype: torch.dtype = getattr(torch, name)
        return dtype
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    return torch.bfloat16 if _cpu_is_fast_at_bf16() else torch.float32


def pick_backend(name: BackendName | None, device: torch.device) -> BackendName:
    """None is triton on CUDA and torch elsewhere. Raises ModelLoadError where triton's kernels cannot run."""
    name = name or ("triton" if device.type == "cuda" else "torch")
    if name == "triton" and find_spec("triton") is None:
        raise ModelLoadError(
            "attention_backend triton needs the package triton; install arena[gpu] or use torch."
        )
    if name == "triton" and device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ModelLoadError("attention_backend triton needs a CUDA device; use torch.")
    return name


def _cpu_is_fast_at_bf16() -> bool:
    """Whether the processor multiplies bfloat16 itself; elsewhere float32 is the faster of the two."""
    flags = Path("/proc/cpuinfo")
    if not flags.exists():
        return False
    text = flags.read_text(encoding="utf-8", errors="replace")
    return any(flag in text for flag in ("avx512_bf16", "amx_bf16", " bf16 "))
