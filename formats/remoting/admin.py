"""Headers and bodies of admin requests to a broker (remoting.protocol.header, body, admin)."""

from dataclasses import dataclass, field

from formats.config.files_of_5 import TopicQueueMapping
from formats.fastjson.declare import Bean, Int, Long, member
from formats.model.groups import SubscriptionGroup
from formats.model.topics import DataVersion, TopicConfig
from formats.remoting.shapes import MessageQueue, SubscriptionData


@dataclass(kw_only=True)
class DeleteGroup:
    """Consumer group to delete (DeleteSubscriptionGroupRequestHeader)."""

    group_name: str
    remove_offset: bool = False  # 4.9
    clean_offset: bool = False  # the same in 5.x


@dataclass(kw_only=True)
class CloneOffsets:
    """Copies the offsets of one group to another (CloneGroupOffsetRequestHeader)."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@dataclass(kw_only=True)
class RunningInfo:
    """Client whose runtime information is requested (GetConsumerRunningInfoRequestHeader)."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@dataclass(kw_only=True)
class ConsumeDirectly:
    """Message that a client should consume immediately (ConsumeMessageDirectlyResultRequestHeader)."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None  # 5.x, like the fields below
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None


@dataclass(kw_only=True)
class ConsumerStatus:
    """Asks for the offsets of a group's clients (GetConsumerStatusRequestHeader)."""

    topic: str
    group: str
    client_addr: str | None = None


@dataclass(kw_only=True)
class OneGroup:
    """A consumer group (QueryTopicsByConsumer-, GetSubscriptionGroupConfigRequestHeader, of 5.3)."""

    group: str


@dataclass(kw_only=True)
class GroupOfTopic:
    """A consumer group and a topic (QuerySubscriptionByConsumerRequestHeader, of 5.3)."""

    group: str
    topic: str


@dataclass
class GroupSubscription:
    """Subscription of a group to a topic; None if the group is offline (body.QuerySubscriptionResponseBody, of 5.3)."""

    subscription_data: SubscriptionData | None
    group: str
    topic: str


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
    mapping_data_version: DataVersion | None = None  # 5.x, like the field below
    topic_queue_mapping_detail_map: dict[str, TopicQueueMapping] | None = None  # static topics


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticTopicConfig(TopicConfig):
    """A topic and the broker's part of it, if it is static (statictopic.TopicConfigAndQueueMapping, 5.x)."""

    mapping_detail: TopicQueueMapping | None = None


@dataclass(kw_only=True)
class ProducerInfo:
    """A connected producer (body.ProducerInfo)."""

    client_id: str
    language: str
    last_update_timestamp: Long
    remote_ip: str = member("remoteIP")
    version: Int


@dataclass
class ProducerTable:
    """Connected producers by group (body.ProducerTableInfo)."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


@dataclass
class QueueTimeSpan:
    """Timestamps of a queue's oldest and newest message and of a group's position in it, ms (body.QueueTimeSpan)."""

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
    """Offsets of one client (body.GetConsumerStatusBody, as sent by a client)."""

    message_queue_table: dict[MessageQueue, Long] = field(default_factory=dict)


@dataclass
class GroupStatus:
    """Offsets of all clients of a group (body.GetConsumerStatusBody)."""

    message_queue_table: dict[MessageQueue, Long] = field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, Long]] = field(default_factory=dict)


@dataclass(kw_only=True)
class QueueState:
    """State of a queue in a client (body.ProcessQueueInfo). Times are in ms."""

    commit_offset: Long
    cached_msg_min_offset: Long = 0
    cached_msg_max_offset: Long = 0
    cached_msg_count: Int = 0
    cached_msg_size_in_mi_b: Int = 0
    transaction_msg_min_offset: Long = 0  # messages currently held by an orderly listener
    transaction_msg_max_offset: Long = 0
    transaction_msg_count: Int = 0
    locked: bool = False
    try_unlock_times: Long = 0
    last_lock_timestamp: Long = 0
    droped: bool = False
    last_pull_timestamp: Long = 0
    last_consume_timestamp: Long = 0


@dataclass(kw_only=True)
class ConsumeStatus:
    """Rates of a topic in the last minute, in messages per second and ms (body.ConsumeStatus)."""

    pull_rt: float = member("pullRT", 0.0)
    pull_tps: float = member("pullTPS", 0.0)
    consume_rt: float = member("consumeRT", 0.0)
    consume_ok_tps: float = member("consumeOKTPS", 0.0)
    consume_failed_tps: float = member("consumeFailedTPS", 0.0)
    consume_failed_msgs: Long = 0


@dataclass(kw_only=True)
class PopQueueState:
    """State of a queue that a consumer pops from (body.PopProcessQueueInfo, 5.x)."""

    wait_ack_count: Int
    droped: bool
    last_pop_timestamp: Long  # ms


@dataclass(kw_only=True)
class ConsumerRunningInfo:
    """Runtime information of a consumer (body.ConsumerRunningInfo)."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    mq_table: dict[MessageQueue, QueueState] = field(default_factory=dict)
    mq_pop_table: dict[MessageQueue, PopQueueState] | None = None  # 5.x
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None


