"""Messages of one queue between their pull and the end of their consumption (impl.consumer.ProcessQueue). No I/O."""

from collections import OrderedDict
from collections.abc import Collection, Iterable
from itertools import islice

from formats.remoting.shapes import MessageQueue
from rmqtool.client.consumer.options import FlowLimits
from rmqtool.client.consumer.received import Received
from rmqtool.client.consumer.subscriptions import Assigned

_MOST_OVERDUE = 16  # of one look
LOCK_LIFE = 30.0  # s after which a client does not rely on a lock that was not renewed; brokers keep it for 60


class ProcessQueue(Assigned):
    """A queue of a push consumer: what was pulled and is not consumed yet, in the order of queue offsets.

    Attributes:
        dropped: the queue is another consumer's now: nothing that is still worked on counts.
        leaving: nothing more begins; what a listener has still counts.
        size: bytes of the bodies that wait.
        locked_at: when a broker last said that the queue is this client's alone, in seconds of the event loop; None
            without a lock.
        pulled_at, consumed_at, lock_time: when that happened last, in ms since 1970; 0 is never.
    """

    def __init__(self, queue: MessageQueue, offset: int = 0) -> None:
        super().__init__(queue, offset)
        self.dropped = self.leaving = False
        self.size = 0
        self.locked_at: float | None = None
        self.pulled_at = self.consumed_at = self.lock_time = 0
        self._held: OrderedDict[int, Received] = OrderedDict()
        self._started: dict[int, float] = {}
        self._end = 0  # behind the last offset that was ever put
        self._taken = 0  # messages at the head that an orderly listener has, or had and did not commit

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, message: Received) -> bool:
        return message.queue_offset in self._held

    def put(self, messages: Iterable[Received]) -> list[Received]:
        """Add what was pulled; gives back what is new, in order."""
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
        """The listener has them, since ``now`` (s)."""
        for message in messages:
            self._started[message.record.queue_offset] = now

    def give_back(self, messages: Iterable[Received]) -> None:
        """The listener has them no more, and they wait to be given to it again."""
        for message in messages:
            self._started.pop(message.queue_offset, None)

    def remove(self, messages: Iterable[Received]) -> int | None:
        """End the consumption of messages.

        Returns:
            The offset to go on at, which is never behind a message that is not done; None where nothing was held.
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
        """All before an offset is consumed. Only forwards: a call that began earlier may end later."""
        self.consumed = max(offset, self.consumed or 0)

    def full(self, limits: FlowLimits, *, ordered: bool = False) -> bool:
        """Whether to wait before more is pulled; where messages are consumed in order, their span says nothing."""
        if not self._held:
            return False
        if len(self._held) > limits.messages or self.size > limits.size:
            return True
        return not ordered and next(reversed(self._held)) - next(iter(self._held)) > limits.span

    def overdue(self, now: float, timeout: float) -> list[Received]:
        """The messages at the head, a few of them, that the listener has had for more than ``timeout`` seconds."""
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
        """The first and the last offset that waits; zeros where none does."""
        return (next(iter(self._held)), next(reversed(self._held))) if self._held else (0, 0)

    # -- in order -----------------------------------------------------------------------------------------------------

    def take(self, most: int) -> list[Received]:
        """The next messages in order, which are the listener's until they are settled or put back."""
        batch = list(islice(self._held.values(), self._taken, self._taken + most))
        self._taken += len(batch)
        return batch

    @property
    def waiting(self) -> bool:
        """Whether there is something to take."""
        return len(self._held) > self._taken

    @property
    def taken(self) -> list[Received]:
        """What was taken and is neither settled nor put back."""
        return list(islice(self._held.values(), self._taken))

    def settle(self) -> int | None:
        """End the consumption of all that was taken; the offset to go on at, None where nothing was taken."""
        if not self._taken:
            return None
        last = self._end
        for _ in range(self._taken):
            last, message = self._held.popitem(last=False)
            self.size -= len(message.record.body)
        self._taken = 0
        return last + 1

    def put_back(self, messages: Collection[Received]) -> None:
        """Have these, the last that were taken, taken again; with how often they have come by now."""
        for message in messages:
            self._held[message.queue_offset] = message
        self._taken -= len(messages)

    def discard(self, messages: Iterable[Received]) -> None:
        """End the consumption of some of what was taken: they were sent elsewhere."""
        for message in messages:
            del self._held[message.queue_offset]
            self.size -= len(message.record.body)
            self._taken -= 1

    def is_locked(self, now: float) -> bool:
        """Whether the queue is this client's alone, as far as it can rely on that."""
        return self.locked_at is not None and now - self.locked_at <= LOCK_LIFE


def _offset(message: Received) -> int:
    return message.record.queue_offset
