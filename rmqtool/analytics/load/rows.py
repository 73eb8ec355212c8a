"""Rows of Parquet files, in the form of machine-readable output and in the order of the original log.

A shuffle leaves rows in any order, within and between files. Rows with a physical offset are sorted by it, the others
come after them. If no row has one, rows keep the order in which they are read, unless the offsets of a queue decrease
in that order; then rows are sorted by queue offset.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rmqtool.analytics.load.columns import COLUMNS, Row, UnfitColumn, fit_columns, rows_of
from rmqtool.analytics.load.order import BATCH_BYTES, FILE, ROW, Input, SortOrder
from rmqtool.analytics.local.scratch import scratch_dir
from rmqtool.errors import BadValue, CorruptFile, UnreadableStore
from rmqtool.services.sending.fields import Fields

_BATCH_ROWS = 4096
_MOST_NAMED = 50  # maximum number of columns listed in an error
_BUFFER = 1 << 16  # bytes of a column read from disk at a time
_OFFSET, _QUEUE_OFFSET = "physicalOffset", "queueOffset"
_QUEUE = ("topic", "queueId", _QUEUE_OFFSET, "sysFlag")
_TRANSACTION, _UNNUMBERED = 0xC, (0x4, 0xC)  # half messages and rollbacks have no queue offset of their own


def parquet_files(path: str) -> list[str]:
    """Return the Parquet file, or those in and below a directory, without leftovers of unfinished jobs.

    Raises:
        UnreadableStore: there are none.
        BadValue: the file is CSV.
    """
    if path.endswith(".csv"):
        raise BadValue(f"{path}: CSV is not taken, which has no types: give Parquet or NDJSON (--output ndjson)")
    if not os.path.isdir(path):
        return [path]
    paths = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        paths += [
            os.path.join(folder, name) for name in sorted(names) if name.endswith(".parquet") and name[0] not in "._"
        ]
    if not paths:
        raise UnreadableStore(f"{path}: no Parquet files in it")
    return paths


def count_of(paths: Sequence[str]) -> int:
    """Return the number of rows in all files.

    Raises:
        UnreadableStore: a file cannot be read.
        CorruptFile: a file is not Parquet.
    """
    return sum(_open(path).metadata.num_rows for path in paths)


def rows(
    paths: Sequence[str],
    *,
    fields: Fields | None = None,
    scratch: str | None = None,
    sorter: Callable[..., SortOrder] = SortOrder,
) -> Iterator[Row | ValueError]:
    """Yield the rows of all files in order, or the reason why a row is refused.

    Args:
        fields: names of the columns, if they differ from those in dumps.
        scratch: directory for data that does not fit in memory; None for a temporary one.

    Raises:
        UnreadableStore: a file cannot be read.
        CorruptFile: a file is not Parquet, or one of its columns is unusable.
        BadValue: a file has bodies that would be ignored.
    """
    fields = fields or Fields()
    with ExitStack() as beside:
        temporary: list[str] = []

        def scratch_folder() -> str:
            if not temporary:
                temporary.append(scratch or beside.enter_context(scratch_dir("sort")))
            return temporary[0]

        files = [_File(number, path, fields) for number, path in enumerate(paths)]
        if any(file.has_offsets for file in files):
            order = sorter((_OFFSET, _QUEUE_OFFSET), scratch_folder)
            inputs = [file.input() for file in files if file.ascends]
            inputs += order.runs(_chain([file for file in files if not file.ascends]))
        elif _queues_step_back(files):
            order = sorter((_QUEUE_OFFSET,), scratch_folder)
            inputs = order.runs(_chain(files))
        else:
            for batch in _chain(files):
                yield from rows_of(batch)
            return
        for batch in order.merge(inputs):
            yield from rows_of(batch)


class _File:
    """A file and the order of its physical offsets.

    Attributes:
        has_offsets: whether any row has a physical offset.
        ascends: whether all rows have one, in ascending order.
    """

    def __init__(self, number: int, path: str, fields: Fields) -> None:
        self.number, self.path = number, path
        self._names = self._names_in_file(fields)
        self.low = self.high = -1
        self.has_offsets, self.ascends = False, True
        for batch in self.batches((_OFFSET,)):
            column = batch.column(_OFFSET)
            if column.null_count < len(column):
                values = column.drop_null().to_numpy(zero_copy_only=False)
                self.ascends &= bool(np.all(np.diff(values) > 0)) and not (self.has_offsets and values[0] <= self.high)
                self.low = self.low if self.has_offsets else int(values[0])
                self.high, self.has_offsets = int(values[-1]), True
            self.ascends &= not column.null_count

    def input(self) -> Input:
        """Return the file as a sorted input; it must ascend."""
        return Input(self.low, self.high, self.batches)

    def _names_in_file(self, fields: Fields) -> dict[str, str]:
        """Map each column that is read to its name in the file."""
        with _open(self.path) as file:
            available = file.schema_arrow.names
        names = fields.table(self.path, available)
        if "topic" not in names:
            others = ", ".join(available[:_MOST_NAMED])
            raise CorruptFile(self.path, None, f"has no column topic, but {others} (map NAME=topic takes one)")
        for name in names.values():
            if available.count(name) > 1:
                raise CorruptFile(self.path, None, f"has the column {name} more than once")
        return names

    def batches(self, columns: Sequence[str] = COLUMNS) -> Iterator[pa.RecordBatch]:
        """Yield the file's rows with their positions.

        Raises:
            UnreadableStore, CorruptFile: see :func:`rows`.
        """
        names = {ours: self._names[ours] for ours in columns if ours in self._names} or {"topic": self._names["topic"]}
        with _open(self.path) as file:
            at = 0
            for batch in _read(self.path, file, list(dict.fromkeys(names.values()))):
                named = pa.RecordBatch.from_arrays([batch.column(theirs) for theirs in names.values()], list(names))
                try:
                    fitted = fit_columns(named)
                except UnfitColumn as err:
                    theirs = names[err.name]
                    called = f"column {theirs}" if theirs == err.name else f"column {theirs}, taken as {err.name},"
                    raise CorruptFile(self.path, None, f"{called} is {err.kind}, not {err.wanted}") from err
                count = fitted.num_rows
                fitted = fitted.append_column(FILE, pa.array(np.full(count, self.number, np.int64)))
                yield fitted.append_column(ROW, pa.array(np.arange(at, at + count)))
                at += count


def _open(path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, buffer_size=_BUFFER, page_checksum_verification=True)
    except OSError as err:
        if not err.errno:  # raised by Arrow itself for a file with an invalid footer
            raise CorruptFile(path, None, f"not a Parquet file: {_reason(err)}") from err
        raise UnreadableStore(f"{path}: {os.strerror(err.errno)}") from err
    except pa.ArrowException as err:
        raise CorruptFile(path, None, f"not a Parquet file: {_reason(err)}") from err


def _reason(err: Exception) -> str:
    """Return the first non-empty line of an Arrow error message."""
    return next(iter(str(err).strip().splitlines()), type(err).__name__)


def _read(path: str, file: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    metadata = file.metadata
    size = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    rows = max(1, min(_BATCH_ROWS, BATCH_BYTES * metadata.num_rows // max(size, 1)))
    try:
        yield from file.iter_batches(rows, columns=list(names))
    except (pa.ArrowException, OSError) as err:
        raise CorruptFile(path, None, f"cannot be read: {_reason(err)}") from err


def _chain(files: Sequence[_File]) -> Iterator[pa.RecordBatch]:
    for file in files:
        yield from file.batches()


def _queues_step_back(files: Sequence[_File]) -> bool:
    """Return whether the offsets of any queue decrease in reading order."""
    last: dict[tuple[str, int], int] = {}
    for file in files:
        for batch in file.batches(_QUEUE):
            columns = [batch.column(name).to_pylist() for name in _QUEUE]
            for topic, queue_id, offset, flags in zip(*columns, strict=True):
                if offset is None or (flags or 0) & _TRANSACTION in _UNNUMBERED:
                    continue
                queue = topic, queue_id or 0
                if last.get(queue, -1) > offset:
                    return True
                last[queue] = offset
    return False
