"""What a step costs at the least, and how many moves a second a device can make: an analytic roofline.

A step is bounded, part by part, by the bytes that it must move and by the operations that it must do (Williams,
Waterman and Patterson, "Roofline", 2009): the time of a part is the larger of bytes / bandwidth and operations / rate,
and parts follow one another. Each input is counted once, each output once. What a program does beyond that (launches,
copies, Python) is not in it, so a prediction is a bound: measured time over predicted time says what is left to gain.
`scripts/check_capacity.py` compares the two on the processor at hand.
"""

import math
import time
from dataclasses import dataclass
from typing import Literal

import torch

from engine.kv_pool import bytes_per_vector
from engine.linear import make_linear
from engine.model_config import ModelConfig

WeightFormat = Literal[
    "float32", "bfloat16", "float16", "int8", "int8_weight_only", "int4_weight_only"
]

_BYTES: dict[str, float] = {
    "float32": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "int8": 1.0,
    "int8_weight_only": 1.0,
    "int4_weight_only": 0.5
    + 4.0 / 128,  # with a scale and a zero point in 16 bits for each 128 weights
}
_ACTIVATION = 2.0  # bytes of an activation; float32 models have 4
_GB, _TERA = 1e9, 1e12


@dataclass(frozen=True)
class Device:
    """What a device can do at most. bandwidth: bytes/s of its memory; bf16, int8: dense multiply-adds counted as two
    operations, per second; memory: bytes."""

    name: str
    bandwidth: float
    bf16: float
    int8: float
    memory: float


# From the makers' data sheets, without sparsity: NVIDIA A100 80GB SXM (2021), H100 SXM5 (2023), H200 SXM (2023), L4
# (2023), and the Ada architecture whitepaper (2022) for the RTX 4090 (bf16 with float32 sums).
DEVICES = {
    "A100 80GB SXM": Device("A100 80GB SXM", 2039 * _GB, 312 * _TERA, 624 * _TERA, 80 * _GB),
    "H100 SXM": Device("H100 SXM", 3350 * _GB, 989.4 * _TERA, 1978.9 * _TERA, 80 * _GB),
    "H200 SXM": Device("H200 SXM", 4800 * _GB, 989.4 * _TERA, 1978.9 * _TERA, 141 * _GB),
    "L4": Device("L4", 300 * _GB, 121 * _TERA, 242.5 * _TERA, 24 * _GB),
    "RTX 4090": Device("RTX 4090", 1008 * _GB, 165.2 * _TERA, 660.6 * _TERA, 24 * _GB),
}


@dataclass(frozen=True)
class Load:
    """One step: `streams` requests with `rows` rows each, every row seeing `context` keys in the cache.

    The rows of a stream read its keys once. shared: how many of the keys all streams have in common: read once for all.
    normalised: rows of each stream whose log probabilities need the whole vocabulary; edges: pairs of a row and a token
    of each stream for which one product is enough (masked scoring).
    """

    streams: int
    rows: float
    context: float
    shared: float = 0.0
    normalised: float = 0.0
    edges: float = 0.0


@dataclass(frozen=True)
class Part:
    """Bytes moved, operations done and the seconds that they take at least."""

    name: str
    bytes: float
    operations: float
    seconds: float


@dataclass(frozen=True)
class Step:
    """A step's parts: the layers' products, attention, the vocabulary."""

    parts: tuple[Part, ...]

    @property
    def bytes(self) -> float:
        return sum(part.bytes for part in self.parts)

    @property
    def operations(self) -> float:
        return sum(part.operations for part in self.parts)

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)


def weight_bytes(model: ModelConfig, weights: WeightFormat = "bfloat16") -> float:
    """Memory of all weights. int8 keeps a head beside a tied embedding, which is in 16 bits."""
    embedding = model.vocab_size * model.hidden_size
    wide = max(_BYTES[weights], 2.0)
    head = embedding * _head_bytes(weights)
    if model.tie_word_embeddings and weights != "int8":
        head = 0.0
    return model.num_layers * _layer_weights(model) * _BYTES[weights] + embedding * wide + head


def predict(
    model: ModelConfig,
    load: Load,
    device: Device,
    weights: WeightFormat = "bfloat16",
    kv: torch.dtype = torch.bfloat16,
) -> Step:
    """The roofline of one step. kv: in what keys and values are kept."""
    rows = load.streams * load.rows
    rate = device.int8 if weights == "int8" else device.bf16
    activation = 4.0 if weights == "float32" else _ACTIVATION

    def part(name: str, moved: float, operations: float, at: float = device.bf16) -> Part:
        return Part(name, moved, operations, max(moved / device.bandwidth, operations / at))

    inner, hidden = model.intermediate_size, model.hidden_size
    wide = model.num_heads * model.head_dim
    joined = wide + 2 * model.num_kv_heads * model.head_dim
    # What the four products of a layer read and write besides their weights.
    ends = (hidden + joined) + (wide + hidden) + (hidden + 2 * inner) + (inner + hidden)
    per_layer = _layer_weights(model)
    layers = part(
        "layers",
        model.num_layers * (per_layer * _BYTES[weights] + rows * ends * activation),
        model.num_layers * 2.0 * per_layer * rows,
        rate,
    )
    vector = bytes_per_vector(model.head_dim, kv)
    keys_bytes = key_operations = 0.0
    for kind in model.layers:
        seen, shared = load.context, load.shared
        if kind.windowed and model.sliding_window is not None:
            seen = min(seen, model.sliding_window)
            shared = max(0.0, seen - (load.context - load.shared))
        own = load.streams * (seen - shared)
        keys_bytes += (own + shared + rows) * 2 * model.num_kv_heads * vector
        keys_bytes += 2 * rows * wide * activation
        key_operations += 4.0 * rows * wide * seen
    attention = part("attention", keys_bytes, key_operations)
    embedding = model.vocab_size * hidden
    normalised, edges = load.streams * load.normalised, load.streams * load.edges
    head_bytes = (
        embedding * _head_bytes(weights)
        if normalised
        else edges * hidden * max(_BYTES[weights], 2.0)
    )
    head_bytes += rows * hidden * activation
    head_rows = 2.0 * normalised * embedding + 2.0 * edges * hidden
    return Step((layers, attention, part("vocabulary", head_bytes, head_rows, rate)))


