"""Build hook of Hatchling: compiles the kernels for a wheel, or into the tree for an editable installation.

Where that fails the package is built without them: it works in plain Python then.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelsHook(BuildHookInterface):  # type: ignore[misc,type-arg,unused-ignore]
    """Runs before a wheel is put together."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What the build needs: a C compiler from PyPI where the machine has none."""
        return [] if self._compiler().own_compiler() else ["ziglang"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile."""
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
        """The module, from the tree that is built: it needs nothing that is not in Python."""
        if self.root not in sys.path:
            sys.path.insert(0, self.root)
        from rmqtool.kernels.build import compiler

        return compiler
