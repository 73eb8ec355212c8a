"""Parquet files of one task: row groups of a useful size, one file for each partition, few files open at a time.

Partition directories are ``topicDir=<topic>``, ``day=<YYYY-MM-DD>`` and ``hour=<YYYY-MM-DD-HH>`` (of the store time,
UTC). They are labels to skip files by; the truth stays in the columns. A directory ``topic=...`` would be worse:
readers take a directory's value for the column and guess its type, so a topic ``007`` comes back as the number 7
(Spark), or the read fails because file and directory disagree (Arrow). Under a name that is no column nothing can
clash, whatever the topic is.
"""

import base64
import hashlib
import re
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rmqtool.analytics.files import Folder
from rmqtool.analytics.schema import MESSAGE_SCHEMA
from rmqtool.analytics.views import has_views, memory_of, take

CODECS = {"zstd": 3, "snappy": None, "gzip": 6, "none": None}
PARTITIONS = {"topic": "topicDir", "day": "day", "hour": "hour"}  # what to part by, and the name in the path
ROW_GROUP_BYTES = 128 << 20  # of Arrow memory, all partitions of a task together
ROW_GROUP_ROWS = 1_000_000
MAX_OPEN = 64
_NULL = "__HIVE_DEFAULT_PARTITION__"  # Hive's label of null; where there is no other, Arrow cannot open the dataset
_UNKNOWN = "unknown"
_LABEL_BYTES = 200
# what Hive escapes; everything else, CJK included, stays as it is: Spark unescapes bytes, not UTF-8
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^<>|]")

_DICTIONARY = ["topic", "queueId", "sysFlag", "flag", "bornHost", "storeHost", "reconsumeTimes", "tags"]
_DICTIONARY += ["bodyEncoding", "sourceFile"]
_DELTA = ["queueOffset", "physicalOffset", "storeSize", "bornTimestamp", "storeTimestamp", "bodyLength", "fileOffset"]
_UNSEARCHED = ("body", "properties", "keys", "bodyEncoding", "bodyError")
WRITER_OPTIONS: dict[str, Any] = {
    "use_dictionary": [*_DICTIONARY, "properties.key_value.key"],
    "column_encoding": dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
    "write_statistics": [name for name in MESSAGE_SCHEMA.names if name not in _UNSEARCHED],
    "write_page_index": True,
}

Key = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One finished file."""

    path: str  # relative to the output directory
    rows: int
    bytes: int


@dataclass(slots=True)
class _Waiting:
    """Rows of one partition that are not written yet."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _Open:
    writer: Any
    stream: Any
    temporary: str
    path: str
    rows: int = 0


