"""Rows of Parquet files as machine output has them, in the order of the log they come from.

The files of a dump overlap where a stretch of the log went into several, one a topic: they are merged by physical
offset, and no more of them are open than overlap.
"""

import heapq
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rmqtool.analytics.schema import TIME_COLUMNS
from rmqtool.contract import MESSAGE_FIELDS
from rmqtool.errors import CorruptFile, UnreadableStore

_BATCH_ROWS = 4096
_OFFSET = "physicalOffset"
_KEPT = (*MESSAGE_FIELDS, "bodyError")

Row = dict[str, Any]


class _File(NamedTuple):
    """A file, and the physical offset that it begins with; -1 where it does not say."""

    low: int
    path: str


def parquet_files(path: str) -> list[str]:
    """The Parquet files of a directory and below, without what an unfinished job left, or the one file.

    Raises:
        UnreadableStore: there is none.
    """
    if not os.path.isdir(path):
        return [path]
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        found += [
            os.path.join(folder, name) for name in sorted(names) if name.endswith(".parquet") and name[0] not in "._"
        ]
    if not found:
        raise UnreadableStore(f"{path}: no Parquet files in it")
    return found


def _opened(path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except OSError as err:
        reason = os.strerror(err.errno) if err.errno else str(err)
        raise UnreadableStore(f"{path}: {reason}") from err
    except pa.ArrowException as err:
        raise CorruptFile(path, None, f"no Parquet file: {err}") from err


def _low(path: str) -> int:
    """The lowest physical offset by the file's statistics."""
    with _opened(path) as file:
        if _OFFSET not in file.schema_arrow.names or not file.metadata.num_row_groups:
            return -1
        column = file.schema_arrow.names.index(_OFFSET)
        lows = []
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            for at in range(group.num_columns):
                chunk = group.column(at)
                if chunk.path_in_schema == _OFFSET and chunk.statistics is not None and chunk.statistics.has_min_max:
                    lows.append(int(chunk.statistics.min))
        return min(lows) if lows and column >= 0 else -1


def _rows(path: str) -> Iterator[Row]:
    """The rows of one file.

    Raises:
        CorruptFile: it does not read.
    """
    with _opened(path) as file:
        names = [name for name in _KEPT if name in file.schema_arrow.names]
        if "topic" not in names:
            raise CorruptFile(path, None, "has no column topic")
        try:
            for batch in file.iter_batches(_BATCH_ROWS, columns=names):
                table = pa.table(batch)
                for number, name in enumerate(table.column_names):
                    if name in TIME_COLUMNS and pa.types.is_timestamp(table.schema.field(number).type):
                        millis = table.column(number).cast(pa.timestamp("ms", tz="UTC"), safe=False)
                        table = table.set_column(number, name, pc.cast(millis, pa.int64()))
                for row in table.to_pylist():
                    if row.get("properties") is not None:
                        row["properties"] = dict(row["properties"])
                    if row.get("bodyError", "") is None:
                        del row["bodyError"]
                    yield row
        except pa.ArrowException as err:
            raise CorruptFile(path, None, f"does not read: {err}") from err


def rows(paths: list[str]) -> Iterator[Row]:
    """Rows of all files, by physical offset where they have one, else in the order of the files."""
    waiting = sorted(_File(_low(path), path) for path in paths)
    heap: list[tuple[int, int, Row, Iterator[Row]]] = []
    number = 0
    while waiting or heap:
        while waiting and (not heap or waiting[0].low <= heap[0][0]):
            file, number = waiting.pop(0), number + 1
            if file.low < 0:
                yield from _rows(file.path)
                continue
            opened = _rows(file.path)
            if (first := next(opened, None)) is not None:
                heapq.heappush(heap, (int(first[_OFFSET]), number, first, opened))
        if heap:
            _offset, order, row, source = heap[0]
            yield row
            following = next(source, None)
            if following is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (int(following[_OFFSET]), order, following, source))
