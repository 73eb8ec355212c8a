"""What the engine answers to a message that is put (store.PutMessageStatus, PutMessageResult)."""

from enum import StrEnum
from typing import NamedTuple


class PutStatus(StrEnum):
    """What became of a message, by the names of store.PutMessageStatus."""

    PUT_OK = "PUT_OK"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"


class Illegal(Exception):
    """A message that the engine does not take."""

    def __init__(self, status: PutStatus, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class PutResult(NamedTuple):
    """The engine's answer for one message (store.PutMessageResult, AppendMessageResult)."""

    status: PutStatus
    topic: str = ""  # under which it is stored: one that waits is under that of its level, or of the timer
    queue_id: int = 0
    queue_offset: int = -1
    physical_offset: int = -1
    size: int = 0  # bytes of the record
    store_timestamp: int = 0
    message_id: str = ""  # the offset id
    reason: str = ""  # why it was not taken

    @property
    def ok(self) -> bool:
        """Whether the message is in the log."""
        return self.status is PutStatus.PUT_OK
