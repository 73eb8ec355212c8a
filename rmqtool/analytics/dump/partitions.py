"""Partitions of messages: which rows belong together, and what their directories are called.

Partition directories are ``topicDir=<topic>``, ``topicBucket=<number>``, ``day=<YYYY-MM-DD>`` and
``hour=<YYYY-MM-DD-HH>`` (of the store time, UTC). They are labels to skip files by; the truth stays in the columns. A
directory ``topic=...`` would be worse: readers take a directory's value for the column and guess its type, so a topic
``007`` comes back as the number 7 (Spark), or the read fails because file and directory disagree (Arrow). Under a name
that is no column nothing can clash, whatever the topic is.

Buckets are for very many topics: what a file system takes for a directory and a file for each is most of what such a
dump costs.
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
}  # what to part by, and the name in the path
BUCKETS = 64  # CRC-32 of a topic's UTF-8, modulo this: in Spark's SQL crc32(topic) % 64
SMALL = 64 << 10  # bytes of Arrow memory; a partition with fewer shall have no file for each split
_AT_ONCE = 16 << 20  # bytes of rows that are brought in order at once
_LEFT_AT_ONCE = 1 << 20  # of those that are left
_NULL = "__HIVE_DEFAULT_PARTITION__"  # Hive's label of null; where there is no other, Arrow cannot open the dataset
_UNKNOWN = "unknown"
_LABEL_BYTES = 200
# what Hive escapes; everything else, CJK included, stays as it is: Spark unescapes bytes, not UTF-8
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^<>|]")

Key = tuple[str | None, ...]


class Partitioned:
    """A batch of messages, its rows by partition.

    However many partitions there are, a row is moved once, in stretches of many partitions: to take the rows of each
    would cost as much for one row as for thousands.
    """

    def __init__(self, batch: pa.RecordBatch, partition_by: tuple[str, ...]) -> None:
        self._batch = batch
        self._values: list[list[Any]] = []
        code = np.zeros(batch.num_rows, dtype=np.int64)
        for by in partition_by:
            encoded = pc.dictionary_encode(_column(batch, by), null_encoding="encode")
            self._values.append(encoded.dictionary.to_pylist())
            code = code * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
        self._found, inverse, self._counts = np.unique(code, return_inverse=True, return_counts=True)
        self._order = np.argsort(inverse, kind="stable")
        self._ends = np.cumsum(self._counts)
        bodies = batch.column("bodyLength").to_numpy().astype(np.float64)
        other = max(memory_of(batch) - bodies.sum(), 0) / batch.num_rows
        self._sizes = np.bincount(inverse, bodies) + other * self._counts
        self._kept = np.zeros(0, np.int64)

    def largest(self, leave: int) -> Iterator[tuple[Key, pa.RecordBatch, float]]:
        """Partitions, their rows, and about how many bytes of Arrow memory these take.

        They end where what is left, as :meth:`rest`, takes no more than some bytes.
        """
        chosen = np.arange(len(self._found))
        if leave > 0:
            falling = np.argsort(-self._sizes, kind="stable")
            left = self._sizes.sum() - np.cumsum(self._sizes[falling])
            count = min(int(np.count_nonzero(left > leave)) + 1, len(falling))
            chosen, self._kept = np.sort(falling[:count]), np.sort(falling[count:])
        yield from self._each(chosen)

    def small(self, least: int, begun: Collection[Key]) -> int:
        """How many partitions take fewer bytes than ``least``, and are none of those that are begun."""
        return int(np.count_nonzero(self._is_small(least, begun)))

    def larger(self, least: int, begun: Collection[Key]) -> Iterator[tuple[Key, pa.RecordBatch, float]]:
        """As :meth:`largest`, all but those that :meth:`small` counts, which are left."""
        small = self._is_small(least, begun)
        chosen, self._kept = np.flatnonzero(~small), np.flatnonzero(small)
        yield from self._each(chosen)

    def _is_small(self, least: int, begun: Collection[Key]) -> Any:
        small = self._sizes < least
        if begun:
            for number in np.flatnonzero(small).tolist():
                small[number] = self._key(int(self._found[number])) not in begun
        return small

    def _each(self, chosen: Any) -> Iterator[tuple[Key, pa.RecordBatch, float]]:
        """Some partitions, as :meth:`largest` has them."""
        if not len(chosen):
            return
        for numbers in self._stretches(chosen, _AT_ONCE):
            if len(self._found) == 1:
                yield self._key(int(self._found[0])), self._batch, float(self._sizes[0])
                return
            rows, at = take(self._batch, self._rows(numbers)), 0
            if self._sizes[numbers].max() < SMALL:
                rows = plain(rows)  # at once: a copy for each of few rows would take longer
            for number in numbers.tolist():
                count = int(self._counts[number])
                yield self._key(int(self._found[number])), rows.slice(at, count), float(self._sizes[number])
                at += count

    def _stretches(self, numbers: Any, most_bytes: int) -> list[Any]:
        """Partitions, in stretches of about as many bytes."""
        stretch = (np.cumsum(self._sizes[numbers]) // most_bytes).astype(np.int64)
        return np.split(numbers, np.flatnonzero(np.diff(stretch)) + 1)

    def rest(self) -> pa.RecordBatch | None:
        """The rows that were left, in their order; None without any."""
        return take(self._batch, np.sort(self._rows(self._kept))) if len(self._kept) else None

    def left_by(self, hash_of: Callable[[Key], int]) -> Iterator[tuple[pa.RecordBatch, Any]]:
        """The rows that were left, by a hash of their partition, in stretches, and the hash of each row.

        Rows of one partition keep their order, and stay together.
        """
        hashes = np.array([hash_of(self._key(int(code))) for code in self._found[self._kept]], np.int64)
        order = np.argsort(hashes, kind="stable")
        numbers, hashes = self._kept[order], hashes[order]
        at = 0
        for some in self._stretches(numbers, _LEFT_AT_ONCE):
            yield take(self._batch, self._rows(some)), np.repeat(hashes[at : at + len(some)], self._counts[some])
            at += len(some)

    def _rows(self, numbers: Any) -> Any:
        """The numbers of the rows of some partitions."""
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
    # not as 2023-11-14T22, which Spark would take for a day
    return value.strftime("%Y-%m-%d-%H") if isinstance(value, datetime) else str(value)


def _column(batch: pa.RecordBatch, by: str) -> pa.Array:
    if by == "topic":
        return batch.column("topic")
    if by == "bucket":
        topics = pc.dictionary_encode(batch.column("topic"))
        numbers = [None if name is None else bucket_of(name) for name in topics.dictionary.to_pylist()]
        return pa.array(numbers, pa.int32()).take(topics.indices)
    # as a time without a zone: with one, Arrow asks for the system's time zone database, which containers may lack
    time = batch.column("storeTimestamp").view(pa.timestamp("us"))
    if by == "day":
        return pc.cast(time, pa.date32())
    return pc.cast(pc.floor_temporal(time, unit="hour"), pa.timestamp("s"))


def bucket_of(topic: str) -> int:
    """In which of the buckets of topics a topic is."""
    return zlib.crc32(topic.encode()) % BUCKETS


def segment(name: str, value: str | None) -> str:
    """One level of a partitioned path, escaped as Hive does it.

    A label too long for a file name is cut, and hashed. No value, or an empty one, is ``unknown``.
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
