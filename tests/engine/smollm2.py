"""What the tests on SmolLM2 share: the scripts as modules, and the brute force that `choose` is
held against.
"""

import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from transformers import DynamicCache

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def script(name: str) -> ModuleType:
    """The module of scripts/<name>.py, which is no package; pytest has its folder on the path."""
    return importlib.import_module(name)


class BruteForce:
    """log p(option) from transformers, each option on its own after the prompt, the longest match
    counting.

    The options share the prompt's keys and values and one pass; a mask keeps each from seeing the
    others. `alone` is the same with nothing shared at all, for checking this.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._cache = DynamicCache()
        self._cached: list[int] = []

    def __call__(self, prompt: list[int], options: Sequence[Sequence[int]]) -> list[float]:
        with torch.inference_mode():
            root = self._advance(prompt)
            # An option that begins another is asked what follows it; of the others the last token
            # needs no row.
            longer = [continuations(option, options) for option in options]
            fed = [
                list(o) if more else list(o[:-1]) for o, more in zip(options, longer, strict=True)
            ]
            rows = self._feed(len(prompt), fed)
        result = []
        for option, more, logs in zip(options, longer, rows, strict=True):
            logs = torch.cat([root, logs])
            result.append(total(logs, option, more))
        return result

    def _advance(self, prompt: list[int]) -> torch.Tensor:
        """Bring the cache to `prompt`; return the log probabilities after it, [1, vocabulary]."""
        same = 0
        while same < min(len(prompt) - 1, len(self._cached)) and prompt[same] == self._cached[same]:
            same += 1
        if same < len(self._cached):
            self._cache.crop(same - len(self._cached))
        output = self._model(
            torch.tensor([prompt[same:]]), past_key_values=self._cache, logits_to_keep=1
        )
        self._cached = prompt
        return torch.log_softmax(output.logits[0].double(), dim=-1)

    def _feed(self, past: int, fed: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        width = sum(map(len, fed))
        if width == 0:
            return [torch.empty(0, self._model.config.vocab_size)] * len(fed)
        mask = torch.full((width, past + width), float("-inf"))
        mask[:, :past] = 0.0
        positions: list[int] = []
        for ids in fed:
            first = len(positions)
            for offset in range(len(ids)):
                mask[first + offset, past + first : past + first + offset + 1] = 0.0
                positions.append(past + offset)
        output = self._model(
            torch.tensor([[token for ids in fed for token in ids]]),
            attention_mask=mask[None, None],
            position_ids=torch.tensor([positions]),
            past_key_values=self._cache,
        )
        self._cache.crop(-width)
        logs = torch.log_softmax(output.logits[0].double(), dim=-1)
        return list(torch.split(logs, [len(ids) for ids in fed]))

    def alone(
        self, prompt: list[int], option: Sequence[int], options: Sequence[Sequence[int]]
    ) -> float:
        """One option in a pass of its own, without any cache."""
        with torch.inference_mode():
            logits = self._model(
                torch.tensor([[*prompt, *option]]), logits_to_keep=len(option) + 1
            ).logits[0]
        logs = torch.log_softmax(logits.double(), dim=-1)
        return total(logs, option, continuations(option, options))


def continuations(option: Sequence[int], options: Sequence[Sequence[int]]) -> set[int]:
    """The tokens with which other options go on where `option` ends."""
    size = len(option)
    return {other[size] for other in options if len(other) > size and other[:size] == option}


def total(logs: torch.Tensor, option: Sequence[int], longer: set[int]) -> float:
    """log p(option) from the log probabilities [len(option) or one more, vocabulary] before each of
    its tokens.
    """
    result = sum(float(logs[i, token]) for i, token in enumerate(option))
    if longer:
        result += math.log(1.0 - sum(math.exp(float(logs[len(option), token])) for token in longer))
    return result
