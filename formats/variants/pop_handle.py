"""Texts by which POP clients identify messages: the handle of a message, and the offset lists of a response.

Source: remoting.protocol.header.ExtraInfoUtil, common.KeyBuilder, common.consumer.ReceiptHandle (5.3.3);
clients-and-live-admin 1.4.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from formats.errors import BadText
from formats.topics import RETRY_PREFIX

ORDERED = 999  # revive queue of messages popped in order
POP_CK = "POP_CK"  # property in which a message carries its own handle
FIRST_POP_TIME = "1ST_POP_TIME"
_FIELDS = 8
_LONG = range(-(2**63), 2**63)
_INT = range(-(2**31), 2**31)


class Origin(StrEnum):
    """The topic that a message was popped from: its own, or the group's retry topic in its old or new naming."""

    NORMAL = "0"
    RETRY_V1 = "1"
    RETRY_V2 = "2"


def retry_topic(topic: str, group: str, *, newer: bool = False) -> str:
    """Return the topic in which messages are redelivered to a POP group."""
    return f"%RETRY%{group}+{topic}" if newer else f"%RETRY%{group}_{topic}"


def origin_of(topic: str) -> Origin:
    """Return the role of a topic for a POP group."""
    if not topic.startswith(RETRY_PREFIX):
        return Origin.NORMAL
    return Origin.RETRY_V2 if "+" in topic else Origin.RETRY_V1


def real_topic(topic: str, group: str, origin: str) -> str:
    """Return the topic that a message is stored in, given the topic that was asked for."""
    if origin == Origin.NORMAL or topic.startswith(RETRY_PREFIX):
        return topic
    return retry_topic(topic, group, newer=origin == Origin.RETRY_V2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """The handle of one message (``extraInfo``). Times are ms; the pop time since the epoch.

    Attributes:
        start_offset: of the checkpoint.
        revive_queue: queue of the revive topic, or :data:`ORDERED`.
        queue_offset: of the message.
    """

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue: int
    origin: str
    broker_name: str
    queue_id: int
    queue_offset: int

    @property
    def text(self) -> str:
        """The handle as sent to clients."""
        return (
            f"{self.start_offset} {self.pop_time} {self.invisible_time} {self.revive_queue} {self.origin} "
            f"{self.broker_name} {self.queue_id} {self.queue_offset}"
        )

    @classmethod
    def parse(cls, text: str) -> "Handle":
        """Parse a handle; anything after the eight fields is ignored.

        Raises:
            BadText: fields are missing, or are not numbers.
        """
        parts = text.split(" ")
        if len(parts) < _FIELDS:
            raise BadText(0, f"a handle of {len(parts)} fields where {_FIELDS} must be")
        start, pop, invisible, revive, origin, name, queue_id, offset = parts[:_FIELDS]
        return cls(
            start_offset=_number(start, _LONG),
            pop_time=_number(pop, _LONG),
            invisible_time=_number(invisible, _LONG),
            revive_queue=_number(revive, _INT),
            origin=origin,
            broker_name=name,
            queue_id=_number(queue_id, _INT),
            queue_offset=_number(offset, _LONG),
        )


class HandleQueue(NamedTuple):
    """One queue of a response.

    Attributes:
        start_offset: start offset of its checkpoint.
        queue_offsets: offsets of its messages, in the order of the response.
    """

    origin: str
    queue_id: int
    start_offset: int
    queue_offsets: tuple[int, ...]


def build_parts(parts: Sequence[HandleQueue]) -> tuple[str, str]:
    """Return ``startOffsetInfo`` and ``msgOffsetInfo`` of a response."""
    starts = ";".join(f"{part.origin} {part.queue_id} {part.start_offset}" for part in parts)
    lists = (",".join(map(str, part.queue_offsets)) for part in parts)
    offsets = ";".join(f"{part.origin} {part.queue_id} {text}" for part, text in zip(parts, lists, strict=True))
    return starts, offsets


def parse_parts(starts: str, offsets: str) -> list[HandleQueue]:
    """Parse the queues of a response.

    Raises:
        BadText: the two lists do not match, or are malformed.
    """
    listed = {(origin, queue): text for origin, queue, text in _triples(offsets)}
    parts = []
    for origin, queue, text in _triples(starts):
        if (origin, queue) not in listed:
            raise BadText(0, f"no message offsets of queue {queue[:20]}")
        numbers = tuple(_number(number, _LONG) for number in listed[origin, queue].split(","))
        parts.append(HandleQueue(origin, _number(queue, _INT), _number(text, _LONG), numbers))
    return parts


def count_info(origin: str, queue_id: int, counts: Iterable[tuple[int, int]], least: int) -> str:
    """Return ``orderCountInfo`` of one queue that was popped in order.

    Args:
        counts: queue offset and number of previous pops, for each message that was popped before.
        least: the minimum over all messages of the queue.
    """
    each = [f"{origin} qo{queue_id}%{offset} {count}" for offset, count in counts]
    return ";".join([*each, f"{origin} {queue_id} {least}"])


def _triples(text: str) -> list[tuple[str, str, str]]:
    triples = []
    for item in text.split(";") if text else ():
        parts = item.split(" ")
        if len(parts) != 3:
            raise BadText(0, f"{item[:40]!r} where three fields must be")
        triples.append((parts[0], parts[1], parts[2]))
    return triples


def _number(text: str, bounds: range) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19 or int(text) not in bounds:
        raise BadText(0, f"{text[:40]!r} is not a number")
    return int(text)
