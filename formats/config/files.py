"""The configuration files of a broker, typed: one model per file, each with ``parse`` and ``build``.

Members, defaults and versions follow the Java class that each model names (apache/rocketmq 4.9.8 and 5.3.3: managers in
``broker``, the classes they wrap in ``remoting`` and, in 4.9, ``common``). Times are milliseconds since the epoch.
Tables keep the order of the file, which is Java's hash order, so that a file built for the version that wrote it has
the same bytes again. The one exception is a ``{"$ref":…}``: it is expanded, since brokers write it but do not read it
back.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import chain
from typing import ClassVar, NamedTuple, Self

from formats.config.file import ConfigFile
from formats.fastjson.declare import Bean, Int, Long, member
from formats.fastjson.values import Key, Value
from formats.model.groups import SubscriptionGroup
from formats.model.topics import DataVersion, TopicConfig
from formats.topics import LMQ_PREFIX
from formats.versions import V5_3, Version


class QueueOffset(NamedTuple):
    """One entry of a consumer offset table."""

    topic: str
    group: str
    queue_id: int
    offset: int  # next offset to consume


class OffsetTable(NamedTuple):
    """All offsets of one group in one topic."""

    topic: str
    group: str
    queues: Mapping[int, int]  # next offset to consume, by queue


def split_key(key: str) -> tuple[str, str]:
    """Topic and group of a ``topic@group``; neither contains an ``@``. Without an ``@`` it is a topic."""
    topic, at, group = key.rpartition("@")
    return (topic, group) if at else (group, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOffsets(ConfigFile):
    """``consumerOffset.json`` (``ConsumerOffsetManager``).

    5.3 also writes ``groupTopicMap`` (group to topics), which it derives from the offsets and never reads. It is kept
    in `extra`, and omitted if it no longer agrees with the offsets or for 4.9.
    """

    KEEP: ClassVar[str | None] = "offsetTable"
    data_version: DataVersion = member(default=DataVersion, since=V5_3)
    offsets: Mapping[str, Mapping[Int, Long]] = member("offsetTable", dict)  # topic@group → queue

    def tables(self) -> Iterator[OffsetTable]:
        """The offsets of each group in each topic, in the order of the file. Not copied, as there may be millions."""
        names: dict[str, str] = {}  # there are few topics and groups, and millions of pairs
        for key, queues in self.offsets.items():
            topic, group = split_key(key)
            yield OffsetTable(names.setdefault(topic, topic), names.setdefault(group, group), queues)

    def entries(self) -> Iterator[QueueOffset]:
        """Every offset, in the order of the file."""
        for topic, group, queues in self.tables():
            for queue_id, offset in queues.items():
                yield QueueOffset(topic, group, queue_id, offset)

    def offset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Next offset to consume; None if the group has none."""
        return self.offsets.get(f"{topic}@{group}", {}).get(queue_id)

    def with_offset(self, topic: str, group: str, queue_id: int, offset: int) -> Self:
        """A copy with one offset set, and all others and their order unchanged."""
        key = f"{topic}@{group}"
        return replace(self, offsets={**self.offsets, key: {**self.offsets.get(key, {}), queue_id: offset}})

    def write(self, version: Version) -> dict[Key, Value]:
        content = super(ConsumerOffsets, self).write(version)  # slots=True makes a new class, which bare super() misses
        if version < V5_3 or not _agree(content.get("groupTopicMap"), self.offsets):
            content.pop("groupTopicMap", None)
        return content


