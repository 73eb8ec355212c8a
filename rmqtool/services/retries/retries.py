"""Retries and dead letters: messages that consumer groups sent back, and their state.

A failed message is stored again for its group with ``reconsumeTimes`` incremented: first in the schedule topic, then,
when it is due, in ``%RETRY%group``; after the last retry in ``%DLQ%group``. All copies name the first one as
``ORIGIN_MESSAGE_ID``. With orderly consumers of 4.9, a message that failed too often waits in the schedule topic once
more before it becomes a dead letter.

A message that a POP group does not ack in time goes to a retry topic of group and topic with ``reconsumeTimes``
incremented, as often as necessary.

Source: broker.processor.SendMessageProcessor (consumerSendMsgBack, handleRetryAndDLQ); message-services 12.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from formats.message.properties import KEYS, REAL_TOPIC, TAGS, split_keys
from formats.topics import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE
from rmqtool.services.delays.delays import Delays
from rmqtool.services.lookup.configs import Warn, known_offsets, offsets_of
from rmqtool.services.lookup.pairs import Pairs
from rmqtool.services.lookup.queue_messages import (
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    QueueMessage,
    TopicQueues,
    messages_of,
    warn_of_unbuilt,
)
from rmqtool.services.lookup.retry_names import RetryNames, retry_names
from rmqtool.services.lookup.stored import LogMessage, NamedQueue
from rmqtool.services.lookup.tiered import messages_of_tier
from rmqtool.services.popping.in_flight import Handed, MessagesInFlight, Place
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.batch import PlainQueue

if TYPE_CHECKING:
    from rmqtool.store.tier.only_tiered import OnlyTiered


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryInfo:
    """One delivery of a failed message to its group. Times are ms since the epoch.

    ``state``: scheduled (not due yet), waiting (not consumed yet), in-flight (popped and not acked), retried (failed
    again), dead (failed and became a dead letter), done (consumed and not sent back).
    """

    group: str
    state: str | None  # None if not known
    reconsumeTimes: int
    originTopic: str | None
    originMsgId: str | None
    msgId: str
    tags: str | None
    keys: str | None
    topic: str  # where it is stored: retry topic, dead-letter topic or schedule topic
    queueId: int
    queueOffset: int
    physicalOffset: int
    bornTimestamp: int
    storeTimestamp: int
    deliverTimestamp: int | None  # of a scheduled message

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return {**asdict(self), "keys": split_keys(self.keys or "")}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(RetryInfo):
    """One dead letter with the retries that led to it.

    ``state``: dead, or scheduled (to become one).
    """

    retryTimestamps: list[int]  # store time of each retry that is still in the log


Q = TypeVar("Q", bound=NamedQueue)


class GivenBack(ABC, Generic[Q]):
    """Retries and dead letters, wherever their queues are.

    Memory: 16 bytes for each message sent back.
    """

    row: type[RetryInfo] = RetryInfo
    letter: type[DeadLetter] = DeadLetter

    @abstractmethod
    def topics_named(self, prefix: str) -> list[str]:
        """Topics with this prefix, sorted."""

    @abstractmethod
    def queues_of(self, topic: str) -> Sequence[Q]:
        """The queues of a topic."""

    @abstractmethod
    def messages(self, queue: Q, start: int | None = None, stop: int | None = None) -> Iterator[QueueMessage]:
        """Messages of queue offsets [start, stop), by default all that are still there."""

    def messages_at(self, queue: Q, offsets: Sequence[int]) -> Iterator[QueueMessage]:
        """Single messages of a queue, in this order."""
        for offset in offsets:
            yield from self.messages(queue, offset, offset + 1)

    @abstractmethod
    def delivered_offset(self, queue: Q) -> int:
        """The next offset of a delay level's queue to be delivered."""

    @abstractmethod
    def offset_in(self, group: str, queue: Q) -> int | None:
        """The offset of a group in its retry topic; None if not known."""

    @abstractmethod
    def offsets_in_flight(self, group: str, queue: Q) -> Collection[int] | None:
        """Offsets of a POP retry topic that consumers hold; None if not known."""

    @abstractmethod
    def locate(self, queue: Q, message: QueueMessage) -> LogMessage:
        """A message as a whole."""

    @property
    @abstractmethod
    def names(self) -> RetryNames:
        """Parses names of retry topics."""

    def place(self, _queue: Q) -> dict[str, Any]:
        """Further fields of rows of a queue."""
        return {}

    def retries(self, groups: list[str] | None = None) -> Iterator[RetryInfo]:
        """Every retry, group by group, delivered ones before scheduled ones."""
        scheduled, targets = self._find_scheduled()
        for group in groups or self._groups(RETRY_PREFIX, targets):
            given_back = self._collect_attempts(group, scheduled)
            for retry_topic, origin in self._retry_topics(group):
                for queue in self.queues_of(retry_topic):
                    taken = self.offset_in(group, queue)
                    handed = self.offsets_in_flight(group, queue) if origin is not None else ()
                    for message in self.messages(queue):
                        state: str | None = "waiting"
                        if handed is not None and message.entry.queue_offset in handed:
                            state = "in-flight"
                        elif taken is None:
                            state = None
                        elif message.entry.queue_offset < taken:
                            later = given_back.get(_attempt(message, message.record.reconsume_times + 1))
                            passed = "done" if handed is not None else None
                            state = passed if not later else "dead" if any(later) else "retried"
                        yield self.row(**_fields(group, state, message, origin), **self.place(queue))
                for queue, message in self._for_topic(retry_topic, scheduled):
                    if message.entry.queue_offset >= self.delivered_offset(queue):
                        yield self.row(**_fields(group, "scheduled", message, origin), **self.place(queue))

    @cached_property
    def _schedule(self) -> Sequence[Q]:
        return self.queues_of(SCHEDULE)

    @cached_property
    def _pop_topics(self) -> dict[str, list[tuple[str, str | None]]]:
        """Group to its POP retry topics, each with the original topic."""
        topics: dict[str, list[tuple[str, str | None]]] = {}
        for topic in self.topics_named(RETRY_PREFIX):
            group, origin = self.names.of(topic)
            if origin is not None:
                topics.setdefault(group, []).append((topic, origin))
        return topics

    def _retry_topics(self, group: str) -> list[tuple[str, str | None]]:
        """The retry topics of a group, POP ones last."""
        return [(RETRY_PREFIX + group, None), *self._pop_topics.get(group, [])]

    def _find_scheduled(self, *, pending: bool = False) -> tuple[Pairs, set[str]]:
        """(target, place of a queue) to queue offset of every retry and dead letter in the schedule topic, and the set
        of targets.

        Args:
            pending: only those not delivered yet.
        """
        pairs, targets = Pairs(), set()
        for place, queue in enumerate(self._schedule):
            start = self.delivered_offset(queue) if pending else None
            for entry, _record, properties in self.messages(queue, start):
                target = properties.get(REAL_TOPIC, "")
                if target.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                    targets.add(target)
                    pairs.add(hash((target, place)), entry.queue_offset)
        return pairs, targets

    def _for_topic(self, target: str, scheduled: Pairs) -> Iterator[tuple[Q, QueueMessage]]:
        """Each message in the schedule topic for a target topic, with its queue."""
        for place, queue in enumerate(self._schedule):
            for message in self.messages_at(queue, scheduled.get(hash((target, place)))):
                yield queue, message

    def _collect_attempts(self, group: str, scheduled: Pairs) -> Pairs:
        """Attempt (see :func:`_attempt`) to 1 for a dead letter, 0 for a retry."""
        pairs = Pairs()
        for queue in self.queues_of(DLQ_PREFIX + group):
            for message in self.messages(queue):
                pairs.add(_attempt(message, message.record.reconsume_times), 1)
        for topic, _origin in self._pop_topics.get(group, []):  # revived again
            for queue in self.queues_of(topic):
                for message in self.messages(queue):
                    pairs.add(_attempt(message, message.record.reconsume_times), 0)
        for prefix in (DLQ_PREFIX, RETRY_PREFIX):
            for _queue, message in self._for_topic(prefix + group, scheduled):
                pairs.add(_attempt(message, message.record.reconsume_times), int(prefix == DLQ_PREFIX))
        return pairs

    def _groups(self, prefix: str, targets: set[str]) -> list[str]:
        """Groups that have a topic with this prefix, or will have one."""
        topics = {*self.topics_named(prefix), *(target for target in targets if target.startswith(prefix))}
        return sorted({self.names.of(topic).group for topic in topics})

    def dead_letters(self, groups: list[str] | None = None) -> Iterator[tuple[DeadLetter, LogMessage]]:
        """Every dead letter with its message, group by group in queue order, then scheduled ones."""
        scheduled, targets = self._find_scheduled(pending=True)
        for group in groups or self._groups(DLQ_PREFIX, targets):
            times, topic = Pairs(), DLQ_PREFIX + group
            for retry_topic, _origin in self._retry_topics(group):
                for queue in self.queues_of(retry_topic):
                    for message in self.messages(queue):
                        times.add(_chain(message), message.record.store_timestamp)
            dead = ((queue, message) for queue in self.queues_of(topic) for message in self.messages(queue))
            for state, messages in (("dead", dead), ("scheduled", self._for_topic(topic, scheduled))):
                for queue, message in messages:
                    retries = sorted(times.get(_chain(message)))
                    fields = _fields(group, state, message)
                    yield (
                        self.letter(**fields, retryTimestamps=retries, **self.place(queue)),
                        self.locate(queue, message),
                    )


