"""The benchmark's workload is reproducible: figures of different machines compare only on the same
bytes.
"""

import hashlib
import json

from tests.engine.smollm2 import script

PUBLISHED_SHA256 = "76d1e8a78227e53fbc6a018382adab502caf1cb0819db53992951672120c6245"


def test_default_workload_is_the_published_file() -> None:
    rows = script("bench_workload").workload()
    text = "".join(json.dumps(row) + "\n" for row in rows)
    assert hashlib.sha256(text.encode()).hexdigest() == PUBLISHED_SHA256


def test_every_move_played_is_among_the_choices_and_extends_the_transcript() -> None:
    last: dict[int, str] = {}
    for row in script("bench_workload").workload(games=3, plies=30, seed=1):
        assert row["played"] in row["choices"]
        assert row["transcript"] in (last.get(row["game"], ""), "")
        last[row["game"]] = row["transcript"] + row["played"]
