"""Rules for sending stored messages again: which messages are eligible, and which properties they keep."""

from collections.abc import Mapping

from formats.primitives import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from formats.topics import (
    DLQ_PREFIX,
    GIVEN_UP,
    HALVES,
    NOT_SENT_TO,
    OPS,
    RETRY_PREFIX,
    SCHEDULE,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
    TIMER,
)

# properties written by brokers, and properties that would trigger broker processing again
_OF_BROKERS = {
    "CLUSTER", "MSG_REGION", "TRACE_ON", "REAL_TOPIC", "REAL_QID", "DELAY", "TRAN_MSG", "__CRC32#", "INNER_NUM",
    "INNER_BASE", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "RECONSUME_TIME", "MAX_RECONSUME_TIMES",
}  # fmt: skip
_TIMER = "TIMER_"
_WAITING = {SCHEDULE: "waits for its delay", TIMER: "waits for its time"}
_HALVES = {*HALVES, *OPS, GIVEN_UP}


def own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the application's properties and ids, without those for delays and transactions."""
    return {
        name: value for name, value in properties.items() if name not in _OF_BROKERS and not name.startswith(_TIMER)
    }


def why_not(topic: str, sys_flag: int, *, to: str | None = None) -> str | None:
    """Return why a stored message must not be sent again, or None if it may be.

    Retries and dead letters are copies of messages in another topic, so they are only sent to an explicitly given
    topic.

    Args:
        to: the topic to which all messages are sent, if given.
    """
    if topic in _HALVES:
        return "half of a transaction: what was committed is in its own topic"
    if topic in _WAITING:
        return f"{_WAITING[topic]}: what was delivered is in its own topic"
    if topic in SYSTEM_TOPICS | NOT_SENT_TO or topic.startswith(SYSTEM_PREFIX):
        return "a topic of the broker itself"
    if sys_flag & TRANSACTION_MASK in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
        return "half of a transaction"
    if to is None and topic.startswith(RETRY_PREFIX):
        return "a retry: the message is in its own topic too (--to sends it to a topic)"
    if to is None and topic.startswith(DLQ_PREFIX):
        return "a dead letter: the message is in its own topic too (--to sends it to a topic)"
    return None
