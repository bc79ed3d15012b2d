"""Games on Ray actors: an `EngineActor` that holds the model, `MatchActor`s with many games each.

Calls may run more than once (an actor that dies is restarted and asked again). Nothing changes by
that: a choice depends on its seed alone, and the recorder ignores what it has already.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

# Ray reads this when it is imported.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from arena.agents import InfrastructureError, check_context
from arena.runtime import GameEvent, RuntimeStartError, play_game
from arena.types import GameSpec
from engine import (
    ChoiceOutput,
    ChoiceParams,
    EngineConfig,
    EngineError,
    SamplingParams,
    TextOutput,
    Tokenizer,
)

if TYPE_CHECKING:  # importing it imports torch, which only the engine's process needs
    from engine import AsyncLLM

MAX_RESTARTS = 5  # of one actor in a run
OBJECT_STORE_BYTES = (
    100 * 2**20
)  # results are small and go to the driver directly; Ray's minimum is 75 MiB
ENGINE = "engine"  # name of the actor, in the namespace of this driver
START_ATTEMPTS = 2  # Ray gives up when its helpers take more than 15 s, as on a crowded machine
CONNECT_S = 5.0
PLACEMENT_S = 60.0  # a cluster without room for an actor is given up on after this
STATS_S = (
    5.0  # an engine that does not answer within this is not asked again before the next sample
)
MAX_LOCAL_WORKERS = 8

Output = TypeVar("Output")


@dataclass(frozen=True)
class EngineInfo:
    """What match actors have to know of the engine."""

    tokenizer: str  # `Tokenizer.to_json()`
    max_model_len: int


class EngineActor:
    """The one engine. A restarted actor loads the model again at its first request."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._llm: AsyncLLM | None = None
        self._loading = asyncio.Lock()
        # Requests beyond what the engine's queue takes wait here, so that none is refused.
        self._slots = asyncio.Semaphore(config.max_waiting)

    async def ping(self) -> None:
        pass

    async def load(self) -> EngineInfo:
        llm = await self._loaded()
        return EngineInfo(llm.tokenizer.to_json(), llm.max_model_len)

    async def choose(
        self,
        prompt: list[int],
        choices: list[str],
        params: ChoiceParams,
        request_id: str,
        client: str,
    ) -> ChoiceOutput:
        return await self._answer(
            lambda llm: llm.choose(prompt, choices, params, request_id=request_id, client=client)
        )

    async def generate(
        self, prompt: list[int], params: SamplingParams, request_id: str, client: str
    ) -> TextOutput:
        return await self._answer(
            lambda llm: llm.generate(prompt, params, request_id=request_id, client=client).whole()
        )

    async def _answer(self, ask: Callable[[AsyncLLM], Awaitable[Output]]) -> Output:
        llm = await self._loaded()
        async with self._slots:
            try:
                return await ask(llm)
            except EngineError as error:
                if type(error) is EngineError and self._llm is llm:
                    self._llm = None  # it stopped by a defect of its own; the next request loads it
                raise

    @ray.method(concurrency_group="health")
    async def stats(self) -> dict[str, Any] | None:
        return None if self._llm is None else asdict(self._llm.stats())

    async def _loaded(self) -> AsyncLLM:
        async with self._loading:
            if self._llm is None:
                from engine import AsyncLLM

                self._llm = await asyncio.to_thread(AsyncLLM, self._config)
            return self._llm


# Without a group of its own, health would wait behind the requests.
_engine_actor_class = ray.remote(concurrency_groups={"health": 1})(EngineActor)  # type: ignore[call-overload]


class RayEngine:
    """`EngineClient` on the engine's actor."""

    def __init__(self, actor: Any, info: EngineInfo) -> None:
        self._actor = actor
        self._tokenizer = Tokenizer.from_json(info.tokenizer)
        self._max_model_len = info.max_model_len

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    @property
    def max_model_len(self) -> int:
        return self._max_model_len

    async def choose(
        self,
        prompt: list[int],
        choices: Sequence[str],
        params: ChoiceParams,
        *,
        request_id: str,
        client: str,
    ) -> ChoiceOutput:
        output: ChoiceOutput = await self._wait(
            self._actor.choose.remote(prompt, list(choices), params, request_id, client)
        )
        return output

    async def generate(
        self, prompt: list[int], params: SamplingParams, *, request_id: str, client: str
    ) -> TextOutput:
        output: TextOutput = await self._wait(
            self._actor.generate.remote(prompt, params, request_id, client)
        )
        return output

    @staticmethod
    async def _wait(answer: Any) -> Any:
        try:
            return await answer
        except asyncio.CancelledError:
            ray.cancel(answer)
            raise
        except RayError as error:
            raise _cause(error) from None


class MatchActor:
    """Plays many games at once. Holds no model and imports no torch."""

    def __init__(self, needs_engine: bool) -> None:
        self._needs_engine = needs_engine
        self._engine: RayEngine | None = None

    async def ping(self) -> None:
        pass

    async def play(self, spec: GameSpec) -> AsyncIterator[GameEvent]:
        if self._needs_engine and self._engine is None:
            # Not an argument of the constructor: with a handle or anything large among those, Ray
            # cannot be sure to restart an actor.
            engine = ray.get_actor(ENGINE)
            self._engine = RayEngine(engine, await engine.load.remote())
        async for event in play_game(spec, self._engine):
            yield event


@dataclass
class _Worker:
    actor: Any
    games: int = 0


