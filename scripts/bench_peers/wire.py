"""The conversation between the benchmark driver and a Python peer: one JSON object a line, over
stdin and stdout.

The driver sends a list of requests, one round: moves `{"game", "prompt", "choices"}` or texts
`{"game", "prompt", "max_tokens"}`; the peer answers them all and sends `{"seconds", "latencies",
"texts", "tokens", ...}`. A peer says `{"ready": {...}}` first,
when its model is loaded.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Request = dict[str, Any]
Reply = dict[str, Any]


def serve(load: Callable[[], tuple[Callable[[list[Request]], Reply], dict[str, Any]]]) -> None:
    """Load the peer, then answer rounds until the driver closes the pipe.

    `load` returns the function that answers a round, and facts about the peer for the report.
    """
    # Libraries print: give them stderr, and keep the pipe to the driver for the conversation alone.
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        pipe.write(json.dumps(message) + "\n")
        pipe.flush()

    answer, facts = load()
    say({"ready": facts})
    for line in sys.stdin:
        cpu, start = time.process_time(), time.perf_counter()
        reply = answer(json.loads(line))
        seconds = time.perf_counter() - start
        say({"seconds": seconds, "cpu_seconds": time.process_time() - cpu, **reply})