def _agree(groups: Value, offsets: Mapping[str, Mapping[int, int]]) -> bool:
    """Whether a ``groupTopicMap`` is the one a broker would derive."""
    if not isinstance(groups, dict):
        return False
    written = {
        (topic, group) for group, topics in groups.items() if isinstance(topics, list) for topic in map(str, topics)
    }
    return written == {split_key(key) for key in offsets if key.count("@") == 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class LmqConsumerOffsets(ConsumerOffsets):
    """``lmqConsumerOffset.json``, which replaces the other file with ``enableLmq`` (``LmqConsumerOffsetManager``)."""

    lmq_offsets: Mapping[str, Long] = member("lmqOffsetTable", dict)  # topic@group; an LMQ has one queue

    def tables(self) -> Iterator[OffsetTable]:
        """See the base class; offsets of LMQ groups come last, with queue 0."""
        light = (OffsetTable(*split_key(key), {0: offset}) for key, offset in self.lmq_offsets.items())
        return chain(super(LmqConsumerOffsets, self).tables(), light)

    def offset(self, topic: str, group: str, queue_id: int) -> int | None:
        """See the base class; an LMQ group has the same offset for all queues."""
        if group.startswith(LMQ_PREFIX):
            return self.lmq_offsets.get(f"{topic}@{group}")
        return super(LmqConsumerOffsets, self).offset(topic, group, queue_id)

    def with_offset(self, topic: str, group: str, queue_id: int, offset: int) -> Self:
        """See the base class; the offset of an LMQ group goes to its own table."""
        if group.startswith(LMQ_PREFIX):
            return replace(self, lmq_offsets={**self.lmq_offsets, f"{topic}@{group}": offset})
        return super(LmqConsumerOffsets, self).with_offset(topic, group, queue_id, offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics(ConfigFile):
    """``topics.json`` (``TopicConfigSerializeWrapper``)."""

    data_version: DataVersion = member(default=DataVersion)
    topics: Mapping[str, TopicConfig] = member("topicConfigTable", dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroups(ConfigFile):
    """``subscriptionGroup.json`` (``SubscriptionGroupManager``)."""

    data_version: DataVersion = member(default=DataVersion)
    groups: Mapping[str, SubscriptionGroup] = member("subscriptionGroupTable", dict)
    forbidden: Mapping[str, Mapping[str, Int]] = member("forbiddenTable", dict, since=V5_3)  # group → topic → bits


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayOffsets(ConfigFile):
    """``delayOffset.json`` (``DelayOffsetSerializeWrapper``)."""

    data_version: DataVersion = member(default=DataVersion, since=V5_3)
    offsets: Mapping[Int, Long] = member("offsetTable", dict)  # level (queue id + 1) → next queue offset


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomFilterData(Bean):
    """``BloomFilterData``: the bits that represent a group in the bit maps of a queue's extension."""

    bit_num: Int = 0
    bit_pos: tuple[Int, ...] | None = member(default=None, inline=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFilter(Bean):
    """The filter of one group (``ConsumerFilterData``). The compiled expression is not stored."""

    DERIVED: ClassVar[tuple[str, ...]] = ("dead",)
    topic: str | None = None
    consumer_group: str | None = None
    expression: str | None = None
    expression_type: str | None = None
    born_time: Long = 0
    dead_time: Long = 0
    bloom_filter_data: BloomFilterData | None = None
    client_version: Long = 0

    @property
    def dead(self) -> bool:
        """Whether the group is gone."""
        return self.dead_time >= self.born_time


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFilters(Bean):
    """All filters on one topic (``ConsumerFilterManager.FilterDataMapByTopic``)."""

    topic: str | None = None
    groups: Mapping[str, ConsumerFilter] = member("groupFilterData", dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFilters(ConfigFile):
    """``consumerFilter.json`` (``ConsumerFilterManager``)."""

    topics: Mapping[str, TopicFilters] = member("filterDataByTopic", dict)


_MODELS: dict[str, type[ConfigFile] | str] = {
    "topics.json": Topics,
    "subscriptionGroup.json": SubscriptionGroups,
    "consumerOffset.json": ConsumerOffsets,
    "lmqConsumerOffset.json": LmqConsumerOffsets,
    "delayOffset.json": DelayOffsets,
    "consumerFilter.json": ConsumerFilters,
    # few stores have these, so their modules are loaded on demand
    "consumerOrderInfo.json": "files_of_5.ConsumerOrderInfos",
    "topicQueueMapping.json": "files_of_5.TopicQueueMappings",
    "messageRequestMode.json": "files_of_5.MessageRequestModes",
    "timermetrics": "files_of_5.TimerMetrics",
    "transactionMetrics": "files_of_5.TransactionMetrics",
    "tieredStoreMetadata.json": "tiered.TieredMetadata",
}
NAMES = tuple(_MODELS)
"""The files below ``config/`` that have a model; ``topics.json`` comes before those that refer to topics."""


def model_of(file_name: str) -> type[ConfigFile]:
    """The model of one of `NAMES`."""
    model = _MODELS[file_name]
    if isinstance(model, str):
        module, _, name = model.partition(".")
        loaded: type[ConfigFile] = getattr(import_module(f"formats.config.{module}"), name)
        return loaded
    return model


def kind_of(file_name: str) -> type[ConfigFile] | None:
    """The model of a file by its name, including ``.bak`` and ``.tmp``; None for any other file."""
    name = file_name.removesuffix(".bak").removesuffix(".tmp")
    return model_of(name) if name in _MODELS else None