class RayRuntime:
    """Starts Ray as children of this process that end with it, or joins the one at `address`."""

    def __init__(
        self,
        config: EngineConfig | None,
        *,
        workers: int | None,
        concurrency: int,
        address: str | None,
    ) -> None:
        self._config = config
        cores = os.cpu_count() or 1
        self._count = workers or max(1, min(cores - 1, MAX_LOCAL_WORKERS))
        self._concurrency = concurrency
        self._address = address
        # Ray's processes end with the thread that starts them (PR_SET_PDEATHSIG): keep it.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ray")
        self._engine_actor: Any = None
        self._engine: RayEngine | None = None
        self._workers: list[_Worker] = []

    async def start(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._init)
        _take_signals_back()
        if self._config is not None:
            resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
            gpus = 1 if resources.get("GPU") else 0
            self._engine_actor = _engine_actor_class.options(
                name=ENGINE,
                num_cpus=0,
                num_gpus=gpus,
                max_concurrency=self._max_concurrency,
                max_restarts=MAX_RESTARTS,
                max_task_retries=-1,
            ).remote(self._config)
            await self._placed(self._engine_actor, "the engine")
            try:
                info = await self._engine_actor.load.options(max_task_retries=0).remote()
            except RayActorError:
                raise RuntimeStartError(
                    f"The engine's process died while it loaded {self._config.model}; "
                    "most often memory is short: take a smaller model or kv_cache_memory."
                ) from None
            except RayError as error:
                raise _cause(error) from None
            self._engine = RayEngine(self._engine_actor, info)
        match_actor = ray.remote(MatchActor).options(
            num_cpus=0,
            max_concurrency=self._max_concurrency,
            max_restarts=MAX_RESTARTS,
            scheduling_strategy="SPREAD",
        )
        self._workers = [
            _Worker(match_actor.remote(self._config is not None)) for _ in range(self._count)
        ]
        await asyncio.gather(*(self._placed(w.actor, "a match actor") for w in self._workers))

    def check(self, specs: Iterable[GameSpec]) -> None:
        if self._engine is not None:
            check_context(specs, self._engine)

    async def play(self, spec: GameSpec) -> AsyncIterator[GameEvent]:
        worker = min(self._workers, key=lambda w: w.games)
        worker.games += 1
        try:
            async for event in worker.actor.play.options(num_returns="streaming").remote(spec):
                yield await event
        except RayActorError:
            # The call below is answered when Ray has restarted the actor, or fails when it cannot.
            try:
                await worker.actor.ping.options(max_task_retries=-1).remote()
            except RayError:
                self._workers = [w for w in self._workers if w is not worker] or [worker]
            raise InfrastructureError("the process that played the game died") from None
        except RayError as error:
            raise InfrastructureError(str(_cause(error))) from None
        finally:
            worker.games -= 1

    async def engine_stats(self) -> dict[str, Any] | None:
        if self._engine_actor is None:
            return None
        try:
            stats: dict[str, Any] | None = await asyncio.wait_for(
                self._engine_actor.stats.options(max_task_retries=0).remote(), STATS_S
            )
        except (RayError, TimeoutError):
            return None
        return stats

    async def close(self) -> None:
        # The handles are kept until then: an actor that nobody refers to fails its open calls aloud.
        await asyncio.get_running_loop().run_in_executor(self._thread, ray.shutdown)
        self._thread.shutdown(wait=False)

    @property
    def _max_concurrency(self) -> int:
        """Calls that one actor may have open: a game or a request each, and a few of our own."""
        return self._concurrency + 16

    def _init(self) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._address is not None:
            try:
                if self._address != "auto":  # Ray itself would try for ten minutes
                    host, _, port = self._address.rpartition(":")
                    socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
                ray.init(address=self._address, **quiet)
            except (OSError, ValueError, RuntimeError) as error:
                raise RuntimeStartError(
                    f"There is no Ray cluster at {self._address} ({_first_line(error)}); "
                    "give HOST:PORT of its head or auto, with RAY_AUTH_MODE=token in the environment "
                    "if it asks for a token, or leave ray_address out to start Ray here."
                ) from None
            return
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                ray.init(
                    address="local",
                    num_cpus=self._count + 1,
                    include_dashboard=False,
                    object_store_memory=OBJECT_STORE_BYTES,
                    **quiet,
                )
                return
            except Exception as error:  # Ray has no common base for what can go wrong here
                ray.shutdown()
                if attempt == START_ATTEMPTS:
                    raise RuntimeStartError(
                        f"Ray did not start ({_first_line(error)}); "
                        "try again, or play with --runtime local."
                    ) from None

    async def _placed(self, actor: Any, what: str) -> None:
        try:
            await asyncio.wait_for(actor.ping.remote(), PLACEMENT_S)
        except TimeoutError:
            raise RuntimeStartError(
                f"Ray found no place for {what} within {PLACEMENT_S:.0f} s; "
                "free resources in the cluster or play with --runtime local."
            ) from None
        except RayError as error:
            raise RuntimeStartError(
                f"Ray could not start {what} ({_first_line(_cause(error))}); "
                "try again, or play with --runtime local."
            ) from None


def _take_signals_back() -> None:
    """Ray's core puts a handler before Python's that prints a stack trace at SIGTERM."""
    if threading.current_thread() is threading.main_thread():
        handler = signal.getsignal(signal.SIGTERM)
        if handler is not None:
            signal.signal(signal.SIGTERM, handler)
            signal.siginterrupt(signal.SIGTERM, False)  # as asyncio has it


def _cause(error: RayError) -> Exception:
    """What was raised inside the actor, or what became of the actor."""
    if isinstance(error, RayTaskError) and isinstance(error.cause, Exception):
        return error.cause
    return InfrastructureError(f"{type(error).__name__}: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
