"""JSON objects shared by several bodies (remoting.protocol.route, heartbeat, body; common.message)."""

from dataclasses import dataclass, field
from typing import Annotated

from formats.fastjson.declare import Int, Long


@dataclass(frozen=True, order=True)
class MessageQueue:
    """A queue; also used as a map key in bodies (common.message.MessageQueue)."""

    topic: str
    broker_name: str
    queue_id: Int

    def __str__(self) -> str:
        return f"{self.topic} queue {self.queue_id} of {self.broker_name}"


@dataclass
class SubscriptionData:
    """Subscription of a group to a topic (protocol.heartbeat.SubscriptionData)."""

    topic: str
    sub_string: str = "*"
    tags_set: list[str] = field(default_factory=list)
    code_set: list[Int] = field(default_factory=list)  # Java hashes of the tags
    sub_version: Long = 0  # ms
    expression_type: str = "TAG"
    class_filter_mode: bool = False


@dataclass
class ClientConnection:
    """A client of a group (protocol.body.Connection)."""

    client_id: str
    client_addr: str
    language: str
    version: Int


@dataclass
class BrokerData:
    """Addresses of a broker and its slaves (protocol.route.BrokerData)."""

    cluster: str
    broker_name: str
    broker_addrs: dict[Long, str]  # 0 is the master
    zone_name: str | None = None  # 5.x
    enable_acting_master: bool | None = None  # 5.x


@dataclass
class QueueData:
    """Queues of a topic on one broker (protocol.route.QueueData)."""

    broker_name: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_sys_flag: Int = 0


@dataclass
class MappingInfo:
    """Logical queues of a static topic that a broker holds (protocol.statictopic.TopicQueueMappingInfo, 5.x)."""

    topic: str | None = None
    scope: str | None = None
    total_queues: Int = 0
    bname: str | None = None
    epoch: Long = 0
    dirty: bool = False
    curr_id_map: dict[Int, Int] | None = None


@dataclass
class ProducerData:
    """A producer group in a heartbeat (protocol.heartbeat.ProducerData)."""

    group_name: str


ConsumeType = Annotated[str, ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")]
MessageModel = Annotated[str, ("BROADCASTING", "CLUSTERING")]
ConsumeFromWhere = Annotated[
    str,
    (
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
]


@dataclass
class ConsumerData:
    """A consumer group in a heartbeat (protocol.heartbeat.ConsumerData)."""

    group_name: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


@dataclass
class TopicOffset:
    """Offsets of a queue (protocol.admin.TopicOffset)."""

    min_offset: Long
    max_offset: Long
    last_update_timestamp: Long


@dataclass
class OffsetWrapper:
    """Progress of a group in a queue (protocol.admin.OffsetWrapper)."""

    broker_offset: Long
    consumer_offset: Long
    last_timestamp: Long
    pull_offset: Long | None = None  # 5.x


@dataclass
class StatsItem:
    """Statistics of one period (protocol.body.BrokerStatsItem)."""

    sum: Long
    tps: float
    avgpt: float


@dataclass
class QueueAssignment:
    """A queue assigned to a client, and how it should be read (common.message.MessageQueueAssignment, 5.x)."""

    message_queue: MessageQueue
    mode: str
    attachments: dict[str, str] | None = None
