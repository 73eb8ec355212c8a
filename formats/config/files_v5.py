"""The configuration files that only brokers of 5.x have; `formats.config.files` is the module to import."""

# ruff: noqa: RUF009 - member() makes a dataclass field, not a default that instances share

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from formats.config.beans import VERSION, Bean, ConfigFile, DataVersion, Nested, member
from formats.config.kinds import FLAG, INT, LONG, TEXT, Items, Numbered, Table
from formats.fastjson.dialects import BROWSER, Dialect
from formats.versions import V5_3, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderInfo(Bean):
    """What a group last popped from a queue in order (``ConsumerOrderInfoManager.OrderInfo``)."""

    attempt_id: str | None = member("a", TEXT)
    commit_bits: int = member("cm", LONG, 0)  # bit i: the message at offset i of the list is committed
    invisible_time: int | None = member("i", LONG)
    last_consume_timestamp: int = member("l", LONG, 0)
    offset_list: tuple[int, ...] | None = member("o", Items(LONG))  # as stored: the first, then distances from it
    consumed_counts: Mapping[int, int] | None = member("oc", Numbered(INT, 64))  # queue offset → times consumed
    next_visible: Mapping[int, int] | None = member("ot", Numbered(LONG, 64))  # queue offset → time
    pop_time: int = member("popTime", LONG, 0)

    @property
    def queue_offsets(self) -> tuple[int, ...]:
        """The offsets themselves."""
        first, *distances = self.offset_list or (0,)
        return (first, *(first + distance for distance in distances)) if self.offset_list else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOrderInfos(ConfigFile):
    """``consumerOrderInfo.json``, of ordered pop (``ConsumerOrderInfoManager``)."""

    SINCE: ClassVar[Version] = V5_3
    table: Mapping[str, Mapping[int, OrderInfo]] = member(  # topic@group → queue
        "table", Table(Numbered(Nested(OrderInfo))), dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicQueueMapping(Bean):
    """Where a stretch of a static topic's logic queue lies (``LogicQueueMappingItem``)."""

    gen: int = member("gen", INT, 0)
    queue_id: int = member("queueId", INT, 0)
    broker_name: str | None = member("bname", TEXT)
    logic_offset: int = member("logicOffset", LONG, 0)  # of its first message in the logic queue
    start_offset: int = member("startOffset", LONG, 0)  # and in the physical one
    end_offset: int = member("endOffset", LONG, -1)  # not included; -1: still growing
    time_of_start: int = member("timeOfStart", LONG, -1)
    time_of_end: int = member("timeOfEnd", LONG, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQueueMapping(Bean):
    """The part of a static topic that this broker hosts (``TopicQueueMappingDetail``)."""

    topic: str | None = member("topic", TEXT)
    scope: str | None = member("scope", TEXT, "__global__")
    total_queues: int = member("totalQueues", INT, 0)
    broker_name: str | None = member("bname", TEXT)
    epoch: int = member("epoch", LONG, 0)
    dirty: bool = member("dirty", FLAG, False)
    current_ids: Mapping[int, int] = member("currIdMap", Numbered(INT), dict)  # logic queue → physical queue
    hosted_queues: Mapping[int, tuple[LogicQueueMapping, ...]] = member(  # logic queue → its stretches
        "hostedQueues", Numbered(Items(Nested(LogicQueueMapping))), dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQueueMappings(ConfigFile):
    """``topicQueueMapping.json`` (``TopicQueueMappingSerializeWrapper``)."""

    SINCE: ClassVar[Version] = V5_3
    data_version: DataVersion = member("dataVersion", VERSION, DataVersion)
    mappings: Mapping[str, TopicQueueMapping] = member(
        "topicQueueMappingInfoMap", Table(Nested(TopicQueueMapping)), dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRequestMode(Bean):
    """How a group gets a topic's messages (``SetMessageRequestModeRequestBody``)."""

    topic: str | None = member("topic", TEXT)
    consumer_group: str | None = member("consumerGroup", TEXT)
    mode: str = member("mode", TEXT, "PULL")  # or POP
    pop_share_queue_num: int = member("popShareQueueNum", INT, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRequestModes(ConfigFile):
    """``messageRequestMode.json`` (``MessageRequestModeManager``)."""

    SINCE: ClassVar[Version] = V5_3
    modes: Mapping[str, Mapping[str, MessageRequestMode]] = member(  # topic → group
        "messageRequestModeMap", Table(Table(Nested(MessageRequestMode))), dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(Bean):
    """A count and when it last changed (``TimerMetrics.Metric``, ``TransactionMetrics.Metric``)."""

    count: int = member("count", LONG, 0)
    timestamp: int = member("timeStamp", LONG, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerMetrics(ConfigFile):
    """``timermetrics``: messages in the timer by topic (``TimerMetrics``)."""

    SINCE: ClassVar[Version] = V5_3
    DIALECT: ClassVar[Dialect] = BROWSER
    data_version: DataVersion = member("dataVersion", VERSION, DataVersion)
    counts: Mapping[str, Metric] = member("timingCount", Table(Nested(Metric)), dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetrics(ConfigFile):
    """``transactionMetrics``: half messages by topic (``TransactionMetrics``)."""

    SINCE: ClassVar[Version] = V5_3
    DIALECT: ClassVar[Dialect] = BROWSER
    data_version: DataVersion = member("dataVersion", VERSION, DataVersion)
    counts: Mapping[str, Metric] = member("transactionCount", Table(Nested(Metric)), dict)
