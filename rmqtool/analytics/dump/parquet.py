"""Parquet files of one task: row groups of a useful size, one file for each partition, few files open at a time."""

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
ROW_GROUP_BYTES = 128 << 20  # of Arrow memory, all partitions of a task together
ROW_GROUP_ROWS = 1_000_000
MAX_OPEN = 64
_FEW = 256  # such partitions of a task, whose files cost less than to bring their rows together
_TOGETHER = 16384  # files that are synced at once
_PAGE = 4096  # bytes: a file takes at least one such on a disk, so fewer bytes are not compressed
_BATCH_BYTES = 1 << 14  # that a batch takes beside its values

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
# of files with some rows: to prepare the writing of a column takes longer than to write them, so they have neither
# dictionaries nor a page index; the statistics that say whether a file is to be read at all
_SMALL_OPTIONS: dict[str, Any] = {
    "use_dictionary": False,
    "column_encoding": WRITER_OPTIONS["column_encoding"],
    "write_statistics": ["topic", "queueId", "queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp"],
    "write_page_checksum": True,
}
_SENT = ("properties", "body")  # columns that hold what was sent, which alone are compressed then
_COLUMNS = [f"{name}.list.element" if name == "keys" else name for name in MESSAGE_SCHEMA.names if name != "properties"]
_COLUMNS += ["properties.key_value.key", "properties.key_value.value"]


