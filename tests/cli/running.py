"""Run the command line inside the test's process, or as a separate process."""

import io
import subprocess
import sys
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import typer.main

from rmqtool.main import _run

RMQTOOL = [sys.executable, "-m", "rmqtool.main"]
ROOT = Path(__file__).parents[2]
_build = typer.main.get_command


@cache
def _built(app: typer.Typer, _commands: int) -> Any:
    return _build(app)


def _get_command(app: typer.Typer) -> Any:
    """The Typer command, cached: building all commands takes longer than running most of them."""
    groups = [group.typer_instance for group in app.registered_groups]
    return _built(app, sum(len(typer_app.registered_commands) for typer_app in (app, *groups) if typer_app is not None))


def build_once() -> AbstractContextManager[Any]:
    """Build the Typer command once for all runs within."""
    return patch.object(typer.main, "get_command", _get_command)


class Result(NamedTuple):
    """The result of a run."""

    code: int
    out: str
    err: str


def rmqtool(*args: object, stdin: str = "") -> Result:
    """Run a command line in this process, with streams set up as by the entry point."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace") for _ in range(2)]
    with (
        patch.object(sys, "stdout", streams[0]),
        patch.object(sys, "stderr", streams[1]),
        patch.object(sys, "stdin", io.StringIO(stdin)),
        build_once(),
    ):
        code = _run([str(word) for word in args])
    texts = []
    for stream in streams:
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return Result(code, *texts)


def process(*args: object, **options: object) -> Result:
    """Run it as a process; bytes that are not UTF-8 appear as ``\\x..``."""
    result = subprocess.run(  # type: ignore[call-overload]
        [*RMQTOOL, *map(str, args)],
        **{"capture_output": True, "stdin": subprocess.DEVNULL, "timeout": 60, "cwd": ROOT, **options},
    )
    return Result(
        result.returncode,
        (result.stdout or b"").decode("utf-8", "backslashreplace"),
        (result.stderr or b"").decode("utf-8", "backslashreplace"),
    )
