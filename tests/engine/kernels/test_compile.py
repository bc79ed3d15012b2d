"""Every kernel compiled for sm_80 and sm_90, where no GPU is: no register is spilled, and a block's memory suffices."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.kernels.aot import KERNEL_MODULES

SCRIPT = Path(__file__).parents[3] / "scripts" / "compile_kernels.py"


@pytest.mark.slow
@pytest.mark.parametrize("module", KERNEL_MODULES)
def test_no_kernel_spills_or_wants_more_shared_memory_than_there_is(module: str) -> None:
    # In a process of its own, whose kernels are not interpreted.
    command = [sys.executable, str(SCRIPT), "--json", "--only", f"{module} "]
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert {row["capability"] for row in rows} == {80, 90}
    assert all(row["fits"] and row["local"] == 0 and row["registers"] <= 255 for row in rows)