class Retries(GivenBack[PlainQueue]):
    """Retries and dead letters of one store.

    Args:
        now: the time that decides what is due, ms.
        tiered: messages that only the tier has, if they are to be read too.
    """

    def __init__(self, log: CommitLog, now: int, warn: Warn, tiered: "OnlyTiered | None" = None) -> None:
        self.log, self.warn, self._tiered = log, warn, tiered
        self.topics = TopicQueues(log.layout)
        warn_of_unbuilt(log, warn)
        self._delays = Delays(log, now, warn, self.topics)
        self._offsets = offsets_of(known_offsets(log.layout, warn))

    def topics_named(self, prefix: str) -> list[str]:
        """Topics with this prefix, sorted."""
        return self.topics.topics(prefix)

    def queues_of(self, topic: str) -> list[PlainQueue]:
        """The queues of a topic."""
        return self.topics.of(topic)

    def messages(self, queue: PlainQueue, start: int | None = None, stop: int | None = None) -> Iterator[QueueMessage]:
        """Messages of a queue; without ``start``, with those that only the tier has first."""
        if self._tiered is not None and start is None and queue.topic != SCHEDULE:
            yield from messages_of_tier(self._tiered, queue.topic, queue.queue_id)
        for message in messages_of(self.log, queue, self.warn, start, stop):
            if queue.topic == SCHEDULE:
                due = self._delays.deliver_time(queue.queue_id + 1, message.entry)
                yield message._replace(entry=message.entry._replace(tags_code=due))
            else:
                yield message

    def delivered_offset(self, queue: PlainQueue) -> int:
        """The next offset of a delay level's queue to be delivered."""
        return self._delays.start(queue.queue_id + 1)

    def offset_in(self, group: str, queue: PlainQueue) -> int:
        """The offset of a group in its retry topic."""
        return self._offsets.get((queue.topic, group), {}).get(queue.queue_id, 0)

    def offsets_in_flight(self, group: str, queue: PlainQueue) -> Collection[int]:
        """Offsets of a POP retry topic that consumers hold."""
        return self._in_flight.get((queue.topic, group, queue.queue_id), {})

    def locate(self, queue: PlainQueue, message: QueueMessage) -> LocatedRecord:
        """A message with its place, in the tier or in the log."""
        place, offset = (queue.topic, queue.queue_id), message.entry.queue_offset
        letter: LocatedRecord | None
        if self._tiered is None or offset not in self._tiered.offsets.get(place, ()):
            letter = self.log.read(message.entry.physical_offset, crc=False)
        else:
            items = self._tiered.walk_queue(*place, range(offset, offset + 1))
            letter = next((item for item in items if isinstance(item, LocatedRecord)), None)
        assert letter is not None  # it was just read
        return letter

    @cached_property
    def _in_flight(self) -> dict[Place, dict[int, Handed]]:
        return MessagesInFlight(self.log, self._delays.now, self.warn, topics=self.topics).find_handed_out()

    @cached_property
    def names(self) -> RetryNames:
        """Parses names of retry topics."""
        return retry_names(self.log.layout, self.warn)


