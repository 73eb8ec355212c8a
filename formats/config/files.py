"""The configuration files of a broker, typed: one model per file, each with ``parse`` and ``build``.

Members, defaults and versions after the Java class that each model names (apache/rocketmq 4.9.8 and 5.3.3: managers in
``broker``, what they wrap in ``remoting`` and, in 4.9, ``common``). Times are milliseconds since the epoch. Tables keep
the order of the file, which is Java's hash order, so that a file built for the version that wrote it has the same bytes
again. The one exception is a ``{"$ref":…}``: it is built in full, since brokers write it but do not read it back.
"""

# ruff: noqa: RUF009 - member() makes a dataclass field, not a default that instances share

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar, NamedTuple, Self

from formats.config.beans import VERSION, Bean, ConfigFile, DataVersion, Nested, member
from formats.config.files_v5 import (
    ConsumerOrderInfos,
    LogicQueueMapping,
    MessageRequestMode,
    MessageRequestModes,
    Metric,
    OrderInfo,
    TimerMetrics,
    TopicQueueMapping,
    TopicQueueMappings,
    TransactionMetrics,
)
from formats.config.groups import (
    CustomizedRetry,
    ExponentialRetry,
    GroupRetryPolicy,
    SimpleSubscription,
    SubscriptionGroup,
    SubscriptionGroups,
)
from formats.config.kinds import FLAG, INT, LONG, TEXT, Items, Numbered, Table
from formats.config.tiered import TieredMetadata
from formats.fastjson.values import Key, Value
from formats.topics import LMQ_PREFIX
from formats.versions import V5_3, Version

__all__ = [
    "KINDS",
    "BloomFilterData",
    "ConfigFile",
    "ConsumerFilter",
    "ConsumerFilters",
    "ConsumerOffsets",
    "ConsumerOrderInfos",
    "CustomizedRetry",
    "DataVersion",
    "DelayOffsets",
    "ExponentialRetry",
    "GroupRetryPolicy",
    "LmqConsumerOffsets",
    "LogicQueueMapping",
    "MessageRequestMode",
    "MessageRequestModes",
    "Metric",
    "OrderInfo",
    "QueueOffset",
    "SimpleSubscription",
    "SubscriptionGroup",
    "SubscriptionGroups",
    "TieredMetadata",
    "TimerMetrics",
    "TopicConfig",
    "TopicFilters",
    "TopicQueueMapping",
    "TopicQueueMappings",
    "Topics",
    "TransactionMetrics",
    "kind_of",
    "split_key",
]


class QueueOffset(NamedTuple):
    """One entry of a consumer offset table."""

    topic: str
    group: str
    queue_id: int
    offset: int  # next one to consume


