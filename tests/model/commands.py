"""The command line in processes that can be ended at any step of what they write.

A process is forked, so it has its own descriptors and locks, and dies like any other; what Python needs to have loaded
is there already.
"""

import io
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from rmqtool.main import _run
from tests.store.crashes import STEPS

_LONGEST = 120.0  # seconds


class Kill(NamedTuple):
    """How a process is to be ended: by this signal, when it is about to take this step of writing."""

    signal: int
    step: int


class Done(NamedTuple):
    """What became of a process."""

    words: tuple[str, ...]
    code: int  # of the command, or the negative number of the signal that ended it
    out: str
    err: str
    killed: bool  # the signal was sent

    def __str__(self) -> str:
        said = " | ".join(self.err.splitlines()[-4:])
        return f"rmqtool {' '.join(self.words)} -> {self.code}{' (signal sent)' if self.killed else ''}: {said}"


def run(
    *words: object,
    stdin: bytes = b"",
    kill: Kill | None = None,
    limits: dict[int, int] | None = None,
    before: Callable[[], object] | None = None,
) -> Done:
    """Run a command in a process of its own.

    Args:
        limits: of :mod:`resource`, soft and hard.
        before: called in that process first.

    Raises:
        TimeoutError: it hangs.
    """
    told = tuple(map(str, words))
    pipes = [os.pipe() for _ in range(4)]  # in, out, err, and a byte when the signal is sent
    child = os.fork()
    if not child:
        _become(told, pipes, kill, limits or {}, before)
    for number, (read, write) in enumerate(pipes):
        os.close(read if number == 0 else write)
    texts = _talk(child, pipes, stdin)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    out, err, sent = texts
    return Done(told, code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"), bool(sent))


def _become(
    words: tuple[str, ...],
    pipes: list[tuple[int, int]],
    kill: Kill | None,
    limits: dict[int, int],
    before: Callable[[], object] | None,
) -> None:
    """In the child: be the command, and end."""
    code = 70
    try:
        import resource

        os.dup2(pipes[0][0], 0)
        os.dup2(pipes[1][1], 1)
        os.dup2(pipes[2][1], 2)
        told = 3
        os.dup2(pipes[3][1], told)
        os.closerange(told + 1, 1 << 16)  # all else that the process of the tests has open
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
        if kill is not None:
            _count(kill, told)
        code = _main(words)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                code = code or 3
        os._exit(code)


def _main(words: tuple[str, ...]) -> int:
    """As the entry point does it, which itself ends the interpreter."""
    from rmqtool import main

    sys.argv = ["rmqtool", *words]
    try:
        main.main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    return 0


def _count(kill: Kill, told: int) -> None:
    """Send the signal when as many steps have been begun."""
    steps = 0

    def wrap(real: Any) -> Any:
        def step(*args: Any, **kwargs: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == kill.step:
                os.write(told, b"x")
                os.kill(os.getpid(), kill.signal)
            return real(*args, **kwargs)

        return step

    for name in STEPS:
        setattr(os, name, wrap(getattr(os, name)))


def _talk(child: int, pipes: list[tuple[int, int]], stdin: bytes) -> list[bytes]:
    """Feed it and take what it says, until it has closed everything."""
    left, texts, deadline = (
        memoryview(stdin),
        {pipes[n][0]: bytearray() for n in (1, 2, 3)},
        time.monotonic() + _LONGEST,
    )
    to: int | None = pipes[0][1]
    os.set_blocking(pipes[0][1], False)
    reading = set(texts)
    while reading:
        if to is not None and not left:
            os.close(to)
            to = None
        readable, writable, _ = select.select(reading, [to] if to is not None else [], [], 1.0)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            raise TimeoutError(f"{_LONGEST} s")
        for fd in readable:
            if data := os.read(fd, 1 << 16):
                texts[fd] += data
            else:
                reading.discard(fd)
        if writable and to is not None:
            try:
                left = left[os.write(to, left[: 1 << 16]) :]
            except BrokenPipeError:
                left = memoryview(b"")
    if to is not None:
        os.close(to)
    for read, _write in pipes[1:]:
        os.close(read)
    return [bytes(texts[pipes[n][0]]) for n in (1, 2, 3)]


_ = _run  # loaded before the first fork
