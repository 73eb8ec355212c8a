"""POP consumption: headers and bodies of requests and responses (remoting.protocol.header, body; 5.x)."""

from base64 import b64decode
from dataclasses import dataclass, field

from formats.errors import BadText
from formats.fastjson.declare import Int, Long, member


@dataclass(kw_only=True)
class Pop:
    """Asks for messages, which become invisible to others for a while (PopMessageRequestHeader, 5.x)."""

    consumer_group: str
    topic: str
    queue_id: Int
    max_msg_nums: Int
    invisible_time: Long
    poll_time: Long
    born_time: Long
    init_mode: Int
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None
    bname: str | None = None


@dataclass(kw_only=True)
class PopResponse:
    """Data needed to acknowledge the popped messages (PopMessageResponseHeader, 5.x)."""

    pop_time: Long
    invisible_time: Long
    revive_qid: Int
    rest_num: Long
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@dataclass(kw_only=True)
class AckMessage:
    """Acknowledges a consumed message (AckMessageRequestHeader, 5.x)."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    lite_topic: str | None = None  # 5.5
    bname: str | None = None


@dataclass(kw_only=True)
class ChangeInvisible:
    """Changes when a popped message becomes visible again (ChangeInvisibleTimeRequestHeader, 5.x)."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    invisible_time: Long
    lite_topic: str | None = None  # 5.5
    suspend: bool | None = None  # 5.5
    bname: str | None = None


@dataclass(kw_only=True)
class InvisibleChanged:
    """The new visibility time (ChangeInvisibleTimeResponseHeader, 5.x)."""

    pop_time: Long
    invisible_time: Long
    revive_qid: Int


@dataclass(kw_only=True)
class Peek:
    """Asks for messages without making them invisible (PeekMessageRequestHeader, 5.x)."""

    consumer_group: str
    topic: str
    queue_id: Int
    max_msg_nums: Int
    bname: str | None = None


@dataclass(kw_only=True)
class Notification:
    """Asks to be notified when there are messages to pop (NotificationRequestHeader, 5.x)."""

    consumer_group: str
    topic: str
    queue_id: Int
    poll_time: Long
    born_time: Long
    order: bool | None = None
    attempt_id: str | None = None
    bname: str | None = None


@dataclass(kw_only=True)
class Notified:
    """Whether there are messages to pop (NotificationResponseHeader, 5.x)."""

    has_msg: bool
    polling_full: bool | None = None


@dataclass(kw_only=True)
class PollingNumber:
    """Number of waiting pop requests (PollingInfoResponseHeader, 5.x)."""

    polling_num: Int


@dataclass
class BatchAck:
    """Acknowledges messages of one checkpoint (BatchAck).

    Attributes:
        topic: the topic that was asked for.
        retry: the topic that the messages are in, an :class:`~formats.variants.pop_handle.Origin`.
        bits: Base64 of a bit map, lowest bit first: distances of the messages from the start offset.
    """

    consumer_group: str = member("c")
    topic: str = member("t")
    retry: str | None = member("r", None)
    start_offset: Long = member("so", 0)
    queue_id: Int = member("q", 0)
    revive_queue_id: Int = member("rq", 0)
    pop_time: Long = member("pt", 0)
    invisible_time: Long = member("it", 0)
    bits: str | None = member("b", None)

    @property
    def distances(self) -> list[int]:
        """Distances of the messages from the start offset.

        Raises:
            BadText: the bit map is not Base64.
        """
        try:
            data = b64decode(self.bits or "", validate=True)
        except ValueError:
            raise BadText(0, f"{(self.bits or '')[:40]!r} is not Base64") from None
        return [at * 8 + bit for at, byte in enumerate(data) if byte for bit in range(8) if byte >> bit & 1]


@dataclass
class BatchAcks:
    """Several batch acknowledgements (BatchAckMessageRequestBody)."""

    broker_name: str | None = None
    acks: list[BatchAck] = field(default_factory=list)
