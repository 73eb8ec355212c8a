"""Delay levels of a live cluster."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from formats.topics import SCHEDULE, TIMER
from rmqtool.admin.live.questions import Node, Warn
from rmqtool.admin.live.queues import LiveQueue, LiveQueues
from rmqtool.contract import row_dict
from rmqtool.services.delays.delays import DelayedMessage, DelayLevel, describe_delayed


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDelayLevel(DelayLevel):
    """One level on one broker."""

    brokerName: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDelayedMessage(DelayedMessage):
    """One message that waits for its time, on one broker."""

    brokerName: str

    def to_dict(self) -> dict[str, object]:
        """The fields for machine output."""
        return {**DelayedMessage.to_dict(self), "brokerName": self.brokerName}


class LiveDelays:
    """The levels of all brokers. Which messages are due is found by reading few of them, as their times ascend.

    Args:
        now: the time that decides what is due, ms.
        say: called with what brokers do not report.
    """

    def __init__(self, queues: LiveQueues, now: int, say: Warn) -> None:
        self._queues, self._now = queues, now
        queues.load([SCHEDULE, TIMER])
        self._times: dict[tuple[LiveQueue, int], int | None] = {}  # of delivery, by queue offset
        if timers := [node.name for node in queues.nodes if queues.has(node, TIMER)]:
            say(f"{', '.join(timers)}: brokers do not report what waits in the timer of 5.x: null in machine output")

    def levels(self) -> Iterator[LiveDelayLevel]:
        """Every level of the table of each broker, every queue beyond it, and the timer if there is one."""
        queues = {(queue.node, queue.queue_id + 1): queue for queue in self._queues.queues_of(SCHEDULE)}
        self._read_times(queues.values())
        for node in self._queues.nodes:
            if node not in self._queues.delay_offsets or node not in self._queues.delays:
                continue  # already reported
            stored = self._queues.delay_offsets[node]
            numbers = {*range(1, len(self._queues.delays[node]) + 1), *stored}
            numbers |= {level for other, level in queues if other == node}
            for level in sorted(numbers):
                if self._queues.is_missing(SCHEDULE, node):
                    yield self._unknown(node, level)
                else:
                    yield self._level(node, level, queues.get((node, level)))
            if self._queues.has(node, TIMER):
                yield self._timer(node)

    def pending(self, level: int | None = None, *, due_only: bool = False) -> Iterator[LiveDelayedMessage]:
        """Messages not delivered yet, by broker and level, in the order of delivery."""
        queues = [queue for queue in self._queues.queues_of(SCHEDULE) if level in (None, queue.queue_id + 1)]
        self._read_times(queues)
        for queue in queues:
            start = self._queues.delivered_offset(queue)
            end = start + self._due(queue, start)
            for entry, record, properties in self._queues.messages(queue, start, end if due_only else None):
                message = describe_delayed(
                    record, properties, entry, level=queue.queue_id + 1, time=entry.tags_code,
                    due=entry.queue_offset < end,
                )  # fmt: skip
                yield LiveDelayedMessage(**row_dict(message), brokerName=queue.node.name)

    def _delay(self, node: Node, level: int) -> int | None:
        table = self._queues.delays.get(node, ())
        return table[level - 1] if 0 < level <= len(table) else None

    def _level(self, node: Node, level: int, queue: LiveQueue | None) -> LiveDelayLevel:
        stored = self._queues.delay_offsets[node].get(level)
        low, high = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
        start = self._queues.delivered_offset(queue) if queue is not None else 0
        delay = self._delay(node, level)
        notes = []
        if stored is not None and queue is not None and high and stored != start:
            notes.append(f"saved offset {stored} is outside the queue: delivery begins at {start}")
        if delay is None and high > low:
            notes.append("no level of the table: never delivered (messageDelayLevel)")
        return LiveDelayLevel(
            level=level,
            queueId=level - 1,
            delay=delay,
            minOffset=low,
            maxOffset=high,
            deliveredOffset=stored,
            delivered=start - low,
            pending=high - start,
            due=self._due(queue, start) if queue is not None else 0,
            firstDeliverTimestamp=self._time(queue, start) if queue is not None and start < high else None,
            lastDeliverTimestamp=self._time(queue, high - 1) if queue is not None and start < high else None,
            note="; ".join(notes) or None,
            brokerName=node.name,
        )

    def _timer(self, node: Node) -> LiveDelayLevel:
        queue = next((queue for queue in self._queues.queues_of(TIMER) if queue.node == node), None)
        row = replace(self._unknown(node, 0), queueId=0, kind="timer", recalled=None, rolled=None)
        return row if queue is None else replace(row, minOffset=queue.min_offset, maxOffset=queue.max_offset)

    def _unknown(self, node: Node, level: int) -> LiveDelayLevel:
        """A level whose queue the broker does not tell."""
        return LiveDelayLevel(
            level=level,
            queueId=level - 1,
            delay=self._delay(node, level),
            minOffset=None,
            maxOffset=None,
            deliveredOffset=self._queues.delay_offsets[node].get(level),
            delivered=None,
            pending=None,
            due=None,
            firstDeliverTimestamp=None,
            lastDeliverTimestamp=None,
            brokerName=node.name,
        )

    def _read_times(self, queues: Iterable[LiveQueue]) -> None:
        """Read the delivery times that show what waits and is due: the searches of all queues go step by step together.

        What a broker does not give is asked for once more when it is needed.
        """
        searches: dict[LiveQueue, tuple[int, int]] = {}
        places: list[tuple[LiveQueue, int]] = []
        for queue in queues:
            start = self._queues.delivered_offset(queue)
            if start < queue.max_offset:
                places += [(queue, start), (queue, queue.max_offset - 1)]
                if self._delay(queue.node, queue.queue_id + 1) is not None:
                    searches[queue] = start, queue.max_offset
        while places:
            answers = self._queues.pick(dict.fromkeys(places))
            for (queue, offset), record in answers.items():
                time = None if record is None else self._queues.message(queue, record).entry.tags_code
                self._times[queue, offset] = time
            for queue, offset in places:
                if (queue, offset) not in answers:
                    searches.pop(queue, None)
            searches = {queue: self._narrow(queue, *bounds) for queue, bounds in searches.items()}
            places = [(queue, (low + high) // 2) for queue, (low, high) in searches.items() if low < high]

    def _narrow(self, queue: LiveQueue, low: int, high: int) -> tuple[int, int]:
        """The bounds of the first message that is not due, as far as the times are known."""
        while low < high and (queue, middle := (low + high) // 2) in self._times:
            due = self._now >= (self._times[queue, middle] or 0)
            low, high = (middle + 1, high) if due else (low, middle)
        return low, high

    def _time(self, queue: LiveQueue, offset: int) -> int | None:
        if (queue, offset) in self._times:
            return self._times[queue, offset]
        message = self._queues.one(queue, offset)
        return message.entry.tags_code if message is not None else None

    def _due(self, queue: LiveQueue, start: int) -> int:
        """The number of pending messages before the first that is not due yet."""
        if self._delay(queue.node, queue.queue_id + 1) is None or start >= queue.max_offset:
            return 0  # a broker has no task for it
        offsets = range(start, queue.max_offset)
        return bisect_right(offsets, self._now, key=lambda offset: self._time(queue, offset) or 0)
