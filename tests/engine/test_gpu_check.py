"""The script that checks and measures the engine on a GPU, as far as it can be tried without one."""

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.engine.smollm2 import SCRIPTS

# What a bare machine lacks.
ABSENT = [
    "prometheus_client",
    "gguf",
    "chess",
    "ray",
    "pydantic",
    "fastapi",
    "sqlalchemy",
    "psutil",
]


@pytest.fixture
def harness() -> Any:
    return importlib.import_module("gpu_checks.harness")


def test_a_section_that_fails_or_hangs_leaves_the_others_alone(
    harness: Any, tmp_path: Path
) -> None:
    from engine.capacity import DEVICES

    def works(context: Any) -> dict[str, Any]:
        context.add("speed", "3 x", ">= 2 x", True)
        return {"speed": 3}

    def fails(context: Any) -> dict[str, Any]:
        raise RuntimeError("no such kernel")

    def hangs(context: Any) -> dict[str, Any]:
        time.sleep(60)
        return {}

    context = harness.Context(torch.device("cpu"), True, tmp_path, DEVICES["L4"])
    sections = [
        harness.Section("fails", fails, 5.0),
        harness.Section("hangs", hangs, -4.9),  # 5 seconds of grace are added
        harness.Section("works", works, 5.0),
    ]
    harness.run_all(sections, context, tmp_path, 30.0)
    report = json.loads((tmp_path / "gpu_check.json").read_text())
    found = report["sections"]
    assert "no such kernel" in found["fails"]["traceback"]
    assert "OutOfTime" in found["hangs"]["error"]
    assert found["works"]["speed"] == 3 and "error" not in found["works"]
    text = harness.table(context.rows)
    assert "FAILED" in text and "reached" in text and report["table"][-1]["name"] == "speed"

    late = harness.run_all(sections, context, tmp_path, 1.0)
    assert all("no time" in section["error"] for section in late["sections"].values())


def test_without_a_gpu_it_says_so_and_measures_nothing(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    command = [sys.executable, str(SCRIPTS / "gpu_check.py"), "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no CUDA device" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "cpu"], "--quick"),
        (["--limit", "-5"], "seconds above 0"),
        (["--out", str(SCRIPTS / "gpu_check.py")], "is a file"),
        (["kernel"], "there is no section"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_at_once(arguments: list[str], said: str) -> None:
    command = [sys.executable, str(SCRIPTS / "gpu_check.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA H200", 4800e9),
        ("NVIDIA H100 80GB HBM3", 3350e9),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA A100-SXM4-40GB", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA L40S", None),
    ],
)
def test_a_slower_card_of_the_same_chip_is_measured_instead_of_looked_up(
    harness: Any, monkeypatch: pytest.MonkeyPatch, name: str, known: float | None
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: name)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=1 << 30)
    )
    monkeypatch.setattr(harness, "ceilings", lambda _: {"bandwidth": 1.0, "bf16": 2.0})
    assert harness.rates_of(torch.device("cuda")).bandwidth == (known or 1.0)


@pytest.mark.slow
def test_the_whole_script_runs_on_tiny_shapes_with_nothing_but_torch_and_transformers(
    tmp_path: Path,
) -> None:
    program = (
        f"import runpy, sys; sys.modules.update(dict.fromkeys({ABSENT}));"
        f"sys.argv[1:] = ['--device', 'cpu', '--quick', '--out', {str(tmp_path)!r}];"
        f"sys.path.insert(0, {str(SCRIPTS)!r});"
        f"runpy.run_path({str(SCRIPTS / 'gpu_check.py')!r}, run_name='__main__')"
    )
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    report = json.loads((tmp_path / "gpu_check.json").read_text())
    failed = {name: s.get("error") for name, s in report["sections"].items() if "error" in s}
    assert done.returncode == 0 and not failed, (
        f"{failed}\n{done.stdout[-3000:]}{done.stderr[-1000:]}"
    )
    assert len(report["sections"]) == 11
    assert "all figures" in done.stdout and "FAILED" not in done.stdout
