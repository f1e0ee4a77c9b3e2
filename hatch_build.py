"""Put the version that hatch found into the wheel, as maar/_version.py."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class VersionHook(BuildHookInterface):
    """A checkout has no such file: there `__version__` of maar/__init__.py is what counts."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file, unless the install is an editable one."""
        if self.target_name != "wheel" or version == "editable":
            return
        folder = tempfile.mkdtemp()
        path = Path(folder) / "_version.py"
        path.write_text(f'"""Written by the build."""\n\nVERSION = "{self.metadata.version}"\n')
        build_data["force_include"][str(path)] = "maar/_version.py"
