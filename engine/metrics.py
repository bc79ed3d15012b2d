"""An engine's figures for Prometheus. Names are vLLM's (`vllm:...`) where the meaning is the same, so that dashboards
made for it work; what only this engine has begins with `engine:`.

Counters and gauges are read from `EngineStats` when somebody asks, so they agree with it; histograms are fed by each
step and each output. A figure without data (a rate before the first token) is left out, it is not 0.
Needs no torch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.outputs import ChoiceOutput, EngineStats, TextOutput

if TYPE_CHECKING:
    from engine.scheduler import Chunk

# Name, field of EngineStats, what it is. Prometheus adds `_total` to the names of counters.
_GAUGES = (
    ("vllm:num_requests_running", "num_running", "Requests that are worked on."),
    ("vllm:num_requests_waiting", "num_waiting", "Requests that wait to be worked on."),
    (
        "vllm:kv_cache_usage_perc",
        "kv_usage",
        "Share of the cache held by running requests, 1 is all.",
    ),
    ("engine:kv_pages_cached", "kv_pages_cached", "Pages that can be reused or evicted."),
    ("engine:kv_pages_free", "kv_pages_free", "Pages that hold nothing."),
    ("engine:prefix_hit_rate", "prefix_hit_rate", "Cached share of all prompt tokens."),
    ("engine:tokens_per_second", "tokens_per_s", "Rows computed per second, last ten seconds."),
)
_COUNTERS = (
    ("vllm:num_preemptions", "preemptions", "Times that a running request was put back."),
    ("vllm:prompt_tokens", "prompt_tokens", "Prompt tokens of requests whose prompt is computed."),
    ("vllm:prefix_cache_queries", "prompt_tokens", "Tokens looked up, once for each request."),
    ("vllm:prefix_cache_hits", "cached_tokens", "Tokens found, once for each request."),
    ("vllm:generation_tokens", "generated_tokens", "Tokens drawn for texts."),
    ("engine:computed_rows", "computed_tokens", "Rows computed, of prompts, texts and trees."),
    ("engine:scored_rows", "scored_rows", "Rows whose next-token probabilities were used."),
    ("engine:recomputed_tokens", "recomputed_tokens", "Rows computed again after a preemption."),
    ("engine:steps", "steps", "Passes through the weights."),
    ("engine:requests_failed", "requests_failed", "Requests that ended in an error or an abort."),
)
_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 300.0),
)
_TOKENS = tuple(float(1 << power) for power in range(0, 18))
_SHARES = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


def families(samples: Sequence[tuple[Mapping[str, str], Mapping[str, Any]]]) -> Iterator[Metric]:
    """The gauges and counters of engines. samples: for each its labels, of the same names, and its EngineStats as a
    mapping."""
    names = list(samples[0][0]) if samples else []
    for kind, table in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
        for name, key, help_text in table:
            family = kind(name, help_text, labels=names)
            for labels, stats in samples:
                if stats.get(key) is not None:
                    family.add_metric([labels[label] for label in names], float(stats[key]))
            if family.samples:
                yield family


class EngineMetrics(Collector):
    """The metrics of one engine, in a registry of its own. `stats` is called when somebody asks."""

    def __init__(self, model: str, stats: Callable[[], EngineStats]) -> None:
        self.registry = CollectorRegistry()
        self._stats = stats
        self._labels = {"model_name": model}
        finished = Counter(
            "vllm:request_success",
            "Requests that ended in an output; a choice counts as stop.",
            ["model_name", "finished_reason"],
            registry=self.registry,
        )
        self._finished = {reason: finished.labels(model, reason) for reason in ("stop", "length")}
        rows = Histogram(
            "engine:step_rows",
            "Rows of a step by kind.",
            ["model_name", "kind"],
            buckets=_TOKENS,
            registry=self.registry,
        )
        self._prompt_rows, self._token_rows, self._tree_rows = (
            rows.labels(model, kind) for kind in ("prompt", "token", "tree")
        )
        self._step_tokens = self._histogram(
            "vllm:iteration_tokens_total", "Rows of a step.", _TOKENS
        )
        self._ttft = self._histogram(
            "vllm:time_to_first_token_seconds", "From arrival to the first token or choice."
        )
        self._queue = self._histogram(
            "vllm:request_queue_time_seconds", "From arrival to the first row."
        )
        self._prefill = self._histogram(
            "vllm:request_prefill_time_seconds", "From the first row to the prompt's last."
        )
        self._decode = self._histogram(
            "vllm:request_decode_time_seconds", "From the prompt's last row to the end."
        )
        self._latency = self._histogram(
            "vllm:e2e_request_latency_seconds", "From arrival to the end."
        )
        self._per_token = self._histogram(
            "vllm:request_time_per_output_token_seconds",
            "Mean time from one token of a text to the next; its inverse is the stream's rate.",
        )
        self._prompt_tokens = self._histogram(
            "vllm:request_prompt_tokens", "Prompt tokens of a request.", _TOKENS
        )
        self._generated = self._histogram(
            "vllm:request_generation_tokens", "Tokens of a text.", _TOKENS
        )
        self._legal_mass = self._histogram(
            "engine:legal_mass",
            "How probable any of the choices was to the unconstrained model.",
            _SHARES,
        )
        self.registry.register(self)

    def _histogram(
        self, name: str, help_text: str, buckets: Sequence[float] = _SECONDS
    ) -> Histogram:
        made = Histogram(name, help_text, ["model_name"], buckets=buckets, registry=self.registry)
        return made.labels(**self._labels)

    def collect(self) -> Iterator[Metric]:
        return families([(self._labels, asdict(self._stats()))])

    def describe(self) -> list[Metric]:
        return []  # so that registering does not ask for figures

    def exposition(self) -> str:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry).decode()

    def observe_step(self, chunks: Sequence["Chunk"]) -> None:
        """Count the rows of a step, before its outputs lengthen the requests."""
        total = prompt = tree = 0
        for chunk in chunks:
            request = chunk.request
            total += chunk.end - chunk.start
            prompt += max(min(chunk.end, request.prompt_len) - chunk.start, 0)
            if request.tree is not None:
                tree += max(chunk.end - max(chunk.start, len(request.tokens)), 0)
        self._step_tokens.observe(total)
        self._prompt_rows.observe(prompt)
        self._token_rows.observe(total - prompt - tree)
        self._tree_rows.observe(tree)

    def observe_output(self, output: ChoiceOutput | TextOutput) -> None:
        """Count a finished request."""
        metrics = output.metrics
        self._ttft.observe(metrics.ttft_s)
        self._queue.observe(metrics.queue_s)
        self._prefill.observe(metrics.prefill_s)
        self._decode.observe(metrics.decode_s)
        self._latency.observe(metrics.queue_s + metrics.prefill_s + metrics.decode_s)
        self._prompt_tokens.observe(metrics.prompt_tokens)
        if isinstance(output, ChoiceOutput):
            self._finished["stop"].inc()
            if output.legal_mass is not None:
                self._legal_mass.observe(output.legal_mass)
            return
        self._finished[output.finish_reason].inc()
        tokens = len(output.token_ids)
        self._generated.observe(tokens)
        if tokens > 1:
            self._per_token.observe(metrics.decode_s / (tokens - 1))
