"""Check the commit log against consume queues in RocksDB: every message has its unit, and the reverse.

The queue offset is part of a unit's key, so units of consecutive messages are read as a range.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from formats.arrays import Column
from formats.errors import FormatError
from formats.message.read import SCHEDULE_TOPIC
from formats.queues.rocks import CHECKPOINT_KEY, OFFSETS, parse_built, parse_offset, parse_offset_key
from rmqtool.errors import CorruptFile, MissingRuntime, UnreadableStore
from rmqtool.store.check.advice.steps import by_hand
from rmqtool.store.check.codes.code import WARNING
from rmqtool.store.check.common.context import Context
from rmqtool.store.check.log.log import RecordRun
from rmqtool.store.check.queues.ordinals import check_ordinals
from rmqtool.store.check.queues.removed import add_deleted, settle
from rmqtool.store.dispatch.generations import Generations
from rmqtool.store.dispatch.light import is_light, light_queue_id
from rmqtool.store.layout.rocksdb import Database
from rmqtool.store.layout.version import QUEUES, queue_database_place, second_queues
from rmqtool.store.log.commit_log import Damage
from rmqtool.store.queues.rocks import RocksQueue, built_up_to, queue_database, rocks_queue_names
from rmqtool.store.queues.rocks_columns import units_at
from rmqtool.store.recovery.deleted import DeletedTopics

T = TypeVar("T")
_DELAY_TOPIC = SCHEDULE_TOPIC.decode()


_OF_SECOND = {
    "severity": WARNING,
    "consequence": "Consumers get the message by the queue in files, unless combineCQPreferCQType=defaultRocksDB makes "
    "the broker read the database.",
    "steps": by_hand(
        "nothing to do as long as the broker reads the files. To make the database again, stop the broker and move its "
        "files out of the store: it begins again with the messages after that, and light queues that are only in it "
        "begin with those of the newest log files"
    ),
}


class _Wrong(NamedTuple):
    """Messages without a unit in their place.

    Attributes:
        actual: physical offsets in the units there; None if there are none.
    """

    queue_offset: Column
    physical_offset: Column
    actual: Column | None

    def describe(self, i: int) -> dict[str, Any]:
        """Fields of the finding about the i-th message."""
        ordinal, expected = int(self.queue_offset[i]), int(self.physical_offset[i])
        if self.actual is None:
            return {"queueOffset": ordinal, "expected": f"a unit for physical offset {expected}"}
        return {"queueOffset": ordinal, "expected": expected, "actual": int(self.actual[i])}


class _FormerGeneration(NamedTuple):
    """State of a queue before its numbering started again at 0."""

    wrong: list[_Wrong]
    end: int
    first: int | None
    behind: int
    first_behind: int | None
    file: str  # log file with the first message of the next generation; ``offset`` is its position there
    offset: int
    next_ordinal: int  # queue offset expected instead of 0


class _Queue:
    """One queue and its messages in the log so far.

    Attributes:
        matched: number of units whose message was found.
        end: queue offset after the highest one of a message that the database should have.
        first: lowest queue offset of a message in the log.
        behind: number of messages not in the database yet; ``first_behind`` is the first one's queue offset.
        wrong: messages that the database should have, without their unit.
        newest: store time of the newest message, ms, if the topic may have been deleted.
        generations: tracks where the numbering of its messages in the log starts again.
        former: state before each such restart.
    """

    def __init__(self, units: RocksQueue) -> None:
        self.units = units
        self.next_ordinal: int | None = None
        self.epoch = 0
        self.matched = self.end = 0
        self.first: int | None = None
        self.behind = 0
        self.first_behind: int | None = None
        self.wrong: list[_Wrong] = []
        self.newest = 0
        self.generations = Generations()
        self.former: list[_FormerGeneration] = []

    def begin_again(self, file: str, offset: int) -> None:
        """Start a new generation: the next message has queue offset 0 again.

        Args:
            file, offset: position of that message in the log.
        """
        state = self.wrong, self.end, self.first, self.behind, self.first_behind
        self.former.append(_FormerGeneration(*state, file, offset, self.next_ordinal or 0))
        self.forget()
        self.next_ordinal = None

    def forget(self) -> None:
        """Drop the messages so far, which do not belong in the queue."""
        self.wrong, self.end, self.first, self.behind, self.first_behind = [], 0, None, 0, None

    def restore(self) -> None:
        """Add the messages of former generations, which do belong in the queue."""
        for former in self.former:
            self.wrong = [*former.wrong, *self.wrong]
            self.end, self.behind = max(self.end, former.end), self.behind + former.behind
        firsts = (self.first, *(former.first for former in self.former))
        self.first = min((first for first in firsts if first is not None), default=None)
        behind = (*(former.first_behind for former in self.former), self.first_behind)
        self.first_behind = next((first for first in behind if first is not None), None)

    @property
    def files(self) -> list[RocksQueue]:
        """Its units, if there are any; a deletion may leave the recorded first message behind."""
        return [self.units] if self.units.last is not None or self.units.unit(0) is not None else []

    @cached_property
    def begun(self) -> int:
        """Queue offset of the first unit; beyond all if there is none."""
        return next((offset for offset, _unit in self.units.units(0, 2**63 - 1, beyond=True)), 2**63 - 1)

    @property
    def again(self) -> int:
        """Number of messages that the next start would put into the database."""
        return self.behind

    @property
    def about(self) -> dict[str, Any]:
        return {"topic": self.units.topic, "queueId": self.units.queue_id}


def open_database(ctx: Context) -> Database | None:
    """The store's database of queues; None if there is none, or if it cannot be read, which is reported."""
    return report_unreadable(ctx, "rcq-unreadable", _place(ctx), "queues", lambda: queue_database(ctx.layout))


