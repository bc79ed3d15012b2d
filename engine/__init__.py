"""In-process inference engine for many short requests that share prefixes.

Importing this package is cheap: torch is only imported when an engine is built.
"""

import os
from typing import TYPE_CHECKING, Any

from engine.config import EngineConfig
from engine.errors import (
    Aborted,
    BoundaryMerge,
    DeadlineExceeded,
    EngineError,
    ModelLoadError,
    NoChoices,
    OutOfMemory,
    PromptTooLong,
    QueueFull,
)
from engine.outputs import ChoiceOutput, EngineStats, Pin, RequestMetrics, TextOutput
from engine.params import ChoiceParams, SamplingParams
from engine.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from engine.async_llm import AsyncLLM
    from engine.llm import LLM

# Threads that spin while they wait make every pass 5 to 50 times slower as soon as another process wants
# the core. The OpenMP runtime reads this once, when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("KMP_BLOCKTIME", "0")
# Large pages for large tensors: products with few rows, which read all weights, take a tenth less time.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

__all__ = [
    "LLM",
    "Aborted",
    "AsyncLLM",
    "BoundaryMerge",
    "ChoiceOutput",
    "ChoiceParams",
    "DeadlineExceeded",
    "EngineConfig",
    "EngineError",
    "EngineStats",
    "ModelLoadError",
    "NoChoices",
    "OutOfMemory",
    "Pin",
    "PromptTooLong",
    "QueueFull",
    "RequestMetrics",
    "SamplingParams",
    "TextOutput",
    "Tokenizer",
    "load_tokenizer",
]


def __getattr__(name: str) -> Any:
    if name == "AsyncLLM":
        from engine.async_llm import AsyncLLM

        return AsyncLLM
    if name == "LLM":
        from engine.llm import LLM

        return LLM
    raise AttributeError(f"module 'engine' has no attribute {name!r}")
