"""Retries and dead letters of a live cluster."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from formats.topics import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE
from rmqtool.admin.live.messages import WireMessage
from rmqtool.admin.live.questions import Warn
from rmqtool.admin.live.queues import LiveQueue, LiveQueues
from rmqtool.services.lookup.pairs import Pairs
from rmqtool.services.lookup.queue_messages import QueueMessage
from rmqtool.services.lookup.retry_names import RetryNames
from rmqtool.services.retries.retries import DeadLetter, GivenBack, RetryInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRetryInfo(RetryInfo):
    """One delivery of a failed message, on one broker."""

    brokerName: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDeadLetter(DeadLetter):
    """One dead letter, on one broker."""

    brokerName: str


class LiveRetries(GivenBack[LiveQueue]):
    """Retries and dead letters of a cluster, with the rules of those of a store.

    Args:
        say: called with what no broker reports.
    """

    row, letter = LiveRetryInfo, LiveDeadLetter

    def __init__(self, queues: LiveQueues, say: Warn) -> None:
        self._queues, self._say = queues, say
        queues.load([SCHEDULE, *queues.topics_named(RETRY_PREFIX), *queues.topics_named(DLQ_PREFIX)])
        self._said = False

    @property
    def names(self) -> RetryNames:
        """Parses names of retry topics."""
        return self._queues.names

    def topics_named(self, prefix: str) -> list[str]:
        """Topics with this prefix, sorted."""
        return self._queues.topics_named(prefix)

    def queues_of(self, topic: str) -> list[LiveQueue]:
        """The queues of a topic, by broker and number."""
        queues = self._queues.queues_of(topic)
        if topic != SCHEDULE:
            self._queues.read_ahead((queue, queue.min_offset) for queue in queues)
        return queues

    def _find_scheduled(self, *, pending: bool = False) -> tuple[Pairs, set[str]]:
        begin = self.delivered_offset if pending else lambda queue: queue.min_offset
        self._queues.read_ahead((queue, begin(queue)) for queue in self._schedule)
        return super()._find_scheduled(pending=pending)

    def messages_at(self, queue: LiveQueue, offsets: Sequence[int]) -> Iterator[QueueMessage]:
        """Single messages of a queue, in this order."""
        return self._queues.messages_at(queue, offsets)

    def messages(self, queue: LiveQueue, start: int | None = None, stop: int | None = None) -> Iterator[QueueMessage]:
        """Messages of a queue."""
        return self._queues.messages(queue, start, stop)

    def delivered_offset(self, queue: LiveQueue) -> int:
        """The next offset of a delay level's queue to be delivered."""
        return self._queues.delivered_offset(queue)

    def offset_in(self, group: str, queue: LiveQueue) -> int | None:
        """The offset of a group in its retry topic; None if the broker does not tell."""
        if queue.node not in self._queues.offsets:
            return None
        return self._queues.offset_of.get((queue.node, group, queue.topic, queue.queue_id), 0)

    def offsets_in_flight(self, _group: str, _queue: LiveQueue) -> Collection[int] | None:
        """None: no broker reports what POP consumers hold."""
        if not self._said:
            self._say("brokers do not report what POP consumers hold: the state of what they were given is null")
            self._said = True
        return None

    def locate(self, _queue: LiveQueue, message: QueueMessage) -> WireMessage:
        """A message as a whole."""
        return WireMessage(message.record)

    def place(self, queue: LiveQueue) -> dict[str, Any]:
        """The broker of a row."""
        return {"brokerName": queue.node.name}
