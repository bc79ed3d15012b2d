"""AsyncLLM: every request ends in exactly one stated outcome, and its pages come back."""

import asyncio
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from engine import (
    Aborted,
    AsyncLLM,
    ChoiceOutput,
    ChoiceParams,
    DeadlineExceeded,
    EngineError,
    OutOfMemory,
    QueueFull,
    SamplingParams,
)
from engine.request import Status
from tests.engine.conftest import SYSTEM, config

LONG = SamplingParams(max_tokens=400, temperature=0, ignore_eos=True)
PER_TOKEN = 2 * 2 * 2 * 8 * 4  # keys and values, layers, heads, dimension, bytes


@pytest.fixture
async def llm(checkpoint: str) -> AsyncIterator[AsyncLLM]:
    engine = AsyncLLM(config(checkpoint))
    yield engine
    await engine.close()


async def collect(llm: AsyncLLM, params: SamplingParams, **more: Any) -> str:
    return "".join([delta async for delta in llm.generate(SYSTEM, params, **more)])


async def settled(llm: AsyncLLM) -> None:
    """Wait until the engine has nothing left."""
    while llm.stats().num_running or llm.stats().num_waiting:
        await asyncio.sleep(0.001)
    assert llm.stats().kv_pages_used == 0


async def test_many_callers_share_one_engine(llm: AsyncLLM) -> None:
    texts = [" e2e4", " d2d4", " O-O", " O-O-O"]
    outputs = await asyncio.gather(
        *(llm.choose(f"{SYSTEM} {i}", texts, ChoiceParams(temperature=0)) for i in range(40))
    )
    alone = [
        await llm.choose(f"{SYSTEM} {i}", texts, ChoiceParams(temperature=0)) for i in range(5)
    ]
    for output, other in zip(outputs, alone, strict=False):
        assert output.index == other.index
        assert output.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    stats = llm.stats()
    assert stats.requests_finished == 45 and stats.requests_failed == 0
    assert stats.steps < 45
    metrics = alone[0].metrics
    assert metrics.cached_tokens == metrics.prompt_tokens - 1
    assert metrics.queue_s >= 0 and metrics.prefill_s > 0
    assert metrics.ttft_s >= metrics.queue_s + metrics.prefill_s
    assert stats.prefix_hit_rate is not None and 0 < stats.prefix_hit_rate < 1


async def test_a_text_streams_in_deltas(llm: AsyncLLM) -> None:
    params = SamplingParams(max_tokens=20, temperature=0, ignore_eos=True)
    stream = llm.generate(SYSTEM, params)
    deltas = [delta async for delta in stream]
    assert stream.output is not None
    assert len(deltas) > 5 and "".join(deltas) == stream.output.text
    assert len(stream.output.token_ids) == 20 and stream.output.finish_reason == "length"


async def test_abort_while_running(llm: AsyncLLM) -> None:
    task = asyncio.create_task(collect(llm, LONG, request_id="a"))
    while not llm.stats().num_running:
        await asyncio.sleep(0.001)
    assert llm.abort("a")
    with pytest.raises(Aborted):
        await task
    await settled(llm)
    assert not llm.abort("a")


async def test_abort_while_waiting(checkpoint: str) -> None:
    llm = AsyncLLM(config(checkpoint, max_num_seqs=1))
    first = asyncio.create_task(collect(llm, LONG, request_id="a"))
    second = asyncio.create_task(collect(llm, LONG, request_id="b"))
    while not llm.stats().num_waiting:
        await asyncio.sleep(0.001)
    llm.abort("b")
    with pytest.raises(Aborted):
        await second
    llm.abort("a")
    with pytest.raises(Aborted):
        await first
    await settled(llm)
    await llm.close()


