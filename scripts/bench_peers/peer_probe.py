"""Our engine alone, looked at from inside: what a rate does not show.

`peer_probe.py DTYPE MODEL THREADS`: each request names a probe of probe_memory.py or probe_time.py;
the reply is the probe's figures.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a checkout that is not installed
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the workload

import probe_memory
import probe_time
from probe_tools import Engines
from wire import Reply, Request, serve

PROBES = {
    "prefix": probe_memory.prefix,
    "stampede": probe_memory.stampede,
    "memory": probe_memory.memory,
    "pressure": probe_memory.pressure,
    "accuracy": probe_memory.accuracy,
    "first_move": probe_time.first_move,
    "caching": probe_time.caching,
    "long_prompt": probe_time.long_prompt,
    "queue_full": probe_time.queue_full,
    "abort": probe_time.abort,
    "choices": probe_time.choices,
    "lengths": probe_time.lengths,
}


def load() -> tuple[Any, dict[str, Any]]:
    dtype, model, threads = sys.argv[1:4]
    engines = Engines(model, dtype, int(threads))

    def answer(requests: list[Request]) -> Reply:
        [request] = requests
        result: Reply = PROBES[request["probe"]](engines, request["quick"])
        gc.collect()  # a probe's engines are gone before the next builds its own
        return result

    return answer, {"version": dtype}


if __name__ == "__main__":
    serve(load)
