"""What the runner does for a GPU, as far as a machine without one can show it: staging, padding, recorded calls."""

import asyncio
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from engine import LLM, AsyncLLM, ChoiceParams, OutOfMemory, SamplingParams
from engine.core import EngineCore
from engine.graphs import Graphs, padded_size, row_sizes
from engine.kv_pool import KVPool
from engine.memory import DeviceMemory, load_failure, slots_of
from engine.model import Batch
from engine.scheduler import Chunk
from engine.staging import Staging
from tests.engine.conftest import MOVES, SYSTEM, config

CPU = torch.device("cpu")


def test_staged_arrays_arrive_with_type_and_shape_and_stay_for_two_steps() -> None:
    staging = Staging(CPU, copies=True)
    rng = np.random.default_rng(0)
    steps: list[list[tuple[Tensor, np.ndarray]]] = []
    for step in range(6):
        staging.begin()
        arrays = [
            rng.integers(0, 100, (3, step + 1)),
            rng.random(7).astype(np.float32),
            np.zeros(0, dtype=np.int64),
            rng.integers(0, 2, 5).astype(np.bool_),
            # every other step outgrows the memory of the ones before
            rng.integers(0, 9, (1 << 18) * (1 + step % 2), dtype=np.int32),
        ]
        places = [staging.put(array) for array in arrays[:-1]]
        staging.flush()
        places.append(staging.send(arrays[-1]))
        steps.append(list(zip(places, arrays, strict=True)))
        for place, array in [pair for pairs in steps[-2:] for pair in pairs]:
            assert place.shape == array.shape
            assert torch.equal(place, torch.from_numpy(array))


def test_rows_are_padded_to_the_next_size() -> None:
    sizes = row_sizes(512)
    assert sizes == (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 320, 384, 448, 512)
    found = [padded_size(rows, sizes) for rows in (1, 3, 9, 256, 257, 512, 513)]
    assert found == [1, 4, 16, 256, 320, 512, None]
    assert row_sizes(20) == (1, 2, 4, 8, 16) and row_sizes(0) == ()


@dataclass(frozen=True)
class Inner:
    table: Tensor
    scale: float
    missing: Tensor | None = None


@dataclass(frozen=True)
class Outer:
    x: Tensor
    parts: list[Inner]
    launch: tuple[int, ...]


class Again:
    """Records a call as a graph does: later it sees nothing but the places it saw at first."""

    def __init__(self, call: object) -> None:
        self._call = call
        self.result = call()  # type: ignore[operator]

    def replay(self) -> None:
        self.result.copy_(self._call())  # type: ignore[operator]


def test_a_recorded_call_sees_the_contents_of_every_new_argument() -> None:
    calls: list[int] = []

    def total(value: Outer) -> Tensor:
        calls.append(len(value.x))
        result = value.x.clone()
        for part in value.parts:
            result += part.scale * part.table.sum()
        return result

    def make(seed: int, rows: int = 4, scale: float = 2.0) -> Outer:
        torch.manual_seed(seed)
        parts = [Inner(torch.rand(3, 2), scale), Inner(torch.rand(5), 1.0)]
        return Outer(torch.rand(rows), parts, (rows, 7))

    graphs = Graphs(total, Again, most=2)
    for seed in range(4):
        for rows in (4, 8):
            value = make(seed, rows)
            assert torch.equal(graphs(value), total(value))
    assert len(graphs) == 2 and graphs.replays == 6  # recorded when they came again
    # Another constant would be another graph, of which there are enough.
    for _ in range(3):
        other = make(9, scale=3.0)
        assert torch.equal(graphs(other), total(other))
    assert len(graphs) == 2 and graphs.replays == 6


def test_an_argument_that_differs_in_a_constant_is_not_served_by_another_ones_graph() -> None:
    graphs = Graphs(lambda v: v.x * v.parts[0].scale, Again, most=8)
    x = torch.ones(2)
    for scale in (1.0, 2.0) * 3:
        value = Outer(x, [Inner(x, scale)], (2,))
        assert graphs(value).tolist() == pytest.approx([scale, scale])
    strided = Outer(torch.ones(4)[::2], [Inner(x, 2.0)], (2,))
    for _ in range(2):
        assert graphs(strided).tolist() == pytest.approx([2.0, 2.0])
    assert len(graphs) == 3