def split_key(key: str) -> tuple[str, str]:
    """Topic and group of a ``topic@group``; neither contains an ``@``. Without any, it is all topic."""
    topic, at, group = key.rpartition("@")
    return (topic, group) if at else (group, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOffsets(ConfigFile):
    """``consumerOffset.json`` (``ConsumerOffsetManager``).

    5.3 also writes ``groupTopicMap`` (group to topics), which it derives from the offsets and never reads. It is kept
    in `extra`, and left out where it no longer agrees with the offsets or the version is 4.9.
    """

    data_version: DataVersion = member("dataVersion", VERSION, DataVersion, since=V5_3)
    offsets: Mapping[str, Mapping[int, int]] = member("offsetTable", Table(Numbered(LONG)), dict)  # topic@group → queue

    def entries(self) -> Iterator[QueueOffset]:
        """Every offset in the order of the file."""
        for key, queues in self.offsets.items():
            topic, group = split_key(key)
            for queue_id, offset in queues.items():
                yield QueueOffset(topic, group, queue_id, offset)

    def offset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Next offset to consume; None where the group has none."""
        return self.offsets.get(f"{topic}@{group}", {}).get(queue_id)

    def with_offset(self, topic: str, group: str, queue_id: int, offset: int) -> Self:
        """The same table with one offset set, all others and their order untouched."""
        key = f"{topic}@{group}"
        return replace(self, offsets={**self.offsets, key: {**self.offsets.get(key, {}), queue_id: offset}})

    def write(self, version: Version) -> dict[Key, Value]:
        made = super(ConsumerOffsets, self).write(version)  # slots=True makes a new class, which bare super() misses
        if version < V5_3 or not _agree(made.get("groupTopicMap"), self.offsets):
            made.pop("groupTopicMap", None)
        return made


def _agree(groups: Value, offsets: Mapping[str, Mapping[int, int]]) -> bool:
    """Whether a ``groupTopicMap`` is the one that a broker would derive."""
    if not isinstance(groups, dict):
        return False
    written = {
        (topic, group) for group, topics in groups.items() if isinstance(topics, list) for topic in map(str, topics)
    }
    return written == {split_key(key) for key in offsets if key.count("@") == 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class LmqConsumerOffsets(ConsumerOffsets):
    """``lmqConsumerOffset.json``, in place of the other one with ``enableLmq`` (``LmqConsumerOffsetManager``)."""

    lmq_offsets: Mapping[str, int] = member("lmqOffsetTable", Table(LONG), dict)  # topic@group; an LMQ has one queue

    def entries(self) -> Iterator[QueueOffset]:
        """Every offset, those of LMQ groups after the others, as of queue 0."""
        light = (QueueOffset(*split_key(key), 0, offset) for key, offset in self.lmq_offsets.items())
        return chain(super(LmqConsumerOffsets, self).entries(), light)

    def offset(self, topic: str, group: str, queue_id: int) -> int | None:
        """As for any group; an LMQ group has the same offset whatever the queue."""
        if group.startswith(LMQ_PREFIX):
            return self.lmq_offsets.get(f"{topic}@{group}")
        return super(LmqConsumerOffsets, self).offset(topic, group, queue_id)

    def with_offset(self, topic: str, group: str, queue_id: int, offset: int) -> Self:
        """As for any group; that of an LMQ group goes into its own table."""
        if group.startswith(LMQ_PREFIX):
            return replace(self, lmq_offsets={**self.lmq_offsets, f"{topic}@{group}": offset})
        return super(LmqConsumerOffsets, self).with_offset(topic, group, queue_id, offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig(Bean):
    """One topic (``TopicConfig``)."""

    topic_name: str | None = member("topicName", TEXT)
    read_queue_nums: int = member("readQueueNums", INT, 16)
    write_queue_nums: int = member("writeQueueNums", INT, 16)
    perm: int = member("perm", INT, 6)  # 1 inherit, 2 write, 4 read, 8 priority
    topic_filter_type: str = member("topicFilterType", TEXT, "SINGLE_TAG")  # or MULTI_TAG
    topic_sys_flag: int = member("topicSysFlag", INT, 0)  # 1 unit, 2 has unit subscription
    order: bool = member("order", FLAG, False)
    attributes: Mapping[str, str] = member("attributes", Table(TEXT), dict, since=V5_3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics(ConfigFile):
    """``topics.json`` (``TopicConfigSerializeWrapper``)."""

    data_version: DataVersion = member("dataVersion", VERSION, DataVersion)
    topics: Mapping[str, TopicConfig] = member("topicConfigTable", Table(Nested(TopicConfig)), dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayOffsets(ConfigFile):
    """``delayOffset.json`` (``DelayOffsetSerializeWrapper``)."""

    data_version: DataVersion = member("dataVersion", VERSION, DataVersion, since=V5_3)
    offsets: Mapping[int, int] = member("offsetTable", Numbered(LONG), dict)  # level (queue id + 1) → next queue offset


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomFilterData(Bean):
    """``BloomFilterData``: the bits that stand for a group in a queue's extension bit maps."""

    bit_num: int = member("bitNum", INT, 0)
    bit_pos: tuple[int, ...] | None = member("bitPos", Items(INT, inline=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFilter(Bean):
    """The filter of one group (``ConsumerFilterData``). The compiled expression is not stored."""

    DERIVED: ClassVar[tuple[str, ...]] = ("dead",)
    topic: str | None = member("topic", TEXT)
    consumer_group: str | None = member("consumerGroup", TEXT)
    expression: str | None = member("expression", TEXT)
    expression_type: str | None = member("expressionType", TEXT)
    born_time: int = member("bornTime", LONG, 0)
    dead_time: int = member("deadTime", LONG, 0)
    bloom_filter_data: BloomFilterData | None = member("bloomFilterData", Nested(BloomFilterData))
    client_version: int = member("clientVersion", LONG, 0)

    @property
    def dead(self) -> bool:
        """Whether the group is gone."""
        return self.dead_time >= self.born_time


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFilters(Bean):
    """All filters on one topic (``ConsumerFilterManager.FilterDataMapByTopic``)."""

    topic: str | None = member("topic", TEXT)
    groups: Mapping[str, ConsumerFilter] = member("groupFilterData", Table(Nested(ConsumerFilter)), dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFilters(ConfigFile):
    """``consumerFilter.json`` (``ConsumerFilterManager``)."""

    topics: Mapping[str, TopicFilters] = member("filterDataByTopic", Table(Nested(TopicFilters)), dict)


KINDS: dict[str, type[ConfigFile]] = {
    "topics.json": Topics,
    "subscriptionGroup.json": SubscriptionGroups,
    "consumerOffset.json": ConsumerOffsets,
    "lmqConsumerOffset.json": LmqConsumerOffsets,
    "delayOffset.json": DelayOffsets,
    "consumerFilter.json": ConsumerFilters,
    "consumerOrderInfo.json": ConsumerOrderInfos,
    "topicQueueMapping.json": TopicQueueMappings,
    "messageRequestMode.json": MessageRequestModes,
    "timermetrics": TimerMetrics,
    "transactionMetrics": TransactionMetrics,
    "tieredStoreMetadata.json": TieredMetadata,
}
"""File name below ``config/`` → its model."""


def kind_of(file_name: str) -> type[ConfigFile] | None:
    """The model of a file by its name, also for its ``.bak`` and ``.tmp``; None for any other file."""
    return KINDS.get(file_name.removesuffix(".bak").removesuffix(".tmp"))
