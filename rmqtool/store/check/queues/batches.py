"""Check the commit log against the batch consume queues of 5.x: every record has its unit, and the reverse.

Units are in the order of the log, so incoming records are compared with consecutive units. If they do not match, the
rest of a stretch is searched among all units of the queue.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from formats.arrays import Column
from rmqtool.errors import UnreadableStore
from rmqtool.store.check.codes.all import INFO
from rmqtool.store.check.codes.batches import TWO_KINDS
from rmqtool.store.check.common.context import Context
from rmqtool.store.check.common.files import check_files
from rmqtool.store.check.log.log import RecordRun
from rmqtool.store.check.queues.batch_state import BatchFile, BatchState, describe_unit, valid
from rmqtool.store.check.queues.removed import settle
from rmqtool.store.dispatch.batch import numbers_of
from rmqtool.store.layout.paths import BATCH_QUEUES, BATCH_UNIT, is_path_name
from rmqtool.store.log.commit_log import Damage
from rmqtool.words import counted

_COMPARED = {  # by field of a unit: the code if it differs from the record
    "size": "bcq-size",
    "base_queue_offset": "bcq-base",
    "batch_size": "bcq-count",
    "tags_code": "bcq-tags",
    "store_timestamp": "bcq-time",
}


class _Expected(NamedTuple):
    """The expected units of records, one column per field."""

    physical_offset: Column
    size: Column
    base_queue_offset: Column
    batch_size: Column
    tags_code: Column
    store_timestamp: Column

    def part(self, which: Any) -> "_Expected":
        """Some of the rows."""
        return _Expected(*(column[which] for column in self))


class BatchQueueCheck:
    """Checks all batch queues: call :meth:`load`, :meth:`take` for each queue's records, then :meth:`finish`."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.queues: dict[tuple[str, int], BatchState] = {}
        self._unnamed: dict[str, int] = {}

    def load(self) -> Iterator[None]:
        """Read every file of every queue."""
        ctx = self.ctx
        plain = {topic for topic, _queue_id, _path in ctx.layout.queue_dirs()}
        for topic, queue_id, path in ctx.layout.queue_dirs(BATCH_QUEUES):
            queue = self.queues[topic, queue_id] = BatchState(topic, queue_id, path)
            try:
                segments = ctx.layout.files_in(path)
                check_files(ctx, segments, ctx.layout.batch_queue_size(segments), topic, queue_id)
                queue.load(segments, ctx.log.min_offset)
            except UnreadableStore as err:
                ctx.found.add("file-unreadable", ctx.name(path), actual=str(err), **queue.about)
            yield
        for topic in sorted({topic for topic, _queue_id in self.queues}):
            place = f"{BATCH_QUEUES}/{topic}"
            if topic in plain:
                actual = "consumequeue has queues of it, too"
                ctx.found.add("bcq-form", place, topic=topic, actual=actual, steps=TWO_KINDS)
            elif topic not in ctx.rules.named_batch_topics:
                ctx.found.add("bcq-form", place, topic=topic, actual="topics.json does not name BatchCQ")
        for topic in sorted(plain & ctx.rules.named_batch_topics - {topic for topic, _queue_id in self.queues}):
            actual = "topics.json says BatchCQ"
            ctx.found.add("bcq-form", f"consumequeue/{topic}", topic=topic, actual=actual, steps=TWO_KINDS)

    @property
    def entries(self) -> int:
        """Number of units of all queues that should point to a message."""
        return sum(file.live for queue in self.queues.values() for file in queue.files)

    @property
    def known(self) -> int:
        """Physical offset of the last record in any queue, as in the broker's recovery; -1 without one."""
        return max((queue.last_physical for queue in self.queues.values()), default=-1)

    def take(self, stretch: RecordRun, rows: Column, topic: str, queue_id: int) -> None:
        """Compare records of one queue, in the order of the log, with its units."""
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            if not is_path_name(topic):
                self._unnamed[topic] = self._unnamed.get(topic, 0) + len(rows)
                return
            path = self.ctx.layout.queue_path(topic, queue_id, BATCH_QUEUES)
            queue = self.queues[topic, queue_id] = BatchState(topic, queue_id, path)
        expected = self._expect(stretch, rows)
        columns = expected.base_queue_offset, expected.physical_offset, expected.store_timestamp, expected.batch_size
        for part, begins in queue.generations.take(*columns):
            records, file = expected.part(part), stretch.file
            if begins:
                queue.begin_again(self.ctx.name(file.path), int(records.physical_offset[0]) - file.base)
            self._check_ordinals(queue, stretch, records)
            self._compare(queue, records)

    def settle(self) -> None:
        """Report messages of former generations of their queues."""
        settle(self.ctx, self.queues, ())

    def _expect(self, stretch: RecordRun, rows: Column) -> _Expected:
        batch = stretch.batch
        base, count = numbers_of(batch.numbers, rows, batch.queue_offset[rows])
        columns = (
            stretch.position[rows],
            batch.size[rows],
            base,
            count,
            batch.tags_code[rows],
            batch.store_timestamp[rows],
        )
        return _Expected(*columns).part((base >= 0) & (count >= 0))  # a broker makes no unit for others

    def _check_ordinals(self, queue: BatchState, stretch: RecordRun, expected: _Expected) -> None:
        """Check that queue offsets continue the previous batch; after damage they must only increase."""
        base, count = expected.base_queue_offset, expected.batch_size
        wanted = np.empty_like(base)
        wanted[1:] = base[:-1] + count[:-1]
        before = queue.next_offset
        wanted[0] = base[0] if before is None or (stretch.epoch != queue.epoch and base[0] >= before) else before
        for code, wrong in (
            ("log-ordinal-gap", np.flatnonzero(base > wanted)),
            ("log-ordinal-repeat", np.flatnonzero(base < wanted)),
        ):
            self.ctx.found.many(
                code,
                self.ctx.name(stretch.file.path),
                len(wrong),
                lambda i, wrong=wrong: {  # type: ignore[misc]
                    "offset": int(expected.physical_offset[wrong[i]]) - stretch.file.base,
                    "queueOffset": int(base[wrong[i]]),
                    "expected": str(int(wanted[wrong[i]])),
                    "actual": str(int(base[wrong[i]])),
                },
                **queue.about,
            )
        queue.next_offset, queue.epoch = int(base[-1] + count[-1]), stretch.epoch

    def _compare(self, queue: BatchState, expected: _Expected) -> None:
        while len(expected.size):
            number, unit = queue.cursor
            if number >= len(queue.files):
                break
            file = queue.files[number]
            units = file.units(unit, min(unit + len(expected.size), file.used))
            if not len(units):
                queue.cursor = number + 1, 0
                continue
            same = valid(units) & (units["physical_offset"] == expected.physical_offset[: len(units)])
            count = len(units) if same.all() else int(same.argmin())
            self._compare_fields(queue, file, np.arange(unit, unit + count), expected.part(slice(count)))
            expected = expected.part(slice(count, None))
            queue.cursor = number, unit + count
            if count < len(units):
                expected = self._search(queue, expected)
                break
        if len(expected.size):
            self._add_missing(queue, expected)

    def _search(self, queue: BatchState, expected: _Expected) -> _Expected:
        """Search the units of records in all files; returns those without one."""
        unmatched = np.ones(len(expected.size), bool)
        for number, file in enumerate(queue.files):
            units = file.units(0, file.used)
            physical = units["physical_offset"].astype(np.int64)
            row = np.searchsorted(expected.physical_offset, physical)
            row[row == len(unmatched)] = 0
            hits = np.flatnonzero(valid(units) & (expected.physical_offset[row] == physical))
            _rows, first = np.unique(row[hits], return_index=True)
            hits = hits[first]
            hits = hits[unmatched[row[hits]]]
            if len(hits):
                unmatched[row[hits]] = False
                self._compare_fields(queue, file, hits, expected.part(row[hits]))
                queue.cursor = max(queue.cursor, (number, int(hits.max()) + 1))
        return expected.part(unmatched)

    def _compare_fields(self, queue: BatchState, file: BatchFile, at: Column, expected: _Expected) -> None:
        """Compare the other fields of units that point to their record."""
        if not len(at):
            return
        file.matched += len(at)
        file.last_matched = max(file.last_matched, int(at.max()))
        units = file.units(int(at.min()), int(at.max()) + 1)[at - int(at.min())]
        for field, code in _COMPARED.items():
            says, should = units[field].astype(np.int64), getattr(expected, field)
            wrong = np.flatnonzero(says != should)
            self.ctx.found.many(
                code,
                self.ctx.name(file.segment.path),
                len(wrong),
                lambda i, wrong=wrong, says=says, should=should: {  # type: ignore[misc]
                    "offset": int(at[wrong[i]]) * BATCH_UNIT,
                    "queueOffset": int(expected.base_queue_offset[wrong[i]]),
                    "expected": str(int(should[wrong[i]])),
                    "actual": str(int(says[wrong[i]])),
                },
                **queue.about,
            )

    def _add_missing(self, queue: BatchState, expected: _Expected) -> None:
        start, last = self.ctx.start.redispatch_from, queue.last_physical
        for physical, base, count in zip(
            expected.physical_offset.tolist(),
            expected.base_queue_offset.tolist(),
            expected.batch_size.tolist(),
            strict=True,
        ):
            soon = start is not None and physical >= start and physical > last
            before = queue.missing[-1] if queue.missing else None
            if before is not None and (before[0], before[1] + before[3]) == (soon, base):
                queue.missing[-1] = (*before[:3], before[3] + count)
            else:
                queue.missing.append((soon, base, physical, count))

    def finish(self) -> Iterator[None]:
        """Report what is only known after the whole log has been read."""
        ctx = self.ctx
        for (topic, queue_id), queue in sorted(self.queues.items()):
            last = queue.last
            end = int(last["base_queue_offset"]) + int(last["batch_size"]) if last is not None else 0
            ctx.queues_seen.ends[topic, queue_id] = max(end, queue.next_offset or 0)
            if not ctx.log_seen.absent:
                self._finish_queue(queue)
            yield
        for topic, messages in sorted(self._unnamed.items()):
            consequence = f"{counted(messages, 'record')} of this topic {'has' if messages == 1 else 'have'} no queue"
            ctx.found.add("log-topic", "commitlog", topic=topic, count=messages, consequence=consequence)

    def _finish_queue(self, queue: BatchState) -> None:
        ctx, (end_file, end_unit) = self.ctx, queue.end
        for number, file in enumerate(queue.files):
            name = ctx.name(file.segment.path)
            matched_behind = number > end_file or (number == end_file and file.last_matched >= end_unit)
            later = any(file.last_matched >= 0 for file in queue.files[end_file + 1 :])
            if number == end_file and (matched_behind or later) and end_unit < file.capacity:
                self._report_hole(queue, file, end_unit)
            stop = (
                file.used
                if number < end_file
                else max(end_unit, file.last_matched + 1)
                if number == end_file
                else (file.last_matched + 1)
            )
            if stop < file.used:
                self._report_stale(queue, file, stop)
            if file.live > file.matched:
                self._report_strange(queue, file, min(stop, file.used), name)
            file.segment.release()
        empty = not queue.files
        for soon, base, physical, count in queue.missing:
            code = "bcq-behind" if soon else "bcq-queue-missing" if empty else "bcq-missing"
            ctx.found.add(
                code,
                ctx.name(queue.path),
                queueOffset=base,
                count=count,
                expected=f"a unit for physical offset {physical}",
                actual="no files" if empty else "no unit",
                consequence=f"{counted(count, 'message')} of topic {queue.topic} "
                + ("will be added by the next start" if soon else "cannot be reached"),
                **({"severity": INFO} if soon else {}),
                **queue.about,
            )

    def _report_hole(self, queue: BatchState, file: BatchFile, unit: int) -> None:
        entry = file.units(unit, unit + 1)[0]
        torn = any(entry.tolist())
        self.ctx.found.add(
            "bcq-torn" if torn else "bcq-hole",
            self.ctx.name(file.segment.path),
            offset=unit * BATCH_UNIT,
            expected="a unit",
            actual=describe_unit(entry) if torn else "zeros",
            **queue.about,
        )

    def _report_stale(self, queue: BatchState, file: BatchFile, start: int) -> None:
        """Report bytes after the queue's end that match no record."""
        units = file.units(start, file.used)
        torn = not bool(valid(units).any())
        self.ctx.found.add(
            "bcq-torn" if torn else "bcq-stale",
            self.ctx.name(file.segment.path),
            offset=start * BATCH_UNIT,
            count=file.used - start,
            expected="zeros",
            actual=describe_unit(units[0]) if torn else f"{file.used - start} units after the queue's end",
            **queue.about,
        )

    def _report_strange(self, queue: BatchState, file: BatchFile, stop: int, name: str) -> None:
        """Report units that point to no record of their queue, or to one that has another unit."""
        seen: set[int] = set()
        for number, unit in enumerate(file.units(0, stop)):
            physical = int(unit["physical_offset"])
            if not valid(file.units(number, number + 1))[0] or physical < self.ctx.log.min_offset:
                continue
            item = None if physical >= self.ctx.log_seen.end else self.ctx.log.look(physical, crc=False)
            if item is None:
                code, actual = "bcq-no-message", f"{physical}, after the log's end at {self.ctx.log_seen.end}"
            elif isinstance(item, Damage):
                code, actual = "bcq-no-message", f"{physical}: {item.reason}"
            else:
                topic = item.record.topic.decode("utf-8", "surrogateescape")
                if (topic, item.record.queue_id) != (queue.topic, queue.queue_id):
                    code, actual = "bcq-no-message", f"{physical}: a message of {topic} queue {item.record.queue_id}"
                elif physical in seen:
                    code, actual = "bcq-repeat", str(physical)
                else:
                    seen.add(physical)
                    continue
            self.ctx.found.add(
                code,
                name,
                offset=number * BATCH_UNIT,
                queueOffset=int(unit["base_queue_offset"]),
                expected="each record of this queue once",
                actual=actual,
                **queue.about,
            )
