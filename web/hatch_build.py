"""The package build's hook: the wheel contains the built front end, so the build makes it first."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class FrontEndHook(BuildHookInterface[Any]):
    """Builds `web/static` before a wheel or an editable installation is made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "wheel":
            web = Path(self.root) / "web"
            # Run by its path: the project is not importable while it is being built.
            runpy.run_path(str(web / "build.py"))["build"](web)
