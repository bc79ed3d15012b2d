"""The engines of the running tournaments, as Prometheus reads them.

Made of the newest samples in the match database, so that whoever reads that can serve it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from arena.store import Store, queries
from engine.metrics import families

_RECENT_S = 15.0  # a sample older than this says nothing of now


class _Samples(Collector):
    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        after = time.time() - _RECENT_S
        newest = []
        for run in queries.runs(self._store):
            if run["status"] != "running":
                continue
            for sample in queries.engine_samples(self._store, run["id"], after)[-1:]:
                model = str(sample["stats"].get("model", ""))
                newest.append(({"model_name": model, "run": str(run["id"])}, sample["stats"]))
        return families(newest)

    def describe(self) -> list[Metric]:
        return []  # so that registering does not ask for figures


def exposition(store: Store) -> str:
    """Prometheus text: the figures of each running tournament's engine, labelled by `run`. Runs that share an engine
    show the same figures."""
    registry = CollectorRegistry()
    registry.register(_Samples(store))
    return generate_latest(registry).decode()
