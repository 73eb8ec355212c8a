"""The messages waiting in the timer: those in the wheel, and those in the queue that are not in the wheel yet.

Source: store.timer.TimerMessageStore (enqueue, dequeue).
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from formats.message.properties import REAL_QID, REAL_TOPIC, UNIQ_KEY, parse
from formats.message.read import Record
from formats.variants import timer
from rmqtool.store.config.release import release_of
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import PlainQueue
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.queues.timer.start import message_of_last_unit, units_are_gone
from rmqtool.store.queues.timer.waiting import Waiting

if TYPE_CHECKING:
    from formats.arrays import Array

_TOPIC = timer.TOPIC.encode()
_WINDOW = 16 << 20  # bytes of the log read before their pages are released
_MOST = 2**63 - 1
_LONGEST = 64  # digits, with leading zeros


class TimerMessage(NamedTuple):
    """One message of the timer topic.

    Attributes:
        fires: time at which the wheel reads its slot, ms; if it is not in the wheel yet, when that will be.
        magic: magic of its unit in the timer log; 0 if it is not in the wheel yet.
    """

    physical_offset: int
    record: Record
    properties: dict[str, str]
    fires: int
    magic: int

    @property
    def deliver_time(self) -> int | None:
        """When it is to be delivered, ms, however often it is rolled before; None if the message does not say."""
        return number_of(self.properties.get(timer.OUT_MS))

    @property
    def mark(self) -> str | None:
        """For a recall, the unique key of the recalled message (in 5.3 with its topic before it); else None."""
        return self.properties.get(timer.DELETE_KEY)

    @property
    def unusable(self) -> str | None:
        """The flaw in its properties at which a broker stops, delivering nothing after it; None if there is none."""
        if self.deliver_time is None:
            return f"{timer.OUT_MS} {_describe(self.properties.get(timer.OUT_MS))}"
        if not self.properties.get(REAL_TOPIC):
            return f"no {REAL_TOPIC}"
        queue_id = number_of(self.properties.get(REAL_QID))
        if queue_id is None or not -(2**31) <= queue_id < 2**31:
            return f"{REAL_QID} {_describe(self.properties.get(REAL_QID))}"
        return None

    @property
    def key(self) -> str | None:
        """Its unique key."""
        return self.properties.get(UNIQ_KEY)

    def recall_key(self, *, by_topic: bool) -> str | None:
        """The key of a recall of this message; None if it has no unique key.

        Args:
            by_topic: see :func:`recalls_by_topic`.
        """
        if self.key is None:
            return None
        return build_recall_key(self.properties.get(REAL_TOPIC), self.key, by_topic=by_topic)


def build_recall_key(topic: str | None, unique_key: str, *, by_topic: bool) -> str:
    """The key of a recall for a message (``TimerMessageStore.buildDeleteKey``)."""
    return f"{topic}+{unique_key}" if by_topic else unique_key


def recalls_by_topic(layout: StoreLayout) -> bool:
    """Whether recalls contain the topic before the unique key, by the rules of the store's release."""
    return release_of(layout).recalls_by_topic or layout.conf.flag("appendTopicForTimerDeleteKey", False)


def number_of(text: str | None) -> int | None:
    """Parse a property like ``Long.parseLong``, ASCII digits only; None if that fails."""
    if not text or len(text) > _LONGEST:
        return None
    digits = text[1:] if text[0] in "+-" else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    number = int(text)
    return number if -_MOST - 1 <= number <= _MOST else None


def _describe(text: str | None) -> str:
    return "is missing" if text is None else f"is {text[:40]!r}"


def in_the_wheel(log: CommitLog, waiting: Waiting, chosen: "Array | None" = None) -> Iterator[tuple[int, TimerMessage]]:
    """(number of the unit, message) of every unit that points to a message of the timer topic, in the order of units.

    Args:
        chosen: numbers of the units to read; by default all.
    """
    if chosen is None:
        chosen = np.arange(len(waiting.position))
    numbers, units = chosen.tolist(), waiting.units[chosen]
    offsets, sizes, magics = (units[name].tolist() for name in ("physical_offset", "message_size", "magic"))
    fires = waiting.slot_time[chosen].tolist()
    for i, record in records_at(log, offsets):
        if record.topic == _TOPIC and record.total_size == sizes[i]:
            yield numbers[i], TimerMessage(offsets[i], record, parse(record.properties), fires[i], magics[i])


def not_in_the_wheel(
    log: CommitLog, queue: PlainQueue | None, files: TimerFiles, waiting: Waiting
) -> Iterator[TimerMessage]:
    """Messages after the queue offset in the checkpoint that are not in the wheel."""
    if queue is None:
        return
    known = waiting.units["physical_offset"].astype(np.int64)
    yield from messages_from(log, queue, start_of(log, queue, files), known, files.precision)


def messages_from(
    log: CommitLog, queue: PlainQueue, start: int, known: "Array", precision: int
) -> Iterator[TimerMessage]:
    """Messages of the timer's queue from a queue offset on.

    Args:
        known: physical offsets of messages to leave out; int64 of shape (messages,).
        precision: ms per slot of the wheel.
    """
    for _first, units in queue.runs(start):
        offsets = units["physical_offset"].astype(np.int64)
        offsets = offsets[~np.isin(offsets, known)].tolist()
        for number, record in records_at(log, offsets):
            if record.topic == _TOPIC:
                properties = parse(record.properties)
                out = number_of(properties.get(timer.OUT_MS)) or 0
                fires = out // precision * precision
                yield TimerMessage(offsets[number], record, properties, fires, 0)


def start_of(log: CommitLog, queue: PlainQueue, files: TimerFiles) -> int:
    """The queue offset from which on a start reads messages: that in the checkpoint; if units are gone, the one after
    the message of the last remaining unit."""
    point = files.checkpoint
    offset = min(point.last_timer_queue_offset, point.master_timer_queue_offset) if point is not None else 0
    if units_are_gone(files) and (last := message_of_last_unit(files, log, files.end, _MOST)) is not None:
        offset = min(offset, last[1] + 1)
    return min(max(offset, queue.min_offset(log.min_offset)), queue.max_offset)


def records_at(log: CommitLog, offsets: Iterable[int]) -> Iterator[tuple[int, Record]]:
    """(index, record) of each physical offset that has a record; body checksums are not verified."""
    read, last = 0, None
    for number, offset in enumerate(offsets):
        message = log.read(offset, crc=False)
        if message is None:
            continue
        if last is not None and last is not message.file:
            last.release()
            read = 0
        last, read = message.file, read + message.record.total_size
        if read >= _WINDOW:
            last.forget(0, last.size)
            read = 0
        yield number, message.record
    if last is not None:
        last.release()
