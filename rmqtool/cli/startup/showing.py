"""Commands that only show something, and end by themselves: what they show comes first, and notes about it below."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from rmqtool.cli.render.text import holding

SHOWING = {
    *("check", "checkpoint", "config", "explain", "info", "manual", "offsets", "trace", "rebalance"),
    *("query-id", "query-key", "query-offset", "query-time", "commitlog", "consumequeue", "index", "topic"),
    *("delay", "retry", "transaction"),
    *("group list", "group lag", "group inflight", "group offsets", "group diff", "dlq list", "dlq export"),
}
_MOST_TEXT = 1 << 20  # characters that are held in memory; a damaged log may have a note for every record


def shows(argv: list[str]) -> bool:
    """Whether a command line is that of one."""
    named = [word for word in argv if not word.startswith("-")]
    return any(" ".join(named[:count]) in SHOWING for count in (1, 2))


@contextmanager
def notes_below(argv: list[str]) -> Iterator[None]:
    """Hold the notes and the error of a command that only shows, until all that it shows is written and read."""
    if not shows(argv):
        yield
        return
    held = _Held()
    holding.append(held.take)
    try:
        yield
    finally:
        holding.remove(held.take)
        with suppress(OSError, ValueError):  # who reads has seen enough
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

            self._file = TemporaryFile("w+", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115 - until told
        self._file.writelines(self._lines)
        self._lines, self._text = [], 0

    def tell(self) -> None:
        if self._file is not None:
            self._file.seek(0)
            sys.stderr.writelines(self._file)
            self._file.close()
        sys.stderr.writelines(self._lines)
        sys.stderr.flush()
