"""Peer: our own engine, all requests of a round at once through `AsyncLLM`.

`peer_arena.py SCORING SETTINGS MODEL THREADS`: SETTINGS is a JSON object of EngineConfig's fields.
The reply also says how many passes through the weights there were, how many prompt tokens there were
and how many of them were found in the cache.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any, Literal, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a checkout that is not installed

from wire import Reply, Request, serve

import engine

Answer = tuple[engine.ChoiceOutput | engine.TextOutput, float]


def load() -> tuple[Any, dict[str, Any]]:
    scoring = cast(Literal["likelihood", "masked"], sys.argv[1])
    settings, model, threads = json.loads(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    params = engine.ChoiceParams(scoring=scoring, temperature=0.0)
    loop = asyncio.Runner()  # one loop for all rounds, so the engine may keep tasks in it

    async def start() -> engine.AsyncLLM:
        return engine.AsyncLLM(engine.EngineConfig(model=model, num_threads=threads, **settings))

    llm = loop.run(start())

    async def one(request: Request) -> Answer:
        start = time.perf_counter()
        output: engine.ChoiceOutput | engine.TextOutput
        if "choices" in request:
            output = await llm.choose(request["prompt"], request["choices"], params)
        else:
            writing = engine.SamplingParams(
                max_tokens=request["max_tokens"], temperature=0.0, ignore_eos=True
            )
            stream = llm.generate(request["prompt"], writing)
            async for _ in stream:
                pass
            assert stream.output is not None
            output = stream.output
        return output, time.perf_counter() - start

    async def every(requests: list[Request]) -> list[Answer]:
        return await asyncio.gather(*map(one, requests))

    def answer(requests: list[Request]) -> Reply:
        steps = llm.stats().steps
        cpu, start = time.process_time(), time.perf_counter()
        done = loop.run(every(requests))
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
        return {
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "texts": [output.text for output, _ in done],
            "tokens": sum(
                len(output.token_ids) for output, _ in done if isinstance(output, engine.TextOutput)
            ),
            "latencies": [latency for _, latency in done],
            "steps": llm.stats().steps - steps,
            "prompt_tokens": sum(output.metrics.prompt_tokens for output, _ in done),
            "cached_tokens": sum(output.metrics.cached_tokens for output, _ in done),
        }

    stats = llm.stats()
    return answer, {"version": f"{stats.dtype} on {stats.device}, {sys.argv[2]}"}


if __name__ == "__main__":
    serve(load)
