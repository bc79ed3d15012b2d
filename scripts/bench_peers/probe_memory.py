"""Probes of what is computed and kept: reuse of prefixes, memory, and the accuracy of less memory."""

from __future__ import annotations

import itertools
import statistics
from typing import Any

from probe_tools import LIKELIHOOD, Engines, add_choice, add_text, prompt, rows_at, run, take

from engine.core import EngineCore
from engine.outputs import ChoiceOutput


def prefix(engines: Engines, quick: bool) -> dict[str, Any]:
    """Play 8 games from the first ply on a cold engine: the cached share of the prompt tokens after
    ply 5, how many tokens that an earlier round had seen were computed again, and how many passes
    through the weights a round took in which every request was there from the beginning.
    """
    seen: set[tuple[int, ...]] = set()
    again: list[int] = []
    prompt_tokens = cached_tokens = passes = 0
    plies = rows_at(8, 12 if quick else 40)
    with engines.core() as core:
        for ply, rows in enumerate(plies):
            requests = [add_choice(core, row, LIKELIHOOD) for row in rows]
            steps = core.steps
            outputs = run(core)
            passes += core.steps - steps if ply > 5 else 0
            paths = [prefixes(request.tokens[: request.prompt_len]) for request in requests]
            for request, path in zip(requests, paths, strict=True):
                metrics = outputs[request.request_id].metrics
                if ply > 5:
                    prompt_tokens += metrics.prompt_tokens
                    cached_tokens += metrics.cached_tokens
                if ply > 0:
                    known = sum(1 for _ in itertools.takewhile(seen.__contains__, path))
                    again.append(max(0, known - metrics.cached_tokens))
            seen.update(itertools.chain.from_iterable(paths))
    return {
        "prompt_tokens_after_ply_5": prompt_tokens,
        "cached_tokens_after_ply_5": cached_tokens,
        "cached_share_after_ply_5": cached_tokens / prompt_tokens,
        "passes_per_move": passes / (len(plies) - 6),
        "seen_tokens_recomputed_per_ply_mean": statistics.fmean(again),
        "seen_tokens_recomputed_per_ply_max": max(again),
    }


def prefixes(tokens: list[int]) -> list[tuple[int, ...]]:
    return [tuple(tokens[: end + 1]) for end in range(len(tokens))]


def stampede(engines: Engines, quick: bool) -> dict[str, Any]:
    """64 prompts with one system prompt reach a cold engine at once: computed / distinct tokens."""
    with engines.core() as core:
        requests = [add_choice(core, row) for row in rows_at(64, 9)[8]]
        outputs = run(core)
        unique = {p for r in requests for p in prefixes(r.tokens[: r.prompt_len])}
    metrics = [outputs[request.request_id].metrics for request in requests]
    computed = sum(m.prompt_tokens - m.cached_tokens for m in metrics)
    return {
        "requests": len(requests),
        "prompt_tokens": sum(m.prompt_tokens for m in metrics),
        "computed_tokens": computed,
        "unique_tokens": len(unique),
        "computed_over_unique": computed / len(unique),
    }


def memory(engines: Engines, quick: bool) -> dict[str, Any]:
    """The same run's memory in three ways, in tokens per step: allocated and used by our engine
    (running requests only), what the requests would take without sharing, and what a scheme would
    hold that reserves max_model_len per request. Half of the requests choose, half write.
    """
    limit = 2048
    held: dict[str, list[int]] = {"allocated": [], "used": [], "unshared": [], "reserved": []}
    with engines.core(max_model_len=limit, max_num_seqs=32) as core:
        for rows in rows_at(32, 22)[20:]:
            for index, row in enumerate(rows):
                if index % 2:
                    add_choice(core, row, LIKELIHOOD)
                else:
                    add_text(core, prompt(row), 8 if quick else 32)
            while core.busy:
                # As far as the step has scheduled, which is while the model runs: afterwards those
                # that ended have given theirs back.
                take(_watched_step(core, limit, held), {})
    means = {name: statistics.fmean(values) for name, values in held.items()}
    return {
        **{f"{name}_tokens": value for name, value in means.items()},
        "bytes_per_token": core_bytes(engines),
        "allocated_unused_share": 1.0 - means["used"] / means["allocated"],
        "reserved_unused_share": 1.0 - means["unshared"] / means["reserved"],
        "max_model_len": limit,
        "steps": len(held["used"]),
    }


