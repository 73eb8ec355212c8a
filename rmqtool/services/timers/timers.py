"""Timer messages of 5.x that are waiting in the wheel or the timeline, and in the queue in front of it.

Source: store.timer.TimerMessageStore; store-engine 7. The timeline: store.timer.rocksdb.Timeline,
TimerMessageRocksDBStore (5.5.0); releases-5.4-5.5 5.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from formats.message.properties import KEYS, REAL_QID, REAL_TOPIC, parse
from formats.variants import timer
from formats.variants.message_store import PLACE
from rmqtool.errors import CorruptFile, MissingRuntime, UnreadableStore
from rmqtool.services.delays.delays import DelayedMessage, DelayLevel
from rmqtool.services.lookup.configs import Warn
from rmqtool.services.lookup.queue_messages import TopicQueues
from rmqtool.services.timers.plain import LEVEL, PlainTimers, plain_timers
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import PlainQueue
from rmqtool.store.queues.message_store import Timeline, timeline_of
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.queues.timer.heads import lead_to_records
from rmqtool.store.queues.timer.messages import (
    TimerMessage,
    in_the_wheel,
    messages_from,
    not_in_the_wheel,
    number_of,
    recalls_by_topic,
    records_at,
)
from rmqtool.store.queues.timer.waiting import Waiting, find_waiting
from rmqtool.words import counted

if TYPE_CHECKING:
    from formats.arrays import Array

_AT_ONCE = 1 << 15  # units


class _Batch(NamedTuple):
    """The messages of some units.

    Attributes:
        many: ordinary messages.
        others: (unit number, message) of the other messages, ascending.
        lost: number of units without a message.
    """

    many: PlainTimers
    others: list[tuple[int, DelayedMessage]]
    lost: int

    def merge(self, *, due_only: bool) -> Iterator[DelayedMessage | PlainTimers]:
        """All messages in the order of their units."""
        done = 0
        for number, row in self.others:
            if row.due or not due_only:
                before = int(np.searchsorted(self.many.numbers, number))
                if done < before:
                    yield self.many.take(slice(done, before))
                    done = before
                yield row
        if done < len(self.many):
            yield self.many.take(slice(done, None)) if done else self.many


def open_timers(log: CommitLog, now: int, warn: Warn, topics: TopicQueues | None = None) -> "Timers":
    """The timer of a store, in files or in RocksDB; arguments as of :class:`Timers`."""
    try:
        timeline = timeline_of(log.layout)
    except (CorruptFile, MissingRuntime, UnreadableStore) as err:
        warn(f"{err}: timer messages in it are missing")
        timeline = None
    return Timers(log, now, warn, topics) if timeline is None else TimelineTimers(timeline, log, now, warn, topics)


class Timers:
    """The timer of one store, in files.

    Args:
        now: the time that decides what is due, ms.
        topics: the store's queues, if already listed.
    """

    _form = "timer wheel"

    def __init__(self, log: CommitLog, now: int, warn: Warn, topics: TopicQueues | None = None) -> None:
        self.log, self.now, self.warn = log, now, warn
        self._by_topic = recalls_by_topic(log.layout)
        self.files = TimerFiles(log.layout.passing_over())
        self.queue: PlainQueue | None = (topics or TopicQueues(log.layout)).one(timer.TOPIC, timer.QUEUE_ID)

    @property
    def present(self) -> bool:
        """Whether the store has a timer, or messages for one."""
        return self.queue is not None or self.files.present

    @cached_property
    def _wheel(self) -> Waiting:
        if self.files.wheel is None and len(self.files.wheel_bytes):
            self.warn(f"timerwheel: {len(self.files.wheel_bytes)} bytes, not {timer.WHEEL_SIZE}: not used")
        ignored = self.files.layout.passed or {}
        for reason in ignored.values():
            self.warn(f"{reason}: as if it were missing")
        if self.files.checkpoint is None and self.files.checkpoint_path not in ignored:
            self.warn(
                "config/timercheck: missing or too short: what was delivered is not known, and a broker would deliver "
                "every timer message of the log again"
            )
        wheel = find_waiting(self.files)
        lost = len(wheel.outside) + len(wheel.broken)
        if lost:
            self.warn(f"timer wheel: {lost} links lead to no unit of the timer log (see check)")
        return wheel

    def messages(self) -> Iterator[TimerMessage]:
        """Delete marks and messages; one warning counts units without a message."""
        numbers, seen = np.arange(len(self._wheel.position)), 0
        for _number, message in in_the_wheel(self.log, self._wheel, numbers):
            seen += 1
            yield message
        self._warn_of_lost(len(numbers) - seen)
        yield from not_in_the_wheel(self.log, self.queue, self.files, self._wheel)

    def _warn_of_lost(self, count: int) -> None:
        if count:
            self.warn(f"timer log: {counted(count, 'unit')} without a message: passed over")

    @cached_property
    def _current_slot(self) -> int:
        """Time of the current slot, ms: the wheel moves to a slot once its time is over."""
        return self.now // self.files.precision * self.files.precision

    def _plain(self) -> "Array":
        """Which units are surely ordinary messages still to come, without reading them; bool of shape (units,)."""
        plain = self._in_future_slots
        plain[plain] = lead_to_records(self.log, self._wheel.units[plain])
        return plain

    @property
    def _in_future_slots(self) -> "Array":
        """Which units are in future slots without recalls, so that their time is the slot's; bool of shape (units,)."""
        wheel = self._wheel
        marked = [time for time, _key in self._recalled]
        future = wheel.slot_time >= self._current_slot
        return future & ~(wheel.rolled | wheel.deletes) & ~np.isin(wheel.slot_time, marked)

    @cached_property
    def _recalled(self) -> set[tuple[int, str | None]]:
        """(time of the slot, key in the mark) of every recalled message."""
        marks = (message for _number, message in in_the_wheel(self.log, self._wheel, self._wheel.deletes.nonzero()[0]))
        coming = not_in_the_wheel(self.log, self.queue, self.files, self._wheel)
        return {(message.fires, message.mark) for message in chain(marks, coming) if message.mark is not None}

    def pending(self, *, due_only: bool = False, chosen: "Array | None" = None) -> Iterator[DelayedMessage]:
        """Waiting messages in slot order, including recalled ones, which are never due.

        Messages not yet in the wheel come last.

        Args:
            chosen: numbers of the units to read; default: all.
        """
        for item in self.blocks(due_only=due_only, chosen=chosen):
            if isinstance(item, PlainTimers):
                yield from item.rows()
            else:
                yield item

    def blocks(
        self, *, due_only: bool = False, chosen: "Array | None" = None
    ) -> "Iterator[DelayedMessage | PlainTimers]":
        """As :meth:`pending`, with ordinary messages in columns."""
        wheel = self._wheel
        plain = np.zeros(len(wheel.position), bool)
        if chosen is None:
            chosen = np.arange(len(plain))
            if due_only:
                chosen = np.flatnonzero(~self._plain())  # ordinary messages are not due yet
            else:
                plain = self._in_future_slots
        lost = 0
        for some in self._read(chosen, plain):
            lost += some.lost
            yield from some.merge(due_only=due_only)
        self._warn_of_lost(lost)
        for message in not_in_the_wheel(self.log, self.queue, self.files, wheel):
            row = self._row(message)
            if row is not None and (row.due or not due_only):
                yield row

    def _read(self, chosen: "Array", plain: "Array") -> Iterator["_Batch"]:
        """The messages of units, in batches and in order; a thread reads the next batch ahead."""

        def read(first: int) -> _Batch:
            numbers = chosen[first : first + _AT_ONCE]
            many = plain_timers(self.log, self._wheel, numbers[plain[numbers]])
            others = numbers[~np.isin(numbers, many.numbers)]
            in_wheel = [(number, self._row(message)) for number, message in in_the_wheel(self.log, self._wheel, others)]
            rows = [(number, row) for number, row in in_wheel if row is not None]
            return _Batch(many, rows, len(others) - len(in_wheel))

        with ThreadPoolExecutor(1, "rmqtool-timers") as beside:
            ahead: Future[_Batch] | None = None
            for first in range(0, len(chosen), _AT_ONCE):
                some = read(first) if ahead is None else ahead.result()
                if first + _AT_ONCE < len(chosen):
                    ahead = beside.submit(read, first + _AT_ONCE)
                yield some

    def _recall_key(self, message: TimerMessage) -> str | None:
        """The key in a mark that recalls this message."""
        return message.recall_key(by_topic=self._by_topic)

    def _row(self, message: TimerMessage) -> DelayedMessage | None:
        """The message as a row; None for a mark."""
        if message.mark is not None:
            return None
        record, properties = message.record, message.properties
        deliver = message.deliver_time
        is_recalled = (message.fires, self._recall_key(message)) in self._recalled
        time = message.fires if deliver is None else deliver
        current = self._current_slot
        return DelayedMessage(
            level=LEVEL,
            queueOffset=record.queue_offset,
            physicalOffset=message.physical_offset,
            deliverTimestamp=time,
            storeTimestamp=record.store_timestamp,
            topic=properties.get(REAL_TOPIC),
            queueId=number_of(properties.get(REAL_QID)),
            msgId=message.key,
            keys=properties.get(KEYS),
            reconsumeTimes=record.reconsume_times,
            due=message.fires < current and time < current and not (is_recalled or message.unusable),
            kind="timer",
            fireTimestamp=message.fires,
            rolled=bool(message.magic & timer.MAGIC_ROLL),
            recalled=is_recalled,
        )

    @property
    def _next_to_enqueue(self) -> int | None:
        """Next queue offset that the timer will enqueue; None if unknown."""
        point = self.files.checkpoint
        return point.last_timer_queue_offset if point is not None else None

    def row(self) -> DelayLevel:
        """The timer shown as delay level 0."""
        due = recalled = rolled = 0
        plain = self._plain()
        pending, slots = int(plain.sum()), self._wheel.slot_time[plain]
        times: list[int] = [int(slots[0]), int(slots[-1])] if pending else []  # the first and the last
        for message in self.pending(chosen=np.flatnonzero(~plain)):
            recalled += message.recalled
            if message.recalled:
                continue
            pending += 1
            due += message.due
            rolled += message.rolled
            times = [min([*times[:1], message.deliverTimestamp]), max([*times[1:], message.deliverTimestamp])]
        low = self.queue.min_offset(self.log.min_offset) if self.queue is not None else 0
        high = self.queue.max_offset if self.queue is not None else 0
        notes = [self._form]
        notes += [f"{recalled} recalled"] if recalled else []
        notes += [f"{rolled} to be moved on when their slots fire"] if rolled else []
        return DelayLevel(
            level=LEVEL,
            queueId=timer.QUEUE_ID,
            delay=None,
            minOffset=low,
            maxOffset=high,
            deliveredOffset=self._next_to_enqueue,
            delivered=max(high - low - pending - recalled, 0),
            pending=pending,
            due=due,
            firstDeliverTimestamp=times[0] if times else None,
            lastDeliverTimestamp=times[-1] if times else None,
            note="; ".join(notes),
            kind="timer",
            recalled=recalled,
            rolled=rolled,
        )


