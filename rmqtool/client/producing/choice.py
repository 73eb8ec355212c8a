"""Select the queue for a message, by the rules of 4.9 and of 5.3 (impl.producer.TopicPublishInfo, latency.*)."""

import asyncio
import random
import time
from collections.abc import Callable, Iterator

from formats.remoting import headers as h
from formats.remoting.codes import RequestCode
from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import ClientError, NoRoute
from rmqtool.client.cluster.routes import Route
from rmqtool.remoting.errors import RemotingError
from rmqtool.rules.broadcast import QueueName
from rmqtool.rules.queue_selection import Faults, QueueIndex, Selector
from rmqtool.rules.releases import Release


def _now() -> int:
    return time.time_ns() // 1_000_000


def _index() -> QueueIndex:
    return QueueIndex(random.getrandbits(31))


class QueueChoice:
    """Round robin over the queues of each topic, avoiding brokers that fail.

    Args:
        release: the Java client to follow.
        tolerant: remember slow and failing brokers across messages (``sendLatencyFaultEnable``).
        detected: a detector notices when brokers are reachable again (``startDetectorEnable``, 5.3): then brokers that
            did not answer count as unreachable too, not only those that refused.
        clock: ms since the epoch.
    """

    def __init__(
        self, release: Release, *, tolerant: bool = False, detected: bool = False, clock: Callable[[], int] = _now
    ) -> None:
        self._release, self._clock, self._detected = release, clock, detected
        self._faults = Faults(clock, _index(), release) if tolerant else None
        self._unreachable: set[str] = set()
        self._selectors: dict[str, tuple[Route, Selector]] = {}

    def select(self, route: Route, last_broker: str | None = None) -> MessageQueue:
        """Select the queue for the next attempt; the route must have queues.

        Args:
            last_broker: broker of the previous failed attempt for this message.
        """
        selector = self._selector(route)
        if self._faults is not None and self._release.is_5:
            chosen = self._reachable(selector, self._faults, last_broker)
        else:
            chosen = selector.select(last_broker)
        return MessageQueue(chosen.topic, chosen.broker_name, chosen.queue_id)

    def note_answer(self, broker_name: str, millis: int) -> None:
        """Record that a broker stored a message within ``millis``; in 5.3 a broker being avoided stays so until its
        time.
        """
        if self._faults is not None:
            self._faults.update(broker_name, millis, isolation=False)
            self._unreachable.discard(broker_name)

    def note_failure(self, broker_name: str, millis: int, *, refused: bool = False, unasked: bool = False) -> None:
        """Record that an attempt failed after ``millis``.

        Args:
            refused: the broker answered with an error.
            unasked: no request was sent, as no route has its address; in 5.3 this does not count against it.
        """
        if self._faults is None:
            return
        self._faults.update(broker_name, millis, isolation=not (self._release.is_5 and unasked))
        if self._release.is_5:
            if refused or (self._detected and not unasked):
                self._unreachable.add(broker_name)
            else:
                self._unreachable.discard(broker_name)

    @property
    def unreachable(self) -> list[str]:
        """Names of brokers that are avoided until they answer the detector."""
        return sorted(self._unreachable)

    def remaining_pause(self, broker_name: str) -> int:
        """For how many more ms a broker is avoided."""
        return 0 if self._faults is None else self._faults.remaining_pause(broker_name)

    def note_reached(self, broker_name: str) -> None:
        """Record that an unreachable broker has answered."""
        self._unreachable.discard(broker_name)

    def _selector(self, route: Route) -> Selector:
        previous_route, selector = self._selectors.get(route.topic, (None, None))
        if selector is None or previous_route != route:
            queues = [QueueName(item.topic, item.broker_name, item.queue_id) for item in route.writable]
            index = _index() if selector is None else selector.index
            faults = None if self._release.is_5 else self._faults
            selector = Selector(queues, index, faults, route.write_queues)
            self._selectors[route.topic] = route, selector
        return selector

    def _reachable(self, selector: Selector, faults: Faults, last_broker: str | None) -> QueueName:
        """The rule of 5.3: an available queue, else a reachable one, not on the last attempt's broker; else the next
        queue.
        """
        if last_broker is not None:
            selector.index = _index()

        def others(allowed: Callable[[str], bool]) -> Iterator[QueueName]:
            for _ in selector.queues:
                queue = selector.queues[selector.index.next() % len(selector.queues)]
                if queue.broker_name != last_broker and allowed(queue.broker_name):
                    yield queue

        for allowed in (faults.available, lambda name: name not in self._unreachable):
            if (other := next(others(allowed), None)) is not None:
                return other
        return selector.queues[selector.index.next() % len(selector.queues)]


_DETECT_EVERY = 3.0  # s
_DETECT_TIMEOUT = 0.2  # s for a broker to answer


async def watch(cluster: Cluster, choice: QueueChoice, topic: Callable[[], str]) -> None:
    """Probe unreachable brokers forever by asking for the end of a queue; one that answers is reachable again (5.x).

    Args:
        topic: gives the topic of the queue; nothing is sent while it is empty.
    """
    while True:
        await asyncio.sleep(_DETECT_EVERY)
        if topic():
            await asyncio.gather(*[_detect(cluster, choice, name, topic()) for name in choice.unreachable])


async def _detect(cluster: Cluster, choice: QueueChoice, broker_name: str, topic: str) -> None:
    header = h.Queue(topic=topic, queue_id=0, bname=broker_name)
    try:
        address = cluster.address(broker_name)
        await cluster.ask(address, cluster.request(RequestCode.GET_MAX_OFFSET, header), _DETECT_TIMEOUT)
    except NoRoute:
        choice.note_reached(broker_name)  # the broker no longer exists: forget it
    except (ClientError, RemotingError):
        return
    else:
        choice.note_reached(broker_name)
