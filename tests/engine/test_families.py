"""Every supported family against transformers, on tiny checkpoints with random weights."""

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from engine import LLM, ChoiceParams, ModelLoadError, SamplingParams
from engine.model_config import SUPPORTED, ModelConfig
from tests.engine.conftest import MOVES, SYSTEM, config, make_tokenizer
from tests.engine.test_choose import brute_force

WINDOW = 24  # tokens; the prompts are longer
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "original_max_position_embeddings": 64}
LONG = [1.0 + i / 2 for i in range(4)]
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": WINDOW}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-bias": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-dynamic": ("Llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}),
    "llama-yarn": ("Llama", {"rope_parameters": YARN | {"factor": 8.0}}),
    "llama-yarn-mscale": (
        "Llama",
        {
            "rope_parameters": YARN
            | {"factor": 8.0, "mscale": 0.7, "mscale_all_dim": 0.4, "truncate": False}
        },
    ),
    "smollm3": ("SmolLM3", {"num_hidden_layers": 4, "pad_token_id": 0}),
    "smollm3-windowed": (
        "SmolLM3",
        {
            "pad_token_id": 0,
            "no_rope_layers": [1, 0],
            "use_sliding_window": True,
            "sliding_window": WINDOW,
        },
    ),
    "mistral": ("Mistral", {"sliding_window": WINDOW, "head_dim": 16}),
    "mistral-full": ("Mistral", {"sliding_window": None}),
    "qwen2": ("Qwen2", {}),
    "qwen2-windowed": (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    "qwen2-yarn": ("Qwen2", {"rope_parameters": YARN | {"factor": 4.0}}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "phi3": ("Phi3", {"pad_token_id": 0, "tie_word_embeddings": False}),
    "phi3-partial-windowed": (
        "Phi3",
        {
            "pad_token_id": 0,
            "sliding_window": WINDOW,
            "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5},
        },
    ),
    "phi3-longrope": (
        "Phi3",
        {
            "pad_token_id": 0,
            "original_max_position_embeddings": 64,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 500.0,
                "long_factor": LONG,
                "short_factor": [1.0] * 4,
            },
        },
    ),
    "gemma2": ("Gemma2", GEMMA | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
    "gemma3": ("Gemma3", GEMMA | {"num_hidden_layers": 6}),
    "gemma3-scaled": (
        "Gemma3",
        GEMMA
        | {
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 900.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
            },
        },
    ),
}


def make_model(directory: Path, name: str) -> tuple[str, Any]:
    """The checkpoint's directory, and transformers' model of it."""
    family, changes = CASES[name]
    tokenizer = make_tokenizer()
    torch.manual_seed(3)
    settings = {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": 0,
        "initializer_range": 0.25,
    }
    kind = "Gemma3Text" if family == "Gemma3" else family
    settings_of_family = getattr(transformers, f"{kind}Config")(**(settings | changes))
    # Its plain attention: only that has soft caps in all families.
    settings_of_family._attn_implementation = "eager"
    model = getattr(transformers, f"{family}ForCausalLM")(settings_of_family).eval()
    with torch.no_grad():  # biases and norms are made as zeros and ones, which hides mistakes
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape) * 0.2)
    model.save_pretrained(directory)
    tokenizer.save(str(directory / "tokenizer.json"))
    return str(directory), model


def next_logprobs(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0, -1].double(), dim=-1)


def engine_logprobs(llm: LLM, ids: list[int], tokens: list[int]) -> list[float]:
    """log p(token) after `ids`, through choices of one token each."""
    tokenizer = llm.tokenizer
    texts = [tokenizer.decode([token]) for token in tokens]
    [output] = llm.choose([ids], [texts], ChoiceParams(temperature=0))
    assert output.logprobs is not None and output.legal_mass is not None
    return [value + math.log(output.legal_mass) for value in output.logprobs]


def letters(llm: LLM) -> list[int]:
    """Tokens that are one letter and merge with nothing."""
    ids = [llm.tokenizer.encode_choice(letter) for letter in "QWXZJUV"]
    assert all(len(one) == 1 for one in ids)
    return [one[0] for one in ids]


@pytest.mark.parametrize("name", CASES)
def test_a_family_agrees_with_transformers(name: str, tmp_path: Path) -> None:
    """Whole prompts, prompts in pieces, and prompts whose beginning is cached."""
    directory, model = make_model(tmp_path, name)
    llm = LLM(config(directory, max_num_batched_tokens=48))
    tokens = letters(llm)
    ids = (llm.tokenizer.encode(SYSTEM) * 20)[:200]
    for length in (10, 120, 121, 199, 200, 100):
        expected = next_logprobs(model, ids[:length])
        if "longrope" in name and length <= 64:
            continue  # transformers takes other frequencies there, see the test of longrope
        got = engine_logprobs(llm, ids[:length], tokens)
        assert got == pytest.approx([float(expected[token]) for token in tokens], abs=1e-4)
    prompt = ids[:150]
    greedy = SamplingParams(max_tokens=8, temperature=0.0)
    with torch.inference_mode():
        out = model.generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False)
    answer = out[0, 150:].tolist()
    answer = answer[: answer.index(0)] if 0 in answer else answer
    assert list(llm.generate([prompt], greedy)[0].token_ids) == answer


