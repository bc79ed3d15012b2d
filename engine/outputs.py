"""What a caller gets back: plain data, picklable and JSON-able."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RequestMetrics:
    """Where one request's time and tokens went.

    queue_s: until its first row was scheduled. prefill_s: from there until its prompt was computed.
    decode_s: from there to the end. ttft_s: from arrival to the first token or choice.
    prompt_tokens: length of the prompt; cached_tokens: how many of them somebody had computed before.
    scored_rows: rows whose next-token probabilities were used. preemptions: times it was put back.
    """

    queue_s: float
    prefill_s: float
    decode_s: float
    ttft_s: float
    prompt_tokens: int
    cached_tokens: int
    scored_rows: int
    preemptions: int


@dataclass(frozen=True)
class ChoiceOutput:
    """One choice, drawn.

    index, text: the choice. logprob: its logarithm of probability, normalised over the choices
    (for masked scoring: of the walk that was made).
    logprobs: one per choice, normalised over the choices, natural logarithm; None for masked scoring.
    legal_mass: how probable it was that the unconstrained model would have begun its reply with any of
    the choices; entropy: of the normalised distribution, in nats; both None for masked scoring.
    """

    index: int
    text: str
    logprob: float
    logprobs: tuple[float, ...] | None
    legal_mass: float | None
    entropy: float | None
    metrics: RequestMetrics


@dataclass(frozen=True)
class TextOutput:
    """A generated text. finish_reason: "stop" (end of text or a stop string) or "length"."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: Literal["stop", "length"]
    metrics: RequestMetrics


@dataclass(frozen=True)
class Pin:
    """A prompt that stays in the cache until it is given to `unpin`. num_tokens: its length."""

    request_id: str
    num_tokens: int


@dataclass(frozen=True)
class EngineStats:
    """The engine's counters since its start. A page of the key-value cache holds one token.

    dtype: of the model; kv_cache_dtype: in which keys and values are kept.
    kv_pages_used are held by running requests, kv_pages_cached can be reused or evicted.
    prefix_hit_rate: cached share of all prompt tokens, None before the first. A token is cached or not once in its
    request's life, so neither a look-up made twice nor what is found again after a preemption counts.
    recomputed_tokens: rows computed again after a preemption. tokens_per_s: rows computed
    per second over the last ten seconds. Each step is one pass
    through the weights.
    """

    model: str
    device: str
    dtype: str
    kv_cache_dtype: str
    num_running: int
    num_waiting: int
    kv_pages_total: int
    kv_pages_used: int
    kv_pages_cached: int
    kv_pages_free: int
    kv_usage: float
    prefix_hit_rate: float | None
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    scored_rows: int
    generated_tokens: int
    steps: int
    requests_finished: int
    requests_failed: int
    preemptions: int
    recomputed_tokens: int
    tokens_per_s: float
    uptime_s: float