@dataclass(frozen=True, slots=True)
class Part:
    """One finished file."""

    path: str  # relative to the output directory
    rows: int
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
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
        spill: whether the rows of many small partitions are put aside, to be merged with those of other tasks.

    Attributes:
        spills: what was put aside, after :meth:`close`.
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
    ) -> None:
        self._folder, self._name, self._suffix = folder, name, suffix
        self._partition_by, self._codec = partition_by, codec
        self._limit, self._file_bytes, self._max_open = row_group_bytes, file_bytes, max_open
        self._overhead = min(_BATCH_BYTES, row_group_bytes >> 6)  # where little may wait, not all that counts
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._open: OrderedDict[Key, _Open] = OrderedDict()
        self._closed: list[tuple[str, Part]] = []  # and not named yet
        self._begun, self._own = 0, uuid.uuid4().hex
        self._parts: list[Part] = []
        self._spill, self.spills = spill, list[Spill]()
        self._barrier = folder.barrier()

    def write(self, batch: pa.RecordBatch) -> bool:
        """Add rows of :data:`MESSAGE_SCHEMA` or, all of them, :data:`VIEW_SCHEMA`; whether some were written."""
        if not batch.num_rows:
            return False
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += memory_of(batch) + self._overhead
        if self._waiting_bytes < self._limit and (self._partition_by or self._waiting_rows < ROW_GROUP_ROWS):
            return False
        self._flush(self._limit // 2 if self._partition_by else 0)
        return True

    def close(self) -> list[Part]:
        """Write what waits and finish all files."""
        self._flush(0)
        for key in list(self._open):
            self._finish(key)
        self._settle()
        self._release()
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
        for temporary in (*(temporary for temporary, _part in self._closed), *(spill.path for spill in self.spills)):
            with suppress(OSError):
                self._folder.delete(temporary)
        self._release()
        self.spills.clear()
        self._closed.clear()
        self._open.clear()
        self._waiting.clear()

    def empty_file(self) -> None:
        """One file without rows at the top, so that a reader learns the schema."""
        self._finish(self._begin((None,) * len(self._partition_by), at_top=True))
        self._settle()

    def _flush(self, leave: int) -> None:
        """Write what waits, until no more than some bytes are left: of the largest partitions, one after the other."""
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
            # many small partitions may wait until their rows are worth a row group
            self._waiting, self._waiting_rows = [rest], rest.num_rows
            self._waiting_bytes = memory_of(rest) + self._overhead

    def _write(self, key: Key, rows: pa.Table) -> None:
        if key not in self._open:
            self._begin(key, schema=rows.schema)
        self._open.move_to_end(key)
        opened = self._open[key]
        if rows.schema != opened.writer.schema:
            rows = rows.cast(opened.writer.schema)  # small partitions are copied, others are views
        opened.writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        opened.rows += rows.num_rows
        if self._file_bytes is not None and opened.stream.tell() >= self._file_bytes:
            self._finish(key)

    def _begin(self, key: Key, *, at_top: bool = False, schema: pa.Schema = MESSAGE_SCHEMA) -> Key:
        if len(self._open) >= self._max_open:
            self._finish(next(iter(self._open)))
        temporary, path = self._make_names("" if at_top else self._level(key))
        stream = self._folder.fs.open_output_stream(self._folder.full(temporary))
        self._open[key] = _Open(_writer(stream, schema, self._codec), stream, temporary, path)
        return key

    def _level(self, key: Key) -> str:
        names = (PARTITIONS[by] for by in self._partition_by)
        return "".join(f"{segment(*each)}/" for each in zip(names, key, strict=True))

    def _make_names(self, level: str) -> tuple[str, str]:
        """A directory is made; the name of a new file in it until it is complete, and then."""
        self._folder.make(level.rstrip("/"))
        # counted over all partitions: two topics may have one directory, as where names differ by case only
        piece = f"-{self._begun:04d}" if self._begun else ""
        self._begun += 1
        return f"{level}_{self._own}-{self._begun}.parquet", f"{level}{self._name}{piece}-{self._suffix}.parquet"

    def _write_small(self, key: Key, rows: pa.RecordBatch, size: float) -> None:
        """A whole file of some rows."""
        data = _small_file(plain(rows), self._codec if size > _PAGE else "none")
        temporary, path = self._make_names(self._level(key))
        self._closed.append((temporary, Part(path, rows.num_rows, data.size)))
        self._folder.write_new(temporary, data)
        if len(self._closed) >= _TOGETHER:
            self._settle()

    def _finish(self, key: Key) -> None:
        opened = self._open[key]
        opened.writer.close()
        size = opened.stream.tell()
        opened.stream.close()
        del self._open[key]
        self._closed.append((opened.temporary, Part(opened.path, opened.rows, size)))
        if len(self._closed) >= _TOGETHER:
            self._settle()

    def _settle(self) -> None:
        """Give files their names. What has its name is whole, after a power cut too."""
        self._folder.sync_all([temporary for temporary, _part in self._closed], self._barrier)
        while self._closed:
            temporary, part = self._closed[-1]
            self._folder.move(temporary, part.path)
            self._closed.pop()
            self._parts.append(part)

    def _release(self) -> None:
        if self._barrier is not None:
            self._barrier.close()


def _small_file(rows: pa.RecordBatch, codec: str) -> pa.Buffer:
    """The content of a Parquet file."""
    compression: str | dict[str, str] = "none"
    level: dict[str, int | None] | None = None
    if codec != "none":
        compression = {path: codec if path.split(".")[0] in _SENT else "none" for path in _COLUMNS}
        level = {path: CODECS[codec] for path in _COLUMNS if path.split(".")[0] in _SENT} if CODECS[codec] else None
    stream = pa.BufferOutputStream()
    with pq.ParquetWriter(
        stream, MESSAGE_SCHEMA, compression=compression, compression_level=level, **_SMALL_OPTIONS
    ) as writer:
        writer.write_table(pa.Table.from_batches([rows]), row_group_size=ROW_GROUP_ROWS)
    return stream.getvalue()


def _writer(stream: Any, schema: pa.Schema, codec: str) -> Any:
    views = has_views(schema)
    writer = pq.ParquetWriter(
        stream, schema, compression=codec, compression_level=CODECS[codec], store_schema=not views, **WRITER_OPTIONS
    )
    if views:  # the schema says what readers get, and not what it was written from
        writer.add_key_value_metadata({"ARROW:schema": base64.b64encode(MESSAGE_SCHEMA.serialize()).decode()})
    return writer
