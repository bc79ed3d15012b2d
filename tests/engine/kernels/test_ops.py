"""Whole engines with the kernels of everything but attention, under Triton's interpreter, against engines without."""

from pathlib import Path
from typing import Any

import pytest

from engine import LLM, ChoiceOutput, ChoiceParams, ModelLoadError, SamplingParams
from engine.attention_backend import TorchAttention
from tests.engine.conftest import MOVES, config
from tests.engine.test_families import make_model

PROMPTS = [
    "Game: e2e4 e7e5",
    "Game: e2e4",
]  # short: the interpreter takes a millisecond for a row and kernel
CHOICES = [[" " + move for move in MOVES[at::500]] for at in (3, 5)]


@pytest.fixture(autouse=True)
def attention_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(name: str, *rest: Any) -> TorchAttention:
        return TorchAttention(*rest)

    monkeypatch.setattr("engine.runner.make_attention", made)


def choose(llm: LLM, **params: Any) -> list[ChoiceOutput]:
    return llm.choose(PROMPTS, CHOICES, ChoiceParams(**params))


def assert_same(triton: LLM, torch: LLM, within: float = 1e-5) -> None:
    """The same choices, drawn and likeliest, as likely as without kernels."""
    for params in ({"temperature": 0.0}, {"seed": 5, "scoring": "masked"}):
        found, expected = choose(triton, **params), choose(torch, **params)
        for one, other in zip(found, expected, strict=True):
            assert one.index == other.index
            assert one.logprob == pytest.approx(other.logprob, abs=within)
            if other.logprobs is not None:
                assert one.legal_mass == pytest.approx(other.legal_mass, rel=2 * within)
                assert one.logprobs == pytest.approx(other.logprobs, abs=within)


@pytest.mark.parametrize("kind", ["auto", pytest.param("int8", marks=pytest.mark.slow), "fp8"])
def test_choices_and_texts_are_those_of_torch(checkpoint: str, kind: str) -> None:
    triton, torch = (
        LLM(config(checkpoint, attention_backend=name, kv_cache_dtype=kind))
        for name in ("triton", "torch")
    )
    # An element of a cache of 8 bits may fall to the next step.
    assert_same(triton, torch, 1e-5 if kind == "auto" else 0.01)
    params = SamplingParams(max_tokens=4, temperature=0.8, top_p=0.9, seed=3)
    [text], [expected] = (llm.generate(PROMPTS[:1], params) for llm in (triton, torch))
    assert text.token_ids == expected.token_ids


# Partial rotary embedding; layers without; norms of heads; Gemma's norms in float32, soft cap and activation.
@pytest.mark.parametrize(
    "name",
    [
        "phi3-partial-windowed",
        "qwen3",
        "gemma2",
        pytest.param("smollm3-windowed", marks=pytest.mark.slow),
        pytest.param("gemma3-scaled", marks=pytest.mark.slow),
    ],
)
def test_every_kind_of_layer_gives_what_torch_gives(tmp_path: Path, name: str) -> None:
    directory, _ = make_model(tmp_path, name)
    assert_same(
        LLM(config(directory, attention_backend="triton")),
        LLM(config(directory, attention_backend="torch")),
    )


@pytest.mark.slow
def test_bits_are_the_same_alone_and_in_a_batch_when_deterministic(checkpoint: str) -> None:
    settings = {"attention_backend": "triton", "deterministic": True, "kv_cache_dtype": "int8"}
    together = choose(LLM(config(checkpoint, **settings)), temperature=0.0)
    for prompt, texts, output in zip(PROMPTS, CHOICES, together, strict=True):
        llm = LLM(config(checkpoint, **settings))
        [alone] = llm.choose([prompt], [texts], ChoiceParams(temperature=0.0))
        assert (alone.logprobs, alone.legal_mass) == (output.logprobs, output.legal_mass)


def test_kernels_without_an_interpreter_or_a_gpu_are_refused(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(ModelLoadError, match="needs a CUDA device; use torch"):
        LLM(config(checkpoint, attention_backend="triton"))
