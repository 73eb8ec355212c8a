"""Timer messages of 5.x: what waits in the wheel, and in the queue before it.

Source: store.timer.TimerMessageStore; store-engine 7.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from formats.message.properties import KEYS, REAL_QID, REAL_TOPIC, UNIQ_KEY, parse_raw
from formats.variants import timer
from rmqtool.services.lookup.configs import Warn
from rmqtool.services.lookup.queue_messages import TopicQueues
from rmqtool.services.waiting.delay import DelayedMessage, DelayLevel
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import PlainQueue
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.queues.timer.heads import plain_heads
from rmqtool.store.queues.timer.messages import TimerMessage, in_the_wheel, lead_to_records, not_in_the_wheel, number_of
from rmqtool.store.queues.timer.waiting import Waiting, waiting

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]

LEVEL = 0  # of no delay level, as brokers say it
_AT_ONCE = 1 << 13  # units
_HEAD_FIELDS = ("queue_offset", "physical_offset", "store_timestamp", "reconsume_times")


class Timers:
    """The timer of one store.

    Args:
        now: the time at which "due" is meant, ms.
        topics: the store's queues, where they have been listed already.
    """

    def __init__(self, log: CommitLog, now: int, warn: Warn, topics: TopicQueues | None = None) -> None:
        self.log, self.now, self.warn = log, now, warn
        self.files = TimerFiles(log.layout)
        self.queue: PlainQueue | None = (topics or TopicQueues(log.layout)).one(timer.TOPIC, timer.QUEUE_ID)

    @property
    def present(self) -> bool:
        """Whether the store has a timer, or messages for one."""
        return self.queue is not None or self.files.present

    @cached_property
    def _found(self) -> Waiting:
        if self.files.wheel is None and len(self.files.wheel_bytes):
            self.warn(f"timerwheel: {len(self.files.wheel_bytes)} bytes, not {timer.WHEEL_SIZE}: not used")
        if self.files.checkpoint is None:
            self.warn(
                "config/timercheck: missing or too short: what was delivered is not known, and a broker would deliver "
                "every timer message of the log again"
            )
        found = waiting(self.files)
        lost = len(found.outside) + len(found.broken)
        if lost:
            self.warn(f"timer wheel: {lost} links lead to no unit of the timer log (see check)")
        return found

    def messages(self) -> Iterator[TimerMessage]:
        """Marks and messages; one warning tells of units without a message."""
        numbers, seen = np.arange(len(self._found.position)), 0
        for _number, message in in_the_wheel(self.log, self._found, numbers):
            seen += 1
            yield message
        self._warn_of_lost(len(numbers) - seen)
        yield from not_in_the_wheel(self.log, self.queue, self.files, self._found)

    def _warn_of_lost(self, count: int) -> None:
        if count:
            self.warn(f"timer log: {count} units without a message: passed over")

    @cached_property
    def _passed(self) -> int:
        """Time of the slot that is not over yet, ms: the wheel turns to a slot when its time is over."""
        return self.now // self.files.precision * self.files.precision

    def _plain(self) -> "Array":
        """Which units lead to messages of which nothing more is to be known: the bool array of shape (units,).

        Their slots are still to come and hold nothing that recalls, and their times are those of their slots.
        """
        found = self._found
        marked = [time for time, _key in self._recalled]
        plain = (found.slot_time >= self._passed) & ~(found.rolled | found.deletes) & ~np.isin(found.slot_time, marked)
        plain[plain] = lead_to_records(self.log, found.units[plain])
        return plain

    @cached_property
    def _recalled(self) -> set[tuple[int, str | None]]:
        """(time of the slot, topic and unique key) of every message that is recalled."""
        marks = (message for _number, message in in_the_wheel(self.log, self._found, self._found.deletes.nonzero()[0]))
        coming = not_in_the_wheel(self.log, self.queue, self.files, self._found)
        return {(message.fires, message.mark) for message in chain(marks, coming) if message.mark is not None}

    def pending(self, *, due_only: bool = False, chosen: "Array | None" = None) -> Iterator[DelayedMessage]:
        """Messages that wait, in the order of their slots; those that are recalled too, which are never due.

        Those that the wheel does not have yet come last.

        Args:
            chosen: numbers of the units that are looked at; all of them by default.
        """
        plain = self._plain() if chosen is None else np.zeros(len(self._found.position), bool)
        chosen = np.arange(len(plain)) if chosen is None else chosen
        if due_only:
            chosen = chosen[~plain[chosen]]  # the time of the plain ones is still to come
        lost = 0
        for first in range(0, len(chosen), _AT_ONCE):
            numbers = chosen[first : first + _AT_ONCE]
            rows: dict[int, DelayedMessage | None] = dict(self._plain_rows(numbers[plain[numbers]]))
            others = np.array([number for number in numbers.tolist() if number not in rows], np.int64)
            rows.update((number, self._row(one)) for number, one in in_the_wheel(self.log, self._found, others))
            lost += len(numbers) - len(rows)
            for number in numbers.tolist():
                row = rows.get(number)
                if row is not None and (row.due or not due_only):
                    yield row
        self._warn_of_lost(lost)
        for message in not_in_the_wheel(self.log, self.queue, self.files, self._found):
            row = self._row(message)
            if row is not None and (row.due or not due_only):
                yield row

    def _row(self, message: TimerMessage) -> DelayedMessage | None:
        """None for a mark."""
        if message.mark is not None:
            return None
        record, properties = message.record, message.properties
        deliver = message.deliver_time
        taken_back = (message.fires, message.recall_key) in self._recalled
        time = message.fires if deliver is None else deliver
        passed = self._passed
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
            due=message.fires < passed and time < passed and not (taken_back or message.unusable),
            kind="timer",
            fireTimestamp=message.fires,
            rolled=bool(message.magic & timer.MAGIC_ROLL),
            recalled=taken_back,
        )

    def _plain_rows(self, numbers: "Array") -> Iterator[tuple[int, DelayedMessage]]:
        """(number of the unit, row) of plain units, as :meth:`_row` has them; some may be left out."""
        names = (timer.OUT_MS, REAL_TOPIC, REAL_QID, UNIQ_KEY, KEYS)
        out_ms, real_topic, real_id, unique, keys = (name.encode() for name in names)
        mark = timer.DELETE_KEY.encode()
        for found in plain_heads(self.log, self._found.units, numbers):
            columns = (
                *(found.heads[name].tolist() for name in _HEAD_FIELDS), self._found.slot_time[found.numbers].tolist()
            )  # fmt: skip
            for number, stored, *head, fires in zip(found.numbers.tolist(), found.properties, *columns, strict=True):
                properties = parse_raw(stored)
                deliver = number_of(_text(properties.get(out_ms)))
                if deliver is None or mark in properties:
                    continue
                queue_offset, physical_offset, store_timestamp, reconsume_times = head
                yield (
                    number,
                    DelayedMessage(
                        level=LEVEL,
                        queueOffset=queue_offset,
                        physicalOffset=physical_offset,
                        deliverTimestamp=deliver,
                        storeTimestamp=store_timestamp,
                        topic=_text(properties.get(real_topic)),
                        queueId=number_of(_text(properties.get(real_id))),
                        msgId=_text(properties.get(unique)),
                        keys=_text(properties.get(keys)),
                        reconsumeTimes=reconsume_times,
                        due=False,
                        kind="timer",
                        fireTimestamp=fires,
                    ),
                )

    def row(self) -> DelayLevel:
        """The timer as one more level, number 0."""
        due = recalled = rolled = 0
        plain = self._plain()
        pending, slots = int(plain.sum()), self._found.slot_time[plain]
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
        point = self.files.checkpoint
        notes = ["timer wheel"]
        notes += [f"{recalled} recalled"] if recalled else []
        notes += [f"{rolled} to be moved on when their slots fire"] if rolled else []
        return DelayLevel(
            level=LEVEL,
            queueId=timer.QUEUE_ID,
            delay=None,
            minOffset=low,
            maxOffset=high,
            deliveredOffset=point.last_timer_queue_offset if point is not None else None,
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


def _text(value: bytes | None) -> str | None:
    """A property's value, as Java reads it."""
    return value.decode("utf-8", "replace") if value is not None else None
