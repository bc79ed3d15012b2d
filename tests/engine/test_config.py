from typing import Any

import pytest

from engine import EngineConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": ""}, "model is empty; give a model directory, id or GGUF file"),
        ({"gpu_memory_utilization": "0.9"}, "gpu_memory_utilization is '0.9'"),
        (
            {"gpu_memory_utilization": 0},
            "gpu_memory_utilization is 0; it must be above 0 and at most 1",
        ),
        ({"max_num_seqs": "4"}, "max_num_seqs is '4'; it must be a whole number of at least 1"),
        ({"max_num_seqs": True}, "max_num_seqs is True"),
        ({"max_waiting": None}, "max_waiting is None; it must be a whole number of at least 1"),
        ({"kv_cache_memory": 1e9}, "kv_cache_memory is 1000000000.0.* of at least 1, or None"),
        ({"max_model_len": 0}, "max_model_len is 0"),
        ({"dtype": "half"}, "dtype is 'half'; use auto, float32, bfloat16 or float16"),
        ({"quantization": "int5"}, "quantization is 'int5'; use int8, .* or None"),
        ({"deterministic": "yes"}, "deterministic is 'yes'; use True or False"),
        ({"seed": None}, "seed is None; it must be a whole number"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"EngineConfig.{message}"):
        EngineConfig(**({"model": "m"} | settings))


def test_optional_settings_may_be_none() -> None:
    config = EngineConfig("m", max_model_len=None, quantization=None, attention_backend=None)
    assert config == EngineConfig("m", seed=0)
