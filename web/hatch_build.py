"""The package build's hook: the wheel contains the built front end, so the build makes it first."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class FrontEndHook(BuildHookInterface[Any]):
    """Builds `web/static` before a wheel or an editable installation is made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        # Loaded by its path: the project is not importable while it is being built.
        path = Path(self.root) / "web" / "build.py"
        spec = importlib.util.spec_from_file_location("web_build", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.build()
