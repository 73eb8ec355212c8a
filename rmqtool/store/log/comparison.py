"""Compare two commit logs: byte by byte as far as both have the same history, then message by message.

Replicas, backups and copies have the same records at the same physical offsets; their common range is compared at
memory speed. After the logs diverge, and in logs without a common history (a store and one salvaged from it), messages
are matched by topic, queue and queue offset.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from formats.message.inner import is_inner_batch, messages_in
from formats.message.read import Record, read
from formats.primitives import INNER_BATCH
from formats.variants.dledger import HEAD_SIZE, DLedgerEntry, read_entry
from rmqtool.kernels.scan import Rows
from rmqtool.progress import Stage, stage
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord, walk_file
from rmqtool.store.log.records import record_start
from rmqtool.store.log.scan import FileRows, scan, scan_file

MOST_DIFFERING = 1000  # differing records to list before the logs count as diverged
_STEP = 8 << 20  # bytes to compare at once
_FIELDS_OF_DAMAGE = 2  # records that differ in more fields are different messages
_QUEUE_BITS, _ANY_QUEUE = 32, 0xFFFFFFFF
Numbers = npt.NDArray[np.int64]
QueueKey = tuple[bytes, int]  # topic, queue id


class Differing(NamedTuple):
    """What both logs have at physical offsets [start, end), with other bytes: records of the same length, or damage
    after which both have a record at the same place again.
    """

    start: int
    end: int
    first: LocatedRecord | Damage
    second: LocatedRecord | Damage

    @property
    def is_damage(self) -> bool:
        """Whether a side has no record there, so that messages of the other one have no counterpart."""
        return isinstance(self.first, Damage) or isinstance(self.second, Damage)

    @property
    def is_other_message(self) -> bool:
        """Whether these are two messages of the same length, and not one with damage, which does not change its store
        time and what follows the length of its body both.
        """
        fields = set(self.fields)
        return len(fields) > _FIELDS_OF_DAMAGE and "store_timestamp" in fields and bool({"body", "properties"} & fields)

    @property
    def fields(self) -> list[str]:
        """Names of the fields of a record that differ; empty if a side has no record."""
        if isinstance(self.first, Damage) or isinstance(self.second, Damage):
            return []
        both = zip(self.first.record, self.second.record, strict=True)
        return [name for name, (a, b) in zip(Record._fields, both, strict=True) if a != b]


class DifferingRun(NamedTuple):
    """Messages of one queue with consecutive queue offsets [start, stop) that only one log has, or that differ.

    Attributes:
        kind: ``onlyFirst``, ``onlySecond`` or ``different``.
        first_at, second_at: physical offset of each in the first and in the second log; empty for a log without them.
    """

    kind: str
    topic: bytes
    queue_id: int
    start: int
    stop: int
    first_at: Numbers
    second_at: Numbers


@dataclass(slots=True, kw_only=True)
class LogComparison:
    """The comparison of two logs.

    Attributes:
        common: physical offsets [start, stop) with a common history; None if there are none.
        differing: records in this range that differ, and damage in one or both logs.
        parted_at: physical offset at which the logs diverge although both continue; None if they do not.
        there: what each log has at that offset.
        runs: messages outside the common range, and other ones at the same place in it, that are not in both logs, by
            queue.
        damaged: damaged ranges of the first and the second log, which are not compared.
        ends: written ends of both logs.
    """

    common: tuple[int, int] | None = None
    differing: list[Differing] = field(default_factory=list)
    parted_at: int | None = None
    there: tuple[LocatedRecord | Damage, ...] = ()
    runs: list[DifferingRun] = field(default_factory=list)
    damaged: tuple[int, int] = (0, 0)
    ends: tuple[int, int] = (0, 0)

    @property
    def agreed(self) -> tuple[int, int] | None:
        """Physical offsets [start, stop) of the common history without differing records at its end."""
        if self.common is None:
            return None
        start, stop = self.common
        for differing in reversed(self.differing):
            if differing.end == stop:
                stop = differing.start
        return start, stop

    def count(self, kind: str) -> int:
        """Number of messages in all runs of a kind."""
        return sum(run.stop - run.start for run in self.runs if run.kind == kind)


def compare_logs(first: CommitLog, second: CommitLog) -> LogComparison:
    """Compare two logs."""
    comparison = LogComparison()
    with stage("comparing the logs", first.segments.bytes + second.segments.bytes) as comparing:
        comparison.ends = first.written_end, second.written_end
        start, stop = max(first.min_offset, second.min_offset), min(comparison.ends)
        if 0 <= start < stop:
            _Bytes(first, second, comparison, comparing).compare(start, stop)
        compared = _Compared(comparison)
        sides = [
            _Side(log, end, compared, comparing) for log, end in zip((first, second), comparison.ends, strict=True)
        ]
        comparison.damaged = sides[0].damaged, sides[1].damaged
        comparison.runs = [*_runs(*sides)]
    return comparison


def look_at(log: CommitLog, at: int, *, crc: bool = False) -> LocatedRecord | Damage:
    """The record, or the record of the DLedger entry, that begins at an offset, or what is there instead."""
    file = log.segments.find(at)
    return log.look(at if file is None else file.base + record_start(file.map(), at - file.base), crc=crc)


class _Compared:
    """The physical offsets at which both logs have the same message, so that nothing is left to match."""

    def __init__(self, comparison: LogComparison) -> None:
        edges = [*(comparison.common or ())]
        for differing in comparison.differing:
            if differing.is_damage or differing.is_other_message:
                edges += differing.start, differing.end
        self._edges = np.array(sorted(edges), np.int64)

    def covers(self, start: int, stop: int) -> bool:
        """Whether a whole range was compared."""
        low, high = np.searchsorted(self._edges, (start, stop - 1), "right")
        return bool(low == high) and bool(low & 1)

    def mask(self, physical: Numbers) -> npt.NDArray[np.bool_]:
        """Which offsets were compared."""
        return (np.searchsorted(self._edges, physical, "right") & 1).astype(np.bool_)


# -- byte by byte -----------------------------------------------------------------------------------------------------


class _Bytes:
    """Compares the range of physical offsets that both logs have."""

    def __init__(self, first: CommitLog, second: CommitLog, comparison: LogComparison, comparing: Stage) -> None:
        self._logs = first, second
        self._comparison, self._comparing = comparison, comparing

    def compare(self, start: int, stop: int) -> None:
        stop = self._whole_end(stop)
        at = boundary = self._begin(start, stop)  # everything before `at` was compared; a record begins at `boundary`
        while at < stop:
            files = [log.segments.find(at) for log in self._logs]
            if files[0] is None or files[1] is None:  # a file of one of them is missing
                following = self._after_gap(at, stop)
                if following is None:
                    break
                there = [look_at(log, at) for log in self._logs]
                self._comparison.differing.append(Differing(at, following, there[0], there[1]))
                at = boundary = following
                continue
            end = min(stop, files[0].end, files[1].end, at + _STEP)
            differs = _first_difference(*(file.map()[at - file.base : end - file.base] for file in files if file))
            if differs is None:
                for file in filter(None, files):
                    file.forget(at - file.base, end - file.base)
                    if end == file.end:
                        file.release()
                self._comparing.done += 2 * (end - at)
                at = end
                continue
            boundary = self._record_around(files[0], max(boundary, files[0].base), at + differs)
            this, other = (look_at(log, boundary) for log in self._logs)
            following = self._continue(boundary, stop, this, other)
            if following is None or len(self._comparison.differing) == MOST_DIFFERING:
                self._comparison.parted_at, self._comparison.there = boundary, (this, other)
                at = boundary
                break
            if following > at + differs:  # else both logs have the same damage before the difference
                self._comparison.differing.append(Differing(boundary, following, this, other))
            at = boundary = following
        if start < at <= stop:
            self._comparison.common = start, at

    def _whole_end(self, stop: int) -> int:
        """The end of the record that the last byte of the shorter log belongs to; it may end with zeros."""
        for log, end in zip(self._logs, self._comparison.ends, strict=True):
            file = log.segments.find(stop - 1) if end == stop else None
            for item in scan_file(file, last=True, crc=False) if file is not None else ():
                if isinstance(item, FileRows):
                    stop = max(stop, int(item.rows.at[-1] + item.rows.total_size[-1]) + item.file.base)
        return stop

    def _begin(self, start: int, stop: int) -> int:
        """Where both logs begin to have records at the same place; the largest offset if they do not."""
        this, other = (look_at(log, start) for log in self._logs)
        if isinstance(this, LocatedRecord) and isinstance(other, LocatedRecord):
            return start
        following = self._continue(start, stop, this, other)
        if following is None:
            return sys.maxsize
        self._comparison.differing.append(Differing(start, following, this, other))
        return following

    def _after_gap(self, at: int, stop: int) -> int | None:
        """The next file in which both logs begin with a record again."""
        bases = sorted({file.base for log in self._logs for file in log.segments if at < file.base < stop})
        return next(
            (base for base in bases if all(isinstance(look_at(log, base), LocatedRecord) for log in self._logs)), None
        )

    def _record_around(self, file: Segment, boundary: int, position: int) -> int:
        """Start of the record, of the DLedger entry, or of the unreadable rest of a file, that contains a position.

        Args:
            boundary: the start of a record at or before the position.
        """
        at = boundary - file.base
        if file.entries:
            view = file.map()
            while isinstance(entry := read_entry(view, at, file.size), DLedgerEntry):
                if at + entry.size > position - file.base:
                    break
                at += entry.size
            return file.base + at
        for scanned in scan(file.map(), at, file.size, crc=False):
            row = int(np.searchsorted(scanned.rows.at, position - file.base, "right")) - 1
            begin, size = int(scanned.rows.at[row]), int(scanned.rows.total_size[row])
            if row + 1 < scanned.rows.records or begin + size > position - file.base:
                return file.base + begin
            at = begin + size
        return file.base + at

    def _continue(
        self, boundary: int, stop: int, this: LocatedRecord | Damage, other: LocatedRecord | Damage
    ) -> int | None:
        """Where both logs have a record at the same place again; None if their histories part, or one ends."""
        if isinstance(this, LocatedRecord) and isinstance(other, LocatedRecord):
            return this.end if this.end == other.end else None
        files = [log.segments.find(boundary) for log in self._logs]
        if files[0] is not None and files[1] is not None:
            starts, others = _starts(files[0], boundary), _starts(files[1], boundary)
            start, other_start = next(starts, None), next(others, None)
            while start is not None and other_start is not None:
                if start == other_start:
                    return start
                if start < other_start:
                    start = next(starts, None)
                else:
                    other_start = next(others, None)
        return self._after_gap(boundary, stop)


def _starts(file: Segment, boundary: int) -> Iterator[int]:
    """Physical offsets after a boundary at which a record, or its DLedger entry, begins in a file."""
    head = HEAD_SIZE if file.entries else 0
    for item in walk_file(file, boundary - file.base, file.size, last=True, crc=False):
        if isinstance(item, LocatedRecord) and item.physical_offset - head > boundary:
            yield item.physical_offset - head


def _first_difference(first: memoryview, second: memoryview) -> int | None:
    whole = len(first) & -8
    if np.array_equal(np.frombuffer(first[:whole], np.uint64), np.frombuffer(second[:whole], np.uint64)):
        if first[whole:] == second[whole:]:
            return None
        first, second = first[whole:], second[whole:]
    else:
        whole = 0
    return whole + int(np.argmax(np.frombuffer(first, np.uint8) != np.frombuffer(second, np.uint8)))


# -- message by message -----------------------------------------------------------------------------------------------


class _Messages(NamedTuple):
    """Columns: queue offset, fingerprint and physical offset of messages of a queue."""

    offsets: Numbers
    marks: Numbers
    at: Numbers

    def places(self, offsets: Numbers) -> Numbers:
        """Physical offsets of the messages with these queue offsets, as far as there are any."""
        _offsets, rows, _order = np.intersect1d(self.offsets, offsets, return_indices=True)
        at: Numbers = self.at[rows]
        return at


class _Side:
    """The messages of one log that were not compared byte by byte, by queue.

    Attributes:
        queues: queue offset, fingerprint and physical offset of each message of a queue, in log order.
        damaged: number of damaged ranges.
    """

    def __init__(self, log: CommitLog, written_end: int, compared: _Compared, comparing: Stage) -> None:
        self.damaged = 0
        self._numbers: dict[bytes, int] = {}
        self._parts: dict[int, list[_Messages]] = {}
        for file in log.segments:
            if compared.covers(file.base, min(file.end, max(written_end, file.base + 1))):  # zeros follow
                continue
            for item in scan_file(file, last=file is log.segments.files[-1]):
                if isinstance(item, Damage):
                    self.damaged += not compared.mask(np.array([item.physical_offset]))[0]
                    continue
                self._take(item, ~compared.mask(item.rows.at + file.base))
            comparing.done += file.size
            file.release()
        names = [*self._numbers]
        self.queues = {
            (names[code >> _QUEUE_BITS], _to_signed(code & _ANY_QUEUE)): _join(parts)
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
        messages = _Messages(rows.queue_offset, _marks(item.view, rows), rows.at + item.file.base)
        extra = [*self._inside_batches(item, rows, messages)]
        for code in np.unique(codes).tolist():
            chosen = codes == code
            self._parts.setdefault(code, []).append(_Messages(*(column[chosen] for column in messages)))
        for row, more in extra:
            self._parts[int(codes[row])].append(more)

    @staticmethod
    def _inside_batches(item: FileRows, rows: Rows, messages: _Messages) -> Iterator[tuple[int, _Messages]]:
        """(row, messages) of all messages except the first of each inner batch."""
        for row in np.flatnonzero(rows.sys_flag & INNER_BATCH).tolist():
            record = read(item.view, int(rows.at[row]), item.file.size, crc=False)
            if isinstance(record, Record) and is_inner_batch(record.sys_flag):
                more = sum(1 for _message in messages_in(record)) - 1
                _offsets, marks, at = (np.full(more, column[row]) for column in messages)
                yield row, _Messages(record.queue_offset + np.arange(1, more + 1), marks, at)


def _join(parts: list[_Messages]) -> _Messages:
    return _Messages(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _to_signed(queue_id: int) -> int:
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


def _runs(first: _Side, second: _Side) -> Iterator[DifferingRun]:
    nothing = _Messages(*(np.zeros(0, np.int64) for _column in _Messages._fields))
    for key in sorted({*first.queues, *second.queues}):
        this, other = first.queues.get(key, nothing), second.queues.get(key, nothing)
        only_first, only_second = _without(this, other), _without(other, this)
        both = np.intersect1d(only_first, only_second)
        for kind, offsets in (
            ("different", both),
            ("onlyFirst", np.setdiff1d(only_first, both)),
            ("onlySecond", np.setdiff1d(only_second, both)),
        ):
            for part in np.split(offsets, np.flatnonzero(np.diff(offsets) != 1) + 1):
                if len(part):
                    yield DifferingRun(
                        kind, *key, int(part[0]), int(part[-1]) + 1, this.places(part), other.places(part)
                    )


def _without(messages: _Messages, others: _Messages) -> Numbers:
    """Queue offsets of messages that the others lack, ascending."""
    missing = ~np.isin(_pairs(messages.offsets, messages.marks), _pairs(others.offsets, others.marks))
    return np.unique(messages.offsets[missing])


def _pairs(offsets: Numbers, marks: Numbers) -> Numbers:
    return (offsets.view(np.uint64) * np.uint64(0xBF58476D1CE4E5B9) ^ marks.view(np.uint64)).view(np.int64)
