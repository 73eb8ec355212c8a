"""Bodies that are JSON objects (remoting.protocol.body, admin, route, heartbeat)."""

from dataclasses import dataclass, field

from formats.fastjson.declare import Int, Long, member
from formats.model.topics import DataVersion, TopicConfig
from formats.remoting.shapes import (
    BrokerData,
    Connection,
    ConsumerData,
    MappingInfo,
    MessageQueue,
    OffsetWrapper,
    ProducerData,
    QueueAssignment,
    QueueData,
    StatsItem,
    SubscriptionData,
    TopicOffset,
)

_UNKNOWN_VERSION = DataVersion(state_version=None)


@dataclass
class TopicTable:
    """The topics of a broker (body.TopicConfigAndMappingSerializeWrapper)."""

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = _UNKNOWN_VERSION
    mapping_data_version: DataVersion | None = None  # 5.x, as what follows
    topic_queue_mapping_info_map: dict[str, MappingInfo] | None = None
    topic_queue_mapping_detail_map: dict[str, MappingInfo] | None = None


@dataclass
class RegisterBrokerBody:
    """What a broker tells a name server (body.RegisterBrokerBody)."""

    topic_config_serialize_wrapper: TopicTable = field(default_factory=TopicTable)
    filter_server_list: list[str] = field(default_factory=list)


@dataclass
class KVTable:
    """Texts under keys (body.KVTable)."""

    table: dict[str, str] = field(default_factory=dict)


@dataclass
class TopicList:
    """Names of topics (body.TopicList)."""

    topic_list: list[str] = field(default_factory=list)
    broker_addr: str | None = None


@dataclass
class GroupList:
    """Names of groups (body.GroupList)."""

    group_list: list[str] = field(default_factory=list)


@dataclass
class TopicRouteData:
    """Where a topic's queues are (route.TopicRouteData)."""

    broker_datas: list[BrokerData] = field(default_factory=list)
    queue_datas: list[QueueData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, MappingInfo] | None = None  # 5.x


@dataclass
class ClusterInfo:
    """All brokers and the clusters that they are in (body.ClusterInfo)."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class MemberGroup:
    """Addresses of a broker and its slaves (body.BrokerMemberGroup, 5.x)."""

    cluster: str
    broker_name: str
    broker_addrs: dict[Long, str] = field(default_factory=dict)


@dataclass
class MemberGroupResponse:
    """Those (body.GetBrokerMemberGroupResponseBody, 5.x)."""

    broker_member_group: MemberGroup


@dataclass
class ConfigKeys:
    """Names of settings (body.GetRemoteClientConfigBody, 5.x)."""

    keys: list[str] = field(default_factory=list)


@dataclass
class HeartbeatData:
    """Groups that a client is in (heartbeat.HeartbeatData)."""

    client_id: str = member("clientID")
    producer_data_set: list[ProducerData] = field(default_factory=list)
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: Int | None = None  # 5.x, as what follows
    without_sub: bool | None = None


@dataclass
class ConsumerIds:
    """Clients of a group (header.GetConsumerListByGroupResponseBody)."""

    consumer_id_list: list[str] = field(default_factory=list)


@dataclass
class LockRequest:
    """Queues that a client asks for alone, or gives back (body.LockBatchRequestBody, UnlockBatchRequestBody)."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = field(default_factory=list)
    only_this_broker: bool | None = None  # 5.x


@dataclass
class LockResponse:
    """Queues that it got (body.LockBatchResponseBody)."""

    lock_ok_mq_set: list[MessageQueue] = member("lockOKMQSet")


@dataclass
class TopicStats:
    """Offsets of a topic's queues (admin.TopicStatsTable)."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float | None = None  # 5.x


@dataclass
class ConsumeStats:
    """How far a group has come (admin.ConsumeStats)."""

    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


@dataclass
class ConsumerConnection:
    """Clients of a consumer group and what it wants (body.ConsumerConnection)."""

    connection_set: list[Connection] = field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


@dataclass
class ProducerConnection:
    """Clients of a producer group (body.ProducerConnection)."""

    connection_set: list[Connection] = field(default_factory=list)


@dataclass
class ResetOffsets:
    """Offsets that a group was set to (body.ResetOffsetBody)."""

    offset_table: dict[MessageQueue, Long] = field(default_factory=dict)


@dataclass
class BrokerStats:
    """Counts of the last minute, hour and day (body.BrokerStatsData)."""

    stats_minute: StatsItem
    stats_hour: StatsItem
    stats_day: StatsItem


@dataclass
class AssignmentRequest:
    """Asks which queues of a topic a client is to read (body.QueryAssignmentRequestBody, 5.x)."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str | None = None
    message_model: str | None = None


@dataclass
class AssignmentResponse:
    """The queues; None from a broker that cannot say (body.QueryAssignmentResponseBody, 5.x)."""

    message_queue_assignments: list[QueueAssignment] | None = None


@dataclass
class RequestMode:
    """Whether a group pulls or pops a topic (body.SetMessageRequestModeRequestBody, 5.x)."""

    topic: str
    consumer_group: str
    mode: str
    pop_share_queue_num: Int = 0


@dataclass
class CheckClient:
    """A filter that a client is going to use (body.CheckClientRequestBody)."""

    client_id: str
    group: str
    subscription_data: SubscriptionData


@dataclass
class ConsumeQueueData:
    """An entry of a queue (body.ConsumeQueueData)."""

    physic_offset: Long
    physic_size: Int
    tags_code: Long
    eval: bool = False


@dataclass
class QueueEntries:
    """Entries of a queue (body.QueryConsumeQueueResponseBody)."""

    queue_data: list[ConsumeQueueData] = field(default_factory=list)
    min_queue_index: Long = 0
    max_queue_index: Long = 0
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


@dataclass
class OffsetMoved:
    """A consumer has asked for an offset that is not there (topic.OffsetMovedEvent); a message that brokers store."""

    consumer_group: str
    message_queue: MessageQueue
    offset_request: Long
    offset_new: Long
