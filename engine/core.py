"""The engine without threads: runs steps and says what each of them finished.

`LLM` drives it in the caller's thread, `AsyncLLM` in one of its own. Its intake makes requests and may be used
in any thread; everything else belongs to the thread that steps.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from engine import warm_up
from engine.choice import ChoiceTree, Floats, draw, log_stop, normalise
from engine.config import EngineConfig
from engine.devices import pick_backend, pick_device, pick_dtype, set_threads
from engine.errors import DeadlineExceeded, EngineError, OutOfMemory
from engine.files import resolve_model
from engine.graphs import row_sizes
from engine.intake import Intake
from engine.kv_cache import KVCache
from engine.loader import load_decoder
from engine.memory import first_line, load_failure, memory_of, slots_of, step_failure
from engine.outputs import ChoiceOutput, EngineStats, TextOutput
from engine.params import ChoiceParams
from engine.request import ChoiceTask, Request, Status
from engine.runner import ModelRunner, Result, scored_nodes, scored_rows
from engine.scheduler import Chunk, Scheduler
from engine.text import TextTask
from engine.tokenizer import Tokenizer, tokenizer_of

if TYPE_CHECKING:
    from engine.metrics import EngineMetrics

# A str is a text delta; the others end the request.
Event = str | ChoiceOutput | TextOutput | EngineError

_QUANTISED = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}  # by kv_cache_dtype
_CPU_CACHE_BYTES = 2 << 30
# Of long prompts in a step: more rows are hardly cheaper each, and a short request that comes meanwhile waits for all.
_LONG_STEP_ON_CPU = 128
_GRAPH_ROWS = (
    256  # of the largest recorded step: in larger ones launching takes a small part of the time
)
_USUAL = 256  # tokens before the rows of the steps that are recorded at start
# Tokens before those of the largest step. The scheduler gives rows further on less and less of a step.
_FAR = 4096
_NODES = 2 + 64  # rows of a pretended request behind its prompt
_RATE_WINDOW_S = 10.0
_NOT_A_NUMBER = (
    "The model's outputs are not numbers; try dtype float32, else fetch the model again."
)


@dataclass(frozen=True)
class _Flight:
    """A step whose results are still to come, and what waits for them."""

    chunks: list[Chunk]
    finish: Callable[[], list[Result]]

    @property
    def leads_on(self) -> bool:
        """Whether a request of it goes on from its result: the next step is larger with that than without."""
        return any(
            chunk.end >= chunk.request.num_rows and chunk.request.edge_logprobs is None
            for chunk in self.chunks
        )


class EngineCore:
    """One model, one cache, one scheduler."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.device = pick_device(config.device)
        if self.device.type == "cpu":
            set_threads(config.num_threads)
        self.dtype = pick_dtype(config.dtype, self.device)
        self.kv_dtype = _QUANTISED.get(config.kv_cache_dtype, self.dtype)
        backend = pick_backend(config.attention_backend, self.device)
        files = resolve_model(config.model)
        try:
            decoder = load_decoder(
                files,
                self.device,
                self.dtype,
                config.max_model_len,
                config.quantization,
                config.load_format == "dummy",
                backend,
            )
        except torch.OutOfMemoryError as error:
            raise load_failure(error) from None
        self.tokenizer: Tokenizer = tokenizer_of(files)
        self.max_model_len = decoder.max_len
        self.runner = ModelRunner(
            decoder,
            config.max_num_batched_tokens,
            config.deterministic,
            self.kv_dtype,
            config.attention_backend,
        )
        try:
            self._size_cache()
            self._record()
        except torch.OutOfMemoryError as error:
            raise step_failure(error) from None
        self.cache = KVCache(self.runner.num_slots, config.enable_prefix_caching)
        self.scheduler = Scheduler(
            self.cache,
            config.max_num_seqs,
            config.max_num_batched_tokens,
            config.max_waiting,
            config.long_prefill_token_threshold,
            _LONG_STEP_ON_CPU if self.device.type == "cpu" else None,
        )
        self.intake = Intake(
            self.tokenizer,
            max_model_len=self.max_model_len,
            vocab_size=decoder.config.vocab_size,
            num_slots=self.cache.num_slots,
            seed=config.seed,
        )
        self._eos = frozenset(self.tokenizer.eos_token_ids)
        self._started_at = time.monotonic()
        self._rates: deque[tuple[float, int]] = deque()
        self.metrics = _metrics(config.model, self.stats)
        self.steps = 0
        self._flight: _Flight | None = None
        self._finished = self._failed = 0
        self._prompt_tokens = self._cached_tokens = self._computed_tokens = 0
        self._scored_rows = self._generated_tokens = 0

    def _size_cache(self) -> None:
        """Give the runner's cache its size: what the configuration says, or what the device has left."""
        config, decoder = self.config, self.runner.decoder
        per_token = decoder.config.kv_bytes_per_token(self.kv_dtype)
        memory = config.kv_cache_memory
        if memory is None and self.device.type == "cpu":
            memory = _CPU_CACHE_BYTES
        if memory is None:
            largest = config.max_num_batched_tokens
            held = per_token * self.runner.num_slots
            share = self._graph_rows() / largest
            found = memory_of(self.device, lambda: self._try_largest(largest), held, share)
            memory = found.for_cache(config.gpu_memory_utilization)
        # More than every running request at its longest, twice over, is never of use.
        most = 2 * config.max_num_seqs * self.max_model_len
        if largest := self._graph_rows():
            self.runner.record_steps(largest)
            memory -= per_token  # the spare slot
        self.runner.resize(slots_of(memory, per_token, most))

    def _try_largest(self, rows: int) -> None:
        """The largest steps that can come: every row with the whole vocabulary, then a text for every request."""
        context = max(0, min(self.max_model_len - _NODES, _FAR))
        slots, seqs = self.runner.num_slots, self.config.max_num_seqs
        vocabulary = self.runner.decoder.config.vocab_size
        self.runner.run(warm_up.choices(rows, seqs, context, slots, vocabulary))
        self.runner.run(warm_up.texts(min(seqs, rows), context, slots, self.tokenizer))

    def _graph_rows(self) -> int:
        """Rows of the largest step that is recorded; 0 if none is."""
        config = self.config
        if config.enforce_eager or config.deterministic or self.device.type != "cuda":
            return 0
        if self.runner.decoder.kernels is None:  # plans of the torch back end are never alike
            return 0
        return min(_GRAPH_ROWS, config.max_num_batched_tokens)

    def _record(self) -> None:
        """Record a step of next tokens for each number of rows, so that no request waits for that."""
        largest = self._graph_rows()
        if not largest:
            return
        context = min(_USUAL, self.max_model_len - 1)
        for rows in row_sizes(min(largest, self.config.max_num_seqs)):
            chunks = warm_up.texts(rows, context, self.runner.num_slots, self.tokenizer)
            for _ in range(2):  # a step that comes again is recorded
                self.runner.run(chunks)

    def add(self, request: Request) -> None:
        """Queue a request. Raises QueueFull, or OutOfMemory when pinned prompts leave too little for it."""
        self.scheduler.add(request)

    def is_full(self, client: str, incoming: Sequence[Request] = ()) -> bool:
        """Whether the queue takes no more of this client, with `incoming` about to be added. For any thread."""
        return self.scheduler.is_full(client, incoming)

    @property
    def overlaps(self) -> bool:
        """Whether the host prepares one step while another is computed."""
        return self.device.type == "cuda"

    @property
    def busy(self) -> bool:
        waiting = self.scheduler.num_waiting or self.scheduler.running
        return bool(waiting) or self._flight is not None

    def unpin(self, pin: str) -> bool:
        """Give up what the request of this name pinned. False if nothing of that name is pinned."""
        return self.scheduler.unpin(pin)

    def step(self) -> list[tuple[Request, Event]]:
        """One pass through the weights. Returns what was brought, in order.

        Where the host works beside the device, the step that was begun here is still being computed and what is
        returned was brought by the one before it. It is begun before those results are there, unless some of its
        rows would go on from them.
        """
        events = self._expire()
        try:
            before, self._flight = self._flight, None
            if before is not None and before.leads_on:
                events += self._collect(before)
                before = None
            self._flight = self._launch()
            if before is not None:
                events += self._collect(before)
            elif self._flight is not None and not self.overlaps:
                now, self._flight = self._flight, None
                events += self._collect(now)
        except (RuntimeError, MemoryError) as error:  # torch says RuntimeError when memory runs out
            self._flight = None
            return events + self._fail_all(error)
        return events

    def _launch(self) -> _Flight | None:
        """Begin the next step, if there is something to compute."""
        chunks = self.scheduler.schedule()
        if not chunks:
            return None
        now = time.monotonic()
        for chunk in chunks:
            if chunk.request.started_at is None:
                chunk.request.started_at = now
        finish = self.runner.launch(chunks)
        if self.metrics is not None:
            self.metrics.observe_step(chunks)
        return _Flight(chunks, finish)

    def _collect(self, flight: _Flight) -> list[tuple[Request, Event]]:
        """Wait for a step's results; what they brought."""
        results = flight.finish()
        events: list[tuple[Request, Event]] = []
        now = time.monotonic()
        rows = sum(chunk.end - chunk.start for chunk in flight.chunks)
        self.steps += 1
        self._rates.append((now, rows))
        while self._rates[0][0] < now - _RATE_WINDOW_S:
            self._rates.popleft()
        for chunk, result in zip(flight.chunks, results, strict=True):
            self._count(chunk, now)
            request = chunk.request
            if result is None or request.status is Status.DONE:  # aborted meanwhile
                continue
            if not _is_number(result):
                self.abort(request)
                events.append((request, EngineError(_NOT_A_NUMBER)))
            elif isinstance(result, int):
                events += self._took_token(request, result, now)
            elif output := self._took_scores(chunk, result, now):
                self._finished += 1
                events.append((request, output))
        for _, event in events:
            if self.metrics is not None and isinstance(event, ChoiceOutput | TextOutput):
                self.metrics.observe_output(event)
        return events

    def abort(self, request: Request) -> bool:
        """Take a request out in whatever state it is; its pages are free at once. False if it had ended."""
        if request.status in (Status.NEW, Status.DONE):
            return False
        self.scheduler.finish(request)
        self._failed += 1
        return True

    def close(self) -> None:
        """Free the weights and the cache."""
        for request in self.scheduler.waiting + self.scheduler.running:
            self.abort(request)
        self.__dict__.pop("runner", None)

    def _expire(self) -> list[tuple[Request, Event]]:
        now = time.monotonic()
        events: list[tuple[Request, Event]] = []
        for request in self.scheduler.waiting + self.scheduler.running:
            if request.deadline is not None and now >= request.deadline:
                error = DeadlineExceeded(
                    f"The request's deadline passed after {now - request.arrived_at:.2f} s; "
                    "allow more time or send fewer requests at a time."
                )
                self.abort(request)
                events.append((request, error))
        return events

    def _fail_all(self, error: Exception) -> list[tuple[Request, Event]]:
        failure: EngineError = EngineError(
            f"The step failed ({first_line(error)}); send the request again."
        )
        if isinstance(error, MemoryError | torch.OutOfMemoryError):
            failure = step_failure(error)
        dropped = self.scheduler.drop_all()
        self._failed += len(dropped)
        return [(request, failure) for request in dropped]

    def _count(self, chunk: Chunk, now: float) -> None:
        request = chunk.request
        first, last = scored_rows(chunk)
        request.scored_rows += last - first
        self._scored_rows += last - first
        self._computed_tokens += chunk.end - chunk.start
        if request.prefilled_at is None and chunk.end >= request.prompt_len:
            request.prefilled_at = now
            self._prompt_tokens += request.prompt_len
            self._cached_tokens += request.cached_tokens

    def _took_token(self, request: Request, token: int, now: float) -> list[tuple[Request, Event]]:
        task = request.task
        assert isinstance(task, TextTask)
        if request.first_token_at is None:
            request.first_token_at = now
        self._generated_tokens += 1
        delta = task.append(token, token in self._eos)
        events: list[tuple[Request, Event]] = [(request, delta)] if delta else []
        if task.finish_reason is None:
            request.tokens.append(token)
            return events
        if request.pin:
            try:
                self.scheduler.pin(request)
            except OutOfMemory as error:
                self.abort(request)
                return [(request, error)]
        self.scheduler.finish(request)
        self._finished += 1
        output = TextOutput(task.text, tuple(task.token_ids), task.finish_reason, request.metrics())
        return [*events, (request, output)]

    def _took_scores(self, chunk: Chunk, scores: Floats, now: float) -> ChoiceOutput | None:
        request, task = chunk.request, chunk.request.task
        assert isinstance(task, ChoiceTask)
        tree = request.tree
        if tree is not None:
            assert request.edge_logprobs is not None
            first, last = scored_nodes(chunk)
            edges = tree.first_edges
            request.edge_logprobs[edges[first] : edges[last]] = scores
            if chunk.end < request.num_rows:
                return None
            scores = request.edge_logprobs
        logprobs = mass = entropy = None
        if task.masked:
            choice = self._walk(request, task, scores)
            if choice is None:
                return None
            logprob = request.walk_logprob
        else:
            logs, mass, entropy = normalise(task.tree.log_probabilities(scores))
            choice = draw(logs, task.texts, task.params, request.seed)
            logprob, logprobs = float(logs[choice]), tuple(logs.tolist())
        self.scheduler.finish(request, tree.path(choice) if tree is not None else None)
        if tree is not None:
            choice = request.tree_choices[choice]
        request.first_token_at = now
        return ChoiceOutput(
            index=choice,
            text=task.texts[choice],
            logprob=logprob,
            logprobs=logprobs,
            legal_mass=mass,
            entropy=entropy,
            metrics=request.metrics(),
        )

    def _walk(self, request: Request, task: ChoiceTask, scores: Floats) -> int | None:
        """Masked scoring: draws among the edges of one node after the other, as far as they are scored.

        scores: of the edges of request.tree or, without one, of the node reached. Returns the choice, or None where
        the next draw needs another pass.
        """
        tree = request.tree or task.tree
        node = start = 0 if request.tree is not None else request.walk_node
        while True:
            edges, stop = tree.edges_of(node), tree.stop_choice(node)
            edge = edges.start
            if len(edges) > 1 or stop >= 0:
                if request.tree is not None:
                    logs = scores[edges.start : edges.stop]
                elif node == start:
                    logs = scores
                else:
                    request.walk_to(node, len(self.scheduler.running))
                    return None
                edge = self._draw_edge(request, task.params, tree, node, logs)
                if edge < 0:
                    return stop
            node = tree.edge_nodes[edge]
            if node < 0:
                return tree.leaf_choice(edge)
            if request.tree is None:
                request.tokens.append(int(tree.tokens[node]))

    def _draw_edge(
        self, request: Request, params: ChoiceParams, tree: ChoiceTree, node: int, logs: Floats
    ) -> int:
        """An edge that leaves a node, or -1 for the choice that ends there. logs: of the edges' tokens."""
        options = list(tree.edges_of(node))
        if tree.stop_choice(node) >= 0:
            options.append(-1)
            logs = np.append(logs, log_stop(logs))
        logs, _, _ = normalise(logs)
        # The noise is that of the token's place, whether it is drawn with the next ones or alone.
        depth = len(request.tokens) - request.prompt_len
        if request.tree is not None:
            depth += int(tree.depths[node])
        keys = [f"{depth}:{self._edge_key(tree, edge)}" for edge in options]
        taken = draw(logs, keys, params, request.seed)
        request.walk_logprob += float(logs[taken])
        return options[taken]

    @staticmethod
    def _edge_key(tree: ChoiceTree, edge: int) -> int:
        return int(tree.edge_tokens[edge]) if edge >= 0 else -1

    def exposition(self) -> str:
        """The metrics in Prometheus' text format."""
        if self.metrics is None:
            raise EngineError("There are no metrics without prometheus-client; install it.")
        return self.metrics.exposition()

    def stats(self) -> EngineStats:
        now = time.monotonic()
        rows = sum(n for at, n in list(self._rates) if at >= now - _RATE_WINDOW_S)
        window = min(_RATE_WINDOW_S, now - self._started_at)
        cache = self.cache
        return EngineStats(
            model=self.config.model,
            device=str(self.device),
            dtype=str(self.dtype).removeprefix("torch."),
            kv_cache_dtype=str(self.kv_dtype).removeprefix("torch."),
            num_running=len(self.scheduler.running),
            num_waiting=self.scheduler.num_waiting,
            kv_pages_total=cache.num_slots,
            kv_pages_used=cache.num_active,
            kv_pages_cached=cache.num_cached,
            kv_pages_free=cache.num_free,
            kv_usage=cache.num_active / cache.num_slots,
            prefix_hit_rate=self._cached_tokens / self._prompt_tokens
            if self._prompt_tokens
            else None,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            computed_tokens=self._computed_tokens,
            scored_rows=self._scored_rows,
            generated_tokens=self._generated_tokens,
            steps=self.steps,
            requests_finished=self._finished,
            requests_failed=self._failed,
            preemptions=self.scheduler.num_preemptions,
            recomputed_tokens=self.scheduler.num_recomputed,
            tokens_per_s=rows / max(window, 1e-9),
            uptime_s=now - self._started_at,
        )


def _is_number(result: Floats | int) -> bool:
    return result >= 0 if isinstance(result, int) else bool(np.isfinite(result).all())


def _metrics(model: str, stats: Callable[[], EngineStats]) -> "EngineMetrics | None":
    """None without prometheus-client, which measurements on a bare machine do without."""
    try:
        from engine.metrics import EngineMetrics
    except ImportError:
        return None
    return EngineMetrics(model, stats)
