"""Messages of the revive topics: what a broker of 5.x notes about messages that it handed out to POP consumers.

A checkpoint stands for up to 32 messages of one queue that were handed out together, an ack for messages of such a
checkpoint that were consumed. Both are JSON bodies. They first wait in the timer, and come to the revive topic when the
checkpoint's time is nearly over.

Source: store.pop.PopCheckPoint, store.pop.AckMsg, store.pop.BatchAckMsg, broker.processor.PopBufferMergeService;
clients-and-live-admin 1.6.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

from formats.fastjson.declare import Bean, Int, Long, member
from formats.fastjson.dialects import BROWSER
from formats.fastjson.write import dumps
from formats.versions import V5_3

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"  # its offset is the last entry that was dealt with, not the next one
CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
MOST = 32  # messages of a checkpoint: bits of its map


class PopKey(NamedTuple):
    """What a checkpoint and its acks have in common."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Handed(Bean):
    """The members of both. Times are ms since the epoch."""

    topic: str = member("t", "")  # where the messages lie: a retry topic for those that were revived before
    group: str = member("c", "")
    queue_id: Int = member("q", 0)
    start_offset: Long = member("so", 0)
    pop_time: Long = member("pt", 0)
    broker_name: str = member("bn", "")

    @property
    def key(self) -> PopKey:
        """By which an ack finds its checkpoint."""
        return PopKey(self.topic, self.group, self.queue_id, self.start_offset, self.pop_time, self.broker_name)

    def body(self) -> bytes:
        """The body of its message."""
        return dumps(self.write(V5_3), BROWSER)

    def _unique(self, place: int, tag: str) -> str:
        parts = (self.topic, self.queue_id, place, self.group, self.pop_time, self.broker_name, tag)
        return "@".join(map(str, parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPoint(_Handed):
    """Messages that were handed out together (``PopCheckPoint``)."""

    DERIVED: ClassVar[tuple[str, ...]] = ("reviveTime",)
    invisible_time: Long = member("it", 0)  # ms
    bit_map: Int = member("bm", 0)  # bit i: message i was acked before the checkpoint was stored
    count: Annotated[int, 8] = member("n", 0)
    revive_offset: Long = member("ro", 0)
    distances: tuple[Int, ...] | None = member("d", None)  # of the messages from the start offset
    put_again: str | None = member(
        "rp", None
    )  # how often it was stored again because its messages could not be revived

    @property
    def visible_time(self) -> int:
        """When its messages may be handed out again."""
        return self.pop_time + self.invisible_time

    @property
    def reviveTime(self) -> int:
        """The same, as a broker writes it beside."""
        return self.visible_time

    @property
    def tag(self) -> str:
        """Of its message."""
        return CHECKPOINT_TAG

    @property
    def unique_key(self) -> str:
        """Of its message (``PopMessageProcessor.genCkUniqueId``)."""
        return self._unique(self.start_offset, CHECKPOINT_TAG)

    @property
    def queue_offsets(self) -> tuple[int, ...]:
        """Of its messages; old versions note no distances, and mean messages in a row."""
        distances = self.distances or range(max(self.count, 0))
        return tuple(self.start_offset + distance for distance in distances[:MOST])

    @property
    def acked_before(self) -> frozenset[int]:
        """Queue offsets that its own bit map has."""
        return frozenset(offset for bit, offset in enumerate(self.queue_offsets) if self.bit_map >> bit & 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack(_Handed):
    """Messages that were consumed (``AckMsg``, ``BatchAckMsg``)."""

    ack_offset: Long | None = member("ao", None)  # -1 in a batch ack
    ack_offsets: tuple[Long, ...] | None = member("aol", None)  # of a batch ack

    @property
    def tag(self) -> str:
        """Of its message."""
        return ACK_TAG if self.ack_offsets is None else BATCH_ACK_TAG

    @property
    def unique_key(self) -> str:
        """Of its message (``PopMessageProcessor.genAckUniqueId``, which a broker takes for batch acks too)."""
        return self._unique(-1 if self.ack_offset is None else self.ack_offset, ACK_TAG)

    @property
    def queue_offsets(self) -> tuple[int, ...]:
        """What is acked."""
        if self.ack_offsets is not None:
            return self.ack_offsets
        return () if self.ack_offset is None else (self.ack_offset,)


def read(tags: str | None, body: bytes) -> CheckPoint | Ack | None:
    """The body of a message of a revive topic; None for tags that no version has.

    Raises:
        BadText: the body is no such object.
    """
    if tags == CHECKPOINT_TAG:
        return CheckPoint.parse(body)
    return Ack.parse(body) if tags in (ACK_TAG, BATCH_ACK_TAG) else None
