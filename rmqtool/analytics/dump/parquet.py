"""Parquet files of one task: large row groups, one file per partition, a limited number of open files."""

import base64
import uuid
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmqtool.analytics.dump.partitions import PARTITIONS, SMALL, Key, Partitioned, segment
from rmqtool.analytics.dump.spill import Spill, write_spill
from rmqtool.analytics.remote.files import Folder
from rmqtool.analytics.table.schema import MESSAGE_SCHEMA
from rmqtool.analytics.table.views import has_views, join_batches, memory_of, plain

CODECS = {"zstd": 3, "snappy": None, "gzip": 6, "none": None}
ROW_GROUP_BYTES = 128 << 20  # of Arrow memory, over all partitions of a task
ROW_GROUP_ROWS = 1_000_000
MAX_OPEN = 64
_FEW = 256  # up to this many small partitions, writing files is cheaper than merging rows across tasks
_TOGETHER = 16384  # number of files synced together
_PAGE = 4096  # bytes; a file occupies at least one page on disk, so smaller files are not compressed
_BATCH_BYTES = 1 << 14  # overhead of a batch beyond its values

_DICTIONARY = ["topic", "queueId", "sysFlag", "flag", "bornHost", "storeHost", "reconsumeTimes", "tags"]
_DICTIONARY += ["bodyEncoding", "sourceFile"]
_DELTA = ["queueOffset", "physicalOffset", "storeSize", "bornTimestamp", "storeTimestamp", "bodyLength", "fileOffset"]
_UNSEARCHED = ("body", "properties", "keys", "bodyEncoding", "bodyError")
WRITER_OPTIONS: dict[str, Any] = {
    "use_dictionary": [*_DICTIONARY, "properties.key_value.key"],
    "column_encoding": dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
    "write_statistics": [name for name in MESSAGE_SCHEMA.names if name not in _UNSEARCHED],
    "write_page_index": True,
    "write_page_checksum": True,
}
# for files of a few rows, where preparing a column takes longer than writing it: no dictionaries and no page index, and
# only the statistics by which readers skip files
_SMALL_OPTIONS: dict[str, Any] = {
    "use_dictionary": False,
    "column_encoding": WRITER_OPTIONS["column_encoding"],
    "write_statistics": ["topic", "queueId", "queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp"],
    "write_page_checksum": True,
}
_SENT = ("properties", "body")  # the only columns compressed in small files
_COLUMNS = [f"{name}.list.element" if name == "keys" else name for name in MESSAGE_SCHEMA.names if name != "properties"]
_COLUMNS += ["properties.key_value.key", "properties.key_value.value"]


@dataclass(frozen=True, slots=True)
class PartFile:
    """One finished file."""

    path: str  # relative to the output directory
    rows: int
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {"path": self.path, "rows": self.rows, "bytes": self.bytes}


@dataclass(slots=True)
class _Open:
    writer: Any
    stream: Any
    temporary: str
    path: str
    rows: int = 0


