"""The fields of records that dispatch needs for queues and index, in columns (CommitLog.checkMessageAndReturnSize).

A batch covers consecutive records of one commit-log file. It does not contain bodies, so its size depends only on the
number of records.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from formats.arrays import Column
from formats.index import key_hash, tag_key
from formats.layouts.derived import BATCH_CQ_ENTRY, CQ_ENTRY
from formats.message.inner import batch_numbers
from formats.message.properties import (
    DELAY,
    KEYS,
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    TAGS,
    UNIQ_KEY,
    parse,
    split_keys,
)
from formats.message.read import SCHEDULE_TOPIC, Record
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE, TRANSACTION_ROLLBACK, java_hash
from rmqtool.kernels.tables.collected import BatchNumbers
from rmqtool.rules.releases import Release
from rmqtool.store.disk.mapping import need
from rmqtool.store.log.records import is_entries

if TYPE_CHECKING:
    from rmqtool.kernels.dispatch import Room

Following = Callable[[], tuple[memoryview, int] | None]
BATCH_RECORDS = 1 << 15
NO_NUMBERS = BatchNumbers(*np.zeros((len(BatchNumbers._fields), 0), np.int64))
# Thresholds above which kernels and threads are used: bytes of records, index keys in one batch, and messages appended
# in one call. They do not affect results: tests and fuzzing run both ways over the same stores.
BULK_BYTES = 64 << 10
BULK_KEYS = 1 << 8
BULK_MESSAGES = 16
_PROBE = 4096


class LightQueuePut(NamedTuple):
    """An additional queue that a record is dispatched to (multi-dispatch, %LMQ%)."""

    row: int
    queue: str
    queue_offset: int


class QueuePuts:
    """Entries that messages add to one queue, in log order.

    Args:
        columns: physical offset, size, queue offset and store timestamp of these and perhaps other messages, int64.
        row: the row of each message in these columns.
        entries: their queue entries, of CQ_ENTRY.dtype.
        steady: whether physical offsets increase and queue offsets count up by one.
        numbers: of the records that are inner batches.
    """

    __slots__ = ("_columns", "_numbers", "_row", "entries", "steady")

    def __init__(
        self,
        columns: tuple[Column, ...],
        row: Column,
        entries: Column,
        *,
        steady: bool,
        numbers: BatchNumbers,
    ) -> None:
        self._columns, self._row, self.entries, self.steady = columns, row, entries, steady
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._row)

    def message(self, number: int) -> tuple[int, int, int, int]:
        """(physical offset, size, queue offset, store timestamp) of a message."""
        row = self._row[number]
        physical, size, queue_offset, timestamp = self._columns
        return int(physical[row]), int(size[row]), int(queue_offset[row]), int(timestamp[row])

    @property
    def queue_offset(self) -> Column:
        """Queue offset of each message."""
        return self._columns[2][self._row]

    @property
    def counts(self) -> Column:
        """Number of messages in each record."""
        return numbers_of(self._numbers, self._row, self.queue_offset)[1]

    @property
    def ends(self) -> Column:
        """Physical offset after each message."""
        physical, size, *_others = self._columns
        return physical[self._row] + size[self._row]

    @property
    def store_timestamp(self) -> Column:
        """Store timestamp of each message."""
        return self._columns[-1][self._row]

    def batch_units(self) -> Column:
        """Their units in a batch queue, of BATCH_CQ_ENTRY.dtype; see :func:`numbers_of`."""
        units = np.zeros(len(self._row), BATCH_CQ_ENTRY.dtype)
        for name in ("physical_offset", "size", "tags_code"):
            units[name] = self.entries[name]
        units["store_timestamp"] = self.store_timestamp
        base, count = numbers_of(self._numbers, self._row, self._columns[2][self._row])
        units["base_queue_offset"], units["batch_size"], units["compacted_offset"] = base, count, -1
        return units

    def since(self, number: int) -> "QueuePuts":
        """Return the puts from a number on."""
        row, entries = self._row[number:], self.entries[number:]
        return QueuePuts(self._columns, row, entries, steady=self.steady, numbers=self._numbers)

    def with_codes(self, tags_codes: Column) -> "QueuePuts":
        """A copy with other tags codes."""
        entries = self.entries.copy()
        entries["tags_code"] = tags_codes
        return QueuePuts(self._columns, self._row, entries, steady=self.steady, numbers=self._numbers)


def numbers_of(numbers: BatchNumbers, rows: Column, queue_offset: Column) -> tuple[Column, Column]:
    """(first queue offset, number of messages) of records; a record without numbers is one message.

    The numbers are as stored: they may be negative, in which case a broker makes no unit.

    Args:
        rows: the records, in any order.
        queue_offset: the queue offset in each record.
    """
    base, count = queue_offset.copy(), np.ones(len(rows), np.int64)
    if len(numbers.row):
        where = np.searchsorted(numbers.row, rows)
        where[where == len(numbers.row)] = 0
        indices = np.flatnonzero(numbers.row[where] == rows)
        base[indices], count[indices] = numbers.base[where[indices]], numbers.messages[where[indices]]
    return base, count


class QueueRows(NamedTuple):
    """The rows of a batch that get a consume-queue entry, grouped by topic and queue id, ascending in each group.

    Group i is from ``stop[i - 1]`` (0 for the first) to ``stop[i]`` in the other columns.
    """

    stop: Column
    steady: Column  # bool: see QueuePuts
    row: Column
    entries: Column


class RecordBatch(NamedTuple):
    """Consecutive records, one column per field. All columns are int64 unless noted."""

    physical_offset: Column  # as stated by the record; dispatch relies on it
    size: Column
    queue_id: Column
    queue_offset: Column
    store_timestamp: Column
    tags_code: Column
    queued: Column  # bool: whether it gets a consume-queue entry
    topic: Column  # position in ``topics``
    topics: list[str]
    key_row: Column  # row of each index key, in the order in which keys are added
    key_hash: Column  # that of tags is complemented: see `hashes` and `tag_keys`
    light: list[LightQueuePut]
    numbers: BatchNumbers
    room: "Room | None" = None  # memory of the columns, if it can be reused
    groups: QueueRows | None = None  # if compiled code has grouped the rows already

    def __len__(self) -> int:
        return len(self.size)

    @property
    def hashes(self) -> Column:
        """The hash of each index key."""
        hashes: Column = self.key_hash ^ (self.key_hash >> 63)
        return hashes

    @property
    def tag_keys(self) -> Column:
        """Which of the index keys are tags; bool."""
        tags: Column = self.key_hash < 0
        return tags

    def by_queue(self) -> list[Column]:
        """Rows that get a consume-queue entry, grouped by topic and queue id, ascending in each group."""
        groups = self.groups or _group(self)
        return np.split(groups.row, groups.stop[:-1]) if len(groups.stop) else []

    def puts(self) -> Iterator[tuple[int, QueuePuts]]:
        """(one of its rows, what its rows add) for each queue, in the groups of :meth:`by_queue`."""
        groups = self.groups or _group(self)
        columns = self.physical_offset, self.size, self.queue_offset, self.store_timestamp
        start = 0
        for stop, steady in zip(groups.stop.tolist(), groups.steady.tolist(), strict=True):
            row = groups.row[start:stop]
            entries = groups.entries[start:stop]
            yield int(row[0]), QueuePuts(columns, row, entries, steady=steady, numbers=self.numbers)
            start = stop

    def light_puts(self, put: LightQueuePut) -> QueuePuts:
        """Return the entries that an item of :attr:`light` adds."""
        row = slice(put.row, put.row + 1)
        physical, size = self.physical_offset[row], self.size[row]
        columns = physical, size, np.array([put.queue_offset], np.int64), self.store_timestamp[row]
        entries = entries_of(physical, size, self.tags_code[row])
        return QueuePuts(columns, np.zeros(1, np.int64), entries, steady=True, numbers=NO_NUMBERS)

    def release(self) -> None:
        """Return the memory of the columns for the next batch; this one must not be used any more."""
        if self.room is not None:
            self.room.release()

    def with_columns(self, **columns: Any) -> "RecordBatch":
        """A copy with other columns (``_replace`` does not work, since ``__len__`` is the number of records).

        ``groups`` must be among them, as None, if the rows of queues change.
        """
        return RecordBatch(**(self._asdict() | columns))

    def lies_at(self, position: int) -> bool:
        """Whether the records are contiguous from a physical offset on, by the offsets that they state."""
        return bool((self.physical_offset == position + np.cumsum(self.size) - self.size).all())

    def since(self, physical_offset: int) -> "RecordBatch":
        """Only the records that state this physical offset or a later one."""
        keep = self.physical_offset >= physical_offset
        if keep.all():
            return self
        row, keyed, numbered = np.cumsum(keep) - 1, keep[self.key_row], keep[self.numbers.row]
        return RecordBatch(
            self.physical_offset[keep],
            self.size[keep],
            self.queue_id[keep],
            self.queue_offset[keep],
            self.store_timestamp[keep],
            self.tags_code[keep],
            self.queued[keep],
            self.topic[keep],
            self.topics,
            row[self.key_row[keyed]],
            self.key_hash[keyed],
            [put._replace(row=int(row[put.row])) for put in self.light if keep[put.row]],
            BatchNumbers(row[self.numbers.row[numbered]], self.numbers.base[numbered], self.numbers.messages[numbered]),
        )


def entries_of(physical_offset: Column, size: Column, tags_code: Column) -> Column:
    """Consume-queue entries, of CQ_ENTRY.dtype."""
    entries = np.empty(len(size), CQ_ENTRY.dtype)
    entries["physical_offset"], entries["size"], entries["tags_code"] = physical_offset, size, tags_code
    return entries


def _is_steady(physical_offset: Column, queue_offset: Column) -> bool:
    grow = physical_offset[1:] > physical_offset[:-1]
    return bool(grow.all() and (queue_offset[1:] - queue_offset[:-1] == 1).all())


def _group(batch: RecordBatch) -> QueueRows:
    rows = np.flatnonzero(batch.queued)
    topics, ids = batch.topic[rows], batch.queue_id[rows]
    order = np.lexsort((ids, topics))
    stops = np.flatnonzero(np.diff(topics[order]) | np.diff(ids[order])) + 1
    stops = np.append(stops, len(rows)) if len(rows) else stops
    # reorder once: picking from each column per queue would cost as much again for every queue
    rows = rows[order]
    columns = (batch.physical_offset, batch.size, batch.queue_offset)
    physical, size, queue_offset = (column[rows] for column in columns)
    starts = np.append(0, stops[:-1])
    steady = [
        _is_steady(physical[start:stop], queue_offset[start:stop])
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=False)
    ]
    entries = entries_of(physical, size, batch.tags_code[rows])
    return QueueRows(stops, np.array(steady, bool), rows, entries)


class DelayLevels:
    """Delay of each level; empty while a 4.9 broker recovers from a crash, since it loads the table afterwards.

    Args:
        millis: delays of level 1, 2, ... in ms.
    """

    def __init__(self, millis: list[int]) -> None:
        self.millis = millis

    def tags_code(self, level: int, store_timestamp: int) -> int | None:
        """Deliver time of a delayed message, which its queue entry has in place of the tag hash; None for level 0."""
        level = min(level, len(self.millis))
        if level <= 0:
            return None
        # wraps like Java's long
        return (store_timestamp + self.millis[level - 1] + 2**63) % 2**64 - 2**63


class BatchBuilder:
    """Collects records into a :class:`RecordBatch`.

    Args:
        delays: determines the deliver time of delayed messages.
        light_queues: the release that dispatches to the additional queues in messages' properties; None: nothing does.
        index_tags: index tags, too.
    """

    def __init__(self, delays: DelayLevels, *, light_queues: Release | None = None, index_tags: bool = False) -> None:
        self.delays = delays
        self.light_queues = light_queues
        self.index_tags = index_tags
        self._topics: dict[bytes, int] = {}
        self._rows: list[tuple[int, int, int, int, int, int, bool, int]] = []
        self._keys: list[tuple[int, int]] = []
        self._light: list[LightQueuePut] = []
        self._numbers: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, record: Record) -> None:
        """Add a record."""
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
        if (numbers := batch_numbers(record.properties)) is not None:
            self._numbers.append((row, *numbers))

    def texts(self, record: Record, row: int) -> tuple[int, list[int], list[LightQueuePut]]:
        """Derived from topic and properties: tags code, hashes of the index keys in order, additional queues."""
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
            if self.index_tags and tags:
                hashes.append(~key_hash(topic, tag_key(tags)))
        return tags_code, hashes, self._light_puts(record, row, properties)

    def _light_puts(self, record: Record, row: int, properties: dict[str, str]) -> list[LightQueuePut]:
        """The entries for additional queues; none if the numbers of names and offsets differ."""
        if self.light_queues is None or MULTI_DISPATCH not in properties:
            return []
        if not self.light_queues.fills_light_queues(record.topic.decode("utf-8", "replace")):
            return []
        queues = properties[MULTI_DISPATCH].split(",")
        offsets = properties.get(MULTI_QUEUE_OFFSET, "").split(",")
        if len(queues) != len(offsets) or not all(o.isdecimal() and len(o) < 19 for o in offsets):
            return []
        return [LightQueuePut(row, q, int(o)) for q, o in zip(queues, offsets, strict=True)]

    def take(self) -> RecordBatch:
        """Return the batch so far, and start an empty one."""
        rows = np.array([row[:6] for row in self._rows], np.int64).reshape(-1, 6)
        keys = np.array(self._keys, np.int64).reshape(-1, 2)
        physical_offset, size, queue_id, queue_offset, store_timestamp, tags_code = rows.T
        batch = RecordBatch(
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
            BatchNumbers(*np.array(self._numbers, np.int64).reshape(-1, 3).T),
        )
        self._topics, self._rows, self._keys, self._light, self._numbers = {}, [], [], [], []
        return batch


def is_bulk(view: memoryview, at: int, limit: int) -> bool:
    """Whether there is enough for threads and tables to pay off. Most of a file may be unwritten.

    Args:
        view: the mapped file; of a remote one, [at, ...) is fetched as far as it is inspected.
    """
    if is_entries(view):
        return False  # compiled code expects adjacent records
    probe = at + BULK_BYTES
    if probe > limit:
        return False
    need(view, at, probe)
    return any(view[max(probe - _PROBE, at) : probe])
