"""Names of RocketMQ's system topics and groups, and the permission bits of a topic.

Source: common.topic.TopicValidator, common.MixAll, common.PopAckConstants, common.constant.PermName.
"""

from enum import IntEnum

AUTO_CREATE = "TBW102"  # template for topics that are created by their first message
SCHEDULE = "SCHEDULE_TOPIC_XXXX"  # holds messages with a delay level
TIMER = "rmq_sys_wheel_timer"  # holds messages with a delivery time
HALF, OP = (
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
)  # half messages of transactions, and their outcomes
PROXY_HEARTBEATS = "DefaultHeartBeatSyncerTopic"  # a proxy makes it, and does not start without it
ROCKS_HALF = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"  # the same since 5.4 if RocksDB tracks open transactions
ROCKS_OP = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"  # half messages that reached the maximum number of checks
TRACE = "RMQ_SYS_TRACE_TOPIC"
OFFSET_MOVED = "OFFSET_MOVED_EVENT"
SELF_TEST, BENCHMARK = "SELF_TEST_TOPIC", "BenchmarkTest"

RETRY_PREFIX, DLQ_PREFIX = "%RETRY%", "%DLQ%"  # followed by the group name
LMQ_PREFIX = "%LMQ%"  # light message queues, whose names are used as topics and groups
SYSTEM_PREFIX = "rmq_sys_"
REVIVE_PREFIX = f"{SYSTEM_PREFIX}REVIVE_LOG_"  # holds POP checkpoints and acks; followed by the cluster name
SYNC_PREFIX = f"{SYSTEM_PREFIX}SYNC_BROKER_MEMBER_"  # followed by the broker name
REPLY_SUFFIX = "_REPLY_TOPIC"  # preceded by the cluster name

HALVES, OPS = (HALF, ROCKS_HALF), (OP, ROCKS_OP)
SYSTEM_TOPICS = frozenset({AUTO_CREATE, SCHEDULE, *HALVES, *OPS, GIVEN_UP, OFFSET_MOVED, SELF_TEST, BENCHMARK, TRACE})
NOT_SENT_TO = frozenset({SCHEDULE, HALF, OP, GIVEN_UP, SELF_TEST, OFFSET_MOVED})


class Perm(IntEnum):
    """Permission bits of a topic, or of all topics of a broker. Several are an int: an IntFlag takes a microsecond."""

    INHERIT = 1
    WRITE = 2
    READ = 4