def core_bytes(engines: Engines) -> int:
    """Bytes of one token in the cache, found by the number of slots that a given memory buys."""
    given = 64 << 20
    with engines.core(kv_cache_memory=given) as core:
        return given // core.cache.num_slots


def _watched_step(core: EngineCore, limit: int, held: dict[str, list[int]]) -> Any:
    runner_run = core.runner.launch

    def watched(chunks: Any) -> Any:
        running = core.scheduler.running
        rows = [request.slots[: request.num_computed].tolist() for request in running]
        held["allocated"].append(core.cache.num_active)
        held["used"].append(len(set(itertools.chain.from_iterable(rows))))
        held["unshared"].append(sum(map(len, rows)))
        held["reserved"].append(limit * len(rows))
        return runner_run(chunks)

    core.runner.launch = watched  # type: ignore[method-assign]
    try:
        return core.step()
    finally:
        core.runner.launch = runner_run  # type: ignore[method-assign]


def pressure(engines: Engines, quick: bool) -> dict[str, Any]:
    """32 texts at once with ample memory, then with half of what they held at most: rows computed
    more than with ample memory / rows computed with ample memory.
    """
    rows = rows_at(32, 21)[20]
    tokens = 16 if quick else 64

    def computed(**changes: Any) -> tuple[int, int, int]:
        peak = 0
        with engines.core(**changes) as core:
            for row in rows:
                add_text(core, prompt(row), tokens)
            while core.busy:
                take(core.step(), {})
                peak = max(peak, core.cache.num_active)
            stats = core.stats()
            return stats.computed_tokens, peak, stats.preemptions

    useful, peak, _ = computed()
    half, _, preemptions = computed(kv_cache_memory=peak // 2 * core_bytes(engines))
    return {
        "useful_tokens": useful,
        "recomputed_tokens": half - useful,
        "recomputed_over_useful": (half - useful) / useful,
        "peak_tokens": peak,
        "preemptions": preemptions,
    }


def accuracy(engines: Engines, quick: bool) -> dict[str, Any]:
    """Log probabilities of moves against float32, and how often the likeliest move is the same: for
    the number format given, int8 weights and an int8 cache. Games are played ply by ply up to turn
    10, so that the cache's prefixes are read again and again.
    """
    plies = rows_at(8, 6 if quick else 20)
    kinds: dict[str, dict[str, Any]] = {
        "as given": {},
        "int8 weights": {"quantization": "int8"},
        "int8 cache": {"kv_cache_dtype": "int8"},
    }

    def logs(**changes: Any) -> list[ChoiceOutput]:
        found: list[ChoiceOutput] = []
        with engines.core(**changes) as core:
            for rows in plies:
                requests = [add_choice(core, row, LIKELIHOOD) for row in rows]
                outputs = run(core)
                done = [outputs[request.request_id] for request in requests]
                found += [output for output in done if isinstance(output, ChoiceOutput)]
        return found

    reference = logs(dtype="float32")
    result: dict[str, Any] = {"positions": len(reference)}
    for kind, changes in kinds.items():
        try:
            mine = logs(**changes)
        except (TypeError, ValueError, NotImplementedError) as error:
            result[kind] = {"failure": str(error)}
            continue
        result[kind] = {
            "mean_absolute_difference": _difference(reference, mine),
            "last_ply": _difference(reference[-8:], mine[-8:]),
            "same_first_move": statistics.fmean(
                a.index == b.index for a, b in zip(reference, mine, strict=True)
            ),
        }
    return result


def _difference(reference: list[ChoiceOutput], mine: list[ChoiceOutput]) -> float:
    return statistics.fmean(
        abs(x - y)
        for a, b in zip(reference, mine, strict=True)
        for x, y in zip(a.logprobs or (), b.logprobs or (), strict=True)
    )
