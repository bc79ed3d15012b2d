"""Ask the same move requests of engines with `deterministic=True` that differ in batch size, cache and memory, and
count the answers that are not the same to the bit.

Texts that outgrow a small cache run in front of the requests of the last engine, so that these are preempted.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Any

from bench_workload import workload

from engine import AsyncLLM, ChoiceOutput, ChoiceParams, EngineConfig, SamplingParams

Request = tuple[str, list[str], ChoiceParams]
TEXTS = 24  # in front of the requests that are to be preempted
TEXT_TOKENS = 400  # more than a scheduler keeps room for when it admits a text


def requests_of(count: int, system: int) -> list[Request]:
    """Half exact, half masked, at temperature 1, each with a seed of its own."""
    rows = list(workload(games=8, plies=count // 8 + 1, seed=7))[:count]
    kinds = ("likelihood", "masked")
    return [
        (
            row["system"][:system] + row["transcript"],
            row["choices"],
            ChoiceParams(scoring=kinds[i % 2], seed=i),  # type: ignore[arg-type]
        )
        for i, row in enumerate(rows)
    ]


async def answers(
    config: EngineConfig, requests: list[Request], texts: int
) -> tuple[Any, int, str]:
    """The outputs without their times, how often some request was preempted, and a word on how they came about."""
    llm = AsyncLLM(config)
    started = time.process_time()

    async def write(prompt: str, seed: int) -> None:
        async for _ in llm.generate(
            prompt, SamplingParams(max_tokens=TEXT_TOKENS, seed=seed, ignore_eos=True)
        ):
            pass

    writing = [write(request[0], i) for i, request in enumerate(requests[:texts])]
    outputs: list[Any] = []
    step = config.max_num_seqs if config.max_num_seqs < 64 else len(requests)
    for first in range(0, len(requests), step):
        batch = (llm.choose(*request) for request in requests[first : first + step])
        outputs += (await asyncio.gather(*writing, *batch))[len(writing) :]
        writing = []
    stats = llm.stats()
    await llm.close()
    seconds = time.process_time() - started
    word = f"{stats.preemptions} preemptions, {seconds:.0f} CPU s"
    return [bits(output) for output in outputs], stats.preemptions, word


def bits(output: ChoiceOutput) -> tuple[Any, ...]:
    return (output.index, output.logprob, output.logprobs, output.legal_mass, output.entropy)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", help="a model's directory or GGUF file")
    parser.add_argument("--requests", type=int, default=1000, help="default: 1000")
    parser.add_argument("--dtype", default="auto", help="default: auto")
    parser.add_argument("--quantization", choices=["int8"], help="of the weights")
    parser.add_argument("--system", type=int, default=400, help="characters of the system prompt")
    parser.add_argument("--small", type=int, default=None, metavar="BYTES", help="a tight cache")
    args = parser.parse_args()
    requests = requests_of(args.requests, args.system)
    shared: dict[str, Any] = {
        "dtype": args.dtype,
        "quantization": args.quantization,
        "num_threads": 1,
        "max_waiting": len(requests) + TEXTS,
        "deterministic": True,
    }
    settings: list[tuple[str, dict[str, Any], int]] = [
        (
            f"batch {n}, {'cached' if cached else 'not cached'}",
            {"max_num_seqs": n, "enable_prefix_caching": cached},
            0,
        )
        for n in (1, 8, 64)
        for cached in (True, False)
    ]
    if args.small:
        settings.append(("preempted", {"max_num_seqs": 64, "kv_cache_memory": args.small}, TEXTS))
    expected: Any = None
    worst = 0
    for name, changes, texts in settings:
        got, preemptions, word = asyncio.run(
            answers(EngineConfig(args.model, **(shared | changes)), requests, texts)
        )
        expected = expected or got
        differ = sum(a != b for a, b in zip(got, expected, strict=True))
        choices = sum(a[0] != b[0] for a, b in zip(got, expected, strict=True))
        worst = max(worst, differ)
        if texts and not preemptions:
            print("nothing was preempted, so this shows nothing: lower --small", flush=True)
            worst = max(worst, 1)
        print(
            f"{name}: {len(got)} requests, {differ} differ in bits, {choices} in the choice; {word}",
            flush=True,
        )
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
