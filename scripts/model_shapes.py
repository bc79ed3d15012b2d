"""Models without weights for measurements: the sizes of known models, and a tokenizer of single characters.

`write(name, directory)` makes a directory with config.json and tokenizer.json, which
`EngineConfig(load_format="dummy")` loads with random weights. Needs `tokenizers` and nothing else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# From the models' config.json on Hugging Face (HuggingFaceTB/SmolLM2-135M-Instruct, Qwen/Qwen3-1.7B,
# meta-llama/Llama-3.1-8B-Instruct); "tiny" is the bundled model's shape.
SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 850,
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 32,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "SmolLM2-135M": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    },
    "Qwen3-1.7B": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": 151936,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 40960,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    },
    "Llama-3.1-8B": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
}
_LINES = "abcdefgh"


def tokenizer_json() -> str:
    """A byte-level tokenizer that spells: every byte a token, and a space joins the file letter behind it, so that
    " e2e4" is " e", "2", "e", "4" as for SmolLM2."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    joined = ["Ġ" + letter for letter in _LINES]
    vocabulary = {token: i for i, token in enumerate(["<|end|>", *letters, *joined])}
    merges = [("Ġ", letter) for letter in _LINES]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    return str(tokenizer.to_str())


def write(name: str, directory: Path, **changes: Any) -> Path:
    """A model of this shape in `directory`/`name`. changes: of its config.json."""
    folder = directory / name
    folder.mkdir(parents=True, exist_ok=True)
    config = SHAPES[name] | {"hidden_act": "silu", "eos_token_id": 0, "initializer_range": 0.02}
    (folder / "config.json").write_text(json.dumps(config | changes), encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
    return folder
