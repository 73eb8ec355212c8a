"""Selection of the queue that a producer sends to, with and without latency fault tolerance.

Sources: client.impl.producer.TopicPublishInfo, client.latency.MQFaultStrategy, LatencyFaultToleranceImpl,
client.producer.selector (4.9.8; and the latency table of 5.3.3); message-services 8.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rmqtool.rules.broadcast import QueueName
from rmqtool.rules.releases import Release

_MASK = 0x7FFFFFFF


class QueueIndex:
    """The running counter of a sending thread (``ThreadLocalIndex``).

    Args:
        start: initial value; random in Java.
    """

    def __init__(self, start: int) -> None:
        self._value = start

    def next(self) -> int:
        """Return the next value, never negative."""
        self._value += 1
        return self._value & _MASK


def unavailable(response_time: int, release: Release) -> int:
    """Return for how many ms a broker is avoided after the given response time in ms."""
    return next((ms for least, ms in reversed(release.unavailable) if response_time >= least), 0)


@dataclass(slots=True)
class BrokerLatency:
    """Latency record of one broker."""

    latency: int  # measured response time, ms
    start: int  # time from which it may be used again, ms since the epoch


class Faults:
    """Response times of brokers, and which brokers are avoided because of them.

    Args:
        clock: ms since the epoch.
        index: a counter of its own, with a random start.
    """

    def __init__(self, clock: Callable[[], int], index: QueueIndex, release: Release) -> None:
        self._clock, self._index, self._release = clock, index, release
        self._items: dict[str, BrokerLatency] = {}

    def update(self, broker_name: str, response_time: int, *, isolation: bool) -> None:
        """Record the response time of a broker, or a failure (``isolation``)."""
        duration = unavailable(self._release.isolation if isolation else response_time, self._release)
        self.put(broker_name, response_time, duration)

    def put(self, broker_name: str, latency: int, duration: int) -> None:
        """Avoid a broker for ``duration`` ms. Later calls cannot shorten this in 5.3; in 4.9 the last one wins."""
        start, fault = self._clock() + duration, self._items.get(broker_name)
        if self._release.keeps_isolation and fault is not None:
            start = max(start, fault.start)
        self._items[broker_name] = BrokerLatency(latency, start)

    def remaining_pause(self, broker_name: str) -> int:
        """Return for how many more ms a broker must not be used."""
        item = self._items.get(broker_name)
        return 0 if item is None else max(item.start - self._clock(), 0)

    def available(self, broker_name: str) -> bool:
        """Return whether a broker may be used."""
        item = self._items.get(broker_name)
        return item is None or self._clock() >= item.start

    def remove(self, broker_name: str | None) -> None:
        """Remove the record of a broker."""
        if broker_name is not None:
            self._items.pop(broker_name, None)

    def pick(self) -> str | None:
        """Return one of the better half of the recorded brokers, or None if there are none."""
        now = self._clock()
        items = sorted(self._items.items(), key=lambda item: (now < item[1].start, item[1].latency, item[1].start))
        if not items:
            return None
        half = len(items) // 2
        return items[self._index.next() % half if half else 0][0]


class Selector:
    """Selects among the writable queues of one topic.

    Args:
        queues: queues in the order of the publish list.
        index: counter of the sending thread.
        faults: response times, if fault tolerance is enabled (``sendLatencyFaultEnable``).
        write_queues: number of write queues on each writable broker, from the route.
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
        """Return the queue for the next attempt.

        Args:
            last_broker: broker of the message's previous, failed attempt; ignored with fault tolerance.
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
            # Java's int wraps, and abs(Integer.MIN_VALUE) is negative, in which case the first queue is used
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
