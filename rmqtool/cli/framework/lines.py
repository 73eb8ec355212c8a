"""The rows of a file or of stdin, given as NDJSON or line by line."""

import json
import os
import stat
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from functools import partial

from rmqtool.cli.framework.ending import StopSignal
from rmqtool.cli.render.text import note
from rmqtool.errors import BadValue, UnreadableStore
from rmqtool.services.sending.fields import Fields
from rmqtool.services.sending.importer import Row

_READ = 1 << 20  # bytes read at once; their messages are handled together
_LONGEST = 64 << 20  # bytes of a line; longer than any message
_NO_TEXT = frozenset(range(32)) - frozenset(b"\t\n\r")  # control characters, which JSON does not contain


class Lines:
    """An NDJSON file or stdin. Use as a context manager.

    Attributes:
        ended: whether all of it was read.
        size: bytes to read; None if unknown.
        done: bytes read.

    Raises:
        UnreadableStore: it cannot be read, or is not text.
    """

    def __init__(self, file: str) -> None:
        self._name = "stdin" if file == "-" else file
        self.ended = False
        self.size: int | None = None
        self.done = 0
        if file == "-" and sys.__stdin__ is None:
            raise UnreadableStore("stdin: is closed: give a file, or - and something to read from it")
        try:
            self._fd = os.dup(sys.stdin.fileno()) if file == "-" else os.open(file, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._check()
            except BaseException:
                os.close(self._fd)
                raise
        except OSError as err:
            raise UnreadableStore(f"{self._name}: {os.strerror(err.errno or 0)}") from err

    def _check(self) -> None:
        """Refuse what can be refused before anything is written."""
        kind = os.fstat(self._fd).st_mode
        if stat.S_ISDIR(kind):
            raise UnreadableStore(f"{self._name}: is a directory; give a file with one message on each line")
        if stat.S_ISREG(kind):
            at = os.lseek(self._fd, 0, os.SEEK_CUR)
            self.size = max(os.fstat(self._fd).st_size - at, 0)
            self._check_text(os.pread(self._fd, _READ, at))

    def _check_text(self, data: bytes) -> None:
        """Refuse a file whose first line is not text; later bad lines are refused one by one."""
        first, end, _rest = data.lstrip().partition(b"\n")
        try:
            getincrementaldecoder("utf-8")().decode(first, final=bool(end) or len(data) < _READ)
            wrong = not _NO_TEXT.isdisjoint(first)
        except UnicodeDecodeError:
            wrong = True
        if wrong:
            raise UnreadableStore(f"{self._name}: is not text: give one message on each line, as JSON")

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_exc: object) -> None:
        os.close(self._fd)

    def _chunks(self, ending: StopSignal) -> Iterator[list[bytes]]:
        """Complete lines, as soon as they arrive."""
        rest, begun = b"", False
        while ending.readable(self._fd):
            try:
                data = os.read(self._fd, _READ)
            except OSError as err:
                raise UnreadableStore(f"{self._name}: {os.strerror(err.errno or 0)}") from err
            if not data:
                self.ended = True
                break
            self.done += len(data)
            *lines, rest = (rest + data).split(b"\n")
            if not begun and (lines or len(rest) > _READ):
                begun = True
                self._check_text(b"\n".join([*lines, rest]))
            if lines:
                yield lines
            if len(rest) > _LONGEST:
                raise BadValue(f"{self._name}: a line of more than {_LONGEST} bytes")
        if rest and self.ended:
            if not begun:
                self._check_text(rest)
            yield [rest]

    def rows(
        self, ending: StopSignal, read: Fields | Callable[[bytes], Row | ValueError] | None = None
    ) -> Iterator[tuple[list[int], list[Row | ValueError]]]:
        """(line numbers, rows), in batches, without empty lines. A signal ends the input.

        Args:
            read: converts a line; or the fields to take from rows, which are then JSON objects.

        Raises:
            UnreadableStore: it cannot be read any more.
            BadValue: a line is too long.
        """
        if not callable(read):
            read = partial(_parse_row, read or Fields(tell=note), self._name)
        number = 0
        for lines in self._chunks(ending):
            kept = [(at, line) for at, line in enumerate(lines, number + 1) if line.strip()]
            number += len(lines)
            yield [at for at, _line in kept], [read(line) for _at, line in kept]


def _parse_row(fields: Fields, name: str, line: bytes) -> Row | ValueError:
    """The row in a line of NDJSON, or why there is none."""
    try:
        row = json.loads(line)
    except RecursionError:
        return ValueError("JSON nested too deeply")
    except ValueError as err:
        return ValueError(str(err))
    if not isinstance(row, dict):
        return ValueError("not a JSON object")
    try:
        return fields.row(name, row)
    except ValueError as err:
        return err
