"""What an engine is built from. Plain data: it crosses process borders and imports nothing heavy."""

from dataclasses import dataclass, fields
from typing import Literal, get_args, get_origin


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
    together no more than this (on CPU, than 128) go into a step, and fewer in the company of short requests, so that
    these do not wait; None takes a quarter of max_num_batched_tokens.
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
    attention_backend: Literal["torch", "triton", None] = None
    num_threads: int | None = None
    quantization: Literal["int8", "int8_weight_only", "int4_weight_only", None] = None
    load_format: Literal["auto", "dummy"] = "auto"
    enforce_eager: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError(
                "EngineConfig.model is empty; give a model directory, id or GGUF file."
            )
        for field in fields(self):
            value, kind = getattr(self, field.name), field.type
            if get_origin(kind) is Literal:
                allowed = get_args(kind)
                if value not in allowed:
                    names = ", ".join(str(name) for name in allowed[:-1])
                    raise _refused(field.name, value, f"use {names} or {allowed[-1]}")
            elif kind in (int, int | None) and field.name != "seed":
                optional = "" if kind is int else ", or None"
                whole = type(value) is int and value > 0
                if not whole and not (optional and value is None):
                    raise _refused(
                        field.name, value, f"it must be a whole number of at least 1{optional}"
                    )
            elif kind is bool and type(value) is not bool:
                raise _refused(field.name, value, "use True or False")
        if type(self.seed) is not int:
            raise _refused("seed", self.seed, "it must be a whole number")
        share = self.gpu_memory_utilization
        if type(share) not in (int, float) or not 0 < share <= 1:
            raise _refused("gpu_memory_utilization", share, "it must be above 0 and at most 1")


def _refused(name: str, value: object, rule: str) -> ValueError:
    return ValueError(f"EngineConfig.{name} is {value!r}; {rule}.")
