"""Partitions of messages: grouping of rows, and names of partition directories.

Partition directories are ``topicDir=<topic>``, ``topicBucket=<number>``, ``day=<YYYY-MM-DD>`` and
``hour=<YYYY-MM-DD-HH>`` (of the store time, UTC). They are labels for skipping files; the columns hold the real values.
A directory ``topic=...`` would not work: readers take the value of a column from the directory and guess its type, so a
topic ``007`` becomes the number 7 (Spark), or the read fails because file and directory disagree (Arrow). A name that
is not a column cannot conflict.

Buckets are for very many topics: with one directory and file per topic, most of the cost of a dump would be in the file
system.
"""

import hashlib
import re
import zlib
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.analytics.table.views import memory_of, plain, take

PARTITIONS = {
    "topic": "topicDir",
    "bucket": "topicBucket",
    "day": "day",
    "hour": "hour",
}  # partition name, and the name used in the path
BUCKETS = 64  # CRC-32 of a topic's UTF-8, modulo this: in Spark's SQL crc32(topic) % 64
SMALL = 64 << 10  # bytes of Arrow memory; smaller partitions do not get one file per split
_AT_ONCE = 16 << 20  # bytes of rows sorted at a time
_LEFT_AT_ONCE = 1 << 20  # the same for rows left over
_NULL = "__HIVE_DEFAULT_PARTITION__"  # Hive's label for null; Arrow cannot open a dataset that has no other label
_UNKNOWN = "unknown"
_LABEL_BYTES = 200
# characters that Hive escapes; all others, including CJK, are kept: Spark unescapes bytes, not UTF-8
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^<>|]")

Key = tuple[str | None, ...]


