"""Request and response headers: the fields of each (remoting.protocol.header, header.namesrv)."""

from dataclasses import dataclass

from formats.fastjson.declare import Int, Long, member


@dataclass(kw_only=True)
class Topic:
    """A topic (GetRouteInfo-, GetTopicStatsInfo-, DeleteTopic-, GetTopicConfigRequestHeader)."""

    topic: str
    cluster_name: str | None = None  # 216
    accept_standard_json_only: bool | None = None  # 105
    lo: bool | None = None  # 351
    bname: str | None = None


@dataclass(kw_only=True)
class ConsumerGroup:
    """A consumer group (GetConsumerListByGroup-, GetConsumeStats-, NotifyConsumerIdsChangedRequestHeader)."""

    consumer_group: str
    topic: str | None = None  # 208


@dataclass(kw_only=True)
class Producers:
    """A producer group (GetProducerConnectionListRequestHeader)."""

    producer_group: str


@dataclass(kw_only=True)
class Empty:
    """No fields."""


@dataclass(kw_only=True)
class Offset:
    """An offset (QueryConsumerOffset-, GetMaxOffsetResponseHeader)."""

    offset: Long


@dataclass(kw_only=True)
class Queue:
    """A queue (GetMaxOffset-, GetMinOffsetRequestHeader)."""

    topic: str
    queue_id: Int
    bname: str | None = None
    lo: bool | None = None  # 5.x: False for a queue of the broker itself, if the topic is static
    committed: bool | None = None  # 5.x


@dataclass(kw_only=True)
class QueueTime:
    """A queue and a time (SearchOffsetRequestHeader)."""

    topic: str
    queue_id: Int
    timestamp: Long  # ms
    boundary_type: str | None = None  # LOWER or UPPER, 5.x
    bname: str | None = None
    lo: bool | None = None


@dataclass(kw_only=True)
class Timestamp:
    """A time (GetEarliestMsgStoretimeResponseHeader)."""

    timestamp: Long  # ms


@dataclass(kw_only=True)
class QueryConsumeQueue:
    """Entries of a queue (QueryConsumeQueueRequestHeader)."""

    topic: str
    queue_id: Int
    index: Long
    count: Int
    consumer_group: str | None = None


@dataclass(kw_only=True)
class GroupQueue:
    """A queue of a group (QueryConsumerOffsetRequestHeader)."""

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = None
    bname: str | None = None
    lo: bool | None = None


@dataclass(kw_only=True)
class Commit:
    """Commits the progress of a group (UpdateConsumerOffsetRequestHeader)."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long
    bname: str | None = None
    lo: bool | None = None


@dataclass(kw_only=True)
class Pull:
    """Asks for messages (PullMessageRequestHeader)."""

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long
    suspend_timeout_millis: Long
    sub_version: Long
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int | None = None  # 5.x, like the fields below
    request_source: Int | None = None
    proxy_froward_client_id: str | None = None
    bname: str | None = None
    lo: bool | None = None


@dataclass(kw_only=True)
class PullResponse:
    """Offsets for the next pull (PullMessageResponseHeader)."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None  # 5.x, like the fields below
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
    forbidden_type: Int | None = None


@dataclass(kw_only=True)
class Query:
    """Asks for messages by key (QueryMessageRequestHeader)."""

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    unique_key_query: bool | None = member("_UNIQUE_KEY_QUERY", None)


@dataclass(kw_only=True)
class Queried:
    """Progress of the index (QueryMessageResponseHeader)."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


@dataclass(kw_only=True)
class CreateTopic:
    """Topic to create or change (CreateTopicRequestHeader)."""

    topic: str
    default_topic: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = None  # 5.x, like the fields below
    force: bool | None = None
    bname: str | None = None


@dataclass(kw_only=True)
class ConfigVersion:
    """Version of the broker's configuration (GetBrokerConfigResponseHeader)."""

    version: str  # DataVersion as JSON


@dataclass(kw_only=True)
class HeartbeatAnswer:
    """Heartbeat response of a 5.x broker."""

    is_support_heart_beat_v2: bool | None = member("IS_SUPPORT_HEART_BEAT_V2", None)
    is_sub_change: bool | None = member("IS_SUB_CHANGE", None)


@dataclass(kw_only=True)
class Unregister:
    """Client that leaves its groups (UnregisterClientRequestHeader)."""

    client_id: str = member("clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


@dataclass(kw_only=True)
class ConsumerSendBack:
    """Message that could not be consumed (ConsumerSendMsgBackRequestHeader)."""

    offset: Long  # in the commit log
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int | None = None
    bname: str | None = None


@dataclass(kw_only=True)
class EndTransaction:
    """Outcome of a transaction (EndTransactionRequestHeader)."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int  # 8 commit, 12 roll back, 0 unknown
    from_transaction_check: bool | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    topic: str | None = None  # 5.x
    bname: str | None = None


@dataclass(kw_only=True)
class CheckTransaction:
    """Asks a producer for the outcome of a transaction (CheckTransactionStateRequestHeader)."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None  # 5.x
    bname: str | None = None


@dataclass(kw_only=True)
class ResetOffset:
    """Moves a group backward or forward (ResetOffsetRequestHeader)."""

    topic: str
    group: str
    timestamp: Long
    is_force: bool
    queue_id: Int | None = None  # 5.x, like the field below
    offset: Long | None = None


@dataclass(kw_only=True)
class Send:
    """Message to send (SendMessageRequestHeaderV2)."""

    producer_group: str = member("a")
    topic: str = member("b")
    default_topic: str = member("c")
    default_topic_queue_nums: Int = member("d")
    queue_id: Int = member("e")
    sys_flag: Int = member("f")
    born_timestamp: Long = member("g")
    flag: Int = member("h")
    properties: str | None = member("i", None)
    reconsume_times: Int | None = member("j", None)
    unit_mode: bool | None = member("k", None)
    max_reconsume_times: Int | None = member("l", None)
    batch: bool | None = member("m", None)
    bname: str | None = member("n", None)
    lo: bool | None = None


@dataclass(kw_only=True)
class Sent:
    """Position at which a message was stored (SendMessageResponseHeader)."""

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None  # 5.x
    recall_handle: str | None = None  # 5.x
    msg_region: str | None = member("MSG_REGION", None)
    trace_on: str | None = member("TRACE_ON", None)


@dataclass(kw_only=True)
class Stats:
    """Selects a statistic (ViewBrokerStatsDataRequestHeader)."""

    stats_name: str
    stats_key: str


@dataclass(kw_only=True)
class Recall:
    """Delayed message that should not be delivered (RecallMessageRequestHeader, 5.x)."""

    topic: str
    recall_handle: str
    producer_group: str | None = None
    bname: str | None = None


@dataclass(kw_only=True)
class Recalled:
    """The recalled message (RecallMessageResponseHeader, 5.x)."""

    msg_id: str | None = None
    msg_region: str | None = member("MSG_REGION", None)
