"""The purpose of topics that brokers and groups fill themselves.

Source: common.topic.TopicValidator, common.MixAll, common.PopAckConstants.
"""

from formats.topics import (
    AUTO_CREATE,
    BENCHMARK,
    DLQ_PREFIX,
    GIVEN_UP,
    HALVES,
    LMQ_PREFIX,
    OFFSET_MOVED,
    OPS,
    REPLY_SUFFIX,
    RETRY_PREFIX,
    REVIVE_PREFIX,
    SCHEDULE,
    SELF_TEST,
    SYNC_PREFIX,
    SYSTEM_PREFIX,
    TIMER,
    TRACE,
)
from rmqtool.services.lookup.retry_names import RetryNames

_PURPOSES = {
    SCHEDULE: "messages with a delay level",
    TIMER: "messages with a delivery time",
    **dict.fromkeys(HALVES, "half messages of transactions"),
    **dict.fromkeys(OPS, "ends of transactions"),
    GIVEN_UP: "half messages that were checked too often",
    TRACE: "traces of messages",
    OFFSET_MOVED: "notes on offsets that brokers have moved",
    AUTO_CREATE: "template of new topics",
    SELF_TEST: "self test",
    BENCHMARK: "benchmark",
}


def purpose_of(topic: str, names: RetryNames) -> str | None:
    """The purpose of a topic; None for an application's topic.

    Args:
        names: parses the names of retry topics.
    """
    if topic.startswith(RETRY_PREFIX):
        group, origin = names.of(topic)
        return f"retries of group {group}" + (f" from topic {origin}" if origin else "")
    if topic.startswith(DLQ_PREFIX):
        return f"dead letters of group {names.of(topic).group}"
    if topic.startswith(REVIVE_PREFIX):
        return "checkpoints and acks of POP"
    if topic.startswith(SYNC_PREFIX):
        return "members of the broker"
    if topic.startswith(LMQ_PREFIX):
        return "light queue"
    if topic in _PURPOSES:
        return _PURPOSES[topic]
    if topic.startswith(SYSTEM_PREFIX):
        return "of the broker itself"
    return "replies to requests" if topic.endswith(REPLY_SUFFIX) else None