def report_unreadable(ctx: Context, code: str, place: str, what: str, read: Callable[[], T]) -> T | None:
    """What ``read`` gets from a RocksDB database; None if it cannot be read, which is reported.

    Args:
        code: of the finding if the database is damaged.
        what: what it holds.
    """
    try:
        return read()
    except MissingRuntime as err:
        ctx.found.add("not-checked", place, actual=f"{what} in a RocksDB database: {err}")
    except CorruptFile as err:
        ctx.found.add(code, place, actual=err.reason)
    except UnreadableStore as err:
        ctx.found.add("file-unreadable", place, actual=str(err))
    return None


def _place(ctx: Context) -> str:
    return queue_database_place(ctx.layout) or second_queues(ctx.layout) or QUEUES


class RocksQueueCheck:
    """Checks all queues of the database: call :meth:`take` for every stretch of the log, then :meth:`finish`.

    Beside queue files it is the second copy (``rocksdbCQDoubleWriteEnable``): units from before it was begun are not
    missing, and what is wrong with it does not hide messages, except in light queues.
    """

    def __init__(self, ctx: Context, database: Database) -> None:
        self.ctx, self._database = ctx, database
        self._place = _place(ctx)
        self._is_second = second_queues(ctx.layout) is not None
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._topics = DeletedTopics(ctx.layout)
        self._built = 0
        self._broken = False
        try:
            self._built = built_up_to(database)
        except CorruptFile as err:
            self._report_unreadable(err)

    def _report_unreadable(self, err: CorruptFile) -> None:
        self._broken = True
        self.ctx.found.add("rcq-unreadable", self._place, actual=err.reason)

    def _about(self, queue: _Queue) -> dict[str, Any]:
        """The fields of all findings about a queue."""
        if self._is_second and not is_light(queue.units.topic):
            return {**queue.about, **_OF_SECOND}
        return queue.about

    def _queue(self, topic: str, queue_id: int) -> _Queue:
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            units = RocksQueue(self.ctx.layout, self._database, topic, queue_id)
            queue = self._queues[topic, queue_id] = _Queue(units)
        return queue

    def take(self, stretch: RecordRun) -> None:
        """Compare consecutive records with their units."""
        batch, position = stretch.batch, stretch.position
        if self._is_second:
            self._take_second(stretch)
            return
        columns = (batch.size, batch.tags_code, batch.store_timestamp)
        for rows in batch.by_queue():
            queue = self._queue(batch.topics[int(batch.topic[rows[0]])], int(batch.queue_id[rows[0]]))
            ordinals, at, file = batch.queue_offset[rows], position[rows], stretch.file
            for part, begins in queue.generations.take(ordinals, at, batch.store_timestamp[rows]):
                if begins:
                    queue.begin_again(self.ctx.name(file.path), int(at[part.start]) - file.base)
                check_ordinals(self.ctx, queue, file, ordinals[part], at[part], stretch.epoch)
                self._compare(queue, at[part], ordinals[part], *(column[rows[part]] for column in columns))
        self._take_light(stretch)

    def _take_second(self, stretch: RecordRun) -> None:
        """Compare records with the second copy of queues; whether their numbers are in order, the first one shows."""
        batch, position = stretch.batch, stretch.position
        columns = (batch.size, batch.tags_code, batch.store_timestamp)
        for rows in batch.by_queue():
            queue = self._queue(batch.topics[int(batch.topic[rows[0]])], int(batch.queue_id[rows[0]]))
            rows = rows[batch.queue_offset[rows] >= queue.begun]
            if len(rows):
                self._compare(queue, position[rows], batch.queue_offset[rows], *(column[rows] for column in columns))
        if self.ctx.light_in_database:
            self._take_light(stretch)

    def _take_light(self, stretch: RecordRun) -> None:
        batch, position = stretch.batch, stretch.position
        columns = (batch.size, batch.tags_code, batch.store_timestamp)
        puts: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for row, name, ordinal in batch.light:
            if batch.queued[row]:
                key = name, light_queue_id(name, int(batch.queue_id[row]))
                puts.setdefault(key, []).append((row, ordinal))
        for (name, queue_id), pairs in puts.items():
            queue = self._queue(name, queue_id)
            rows, ordinals = np.array(pairs, np.int64).T
            queue.next_ordinal = max(queue.next_ordinal or 0, int(ordinals.max()) + 1)
            self._compare(queue, position[rows], ordinals, *(column[rows] for column in columns))

    def _compare(
        self, queue: _Queue, position: Column, ordinals: Column, size: Column, tags: Column, times: Column
    ) -> None:
        due = position < self._built
        queue.first = min(queue.first if queue.first is not None else 2**63, int(ordinals.min()))
        if due.any():
            queue.end = max(queue.end, int(ordinals[due].max()) + 1)
        if self._broken:
            return
        try:
            units = units_at(queue.units, ordinals)
        except CorruptFile as err:
            self._report_unreadable(err)
            return
        at = np.searchsorted(units["offset"], ordinals)
        there = at < len(units)
        there[there] = units["offset"][at[there]] == ordinals[there]
        same = there.copy()
        same[there] = units["physical"][at[there]] == position[there]
        queue.matched += int(same.sum())

        def report(code: str, rows: Column, expected: Column, field: str) -> None:
            def detail(i: int) -> dict[str, Any]:
                row = rows[i]
                actual = int(units[field][at[row]])
                return {"queueOffset": int(ordinals[row]), "expected": int(expected[row]), "actual": actual}

            self.ctx.found.many(code, self._place, len(rows), detail, **self._about(queue))

        late = np.flatnonzero(~same & ~due)
        if len(late):
            queue.behind += len(late)
            if queue.first_behind is None:
                queue.first_behind = int(ordinals[late[0]])
        if not queue.files and self._topics.is_gone(queue.units.topic):
            queue.newest = max(queue.newest, int(times.max()))
        missing, other = np.flatnonzero(~there & due), np.flatnonzero(there & ~same & due)
        if len(missing):
            queue.wrong.append(_Wrong(ordinals[missing], position[missing], None))
        if len(other):
            queue.wrong.append(_Wrong(ordinals[other], position[other], units["physical"][at[other]]))
        compared = {"size": size, "time": times} | ({} if queue.units.topic == _DELAY_TOPIC else {"tags": tags})
        for field, expected in compared.items():
            rows = np.flatnonzero(same)
            report(f"rcq-{field}", rows[units[field][at[rows]] != expected[rows]], expected, field)

    def finish(self) -> Iterator[None]:
        """Report what is only known after the whole log has been read."""
        if not self._broken:
            try:
                self._check_notes()
                for topic, queue_id in rocks_queue_names(self.ctx.layout, units=True):
                    self._queue(topic, queue_id)
                if not self._is_second:
                    self._report_deleted()
                    settle(self.ctx, self._queues, self.ctx.queues_seen.deleted)
                for key in sorted(self._queues):
                    if key[0] not in self.ctx.queues_seen.deleted:
                        self._report_wrong(self._queues[key])
                        self._finish_queue(self._queues[key])
                    yield
            except CorruptFile as err:
                self._report_unreadable(err)
        if self._broken:
            for queue in self._queues.values():
                self._report_wrong(queue)
        for (topic, queue_id), queue in sorted(self._queues.items()):
            if queue.behind and topic not in self.ctx.queues_seen.deleted:
                self.ctx.found.add(
                    "rcq-behind", self._place, count=queue.behind, queueOffset=queue.first_behind, **queue.about
                )
            if self._is_second and not is_light(topic):
                continue
            ends = self.ctx.queues_seen.ends
            ends[topic, queue_id] = max(ends.get((topic, queue_id), 0), queue.next_ordinal or 0)

    def _report_deleted(self) -> None:
        """Report deleted topics: their messages have no units, and need none."""
        topics: dict[str, list[_Queue]] = {}
        for (topic, _queue_id), queue in sorted(self._queues.items()):
            if queue.newest:
                topics.setdefault(topic, []).append(queue)
        for topic, queues in topics.items():
            if all(queue.newest <= self._topics.changed for queue in queues):
                self.ctx.queues_seen.deleted.add(topic)
                for queue in queues:
                    queue.restore()
                again = sum(queue.behind for queue in queues)
                count = again + sum(len(wrong.queue_offset) for queue in queues for wrong in queue.wrong)
                add_deleted(self.ctx.found, topic, count, again)

    def _report_wrong(self, queue: _Queue) -> None:
        """Report messages without their unit."""
        wrong, queue.wrong = queue.wrong, []
        for units in wrong:
            code = "rcq-missing" if units.actual is None else "rcq-other"
            self.ctx.found.many(code, self._place, len(units.queue_offset), units.describe, **self._about(queue))

    def _check_notes(self) -> None:
        wrong = 0
        for key, value in self._database.items(OFFSETS):
            try:
                parse_offset_key(key)
                (parse_built if key == CHECKPOINT_KEY else parse_offset)(value)
            except FormatError:
                wrong += 1
        if wrong:
            self.ctx.found.add("rcq-note", self._place, count=wrong)
        if self._built > self.ctx.log_seen.end:
            expected = f"at most {self.ctx.log_seen.end}"
            self.ctx.found.add("rcq-ahead", self._place, expected=expected, actual=self._built)

    def _finish_queue(self, queue: _Queue) -> None:
        ctx, units = self.ctx, queue.units
        seen, low = ctx.queues_seen, units.min_offset(ctx.log.min_offset)
        key = units.topic, units.queue_id
        is_first = not self._is_second or is_light(units.topic)
        if is_first:
            seen.ends[key], seen.begins[key] = units.max_offset, low
        if is_first and units.topic == _DELAY_TOPIC and (first := units.unit(low)) is not None:
            seen.first_due[units.queue_id + 1] = first.tags_code
            seen.first_delayed[units.queue_id + 1] = first.physical_offset
        self._check_end(queue)
        recorded = units.first
        if recorded is not None and recorded.physical_offset >= ctx.log.min_offset and queue.first is not None:
            hidden = recorded.queue_offset > queue.first
            if hidden or (recorded.queue_offset < queue.first and units.unit(recorded.queue_offset) is None):
                count = recorded.queue_offset - queue.first if hidden else 1
                severity = {"severity": "error"} if hidden else {}
                ctx.found.add("rcq-begin", self._place, count=count, expected=queue.first, actual=recorded.queue_offset,
                              **{**severity, **self._about(queue)})  # fmt: skip
        live = sum(unit.physical_offset >= ctx.log.min_offset for _offset, unit in units.units(low))
        if live > queue.matched:
            self._report_strangers(queue, low)

    def _check_end(self, queue: _Queue) -> None:
        last, about = queue.units.last, self._about(queue)

        def add(**more: Any) -> None:
            self.ctx.found.add("rcq-end", self._place, **more, **about)

        if last is None:
            if queue.end:
                add(count=queue.end, expected=queue.end - 1, actual="none")
            return
        unit = queue.units.unit(last.queue_offset)
        if queue.end > last.queue_offset + 1:
            count = queue.end - last.queue_offset - 1
            add(count=count, expected=queue.end - 1, actual=last.queue_offset)
        elif unit is None and last.physical_offset >= self.ctx.log.min_offset:
            add(expected=max(queue.end - 1, 0), actual=f"{last.queue_offset}, where no unit is")

    def _report_strangers(self, queue: _Queue, low: int) -> None:
        """Report units that point to no message of the queue, examining each by itself."""
        topic = queue.units.topic.encode("utf-8", "surrogateescape")
        for offset, unit in queue.units.units(low):
            if unit.physical_offset < self.ctx.log.min_offset:
                continue
            item = self.ctx.log.look(unit.physical_offset, crc=False)
            if isinstance(item, Damage):
                actual = f"physical offset {unit.physical_offset}: {item.reason}"
            elif is_light(queue.units.topic) or (
                (item.record.topic, item.record.queue_id) == (topic, queue.units.queue_id)
                and item.record.queue_offset == offset
            ):
                continue
            else:
                name = item.record.topic.decode("utf-8", "replace")
                actual = f"{name} {item.record.queue_id}, queue offset {item.record.queue_offset}"
            self.ctx.found.add("rcq-no-message", self._place, queueOffset=offset, actual=actual, **self._about(queue))
