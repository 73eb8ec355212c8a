"""The topics of a store that are copied to one of their own."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from formats.config.files import ConsumerFilters, ConsumerOffsets, LmqConsumerOffsets, Topics, split_key
from formats.message.properties import REAL_TOPIC, parse
from formats.message.read import Record
from formats.topics import SCHEDULE, SYSTEM_PREFIX, SYSTEM_TOPICS, TIMER
from formats.versions import V4_9, V5_3

_WAITING = {SCHEDULE.encode(), TIMER.encode()}
_OFFSETS = {"consumerOffset.json": ConsumerOffsets, "lmqConsumerOffset.json": LmqConsumerOffsets}
_LEFT_OUT = ("topicQueueMapping.json", "transactionMetrics", "timermetrics", "consumerOrderInfo.json")


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Topics by name or pattern, and what waits for delivery to them.

    Attributes:
        patterns: ``*``, ``?`` and ``[...]`` as in a shell.
    """

    patterns: tuple[str, ...]

    def takes_topic(self, topic: str) -> bool:
        """Whether a topic is wanted."""
        return any(topic == pattern or fnmatchcase(topic, pattern) for pattern in self.patterns)

    def takes(self, record: Record) -> bool:
        """Whether a record is a message of a wanted topic, or one that waits until it is delivered to one."""
        topic = record.topic
        if topic in _WAITING:
            topic = parse(record.properties).get(REAL_TOPIC, "").encode("utf-8", "surrogateescape")
        return self.takes_topic(topic.decode("utf-8", "surrogateescape"))

    def narrow(self, name: str, data: bytes) -> bytes | None:
        """A config file of the new store; None if it has none.

        Raises:
            FormatError: the file cannot be read.
        """
        if name in _LEFT_OUT:
            return None
        version = V5_3 if b'"dataVersion"' in data else V4_9
        if name == "topics.json":
            table = Topics.parse(data)
            topics = {topic: config for topic, config in table.topics.items() if self._keeps(topic)}
            return replace(table, topics=topics).build(V5_3 if b'"attributes"' in data else V4_9)
        if name in _OFFSETS:
            offsets = _OFFSETS[name].parse(data)  # light queues are made of messages of any topic: theirs stay
            wanted = {key: queues for key, queues in offsets.offsets.items() if self.takes_topic(split_key(key)[0])}
            return replace(offsets, offsets=wanted).build(version)
        if name == "consumerFilter.json":
            filters = ConsumerFilters.parse(data)
            chosen = {topic: table for topic, table in filters.topics.items() if self.takes_topic(topic)}
            return replace(filters, topics=chosen).build(version)
        return data

    def _keeps(self, topic: str) -> bool:
        return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX) or self.takes_topic(topic)


def missing_topics(selection: TopicSelection, topics: Collection[str]) -> list[str]:
    """The patterns that none of these topics matches."""
    return [
        pattern
        for pattern in selection.patterns
        if not any(topic == pattern or fnmatchcase(topic, pattern) for topic in topics)
    ]