def _head_bytes(weights: WeightFormat) -> float:
    """Of a weight of the vocabulary, which weight-only formats leave in 16 bits."""
    return 1.0 if weights == "int8" else max(_BYTES[weights], 2.0)


def _layer_weights(model: ModelConfig) -> float:
    wide, narrow = model.num_heads * model.head_dim, 2 * model.num_kv_heads * model.head_dim
    return model.hidden_size * (2.0 * wide + narrow + 3.0 * model.intermediate_size)


@dataclass(frozen=True)
class Game:
    """What one move request is. The defaults are the chess workload of the benchmarks (SmolLM2's tokens, ply 20 on).

    context: tokens of the prompt; shared: of these, the system prompt; new: tokens of the prompt that were not computed
    before; nodes: inner nodes of the moves' trie, the root included; edges: its edges; tokens: of a move.
    """

    context: float = 380.0
    shared: float = 275.0
    new: float = 9.0
    nodes: float = 36.0
    edges: float = 60.0
    tokens: int = 4


@dataclass(frozen=True)
class Moves:
    """Moves per second and seconds of a move, exact and masked."""

    likelihood: float
    masked: float
    likelihood_seconds: float
    masked_seconds: float


def moves_per_second(
    model: ModelConfig,
    streams: int,
    device: Device,
    game: Game | None = None,
    weights: WeightFormat = "bfloat16",
    kv: torch.dtype = torch.bfloat16,
) -> Moves:
    """Every stream asks for one move at a time. Exact: one step with the new tokens and all inner nodes. Masked: a
    step for each token of the move, each with a product for every edge of one node (what looking ahead saves is left
    out)."""
    g = game or Game()
    rows = g.new + g.nodes - 1
    exact = Load(streams, rows, g.context + g.tokens / 2, g.shared, normalised=g.nodes)
    seconds = predict(model, exact, device, weights, kv).seconds
    walked = 0.0
    for at in range(g.tokens):
        rows = g.new if at == 0 else 1.0
        step = Load(streams, rows, g.context + at, g.shared, edges=g.edges / g.nodes)
        walked += predict(model, step, device, weights, kv).seconds
    return Moves(streams / seconds, streams / walked, seconds, walked)


def kv_tokens(
    model: ModelConfig,
    device: Device,
    gpu_memory_utilization: float = 0.90,
    weights: WeightFormat = "bfloat16",
    kv: torch.dtype = torch.bfloat16,
    activations: float = 1e9,
) -> int:
    """Tokens of the key-value cache beside the weights and the `activations` (bytes) of the largest step; 0 if the
    weights do not fit."""
    left = gpu_memory_utilization * device.memory - weight_bytes(model, weights) - activations
    return max(0, math.floor(left / model.kv_bytes_per_token(kv)))


def measure_cpu(dtype: torch.dtype = torch.bfloat16, seconds: float = 1.0) -> Device:
    """This processor with torch's present number of threads: two rates, by the products that the engine itself uses.

    bandwidth: a product of one row with weights of 128 MiB, far beyond the caches. bf16: the rate of products of 256
    rows with 1536 x 1536 weights, whatever `dtype` is; int8 the same with int8 weights. memory: 0 (not asked for).
    """
    generator = torch.Generator().manual_seed(0)

    def weight(out: int, width: int) -> torch.Tensor:
        return torch.randn(out, width, generator=generator).to(dtype)

    def fastest(product: object, rows: int, width: int) -> float:
        x = torch.randn(rows, width, generator=generator).to(dtype)
        best = math.inf
        until = time.perf_counter() + seconds
        while best == math.inf or time.perf_counter() < until:
            started = time.perf_counter()
            product(x)  # type: ignore[operator]
            best = min(best, time.perf_counter() - started)
        return best

    with torch.inference_mode():
        size = 4096
        large = (128 << 20) // (size * dtype.itemsize)
        stream = fastest(make_linear(weight(large, size)), 1, size)
        rates = [
            2.0
            * 256
            * 1536
            * 1536
            / fastest(make_linear(weight(1536, 1536), None, kind), 256, 1536)
            for kind in (None, "int8")
        ]
    return Device("measured CPU", large * size * dtype.itemsize / stream, rates[0], rates[1], 0.0)