class Partitioned:
    """A batch of messages, grouped by partition.

    Rows are moved once, many partitions at a time, however many partitions there are: extracting the rows of each
    partition separately would cost as much for one row as for thousands.
    """

    def __init__(self, batch: pa.RecordBatch, partition_by: tuple[str, ...]) -> None:
        self._batch = batch
        self._values: list[list[Any]] = []
        code = np.zeros(batch.num_rows, dtype=np.int64)
        for by in partition_by:
            encoded = pc.dictionary_encode(_column(batch, by), null_encoding="encode")
            self._values.append(encoded.dictionary.to_pylist())
            code = code * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
        self._codes, inverse, self._counts = np.unique(code, return_inverse=True, return_counts=True)
        self._order = np.argsort(inverse, kind="stable")
        self._ends = np.cumsum(self._counts)
        bodies = batch.column("bodyLength").to_numpy().astype(np.float64)
        other = max(memory_of(batch) - bodies.sum(), 0) / batch.num_rows
        self._sizes = np.bincount(inverse, bodies) + other * self._counts
        self._kept = np.zeros(0, np.int64)

    def largest(self, leave: int) -> Iterator[tuple[Key, pa.RecordBatch, float]]:
        """Yield partitions with their rows and approximate size in bytes of Arrow memory.

        Stops when the remaining rows, returned by :meth:`rest`, take at most ``leave`` bytes.
        """
        chosen = np.arange(len(self._codes))
        if leave > 0:
            falling = np.argsort(-self._sizes, kind="stable")
            left = self._sizes.sum() - np.cumsum(self._sizes[falling])
            count = min(int(np.count_nonzero(left > leave)) + 1, len(falling))
            chosen, self._kept = np.sort(falling[:count]), np.sort(falling[count:])
        yield from self._each(chosen)

    def small(self, least: int, begun: Collection[Key]) -> int:
        """Return the number of partitions that take fewer than ``least`` bytes and are not in ``begun``."""
        return int(np.count_nonzero(self._is_small(least, begun)))

    def larger(self, least: int, begun: Collection[Key]) -> Iterator[tuple[Key, pa.RecordBatch, float]]:
        """As :meth:`largest`, for all partitions that :meth:`small` does not count; the others are left."""
        small = self._is_small(least, begun)
        chosen, self._kept = np.flatnonzero(~small), np.flatnonzero(small)
        yield from self._each(chosen)

    def _is_small(self, least: int, begun: Collection[Key]) -> Any:
        small = self._sizes < least
        if begun:
            for number in np.flatnonzero(small).tolist():
                small[number] = self._key(int(self._codes[number])) not in begun
        return small

    def _each(self, chosen: Any) -> Iterator[tuple[Key, pa.RecordBatch, float]]:
        """Yield the chosen partitions as :meth:`largest` does."""
        if not len(chosen):
            return
        for numbers in self._stretches(chosen, _AT_ONCE):
            if len(self._codes) == 1:
                yield self._key(int(self._codes[0])), self._batch, float(self._sizes[0])
                return
            rows, at = take(self._batch, self._rows(numbers)), 0
            if self._sizes[numbers].max() < SMALL:
                rows = plain(rows)  # copied together, which is faster than a copy for each few rows
            for number in numbers.tolist():
                count = int(self._counts[number])
                yield self._key(int(self._codes[number])), rows.slice(at, count), float(self._sizes[number])
                at += count

    def _stretches(self, numbers: Any, most_bytes: int) -> list[Any]:
        """Split the partitions into runs of roughly equal size in bytes."""
        stretch = (np.cumsum(self._sizes[numbers]) // most_bytes).astype(np.int64)
        return np.split(numbers, np.flatnonzero(np.diff(stretch)) + 1)

    def rest(self) -> pa.RecordBatch | None:
        """Return the remaining rows in their original order, or None."""
        return take(self._batch, np.sort(self._rows(self._kept))) if len(self._kept) else None

    def drain(self, hash_of: Callable[[Key], int]) -> Iterator[tuple[pa.RecordBatch, Any]]:
        """Yield the remaining rows in batches, sorted by a hash of their partition, with the hash of each row.

        Rows of a partition keep their order and stay together.
        """
        hashes = np.array([hash_of(self._key(int(code))) for code in self._codes[self._kept]], np.int64)
        order = np.argsort(hashes, kind="stable")
        numbers, hashes = self._kept[order], hashes[order]
        at = 0
        for chunk in self._stretches(numbers, _LEFT_AT_ONCE):
            yield take(self._batch, self._rows(chunk)), np.repeat(hashes[at : at + len(chunk)], self._counts[chunk])
            at += len(chunk)

    def _rows(self, numbers: Any) -> Any:
        """Return the row numbers of some partitions."""
        if not len(numbers):
            return self._order[:0]
        return np.concatenate(
            [self._order[self._ends[number] - self._counts[number] : self._ends[number]] for number in numbers]
        )

    def _key(self, code: int) -> Key:
        key: list[str | None] = []
        for choices in reversed(self._values):
            code, index = divmod(code, len(choices))
            value = choices[index]
            key.append(None if value is None else _label(value))
        return tuple(reversed(key))


def _label(value: Any) -> str:
    # not 2023-11-14T22, which Spark would parse as a day
    return value.strftime("%Y-%m-%d-%H") if isinstance(value, datetime) else str(value)


def _column(batch: pa.RecordBatch, by: str) -> pa.Array:
    if by == "topic":
        return batch.column("topic")
    if by == "bucket":
        topics = pc.dictionary_encode(batch.column("topic"))
        numbers = [None if name is None else bucket_of(name) for name in topics.dictionary.to_pylist()]
        return pa.array(numbers, pa.int32()).take(topics.indices)
    # as a time without zone: with one, Arrow needs the system's time zone database, which containers may lack
    time = batch.column("storeTimestamp").view(pa.timestamp("us"))
    if by == "day":
        return pc.cast(time, pa.date32())
    return pc.cast(pc.floor_temporal(time, unit="hour"), pa.timestamp("s"))


def bucket_of(topic: str) -> int:
    """Return the bucket of a topic."""
    return zlib.crc32(topic.encode()) % BUCKETS


def segment(name: str, value: str | None) -> str:
    """Return one level of a partitioned path, escaped like Hive does.

    A label that is too long for a file name is truncated and hashed. A missing or empty value becomes ``unknown``.
    """
    if not value or value == _NULL:
        return f"{name}={_UNKNOWN}"
    label = _escape(value)
    if len(label.encode()) > _LABEL_BYTES:
        digest = hashlib.sha256(value.encode()).hexdigest()[:16]
        label = f"{_escape(value.encode()[: _LABEL_BYTES // 4].decode('utf-8', 'ignore'))}~{digest}"
    return f"{name}={label}"


def _escape(value: str) -> str:
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", value)
