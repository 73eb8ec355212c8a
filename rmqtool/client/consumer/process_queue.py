"""Pulled messages of one queue until they are consumed (impl.consumer.ProcessQueue). No I/O."""

from collections import OrderedDict
from collections.abc import Collection, Iterable
from itertools import islice

from formats.remoting.shapes import MessageQueue
from rmqtool.client.consumer.options import FlowLimits
from rmqtool.client.consumer.received import Received
from rmqtool.client.consumer.subscriptions import Assigned

_MOST_OVERDUE = 16  # messages per check
LOCK_LIFE = 30.0  # s; a client does not rely on a lock renewed longer ago; brokers keep it for 60


class ProcessQueue(Assigned):
    """A queue of a push consumer: pulled messages that are not consumed yet, in order of queue offsets.

    Attributes:
        dropped: the queue belongs to another consumer now: results of running calls are ignored.
        leaving: no new calls begin; results of running ones still count.
        size: bytes of the waiting bodies.
        locked_at: when a broker last confirmed the lock, in seconds of the event loop; None without a lock.
        pulled_at, consumed_at, lock_time: time of the last pull, consumption and lock, in ms since 1970; 0 is never.
    """

    def __init__(self, queue: MessageQueue, offset: int = 0) -> None:
        super().__init__(queue, offset)
        self.dropped = self.leaving = False
        self.size = 0
        self.locked_at: float | None = None
        self.pulled_at = self.consumed_at = self.lock_time = 0
        self._held: OrderedDict[int, Received] = OrderedDict()
        self._started: dict[int, float] = {}
        self._end = 0  # after the highest offset ever added
        self._taken = 0  # messages at the head that an orderly listener has, or had without committing

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, message: Received) -> bool:
        return message.queue_offset in self._held

    def put(self, messages: Iterable[Received]) -> list[Received]:
        """Add pulled messages; returns the new ones, in order."""
        new, held, end, size = [], self._held, self._end, 0
        for message in sorted(messages, key=_offset):
            record = message.record
            offset = record.queue_offset
            if offset >= end:
                held[offset] = message
                end = offset + 1
                size += len(record.body)
                new.append(message)
        self._end = end
        self.size += size
        return new

    def start(self, messages: Iterable[Received], now: float) -> None:
        """Record that the listener has messages, since ``now`` (s)."""
        for message in messages:
            self._started[message.record.queue_offset] = now

    def give_back(self, messages: Iterable[Received]) -> None:
        """Record that the listener no longer has messages; they wait for another call."""
        for message in messages:
            self._started.pop(message.queue_offset, None)

    def remove(self, messages: Iterable[Received]) -> int | None:
        """Remove consumed messages.

        Returns:
            The offset to commit, never beyond an unconsumed message; None if the queue was empty.
        """
        if not self._held:
            return None
        started, held = self._started, self._held
        for message in messages:
            record = message.record
            started.pop(record.queue_offset, None)
            if held.pop(record.queue_offset, None) is not None:
                self.size -= len(record.body)
        return next(iter(self._held), self._end)

    def advance(self, offset: int) -> None:
        """Record that everything before an offset is consumed. Only moves forward: earlier calls may end later."""
        self.consumed = max(offset, self.consumed or 0)

    def full(self, limits: FlowLimits, *, ordered: bool = False) -> bool:
        """Whether pulling must wait; the span is ignored for orderly consumption."""
        if not self._held:
            return False
        if len(self._held) > limits.messages or self.size > limits.size:
            return True
        return not ordered and next(reversed(self._held)) - next(iter(self._held)) > limits.span

    def overdue(self, now: float, timeout: float) -> list[Received]:
        """The first few messages that the listener has had for more than ``timeout`` seconds."""
        late: list[Received] = []
        for offset, message in self._held.items():
            start = self._started.get(offset)
            if start is None or now - start <= timeout or len(late) == _MOST_OVERDUE:
                break
            late.append(message)
        return late

    @property
    def position(self) -> int:
        """The next offset to consume."""
        if self.consumed is not None:
            return self.consumed
        return next(iter(self._held)) if self._held else self.offset

    def span(self) -> tuple[int, int]:
        """The first and the last waiting offset; zeros if there are none."""
        return (next(iter(self._held)), next(reversed(self._held))) if self._held else (0, 0)

    # -- in order -----------------------------------------------------------------------------------------------------

    def take(self, most: int) -> list[Received]:
        """Take the next messages in order, until they are settled or put back."""
        batch = list(islice(self._held.values(), self._taken, self._taken + most))
        self._taken += len(batch)
        return batch

    @property
    def waiting(self) -> bool:
        """Whether there are messages to take."""
        return len(self._held) > self._taken

    @property
    def taken(self) -> list[Received]:
        """Messages that were taken and neither settled nor put back."""
        return list(islice(self._held.values(), self._taken))

    def settle(self) -> int | None:
        """Remove all taken messages as consumed; returns the offset to commit, None if none were taken."""
        if not self._taken:
            return None
        last = self._end
        for _ in range(self._taken):
            last, message = self._held.popitem(last=False)
            self.size -= len(message.record.body)
        self._taken = 0
        return last + 1

    def put_back(self, messages: Collection[Received]) -> None:
        """Put back the messages taken last, with their current number of tries, so that they are taken again."""
        for message in messages:
            self._held[message.queue_offset] = message
        self._taken -= len(messages)

    def discard(self, messages: Iterable[Received]) -> None:
        """Remove some of the taken messages, because they were sent elsewhere."""
        for message in messages:
            del self._held[message.queue_offset]
            self.size -= len(message.record.body)
            self._taken -= 1

    def is_locked(self, now: float) -> bool:
        """Whether this client can rely on its lock of the queue."""
        return self.locked_at is not None and now - self.locked_at <= LOCK_LIFE


def _offset(message: Received) -> int:
    return message.record.queue_offset
