"""Compare two commit logs: byte by byte as far as both have the same history, then message by message.

Replicas, backups and copies have the same records at the same physical offsets; their common range is compared at
memory speed. After the logs diverge, and in logs without a common history (a store and one salvaged from it), messages
are matched by topic, queue and queue offset.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from formats.message.inner import is_inner_batch, messages_in
from formats.message.read import Record, read
from formats.primitives import INNER_BATCH
from rmqtool.kernels.scan import Rows
from rmqtool.progress import Stage, stage
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.log.scan import FileRows, scan, scan_file

MOST_DIFFERING = 1000  # differing records to list before the logs count as diverged
_STEP = 8 << 20  # bytes to compare at once
_QUEUE_BITS, _ANY_QUEUE = 32, 0xFFFFFFFF
Numbers = npt.NDArray[np.int64]
QueueKey = tuple[bytes, int]  # topic, queue id


class Differing(NamedTuple):
    """Records of the same length at the same physical offset, with other bytes."""

    first: LocatedRecord
    second: LocatedRecord

    @property
    def fields(self) -> list[str]:
        """Names of the fields of a record that differ."""
        both = zip(self.first.record, self.second.record, strict=True)
        return [name for name, (a, b) in zip(Record._fields, both, strict=True) if a != b]


class Run(NamedTuple):
    """Messages of one queue with consecutive queue offsets [start, stop) that only one log has, or that differ.

    Attributes:
        kind: ``onlyFirst``, ``onlySecond`` or ``different``.
    """

    kind: str
    topic: bytes
    queue_id: int
    start: int
    stop: int


@dataclass(slots=True, kw_only=True)
class LogComparison:
    """The comparison of two logs.

    Attributes:
        common: physical offsets [start, stop) with a common history; None if there are none.
        differing: records in this range that differ.
        parted_at: physical offset at which the logs diverge although both continue; None if they do not.
        there: what each log has at that offset.
        runs: messages outside the common range that are not in both logs, by queue.
        damaged: damaged ranges of the first and the second log, which are not compared.
    """

    common: tuple[int, int] | None = None
    differing: list[Differing] = field(default_factory=list)
    parted_at: int | None = None
    there: tuple[LocatedRecord | Damage, ...] = ()
    runs: list[Run] = field(default_factory=list)
    damaged: tuple[int, int] = (0, 0)

    def count(self, kind: str) -> int:
        """Number of messages in all runs of a kind."""
        return sum(run.stop - run.start for run in self.runs if run.kind == kind)


def compare_logs(first: CommitLog, second: CommitLog) -> LogComparison:
    """Compare two logs."""
    comparison = LogComparison()
    with stage("comparing the logs", first.segments.bytes + second.segments.bytes) as comparing:
        start, stop = max(first.min_offset, second.min_offset), min(first.written_end, second.written_end)
        if 0 <= start < stop and _is_record(first, start) and _is_record(second, start):
            _Bytes(first, second, comparison, comparing).compare(start, stop)
        sides = [_Side(log, comparison.common, comparing) for log in (first, second)]
        comparison.damaged = sides[0].damaged, sides[1].damaged
        comparison.runs = [*_runs(*sides)]
    return comparison


def _is_record(log: CommitLog, at: int) -> bool:
    return isinstance(log.look(at, crc=False), LocatedRecord)


# -- byte by byte -----------------------------------------------------------------------------------------------------


class _Bytes:
    """Compares the range of physical offsets that both logs have."""

    def __init__(self, first: CommitLog, second: CommitLog, comparison: LogComparison, comparing: Stage) -> None:
        self._logs = first, second
        self._comparison, self._comparing = comparison, comparing

    def compare(self, start: int, stop: int) -> None:
        at = boundary = start  # everything before `at` was compared; a record begins at `boundary`
        while at < stop:
            files = [log.segments.find(at) for log in self._logs]
            if files[0] is None or files[1] is None:
                break
            end = min(stop, files[0].end, files[1].end, at + _STEP)
            differs = _first_difference(*(file.map()[at - file.base : end - file.base] for file in files if file))
            if differs is None:
                for file in files:
                    if file is not None and end == file.end:
                        file.release()
                self._comparing.done += 2 * (end - at)
                at = end
                continue
            boundary = self._record_around(files[0], max(boundary, files[0].base), at + differs)
            one, other = (log.look(boundary, crc=False) for log in self._logs)
            if (
                not isinstance(one, LocatedRecord)
                or not isinstance(other, LocatedRecord)
                or one.record.total_size != other.record.total_size
                or len(self._comparison.differing) == MOST_DIFFERING
            ):
                self._comparison.parted_at, self._comparison.there = boundary, (one, other)
                at = boundary
                break
            self._comparison.differing.append(Differing(one, other))
            at = boundary = boundary + one.record.total_size
        if at > start:
            self._comparison.common = start, at

    def _record_around(self, file: Segment, boundary: int, position: int) -> int:
        """Start of the record, or of the unreadable rest of a file, that contains a position.

        Args:
            boundary: the start of a record at or before the position.
        """
        at = boundary - file.base
        for scanned in scan(file.map(), at, file.size, crc=False):
            row = int(np.searchsorted(scanned.rows.at, position - file.base, "right")) - 1
            begin, size = int(scanned.rows.at[row]), int(scanned.rows.total_size[row])
            if row + 1 < scanned.rows.records or begin + size > position - file.base:
                return file.base + begin
            at = begin + size
        return file.base + at


def _first_difference(first: memoryview, second: memoryview) -> int | None:
    one, other = np.frombuffer(first, np.uint8), np.frombuffer(second, np.uint8)
    if np.array_equal(one, other):
        return None
    return int(np.argmax(one != other))


# -- message by message -----------------------------------------------------------------------------------------------


class _Side:
    """The messages of one log outside the common range, by queue.

    Attributes:
        queues: queue offset and fingerprint of each message of a queue, in log order.
        damaged: number of damaged ranges.
    """

    def __init__(self, log: CommitLog, common: tuple[int, int] | None, comparing: Stage) -> None:
        self.damaged = 0
        self._numbers: dict[bytes, int] = {}
        self._parts: dict[int, list[tuple[Numbers, Numbers]]] = {}
        start, stop = common or (0, 0)
        for file in log.segments:
            if start <= file.base and file.end <= stop:
                continue
            for item in scan_file(file, last=file is log.segments.files[-1], crc=False):
                if isinstance(item, Damage):
                    self.damaged += not start <= item.physical_offset < stop
                    continue
                physical = item.rows.at + file.base
                self._take(item, (physical < start) | (physical >= stop))
            comparing.done += file.size
            file.release()
        names = [*self._numbers]
        self.queues = {
            (names[code >> _QUEUE_BITS], _signed(code & _ANY_QUEUE)): _join(parts)
            for code, parts in self._parts.items()
        }

    def _take(self, item: FileRows, mask: npt.NDArray[np.bool_]) -> None:
        rows = Rows(*(column[mask] for column in item.rows))
        if not rows.records:
            return
        topics = (
            bytes(item.view[at : at + length])
            for at, length in zip(rows.topic_at.tolist(), rows.topic_length.tolist(), strict=True)
        )
        numbers = np.array([self._numbers.setdefault(topic, len(self._numbers)) for topic in topics], np.int64)
        codes = numbers << _QUEUE_BITS | rows.queue_id & _ANY_QUEUE
        offsets, marks = rows.queue_offset, _marks(item.view, rows)
        extra = [*self._inside_batches(item, rows)]
        for code in np.unique(codes).tolist():
            chosen = codes == code
            self._parts.setdefault(code, []).append((offsets[chosen], marks[chosen]))
        for row, more_offsets, more_marks in extra:
            self._parts[int(codes[row])].append((more_offsets, more_marks))

    @staticmethod
    def _inside_batches(item: FileRows, rows: Rows) -> Iterator[tuple[int, Numbers, Numbers]]:
        """(row, queue offsets, fingerprints) of all messages except the first of each inner batch."""
        marks = _marks(item.view, rows)
        for row in np.flatnonzero(rows.sys_flag & INNER_BATCH).tolist():
            record = read(item.view, int(rows.at[row]), item.file.size, crc=False)
            if isinstance(record, Record) and is_inner_batch(record.sys_flag):
                count = sum(1 for _message in messages_in(record))
                yield row, record.queue_offset + np.arange(1, count), np.full(count - 1, marks[row])


def _join(parts: list[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    return np.concatenate([offsets for offsets, _marks in parts]), np.concatenate([marks for _offsets, marks in parts])


def _signed(queue_id: int) -> int:
    return queue_id - ((queue_id >> 31) << 32)


def _marks(view: memoryview, rows: Rows) -> Numbers:
    """A fingerprint of each message, from the fields set by its producer."""
    properties = (
        crc32(view[at : at + length])
        for at, length in zip(rows.properties_at.tolist(), rows.properties_length.tolist(), strict=True)
    )
    mark = np.fromiter(properties, np.uint64, rows.records)
    for column in (rows.body_crc, rows.body_length, rows.born_timestamp, rows.flag, rows.reconsume_times):
        mark = mark * np.uint64(0x9E3779B97F4A7C15) + column.astype(np.uint64)
        mark ^= mark >> np.uint64(29)
    return mark.view(np.int64)


def _runs(first: _Side, second: _Side) -> Iterator[Run]:
    nothing: Numbers = np.zeros(0, np.int64)
    for key in sorted({*first.queues, *second.queues}):
        one, other = first.queues.get(key, (nothing, nothing)), second.queues.get(key, (nothing, nothing))
        only_first, only_second = _without(one, other), _without(other, one)
        both = np.intersect1d(only_first, only_second)
        for kind, offsets in (
            ("different", both),
            ("onlyFirst", np.setdiff1d(only_first, both)),
            ("onlySecond", np.setdiff1d(only_second, both)),
        ):
            for part in np.split(offsets, np.flatnonzero(np.diff(offsets) != 1) + 1):
                if len(part):
                    yield Run(kind, *key, int(part[0]), int(part[-1]) + 1)


def _without(messages: tuple[Numbers, ...], others: tuple[Numbers, ...]) -> Numbers:
    """Queue offsets of messages that the others lack, ascending."""
    offsets, marks = messages
    missing = ~np.isin(_pairs(offsets, marks), _pairs(*others))
    return np.unique(offsets[missing])


def _pairs(offsets: Numbers, marks: Numbers) -> Numbers:
    return (offsets.view(np.uint64) * np.uint64(0xBF58476D1CE4E5B9) ^ marks.view(np.uint64)).view(np.int64)
