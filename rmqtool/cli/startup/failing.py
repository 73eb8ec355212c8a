"""Error messages: one line for people, or one JSON object for programs."""

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
    """Whether a command line asks for JSON; it need not be valid."""
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
    """An error as machine output; ``file``, ``offset`` and ``reason`` are those of a damaged file."""
    row: dict[str, Any] = {"error": str(error), "kind": error.kind, "exitCode": error.exit_code}
    if isinstance(error, CorruptFile):
        row |= {"file": error.path, "offset": error.at, "reason": error.reason}
    return row


def line(error: RmqError, argv: list[str]) -> str:
    """An error as one line, in the form that the command line asks for."""
    return dump_json(error_row(error)) if for_programs(argv) else plain(f"error: {error}")


def say(error: RmqError, argv: list[str]) -> int:
    """Write an error to stderr, after flushing stdout; returns the exit code."""
    try:
        sys.stdout.flush()
    except OSError:
        stop_writing()
    message = line(error, argv)
    with suppress(OSError):  # stderr is gone too
        to_stderr((message if message.startswith("{") else fold(message, sys.stderr)) + "\n")
    return error.exit_code


def tell_stopped(argv: list[str]) -> None:
    """Write to stderr which stage was interrupted, and its progress."""
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
        left = "the same command continues with it"
    with suppress(OSError):
        note(f"stopped while {stage.name}{far}: {left}")


def stop_writing() -> None:
    """Discard buffered output, so that it neither fails nor appears at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
