"""append and import: rows in, acknowledgements out."""

import json
import os
import stat
import sys
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from rmqtool.cli.framework.ending import StopSignal
from rmqtool.cli.framework.opening import chosen_release
from rmqtool.cli.render.output import PEOPLE, Column, writer
from rmqtool.cli.render.text import note
from rmqtool.contract import PUT_FIELDS
from rmqtool.errors import BadValue, OutputLost, UnreadableStore
from rmqtool.progress import stage
from rmqtool.services.open_store.store import Store
from rmqtool.services.sending.fields import Fields
from rmqtool.services.sending.importer import Answer, Importer, Row
from rmqtool.store.append.answers import PutResult
from rmqtool.words import counted

_READ = 1 << 20  # bytes taken at once, and so many messages in one go as they hold
_LONGEST = 64 << 20  # of a line; no message of a broker's is so long
_MOST_NAMED = 100  # lines that are named on stderr
_NO_TEXT = frozenset(range(32)) - frozenset(b"\t\n\r")  # bytes that no JSON has


class Lines:
    """An NDJSON file or stdin. Use as a context manager.

    Attributes:
        ended: whether all of it was read.
        size: bytes that there are to read; None where nobody knows.
        done: bytes that were read.

    Raises:
        UnreadableStore: it cannot be read, or is no text.
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
        """What can be refused before anything is written."""
        kind = os.fstat(self._fd).st_mode
        if stat.S_ISDIR(kind):
            raise UnreadableStore(f"{self._name}: is a directory; give a file with one message on each line")
        if stat.S_ISREG(kind):
            at = os.lseek(self._fd, 0, os.SEEK_CUR)
            self.size = max(os.fstat(self._fd).st_size - at, 0)
            self._check_text(os.pread(self._fd, _READ, at))

    def _check_text(self, data: bytes) -> None:
        """The first line tells what the file is; whatever else is no message is answered by line."""
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
        """Whole lines, as many as are there; of a slow writer each is passed on when it comes."""
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
        """(line numbers, rows), some at a time; empty lines are passed over. A signal ends it.

        Args:
            read: makes a row of a line; or the fields that rows, which are JSON objects, have.

        Raises:
            UnreadableStore: it cannot be read any more.
            BadValue: a line has no end.
        """
        if not callable(read):
            read = partial(_parse_row, read or Fields(tell=note), self._name)
        number = 0
        for lines in self._chunks(ending):
            kept = [(at, line) for at, line in enumerate(lines, number + 1) if line.strip()]
            number += len(lines)
            yield [at for at, _line in kept], [read(line) for _at, line in kept]


def _parse_row(fields: Fields, name: str, line: bytes) -> Row | ValueError:
    """The row of a line of NDJSON, or why it is none."""
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


class AppendTally:
    """What became of the rows: acknowledged one by one, or counted.

    Args:
        output: form of the result; a table has the counts.
        unit: what a row is called on stderr.
    """

    def __init__(self, output: str, unit: str = "line") -> None:
        self.counts: Counter[tuple[str, int]] = Counter()
        self.refused = 0
        self.last = 0  # number of the last row that was answered
        self._unit, self._form = unit, output
        try:
            self._writer = None if output in PEOPLE else writer(output, PUT_FIELDS, [])
        except OSError as err:
            raise OutputLost(f"stdout: {os.strerror(err.errno or 0)}: nothing was read") from err

    def take(self, numbers: Sequence[int], answers: Sequence[Answer]) -> None:
        """The answers for some rows.

        Raises:
            OutputLost: they cannot be written any more.
        """
        pairs = iter(zip(numbers, answers, strict=True))
        try:
            for number, answer in pairs:
                self.last = number
                row = self._count(number, answer)
                if self._writer is not None:
                    self._writer.row({**dict.fromkeys(PUT_FIELDS), **row})
            sys.stdout.flush()
        except OSError as err:
            for number, answer in pairs:
                self.last = number
                self._count(number, answer, silently=True)
            raise self._output_lost(err, "what follows was not read") from err

    def _count(self, number: int, answer: Answer, *, silently: bool = False) -> dict[str, Any]:
        """The answer as a row."""
        if not isinstance(answer, str) and answer.ok:
            self.counts[answer.topic, answer.queue_id] += 1
            return _place_of(number, answer)
        self.refused += 1
        if isinstance(answer, str):
            row, reason = {"line": number, "status": "NOT_A_MESSAGE"}, answer
        else:
            row, reason = {"line": number, "status": answer.status}, answer.reason
            row |= {"topic": answer.topic, "queueId": answer.queue_id}
        if not silently:
            self._name(number, reason)
        return row | {"reason": reason}

    def _name(self, number: int, reason: str) -> None:
        if self.refused <= _MOST_NAMED:
            note(f"{self._unit} {number}: {reason}")
        elif self.refused == _MOST_NAMED + 1:
            note("more are not named here (see --output ndjson)")

    @property
    def words(self) -> str:
        """How many messages there were."""
        more = f", {self.refused} refused" if self.refused else ""
        return f"{counted(sum(self.counts.values()), 'message')} appended{more}"

    def _output_lost(self, err: OSError, rest: str) -> OutputLost:
        upto = f", up to {self._unit} {self.last}" if self.last else ""
        return OutputLost(f"stdout: {os.strerror(err.errno or 0)}: {self.words}{upto}; {rest}")

    def close(self, ending: StopSignal | None = None) -> int:
        """The end of the table or of the list; the exit code.

        Args:
            ending: where a signal has ended it before all was read.

        Raises:
            OutputLost: it cannot be written.
        """
        try:
            if self._writer is not None:
                self._writer.close()
            else:
                columns = [Column("topic"), Column("queueId", right=True), Column("messages", right=True)]
                table = writer(self._form, (), columns)
                for (topic, queue_id), messages in sorted(self.counts.items()):
                    table.row({"topic": topic, "queueId": queue_id, "messages": messages})
                table.close()
        except OSError as err:
            raise self._output_lost(err, "all was read" if ending is None else "what follows was not read") from err
        if ending is not None and ending.signal is not None:
            upto = f" up to {self._unit} {self.last}" if self.last else ""
            goes_on = f"; to go on, begin with {self._unit} {self.last + 1}" if self.last else ""
            note(f"{ending.signal.name}: {self.words}{upto}; what follows was not read{goes_on}")
            return ending.exit_code
        note(self.words)
        return 1 if self.refused else 0


def _place_of(number: int, result: PutResult) -> dict[str, Any]:
    places = (result.queue_offset, result.physical_offset, result.size, result.store_timestamp, result.message_id)
    return dict(zip(PUT_FIELDS, (number, result.status, result.topic, result.queue_id, *places, None), strict=True))


def run(
    path: str, file: str, broker_conf: str | None, *, engine: str, keep_times: bool, sync: bool, output: str
) -> int:
    """Append all lines of a file or of stdin; 1 when one was not taken."""
    release = chosen_release(engine)
    ending = StopSignal()
    with Lines(file) as lines, ending.watch():
        tally = AppendTally(output)
        with Store(
            path, write=True, broker_conf=broker_conf, release=release, sync_flush=sync or None, mend=True
        ) as store:
            if store.live.mended is not None and store.live.mended.actions:
                note(f"{store.layout.root}: was not stopped cleanly; recovered first, nothing was lost")
            for text in store.warnings:
                note(f"warning: {text}")
            importer = Importer(store, keep_times=keep_times)
            with stage("appending", lines.size, "messages" if lines.size is None else "bytes") as appending:
                for numbers, rows in lines.rows(ending):
                    tally.take(numbers, importer.take(rows))
                    appending.done = appending.done + len(rows) if lines.size is None else min(lines.done, lines.size)
        return tally.close(None if lines.ended else ending)
