"""Parked pop requests, waiting for messages (broker.longpolling.PopLongPollingService, 5.3.3)."""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class WaitKey(NamedTuple):
    """The queue that a request waits for; a negative queue id means all queues."""

    topic: str
    group: str
    queue_id: int


class Parked(Generic[T]):
    """The parked requests of a broker, ordered by deadline.

    Args:
        most: maximum number of requests per key, and in total.
        retry_topics: gives the retry topics of a topic and a group.
    """

    def __init__(self, most: tuple[int, int], retry_topics: Callable[[str, str], list[str]]) -> None:
        self._most, self._retry_topics = most, retry_topics
        self._waiting: dict[WaitKey, list[tuple[float, int, T]]] = {}  # heaps
        self._times: list[tuple[float, int, WaitKey]] = []  # a heap
        self._groups: dict[str, dict[WaitKey, None]] = {}  # topic, or retry topic, to keys
        self._number = self.count = 0

    def add(self, key: WaitKey, until: float, item: T) -> bool:
        """Park a request until a time; False if too many are parked."""
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

    def take(self, key: WaitKey) -> T | None:
        """Remove and return the request of a key with the earliest deadline."""
        heap = self._waiting.get(key)
        if not heap:
            return None
        self.count -= 1
        item = heappop(heap)[2]
        self._tidy(key)
        return item

    def count_waiting(self, key: WaitKey) -> int:
        """Number of requests parked for a key."""
        return len(self._waiting.get(key, ()))

    @property
    def awaited(self) -> list[WaitKey]:
        """All keys with parked requests."""
        return list(self._waiting)

    def find_concerned(self, topic: str, queue_id: int) -> list[WaitKey]:
        """Keys that a new message in a queue may serve; for a retry topic, all of its group and topic."""
        return [
            key
            for key in self._groups.get(topic, ())
            if key.topic != topic or key.queue_id < 0 or key.queue_id == queue_id
        ]

    def late(self, now: float) -> Iterator[tuple[WaitKey, T]]:
        """Remove and return the requests whose deadline has passed."""
        while self._times and self._times[0][0] <= now:
            until, number, key = heappop(self._times)
            heap = self._waiting.get(key)
            if heap and heap[0][:2] == (until, number):  # otherwise it was already removed
                self.count -= 1
                item = heappop(heap)[2]
                self._tidy(key)
                yield key, item
        if len(self._times) > 2 * self.count + 1024:  # mostly entries of removed requests
            self._times = [(until, number, key) for key, heap in self._waiting.items() for until, number, _ in heap]
            self._times.sort()

    def _tidy(self, key: WaitKey) -> None:
        if not self._waiting[key]:
            del self._waiting[key]
            for topic in (key.topic, *self._retry_topics(key.topic, key.group)):
                keys = self._groups[topic]
                del keys[key]
                if not keys:
                    del self._groups[topic]
