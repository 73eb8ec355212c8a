"""The engine's results for messages put into the log (store.PutMessageStatus, PutMessageResult)."""

from enum import StrEnum
from typing import NamedTuple


class PutStatus(StrEnum):
    """The result of a put, by the names of store.PutMessageStatus."""

    PUT_OK = "PUT_OK"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"


class Illegal(Exception):
    """The engine rejects a message."""

    def __init__(self, status: PutStatus, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class PutResult(NamedTuple):
    """The result of one put (store.PutMessageResult, AppendMessageResult)."""

    status: PutStatus
    topic: str = ""  # the stored topic: for a delayed message that of the delay levels or the timer
    queue_id: int = 0
    queue_offset: int = -1
    physical_offset: int = -1
    size: int = 0  # bytes of the record
    store_timestamp: int = 0
    message_id: str = ""  # the offset id
    reason: str = ""  # why it was rejected

    @property
    def ok(self) -> bool:
        """Whether the message is in the log."""
        return self.status is PutStatus.PUT_OK
