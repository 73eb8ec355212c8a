"""Messages of the revive topics, in which a 5.x broker records messages handed out to POP consumers.

A checkpoint covers up to 32 messages of one queue that were handed out together; an ack covers messages of a checkpoint
that were consumed. Both have JSON bodies. They wait in the timer first and are moved to the revive topic shortly before
the checkpoint expires.

Source: store.pop.PopCheckPoint, store.pop.AckMsg, store.pop.BatchAckMsg, broker.processor.PopBufferMergeService;
clients-and-live-admin 1.6.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

from formats.fastjson.declare import Bean, Int, Long, member
from formats.fastjson.dialects import BROWSER
from formats.fastjson.write import dumps
from formats.versions import V5_3

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"  # its offset is that of the last processed entry, not of the next one
CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
MOST = 32  # maximum number of messages in a checkpoint: the bits of its map


class PopKey(NamedTuple):
    """Fields that identify a checkpoint and its acks."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Handed(Bean):
    """Fields shared by checkpoints and acks. Times are ms since the epoch."""

    topic: str = member("t", "")  # topic that the messages are stored in: a retry topic if they were revived before
    group: str = member("c", "")
    queue_id: Int = member("q", 0)
    start_offset: Long = member("so", 0)
    pop_time: Long = member("pt", 0)
    broker_name: str = member("bn", "")

    @property
    def key(self) -> PopKey:
        """Key by which an ack is matched to its checkpoint."""
        return PopKey(self.topic, self.group, self.queue_id, self.start_offset, self.pop_time, self.broker_name)

    def body(self) -> bytes:
        """Return the message body."""
        return dumps(self.write(V5_3), BROWSER)

    def _unique(self, place: int, tag: str) -> str:
        parts = (self.topic, self.queue_id, place, self.group, self.pop_time, self.broker_name, tag)
        return "@".join(map(str, parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPoint(_Handed):
    """Messages handed out together (``PopCheckPoint``)."""

    DERIVED: ClassVar[tuple[str, ...]] = ("reviveTime",)
    invisible_time: Long = member("it", 0)  # ms
    bit_map: Int = member("bm", 0)  # bit i: message i was acked before the checkpoint was stored
    count: Annotated[int, 8] = member("n", 0)
    revive_offset: Long = member("ro", 0)
    distances: tuple[Int, ...] | None = member("d", None)  # distances of the messages from the start offset
    put_again: str | None = member("rp", None)  # how often it was stored again because reviving failed
    suspended: bool | None = member("sp", None)  # 5.5: the messages come back without counting as consumed once more

    @property
    def visible_time(self) -> int:
        """Time at which the messages become visible again."""
        return self.pop_time + self.invisible_time

    @property
    def reviveTime(self) -> int:
        """Same as :attr:`visible_time`; brokers write it as a separate field."""
        return self.visible_time

    @property
    def tag(self) -> str:
        """Tag of the message."""
        return CHECKPOINT_TAG

    @property
    def unique_key(self) -> str:
        """Unique key of the message (``PopMessageProcessor.genCkUniqueId``)."""
        return self._unique(self.start_offset, CHECKPOINT_TAG)

    @property
    def queue_offsets(self) -> tuple[int, ...]:
        """Queue offsets of the messages; old versions store no distances and mean consecutive messages."""
        distances = self.distances or range(max(self.count, 0))
        return tuple(self.start_offset + distance for distance in distances[:MOST])

    @property
    def acked_before(self) -> frozenset[int]:
        """Queue offsets set in the checkpoint's own bit map."""
        return frozenset(offset for bit, offset in enumerate(self.queue_offsets) if self.bit_map >> bit & 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack(_Handed):
    """Consumed messages (``AckMsg``, ``BatchAckMsg``)."""

    ack_offset: Long | None = member("ao", None)  # -1 in a batch ack
    ack_offsets: tuple[Long, ...] | None = member("aol", None)  # of a batch ack

    @property
    def tag(self) -> str:
        """Tag of the message."""
        return ACK_TAG if self.ack_offsets is None else BATCH_ACK_TAG

    @property
    def unique_key(self) -> str:
        """Unique key of the message (``PopMessageProcessor.genAckUniqueId``, which brokers use for batch acks too)."""
        return self._unique(-1 if self.ack_offset is None else self.ack_offset, ACK_TAG)

    @property
    def queue_offsets(self) -> tuple[int, ...]:
        """Acknowledged queue offsets."""
        if self.ack_offsets is not None:
            return self.ack_offsets
        return () if self.ack_offset is None else (self.ack_offset,)


def read(tags: str | None, body: bytes) -> CheckPoint | Ack | None:
    """Parse the body of a message of a revive topic; return None for unknown tags.

    Raises:
        BadText: the body has another form.
    """
    if tags == CHECKPOINT_TAG:
        return CheckPoint.parse(body)
    return Ack.parse(body) if tags in (ACK_TAG, BATCH_ACK_TAG) else None