def _chain(message: QueueMessage) -> int:
    """A number that all copies of one failed message share."""
    return hash(message.properties.get(ORIGIN_MESSAGE_ID) or message.message_id)


def _attempt(message: QueueMessage, reconsume_times: int) -> int:
    """A number for one attempt of a failed message."""
    return hash((_chain(message), reconsume_times))


def _fields(group: str, state: str | None, message: QueueMessage, origin: str | None = None) -> dict[str, Any]:
    """Fields common to all copies.

    Args:
        origin: the original topic, if the message itself does not name it.
    """
    entry, record, properties = message
    return {
        "group": group,
        "state": state,
        "reconsumeTimes": record.reconsume_times,
        "originTopic": properties.get(RETRY_TOPIC) or origin,
        "originMsgId": properties.get(ORIGIN_MESSAGE_ID),
        "msgId": message.message_id,
        "tags": properties.get(TAGS),
        "keys": properties.get(KEYS),
        "topic": record.topic.decode("utf-8", "replace"),
        "queueId": record.queue_id,
        "queueOffset": entry.queue_offset,
        "physicalOffset": entry.physical_offset,
        "bornTimestamp": record.born_timestamp,
        "storeTimestamp": record.store_timestamp,
        "deliverTimestamp": entry.tags_code if state == "scheduled" else None,
    }
