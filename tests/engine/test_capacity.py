"""The roofline: what it counts, and what a device then can do at the most."""

import dataclasses
from pathlib import Path

import pytest
import torch
from model_shapes import SHAPES, write

from engine import LLM, EngineConfig, SamplingParams
from engine.capacity import (
    DEVICES,
    Game,
    Load,
    kv_tokens,
    measure_cpu,
    moves_per_second,
    predict,
    weight_bytes,
)
from engine.model_config import ModelConfig

LLAMA_8B = ModelConfig.from_dict(SHAPES["Llama-3.1-8B"])
SMOLLM2 = ModelConfig.from_dict(SHAPES["SmolLM2-135M"])
H200 = DEVICES["H200 SXM"]


def test_the_weights_of_known_models_have_their_known_sizes() -> None:
    # Parameters as their model cards say: 8.03, 1.72 and 0.1345 thousand million; norms are not counted.
    qwen = ModelConfig.from_dict(SHAPES["Qwen3-1.7B"])
    for model, parameters in ((LLAMA_8B, 8.03e9), (qwen, 1.72e9), (SMOLLM2, 134.5e6)):
        assert weight_bytes(model) == pytest.approx(2 * parameters, rel=0.001)
    assert weight_bytes(LLAMA_8B, "int8") == pytest.approx(8.03e9 + 0.525e9, rel=0.001)
    assert weight_bytes(LLAMA_8B, "int4_weight_only") < 0.7 * weight_bytes(LLAMA_8B, "int8")


def test_one_stream_takes_the_time_to_read_the_weights_and_many_the_time_to_multiply() -> None:
    one = predict(LLAMA_8B, Load(1, 1, 100, normalised=1), H200)
    embedding = LLAMA_8B.vocab_size * LLAMA_8B.hidden_size * 2
    read = weight_bytes(LLAMA_8B) - embedding  # of which one row is looked up
    assert one.seconds == pytest.approx(read / H200.bandwidth, rel=0.01)
    many = predict(LLAMA_8B, Load(4096, 1, 0, normalised=1), H200)
    assert many.seconds == pytest.approx(many.operations / H200.bf16, rel=0.1)
    assert many.operations == pytest.approx(4096 * 2 * read / 2, rel=0.01)


def test_a_shared_prefix_is_read_once_and_a_window_bounds_what_is_read() -> None:
    plain = predict(LLAMA_8B, Load(64, 1, 2048), H200)
    shared = predict(LLAMA_8B, Load(64, 1, 2048, shared=2048), H200)
    saved = plain.bytes - shared.bytes
    assert saved == 63 * 2048 * LLAMA_8B.kv_bytes_per_token(torch.bfloat16)
    assert plain.operations == shared.operations
    settings = SHAPES["SmolLM2-135M"] | {"architectures": ["MistralForCausalLM"]}
    windowed = ModelConfig.from_dict(settings | {"sliding_window": 128})
    whole = ModelConfig.from_dict(settings | {"sliding_window": None})
    for shared_keys in (0.0, 1000.0):
        load = Load(4, 1, 2048, shared=shared_keys)
        assert predict(windowed, load, H200) == predict(windowed, Load(4, 1, 128), H200)
        assert predict(whole, load, H200).bytes > predict(windowed, load, H200).bytes


def test_quantised_weights_and_caches_move_fewer_bytes() -> None:
    load = Load(8, 1, 1000, normalised=1)
    steps = {
        weights: predict(LLAMA_8B, load, H200, weights)  # type: ignore[arg-type]
        for weights in ("bfloat16", "int8", "int8_weight_only", "int4_weight_only")
    }
    assert steps["int8"].parts[0].bytes == steps["int8_weight_only"].parts[0].bytes
    # Weight-only formats leave the vocabulary as it is.
    assert steps["int4_weight_only"].parts[2] == steps["bfloat16"].parts[2]
    assert 1.8 < steps["bfloat16"].seconds / steps["int8"].seconds < 2.0
    assert steps["int4_weight_only"].seconds < steps["int8"].seconds
    cache = predict(LLAMA_8B, load, H200, kv=torch.int8)
    assert cache.parts[1].bytes < 0.52 * steps["bfloat16"].parts[1].bytes


def test_moves_per_second_grow_with_streams_up_to_the_rate_of_multiplying() -> None:
    rates = [moves_per_second(LLAMA_8B, streams, H200) for streams in (1, 8, 32, 1024, 4096)]
    likelihood = [moves.likelihood for moves in rates]
    assert likelihood == sorted(likelihood)
    assert likelihood[1] > 3 * likelihood[0] and likelihood[4] < 1.1 * likelihood[3]
    # One stream: exact takes one pass through the weights, masked one for each token.
    assert rates[0].likelihood > 3 * rates[0].masked
    deep = moves_per_second(LLAMA_8B, 1, H200, Game(tokens=8))
    assert deep.masked == pytest.approx(rates[0].masked / 2, rel=0.05)


def test_the_cache_takes_what_weights_and_activations_leave() -> None:
    tokens = kv_tokens(LLAMA_8B, H200, 0.9, activations=2e9)
    assert tokens == int((0.9 * 141e9 - weight_bytes(LLAMA_8B) - 2e9) // 131_072)
    assert kv_tokens(LLAMA_8B, H200, 0.9, kv=torch.int8) > 1.9 * tokens
    tight = dataclasses.replace(H200, memory=16e9)
    assert kv_tokens(LLAMA_8B, tight) == 0
    assert kv_tokens(LLAMA_8B, tight, weights="int8") > 0


def test_this_processor_can_be_measured() -> None:
    device = measure_cpu(torch.float32, seconds=0.0)
    assert 1e8 < device.bandwidth < 1e12 and 1e8 < device.bf16 < 1e14 and device.int8 > 1e8


def test_random_weights_take_the_place_of_files(tmp_path: Path) -> None:
    folder = write("tiny", tmp_path, num_hidden_layers=2)
    settings = EngineConfig(
        str(folder), device="cpu", dtype="float32", num_threads=1, load_format="dummy"
    )
    params = SamplingParams(max_tokens=5, temperature=0, ignore_eos=True)
    first, second = (LLM(settings).generate(["1. e2e4"], params)[0] for _ in range(2))
    assert len(first.token_ids) == 5 and first.token_ids == second.token_ids
    assert LLM(settings).tokenizer.encode(" e2e4") == LLM(settings).tokenizer.encode(" e2") + (
        LLM(settings).tokenizer.encode("e4")
    )
    with pytest.raises(ValueError, match="load_format"):
        EngineConfig(str(folder), load_format="gguf")  # type: ignore[arg-type]
