"""Delayed messages: one queue of the schedule topic per level, delivered in order from the level's saved offset.

Source: store.schedule.ScheduleMessageService; message-services 10.3, 10.4.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from formats.config.files import DelayOffsets
from formats.message.properties import KEYS, REAL_QID, REAL_TOPIC, UNIQ_KEY, split_keys
from formats.message.read import Record
from formats.queues.consume import EXT_BOUND, is_ext_address
from formats.topics import SCHEDULE
from rmqtool.contract import PlainRow
from rmqtool.services.lookup.configs import Warn, look_at_config
from rmqtool.services.lookup.queue_messages import TopicQueues, messages_of, warn_of_unbuilt
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import PlainQueue
from rmqtool.store.queues.reader import QueueEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayLevel(PlainRow):
    """One level of the table, and the progress of its queue. Times are ms since the epoch."""

    level: int
    queueId: int
    delay: int | None  # ms; None for a queue that no level of the table has
    minOffset: int | None  # None, here and below: not known
    maxOffset: int | None
    deliveredOffset: int | None  # from delayOffset.json: the next to deliver; None without an entry
    delivered: int | None  # messages already delivered
    pending: int | None
    due: int | None  # of those, messages that the broker would deliver at once
    firstDeliverTimestamp: int | None  # of the pending ones, in the order of the queue
    lastDeliverTimestamp: int | None
    note: str | None = None
    kind: str = "level"  # or "timer": the timer wheel of 5.x, level 0
    recalled: int | None = 0  # messages in the wheel that were recalled; not counted as pending
    rolled: int | None = 0  # pending ones whose slot fires before they are due, and that then move to another slot


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedMessage:
    """One message that waits for its time."""

    level: int
    queueOffset: int
    physicalOffset: int
    deliverTimestamp: int
    storeTimestamp: int
    topic: str | None  # its destination
    queueId: int | None
    msgId: str | None
    keys: str | None
    reconsumeTimes: int
    due: bool  # the broker would deliver it at once
    kind: str = "level"  # or "timer": in the timer wheel of 5.x, or on its way there; its level is 0
    fireTimestamp: int | None = None  # of a timer message: its slot of the wheel, ms
    rolled: bool = False  # moves to another slot when this one fires, as it is due later
    recalled: bool = False  # recalled, so never delivered

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        row: dict[str, Any] = dict(
            zip(_MESSAGE_FIELDS, _message_values(self), strict=True)
        )  # asdict() would deep-copy each value
        row["keys"] = split_keys(self.keys or "")
        return row


_MESSAGE_FIELDS = tuple(DelayedMessage.__dataclass_fields__)
_message_values = attrgetter(*_MESSAGE_FIELDS)


class Delays:
    """The levels of one store.

    Args:
        now: the time that decides what is due, ms.
        topics: the store's queues, if already listed.
        saved: next offset of each level, instead of those in ``delayOffset.json``.
    """

    def __init__(
        self,
        log: CommitLog,
        now: int,
        warn: Warn,
        topics: TopicQueues | None = None,
        saved: Mapping[int, int] | None = None,
    ) -> None:
        self.log, self.now, self.warn = log, now, warn
        self.millis = log.layout.conf.delay_levels
        if saved is None:
            file = look_at_config(log.layout, "delayOffset.json", warn)
            saved = file.offsets if isinstance(file, DelayOffsets) else {}
        self.saved = dict(saved)
        if topics is None:
            warn_of_unbuilt(log, warn)
        self.queues = {queue.queue_id: queue for queue in (topics or TopicQueues(log.layout)).of(SCHEDULE)}

    def delay(self, level: int) -> int | None:
        """Delay of a level in ms; None if there is no such level."""
        return self.millis[level - 1] if 0 < level <= len(self.millis) else None

    def start(self, level: int) -> int:
        """Queue offset from which a broker delivers: the saved one, clamped to the queue's range."""
        queue = self.queues.get(level - 1)
        if queue is None:
            return 0
        low = queue.min_offset(self.log.min_offset)
        return min(max(self.saved.get(level, 0), low), queue.max_offset)

    def levels(self) -> Iterator[DelayLevel]:
        """Every level of the table, and every queue beyond it that has messages or an offset."""
        numbers = {*range(1, len(self.millis) + 1), *(number + 1 for number in self.queues), *self.saved}
        for level in sorted(numbers):
            yield self._level(level)

    def _level(self, level: int) -> DelayLevel:
        queue, saved = self.queues.get(level - 1), self.saved.get(level)
        low = queue.min_offset(self.log.min_offset) if queue else 0
        high = queue.max_offset if queue else 0
        start = self.start(level)
        notes = []
        if saved is not None and queue is not None and saved != start:
            notes.append(f"saved offset {saved} is outside the queue: delivery begins at {start}")
        if saved is not None and queue is None and saved:
            notes.append(f"saved offset {saved}, but the queue is not there")
        if self.delay(level) is None and high > low:
            notes.append("no level of the table: never delivered (see --broker-conf: messageDelayLevel)")
        first = queue.entry(start) if queue and start < high else None
        last = queue.entry(high - 1) if queue and start < high else None
        return DelayLevel(
            level=level,
            queueId=level - 1,
            delay=self.delay(level),
            minOffset=low,
            maxOffset=high,
            deliveredOffset=saved,
            delivered=start - low,
            pending=high - start,
            due=self._due(queue, level, start) if queue else 0,
            firstDeliverTimestamp=self.deliver_time(level, first) if first else None,
            lastDeliverTimestamp=self.deliver_time(level, last) if last else None,
            note="; ".join(notes) or None,
        )

    def due(self, level: int) -> range:
        """Queue offsets of a level that the broker would deliver at once."""
        start, queue = self.start(level), self.queues.get(level - 1)
        return range(start, start + self._due(queue, level, start) if queue is not None else start)

    def next_time(self, level: int) -> int | None:
        """When the first pending message of a level may be delivered; None if there is none, or it never will be."""
        delay, queue = self.delay(level), self.queues.get(level - 1)
        start = self.start(level)
        entry = queue.entry(start) if queue is not None and start < queue.max_offset else None
        if entry is None or delay is None:
            return None
        time = self.deliver_time(level, entry)
        return time if time <= self.now + delay else self.now

    def deliver_time(self, level: int, entry: QueueEntry) -> int:
        """When a message is due, ms: by its queue entry, or with an extension by its store time.

        Source: ScheduleMessageService.DeliverDelayedMessageTimerTask (computeDeliverTimestamp).
        """
        return self._deliver_time(level, entry.tags_code, entry.physical_offset)

    def _deliver_time(self, level: int, code: int, physical_offset: int) -> int:
        if not is_ext_address(code):
            return code
        message = self.log.read(physical_offset, crc=False)
        return message.record.store_timestamp + (self.delay(level) or 0) if message is not None else self.now

    def _due(self, queue: PlainQueue, level: int, start: int) -> int:
        """The number of pending messages before the first that is not due yet."""
        delay, count = self.delay(level), 0
        if delay is None:
            return 0  # a broker has no task for it
        import numpy as np

        for _first, units in queue.runs(start):
            codes = units["tags_code"]
            if len(extended := np.flatnonzero(codes <= EXT_BOUND)):
                codes = codes.astype(np.int64)
                for row in extended.tolist():
                    place = int(units["physical_offset"][row])
                    codes[row] = time = self._deliver_time(level, int(codes[row]), place)
                    if self.now < time <= self.now + delay:
                        break  # later ones are not examined
            # a time further away than the level's delay is invalid: the broker delivers at once
            waits = (codes > self.now) & (codes <= self.now + delay)
            at = np.flatnonzero(waits)
            if len(at):
                return count + int(at[0])
            count += len(units)
        return count

    def pending(self, level: int | None = None, *, due_only: bool = False) -> Iterator[DelayedMessage]:
        """Messages not delivered yet, by level, in the order of delivery."""
        for number in sorted(self.queues):
            if level not in (None, number + 1):
                continue
            queue, ready = self.queues[number], self.due(number + 1)
            stop = ready.stop if due_only else None
            for entry, record, properties in messages_of(self.log, queue, self.warn, ready.start, stop):
                time = self.deliver_time(number + 1, entry)
                due = entry.queue_offset < ready.stop
                yield describe_delayed(record, properties, entry, level=number + 1, time=time, due=due)


def describe_delayed(
    record: Record, properties: Mapping[str, str], entry: QueueEntry, *, level: int, time: int, due: bool
) -> DelayedMessage:
    """A message in the queue of a delay level.

    Args:
        time: when it will be delivered, ms since the epoch.
        due: whether the broker would deliver it at once.
    """
    return DelayedMessage(
        level=level,
        queueOffset=entry.queue_offset,
        physicalOffset=entry.physical_offset,
        deliverTimestamp=time,
        storeTimestamp=record.store_timestamp,
        topic=properties.get(REAL_TOPIC),
        queueId=number_of(properties.get(REAL_QID)),
        msgId=properties.get(UNIQ_KEY),
        keys=properties.get(KEYS),
        reconsumeTimes=record.reconsume_times,
        due=due,
    )


def number_of(text: str | None) -> int | None:
    """The value of a decimal property of at most 18 digits, or None."""
    digits = (text or "").removeprefix("-")
    return int(text or "") if digits.isascii() and digits.isdigit() and len(digits) < 19 else None
