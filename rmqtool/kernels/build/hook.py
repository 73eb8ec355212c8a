"""Hatchling build hook: compiles the kernels into the wheel, or in place for an editable installation.

If compilation fails, the package is built without the kernels and runs in plain Python.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelsHook(BuildHookInterface):  # type: ignore[misc,type-arg,unused-ignore]
    """Runs before a wheel is assembled."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return build requirements: a C compiler from PyPI if the machine has none."""
        return [] if self._compiler().own_compiler() else ["ziglang"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernels."""
        compiler = self._compiler()
        sources = Path(self.root, "rmqtool", "kernels", "c")
        try:
            if version == "editable":
                compiler.build(sources)
                return
            self._folder = tempfile.TemporaryDirectory()
            libraries = compiler.build(Path(self._folder.name))
            build_data["tag"] = f"py3-none-{compiler.compiler().platform_tag}"
        except compiler.NotCompiled as err:
            self.app.display_warning(f"the kernels are not compiled, rmqtool will work in plain Python: {err}")
            sys.stderr.write(f"warning: the kernels are not compiled: {err}\n")
            return
        build_data["pure_python"] = False
        for path in libraries:
            build_data["force_include"][str(path)] = f"rmqtool/kernels/c/{path.name}"

    def _compiler(self) -> Any:
        """Import the compiler module from the source tree being built; it only needs the standard library."""
        if self.root not in sys.path:
            sys.path.insert(0, self.root)
        from rmqtool.kernels.build import compiler

        return compiler
