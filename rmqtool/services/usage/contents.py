"""What a commit log holds, by place, time, topic, queue and size, from one pass over its records.

The log is divided into rows of one or more files, and rows into cells of equal length; a cell has the largest topics of
the records in it. Store times are counted in intervals of equal length. Memory depends on the number of topics and
queues, not on that of messages.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from formats.message.read import Record
from rmqtool.kernels.tables.shapes import Column
from rmqtool.progress import stage
from rmqtool.services.usage.counting import Names, Sums, count_messages
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import CommitLog, Damage
from rmqtool.store.log.records import record_at, record_start
from rmqtool.store.log.scan import FileRows, scan_log

ROWS, CELLS = 40, 64  # at most; and cells of a row
INTERVALS = 72  # of store time, at most
_PER_CELL = 8  # topics of a cell that are listed; the others are added up
_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000
_SPANS = (
    _SECOND, 5 * _SECOND, 15 * _SECOND, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR,
    _DAY, 7 * _DAY, 28 * _DAY, 364 * _DAY,
)  # fmt: skip
_QUEUE_BITS, _ANY_QUEUE = 32, 0xFFFFFFFF
_CELL_BITS, _ANY_CELL = 6, CELLS - 1


@dataclass(slots=True)
class Cell:
    """One part of a row.

    Attributes:
        bytes: how many bytes of the log it stands for.
        topics: number of a topic and bytes of its records, the largest first.
        others: bytes of all other topics.
        damaged: bytes that cannot be read as messages.
        time: store time of its first record, ms; None without one.
    """

    bytes: int = 0
    topics: list[tuple[int, int]] = field(default_factory=list)
    others: int = 0
    damaged: int = 0
    time: int | None = None


@dataclass(slots=True)
class FileRow:
    """Consecutive files of the log.

    Attributes:
        first, last: paths of the first and last file.
        begin, end: physical offsets; files may be missing between them.
        files: number of files.
        messages, bytes: of the records that begin in it.
        damaged: bytes that cannot be read as messages.
        first_time, last_time: store times of the first and last record, ms.
        topics: number of a topic and bytes of its records, the largest first.
    """

    first: str
    last: str
    begin: int
    end: int
    files: int
    messages: int = 0
    bytes: int = 0
    damaged: int = 0
    first_time: int | None = None
    last_time: int | None = None
    topics: list[tuple[int, int]] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)


@dataclass(slots=True)
class Contents:
    """What a log holds.

    Attributes:
        rows: in log order.
        topics: by number: name, messages and bytes.
        queues: messages by number of the topic and queue id.
        begin: of the first interval, ms; None for an empty log.
        span: length of an interval, ms.
        messages_by_time, bytes_by_time: int64, (topics, intervals).
        outside: messages whose store time is in none of the intervals.
        sizes: messages and bytes by size of the record, rounded up to a power of two.
        damaged: number of ranges that cannot be read as messages.
    """

    rows: list[FileRow]
    topics: list[tuple[str, int, int]]
    queues: dict[tuple[int, int], int]
    begin: int | None
    span: int
    messages_by_time: Column
    bytes_by_time: Column
    outside: int
    sizes: dict[int, tuple[int, int]]
    damaged: int = 0


def measure_contents(log: CommitLog) -> Contents:
    """Read a log once."""
    names, grid, times = Names(), _Grid(log), _Times(log)
    queues, sizes, damaged = Sums(), Sums(), 0
    with stage("reading the log", log.segments.bytes) as reading:
        for item in scan_log(log, crc=False):
            if isinstance(item, Damage):
                damaged += 1
                grid.add_damage(item)
                continue
            rows = item.rows
            topics = names.number_at(item.view, rows.topic_at, rows.topic_length)
            messages = count_messages(item)
            grid.add(item, topics, messages)
            times.add(topics, rows.store_timestamp, messages, rows.total_size)
            queues.add(topics << _QUEUE_BITS | rows.queue_id & _ANY_QUEUE, messages, rows.total_size)
            _fraction, bits = np.frexp((rows.total_size - 1).astype(np.float64))
            sizes.add(np.left_shift(np.int64(1), bits.astype(np.int64)), messages, rows.total_size)
            reading.done = item.file.base + int(rows.at[-1]) - max(log.min_offset, 0)
    totals = [(0, 0)] * len(names.numbers)
    for code, (count, size) in queues.by_code.items():
        before = totals[code >> _QUEUE_BITS]
        totals[code >> _QUEUE_BITS] = before[0] + count, before[1] + size
    used = int(np.flatnonzero(times.messages.sum(axis=0)).max(initial=-1)) + 1
    return Contents(
        rows=grid.finish(),
        topics=[(names.text(number), *totals[number]) for number in range(len(names.numbers))],
        queues={
            (code >> _QUEUE_BITS, (code & _ANY_QUEUE) - ((code & _ANY_QUEUE) >> 31 << 32)): count
            for code, (count, _size) in queues.by_code.items()
        },
        begin=times.begin // times.span * times.span if times.begin is not None else None,
        span=times.span,
        messages_by_time=times.messages[: len(names.numbers), :used],
        bytes_by_time=times.bytes[: len(names.numbers), :used],
        outside=times.outside,
        sizes={code: (count, size) for code, (count, size) in sorted(sizes.by_code.items())},
        damaged=damaged,
    )


# -- by place ---------------------------------------------------------------------------------------------------------


class _Grid:
    """Rows and cells of a log."""

    def __init__(self, log: CommitLog) -> None:
        files = log.segments.files
        each = max(-(-len(files) // ROWS), 1)
        self._rows: list[FileRow] = []
        self._by_file: dict[int, FileRow] = {}
        for at in range(0, len(files), each):
            group = files[at : at + each]
            row = FileRow(group[0].path, group[-1].path, group[0].base, group[-1].end, len(group))
            row.cells = [Cell() for _ in range(CELLS)]
            for file in group:
                self._by_file[file.base] = row
                for cell, part in _parts(row, file.base, file.size):
                    row.cells[cell].bytes += part
            self._rows.append(row)
        self._bytes: Counter[int] = Counter()  # of the current row, by topic and cell
        self._current: FileRow | None = None

    def add(self, item: FileRows, topics: Column, messages: Column) -> None:
        """Add records, in log order."""
        row, rows = self._row_of(item.file), item.rows
        position = item.file.base + rows.at - row.begin
        length = _cell_length(row)
        cells = np.minimum(position // length, CELLS - 1)
        ends = np.minimum((position + rows.total_size - 1) // length, CELLS - 1)
        inside = cells == ends
        codes = topics[inside] << _CELL_BITS | cells[inside]
        distinct, which = np.unique(codes, return_inverse=True)
        totals = np.bincount(which, rows.total_size[inside], len(distinct)).astype(np.int64)
        for code, size in zip(distinct.tolist(), totals.tolist(), strict=True):
            self._bytes[code] += size
        for at in np.flatnonzero(~inside).tolist():  # at most one for each end of a cell
            for cell, part in _parts(row, row.begin + int(position[at]), int(rows.total_size[at])):
                self._bytes[int(topics[at]) << _CELL_BITS | cell] += part
        row.messages += int(messages.sum())
        row.bytes += int(rows.total_size.sum())
        row.first_time = int(rows.store_timestamp[0]) if row.first_time is None else row.first_time
        row.last_time = int(rows.store_timestamp[-1])
        first_of, at_first = np.unique(cells, return_index=True)
        for cell, at in zip(first_of.tolist(), at_first.tolist(), strict=True):
            if row.cells[cell].time is None:
                row.cells[cell].time = int(rows.store_timestamp[at])

    def add_damage(self, damage: Damage) -> None:
        """Add a range that cannot be read."""
        row = next((row for row in self._rows if row.begin <= damage.physical_offset < row.end), None)
        if row is None:
            return
        row.damaged += damage.length
        for cell, part in _parts(row, damage.physical_offset, damage.length):
            row.cells[cell].damaged += part

    def finish(self) -> list[FileRow]:
        """The rows, after the last record."""
        self._close()
        return self._rows

    def _row_of(self, file: Segment) -> FileRow:
        row = self._by_file[file.base]
        if row is not self._current:
            self._close()
            self._current = row
        return row

    def _close(self) -> None:
        """Keep the largest topics of the current row and of its cells."""
        if self._current is None:
            return
        totals: Counter[int] = Counter()
        by_cell: list[Counter[int]] = [Counter() for _ in range(CELLS)]
        for code, size in self._bytes.items():
            totals[code >> _CELL_BITS] += size
            by_cell[code & _ANY_CELL][code >> _CELL_BITS] += size
        for cell, topics in zip(self._current.cells, by_cell, strict=True):
            cell.topics = topics.most_common(_PER_CELL)
            cell.others = topics.total() - sum(size for _topic, size in cell.topics)
        self._current.topics = totals.most_common(_PER_CELL)
        self._bytes.clear()


def _cell_length(row: FileRow) -> int:
    return max(-(-(row.end - row.begin) // CELLS), 1)


def _parts(row: FileRow, begin: int, length: int) -> Iterator[tuple[int, int]]:
    """The cells that a range of physical offsets is in, each with its number of bytes there."""
    cell_length, at, end = _cell_length(row), begin - row.begin, begin - row.begin + length
    while at < end:
        cell = min(at // cell_length, CELLS - 1)
        stop = end if cell == CELLS - 1 else min(end, (cell + 1) * cell_length)
        yield cell, stop - at
        at = stop


# -- by time ----------------------------------------------------------------------------------------------------------


class _Times:
    """Messages and bytes by topic and interval of store time. Intervals grow as later messages come.

    Attributes:
        begin: of the first interval, ms; None for an empty log.
        span: of an interval, ms.
        messages, bytes: (topics, intervals), with rows and intervals to spare.
        outside: messages with other times: earlier ones, and those later than any file was written.
    """

    def __init__(self, log: CommitLog) -> None:
        files = log.segments.files
        firsts = [time for file in files if (time := _first_time(file)) is not None]
        self.begin, self.span, self.outside = min(firsts, default=None), _SPANS[0], 0
        self._latest = max([*firsts, _find_newest_time(files)]) + _DAY
        self.messages: Column = np.zeros((64, INTERVALS), np.int64)
        self.bytes: Column = np.zeros((64, INTERVALS), np.int64)

    def add(self, topics: Column, times: Column, messages: Column, sizes: Column) -> None:
        """Add records."""
        while len(self.messages) <= int(topics.max()):
            self.messages = np.concatenate([self.messages, np.zeros_like(self.messages)])
            self.bytes = np.concatenate([self.bytes, np.zeros_like(self.bytes)])
        if self.begin is None:  # no file begins with a record
            self.begin = int(times.min())
        known = (times >= self.begin) & (times <= self._latest)
        if known.any():
            self._reach(int(times[known].max()))
        interval = times // self.span - self.begin // self.span
        known &= interval < INTERVALS
        self.outside += int(messages[~known].sum())
        distinct, which = np.unique(topics[known] * INTERVALS + interval[known], return_inverse=True)
        for table, weights in ((self.messages, messages), (self.bytes, sizes)):
            flat: Any = table.reshape(-1)
            flat[distinct] += np.bincount(which, weights[known], len(distinct)).astype(np.int64)

    def _reach(self, time: int) -> None:
        """Lengthen the intervals until they reach a time."""
        begin, span = self.begin or 0, self.span
        wider = next((each for each in _SPANS if each >= span and time // each - begin // each < INTERVALS), _SPANS[-1])
        if wider == span:
            return
        into = (np.arange(INTERVALS) + begin // span) * span // wider - begin // wider
        for table in (self.messages, self.bytes):
            narrow = table.copy()
            table[:] = 0
            for interval, target in enumerate(into.tolist()):
                table[:, target] += narrow[:, interval]
        self.span = wider


def _find_newest_time(files: Sequence[Segment]) -> int:
    """When the newest file was written, ms."""
    return max((file.mtime_ns // 1_000_000 for file in files), default=0)


def _first_time(file: Segment) -> int | None:
    """Store time of the first message of a file, ms."""
    record = record_at(file.map(), record_start(file.map(), 0), file.size, crc=False)
    file.release()
    return record.store_timestamp if isinstance(record, Record) else None
