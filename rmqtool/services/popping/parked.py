"""Requests that wait for messages to pop (broker.longpolling.PopLongPollingService, 5.3.3)."""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Key(NamedTuple):
    """What a request waits for; a queue id below 0 stands for all queues."""

    topic: str
    group: str
    queue_id: int


class Parked(Generic[T]):
    """Those of a broker, first the one that has the least time left.

    Args:
        most: how many may wait for one key, and in all.
        retry_topics: those into which messages of a topic come back for a group.
    """

    def __init__(self, most: tuple[int, int], retry_topics: Callable[[str, str], list[str]]) -> None:
        self._most, self._retry_topics = most, retry_topics
        self._waiting: dict[Key, list[tuple[float, int, T]]] = {}  # heaps
        self._times: list[tuple[float, int, Key]] = []  # a heap
        self._groups: dict[str, dict[Key, None]] = {}  # topic, or retry topic, to keys
        self._number = self.count = 0

    def add(self, key: Key, until: float, item: T) -> bool:
        """Have a request wait until a time; False where too many do."""
        heap = self._waiting.get(key, [])
        if len(heap) > self._most[0] or self.count >= self._most[1]:
            return False
        self._number += 1
        self.count += 1
        heappush(heap, (until, self._number, item))
        heappush(self._times, (until, self._number, key))
        if key not in self._waiting:
            self._waiting[key] = heap
            for topic in (key.topic, *self._retry_topics(key.topic, key.group)):
                self._groups.setdefault(topic, {})[key] = None
        return True

    def take(self, key: Key) -> T | None:
        """The one of a key that has the least time left; it waits no more."""
        heap = self._waiting.get(key)
        if not heap:
            return None
        self.count -= 1
        item = heappop(heap)[2]
        self._tidy(key)
        return item

    def waiting(self, key: Key) -> int:
        """How many wait for a key."""
        return len(self._waiting.get(key, ()))

    @property
    def awaited(self) -> list[Key]:
        """All for which a client waits."""
        return list(self._waiting)

    def find_concerned(self, topic: str, queue_id: int) -> list[Key]:
        """Those that a new message in a queue concerns; of a retry topic all of its group and topic."""
        return [
            key
            for key in self._groups.get(topic, ())
            if key.topic != topic or key.queue_id < 0 or key.queue_id == queue_id
        ]

    def late(self, now: float) -> Iterator[tuple[Key, T]]:
        """Those whose time is over; they wait no more."""
        while self._times and self._times[0][0] <= now:
            until, number, key = heappop(self._times)
            heap = self._waiting.get(key)
            if heap and heap[0][:2] == (until, number):  # else it was taken before
                self.count -= 1
                item = heappop(heap)[2]
                self._tidy(key)
                yield key, item
        if len(self._times) > 2 * self.count + 1024:  # of those that were taken
            self._times = [(until, number, key) for key, heap in self._waiting.items() for until, number, _ in heap]
            self._times.sort()

    def _tidy(self, key: Key) -> None:
        if not self._waiting[key]:
            del self._waiting[key]
            for topic in (key.topic, *self._retry_topics(key.topic, key.group)):
                keys = self._groups[topic]
                del keys[key]
                if not keys:
                    del self._groups[topic]
