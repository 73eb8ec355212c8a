"""Which queue a message goes to, by the rules of 4.9 and of 5.3 (impl.producer.TopicPublishInfo, latency.*)."""

import random
import time
from collections.abc import Callable, Iterator

from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.routes import Route
from rmqtool.services.offsets.broadcast import QueueName
from rmqtool.services.sending.select import ISOLATION, Faults, QueueIndex, Selector, unavailable


def _now() -> int:
    return time.time_ns() // 1_000_000


def _index() -> QueueIndex:
    return QueueIndex(random.getrandbits(31))


class Choice:
    """Round robin over the queues of each topic; brokers that fail are left out.

    Args:
        engine: "4.9" or "5.3".
        tolerant: remember how brokers answer from one message to the next (``sendLatencyFaultEnable``).
        clock: ms since the epoch.
    """

    def __init__(self, engine: str, *, tolerant: bool = False, clock: Callable[[], int] = _now) -> None:
        self._engine, self._clock = engine, clock
        self._faults = Faults(clock, _index(), engine) if tolerant else None
        self._unreachable: set[str] = set()
        self._selectors: dict[str, tuple[Route, Selector]] = {}

    def queue(self, route: Route, last_broker: str | None = None) -> MessageQueue:
        """The queue for the next attempt; the route has some.

        Args:
            last_broker: of the attempt of the same message that failed before.
        """
        selector = self._selector(route)
        if self._faults is not None and self._engine != "4.9":
            chosen = self._reachable(selector, self._faults, last_broker)
        else:
            chosen = selector.select(last_broker)
        return MessageQueue(chosen.topic, chosen.broker_name, chosen.queue_id)

    def answered(self, broker_name: str, millis: int) -> None:
        """A broker has taken a message within that time."""
        if self._faults is not None:
            self._faults.update(broker_name, millis, isolation=False)
            self._unreachable.discard(broker_name)

    def failed(self, broker_name: str, millis: int, *, refused: bool) -> None:
        """An attempt has failed after that time.

        Args:
            refused: by the broker's own answer.
        """
        if self._faults is None:
            return
        if self._engine == "4.9":
            self._faults.update(broker_name, millis, isolation=True)
            return
        self._faults.put(broker_name, millis, unavailable(ISOLATION[self._engine], self._engine))
        if refused:
            self._unreachable.add(broker_name)

    def _selector(self, route: Route) -> Selector:
        known, selector = self._selectors.get(route.topic, (None, None))
        if selector is None or known != route:
            queues = [QueueName(item.topic, item.broker_name, item.queue_id) for item in route.writable]
            index = _index() if selector is None else selector.index
            faults = self._faults if self._engine == "4.9" else None
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
            if (found := next(others(allowed), None)) is not None:
                return found
        return selector.queues[selector.index.next() % len(selector.queues)]
