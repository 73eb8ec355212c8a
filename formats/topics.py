"""Names of topics and groups that RocketMQ itself gives, and the bits of a topic's permission.

Source: common.topic.TopicValidator, common.MixAll, common.PopAckConstants, common.constant.PermName.
"""

from enum import IntFlag

AUTO_CREATE = "TBW102"  # whose settings a topic gets that is made by a first message
SCHEDULE = "SCHEDULE_TOPIC_XXXX"  # where messages with a delay level wait
TIMER = "rmq_sys_wheel_timer"  # where messages with a delivery time wait
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"  # of transactions, and of their ends
ROCKS_HALF = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"  # the same since 5.4, where RocksDB has what is open
ROCKS_OP = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"  # half messages that were checked too often
TRACE = "RMQ_SYS_TRACE_TOPIC"
OFFSET_MOVED = "OFFSET_MOVED_EVENT"
SELF_TEST, BENCHMARK = "SELF_TEST_TOPIC", "BenchmarkTest"

RETRY_PREFIX, DLQ_PREFIX = "%RETRY%", "%DLQ%"  # then the name of the group
LMQ_PREFIX = "%LMQ%"  # of a light queue's name, which stands for a topic or a group
SYSTEM_PREFIX = "rmq_sys_"
REVIVE_PREFIX = f"{SYSTEM_PREFIX}REVIVE_LOG_"  # where POP's checkpoints and acks wait; then the name of the cluster
SYNC_PREFIX = f"{SYSTEM_PREFIX}SYNC_BROKER_MEMBER_"  # then the name of the broker
REPLY_SUFFIX = "_REPLY_TOPIC"  # behind the name of the cluster

HALVES, OPS = (HALF, ROCKS_HALF), (OP, ROCKS_OP)
SYSTEM_TOPICS = frozenset({AUTO_CREATE, SCHEDULE, *HALVES, *OPS, GIVEN_UP, OFFSET_MOVED, SELF_TEST, BENCHMARK, TRACE})
NOT_SENT_TO = frozenset({SCHEDULE, HALF, OP, GIVEN_UP, SELF_TEST, OFFSET_MOVED})


class Perm(IntFlag):
    """What may be done with a topic, or with all topics of a broker."""

    INHERIT = 1
    WRITE = 2
    READ = 4
