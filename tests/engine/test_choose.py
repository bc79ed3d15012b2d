"""`choose` against brute force: transformers, one option at a time."""

import math
import random
from typing import Any

import pytest
import torch

from engine import LLM, ChoiceParams, Tokenizer
from tests.engine.conftest import MOVES, SYSTEM, config


def brute_force(model: Any, prompt: list[int], choices: list[tuple[int, ...]]) -> list[float]:
    """log p(choice) with the longest match counting, each option scored on its own."""
    result = []
    for ids in choices:
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *ids]])).logits[0].double()
        logs = torch.log_softmax(logits, dim=-1)
        total = sum(float(logs[len(prompt) - 1 + i, token]) for i, token in enumerate(ids))
        longer = {other[len(ids)] for other in choices if len(other) > len(ids) and other[: len(ids)] == ids}
        if longer:
            total += math.log(1.0 - sum(math.exp(float(logs[-1, token])) for token in longer))
        result.append(total)
    return result


def test_choose_equals_brute_force(checkpoint: str, reference: Any, tokenizer: Tokenizer) -> None:
    rng = random.Random(1)
    llm = LLM(config(checkpoint))
    prompts, choices = [], []
    for ply in range(24):
        prompts.append(SYSTEM + "".join(" " + rng.choice(MOVES) for _ in range(ply)))
        texts = [" " + move for move in rng.sample(MOVES, 1 + ply)]
        choices.append([*texts, " O-O", " O-O-O", " a9a1", " a9a10"])
    outputs = llm.choose(prompts, choices, ChoiceParams(temperature=0))
    for prompt, texts, output in zip(prompts, choices, outputs, strict=True):
        expected = brute_force(
            reference, tokenizer.encode(prompt), [tokenizer.encode_choice(text) for text in texts]
        )
        mass = sum(math.exp(value) for value in expected)
        assert output.logprobs is not None and output.legal_mass is not None
        assert output.legal_mass == pytest.approx(mass, rel=1e-4)
        for value, got in zip(expected, output.logprobs, strict=True):
            assert got == pytest.approx(value - math.log(mass), abs=1e-4)
        best = max(range(len(texts)), key=expected.__getitem__)
        assert output.index == best and output.text == texts[best]
        assert output.logprob == output.logprobs[best]
        probabilities = [math.exp(value) / mass for value in expected]
        assert output.entropy == pytest.approx(-sum(p * math.log(p) for p in probabilities), abs=1e-4)
