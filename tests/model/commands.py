"""Run the command line in processes that can be killed at any step of writing.

A process is forked, so it has its own descriptors and locks, and can be killed like any other, but has all modules
loaded already.
"""

import fcntl
import importlib
import io
import logging
import os
import pkgutil
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import typer

import formats
import rmqtool
from rmqtool.cli.commands import COMMANDS as TABLE
from rmqtool.cli.framework.options import Output
from tests.store.crashes import STEPS

STEPPED: list[tuple[Any, str]] = [(os, name) for name in STEPS]
"""Functions whose calls are the steps of a process, by what has them; what is added in a process counts there."""

_LONGEST = 120.0  # seconds
_NOT_LOADED = ("rmqtool.analytics", "rmqtool.testing", "rmqtool.kernels.build", "rmqtool.cli.tables")
_TO_IT = (0, 4)  # pipes that the process reads
_TOLD, _GO = 3, 4  # descriptors in the process


class Kill(NamedTuple):
    """How to end a process: with this signal, before this step of writing.

    Attributes:
        after: send it after this many seconds instead, wherever the process is; for writes without system calls, such
            as through mappings.
    """

    signal: int
    step: int
    after: float | None = None


class Pause(NamedTuple):
    """Something that happens while the process is paused before a step of writing."""

    step: int
    do: Callable[[], object]


class Done(NamedTuple):
    """The result of a process."""

    words: tuple[str, ...]
    code: int  # of the command, or the negative number of the signal that ended it
    out: str
    err: str
    killed: bool  # the signal was sent

    def __str__(self) -> str:
        text = " | ".join(self.err.splitlines()[-4:])
        return f"rmqtool {' '.join(self.words)} -> {self.code}{' (signal sent)' if self.killed else ''}: {text}"


def run(
    *args: object,
    stdin: bytes = b"",
    kill: Kill | None = None,
    pause: Pause | None = None,
    limits: dict[int, int] | None = None,
    before: Callable[[], object] | None = None,
    instead: Callable[[], int] | None = None,
) -> Done:
    """Run a command in a separate process.

    Args:
        kill, pause: applied at a step, if the command gets that far.
        limits: limits of :mod:`resource`, soft and hard.
        before: called first in that process.
        instead: called instead of the command; returns the exit code.

    Raises:
        TimeoutError: it hangs.
    """
    told = tuple(map(str, args))
    # in, out, err, a byte when the signal is sent or the pause begins, and one when that is over
    pipes = [os.pipe() for _ in range(5)]
    child = os.fork()
    if not child:
        _become(told, pipes, kill, pause, limits or {}, before, instead)
    for number, (read, write) in enumerate(pipes):
        os.close(read if number in _TO_IT else write)
    out, err, sent = _talk(child, pipes, stdin, kill, pause)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return Done(told, code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"), b"x" in sent)


def _become(
    args: tuple[str, ...],
    pipes: list[tuple[int, int]],
    kill: Kill | None,
    pause: Pause | None,
    limits: dict[int, int],
    before: Callable[[], object] | None,
    instead: Callable[[], int] | None,
) -> None:
    """Run the command in the child process, and exit."""
    code = 70
    try:
        import resource

        ends = [fcntl.fcntl(pipe[number not in _TO_IT], fcntl.F_DUPFD, 64) for number, pipe in enumerate(pipes)]
        for number, end in enumerate(ends):
            os.dup2(end, number)
        logging.getLogger().handlers.clear()  # pytest's would go on writing to a descriptor that a store has by then
        os.closerange(_GO + 1, 1 << 16)  # all else that the process of the tests has open
        os.chdir("/")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        for name, value in limits.items():
            resource.setrlimit(name, (value, value))
        if before is not None:
            before()
        sys.stdin, sys.stdout, sys.stderr = (
            io.TextIOWrapper(io.FileIO(fd, mode, closefd=False), encoding="utf-8", errors="backslashreplace")
            if mode == "r"
            else io.TextIOWrapper(
                io.BufferedWriter(io.FileIO(fd, mode, closefd=False)), encoding="utf-8", errors="backslashreplace"
            )
            for fd, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        _count(kill, pause)
        code = _main(args) if instead is None else instead()
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                code = code or 3
        os._exit(code)


def _main(args: tuple[str, ...]) -> int:
    """Run like the entry point, which itself exits the interpreter."""
    from rmqtool import main

    sys.argv = ["rmqtool", *args]
    try:
        main.main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    return 0


def _count(kill: Kill | None, pause: Pause | None) -> None:
    """Count steps; send the signal, or pause, at the given one."""
    steps = 0

    def wrap(real: Any) -> Any:
        def step(*args: Any, **kwargs: Any) -> Any:
            nonlocal steps
            steps += 1
            if kill is not None and steps == kill.step and kill.after is None:
                os.write(_TOLD, b"x")
                os.kill(os.getpid(), kill.signal)
            if pause is not None and steps == pause.step:
                os.write(_TOLD, b"m")
                os.read(_GO, 1)
            return real(*args, **kwargs)

        return step

    for owner, name in STEPPED:
        setattr(owner, name, wrap(getattr(owner, name)))


def _talk(
    child: int, pipes: list[tuple[int, int]], stdin: bytes, kill: Kill | None, pause: Pause | None
) -> list[bytes]:
    """Write its input and read its output until it has closed everything."""
    left, begun = memoryview(stdin), time.monotonic()
    deadline = begun + _LONGEST
    texts = {pipes[n][0]: bytearray() for n in (1, 2, 3)}
    told, go = pipes[_TOLD][0], pipes[_GO][1]
    due = begun + kill.after if kill is not None and kill.after is not None else None
    to: int | None = pipes[0][1]
    os.set_blocking(pipes[0][1], False)
    reading = set(texts)
    while reading:
        if to is not None and not left:
            os.close(to)
            to = None
        now = time.monotonic()
        wait = 1.0 if due is None else max(min(due - now, 1.0), 0.0)
        readable, writable, _ = select.select(reading, [to] if to is not None else [], [], wait)
        if due is not None and kill is not None and time.monotonic() >= due:
            due = None
            texts[told] += b"x"
            os.kill(child, kill.signal)  # it is a zombie at worst: nobody has waited for it yet
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            raise TimeoutError(f"{_LONGEST} s")
        for fd in readable:
            if data := os.read(fd, 1 << 16):
                texts[fd] += data
            else:
                reading.discard(fd)
            if fd == told and b"m" in data and pause is not None:
                pause.do()
                deadline = time.monotonic() + _LONGEST
                with suppress(BrokenPipeError):
                    os.write(go, b"g")
        if writable and to is not None:
            try:
                left = left[os.write(to, left[: 1 << 16]) :]
            except BrokenPipeError:
                left = memoryview(b"")
    if to is not None:
        os.close(to)
    for number, (read, write) in enumerate(pipes[1:], 1):
        os.close(write if number in _TO_IT else read)
    return [bytes(texts[pipes[n][0]]) for n in (1, 2, 3)]


def _preload() -> None:
    """Import everything that commands need before the first fork, except their registration."""
    registering = {f"rmqtool.cli.{command.module}" for command in TABLE.values()}
    for package in (formats, rmqtool):
        for module_info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module_info.name.startswith(_NOT_LOADED) and module_info.name not in registering:
                importlib.import_module(module_info.name)
    typer_app = typer.Typer()

    @typer_app.command()
    def command(store: Path, number: int = 1, form: Output = Output.table) -> None:
        """Make Typer load what it needs for a command."""

    typer_app(["x"], standalone_mode=False)


_preload()
