"""Headers and bodies of what admin tools ask a broker (remoting.protocol.header, body, admin)."""

from dataclasses import dataclass, field

from formats.config.beans import Bean, Nested, member
from formats.config.files import SubscriptionGroup
from formats.config.files import TopicConfig as StoredTopic
from formats.config.kinds import Items
from formats.remoting.shapes import (
    DataVersion,
    MessageQueue,
    SubscriptionGroupConfig,
    TopicConfig,
)
from formats.remoting.typed import Int, Long


@dataclass(kw_only=True)
class DeleteGroup:
    """A consumer group to forget (DeleteSubscriptionGroupRequestHeader)."""

    group_name: str
    remove_offset: bool = False  # since 4.9; 5.x says cleanOffset in its tool, and sends this


@dataclass(kw_only=True)
class CloneOffsets:
    """Offsets of a group for another (CloneGroupOffsetRequestHeader)."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@dataclass(kw_only=True)
class RunningInfo:
    """A client that is asked about itself (GetConsumerRunningInfoRequestHeader)."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@dataclass(kw_only=True)
class ConsumeDirectly:
    """A message that a client is to consume now (ConsumeMessageDirectlyResultRequestHeader)."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None  # 5.x, as what follows
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None


@dataclass(kw_only=True)
class ConsumerStatus:
    """Where the clients of a group are (GetConsumerStatusRequestHeader)."""

    topic: str
    group: str
    client_addr: str | None = None


@dataclass(kw_only=True)
class TimeSpan:
    """A topic and a group (QueryConsumeTimeSpanRequestHeader)."""

    topic: str
    group: str


@dataclass
class TopicConfigs:
    """All topics of a broker (body.TopicConfigSerializeWrapper)."""

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


@dataclass
class GroupConfigs:
    """All consumer groups of a broker (body.SubscriptionGroupWrapper)."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


@dataclass
class ProducerInfo:
    """A producer that is online (body.ProducerInfo)."""

    client_id: str
    language: str
    last_update_timestamp: Long
    remote_ip: str
    version: Int


@dataclass
class ProducerTable:
    """Producers by group (body.ProducerTableInfo)."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


@dataclass
class QueueTimeSpan:
    """How old a queue is, and where a group is in it (body.QueueTimeSpan). Times are ms."""

    message_queue: MessageQueue
    min_time_stamp: Long
    max_time_stamp: Long
    consume_time_stamp: Long
    delay_time: Long


@dataclass
class QueueTimeSpans:
    """The queues of a topic (body.QueryConsumeTimeSpanBody)."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


@dataclass
class ClientOffsets:
    """Where one client is (body.GetConsumerStatusBody, of a client)."""

    message_queue_table: dict[MessageQueue, Long] = field(default_factory=dict)


@dataclass
class GroupStatus:
    """Where the clients of a group are (body.GetConsumerStatusBody)."""

    message_queue_table: dict[MessageQueue, Long] = field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, Long]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsToSet(Bean):
    """Topics to make or change (body.CreateTopicListRequestBody, of 5.3)."""

    topics: tuple[StoredTopic, ...] = member("topicConfigList", Items(Nested(StoredTopic)), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsToSet(Bean):
    """Groups to make or change (subscription.SubscriptionGroupList, of 5.3)."""

    groups: tuple[SubscriptionGroup, ...] = member("groupConfigList", Items(Nested(SubscriptionGroup)), ())
