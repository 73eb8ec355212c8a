"""The handle with which a client recalls a message that is waiting for its delivery time.

It is URL-safe Base64 of five words separated by blanks: version, topic, broker name, time and unique key of the
message. Topics, broker names and keys contain no blanks.

Source: common.producer.RecallMessageHandle (5.3.3).
"""

import base64
import binascii
from dataclasses import dataclass

from formats.errors import BadText
from formats.message.read import java_int

_VERSION = "v1"
_NEVER = -1  # for a handle whose time is not a number


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallHandle:
    """Contents of a recall handle.

    Attributes:
        deliver_ms: delivery time, ms since the epoch: one more than the message's ``TIMER_OUT_MS``.
        message_id: the unique key of the message.
    """

    topic: str
    broker_name: str
    deliver_ms: int
    message_id: str

    @property
    def text(self) -> str:
        """The handle as sent to clients."""
        parts = _VERSION, self.topic, self.broker_name, str(self.deliver_ms), self.message_id
        return base64.urlsafe_b64encode(" ".join(parts).encode("utf-8", "surrogatepass")).decode()

    @classmethod
    def parse(cls, text: str) -> "RecallHandle":
        """Parse a handle; like the broker, this ignores words after the fifth.

        Raises:
            BadText: the text is not a recall handle.
        """
        padded = text + "=" * (-len(text) % 4 if "=" not in text else 0)
        try:
            data = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error):
            raise BadText(0, "recall handle is invalid") from None
        parts = data.decode("utf-8", "replace").rstrip(" ").split(" ")
        if parts[0] != _VERSION or len(parts) < 5:
            raise BadText(0, "recall handle is invalid")
        time = java_int(parts[3], 64)
        return cls(
            topic=parts[1], broker_name=parts[2], deliver_ms=_NEVER if time is None else time, message_id=parts[4]
        )
