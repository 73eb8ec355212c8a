"""Lists of a live cluster. A broker is asked when a row is looked at, in a thread, as this one runs an event loop."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rmqtool.admin.live.messages import LiveMessages, WireMessage
from rmqtool.admin.live.topics import LiveTopics
from rmqtool.cli.browse.sources import BrowsedTopics, QueueRow
from rmqtool.rules.statuses import GetStatus
from rmqtool.services.lookup.query import Search
from rmqtool.services.lookup.retry_names import RetryNames
from rmqtool.services.open_store.message import StoredMessage
from rmqtool.services.usage.purpose import purpose_of

T = TypeVar("T")


def _apart(call: Callable[[], T]) -> T:
    """The result of a call in another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


class ClusterTopics(BrowsedTopics):
    """The topics of a cluster, with the totals of all brokers."""

    def __init__(self, topics: LiveTopics) -> None:
        self._topics = topics
        self._rows = {row.topic: row for row in topics.summaries()}
        self.names = sorted(self._rows)
        self._retries = RetryNames((), self.names, ())

    def ranges(self, topic: str) -> list[QueueRow]:
        """The queues of a topic, of each broker."""
        details = _apart(lambda: self._topics.details(topic))
        return [] if details is None else [
            QueueRow(
                topic=topic, queueId=queue.queueId, minOffset=queue.minOffset, maxOffset=queue.maxOffset,
                brokerName=getattr(queue, "brokerName", None),
            )
            for queue in details.queues
        ]  # fmt: skip

    def totals(self, row: int) -> tuple[int, int]:
        """Number of queues and messages of a topic."""
        summary = self._rows[self.names[row]]
        return summary.queues or 0, summary.messages or 0

    def purpose(self, row: int) -> str:
        """What a topic is for."""
        return purpose_of(self.names[row], self._retries) or ""


class ClusterMessage(StoredMessage):
    """A message that a broker has sent."""

    def __init__(self, message: WireMessage) -> None:
        self.record, self.physical_offset = message.record, message.physical_offset


class ClusterReader:
    """Reads messages from brokers.

    Args:
        messages: the cluster's.
    """

    def __init__(self, messages: LiveMessages) -> None:
        self._messages = messages

    def queue_messages(self, topic: str, queue_id: int, start: int, stop: int) -> list[StoredMessage]:
        """The messages of a queue at queue offsets [start, stop), in as many pulls as the broker needs."""
        return _apart(lambda: self._pull(topic, queue_id, start, stop))

    def _pull(self, topic: str, queue_id: int, start: int, stop: int) -> list[StoredMessage]:
        messages: list[StoredMessage] = []
        while start < stop:
            pulled = self._messages.read(topic, queue_id, start, stop - start)
            if pulled is None or pulled.status is not GetStatus.FOUND:
                break
            messages += [ClusterMessage(each) for each in pulled.messages if each.record.queue_offset < stop]
            start = max(pulled.next_begin_offset, start + 1)
        return messages

    def query_key(self, topic: str, key: str) -> Sequence[StoredMessage]:
        """The messages of a topic with a key or id, by the brokers' indexes."""
        return [ClusterMessage(each) for each in _apart(lambda: self._messages.by_key(topic, key, Search()))]
