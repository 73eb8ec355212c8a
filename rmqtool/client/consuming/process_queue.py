"""Messages of one queue between their pull and the end of their consumption (impl.consumer.ProcessQueue). No I/O."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from rmqtool.client.pulling.pull import Received

_MOST_OVERDUE = 16  # of one look


@dataclass(frozen=True)
class FlowLimits:
    """What may wait in one queue before no more is pulled (pullThresholdForQueue and its neighbours).

    Attributes:
        messages: how many messages.
        size: bytes of their stored bodies.
        span: from the oldest to the newest queue offset: one message that is stuck stops its queue in the end.
    """

    messages: int = 1000
    size: int = 100 << 20
    span: int = 2000


class ProcessQueue:
    """What was pulled and is not consumed yet, in the order of queue offsets.

    Attributes:
        dropped: the queue is another consumer's now: nothing that is still worked on counts.
        size: bytes of the bodies that wait.
    """

    def __init__(self) -> None:
        self.dropped = False
        self.size = 0
        self._held: OrderedDict[int, Received] = OrderedDict()
        self._started: dict[int, float] = {}
        self._end = 0  # behind the last offset that was ever put

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, message: Received) -> bool:
        return message.queue_offset in self._held

    def put(self, messages: Iterable[Received]) -> list[Received]:
        """Add what was pulled; gives back what is new, in order."""
        new = []
        for message in sorted(messages, key=lambda one: one.queue_offset):
            if message.queue_offset >= self._end:
                self._held[message.queue_offset] = message
                self._end = message.queue_offset + 1
                self.size += len(message.record.body)
                new.append(message)
        return new

    def started(self, messages: Iterable[Received], now: float) -> None:
        """The listener has them, since ``now`` (s)."""
        for message in messages:
            self._started[message.queue_offset] = now

    def returned(self, messages: Iterable[Received]) -> None:
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
        for message in messages:
            self._started.pop(message.queue_offset, None)
            if self._held.pop(message.queue_offset, None) is not None:
                self.size -= len(message.record.body)
        return next(iter(self._held), self._end)

    def full(self, limits: FlowLimits) -> bool:
        """Whether to wait before more is pulled."""
        if not self._held:
            return False
        span = next(reversed(self._held)) - next(iter(self._held))
        return len(self._held) > limits.messages or self.size > limits.size or span > limits.span

    def overdue(self, now: float, timeout: float) -> list[Received]:
        """The messages at the head, a few of them, that the listener has had for more than ``timeout`` seconds."""
        found: list[Received] = []
        for offset, message in self._held.items():
            start = self._started.get(offset)
            if start is None or now - start <= timeout or len(found) == _MOST_OVERDUE:
                break
            found.append(message)
        return found