class PartWriter:
    """Writes the files of one task below a directory.

    Files have names that readers pass over until they are complete. Names are the same each time the task runs, so a
    task that runs twice leaves one result.

    Args:
        folder: a directory, which exists.
        name: beginning of every file's name.
        suffix: end of every file's name, before ``.parquet``.
        partition_by: of :data:`PARTITIONS`.
        codec: of :data:`CODECS`.
        row_group_bytes: of Arrow memory that may wait, over all partitions.
        file_bytes: after which a file is finished and another begun; unlimited when None.
    """

    def __init__(
        self,
        folder: Folder,
        name: str,
        suffix: str,
        partition_by: tuple[str, ...] = (),
        codec: str = "zstd",
        row_group_bytes: int = ROW_GROUP_BYTES,
        file_bytes: int | None = None,
        max_open: int = MAX_OPEN,
    ) -> None:
        self._folder, self._name, self._suffix = folder, name, suffix
        self._partition_by, self._codec = partition_by, codec
        self._limit, self._file_bytes, self._max_open = row_group_bytes, file_bytes, max_open
        self._waiting: dict[Key, _Waiting] = {}
        self._waiting_bytes = 0
        self._open: OrderedDict[Key, _Open] = OrderedDict()
        self._begun = 0
        self._parts: list[Part] = []

    def write(self, batch: pa.RecordBatch) -> bool:
        """Add rows of :data:`MESSAGE_SCHEMA` or, all of them, :data:`VIEW_SCHEMA`; whether some were written."""
        flushed = False
        for key, rows in by_partition(batch, self._partition_by):
            waiting = self._waiting.setdefault(key, _Waiting())
            size = memory_of(rows)
            waiting.batches.append(rows)
            waiting.rows += rows.num_rows
            waiting.bytes += size
            self._waiting_bytes += size
            if waiting.rows >= ROW_GROUP_ROWS:
                self._flush(key)
                flushed = True
        if self._waiting_bytes >= self._limit:
            # the largest first: many small partitions may wait until their rows are worth a row group
            for key in sorted(self._waiting, key=lambda key: -self._waiting[key].bytes):
                self._flush(key)
                flushed = True
                if self._waiting_bytes <= self._limit // 2:
                    break
        return flushed

    def close(self) -> list[Part]:
        """Write what waits and finish all files."""
        for key in list(self._open):
            if key not in self._waiting:
                self._finish(key)
        for key in list(self._waiting):
            self._flush(key)
            self._finish(key)
        return self._parts

    def discard(self) -> None:
        """Drop unfinished files after a failure."""
        for opened in self._open.values():
            with suppress(Exception):
                opened.writer.close()
            with suppress(OSError):
                opened.stream.close()
            with suppress(OSError):
                self._folder.delete(opened.temporary)
        self._open.clear()
        self._waiting.clear()

    def empty_file(self) -> None:
        """One file without rows at the top, so that a reader learns the schema."""
        self._finish(self._begin((None,) * len(self._partition_by), at_top=True))

    def _flush(self, key: Key) -> None:
        waiting = self._waiting.pop(key)
        self._waiting_bytes -= waiting.bytes
        if key not in self._open:
            self._begin(key, schema=waiting.batches[0].schema)
        self._open.move_to_end(key)
        opened = self._open[key]
        opened.writer.write_table(pa.Table.from_batches(waiting.batches), row_group_size=ROW_GROUP_ROWS)
        opened.rows += waiting.rows
        if self._file_bytes is not None and opened.stream.tell() >= self._file_bytes:
            self._finish(key)

    def _begin(self, key: Key, *, at_top: bool = False, schema: pa.Schema = MESSAGE_SCHEMA) -> Key:
        if len(self._open) >= self._max_open:
            self._finish(next(iter(self._open)))
        names = [PARTITIONS[by] for by in self._partition_by]
        level = "" if at_top else "".join(f"{segment(*each)}/" for each in zip(names, key, strict=True))
        self._folder.make(level.rstrip("/"))
        # counted over all partitions: two topics may have one directory, as where names differ by case only
        piece = f"-{self._begun:04d}" if self._begun else ""
        self._begun += 1
        path = f"{level}{self._name}{piece}-{self._suffix}.parquet"
        temporary = f"{level}_{uuid.uuid4().hex}.parquet"
        stream = self._folder.fs.open_output_stream(self._folder.full(temporary))
        self._open[key] = _Open(_writer(stream, schema, self._codec), stream, temporary, path)
        return key

    def _finish(self, key: Key) -> None:
        opened = self._open[key]
        opened.writer.close()
        size = opened.stream.tell()
        opened.stream.close()
        self._folder.sync(opened.temporary)  # what has its name is whole, after a power cut too
        self._folder.move(opened.temporary, opened.path)
        del self._open[key]
        self._parts.append(Part(opened.path, opened.rows, size))


def _writer(stream: Any, schema: pa.Schema, codec: str) -> Any:
    views = has_views(schema)
    writer = pq.ParquetWriter(
        stream, schema, compression=codec, compression_level=CODECS[codec], store_schema=not views, **WRITER_OPTIONS
    )
    if views:  # readers are told what they get, and not what it was written from
        writer.add_key_value_metadata({"ARROW:schema": base64.b64encode(MESSAGE_SCHEMA.serialize()).decode()})
    return writer


def by_partition(batch: pa.RecordBatch, partition_by: tuple[str, ...]) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """A batch's rows by their partition values (text, or None for null), in order within each."""
    if not partition_by or not batch.num_rows:
        if batch.num_rows:
            yield (), batch
        return
    values: list[list[Any]] = []
    code = np.zeros(batch.num_rows, dtype=np.int64)
    for by in partition_by:
        encoded = pc.dictionary_encode(_column(batch, by), null_encoding="encode")
        values.append(encoded.dictionary.to_pylist())
        code = code * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
    found, inverse, counts = np.unique(code, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    ends = np.cumsum(counts)
    for number, end, count in zip(found.tolist(), ends.tolist(), counts.tolist(), strict=True):
        key: list[str | None] = []
        for choices in reversed(values):
            number, index = divmod(number, len(choices))
            value = choices[index]
            key.append(None if value is None else _label(value))
        rows = batch if len(found) == 1 else take(batch, order[end - count : end])
        yield tuple(reversed(key)), rows


def _label(value: Any) -> str:
    # not as 2023-11-14T22, which Spark would take for a day
    return value.strftime("%Y-%m-%d-%H") if isinstance(value, datetime) else str(value)


def _column(batch: pa.RecordBatch, by: str) -> pa.Array:
    if by == "topic":
        return batch.column("topic")
    # as a time without a zone: with one, Arrow asks for the system's time zone database, which containers may lack
    time = batch.column("storeTimestamp").view(pa.timestamp("us"))
    if by == "day":
        return pc.cast(time, pa.date32())
    return pc.cast(pc.floor_temporal(time, unit="hour"), pa.timestamp("s"))


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