class PartWriter:
    """Writes the files of one task below a directory.

    Files have names that readers ignore until they are complete. Final names are the same each time a task runs, so a
    task that runs twice produces one result.

    Args:
        folder: an existing directory.
        name: prefix of every file's name.
        suffix: end of every file's name, before ``.parquet``.
        partition_by: names from :data:`PARTITIONS`.
        codec: a name from :data:`CODECS`.
        row_group_bytes: Arrow memory that may be buffered, over all partitions.
        file_bytes: size at which a file is finished and another one begun; None for no limit.
        spill: put the rows of many small partitions aside, to be merged with those of other tasks.
        schema: of all rows: that of a store's messages, or of those of several brokers.

    Attributes:
        spills: the spill files written, after :meth:`close`.
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
        spill: bool = False,
        schema: pa.Schema = MESSAGE_SCHEMA,
    ) -> None:
        self._folder, self._name, self._suffix = folder, name, suffix
        self._partition_by, self._codec = partition_by, codec
        self._limit, self._file_bytes, self._max_open = row_group_bytes, file_bytes, max_open
        self._overhead = min(_BATCH_BYTES, row_group_bytes >> 6)  # limited if the buffer is small
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._open: OrderedDict[Key, _Open] = OrderedDict()
        self._closed: list[tuple[str, PartFile]] = []  # complete, but not renamed yet
        self._begun, self._own = 0, uuid.uuid4().hex
        self._parts: list[PartFile] = []
        self._spill, self.spills, self._schema = spill, list[Spill](), schema
        self._barrier = folder.barrier()

    def write(self, batch: pa.RecordBatch) -> bool:
        """Add rows in the schema or, always, :data:`VIEW_SCHEMA`; return whether any were written out."""
        if not batch.num_rows:
            return False
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += memory_of(batch) + self._overhead
        if self._waiting_bytes < self._limit and (self._partition_by or self._waiting_rows < ROW_GROUP_ROWS):
            return False
        self._flush(self._limit // 2 if self._partition_by else 0)
        return True

    def close(self) -> list[PartFile]:
        """Write buffered rows and finish all files."""
        self._flush(0)
        for key in list(self._open):
            self._finish(key)
        self._settle()
        self._release()
        return self._parts

    def discard(self) -> None:
        """Delete unfinished files after a failure."""
        for opened in self._open.values():
            with suppress(Exception):
                opened.writer.close()
            with suppress(OSError):
                opened.stream.close()
            with suppress(OSError):
                self._folder.delete(opened.temporary)
        for temporary in (*(temporary for temporary, _part in self._closed), *(spill.path for spill in self.spills)):
            with suppress(OSError):
                self._folder.delete(temporary)
        self._release()
        self.spills.clear()
        self._closed.clear()
        self._open.clear()
        self._waiting.clear()

    def empty_file(self) -> None:
        """Write one file without rows in the top directory, so that readers learn the schema."""
        self._finish(self._begin((None,) * len(self._partition_by), at_top=True))
        self._settle()

    def _flush(self, leave: int) -> None:
        """Write buffered rows, largest partitions first, until at most ``leave`` bytes are buffered."""
        batches, self._waiting = self._waiting, []
        self._waiting_rows = self._waiting_bytes = 0
        if not batches:
            return
        if not self._partition_by:
            self._write((), pa.Table.from_batches(batches))
            return
        partitioned = Partitioned(join_batches(batches), self._partition_by)
        if self._spill and (self.spills or partitioned.small(SMALL, self._open) > _FEW):
            for key, rows, _size in partitioned.larger(SMALL, self._open):
                self._write(key, pa.Table.from_batches([rows]))
            rest = partitioned.rest() if leave else None
            if rest is None or memory_of(rest) > leave:
                rest = None
                self.spills.append(write_spill(self._folder, partitioned))
        else:
            for key, rows, size in partitioned.largest(leave):
                if leave or key in self._open or size > SMALL:
                    self._write(key, pa.Table.from_batches([rows]))
                else:
                    self._write_small(key, rows, size)
            rest = partitioned.rest()
        if rest is not None:
            # rows of many small partitions may be buffered until they fill a row group
            self._waiting, self._waiting_rows = [rest], rest.num_rows
            self._waiting_bytes = memory_of(rest) + self._overhead

    def _write(self, key: Key, rows: pa.Table) -> None:
        if key not in self._open:
            self._begin(key, schema=rows.schema)
        self._open.move_to_end(key)
        opened = self._open[key]
        if rows.schema != opened.writer.schema:
            rows = rows.cast(opened.writer.schema)  # small partitions are copies, others are views
        opened.writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        opened.rows += rows.num_rows
        if self._file_bytes is not None and opened.stream.tell() >= self._file_bytes:
            self._finish(key)

    def _begin(self, key: Key, *, at_top: bool = False, schema: pa.Schema | None = None) -> Key:
        if len(self._open) >= self._max_open:
            self._finish(next(iter(self._open)))
        temporary, path = self._make_names("" if at_top else self._level(key))
        stream = self._folder.fs.open_output_stream(self._folder.full(temporary))
        self._open[key] = _Open(_writer(stream, schema or self._schema, self._codec), stream, temporary, path)
        return key

    def _level(self, key: Key) -> str:
        names = (PARTITIONS[by] for by in self._partition_by)
        return "".join(f"{segment(*each)}/" for each in zip(names, key, strict=True))

    def _make_names(self, level: str) -> tuple[str, str]:
        """Create the directory of a new file; return its temporary and its final name."""
        self._folder.make(level.rstrip("/"))
        # counted over all partitions: two topics can share a directory if their names differ only in case
        piece = f"-{self._begun:04d}" if self._begun else ""
        self._begun += 1
        return f"{level}_{self._own}-{self._begun}.parquet", f"{level}{self._name}{piece}-{self._suffix}.parquet"

    def _write_small(self, key: Key, rows: pa.RecordBatch, size: float) -> None:
        """Write a complete file of a few rows."""
        data = _small_file(plain(rows), self._codec if size > _PAGE else "none", self._schema)
        temporary, path = self._make_names(self._level(key))
        self._closed.append((temporary, PartFile(path, rows.num_rows, data.size)))
        self._folder.write_new(temporary, data)
        if len(self._closed) >= _TOGETHER:
            self._settle()

    def _finish(self, key: Key) -> None:
        opened = self._open[key]
        opened.writer.close()
        size = opened.stream.tell()
        opened.stream.close()
        del self._open[key]
        self._closed.append((opened.temporary, PartFile(opened.path, opened.rows, size)))
        if len(self._closed) >= _TOGETHER:
            self._settle()

    def _settle(self) -> None:
        """Rename complete files. A file with its final name is complete, even after a power failure."""
        self._folder.sync_all([temporary for temporary, _part in self._closed], self._barrier)
        while self._closed:
            temporary, part = self._closed[-1]
            self._folder.move(temporary, part.path)
            self._closed.pop()
            self._parts.append(part)

    def _release(self) -> None:
        if self._barrier is not None:
            self._barrier.close()


def _small_file(rows: pa.RecordBatch, codec: str, schema: pa.Schema) -> pa.Buffer:
    """Return the content of a Parquet file."""
    compression: str | dict[str, str] = "none"
    level: dict[str, int | None] | None = None
    if codec != "none":
        compression = {path: codec if path.split(".")[0] in _SENT else "none" for path in _COLUMNS}
        level = {path: CODECS[codec] for path in _COLUMNS if path.split(".")[0] in _SENT} if CODECS[codec] else None
    stream = pa.BufferOutputStream()
    with pq.ParquetWriter(stream, schema, compression=compression, compression_level=level, **_SMALL_OPTIONS) as writer:
        writer.write_table(pa.Table.from_batches([rows]), row_group_size=ROW_GROUP_ROWS)
    return stream.getvalue()


def _writer(stream: Any, schema: pa.Schema, codec: str) -> Any:
    views = has_views(schema)
    writer = pq.ParquetWriter(
        stream, schema, compression=codec, compression_level=CODECS[codec], store_schema=not views, **WRITER_OPTIONS
    )
    if views:  # the stored schema is the one for readers, not that of the input
        writer.add_key_value_metadata({"ARROW:schema": base64.b64encode(MESSAGE_SCHEMA.serialize()).decode()})
    return writer
