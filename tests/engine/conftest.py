"""A tiny Llama checkpoint with random weights, made once per session: the model of the engine's tests."""

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

import engine
from engine import EngineConfig

MOVES = [
    f"{f}{r}{g}{q}" for f in "abcdefgh" for r in "12345678" for g in "abcdefgh" for q in "12345678"
]
SYSTEM = "You are a chess player. Answer with one legal move and nothing else. Game:"


def make_tokenizer() -> Any:
    """A byte-level byte-pair tokenizer whose pieces are letters, digits and a few words."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([SYSTEM] * 8 + [" " + move for move in MOVES[::37]], trainer)
    return tokenizer


def make_checkpoint(directory: Path, **changes: Any) -> Path:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = make_tokenizer()
    torch.manual_seed(7)
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
    model = LlamaForCausalLM(LlamaConfig(**(settings | changes)))
    model.save_pretrained(directory)
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_checkpoint(tmp_path_factory.mktemp("models") / "llama"))


@pytest.fixture(scope="session")
def reference(checkpoint: str) -> Any:
    import torch
    from transformers import LlamaForCausalLM

    torch.set_num_threads(1)
    return LlamaForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def tokenizer(checkpoint: str) -> engine.Tokenizer:
    return engine.load_tokenizer(checkpoint)


@pytest.fixture(autouse=True)
def checked_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """free + cached + active == total, and no slot in two places, after every step of every test."""
    from engine.core import EngineCore

    step = EngineCore.step

    def checked(self: EngineCore, *args: Any) -> Any:
        events = step(self, *args)
        self.cache.check()
        return events

    monkeypatch.setattr(EngineCore, "step", checked)


def config(model: str, **changes: Any) -> EngineConfig:
    settings: dict[str, Any] = {"dtype": "float32", "device": "cpu", "num_threads": 1}
    return EngineConfig(model, **(settings | changes))
