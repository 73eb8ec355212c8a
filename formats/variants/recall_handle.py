"""The text by which a client calls back a message that waits for its time.

It is Base64 with the alphabet for URLs, of five words: the version, the topic, the broker's name, the time and the
unique key of the message. No topic, broker name or key holds a blank.

Source: common.producer.RecallMessageHandle (5.3.3).
"""

import base64
import binascii
from dataclasses import dataclass

from formats.errors import BadText
from formats.message.read import java_int

_VERSION = "v1"
_NEVER = -1  # of a handle whose time is no number


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallHandle:
    """What a handle says.

    Attributes:
        deliver_ms: when the message is delivered, ms since the epoch: one more than its ``TIMER_OUT_MS``.
        message_id: the unique key of the message.
    """

    topic: str
    broker_name: str
    deliver_ms: int
    message_id: str

    @property
    def text(self) -> str:
        """As a client gets it."""
        parts = _VERSION, self.topic, self.broker_name, str(self.deliver_ms), self.message_id
        return base64.urlsafe_b64encode(" ".join(parts).encode("utf-8", "surrogatepass")).decode()

    @classmethod
    def parse(cls, text: str) -> "RecallHandle":
        """Read a handle; words behind the fifth are left out, as by a broker.

        Raises:
            BadText: it is none.
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