async def test_abort_after_preemption(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.scheduler._GROWTH", 0)
    llm = AsyncLLM(config(checkpoint, kv_cache_memory=450 * PER_TOKEN))
    tasks = {
        f"{name}": asyncio.create_task(
            collect(
                llm,
                SamplingParams(max_tokens=400, ignore_eos=True, seed=name),
                request_id=f"{name}",
            )
        )
        for name in range(4)
    }
    while not any(
        r.status is Status.WAITING and r.preemptions for r, _ in list(llm._live.values())
    ):
        await asyncio.sleep(0.001)
        assert llm._live, "nothing was preempted"
    preempted = next(r for r, _ in list(llm._live.values()) if r.preemptions)
    llm.abort(preempted.request_id)
    with pytest.raises(Aborted):
        await tasks.pop(preempted.request_id)
    for name in tasks:
        llm.abort(name)
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    await settled(llm)
    await llm.close()


async def test_a_caller_that_goes_away_frees_its_pages(llm: AsyncLLM) -> None:
    task = asyncio.create_task(collect(llm, LONG))
    while not llm.stats().num_running:
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await settled(llm)
    async for _ in (stream := llm.generate(SYSTEM, LONG)):
        break
    await stream.aclose()
    await settled(llm)


async def test_the_queue_full_error_is_immediate(checkpoint: str) -> None:
    llm = AsyncLLM(config(checkpoint, max_num_seqs=1, max_waiting=4))
    tasks = [asyncio.create_task(collect(llm, LONG)) for _ in range(30)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert all(isinstance(task.exception(), QueueFull) for task in done)
    for task in pending:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert 20 <= sum(isinstance(result, QueueFull) for result in results) <= 26
    await settled(llm)
    await llm.close()


async def test_a_deadline_ends_a_request_in_any_state(checkpoint: str) -> None:
    llm = AsyncLLM(config(checkpoint, max_num_seqs=1))
    running = asyncio.create_task(collect(llm, LONG, request_id="a", deadline=60))
    waiting = asyncio.create_task(llm.choose(SYSTEM, [" a", " b"], request_id="b", deadline=60))
    while not (llm.stats().num_running and llm.stats().num_waiting):
        await asyncio.sleep(0.001)
    for name in ("a", "b"):
        llm._live[name][0].deadline = 0.0
    for task in (running, waiting):
        with pytest.raises(DeadlineExceeded, match="deadline passed"):
            await task
    await settled(llm)
    assert llm.stats().requests_failed == 2
    await llm.close()


async def test_a_request_that_can_never_fit_is_refused(checkpoint: str) -> None:
    llm = AsyncLLM(config(checkpoint, kv_cache_memory=50 * PER_TOKEN))
    with pytest.raises(OutOfMemory, match="which has 50"):
        await llm.choose([5] * 60, [" a"])
    await llm.close()


async def test_a_request_id_in_use_is_refused(llm: AsyncLLM) -> None:
    task = asyncio.create_task(collect(llm, LONG, request_id="a"))
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="'a' already"):
        await llm.choose(SYSTEM, [" a"], request_id="a")
    task.cancel()
    await settled(llm)


async def test_close_ends_what_is_left(checkpoint: str) -> None:
    llm = AsyncLLM(config(checkpoint))
    tasks = [asyncio.create_task(collect(llm, LONG)) for _ in range(3)]
    while not llm.stats().num_running:
        await asyncio.sleep(0.001)
    await llm.close()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, Aborted) for result in results)
    with pytest.raises(Aborted, match="closed"):
        await llm.choose(SYSTEM, [" a"])
    await llm.close()


async def test_a_failed_step_fails_its_requests_and_the_engine_goes_on(
    llm: AsyncLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await llm.choose(SYSTEM, [" a", " b"], ChoiceParams(temperature=0))
    runner = llm._core.runner

    def broken(chunks: object) -> object:
        raise RuntimeError("no memory for this")

    with monkeypatch.context() as patch:
        patch.setattr(runner, "launch", broken)
        results = await asyncio.gather(
            *(llm.choose(f"{SYSTEM} {i}", [" a", " b"]) for i in range(3)), return_exceptions=True
        )
    assert all(isinstance(r, EngineError) and "no memory for this" in str(r) for r in results)
    await settled(llm)
    after = await llm.choose(SYSTEM, [" a", " b"], ChoiceParams(temperature=0))
    assert after.logprobs == pytest.approx(before.logprobs, abs=1e-5)
    assert after.metrics.cached_tokens == 0  # nothing of the failed step is trusted


async def test_outputs_that_are_not_numbers_fail_the_request(llm: AsyncLLM) -> None:
    llm._core.runner.decoder.norm[0] = float("nan")
    for scoring in ("likelihood", "masked"):
        with pytest.raises(EngineError, match="not numbers"):
            await llm.choose(SYSTEM, [" a", " b"], ChoiceParams(scoring=scoring))
    for temperature in (0.0, 1.0):
        with pytest.raises(EngineError, match="not numbers"):
            await collect(llm, SamplingParams(temperature=temperature))
    await settled(llm)


async def test_a_defect_in_the_engine_reaches_every_caller(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = AsyncLLM(config(checkpoint))

    def defect() -> object:
        raise KeyError("defect")

    monkeypatch.setattr(llm._core, "step", defect)
    for _ in range(2):
        with pytest.raises(EngineError, match="internal error"):
            await llm.choose(SYSTEM, [" a"])
    await llm.close()


async def test_outputs_and_errors_cross_process_borders(llm: AsyncLLM) -> None:
    output = await llm.choose(SYSTEM, [" a", " b"])
    for value in (output, llm.stats(), ChoiceParams(), LONG, config("x")):
        assert pickle.loads(pickle.dumps(value)) == value
    assert isinstance(output, ChoiceOutput)
    assert str(pickle.loads(pickle.dumps(QueueFull("a sentence")))) == "a sentence"


def test_importing_the_engine_does_not_import_torch() -> None:
    code = "import sys, engine; engine.Tokenizer; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
