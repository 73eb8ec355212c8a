"""Long output on a terminal goes through a pager, as git's does; notes and errors come below it."""

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from rmqtool.cli.commands import find_command, writes
from rmqtool.cli.render.text import holding

if TYPE_CHECKING:
    import subprocess

_NO_PAGER = "--no-pager"
_MOST_TEXT = 1 << 20  # characters that are held in memory; a damaged log may have a note for every record


class _Terminal(io.TextIOWrapper):
    """A pipe to the pager; it counts as a terminal, as the pager writes to one."""

    def isatty(self) -> bool:
        return True


@contextmanager
def through_pager(argv: list[str]) -> Iterator[list[str]]:
    """Send stdout to ``PAGER`` or ``less``, if it is a terminal and the command only shows something.

    ``--no-pager``, and ``PAGER`` empty or ``cat``, turn it off, and it is optional. The context value is the command
    line without ``--no-pager``.
    """
    own, dashes, rest = argv, [], []
    if "--" in argv:
        at = argv.index("--")
        own, dashes, rest = argv[:at], ["--"], argv[at + 1 :]
    words = [word for word in own if word != _NO_PAGER]
    left = [*words, *dashes, *rest]
    pager = _start() if len(words) == len(own) and _shows(words) else None
    if pager is None:
        yield left
        return
    assert pager.stdin is not None
    terminal, sys.stdout = sys.stdout, _Terminal(pager.stdin, encoding="utf-8", errors="backslashreplace")
    try:
        yield left
        sys.stdout.flush()
    finally:
        stream, sys.stdout = sys.stdout, terminal
        with suppress(OSError):  # the user has quit the pager
            stream.close()
        with suppress(ValueError):  # not in a thread: tests
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C belongs to the pager from now on
        pager.wait()


def _pages(argv: list[str]) -> bool:
    command = find_command(argv)
    endless = any(word.partition("=")[0] in ("-f", "--follow", "--watch") for word in argv)  # until a signal
    return command is not None and (command.pages or (command.writes and not writes(argv))) and not endless


def _shows(words: list[str]) -> bool:
    return _pages(words) and not {"-h", "--help"} & set(words) and sys.stdout.isatty() and sys.stdin.isatty()


def _start() -> "subprocess.Popen[bytes] | None":
    """Start the pager; None if it is turned off or missing."""
    import subprocess
    from shutil import which

    command = os.environ.get("PAGER", "less")
    if not command.strip() or command.strip() == "cat" or os.environ.get("TERM", "dumb") == "dumb":
        return None
    if which(command.split()[0]) is None:
        return None
    # git's options: quit if one screen, raw colours, keep the screen
    return subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env={"LESS": "FRX", **os.environ})


@contextmanager
def notes_below(argv: list[str]) -> Iterator[None]:
    """Hold back notes and errors of a paged command until its output has been read."""
    if not _pages(argv):
        yield
        return
    held = _Held()
    holding.append(held.take)
    try:
        yield
    finally:
        holding.remove(held.take)
        with suppress(OSError, ValueError):  # the reader has quit
            sys.stdout.flush()
        with suppress(OSError):
            held.tell()


class _Held:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._text = 0
        self._file: TextIO | None = None

    def take(self, line: str) -> None:
        self._lines.append(line)
        self._text += len(line)
        if self._text > _MOST_TEXT:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            from tempfile import TemporaryFile

            self._file = TemporaryFile("w+", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115 - until it is closed
        self._file.writelines(self._lines)
        self._lines, self._text = [], 0

    def tell(self) -> None:
        if self._file is not None:
            self._file.seek(0)
            sys.stderr.writelines(self._file)
            self._file.close()
        sys.stderr.writelines(self._lines)
        sys.stderr.flush()