@pytest.mark.parametrize("name", ["mistral", "gemma2", "gemma3", "qwen3", "smollm3"])
def test_choosing_equals_brute_force_in_every_kind_of_layer(name: str, tmp_path: Path) -> None:
    directory, model = make_model(tmp_path, name)
    llm = LLM(config(directory))
    encode = llm.tokenizer.encode
    rng = random.Random(2)
    prompts, choices = [], []
    for ply in range(0, 12, 2):
        prompts.append(SYSTEM + "".join(" " + rng.choice(MOVES) for _ in range(ply)))
        texts = [" " + move for move in rng.sample(MOVES, 3 + ply)]
        choices.append([*texts, " O-O", " O-O-O", " a9a1", " a9a10"])
    outputs = llm.choose(prompts, choices, ChoiceParams(temperature=0))
    for prompt, texts, output in zip(prompts, choices, outputs, strict=True):
        ids = [llm.tokenizer.encode_choice(text) for text in texts]
        logs = brute_force(model, encode(prompt), ids)
        assert output.logprobs is not None and output.legal_mass is not None
        assert output.legal_mass == pytest.approx(math.fsum(map(math.exp, logs)), rel=1e-3)
        got = [value + math.log(output.legal_mass) for value in output.logprobs]
        assert got == pytest.approx(logs, abs=2e-4)


def test_a_soft_cap_counts_in_masked_scoring(tmp_path: Path) -> None:
    directory, _ = make_model(tmp_path, "gemma2")
    llm = LLM(config(directory))
    both = [
        llm.choose([SYSTEM], [list("QWXZ")], ChoiceParams(scoring=scoring, temperature=0))[0]
        for scoring in ("likelihood", "masked")
    ]
    assert both[0].text == both[1].text
    assert both[0].logprob == pytest.approx(both[1].logprob, abs=1e-4)


def test_the_length_of_the_longest_sequence_decides_on_longrope(tmp_path: Path) -> None:
    directory, model = make_model(tmp_path, "phi3-longrope")
    llm = LLM(config(directory, max_model_len=64))
    ids = llm.tokenizer.encode(SYSTEM)[:40]
    expected = next_logprobs(model, ids)
    tokens = letters(llm)
    assert engine_logprobs(llm, ids, tokens) == pytest.approx(
        [float(expected[token]) for token in tokens], abs=1e-4
    )


def test_every_supported_architecture_is_tested() -> None:
    assert {f"{family}ForCausalLM" for family, _ in CASES.values()} == set(SUPPORTED)


def plain(architecture: str, **changes: Any) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "vocab_size": 10,
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 12,
        "num_attention_heads": 2,
        "max_position_embeddings": 4096,
    } | changes


def test_a_sliding_window_leaves_the_context_as_long_as_it_is() -> None:
    model = ModelConfig.from_dict(plain("MistralForCausalLM", sliding_window=1024))
    assert model.max_position_embeddings == 4096 and model.sliding_window == 1024
    assert all(kind.windowed for kind in model.layers)
    unused = ModelConfig.from_dict(plain("Qwen2ForCausalLM", sliding_window=1024))
    assert unused.sliding_window is None and not any(kind.windowed for kind in unused.layers)


def test_files_of_earlier_versions_mean_the_same() -> None:
    """Before transformers 5 there were neither layer_types nor rope_parameters."""
    old = ModelConfig.from_dict(
        plain("Gemma3ForCausalLM", rope_scaling={"rope_type": "linear", "factor": 8})
    )
    assert [kind.windowed for kind in old.layers] == ([True] * 5 + [False]) * 2
    assert [kind.rope for kind in old.layers] == ([1] * 5 + [0]) * 2
    assert old.ropes[0].frequencies[1] == pytest.approx(1e6 ** (-2 / 256) / 8)
    assert old.ropes[1].frequencies[1] == pytest.approx(1e4 ** (-2 / 256))
    two = ModelConfig.from_dict(plain("Gemma2ForCausalLM"))
    assert [kind.windowed for kind in two.layers] == [True, False] * 6
    assert (two.attention_softcap, two.final_softcap, two.sliding_window) == (50.0, 30.0, 4096)
    smol = ModelConfig.from_dict(plain("SmolLM3ForCausalLM"))
    assert [kind.rope for kind in smol.layers] == [0, 0, 0, None] * 3
    assert smol.ropes[0].frequencies[1] == pytest.approx(2e6 ** (-2 / 4))
    su = {"type": "su", "long_factor": [2.0, 2.0], "short_factor": [1.0, 1.0]}
    phi = plain("Phi3ForCausalLM", rope_scaling=su, original_max_position_embeddings=1024)
    long, short = ModelConfig.from_dict(phi), ModelConfig.from_dict(phi, 1024)
    assert np.allclose(short.ropes[0].frequencies, np.array(long.ropes[0].frequencies) * 2)
    assert long.ropes[0].scale == pytest.approx(math.sqrt(1 + math.log(4) / math.log(1024)))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"architectures": ["Gemma3ForConditionalGeneration"]}, "Gemma3ForConditionalGeneration"),
        ({"layer_types": ["linear_attention"] * 12}, "linear_attention"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"hidden_activation": "relu"}, "relu"),
    ],
)
def test_what_no_family_supports_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelLoadError, match=named):
        ModelConfig.from_dict(plain("Gemma3ForCausalLM", **changes))


@pytest.mark.parametrize("name", ["mistral", "gemma2"])
def test_windows_and_soft_caps_cannot_be_deterministic(name: str, tmp_path: Path) -> None:
    directory, _ = make_model(tmp_path, name)
    with pytest.raises(ModelLoadError, match="deterministic is not supported"):
        LLM(config(directory, deterministic=True))