@dataclass(kw_only=True)
class ConsumedDirectly:
    """Result of consuming one message at an admin's request (body.ConsumeMessageDirectlyResult)."""

    order: bool
    auto_commit: bool
    consume_result: str
    remark: str | None = None
    spent_time_mills: Long = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsToSet(Bean):
    """Topics to create or change (body.CreateTopicListRequestBody, of 5.3)."""

    topics: tuple[TopicConfig, ...] = member("topicConfigList", ())


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsToSet(Bean):
    """Groups to create or change (subscription.SubscriptionGroupList, of 5.3)."""

    groups: tuple[SubscriptionGroup, ...] = member("groupConfigList", ())


@dataclass
class TopicsToDelete:
    """Topics to delete (body.DeleteTopicListRequestBody, 5.5.1)."""

    topic_list: list[str] = field(default_factory=list)


@dataclass
class GroupsToDelete:
    """Groups to delete, and whether with their offsets (body.DeleteSubscriptionGroupListRequestBody, 5.5.1)."""

    group_name_list: list[str] = field(default_factory=list)
    clean_offset: bool = False


@dataclass(kw_only=True)
class _Account:
    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None


@dataclass(kw_only=True)
class AccessAccount(_Account):
    """Account to create or change; lists are comma-separated (CreateAccessConfigRequestHeader, 4.9)."""

    topic_perms: str | None = None
    group_perms: str | None = None


@dataclass(kw_only=True)
class AccessKey:
    """Account to delete (DeleteAccessConfigRequestHeader, 4.9)."""

    access_key: str


@dataclass(kw_only=True)
class SetWhiteAddresses:
    """Addresses that need no account, comma-separated (UpdateGlobalWhiteAddrsConfigRequestHeader, 4.9)."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


@dataclass(kw_only=True)
class AccessVersion:
    """Version of a broker's accounts, a DataVersion in JSON (GetBrokerAclConfigResponseHeader, 4.9)."""

    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str


@dataclass(kw_only=True)
class PlainAccount(_Account):
    """An account with its secret (common.PlainAccessConfig, 4.9)."""

    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None


@dataclass(kw_only=True)
class AccessAccounts:
    """All accounts, and addresses that need none (GetBrokerClusterAclConfigResponseBody, 4.9)."""

    global_white_addrs: list[str] | None = None
    plain_access_configs: list[PlainAccount] | None = None


@dataclass(kw_only=True)
class HaClientInfo:
    """Replication state of a slave; all 0 on a master (body.HARuntimeInfo.HAClientRuntimeInfo, 5.x)."""

    last_read_timestamp: Long = 0  # ms, like the next field
    last_write_timestamp: Long = 0
    master_flush_offset: Long = 0
    max_offset: Long = 0
    transferred_byte_in_second: Long = 0


@dataclass(kw_only=True)
class HaConnection:
    """A slave, as its master sees it (body.HARuntimeInfo.HAConnectionRuntimeInfo, 5.x)."""

    addr: str
    slave_ack_offset: Long
    diff: Long
    in_sync: bool
    transferred_byte_in_second: Long = 0
    transfer_from_where: Long = 0


@dataclass(kw_only=True)
class HaStatus:
    """Replication state of a broker and its slaves (body.HARuntimeInfo, 5.x)."""

    ha_client_runtime_info: HaClientInfo = field(default_factory=HaClientInfo)
    ha_connection_info: list[HaConnection] = field(default_factory=list)
    in_sync_slave_nums: Int = 0
    master: bool = True
    master_commit_log_max_offset: Long = 0


@dataclass(kw_only=True)
class RocksCheck:
    """Result of comparing queues in RocksDB with those in files (common.CheckRocksdbCqWriteResult, 5.3)."""

    check_status: Int  # 0 equal, 1 different, 2 unfinished, 3 failed
    check_result: str | None = None


@dataclass(kw_only=True)
class ColdData:
    """Limits on the cold data that groups may read, in bytes (broker.coldctr.ColdDataCgCtrService, 5.x)."""

    runtime_table: dict[str, Long] = field(default_factory=dict)
    config_table: dict[str, Long] = field(default_factory=dict)  # by group
    cg_cold_read_threshold: Long
    global_cold_read_threshold: Long
    global_acc: Long = 0


@dataclass(kw_only=True)
class User:
    """A user of access control 2.0 (CreateUser-, UpdateUser-, DeleteUser-, GetUserRequestHeader, 5.x)."""

    username: str


@dataclass(kw_only=True)
class Subject:
    """Who has rights (CreateAcl-, UpdateAcl-, DeleteAcl-, GetAclRequestHeader, 5.x)."""

    subject: str
    policy_type: str | None = None  # 3008 alone, as the next
    resource: str | None = None


@dataclass(kw_only=True)
class Filter:
    """Part of the names of users or subjects to list (ListUsers-, ListAclsRequestHeader, 5.x)."""

    filter: str | None = None
    subject_filter: str | None = None
    resource_filter: str | None = None
