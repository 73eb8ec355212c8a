"""Timer messages of 5.x: what waits in the wheel, and in the queue before it.

Source: store.timer.TimerMessageStore; store-engine 7.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import chain

from formats.message.properties import KEYS, REAL_QID, REAL_TOPIC
from formats.variants import timer
from rmqtool.services.lookup.configs import Warn
from rmqtool.services.lookup.queue_messages import TopicQueues
from rmqtool.services.waiting.delay import DelayedMessage, DelayLevel
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import PlainQueue
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.queues.timer.messages import TimerMessage, in_the_wheel, not_in_the_wheel, number_of
from rmqtool.store.queues.timer.waiting import Waiting, waiting

LEVEL = 0  # of no delay level, as brokers say it


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
        seen = 0
        for _number, message in in_the_wheel(self.log, self._found):
            seen += 1
            yield message
        if seen < len(self._found.position):
            self.warn(f"timer log: {len(self._found.position) - seen} units without a message: passed over")
        yield from not_in_the_wheel(self.log, self.queue, self.files, self._found)

    @cached_property
    def _recalled(self) -> set[tuple[int, str]]:
        """(time of the slot, unique key) of every message that is recalled."""
        marks = (message for _number, message in in_the_wheel(self.log, self._found, self._found.deletes.nonzero()[0]))
        coming = not_in_the_wheel(self.log, self.queue, self.files, self._found)
        return {(message.fires, message.mark) for message in chain(marks, coming) if message.mark is not None}

    def pending(self, *, due_only: bool = False) -> Iterator[DelayedMessage]:
        """Messages that wait, in the order of their slots; those that are recalled too, which are never due.

        Those that the wheel does not have yet come last.
        """
        recalled = self._recalled
        # the wheel turns to a slot when its time is over
        passed = self.now // self.files.precision * self.files.precision
        for message in self.messages():
            if message.mark is not None:
                continue
            record, properties = message.record, message.properties
            deliver = message.deliver_time
            taken_back = (message.fires, message.key) in recalled
            time = message.fires if deliver is None else deliver
            due = message.fires < passed and time < passed and not (taken_back or message.unusable)
            if due_only and not due:
                continue
            yield DelayedMessage(
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
                due=due,
                kind="timer",
                fireTimestamp=message.fires,
                rolled=bool(message.magic & timer.MAGIC_ROLL),
                recalled=taken_back,
            )

    def row(self) -> DelayLevel:
        """The timer as one more level, number 0."""
        pending = due = recalled = rolled = 0
        times: list[int] = []  # the first and the last
        for message in self.pending():
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
