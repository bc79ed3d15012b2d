"""What the probes share: engines of one model, and requests of the workload."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench_workload import Row, workload

from engine.config import EngineConfig
from engine.core import EngineCore, Event
from engine.outputs import ChoiceOutput, TextOutput
from engine.params import ChoiceParams, SamplingParams
from engine.request import Request

SEED = 7
MASKED = ChoiceParams("masked", temperature=0.0)
LIKELIHOOD = ChoiceParams("likelihood", temperature=0.0)


@dataclass(frozen=True)
class Engines:
    """Builds engines that differ in the given settings alone."""

    model: str
    dtype: str
    threads: int

    def config(self, **changes: Any) -> EngineConfig:
        settings: dict[str, Any] = {"dtype": self.dtype, "num_threads": self.threads}
        return EngineConfig(model=self.model, **(settings | changes))

    @contextmanager
    def core(self, **changes: Any) -> Iterator[EngineCore]:
        """An engine that the caller steps."""
        core = EngineCore(self.config(**changes))
        try:
            yield core
        finally:
            core.close()


def rows_at(games: int, plies: int, seed: int = SEED) -> list[list[Row]]:
    """The workload's rows by ply."""
    rows: list[list[Row]] = [[] for _ in range(plies)]
    for row in workload(games, plies, seed):
        rows[row["ply"]].append(row)
    return rows


def prompt(row: Row) -> str:
    return row["system"] + row["transcript"]


def add_choice(core: EngineCore, row: Row, params: ChoiceParams = MASKED) -> Request:
    request = core.intake.make_choice(prompt(row), row["choices"], params)
    core.add(request)
    return request


def add_text(core: EngineCore, text: str, max_tokens: int) -> Request:
    writing = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    request = core.intake.make_text(text, writing)
    core.add(request)
    return request


def run(core: EngineCore) -> dict[str, ChoiceOutput | TextOutput]:
    """Step until nothing is left; the outputs by request id. Raises the first error."""
    outputs: dict[str, ChoiceOutput | TextOutput] = {}
    while core.busy:
        take(core.step(), outputs)
    return outputs


def take(
    events: list[tuple[Request, Event]], outputs: dict[str, ChoiceOutput | TextOutput]
) -> None:
    for request, event in events:
        if isinstance(event, Exception):
            raise event
        if not isinstance(event, str):
            outputs[request.request_id] = event
