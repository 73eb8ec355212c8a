"""Topics: their settings, their queues on disk, and their consumers.

Source: common.TopicConfig, common.topic.TopicValidator; message-services 1.1, 7.1.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from formats.config.topic_kinds import kind_of, nature
from rmqtool.contract import PlainRow
from rmqtool.services.lookup.configs import Warn, groups_of, known_offsets, offsets_of, topics_of
from rmqtool.services.lookup.queue_messages import (
    TopicQueues,
    warn_of_unbuilt,
)
from rmqtool.services.lookup.retry_names import RetryNames
from rmqtool.store.layout.paths import BATCH_QUEUES
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import AnyQueue, BatchQueue
from rmqtool.store.tier.tier import Tier

_PERMISSIONS = ((8, "X"), (4, "R"), (2, "W"), (1, "I"))  # priority, read, write, inherit


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """One queue of a topic. Times are ms since the epoch; None without messages."""

    topic: str
    queueId: int
    minOffset: int
    maxOffset: int
    firstStoreTimestamp: int | None
    lastStoreTimestamp: int | None
    bytes: int | None  # size of the queue's own files; None for a live cluster
    groups: dict[str, int]  # group to its lag

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow(PlainRow):
    """One topic. For a live cluster, numbers are totals over all brokers; what brokers do not report is None."""

    topic: str
    kind: str  # normal, retry, dlq or system
    configured: bool  # topics.json has it
    readQueueNums: int | None
    writeQueueNums: int | None
    perm: str | None  # R, W, and I for a topic that others inherit from
    order: bool | None
    queues: int | None  # on disk
    messages: int | None  # between the lowest and highest offsets of its queues
    groups: int  # number of groups with an offset in it
    lastStoreTimestamp: int | None
    messageType: str | None = None  # the topic's attribute, as stored: NORMAL, FIFO, DELAY, TRANSACTION ...
    queueType: str | None = None  # SimpleCQ or BatchCQ
    cleanupPolicy: str | None = None  # DELETE or COMPACTION
    bytes: int | None  # bytes of its messages in the commit log; in queueTable those of a queue's own files

    @property
    def nature(self) -> list[str]:
        """Its kind, and other properties that a normal topic does not have."""
        return nature(self.topic, self.kind, self.messageType, self.queueType, self.cleanupPolicy)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDetails:
    """One topic with its queues."""

    summary: TopicRow
    queues: Sequence[QueueInfo] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return {**self.summary.to_dict(), "queueTable": [queue.to_dict() for queue in self.queues]}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedTopic(PlainRow):
    """A topic that could be deleted, and why. For a live cluster, numbers are totals over all brokers."""

    topic: str
    reason: str
    configured: bool
    queues: int
    messages: int
    bytes: int | None  # of its queues' files; brokers do not report them


NO_MESSAGES, NO_CONSUMER = "no messages", "no group has an offset in it"
NO_GROUP = "its group is not in subscriptionGroup.json"
"""Reasons why a topic is unused."""


class StoreTopics:
    """The topics of one store."""

    queue_row = QueueInfo

    def __init__(self, log: CommitLog, warn: Warn) -> None:
        self.log = log
        self.queues = TopicQueues(log.layout)
        self._tier = Tier.of(log.layout)
        warn_of_unbuilt(log, warn)
        table = topics_of(log.layout, warn)
        self.lost = table is None  # then it is unknown what is configured
        self.configs = dict(table.topics) if table is not None else {}
        groups = groups_of(log.layout, warn)
        self.groups: set[str] | None = set(groups.groups) if groups is not None else None  # None: lost
        self.consumers: dict[str, dict[str, Mapping[int, int]]] = {}  # topic → group → queue → offset
        for (topic, group), offsets in offsets_of(known_offsets(log.layout, warn)).items():
            self.consumers.setdefault(topic, {})[group] = offsets
        pairs = ((topic, group) for topic, groups in self.consumers.items() for group in groups)
        self._retry_names = RetryNames(self.groups or (), self.configs, pairs)

    def names(self) -> list[str]:
        """Every topic that has queues or a config entry."""
        batches = {topic for topic, _queue_id, _path in self.log.layout.queue_dirs(BATCH_QUEUES)}
        return sorted({*self.configs, *self.queues.topics(), *batches})

    def summaries(self) -> Iterator[TopicRow]:
        """Every topic, sorted."""
        return map(self.summary, self.names())

    def summary(self, topic: str) -> TopicRow:
        """The summary of one topic, which may be unknown."""
        queues, config = self.queues.every(topic), self.configs.get(topic)
        attributes = config.attributes if config is not None else {}
        last = [time for queue in queues if (time := self._time(queue, queue.max_offset - 1)) is not None]
        begins = [(queue, queue.min_offset(self.log.min_offset)) for queue in queues]
        return TopicRow(
            topic=topic,
            kind=kind_of(topic, config, self.configs),
            configured=config is not None,
            readQueueNums=config.read_queue_nums if config is not None else None,
            writeQueueNums=config.write_queue_nums if config is not None else None,
            perm=permission(config.perm) if config is not None else None,
            order=config.order if config is not None else None,
            queues=len(queues),
            messages=sum(queue.max_offset - self._with_tier(queue, low) for queue, low in begins),
            groups=len(self.consumers.get(topic, ())),
            lastStoreTimestamp=max(last, default=None),
            messageType=attributes.get("message.type"),
            queueType=attributes.get("queue.type"),
            cleanupPolicy=attributes.get("cleanup.policy"),
            bytes=sum(self._stored_bytes(queue, low) for queue, low in begins),
        )

    def details(self, topic: str) -> TopicDetails | None:
        """One topic with its queues; None if unknown."""
        queues = self.queues.every(topic)
        if not queues and topic not in self.configs:
            return None
        return TopicDetails(summary=self.summary(topic), queues=[self._queue(queue) for queue in queues])

    def _queue(self, queue: AnyQueue) -> QueueInfo:
        low, high = self._begin(queue), queue.max_offset
        consumers = self.consumers.get(queue.topic, {})
        return QueueInfo(
            topic=queue.topic,
            queueId=queue.queue_id,
            minOffset=low,
            maxOffset=high,
            firstStoreTimestamp=self._time(queue, low),
            lastStoreTimestamp=self._time(queue, high - 1),
            bytes=queue.segments.bytes,
            groups={
                group: high - offsets[queue.queue_id]
                for group, offsets in sorted(consumers.items())
                if queue.queue_id in offsets
            },
        )

    def _messages(self, queue: AnyQueue) -> int:
        return queue.max_offset - self._begin(queue)

    def _begin(self, queue: AnyQueue) -> int:
        """The lowest offset that consumers can read."""
        return self._with_tier(queue, queue.min_offset(self.log.min_offset))

    def _with_tier(self, queue: AnyQueue, low: int) -> int:
        """The lowest offset of a queue, given the local one: the tier's, if there is a tier."""
        return low if self._tier is None else self._tier.begin(queue.topic, queue.queue_id, low)

    def _stored_bytes(self, queue: AnyQueue, low: int) -> int:
        """Bytes of a queue's messages from an offset on, by its units."""
        if isinstance(queue, BatchQueue):
            units = (units[units["physical_offset"] >= self.log.min_offset] for _base, units in queue.runs())
        else:
            units = (units for _first, units in queue.runs(low))
        return sum(int(sizes["size"].sum(dtype="int64")) for sizes in units)

    def _time(self, queue: AnyQueue, offset: int) -> int | None:
        record = self._tier.record(queue.topic, queue.queue_id, offset) if self._tier is not None else None
        if record is not None:
            return record.store_timestamp
        entry = queue.entry(offset) if 0 <= offset < queue.max_offset else None
        message = self.log.read(entry.physical_offset, crc=False) if entry is not None else None
        return message.record.store_timestamp if message is not None else None

    def find_unused(self) -> Iterator[UnusedTopic]:
        """Application topics without messages, without a consumer, or known only from their files."""
        for topic in self.names():
            config, queues = self.configs.get(topic), self.queues.every(topic)
            kind = kind_of(topic, config, self.configs)
            messages = sum(map(self._messages, queues))
            if kind == "system":
                continue
            if config is None and not self.lost:
                reason = "not in topics.json: the broker removes its queues (cleanUnusedTopic)"
            elif kind == "normal" and not messages:
                reason = NO_MESSAGES
            elif kind == "normal" and topic not in self.consumers:
                reason = NO_CONSUMER
            elif kind in ("retry", "dlq") and self._without_group(topic):
                reason = NO_GROUP
            else:
                continue
            yield UnusedTopic(
                topic=topic,
                reason=reason,
                configured=config is not None,
                queues=len(queues),
                messages=messages,
                bytes=sum(queue.segments.bytes for queue in queues),
            )

    def _without_group(self, topic: str) -> bool:
        return self.groups is not None and self._retry_names.of(topic).group not in self.groups


def permission(perm: int) -> str:
    """Permission bits as letters (common.constant.PermName); ``-`` for none."""
    return "".join(letter for bit, letter in _PERMISSIONS if perm & bit) or "-"
