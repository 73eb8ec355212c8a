"""append and import: rows in, acknowledgements out."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rmqtool.cli.output import Column, note, writer
from rmqtool.contract import PUT_FIELDS
from rmqtool.errors import BadValue, UnreadableStore
from rmqtool.services.engine import Store
from rmqtool.services.importer import Answer, Importer, Row
from rmqtool.store.outgoing import PutResult

_READ = 1 << 20  # bytes taken at once, and so many messages in one go as they hold
_LONGEST = 64 << 20  # of a line; no message of a broker's is so long
_MOST_NAMED = 100  # lines that are named on stderr


def _chunks(fd: int) -> Iterator[list[bytes]]:
    """Whole lines, as many as are there; of a slow writer each is passed on when it comes."""
    rest = b""
    while data := os.read(fd, _READ):
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield lines
        if len(rest) > _LONGEST:
            raise BadValue(f"a line of more than {_LONGEST} bytes")
    if rest:
        yield [rest]


def _row(line: bytes) -> Row | ValueError:
    try:
        row = json.loads(line)
    except RecursionError:
        return ValueError("JSON nested too deeply")
    except ValueError as err:
        return ValueError(str(err))
    return row if isinstance(row, dict) else ValueError("not a JSON object")


def _input(file: str) -> int:
    try:
        return sys.stdin.fileno() if file == "-" else os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as err:
        raise UnreadableStore(f"{file}: {os.strerror(err.errno or 0)}") from err


def numbered_lines(file: str) -> Iterator[tuple[list[int], list[Row | ValueError]]]:
    """(line numbers, rows) of an NDJSON file or of stdin, some at a time; empty lines are passed over.

    Raises:
        UnreadableStore: the file cannot be read.
        BadValue: a line has no end.
    """
    number, fd = 0, _input(file)
    try:
        for lines in _chunks(fd):
            kept = [(at, line) for at, line in enumerate(lines, number + 1) if line.strip()]
            number += len(lines)
            yield [at for at, _line in kept], [_row(line) for _at, line in kept]
    finally:
        if file != "-":
            os.close(fd)


class Tally:
    """What became of the rows: acknowledged one by one, or counted.

    Args:
        output: form of the result; a table has the counts.
        unit: what a row is called on stderr.
    """

    def __init__(self, output: str, unit: str = "line") -> None:
        self.counts: Counter[tuple[str, int]] = Counter()
        self.refused = 0
        self._unit = unit
        self._writer = None if output == "table" else writer(output, PUT_FIELDS, [])

    def take(self, numbers: Sequence[int], answers: Sequence[Answer]) -> None:
        """The answers for some rows."""
        for number, answer in zip(numbers, answers, strict=True):
            if isinstance(answer, str):
                self._refuse(number, answer)
                row = {"line": number, "status": "NOT_A_MESSAGE", "reason": answer}
            elif answer.ok:
                self.counts[answer.topic, answer.queue_id] += 1
                row = _placed(number, answer)
            else:
                self._refuse(number, answer.reason)
                row = {"line": number, "status": answer.status, "topic": answer.topic, "queueId": answer.queue_id}
                row["reason"] = answer.reason
            if self._writer is not None:
                self._writer.row({**dict.fromkeys(PUT_FIELDS), **row})
        sys.stdout.flush()

    def _refuse(self, number: int, reason: str) -> None:
        self.refused += 1
        if self.refused <= _MOST_NAMED:
            note(f"{self._unit} {number}: {reason}")
        elif self.refused == _MOST_NAMED + 1:
            note("more are not named here (see --output ndjson)")

    def close(self) -> int:
        """The end of the table or of the list; the exit code."""
        if self._writer is not None:
            self._writer.close()
        else:
            columns = [Column("topic"), Column("queueId", right=True), Column("messages", right=True)]
            table = writer("table", (), columns)
            for (topic, queue_id), messages in sorted(self.counts.items()):
                table.row({"topic": topic, "queueId": queue_id, "messages": messages})
            table.close()
        more = f", {self.refused} refused" if self.refused else ""
        note(f"{sum(self.counts.values())} messages appended{more}")
        return 1 if self.refused else 0


def _placed(number: int, result: PutResult) -> dict[str, Any]:
    places = (result.queue_offset, result.physical_offset, result.size, result.store_timestamp, result.message_id)
    return dict(zip(PUT_FIELDS, (number, result.status, result.topic, result.queue_id, *places, None), strict=True))


def run(
    path: str, file: str, broker_conf: str | None, *, engine: str | None, keep_times: bool, sync: bool, output: str
) -> int:
    """Append all lines of a file or of stdin; 1 when one was not taken."""
    if engine not in (None, "4.9", "5.3"):
        raise BadValue(f"--engine {engine}: give 4.9 or 5.3")
    tally = Tally(output)
    with Store(path, write=True, broker_conf=broker_conf, engine=engine, sync_flush=sync or None, mend=True) as store:
        if store.live.mended is not None and store.live.mended.actions:
            note(f"{store.layout.root}: was not closed; put in order first, nothing is lost")
        importer = Importer(store, keep_times=keep_times)
        for numbers, rows in numbered_lines(file):
            tally.take(numbers, importer.take(rows))
    return tally.close()
