"""Peer: our own engine, all requests of a round at once through `AsyncLLM.choose`.

`peer_arena.py likelihood|masked DTYPE MODEL THREADS`. The reply also says how many prompt tokens
were computed and how many were found in the cache, and how many distinct tokens (nodes of the
prompts' prefix tree) the round had.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any, Literal, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a checkout that is not installed

from wire import Reply, Request, serve

import engine


def load() -> tuple[Any, dict[str, Any]]:
    scoring, dtype, model, threads = cast(
        tuple[Literal["likelihood", "masked"], Literal["auto", "float32", "bfloat16"], str, str],
        tuple(sys.argv[1:5]),
    )
    params = engine.ChoiceParams(scoring=scoring, temperature=0.0)
    loop = asyncio.Runner()  # one loop for all rounds, so the engine may keep tasks in it

    async def start() -> engine.AsyncLLM:
        return engine.AsyncLLM(
            engine.EngineConfig(model=model, dtype=dtype, num_threads=int(threads))
        )

    llm = loop.run(start())
    tokenizer = engine.load_tokenizer(model)

    async def choose(request: Request) -> tuple[engine.ChoiceOutput, float]:
        start = time.perf_counter()
        output = await llm.choose(request["prompt"], request["choices"], params)
        return output, time.perf_counter() - start

    async def choose_all(requests: list[Request]) -> list[tuple[engine.ChoiceOutput, float]]:
        return await asyncio.gather(*map(choose, requests))

    def answer(requests: list[Request]) -> Reply:
        cpu, start = time.process_time(), time.perf_counter()
        done = loop.run(choose_all(requests))
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
        prompts = [tokenizer.encode(request["prompt"]) for request in requests]
        return {
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "texts": [output.text for output, _ in done],
            "latencies": [latency for _, latency in done],
            "prompt_tokens": sum(output.metrics.prompt_tokens for output, _ in done),
            "cached_tokens": sum(output.metrics.cached_tokens for output, _ in done),
            "scored_rows": sum(output.metrics.scored_rows for output, _ in done),
            "unique_tokens": len({tuple(ids[: i + 1]) for ids in prompts for i in range(len(ids))}),
        }

    stats = llm.stats()
    return answer, {"version": f"{stats.dtype} on {stats.device}"}


if __name__ == "__main__":
    serve(load)