def answers(llm: LLM) -> list[tuple[float, ...]]:
    """Of requests of both kinds and texts, several steps each."""
    texts = [" " + move for move in MOVES[:150:5]]
    found: list[tuple[float, ...]] = []
    for turn in range(3):
        prompts = [SYSTEM + " e2e4" * n + " d7d5" * turn for n in range(1, 4)]
        for output in llm.choose(prompts, [texts] * 3):
            assert output.logprobs is not None
            found.append(output.logprobs)
        masked = ChoiceParams(scoring="masked", seed=turn)
        found += [(o.index, o.logprob) for o in llm.choose(prompts, [texts] * 3, masked)]
    params = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
    for prompts in ([SYSTEM] * 3, [SYSTEM + " a2a3", SYSTEM]) * 2:
        found += [tuple(map(float, output.token_ids)) for output in llm.generate(prompts, params)]
    return found


@pytest.mark.parametrize("windowed", [False, True])
def test_rows_that_fill_a_step_up_and_replays_change_no_answer(
    windowed: bool, checkpoint: str, tmp_path: Path
) -> None:
    model = checkpoint
    if windowed:
        changes = {"architectures": ["MistralForCausalLM"], "sliding_window": 24}
        model = str(shutil.copytree(checkpoint, tmp_path / "windowed"))
        path = Path(model) / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    plain, padded = LLM(config(model)), LLM(config(model))
    runner = padded._core.runner
    runner.record_steps(48, Again)
    runner.resize(runner.num_slots)
    runner.pool._data.fill_(float("nan"))  # as memory that nobody wrote
    sizes: list[int] = []
    forward = runner.decoder.forward

    def watched(batch: Batch, pool: KVPool) -> Tensor:
        sizes.append(len(batch.token_ids))
        return forward(batch, pool)

    runner.decoder.forward = watched  # type: ignore[method-assign]
    for ours, expected in zip(answers(padded), answers(plain), strict=True):
        assert ours == pytest.approx(expected, abs=2e-5)
    assert {size for size in sizes if size <= 48} <= set(row_sizes(48))
    assert any(size > 48 for size in sizes)  # a cold prompt goes its own way
    assert runner._graphs is not None and runner._graphs.replays > 10


def test_the_largest_step_runs_and_leaves_nothing_behind(checkpoint: str) -> None:
    settings = config(checkpoint, max_num_batched_tokens=200, max_num_seqs=3, max_model_len=100)
    llm, fresh = LLM(settings), LLM(settings)
    core = llm._core
    counts: list[tuple[int, int]] = []
    launch = core.runner.launch

    def watched(chunks: Sequence[Chunk]) -> object:
        counts.append((sum(chunk.end - chunk.start for chunk in chunks), len(chunks)))
        return launch(chunks)

    core.runner.launch = watched  # type: ignore[method-assign,assignment]
    core._try_largest(200)
    assert counts == [(200, 3), (3, 3)]
    core.runner.launch = launch  # type: ignore[method-assign]
    assert core.stats().steps == 0 and core.cache.num_free == core.cache.num_slots
    prompt, texts = SYSTEM[:40], [" e2e4", " d2d4"]
    expected = fresh.choose([prompt], [texts])[0].logprobs
    assert llm.choose([prompt], [texts])[0].logprobs == expected


def test_the_cache_gets_what_utilization_leaves() -> None:
    gib = 1 << 30
    memory = DeviceMemory(total=80 * gib, used=20 * gib, activations=3 * gib, graphs=gib)
    assert memory.for_cache(0.9) == 48 * gib
    assert slots_of(48 * gib, 131_072, 10**9) == 48 * 8192
    assert slots_of(48 * gib, 131_072, 1000) == 1000
    with pytest.raises(OutOfMemory, match="kv_cache_memory"):
        slots_of(131_071, 131_072, 10)


