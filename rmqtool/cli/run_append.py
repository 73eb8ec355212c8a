"""append: lines in, acknowledgements out."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rmqtool.cli.output import Column, note, writer
from rmqtool.contract import PUT_FIELDS, message_fields
from rmqtool.errors import BadValue, UnreadableStore
from rmqtool.services.engine import Store
from rmqtool.store.outgoing import Message, PutResult

_READ = 1 << 20  # bytes taken at once, and so many messages in one go as they hold
_LONGEST = 64 << 20  # of a line; no message of a broker's is so long


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


def _message(line: bytes, *, keep_times: bool) -> Message:
    try:
        row = json.loads(line)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    return Message(**message_fields(row, keep_times=keep_times))


def _row(number: int, result: PutResult) -> dict[str, Any]:
    if not result.ok:
        values: tuple[Any, ...] = (number, result.status, result.topic, result.queue_id, *[None] * 5, result.reason)
    else:
        places = (result.queue_offset, result.physical_offset, result.size, result.store_timestamp, result.message_id)
        values = (number, result.status, result.topic, result.queue_id, *places, None)
    return dict(zip(PUT_FIELDS, values, strict=True))


class _Tally:
    """What became of the lines."""

    def __init__(self, output: str) -> None:
        self.counts: Counter[tuple[str, int]] = Counter()
        self.refused = 0
        self._writer = None if output == "table" else writer(output, PUT_FIELDS, [])

    def take(self, number: int, result: PutResult) -> None:
        """The answer for a line."""
        if result.ok:
            self.counts[result.topic, result.queue_id] += 1
            if self._writer is not None:
                self._writer.row(_row(number, result))
        else:
            self.refuse(number, result.reason, result)

    def refuse(self, number: int, reason: str, result: PutResult | None = None) -> None:
        """A line that is no message, or none that is taken."""
        self.refused += 1
        note(f"line {number}: {reason}")
        if self._writer is not None:
            row = _row(number, result) if result is not None else {"line": number, "status": "NOT_A_MESSAGE"}
            self._writer.row({**dict.fromkeys(PUT_FIELDS), **row, "reason": reason})

    def close(self) -> None:
        """The end of the table or of the list."""
        if self._writer is not None:
            self._writer.close()
            return
        table = writer("table", (), [Column("topic"), Column("queueId", right=True), Column("messages", right=True)])
        for (topic, queue_id), messages in sorted(self.counts.items()):
            table.row({"topic": topic, "queueId": queue_id, "messages": messages})
        table.close()


def _input(file: str) -> int:
    try:
        return sys.stdin.fileno() if file == "-" else os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as err:
        raise UnreadableStore(f"{file}: {os.strerror(err.errno or 0)}") from err


def run(
    path: str, file: str, broker_conf: str | None, *, engine: str | None, keep_times: bool, sync: bool, output: str
) -> int:
    """Append all lines of a file or of stdin; 1 when one was not taken."""
    if engine not in (None, "4.9", "5.3"):
        raise BadValue(f"--engine {engine}: give 4.9 or 5.3")
    tally = _Tally(output)
    with Store(path, write=True, broker_conf=broker_conf, engine=engine, sync_flush=sync or None, mend=True) as store:
        if store.live.mended is not None and store.live.mended.actions:
            note(f"{store.layout.root}: was not closed; put in order first, nothing is lost")
        number, fd = 0, _input(file)
        for lines in _chunks(fd):
            number = _append(store, lines, number, tally, keep_times=keep_times)
            sys.stdout.flush()
        tally.close()
    note(f"{sum(tally.counts.values())} messages appended" + (f", {tally.refused} refused" * bool(tally.refused)))
    return 1 if tally.refused else 0


def _append(store: Store, lines: list[bytes], number: int, tally: _Tally, *, keep_times: bool) -> int:
    """Lines up to ``number`` were before these; returns the number of the last one."""
    answers: dict[int, str | None] = {}  # why a line is no message
    messages: list[Message] = []
    for line in lines:
        number += 1
        if line.strip():
            try:
                messages.append(_message(line, keep_times=keep_times))
                answers[number] = None
            except ValueError as err:
                answers[number] = str(err)
    results = iter(store.append_many(messages))
    for at, reason in answers.items():
        if reason is None:
            tally.take(at, next(results))
        else:
            tally.refuse(at, reason)
    return number
