"""How a command that cannot do what it was asked for says so: one line for people, one JSON object for programs."""

import os
import sys
from contextlib import suppress
from typing import Any

from rmqtool.cli.commands import find_command
from rmqtool.cli.defaults import read
from rmqtool.cli.render.text import dump_json, fold, note, plain, to_stderr
from rmqtool.errors import CorruptFile, RmqError

_MACHINE = ("json", "ndjson")


def for_programs(argv: list[str]) -> bool:
    """Whether a command line, which may be no good, asks for JSON."""
    words = iter(argv)
    try:
        form = read().get("output", "")
    except RmqError:
        form = ""
    for word in words:
        if word == "--":
            break
        if word in ("-o", "--output"):
            form = next(words, "")
        elif word.startswith("--output="):
            form = word.partition("=")[2]
        elif word.startswith("-o"):
            form = word.removeprefix("-o")
    return form in _MACHINE


def error_row(error: RmqError) -> dict[str, Any]:
    """An error as machine output has it: ``file``, ``offset`` and ``reason`` are those of a damaged file."""
    row: dict[str, Any] = {"error": str(error), "kind": error.kind, "exitCode": error.exit_code}
    if isinstance(error, CorruptFile):
        row |= {"file": error.path, "offset": error.at, "reason": error.reason}
    return row


def line(error: RmqError, argv: list[str]) -> str:
    """An error in one line, in the form that a command line asks for."""
    return dump_json(error_row(error)) if for_programs(argv) else plain(f"error: {error}")


def say(error: RmqError, argv: list[str]) -> int:
    """Tell an error on stderr, behind everything that stdout has; the exit code."""
    try:
        sys.stdout.flush()
    except OSError:
        stop_writing()
    words = line(error, argv)
    with suppress(OSError):  # stderr is gone too
        to_stderr((words if words.startswith("{") else fold(words, sys.stderr)) + "\n")
    return error.exit_code


def tell_stopped(argv: list[str]) -> None:
    """Tell on stderr what was going on when the user or SIGTERM ended a command, and how far it was."""
    from rmqtool.progress import broken_off

    stage = broken_off()
    if stage is None:
        return
    far = f" ({min(stage.done / stage.total, 1):.0%})" if stage.total else ""
    command = find_command(argv)
    left = "nothing was changed, and the same command begins again"
    if command is not None and command.discards:
        left = "no store was made"
    elif command is not None and command.resumes:
        left = "the same command goes on with it"
    with suppress(OSError):
        note(f"stopped while {stage.name}{far}: {left}")


def stop_writing() -> None:
    """What is still buffered for stdout must not fail, or appear, at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