def test_the_cache_of_a_gpu_is_what_its_memory_has_left(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = LLM(config(checkpoint, max_num_seqs=4, max_model_len=300))._core
    core.device = torch.device("cuda")
    per_token = core.runner.decoder.config.kv_bytes_per_token(core.kv_dtype)
    free = {"now": 500 * per_token}
    steps: list[int] = []
    try_largest = core._try_largest

    def counted(rows: int) -> None:
        steps.append(rows)
        try_largest(rows)

    monkeypatch.setattr(core, "_try_largest", counted)
    for name, found in {
        "memory_allocated": 1000,
        "max_memory_allocated": 1000 + 100 * per_token,
        "reset_peak_memory_stats": None,
        "synchronize": None,
        "empty_cache": None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, found=found: found)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (free["now"], 2000 * per_token))
    core.runner.resize(50)  # the cache that was there for trying: its memory will be free
    small = core.runner.num_slots * per_token
    core._size_cache()
    # 90% of 2,000 tokens, of which 1,500 less the small cache are taken, and 100 by the largest step.
    assert core.runner.num_slots == (1800 * per_token - 1500 * per_token + small) // per_token - 100
    assert steps == [core.config.max_num_batched_tokens]
    core.runner.resize(10)
    free["now"] = 20 * per_token
    with pytest.raises(OutOfMemory, match="leaves nothing to the key-value cache"):
        core._size_cache()


def test_running_out_of_memory_says_what_to_lower(checkpoint: str) -> None:
    gib = 1 << 30
    full = DeviceMemory(total=16 * gib, used=15 * gib, activations=gib)
    with pytest.raises(OutOfMemory) as caught:
        full.for_cache(0.9)
    said = str(caught.value)
    for word in ("15.00 GiB", "16.00 GiB", "1.00 GiB", "0.9", "max_num_batched_tokens"):
        assert word in said
    assert said.endswith(".") and "\n" not in said
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB.\nMore.")
    assert "20 MiB" in str(load_failure(error)) and "quantization" in str(load_failure(error))

    llm = LLM(config(checkpoint))
    forward = llm._core.runner.decoder.forward

    def fails(batch: Batch, pool: KVPool) -> Tensor:
        raise error

    llm._core.runner.decoder.forward = fails  # type: ignore[method-assign]
    with pytest.raises(OutOfMemory, match="lower gpu_memory_utilization") as caught:
        llm.choose([SYSTEM], [[" e2e4", " d2d4"]])
    assert "\n" not in str(caught.value)
    llm._core.runner.decoder.forward = forward  # type: ignore[method-assign]
    assert llm.choose([SYSTEM], [[" e2e4", " d2d4"]])  # and the engine goes on


async def test_what_a_step_brought_is_handed_out_while_the_next_one_runs(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EngineCore, "overlaps", True)
    llm, plain = AsyncLLM(config(checkpoint)), LLM(config(checkpoint))
    params = SamplingParams(max_tokens=9, temperature=0, ignore_eos=True)
    prompts = [SYSTEM + " a2a3" * n for n in range(4)]

    async def write(prompt: str) -> tuple[str, str]:
        stream = llm.generate(prompt, params)
        deltas = [delta async for delta in stream]
        assert stream.output is not None
        return "".join(deltas), stream.output.text

    found = await asyncio.gather(*map(write, prompts))
    expected = [output.text for output in plain.generate(prompts, params)]
    assert found == [(text, text) for text in expected]
    texts = [" e2e4", " d2d4"]
    chosen = await asyncio.gather(*(llm.choose(prompt, texts) for prompt in prompts))
    assert [len(output.logprobs or ()) for output in chosen] == [2] * 4

    core = llm._core
    launch = core.runner.launch

    def fails(chunks: Sequence[Chunk]) -> object:
        raise MemoryError

    core.runner.launch = fails  # type: ignore[method-assign,assignment]
    with pytest.raises(OutOfMemory):
        await llm.choose(prompts[0], texts)
    core.runner.launch = launch  # type: ignore[method-assign]
    assert (await llm.choose(prompts[0], texts)).text in texts
    await llm.close()
