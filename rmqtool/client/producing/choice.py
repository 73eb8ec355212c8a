"""Which queue a message goes to, by the rules of 4.9 and of 5.3 (impl.producer.TopicPublishInfo, latency.*)."""

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
    """Round robin over the queues of each topic; brokers that fail are left out.

    Args:
        release: whose client is followed.
        tolerant: remember how brokers answer from one message to the next (``sendLatencyFaultEnable``).
        detected: a detector finds out when brokers can be reached again (``startDetectorEnable``, 5.3): then those that
            did not answer count as unreachable as well, not only those that refused.
        clock: ms since the epoch.
    """

    def __init__(
        self, release: Release, *, tolerant: bool = False, detected: bool = False, clock: Callable[[], int] = _now
    ) -> None:
        self._release, self._clock, self._detected = release, clock, detected
        self._faults = Faults(clock, _index(), release) if tolerant else None
        self._unreachable: set[str] = set()
        self._selectors: dict[str, tuple[Route, Selector]] = {}

    def queue(self, route: Route, last_broker: str | None = None) -> MessageQueue:
        """The queue for the next attempt; the route has some.

        Args:
            last_broker: of the attempt of the same message that failed before.
        """
        selector = self._selector(route)
        if self._faults is not None and self._release.is_5:
            chosen = self._reachable(selector, self._faults, last_broker)
        else:
            chosen = selector.select(last_broker)
        return MessageQueue(chosen.topic, chosen.broker_name, chosen.queue_id)

    def note_answer(self, broker_name: str, millis: int) -> None:
        """A broker has taken a message within that time; in 5.3 it stays left out as long as it was to be."""
        if self._faults is not None:
            self._faults.update(broker_name, millis, isolation=False)
            self._unreachable.discard(broker_name)

    def note_failure(self, broker_name: str, millis: int, *, refused: bool = False, unasked: bool = False) -> None:
        """An attempt has failed after that time.

        Args:
            refused: by the broker's own answer.
            unasked: it was not even asked, for no route has its address; in 5.3 it is not blamed for that.
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
        """Names of brokers that are only tried again when they have answered."""
        return sorted(self._unreachable)

    def left_out(self, broker_name: str) -> int:
        """For how many ms more a broker is left out."""
        return 0 if self._faults is None else self._faults.left_out(broker_name)

    def note_reached(self, broker_name: str) -> None:
        """A broker that was unreachable has answered."""
        self._unreachable.discard(broker_name)

    def _selector(self, route: Route) -> Selector:
        known, selector = self._selectors.get(route.topic, (None, None))
        if selector is None or known != route:
            queues = [QueueName(item.topic, item.broker_name, item.queue_id) for item in route.writable]
            index = _index() if selector is None else selector.index
            faults = None if self._release.is_5 else self._faults
            selector = Selector(queues, index, faults, route.write_queues)
            self._selectors[route.topic] = route, selector
        return selector

    def _reachable(self, selector: Selector, faults: Faults, last_broker: str | None) -> QueueName:
        """The rule of 5.3: available, else reachable, and not where the last attempt went; else the next one."""
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
_DETECT_TIMEOUT = 0.2  # s that a broker has


async def watch(cluster: Cluster, choice: QueueChoice, topic: Callable[[], str]) -> None:
    """Ask brokers that are unreachable for the end of a queue, for ever; one that answers is reached again (5.x).

    Args:
        topic: of the queue; nobody is asked as long as it is empty.
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
        choice.note_reached(broker_name)  # it is gone: there is nothing to remember
    except (ClientError, RemotingError):
        return
    else:
        choice.note_reached(broker_name)
