"""Probes of time: latencies under load, limits, what the choices cost, static batching."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from probe_tools import (
    LIKELIHOOD,
    MASKED,
    Engines,
    add_choice,
    add_text,
    prompt,
    rows_at,
    run,
)

from engine.async_llm import AsyncLLM
from engine.choice import ChoiceTree, draw, normalise
from engine.errors import EngineError, QueueFull
from engine.params import ChoiceParams, SamplingParams

CHOICES = [" e2e4", " d2d4", " g1f3", " c2c4", " b1c3", " e2e3"]
SEED_OF_LENGTHS = 3


def words(seed: int, count: int) -> str:
    """A text of at least `count` tokens that shares no prefix with those of other seeds."""
    draws = random.Random(seed)
    squares = [file + rank for file in "abcdefgh" for rank in "12345678"]
    return f"{seed}:" + "".join(f" {draws.choice(squares)}" for _ in range(count // 2))


def first_move(engines: Engines, quick: bool) -> dict[str, Any]:
    """Seconds to a move after a prefix of about 1,000 tokens that is cold, then cached."""
    result: dict[str, Any] = {}
    with engines.core() as core:
        for name, params in (("likelihood", LIKELIHOOD), ("masked", MASKED)):
            cold, warm, tokens = [], [], 0
            for repeat in range(2 if quick else 5):
                text = words(100 * len(name) + repeat, 1000)
                for times, ending in ((cold, " a2a3"), (warm, " h7h6")):
                    start = time.perf_counter()
                    request = core.intake.make_choice(text + ending, CHOICES, params)
                    core.add(request)
                    run(core)
                    times.append(time.perf_counter() - start)
                    tokens = request.prompt_len
            result[name] = {
                "prompt_tokens": tokens,
                "cold_s": statistics.median(cold),
                "cached_s": statistics.median(warm),
                "cached_over_cold": statistics.median(
                    b / a for a, b in zip(cold, warm, strict=True)
                ),
            }
    return result


def caching(engines: Engines, quick: bool) -> dict[str, Any]:
    """Moves per second of 8 games with the prefix cache and without."""
    plies = rows_at(8, 26)[20 : 22 if quick else 24]
    result = {}
    for name, enabled in (("on", True), ("off", False)):
        with engines.core(enable_prefix_caching=enabled) as core:
            for row in plies[0]:
                add_choice(core, row)
            run(core)
            start = time.perf_counter()
            for rows in plies[1:]:
                for row in rows:
                    add_choice(core, row)
                run(core)
            moves = sum(map(len, plies[1:]))
            result[f"{name}_moves_per_s"] = moves / (time.perf_counter() - start)
    return result | {"on_over_off": result["on_moves_per_s"] / result["off_moves_per_s"]}


def long_prompt(engines: Engines, quick: bool) -> dict[str, Any]:
    """16 callers send short requests, each the next when the last is answered: their latencies
    without and during a cold prompt of 4,000 tokens.
    """
    return asyncio.run(_long_prompt(engines, 1 if quick else 3))


async def _long_prompt(engines: Engines, repeats: int) -> dict[str, Any]:
    llm = AsyncLLM(engines.config())
    quiet: list[float] = []
    loaded: list[float] = []
    long_s: list[float] = []
    plies = rows_at(16, 40)
    state = {"busy": False}

    async def caller(game: int, stop: Callable[[], bool], latencies: list[float]) -> None:
        ply = 20
        while not stop():
            row = plies[ply][game]
            start, busy = time.perf_counter(), state["busy"]
            await llm.choose(prompt(row), row["choices"], MASKED)
            if busy or latencies is quiet:
                latencies.append(time.perf_counter() - start)
            ply = ply + 1 if ply < 39 else 20

    async def cold(repeat: int) -> None:
        text = words(repeat, 4200)
        tokens = llm.tokenizer.encode(text)[:4000]
        start = time.perf_counter()
        state["busy"] = True
        await llm.generate(tokens, SamplingParams(max_tokens=1)).__anext__()
        state["busy"] = False
        long_s.append(time.perf_counter() - start)

    async def short(stop: Callable[[], bool], latencies: list[float]) -> None:
        await asyncio.gather(*(caller(game, stop, latencies) for game in range(16)))

    try:
        await asyncio.gather(  # every prompt once, so that both see a warm cache
            *(llm.choose(prompt(row), row["choices"], MASKED) for rows in plies for row in rows)
        )
        for repeat in range(repeats):
            until = time.perf_counter() + 2.0
            await short(lambda until=until: time.perf_counter() > until, quiet)
            task = asyncio.create_task(cold(repeat))
            await asyncio.sleep(0)
            await short(task.done, loaded)
            await task
    finally:
        await llm.close()
    p50, p99 = statistics.median(quiet), sorted(loaded)[int(0.99 * (len(loaded) - 1))]
    return {
        "quiet_p50_s": p50,
        "quiet_p99_s": sorted(quiet)[int(0.99 * (len(quiet) - 1))],
        "loaded_p50_s": statistics.median(loaded),
        "loaded_p99_s": p99,
        "p99_over_quiet_p50": p99 / p50,
        "long_prompt_s": statistics.median(long_s),
        "long_prompt_tokens": len(llm.tokenizer.encode(words(0, 4200))[:4000]),
        "requests": [len(quiet), len(loaded)],
    }


def queue_full(engines: Engines, quick: bool) -> dict[str, Any]:
    """Seconds from the call to QueueFull, while the engine is busy and its queue is full."""
    return asyncio.run(_queue_full(engines))


async def _queue_full(engines: Engines) -> dict[str, Any]:
    llm = AsyncLLM(engines.config(max_waiting=4, max_num_seqs=2))
    writing = SamplingParams(max_tokens=256, temperature=0.0, ignore_eos=True)

    async def write(number: int) -> None:
        async for _ in llm.generate(words(number, 20), writing):
            pass

    tasks = []
    times: list[float] = []
    for number in range(6):
        tasks.append(asyncio.create_task(write(number)))
        await asyncio.sleep(0.5)
    for _ in range(200):
        start = time.perf_counter()
        try:
            await llm.choose("1. e4 e5 2.", CHOICES, MASKED)
        except QueueFull:
            times.append(time.perf_counter() - start)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await llm.close()
    ordered = sorted(times)
    return {
        "refused": len(times),
        "p50_s": statistics.median(ordered),
        "p99_s": ordered[int(0.99 * (len(ordered) - 1))],
    }


def abort(engines: Engines, quick: bool) -> dict[str, Any]:
    """Steps from an abort until the request's pages are nobody's: waiting, in its prompt, writing."""
    late = 0
    with engines.core(max_num_batched_tokens=128) as core:
        for number, steps in enumerate((0, 1, 2, 6, 12) * (1 if quick else 4)):
            request = add_text(core, words(1000 + number, 400), 64)
            for _ in range(steps):
                core.step()
            core.abort(request)
            late += core.cache.num_active > 0
            core.step()
            if core.cache.num_active:
                raise EngineError("An aborted request still holds pages after the next step.")
    return {"steps_until_free": 1 if late else 0}


def choices(engines: Engines, quick: bool) -> dict[str, Any]:
    """CPU milliseconds per position for what a constraint costs: token ids of the choices, their trie
    and its mask, and the draw. The texts of moves repeat, so their ids come from a cache mostly.
    """
    rows = [row for rows in rows_at(8, 20 if quick else 40) for row in rows]
    parts = {"ids": 0.0, "trie": 0.0, "mask": 0.0, "draw": 0.0}
    with engines.core() as core:
        for row in rows[:8]:
            core.tokenizer.encode_choice(row["choices"][0])
        for row in rows:
            at = [time.thread_time()]
            ids = [core.tokenizer.encode_choice(text) for text in row["choices"]]
            at.append(time.thread_time())
            tree = ChoiceTree(ids)
            at.append(time.thread_time())
            tree.ancestors()
            at.append(time.thread_time())
            logs, _, _ = normalise(tree.log_probabilities(-1.0 - 0.01 * tree.edge_tokens))
            draw(logs, row["choices"], ChoiceParams(), 0)
            at.append(time.thread_time())
            for name, start, end in zip(parts, at, at[1:], strict=False):
                parts[name] += end - start
    per_position = {f"{name}_ms": 1000 * s / len(rows) for name, s in parts.items()}
    return {
        **per_position,
        "trie_and_constraint_ms": sum(per_position.values()) - per_position["draw_ms"],
        "positions": len(rows),
    }


def lengths(engines: Engines, quick: bool) -> dict[str, Any]:
    """Texts of mixed lengths on 16 streams: continuously, and in static batches of 16 in order of
    arrival, where the next batch waits for the longest text of the last. Alternating.
    """
    streams = 16
    draws = random.Random(SEED_OF_LENGTHS)
    count = 32 if quick else 64
    rows = rows_at(count, 21)[20]
    sizes = [round(2 ** draws.uniform(2, 5 if quick else 7)) for _ in rows]
    seconds: dict[str, list[float]] = {"continuous": [], "static": []}
    steps: dict[str, int] = {}
    with engines.core(max_num_seqs=streams) as core:
        for row in rows:
            add_text(core, prompt(row), 1)
        run(core)
        for _ in range(1 if quick else 2):
            for way, size in (("continuous", count), ("static", streams)):
                start, before = time.perf_counter(), core.steps
                for first in range(0, count, size):
                    batch = zip(
                        rows[first : first + size], sizes[first : first + size], strict=True
                    )
                    for row, tokens in batch:
                        add_text(core, prompt(row), tokens)
                    run(core)
                seconds[way].append(time.perf_counter() - start)
                steps[way] = core.steps - before
    rates = {way: sum(sizes) / statistics.median(times) for way, times in seconds.items()}
    return {
        "texts": count,
        "tokens": sum(sizes),
        "longest": max(sizes),
        "steps": steps,
        "tokens_per_s": rates,
        "continuous_over_static": statistics.median(
            b / a for a, b in zip(seconds["continuous"], seconds["static"], strict=True)
        ),
    }
