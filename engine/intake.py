"""Makes requests of what callers send: token ids, choice tries, seeds and limits, with every check that can be made
before a request is queued. It changes nothing of the engine and may be used in any thread.
"""

import itertools
import time
from collections.abc import Sequence
from typing import TypedDict, Unpack

from engine.choice import ChoiceTree, uniform, up_to_last_draws
from engine.errors import NoChoices, OutOfMemory, PromptTooLong
from engine.params import ChoiceParams, SamplingParams
from engine.request import ChoiceTask, Request
from engine.text import TextTask
from engine.tokenizer import Message, Tokenizer

Prompt = str | Sequence[int] | Sequence[Message]


class RequestOptions(TypedDict, total=False):
    """What a request of any kind may bring; see `AsyncLLM.choose`."""

    priority: int
    deadline: float | None
    request_id: str | None
    client: str
    cache_salt: str


class Intake:
    """Knows the limits that a request must keep to."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        max_model_len: int,
        vocab_size: int,
        num_slots: int,
        seed: int,
    ) -> None:
        self._tokenizer = tokenizer
        self._max_model_len = max_model_len
        self._vocab_size = vocab_size
        self._num_slots = num_slots
        self._seed = seed
        self._serial = itertools.count()

    def make_choice(
        self,
        prompt: Prompt,
        choices: Sequence[str],
        params: ChoiceParams | None,
        **options: Unpack[RequestOptions],
    ) -> Request:
        """A request that chooses. Raises NoChoices, BoundaryMerge, PromptTooLong or OutOfMemory."""
        params = params or ChoiceParams()
        texts = tuple(choices)
        if not texts:
            raise NoChoices("There are no choices; give at least one.")
        if len(set(texts)) < len(texts):
            raise NoChoices("A choice is given twice; give each once.")
        ids = [self._tokenizer.encode_choice(text) for text in texts]
        if not all(ids):
            raise NoChoices("A choice is empty; each must have at least one token.")
        if len(set(ids)) < len(ids):
            first, second = _alike(texts, ids)
            raise NoChoices(
                f"The choices {first!r} and {second!r} have the same tokens; give one of them."
            )
        tokens = self._prompt_ids(prompt)
        tree = ChoiceTree(up_to_last_draws(ids) if params.scoring == "masked" else ids)
        self._check_length(len(tokens), max(map(len, ids)), len(tokens) + tree.num_inner - 1)
        self._tokenizer.check_boundary(tokens, ids)
        return self._make(tokens, ChoiceTask(texts, tree, params), params.seed, options)

    def make_text(
        self,
        prompt: Prompt,
        params: SamplingParams | None,
        **options: Unpack[RequestOptions],
    ) -> Request:
        """A request that writes. Raises PromptTooLong or OutOfMemory; max_tokens is cut to what the context leaves."""
        params = params or SamplingParams()
        tokens = self._prompt_ids(prompt)
        limit = min(params.max_tokens, self._max_model_len - len(tokens))
        self._check_length(len(tokens), 1, len(tokens) + limit - 1)
        task = TextTask(params, limit, self._tokenizer)
        return self._make(tokens, task, params.seed, options)

    def make_pin(self, prompt: Prompt, cache_salt: str = "") -> Request:
        """A request whose prompt stays in the cache. Raises PromptTooLong or OutOfMemory."""
        request = self.make_text(
            prompt, SamplingParams(max_tokens=1, temperature=0), cache_salt=cache_salt
        )
        if request.prompt_len > self._num_slots // 2:
            raise OutOfMemory(
                f"The prompt has {request.prompt_len} tokens, which is over half of the {self._num_slots} that the "
                "key-value cache has; pin a shorter one or raise kv_cache_memory."
            )
        request.pin = True
        return request

    def _prompt_ids(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            tokens = self._tokenizer.encode_prompt(prompt)
        elif prompt and isinstance(prompt[0], dict):
            tokens = self._tokenizer.apply_chat_template(list(prompt))  # type: ignore[arg-type]
        else:
            tokens = [int(token) for token in prompt]  # type: ignore[arg-type]
            if tokens and not 0 <= min(tokens) <= max(tokens) < self._vocab_size:
                raise ValueError(f"The prompt has a token id outside 0..{self._vocab_size - 1}.")
        if not tokens:
            raise ValueError("The prompt is empty; it must have at least one token.")
        return tokens

    def _check_length(self, prompt: int, answer: int, rows: int) -> None:
        if prompt + answer > self._max_model_len:
            raise PromptTooLong(
                f"The prompt has {prompt} tokens and its answer needs {answer} more, which is over the limit "
                f"of {self._max_model_len}; shorten the prompt or raise max_model_len."
            )
        if rows > self._num_slots:
            raise OutOfMemory(
                f"The request needs {rows} rows of the key-value cache, which has {self._num_slots}; "
                "shorten it or raise kv_cache_memory."
            )

    def _make(
        self,
        tokens: list[int],
        task: TextTask | ChoiceTask,
        seed: int | None,
        options: RequestOptions,
    ) -> Request:
        serial = next(self._serial)
        if seed is None:
            seed = int(uniform(self._seed, f"request {serial}") * (1 << 53))
        deadline = options.get("deadline")
        return Request(
            request_id=options.get("request_id") or f"request-{serial}",
            tokens=tokens,
            task=task,
            seed=seed,
            client=options.get("client", ""),
            cache_salt=options.get("cache_salt", ""),
            priority=options.get("priority", 0),
            deadline=None if deadline is None else time.monotonic() + deadline,
        )


def _alike(texts: Sequence[str], ids: Sequence[tuple[int, ...]]) -> tuple[str, str]:
    """Two texts that the tokenizer does not tell apart."""
    known: dict[tuple[int, ...], str] = {}
    for text, tokens in zip(texts, ids, strict=True):
        if tokens in known:
            return known[tokens], text
        known[tokens] = text
    raise AssertionError("no two are alike")
