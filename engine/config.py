"""What an engine is built from. Plain data: it crosses process borders and imports nothing heavy."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class EngineConfig:
    """Settings of one engine. Names follow vLLM where the meaning is the same.

    model: a Hugging Face directory or id, or the path of a GGUF file.
    dtype: "auto" takes bfloat16 where the device is fast at it, float32 elsewhere.
    device: "auto" takes CUDA when there is one.
    max_model_len: tokens of a prompt and its answer together; None takes the model's own limit.
    max_num_seqs: requests that are worked on at a time.
    max_num_batched_tokens: rows of one step, over all requests.
    long_prefill_token_threshold: a prompt with more tokens than this to compute is long. Of all long ones
    together no more than this go into a step, and fewer in the company of short requests, so that these do not
    wait; None takes 128 on CPU, a quarter of max_num_batched_tokens elsewhere.
    gpu_memory_utilization: share of the GPU's memory that weights and cache may take.
    kv_cache_memory: bytes of the key-value cache; None takes what the GPU leaves, or at most 2 GiB on CPU.
    kv_cache_dtype: "int8" and "fp8" (e4m3) keep keys and values in 8 bits, with a scale for each token and head, so
        that the same memory holds nearly twice the tokens of bfloat16; "auto" keeps them in the model's dtype.
    enable_prefix_caching: keep what was computed, for later prompts with the same beginning.
    max_waiting: requests that may wait; one more fails at once with QueueFull, except when its client has less than
    its equal share of the queue.
    deterministic: a request's probabilities have the same bits alone or in any batch, with or without cache, and
        after preemption; it costs some speed. ModelLoadError where the device cannot keep that.
    attention_backend: "torch" or "triton", of attention and of all else that has a kernel; None takes triton on CUDA
        and torch elsewhere.
    num_threads: torch threads on CPU; None takes all cores but one, which is left to the callers.
    quantization: "int8" keeps the weights in int8 and rounds activations to int8 when they come; "int8_weight_only"
        and "int4_weight_only" leave activations alone and need torchao (`arena[quantization]`), int4 a GPU, too.
    load_format: "dummy" takes random weights of the sizes in config.json, for measurements without the weights' files.
    enforce_eager: on CUDA, launch every step anew instead of recording common ones as CUDA graphs.
    seed: decides the draws of requests that bring no seed of their own.
    """

    model: str
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    long_prefill_token_threshold: int | None = None
    gpu_memory_utilization: float = 0.90
    kv_cache_memory: int | None = None
    kv_cache_dtype: Literal["auto", "int8", "fp8"] = "auto"
    enable_prefix_caching: bool = True
    max_waiting: int = 1024
    deterministic: bool = False
    attention_backend: Literal[None, "torch", "triton"] = None
    num_threads: int | None = None
    quantization: Literal[None, "int8", "int8_weight_only", "int4_weight_only"] = None
    load_format: Literal["auto", "dummy"] = "auto"
    enforce_eager: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError(
                "EngineConfig.model is empty; give a model directory, id or GGUF file."
            )
        if self.dtype not in ("auto", "float32", "bfloat16", "float16"):
            raise ValueError(
                f"EngineConfig.dtype is {self.dtype!r}; use auto, float32, bfloat16 or float16."
            )
        if self.load_format not in ("auto", "dummy"):
            raise ValueError(
                f"EngineConfig.load_format is {self.load_format!r}; use auto or dummy."
            )
        formats = (None, "int8", "int8_weight_only", "int4_weight_only")
        if self.quantization not in formats:
            raise ValueError(
                f"EngineConfig.quantization is {self.quantization!r}; use {', '.join(formats[1:])} or None."
            )
        if self.kv_cache_dtype not in ("auto", "int8", "fp8"):
            raise ValueError(
                f"EngineConfig.kv_cache_dtype is {self.kv_cache_dtype!r}; use auto, int8 or fp8."
            )
        if self.attention_backend not in (None, "torch", "triton"):
            raise ValueError(
                f"EngineConfig.attention_backend is {self.attention_backend!r}; use torch, triton or None."
            )
        for name in (
            "max_model_len",
            "kv_cache_memory",
            "num_threads",
            "long_prefill_token_threshold",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"EngineConfig.{name} is {value}; it must be at least 1, or None.")
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_waiting"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"EngineConfig.{name} is {getattr(self, name)}; it must be at least 1."
                )
        if not 0.0 < self.gpu_memory_utilization <= 1.0:
            raise ValueError("EngineConfig.gpu_memory_utilization must be above 0 and at most 1.")
