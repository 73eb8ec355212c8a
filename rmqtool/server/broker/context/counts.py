"""Statistics of a broker: totals, and of the last minute, hour and day (store.stats.BrokerStatsManager)."""

from collections import defaultdict, deque

from formats.remoting import bodies as b
from formats.remoting.shapes import StatsItem

TOPIC_PUT, TOPIC_PUT_SIZE = "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"
GROUP_GET, GROUP_GET_SIZE = "GROUP_GET_NUMS", "GROUP_GET_SIZE"
SENT_BACK = "SNDBCK_PUT_NUMS"
_BY_GROUP = {GROUP_GET, GROUP_GET_SIZE, SENT_BACK}  # their keys are TOPIC@GROUP
BROKER_PUT, BROKER_PUT_SIZE, BROKER_GET = "BROKER_PUT_NUMS", "BROKER_PUT_SIZE", "BROKER_GET_NUMS"
SAMPLE = 10.0  # s
_SPANS = ((1, 7), (60, 7), (360, 25))  # every how many samples one is kept, and how many are kept


class _Item:
    """One sum with its past."""

    __slots__ = ("past", "sum", "times")

    def __init__(self) -> None:
        self.sum = self.times = 0
        self.past: list[deque[tuple[float, int, int]]] = [deque(maxlen=kept) for _every, kept in _SPANS]


class Counts:
    """Sums by name and key, for ``mqadmin``."""

    def __init__(self) -> None:
        self._items: defaultdict[tuple[str, str], _Item] = defaultdict(_Item)
        self._samples = 0

    def add(self, name: str, key: str, amount: int, times: int = 1) -> None:
        """Count something that happened a number of times."""
        item = self._items[name, key]
        item.sum += amount
        item.times += times

    def sum(self, name: str, key: str) -> int:
        """The sum since the start."""
        item = self._items.get((name, key))
        return item.sum if item is not None else 0

    def drop(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Forget everything of a deleted topic or group (onTopicDeleted, onGroupDeleted)."""
        for name, key in list(self._items):
            key_topic, _, key_group = key.rpartition("@") if name in _BY_GROUP else (key, "", None)
            if (topic is not None and key_topic == topic) or (group is not None and key_group == group):
                del self._items[name, key]

    def sample(self, now: float) -> None:
        """Sample the sums; called every :data:`SAMPLE` seconds."""
        for number, (every, _kept) in enumerate(_SPANS):
            if self._samples % every == 0:
                for item in self._items.values():
                    if not item.past[number]:
                        item.past[number].append((now - every * SAMPLE, 0, 0))
                    item.past[number].append((now, item.sum, item.times))
        self._samples += 1

    def rate(self, name: str, key: str) -> float:
        """The rate per second over the last minute."""
        item = self._items.get((name, key))
        return _of(item.past[0]).tps if item is not None else 0.0

    def stats(self, name: str, key: str) -> b.BrokerStats | None:
        """Statistics of the last minute, hour and day; None if nothing was counted."""
        item = self._items.get((name, key))
        return None if item is None else b.BrokerStats(*map(_of, item.past))


def _of(past: deque[tuple[float, int, int]]) -> StatsItem:
    if len(past) < 2:
        return StatsItem(0, 0.0, 0.0)
    (start, first, before), (end, last, times) = past[0], past[-1]
    total, count = last - first, times - before
    return StatsItem(total, total / (end - start) if end > start else 0.0, total / count if count else 0.0)
