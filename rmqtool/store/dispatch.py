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
BULK_BYTES = 8 << 20  # compiled code takes half a second to load, which plain code needs for as much
_PROBE = 4096


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

    def by_queue(self) -> list[Column]:
        """Rows that get a consume-queue entry, apart by topic and queue id, ascending in each."""
        rows = np.flatnonzero(self.queued)
        if not len(rows):
            return []
        topics, ids = self.topic[rows], self.queue_id[rows]
        low, span = int(ids.min()), int(ids.max()) - int(ids.min()) + 1
        if span * len(self.topics) <= 1 << 16:
            # two bytes are sorted in linear time
            queues = (topics * span + (ids - low)).astype(np.uint16)
            order = np.argsort(queues, kind="stable")
            cuts = np.flatnonzero(np.diff(queues[order])) + 1
        else:
            order = np.lexsort((ids, topics))
            cuts = np.flatnonzero(np.diff(topics[order]) | np.diff(ids[order])) + 1
        return np.split(rows[order], cuts)

    def since(self, physical_offset: int) -> "Batch":
        """Only the records that say this position or a later one."""
        kept = self.physical_offset >= physical_offset
        if kept.all():
            return self
        row, keyed = np.cumsum(kept) - 1, kept[self.key_row]
        return Batch(
            self.physical_offset[kept],
            self.size[kept],
            self.queue_id[kept],
            self.queue_offset[kept],
            self.store_timestamp[kept],
            self.tags_code[kept],
            self.queued[kept],
            self.topic[kept],
            self.topics,
            row[self.key_row[keyed]],
            self.key_hash[keyed],
            [put._replace(row=int(row[put.row])) for put in self.light if kept[put.row]],
        )


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
        if level <= 0:
            return None
        # Java's long: a forged time wraps
        return (store_timestamp + self.millis[level - 1] + 2**63) % 2**64 - 2**63


class BatchBuilder:
    """Collects records into a :class:`Batch`.

    Args:
        delays: gives delayed messages their deliver time.
        light_queues: dispatch to the further queues that a message names.
    """

    def __init__(self, delays: DelayLevels, *, light_queues: bool = False) -> None:
        self.delays = delays
        self.light_queues = light_queues
        self._topics: dict[bytes, int] = {}
        self._rows: list[tuple[int, int, int, int, int, int, bool, int]] = []
        self._keys: list[tuple[int, int]] = []
        self._light: list[LightQueuePut] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, record: Record) -> None:
        """Take one record."""
        row = len(self._rows)
        tags_code, hashes, light = self.texts(record, row)
        self._rows.append(
            (
                record.physical_offset,
                record.total_size,
                record.queue_id,
                record.queue_offset,
                record.store_timestamp,
                tags_code,
                record.sys_flag & TRANSACTION_MASK in (TRANSACTION_NONE, TRANSACTION_COMMIT),
                self._topics.setdefault(record.topic, len(self._topics)),
            )
        )
        self._keys += [(row, value) for value in hashes]
        self._light += light

    def texts(self, record: Record, row: int) -> tuple[int, list[int], list[LightQueuePut]]:
        """What topic and properties come to: tags code, hash of each index key in order, puts to further queues."""
        properties = parse(record.properties) if record.properties else {}
        tags = properties.get(TAGS)
        tags_code = java_hash(tags) if tags else 0
        if record.topic == SCHEDULE_TOPIC and DELAY in properties:
            due = self.delays.tags_code(int(properties[DELAY]), record.store_timestamp)
            tags_code = tags_code if due is None else due
        hashes: list[int] = []
        if record.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            topic = record.topic.decode("utf-8", "replace")
            unique = properties.get(UNIQ_KEY)
            keys = [unique] if unique else []
            keys += split_keys(properties.get(KEYS, ""))
            hashes = [key_hash(topic, key) for key in keys]
        light = _light_puts(row, properties) if self.light_queues and MULTI_DISPATCH in properties else []
        return tags_code, hashes, light

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


def _light_puts(row: int, properties: dict[str, str]) -> list[LightQueuePut]:
    queues = properties[MULTI_DISPATCH].split(",")
    offsets = properties.get(MULTI_QUEUE_OFFSET, "").split(",")
    if len(queues) != len(offsets) or not all(o.isdecimal() and len(o) < 19 for o in offsets):
        return []
    return [LightQueuePut(row, q, int(o)) for q, o in zip(queues, offsets, strict=True)]


def is_bulk(view: memoryview, at: int, limit: int) -> bool:
    """Whether so much is there that compiled code earns its start. Most of a commit-log file may be unwritten."""
    probe = at + BULK_BYTES
    return probe <= limit and any(view[max(probe - _PROBE, at) : probe])


def _records(view: memoryview, at: int, limit: int, builder: BatchBuilder, *, crc: bool) -> Generator[Batch, None, End]:
    """Full batches of the records from ``at`` to the first place that is none; the rest stays in the builder."""
    if is_bulk(view, at, limit):
        from rmqtool.store.bulk_dispatch import batches

        if len(builder):
            yield builder.take()
        return (yield from batches(view, at, limit, builder, crc=crc))
    while isinstance(record := read(view, at, limit, crc=crc), Record):
        builder.add(record)
        at += record.total_size
        if len(builder) >= BATCH_RECORDS:
            yield builder.take()
    return record


def recovery_batches(
    view: memoryview, at: int, limit: int, builder: BatchBuilder, *, crc: bool = True
) -> Generator[Batch, None, End]:
    """Batches of the records from ``at`` to the first place that recovery would not pass; returns that place."""
    end = yield from _records(view, at, limit, builder, crc=crc)
    if len(builder):
        yield builder.take()
    return end


def checked(view: memoryview, at: int, limit: int, *, crc: bool = True) -> tuple[End, int | None]:
    """As :func:`recovery_batches` where nothing is dispatched: (end, store timestamp of the last record before it)."""
    last: int | None = None
    if is_bulk(view, at, limit):
        from rmqtool.store.scan import scan

        scanned = scan(view, at, limit, crc=crc)
        while True:
            try:
                last = int(next(scanned).rows.store_timestamp[-1])
            except StopIteration as stop:
                return stop.value, last
    while isinstance(record := read(view, at, limit, crc=crc), Record):
        last = record.store_timestamp
        at += record.total_size
    return record, last


def reput_batches(view: memoryview, at: int, limit: int, builder: BatchBuilder) -> Generator[Batch, None, int]:
    """Batches as the running broker's dispatch takes them from one file; returns how far it gets (byte in the file).

    Dispatch checks no CRC. A record whose lengths disagree is passed over by the size that it claims; at any other
    damage the rest of the file is given up (a master does so; store-engine 3.1).
    """
    # position is the buffer's, ``at`` what dispatch believes it is; a record with a wrong size makes both part, and
    # does not count as read
    position = read_to = at
    while read_to < limit:
        end = yield from _records(view, position, limit, builder, crc=False)
        at += end.at - position
        read_to += end.at - position
        position = end.at
        if end.ending is Ending.FILLER:
            at += len(view) - at % len(view)
            break
        if end.size <= 0:
            at += limit - read_to
            break
        at += end.size
        position += end.consumed
    if len(builder):
        yield builder.take()
    return at
