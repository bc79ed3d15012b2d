"""How much of a GPU's memory the key-value cache gets. The arithmetic needs no GPU; `memory_of` runs a step on one.

The procedure is vLLM's: the largest step that can come is run once before there is a cache, the peak of its memory is
read, and the cache gets what weights and that peak leave of `gpu_memory_utilization`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.errors import OutOfMemory

_GIB = float(1 << 30)


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes. total: of the device; used: of it, by whomever, weights among it; activations: what the largest step takes
    besides; graphs: what recorded steps will keep."""

    total: int
    used: int
    activations: int
    graphs: int = 0

    def for_cache(self, utilization: float) -> int:
        """Bytes left to the key-value cache. Raises OutOfMemory if there are none."""
        left = int(self.total * utilization) - self.used - self.activations - self.graphs
        if left > 0:
            return left
        step = self.activations + self.graphs
        raise OutOfMemory(
            f"Weights and what else is there take {self.used / _GIB:.2f} GiB of the GPU's "
            f"{self.total / _GIB:.2f} GiB and the largest step {step / _GIB:.2f} GiB, so that "
            f"gpu_memory_utilization={utilization:g} leaves nothing to the key-value cache; lower "
            "max_num_batched_tokens or max_num_seqs, raise gpu_memory_utilization, set quantization, "
            "or take a smaller model."
        )


def memory_of(
    device: torch.device, step: Callable[[], object], held: int, graph_share: float
) -> DeviceMemory:
    """Run the largest step on a CUDA device and read what it took. held: bytes allocated now that will be freed;
    graph_share: of the rows of this step, how many the largest recorded one has."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    step()
    torch.cuda.synchronize(device)
    activations = torch.cuda.max_memory_allocated(device) - before
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    used = total - free - held
    return DeviceMemory(total, used, activations, int(activations * graph_share))


def slots_of(memory: int, bytes_per_token: int, most: int) -> int:
    """Tokens of a cache of `memory` bytes, at most `most`. Raises OutOfMemory if not even one fits."""
    slots = min(memory // bytes_per_token, most)
    if slots < 1:
        raise OutOfMemory(
            f"One token of this model needs {bytes_per_token} bytes of key-value cache and only "
            f"{memory} are given; raise kv_cache_memory."
        )
    return slots


def load_failure(error: Exception) -> OutOfMemory:
    """Memory ran out while the weights were loaded."""
    return OutOfMemory(
        f"The weights do not fit the GPU's memory ({first_line(error)}); set quantization, take a "
        "smaller model or free what others hold of it."
    )


def step_failure(error: Exception) -> OutOfMemory:
    """Memory ran out in a step."""
    return OutOfMemory(
        f"Memory ran out in a step ({first_line(error)}); lower gpu_memory_utilization or kv_cache_memory, "
        "max_num_batched_tokens or max_num_seqs."
    )


def first_line(error: Exception) -> str:
    """What an exception says, in one line without a full stop."""
    return str(error).strip().split("\n", 1)[0].rstrip(".") or type(error).__name__
