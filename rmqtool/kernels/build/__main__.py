"""Compile the kernels in place, next to their sources: ``python -m rmqtool.kernels.build``."""

import sys
from pathlib import Path

from rmqtool.kernels.build.compiler import NotCompiled, build
from rmqtool.kernels.load.stamp import SOURCES

try:
    for path in build(Path(SOURCES)):
        sys.stdout.write(f"{path}\n")
except NotCompiled as err:
    sys.exit(f"error: {err}")
