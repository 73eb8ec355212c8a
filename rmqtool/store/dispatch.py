"""What dispatch needs to know of each record, in columns: for queues and index (CommitLog.checkMessageAndReturnSize).

A batch covers consecutive records of one commit-log file. It carries no bodies, so its size depends on the number of
records only.
"""

from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np

from formats.endings import Ending
from formats.index import key_hash
from formats.message import SCHEDULE_TOPIC, End, Record, read
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE, TRANSACTION_ROLLBACK, java_hash
from formats.properties import (
    DELAY,
    KEYS,
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    TAGS,
    UNIQ_KEY,
    parse,
    split_keys,
)

Column = np.ndarray[Any, np.dtype[Any]]
BATCH_RECORDS = 1 << 15


class LightQueuePut(NamedTuple):
    """A further queue that one record is dispatched to (multi-dispatch, %LMQ%)."""

    row: int
    queue: str
    queue_offset: int


class Batch(NamedTuple):
    """Consecutive records, a column each. All are int64 unless stated."""

    physical_offset: Column  # as the record says it; dispatch trusts that
    size: Column
    queue_id: Column
    queue_offset: Column
    store_timestamp: Column
    tags_code: Column
    queued: Column  # bool: whether it gets a consume-queue entry
    topic: Column  # position in ``topics``
    topics: list[str]
    key_row: Column  # row of each index key, in the order in which keys are put
    key_hash: Column
    light: list[LightQueuePut]

    def __len__(self) -> int:
        return len(self.size)


class DelayLevels:
    """Delay of each level; empty while a 4.9 broker recovers from a crash, because it loads the table afterwards.

    Args:
        millis: delay of level 1, 2, ...
    """

    def __init__(self, millis: list[int]) -> None:
        self.millis = millis

    def tags_code(self, level: int, store_timestamp: int) -> int | None:
        """Deliver time of a delayed message, which its queue entry holds instead of the tag hash; None for level 0."""
        level = min(level, len(self.millis))
        return store_timestamp + self.millis[level - 1] if level > 0 else None


class BatchBuilder:
    """Collects records into a :class:`Batch`."""

    def __init__(self, delays: DelayLevels, *, light_queues: bool = False) -> None:
        self._delays = delays
        self._light_queues = light_queues
        self._topics: dict[bytes, int] = {}
        self._rows: list[tuple[int, int, int, int, int, int, bool, int]] = []
        self._keys: list[tuple[int, int]] = []
        self._light: list[LightQueuePut] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, record: Record) -> None:
        """Take one record."""
        properties = parse(record.properties) if record.properties else {}
        tags = properties.get(TAGS)
        tags_code = java_hash(tags) if tags else 0
        if record.topic == SCHEDULE_TOPIC and DELAY in properties:
            due = self._delays.tags_code(int(properties[DELAY]), record.store_timestamp)
            tags_code = tags_code if due is None else due
        transaction = record.sys_flag & TRANSACTION_MASK
        row = len(self._rows)
        self._rows.append(
            (
                record.physical_offset,
                record.total_size,
                record.queue_id,
                record.queue_offset,
                record.store_timestamp,
                tags_code,
                transaction in (TRANSACTION_NONE, TRANSACTION_COMMIT),
                self._topics.setdefault(record.topic, len(self._topics)),
            )
        )
        if transaction != TRANSACTION_ROLLBACK:
            topic = record.topic.decode("utf-8", "replace")
            unique = properties.get(UNIQ_KEY)
            keys = [unique] if unique else []
            keys += split_keys(properties.get(KEYS, ""))
            self._keys += [(row, key_hash(topic, key)) for key in keys]
        if self._light_queues and MULTI_DISPATCH in properties:
            self._add_light(row, properties)

    def _add_light(self, row: int, properties: dict[str, str]) -> None:
        queues = properties[MULTI_DISPATCH].split(",")
        offsets = properties.get(MULTI_QUEUE_OFFSET, "").split(",")
        if len(queues) == len(offsets) and all(o.isdecimal() and len(o) < 19 for o in offsets):
            self._light += [LightQueuePut(row, q, int(o)) for q, o in zip(queues, offsets, strict=True)]

    def take(self) -> Batch:
        """The batch so far; the builder starts anew."""
        rows = np.array([row[:6] for row in self._rows], np.int64).reshape(-1, 6)
        keys = np.array(self._keys, np.int64).reshape(-1, 2)
        physical_offset, size, queue_id, queue_offset, store_timestamp, tags_code = rows.T
        batch = Batch(
            physical_offset,
            size,
            queue_id,
            queue_offset,
            store_timestamp,
            tags_code,
            np.array([row[6] for row in self._rows], bool),
            np.array([row[7] for row in self._rows], np.int64),
            [topic.decode("utf-8", "replace") for topic in self._topics],
            keys[:, 0],
            keys[:, 1],
            self._light,
        )
        self._topics, self._rows, self._keys, self._light = {}, [], [], []
        return batch


def recovery_batches(
    view: memoryview, at: int, limit: int, builder: BatchBuilder, *, crc: bool = True
) -> Generator[Batch, None, End]:
    """Batches of the records from ``at`` to the first place that recovery would not pass; returns that place."""
    while isinstance(record := read(view, at, limit, crc=crc), Record):
        builder.add(record)
        at += record.total_size
        if len(builder) >= BATCH_RECORDS:
            yield builder.take()
    if len(builder):
        yield builder.take()
    return record


def reput_batches(view: memoryview, at: int, limit: int, builder: BatchBuilder) -> Generator[Batch, None, int]:
    """Batches as the running broker's dispatch takes them from one file; returns how far it gets (byte in the file).

    Dispatch checks no CRC. A record whose lengths disagree is passed over by the size that it claims; at any other
    damage the rest of the file is given up (a master does so; store-engine 3.1).
    """
    position = at  # of the buffer; ``at`` is what dispatch believes, and both part after a record with a wrong size
    while position < limit:
        record = read(view, position, limit, crc=False)
        if isinstance(record, Record):
            builder.add(record)
            at += record.total_size
            position += record.total_size
            if len(builder) >= BATCH_RECORDS:
                yield builder.take()
        elif record.ending is Ending.FILLER:
            at = len(view)
            break
        elif record.size > 0:
            at += record.size
            position += record.consumed
        else:
            at += limit - position
            break
    if len(builder):
        yield builder.take()
    return at
