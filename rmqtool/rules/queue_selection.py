"""Which queue a producer sends to, with and without latency fault tolerance.

Sources: client.impl.producer.TopicPublishInfo, client.latency.MQFaultStrategy, LatencyFaultToleranceImpl,
client.producer.selector (4.9.8; the table of 5.3.3 beside it); message-services 8.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rmqtool.rules.broadcast import QueueName
from rmqtool.rules.releases import Release

_MASK = 0x7FFFFFFF


class QueueIndex:
    """The running number of one sending thread (``ThreadLocalIndex``).

    Args:
        start: random in Java.
    """

    def __init__(self, start: int) -> None:
        self._value = start

    def next(self) -> int:
        """The next number, never negative."""
        self._value += 1
        return self._value & _MASK


def unavailable(response_time: int, release: Release) -> int:
    """How long a broker is left out after an answer that took so long; ms."""
    return next((ms for least, ms in reversed(release.unavailable) if response_time >= least), 0)


@dataclass(slots=True)
class Fault:
    """What is remembered of one broker."""

    latency: int  # as measured, ms
    start: int  # from when on it may be used again, ms since the epoch


class Faults:
    """Response times of brokers, and who is left out because of them.

    Args:
        clock: ms since the epoch.
        index: random start, of its own.
    """

    def __init__(self, clock: Callable[[], int], index: QueueIndex, release: Release) -> None:
        self._clock, self._index, self._release = clock, index, release
        self._items: dict[str, Fault] = {}

    def update(self, broker_name: str, response_time: int, *, isolation: bool) -> None:
        """Take note of an answer, or of a failure (``isolation``)."""
        duration = unavailable(self._release.isolation if isolation else response_time, self._release)
        self.put(broker_name, response_time, duration)

    def put(self, broker_name: str, latency: int, duration: int) -> None:
        """Leave a broker out for so many ms. What comes later does not make that shorter in 5.3; in 4.9 it counts."""
        start, known = self._clock() + duration, self._items.get(broker_name)
        if self._release.keeps_isolation and known is not None:
            start = max(start, known.start)
        self._items[broker_name] = Fault(latency, start)

    def left_out(self, broker_name: str) -> int:
        """For how many ms more a broker may not be used."""
        item = self._items.get(broker_name)
        return 0 if item is None else max(item.start - self._clock(), 0)

    def available(self, broker_name: str) -> bool:
        """Whether a broker may be used."""
        item = self._items.get(broker_name)
        return item is None or self._clock() >= item.start

    def remove(self, broker_name: str | None) -> None:
        """Forget a broker."""
        if broker_name is not None:
            self._items.pop(broker_name, None)

    def pick(self) -> str | None:
        """One of the better half of the brokers that there is anything to say of."""
        now = self._clock()
        items = sorted(self._items.items(), key=lambda item: (now < item[1].start, item[1].latency, item[1].start))
        if not items:
            return None
        half = len(items) // 2
        return items[self._index.next() % half if half else 0][0]


class Selector:
    """Choice among the queues of one topic that can be written to.

    Args:
        queues: in the order of the publish list.
        index: the sending thread's.
        faults: response times, where fault tolerance is on (``sendLatencyFaultEnable``).
        write_queues: queues that the route gives each broker that may be written to.
    """

    def __init__(
        self,
        queues: Sequence[QueueName],
        index: QueueIndex,
        faults: Faults | None = None,
        write_queues: Mapping[str, int] | None = None,
    ) -> None:
        self.queues, self.index, self.faults = queues, index, faults
        self.write_queues = write_queues or {}

    def select(self, last_broker: str | None = None) -> QueueName:
        """The queue for the next attempt.

        Args:
            last_broker: of the attempt of the same message that failed before; fault tolerance does not heed it.
        """
        if self.faults is not None:
            return self._tolerant(self.faults)
        for _attempt in self.queues if last_broker is not None else ():
            queue = self._next()
            if queue.broker_name != last_broker:
                return queue
        return self._next()

    def _next(self) -> QueueName:
        return self.queues[self.index.next() % len(self.queues)]

    def _tolerant(self, faults: Faults) -> QueueName:
        first = self.index.next()
        for number in range(len(self.queues)):
            # Java's int wraps, and its abs of the smallest one is negative: the first queue then
            place = abs((first + number + 2**31) % 2**32 - 2**31)
            queue = self.queues[place % len(self.queues) if place <= _MASK else 0]
            if faults.available(queue.broker_name):
                return queue
        best = faults.pick()
        count = self.write_queues.get(best, -1) if best is not None else -1
        if count > 0 and best is not None:
            return QueueName(self._next().topic, best, self.index.next() % count)
        faults.remove(best)
        return self._next()
