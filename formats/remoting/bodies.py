"""JSON bodies (remoting.protocol.body, admin, route, heartbeat)."""

from dataclasses import dataclass, field

from formats.fastjson.declare import Int, Long, member
from formats.model.topics import DataVersion, TopicConfig
from formats.remoting.shapes import (
    BrokerData,
    ClientConnection,
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
    mapping_data_version: DataVersion | None = None  # 5.x, like the fields below
    topic_queue_mapping_info_map: dict[str, MappingInfo] | None = None
    topic_queue_mapping_detail_map: dict[str, MappingInfo] | None = None


@dataclass
class RegisterBrokerBody:
    """Registration of a broker with a name server (body.RegisterBrokerBody)."""

    topic_config_serialize_wrapper: TopicTable = field(default_factory=TopicTable)
    filter_server_list: list[str] = field(default_factory=list)


@dataclass
class KVTable:
    """Key-value pairs of text (body.KVTable)."""

    table: dict[str, str] = field(default_factory=dict)


@dataclass
class TopicList:
    """Topic names (body.TopicList)."""

    topic_list: list[str] = field(default_factory=list)
    broker_addr: str | None = None


@dataclass
class GroupList:
    """Group names (body.GroupList)."""

    group_list: list[str] = field(default_factory=list)


@dataclass
class TopicRouteData:
    """Brokers and queues of a topic (route.TopicRouteData)."""

    broker_datas: list[BrokerData] = field(default_factory=list)
    queue_datas: list[QueueData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, MappingInfo] | None = None  # 5.x


@dataclass
class ClusterInfo:
    """All brokers, and the brokers of each cluster (body.ClusterInfo)."""

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
    """Response with a member group (body.GetBrokerMemberGroupResponseBody, 5.x)."""

    broker_member_group: MemberGroup


@dataclass
class ConfigKeys:
    """Names of settings (body.GetRemoteClientConfigBody, 5.x)."""

    keys: list[str] = field(default_factory=list)


@dataclass
class HeartbeatData:
    """Groups that a client belongs to (heartbeat.HeartbeatData)."""

    client_id: str = member("clientID")
    producer_data_set: list[ProducerData] = field(default_factory=list)
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: Int | None = None  # 5.x, like the field below
    without_sub: bool | None = None


@dataclass
class ConsumerIds:
    """Clients of a group (header.GetConsumerListByGroupResponseBody)."""

    consumer_id_list: list[str] = field(default_factory=list)


@dataclass
class LockRequest:
    """Queues that a client wants to lock or unlock (body.LockBatchRequestBody, UnlockBatchRequestBody)."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = field(default_factory=list)
    only_this_broker: bool | None = None  # 5.x


@dataclass
class LockResponse:
    """Queues that were locked (body.LockBatchResponseBody)."""

    lock_ok_mq_set: list[MessageQueue] = member("lockOKMQSet")


@dataclass
class TopicStats:
    """Offsets of a topic's queues (admin.TopicStatsTable)."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float | None = None  # 5.x


@dataclass
class ConsumeStats:
    """Progress of a group (admin.ConsumeStats)."""

    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


@dataclass
class ConsumerConnection:
    """Clients and subscriptions of a consumer group (body.ConsumerConnection)."""

    connection_set: list[ClientConnection] = field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


@dataclass
class ProducerConnection:
    """Clients of a producer group (body.ProducerConnection)."""

    connection_set: list[ClientConnection] = field(default_factory=list)


@dataclass
class ResetOffsets:
    """Offsets to which a group was reset (body.ResetOffsetBody)."""

    offset_table: dict[MessageQueue, Long] = field(default_factory=dict)


@dataclass
class BrokerStats:
    """Statistics of the last minute, hour and day (body.BrokerStatsData)."""

    stats_minute: StatsItem
    stats_hour: StatsItem
    stats_day: StatsItem


@dataclass
class AssignmentRequest:
    """Asks which queues of a topic a client should read (body.QueryAssignmentRequestBody, 5.x)."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str | None = None
    message_model: str | None = None


@dataclass
class AssignmentResponse:
    """Queues assigned to a client; None if the broker cannot assign them (body.QueryAssignmentResponseBody, 5.x)."""

    message_queue_assignments: list[QueueAssignment] | None = None


@dataclass
class SetRequestMode:
    """Whether a group pulls or pops from a topic (body.SetMessageRequestModeRequestBody, 5.x)."""

    topic: str
    consumer_group: str
    mode: str
    pop_share_queue_num: Int = 0


@dataclass
class CheckClient:
    """Filter that a client is about to use (body.CheckClientRequestBody)."""

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
    """Event message that brokers store when a consumer asks for an invalid offset (topic.OffsetMovedEvent)."""

    consumer_group: str
    message_queue: MessageQueue
    offset_request: Long
    offset_new: Long
