"""The sources of the package, parsed once for all tests of a process."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = sorted(path for package in ("formats", "rmqtool") for path in (ROOT / package).rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    """The source of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))
