"""Queue offsets in the new store: since a queue cannot have gaps, messages after lost ones move down."""

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace

from formats.config.files import ConsumerOffsets, DelayOffsets, LmqConsumerOffsets, split_key
from formats.message.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET, parse
from formats.message.read import Record
from formats.topics import SCHEDULE
from rmqtool.store.dispatch.light import light_queue_id

Key = tuple[bytes, int]  # topic, queue id
_LIGHT_OFFSETS = re.compile(rb"(?<![^\x02])" + MULTI_QUEUE_OFFSET.encode() + rb"\x01([0-9,]*)")


class Numbering:
    """The numbering of one queue: the next offset, and how old offsets have moved.

    Attributes:
        floating: number of messages with a wrong offset since the last one with a right one.
        lost: number of offsets without a message.
        moves: (old offset, how far it and those after it moved down).
        stored: store timestamp of its last message.
    """

    __slots__ = ("floating", "lost", "moves", "next_new", "next_old", "stored")

    def __init__(self, first: int) -> None:
        self.next_old = self.next_new = first
        self.floating = self.lost = self.stored = 0
        self.moves: list[tuple[int, int]] = []

    def follow(self, offset: int, span: int = 1) -> None:
        """Number a message whose old offset is trusted; its new one is ``next_new``."""
        self.lost += max(offset - self.next_old - self.floating, 0)
        down = offset - self.next_new
        if down != (self.moves[-1][1] if self.moves else 0):
            self.moves.append((offset, down))
        self.next_old, self.floating = offset + span, 0
        self.next_new += span


class LightNumbers:
    """Numbering of the additional queues in messages' properties, which also contain their offsets.

    Args:
        whole: whether the log begins at 0, and so do queues; otherwise each begins with its first message.

    Attributes:
        queues: the numbering of each.
    """

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self.queues: dict[Key, Numbering] = {}

    def renumber(self, record: Record) -> Record:
        """The record with its offsets in the new store; unchanged if it has no additional queues."""
        match = _LIGHT_OFFSETS.search(record.properties)
        names = parse(record.properties).get(MULTI_DISPATCH)
        if match is None or names is None:
            return record
        keys = [(name, light_queue_id(name, record.queue_id)) for name in names.split(",")]
        offsets = match[1].split(b",")
        if len(keys) != len(offsets) or not all(0 < len(offset) < 19 for offset in offsets):
            return record  # no broker dispatches it
        numbers = [self._number(name, queue_id, int(old)) for (name, queue_id), old in zip(keys, offsets, strict=True)]
        text = ",".join(map(str, numbers)).encode()
        if [int(offset) for offset in offsets] == numbers:
            return record
        properties = record.properties[: match.start(1)] + text + record.properties[match.end(1) :]
        size = record.total_size + len(properties) - len(record.properties)
        return record._replace(total_size=size, properties=properties)

    def _number(self, name: str, queue_id: int, offset: int) -> int:
        key = name.encode("utf-8", "surrogateescape"), queue_id
        queue = self.queues.setdefault(key, Numbering(0 if self._whole else offset))
        number = queue.next_new
        if offset >= queue.next_old:
            queue.follow(offset)
        else:  # a broker whose queue was lost has begun it at 0 again
            queue.floating += 1
            queue.next_new += 1
        return number


def _move(queues: Mapping[Key, Numbering], topic: str, queue_id: int, offset: int) -> int:
    """The new offset of what had an old one: that of the next message, if that one is lost."""
    queue = queues.get((topic.encode("utf-8", "surrogateescape"), queue_id))
    moves = queue.moves if queue is not None else []
    number = bisect_right(moves, offset, key=lambda move: move[0])
    moved = offset - moves[number - 1][1] if number else offset
    return min(moved, moves[number][0] - moves[number][1]) if number < len(moves) else moved


def move_delays(table: DelayOffsets, queues: Mapping[Key, Numbering]) -> DelayOffsets:
    """Adjust how far delay levels are delivered; returns the same table if none moved."""
    moved = {}
    for level, offset in table.offsets.items():
        queue = queues.get((SCHEDULE.encode(), level - 1))
        moved[level] = min(_move(queues, SCHEDULE, level - 1, offset), queue.next_new) if queue is not None else offset
    return table if moved == table.offsets else replace(table, offsets=moved)


def move_offsets(table: ConsumerOffsets, queues: Mapping[Key, Numbering]) -> ConsumerOffsets:
    """Adjust consumer offsets to their messages; returns the same table if none moved."""

    def move(topic: str, queue_id: int, offset: int) -> int:
        return _move(queues, topic, queue_id, offset)

    changed: dict[str, dict[int, int]] = {}  # only the changes, as there may be hundreds of thousands of groups
    for key, offsets in table.offsets.items():
        topic = split_key(key)[0]
        new = {queue_id: move(topic, queue_id, offset) for queue_id, offset in offsets.items()}
        if new != offsets:
            changed[key] = new
    if changed:
        table = replace(table, offsets={**table.offsets, **changed})
    if isinstance(table, LmqConsumerOffsets):
        light = {key: move(split_key(key)[0], 0, offset) for key, offset in table.lmq_offsets.items()}
        if light != table.lmq_offsets:
            table = replace(table, lmq_offsets=light)
    return table
