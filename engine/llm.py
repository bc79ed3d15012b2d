"""The synchronous front: calls run the engine in the caller's thread until all their answers are there."""

from collections.abc import Sequence
from typing import TypeVar

from engine.config import EngineConfig
from engine.core import EngineCore
from engine.errors import Aborted, EngineError
from engine.intake import Prompt
from engine.outputs import ChoiceOutput, EngineStats, Pin, TextOutput
from engine.params import ChoiceParams, SamplingParams
from engine.request import Request
from engine.tokenizer import Tokenizer

Output = TypeVar("Output", ChoiceOutput, TextOutput)
Params = TypeVar("Params", ChoiceParams, SamplingParams)


class LLM:
    """One model for scripts and tests. Not safe for several threads; use AsyncLLM for that.

    Raises ModelLoadError when the model cannot be loaded.
    """

    def __init__(self, model: str | EngineConfig) -> None:
        self._core = EngineCore(EngineConfig(model) if isinstance(model, str) else model)
        self._closed = False

    def generate(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        cache_salt: str = "",
    ) -> list[TextOutput]:
        """A text for each prompt, batched. Raises the first error; the other requests are given up then.

        cache_salt: requests with different ones share nothing in the cache.
        """
        every = _per_prompt(prompts, params)
        requests = [
            self._core.intake.make_text(prompt, one, cache_salt=cache_salt)
            for prompt, one in zip(prompts, every, strict=True)
        ]
        return self._run(requests, TextOutput)

    def choose(
        self,
        prompts: Sequence[Prompt],
        choices: Sequence[Sequence[str]],
        params: ChoiceParams | Sequence[ChoiceParams] | None = None,
        *,
        cache_salt: str = "",
    ) -> list[ChoiceOutput]:
        """One of its choices for each prompt, batched. Raises the first error, as `generate` does."""
        every = _per_prompt(prompts, params)
        requests = [
            self._core.intake.make_choice(prompt, texts, one, cache_salt=cache_salt)
            for prompt, texts, one in zip(prompts, choices, every, strict=True)
        ]
        return self._run(requests, ChoiceOutput)

    def pin(self, prompt: Prompt, *, cache_salt: str = "") -> Pin:
        """Compute a prompt and keep it in the cache until `unpin`, however short memory is.

        Raises OutOfMemory when more than half of the cache would be pinned.
        """
        request = self._core.intake.make_pin(prompt, cache_salt)
        self._run([request], TextOutput)
        return Pin(request.request_id, request.prompt_len)

    def unpin(self, pin: Pin) -> None:
        """Let a prompt be evicted like any other."""
        self._core.unpin(pin.request_id)

    def _run(self, requests: list[Request], kind: type[Output]) -> list[Output]:
        if self._closed:
            raise Aborted("The engine is closed; build a new one.")
        outputs: dict[str, Output] = {}
        queued = iter(requests)
        pending = next(queued, None)
        try:
            while pending is not None or self._core.busy:
                # A caller's list may be longer than the queue: it is fed as room comes.
                while pending is not None and not self._core.is_full(pending.client):
                    self._core.add(pending)
                    pending = next(queued, None)
                for request, event in self._core.step():
                    if isinstance(event, EngineError):
                        raise event
                    if isinstance(event, kind):
                        outputs[request.request_id] = event
        finally:
            for request in requests:
                self._core.abort(request)
        return [outputs[request.request_id] for request in requests]

    @property
    def tokenizer(self) -> Tokenizer:
        return self._core.tokenizer

    def metrics(self) -> str:
        """Counters, gauges and histograms in Prometheus' text format (`engine.metrics` names them)."""
        return self._core.exposition()

    def stats(self) -> EngineStats:
        return self._core.stats()

    def close(self) -> None:
        """Free the model and the cache."""
        self._closed = True
        self._core.close()


def _per_prompt(
    prompts: Sequence[Prompt], params: Params | Sequence[Params] | None
) -> list[Params | None]:
    if isinstance(params, Sequence):
        if len(params) != len(prompts):
            raise ValueError(
                f"{len(params)} params for {len(prompts)} prompts; give one each, or one for all."
            )
        return list(params)
    return [params] * len(prompts)