class TimelineTimers(Timers):
    """The timer of a store whose broker keeps waiting messages in RocksDB (``timerRocksDBEnable``).

    The database has no marks: a recalled message is deleted from it.
    """

    _form = "timeline in RocksDB"

    def __init__(
        self, timeline: Timeline, log: CommitLog, now: int, warn: Warn, topics: TopicQueues | None = None
    ) -> None:
        super().__init__(log, now, warn, topics)
        self._timeline = timeline
        if timeline.delivered is None and timeline.scanned == 0 and self.queue is not None:
            warn(
                f"{PLACE}: what was delivered is not known, and a broker would deliver every timer message of the log "
                "whose time has come again"
            )

    @property
    def present(self) -> bool:
        return True

    @property
    def _next_to_enqueue(self) -> int | None:
        return self._timeline.scanned

    def _plain(self) -> "Array":
        return np.zeros(0, bool)

    @cached_property
    def _messages(self) -> list[TimerMessage]:
        """Messages of the database by delivery time, then messages and marks that are not in it yet."""
        units = list(self._timeline.units(self.warn))
        messages = []
        for number, record in records_at(self.log, [unit.physical_offset for unit in units]):
            unit = units[number]
            if record.topic == timer.TOPIC.encode() and record.total_size == unit.size:
                properties = parse(record.properties)
                messages.append(TimerMessage(unit.physical_offset, record, properties, unit.deliver_time, 0))
        self._warn_of_lost(len(units) - len(messages))
        known = np.array([message.physical_offset for message in messages], np.int64)
        if self.queue is not None:
            low = self.queue.min_offset(self.log.min_offset)
            start = min(max(self._timeline.scanned, low), self.queue.max_offset)
            messages += messages_from(self.log, self.queue, start, known, self.files.precision)
        return messages

    @cached_property
    def _recalled(self) -> set[tuple[int, str | None]]:
        # the topic in a mark, before the unique key, is ignored
        marks = ((message.fires, message.mark) for message in self._messages)
        return {(fires, mark[mark.find("+") + 1 :]) for fires, mark in marks if mark is not None}

    def _recall_key(self, message: TimerMessage) -> str | None:
        return message.key

    def messages(self) -> Iterator[TimerMessage]:
        yield from self._messages

    def blocks(
        self, *, due_only: bool = False, chosen: "Array | None" = None
    ) -> "Iterator[DelayedMessage | PlainTimers]":
        for message in self._messages:
            row = self._row(message)
            if row is not None and (row.due or not due_only):
                yield row
