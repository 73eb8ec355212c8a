"""The configuration files that only 5.x brokers write; see `formats.config.files` for the others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from formats.config.file import ConfigFile
from formats.fastjson.declare import Bean, Int, Long, member
from formats.fastjson.dialects import BROWSER, Dialect
from formats.model.topics import DataVersion
from formats.versions import V5_3, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderInfo(Bean):
    """The messages that a group last popped from a queue in order (``ConsumerOrderInfoManager.OrderInfo``)."""

    attempt_id: str | None = member("a", None)
    commit_bits: Long = member("cm", 0)  # bit i: the message at offset i of the list is committed
    invisible_time: Long | None = member("i", None)
    last_consume_timestamp: Long = member("l", 0)
    offset_list: tuple[Long, ...] | None = member("o", None)  # as stored: the first offset, then distances from it
    consumed_counts: Mapping[Long, Int] | None = member("oc", None)  # queue offset → times consumed
    next_visible: Mapping[Long, Long] | None = member("ot", None)  # queue offset → time
    pop_time: Long = 0

    @property
    def queue_offsets(self) -> tuple[int, ...]:
        """The decoded offsets."""
        first, *distances = self.offset_list or (0,)
        return (first, *(first + distance for distance in distances)) if self.offset_list else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOrderInfos(ConfigFile):
    """``consumerOrderInfo.json``, of ordered pop (``ConsumerOrderInfoManager``)."""

    SINCE: ClassVar[Version] = V5_3
    table: Mapping[str, Mapping[Int, OrderInfo]] = member(default=dict)  # topic@group → queue


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicQueueMapping(Bean):
    """A range of a static topic's logic queue (``LogicQueueMappingItem``)."""

    gen: Int = 0
    queue_id: Int = 0
    broker_name: str | None = member("bname", None)
    logic_offset: Long = 0  # of its first message in the logic queue
    start_offset: Long = 0  # and in the physical one
    end_offset: Long = -1  # exclusive; -1: still growing
    time_of_start: Long = -1
    time_of_end: Long = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQueueMapping(Bean):
    """The part of a static topic that this broker hosts (``TopicQueueMappingDetail``)."""

    topic: str | None = None
    scope: str | None = "__global__"
    total_queues: Int = 0
    broker_name: str | None = member("bname", None)
    epoch: Long = 0
    dirty: bool = False
    current_ids: Mapping[Int, Int] = member("currIdMap", dict)  # logic queue → physical queue
    hosted_queues: Mapping[Int, tuple[LogicQueueMapping, ...]] = member(default=dict)  # logic queue → its ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQueueMappings(ConfigFile):
    """``topicQueueMapping.json`` (``TopicQueueMappingSerializeWrapper``)."""

    SINCE: ClassVar[Version] = V5_3
    data_version: DataVersion = member(default=DataVersion)
    mappings: Mapping[str, TopicQueueMapping] = member("topicQueueMappingInfoMap", dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRequestMode(Bean):
    """How a group receives a topic's messages (``SetMessageRequestModeRequestBody``)."""

    topic: str | None = None
    consumer_group: str | None = None
    mode: str = "PULL"  # or POP
    pop_share_queue_num: Int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRequestModes(ConfigFile):
    """``messageRequestMode.json`` (``MessageRequestModeManager``)."""

    SINCE: ClassVar[Version] = V5_3
    modes: Mapping[str, Mapping[str, MessageRequestMode]] = member("messageRequestModeMap", dict)  # topic → group


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(Bean):
    """A count and the time of its last change (``TimerMetrics.Metric``, ``TransactionMetrics.Metric``)."""

    count: Long = 0
    timestamp: Long = member("timeStamp", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metrics(ConfigFile):
    """Messages that wait, by topic."""

    SINCE: ClassVar[Version] = V5_3
    DIALECT: ClassVar[Dialect] = BROWSER
    data_version: DataVersion = member(default=DataVersion)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerMetrics(_Metrics):
    """``timermetrics``: messages in the timer by topic (``TimerMetrics``)."""

    counts: Mapping[str, Metric] = member("timingCount", dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetrics(_Metrics):
    """``transactionMetrics``: half messages by topic (``TransactionMetrics``)."""

    counts: Mapping[str, Metric] = member("transactionCount", dict)
