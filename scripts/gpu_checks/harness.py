"""Runs sections one after the other within their time, each safe to fail alone, and keeps what they found."""

from __future__ import annotations

import gc
import json
import os
import platform
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from model_shapes import write

from engine import LLM, EngineConfig, capacity

QUICK = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 850,
}


class OutOfTime(Exception):
    """A section took longer than it may."""


@dataclass(frozen=True)
class Row:
    """A row of the table at the end. value: text; goal: what is wanted, and whether that is reached if it is known."""

    name: str
    value: str
    goal: str = ""
    reached: bool | None = None


@dataclass
class Context:
    """What sections share. quick: tiny shapes and few rounds, to see that the script works."""

    device: torch.device
    quick: bool
    folder: Path
    rates: capacity.Device
    ends_at: float = 0.0
    rows: list[Row] = field(default_factory=list)

    @property
    def left(self) -> float:
        """Seconds that the section has left."""
        return self.ends_at - time.monotonic()

    def add(self, name: str, value: str, goal: str = "", reached: bool | None = None) -> None:
        """A row of the table at the end."""
        self.rows.append(Row(name, value, goal, reached))

    def sync(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def seconds(self, call: Callable[[], object], repeats: int = 10) -> float:
        """The median time of a call on the device, after two that are not counted. Nothing of the last call is left in
        a GPU's cache, as when a model's other layers came between."""
        for _ in range(2):
            call()
        if self.device.type != "cuda":
            times = []
            for _ in range(2 if self.quick else repeats):
                started = time.perf_counter()
                call()
                times.append(time.perf_counter() - started)
            return sorted(times)[len(times) // 2]
        marks = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for _ in range(repeats)
        ]
        flushed = torch.empty(1 << 28, dtype=torch.uint8, device=self.device)
        for first, last in marks:
            flushed.zero_()
            first.record()
            call()
            last.record()
        self.sync()
        times = sorted(first.elapsed_time(last) / 1e3 for first, last in marks)
        return times[len(times) // 2]

    @property
    def dtype(self) -> str:
        return "bfloat16" if self.device.type == "cuda" else "float32"

    @contextmanager
    def engine(self, shape: str, **settings: Any) -> Iterator[LLM]:
        """An engine with random weights of a model's sizes, or of next to none if it is quick."""
        changes = QUICK if self.quick else {}
        model = write(shape, self.folder, **changes)
        common = {"device": str(self.device), "dtype": self.dtype, "load_format": "dummy"}
        llm = LLM(EngineConfig(str(model), **(common | settings)))
        try:
            yield llm
        finally:
            llm.close()
            del llm
            self.clear()

    def clear(self) -> None:
        """Give memory back."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


@dataclass(frozen=True)
class Section:
    """name; what it does, returning what goes into the JSON; the seconds that it may take."""

    name: str
    run: Callable[[Context], dict[str, Any]]
    budget: float


def run_all(sections: list[Section], context: Context, out: Path, limit: float) -> dict[str, Any]:
    """Run them while there is time, writing the JSON after each. limit: seconds for all."""
    ends_at = time.monotonic() + limit
    report: dict[str, Any] = {"machine": _machine(context), "sections": {}}
    path = out / "gpu_check.json"

    def save() -> None:
        report["table"] = [vars(row) for row in context.rows]
        path.write_text(json.dumps(report, indent=1, default=str), encoding="utf-8")

    def give_up() -> None:
        """The device hangs: what is there is kept."""
        report["error"] = f"ended after {limit + 30:.0f} s, in {report.get('running')}"
        save()
        print(report["error"], flush=True)
        os._exit(3)

    watchdog = threading.Timer(limit + 30, give_up)
    watchdog.daemon = True
    watchdog.start()
    for section in sections:
        left = ends_at - time.monotonic()
        if left < 5:
            report["sections"][section.name] = {"error": "no time was left"}
            continue
        report["running"] = section.name
        context.ends_at = time.monotonic() + min(section.budget, left)
        started = time.monotonic()
        print(f"{section.name} ...", flush=True)
        try:
            with _alarm(min(section.budget, left) + 5):
                found = section.run(context)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            found = {"error": repr(error), "traceback": traceback.format_exc()}
            context.add(section.name, f"FAILED: {error!r}"[:110])
            print(found["traceback"], flush=True)
        seconds = time.monotonic() - started
        report["sections"][section.name] = found | {"seconds": round(seconds, 1)}
        print(f"{section.name}: {seconds:.1f} s", flush=True)
        context.clear()
        save()
    watchdog.cancel()
    report.pop("running", None)
    save()
    return report


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in the main thread after so long, at the next bytecode."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> None:
        raise OutOfTime(f"it took more than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _machine(context: Context) -> dict[str, Any]:
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": str(context.device),
        "quick": context.quick,
        "rates": vars(context.rates),
    }
    for name in ("triton", "transformers"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    if context.device.type == "cuda":
        properties = torch.cuda.get_device_properties(context.device)
        found |= {
            "gpu": properties.name,
            "memory": properties.total_memory,
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
        }
    return found


# Of one chip there are cards with less memory and slower memory, so only these very names are known.
_DATA_SHEETS = {
    "NVIDIA A100-SXM4-80GB": "A100 80GB SXM",
    "NVIDIA H100 80GB HBM3": "H100 SXM",
    "NVIDIA H200": "H200 SXM",
    "NVIDIA L4": "L4",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
}


def rates_of(device: torch.device) -> capacity.Device:
    """The data sheet's rates of the device at hand; measured ones of a processor or an unknown GPU."""
    if device.type != "cuda":
        return capacity.measure_cpu(torch.float32, seconds=0.1)
    name = torch.cuda.get_device_name(device)
    if name in _DATA_SHEETS:
        return capacity.DEVICES[_DATA_SHEETS[name]]
    measured = ceilings(device)
    total = torch.cuda.get_device_properties(device).total_memory
    return capacity.Device(name, measured["bandwidth"], measured["bf16"], measured["bf16"], total)


def ceilings(device: torch.device) -> dict[str, float]:
    """What plain torch reaches here: bytes/s of a large copy (read and written), operations/s of a large product."""
    on_gpu = device.type == "cuda"
    size, edge = (1 << 32, 8192) if on_gpu else (1 << 26, 512)
    source = torch.empty(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    dtype = torch.bfloat16 if on_gpu else torch.float32
    a, b = (torch.randn(edge, edge, device=device).to(dtype) for _ in range(2))

    def best(call: Callable[[], object]) -> float:
        times = []
        for _ in range(8 if on_gpu else 3):
            if on_gpu:
                torch.cuda.synchronize(device)
            started = time.perf_counter()
            call()
            if on_gpu:
                torch.cuda.synchronize(device)
            times.append(time.perf_counter() - started)
        return min(times)

    return {
        "bandwidth": 2 * size / best(lambda: target.copy_(source)),
        "bf16": 2 * edge**3 / best(lambda: a @ b),
    }


def table(rows: list[Row], verdicts: bool = True) -> str:
    """The rows below each other, in columns. verdicts: whether a goal says if it was reached."""
    width = max((len(row.name) for row in rows), default=0)
    middle = max((len(row.value) for row in rows if len(row.value) < 60), default=0)
    lines = []
    for row in rows:
        judged = verdicts and row.reached is not None
        mark = (" reached" if row.reached else " MISSED") if judged else ""
        lines.append(f"{row.name:<{width}}  {row.value:<{middle}}  {row.goal}{mark}".rstrip())
    return "\n".join(lines)
