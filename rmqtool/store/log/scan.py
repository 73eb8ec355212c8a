"""Scan the records of commit-log files in bulk, in bounded memory."""

import os
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from formats.message.read import End, read
from rmqtool.kernels.load.library import Implementation
from rmqtool.kernels.plain.scan import row_of
from rmqtool.kernels.scan import Rows, Walker, space_rows
from rmqtool.kernels.search import find
from rmqtool.kernels.tables.shapes import Table
from rmqtool.store.disk.mapping import forget
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord, walk_file
from rmqtool.store.log.returning import Returning

ROWS = space_rows(2048)  # records per block: their columns and bytes stay in the CPU cache for the consumer
_WINDOW = 8 << 20  # bytes after which pages are released


class Scanned(NamedTuple):
    """Consecutive records, in arrays that the next step overwrites."""

    rows: Rows
    table: Table  # what the rows are views of


def scan(
    view: memoryview, at: int, limit: int, *, crc: bool = True, code: Implementation | None = None
) -> Generator[Scanned, None, End]:
    """Yield all records from ``at`` up to the first place where :func:`formats.message.read` finds none.

    Pages behind the scan are released as it goes; positions in the rows stay valid, since reading them maps them again.

    Args:
        limit: where the readable part of the view ends.
        code: which implementation scans; the default is the compiled one if it is loaded.

    Returns:
        The end: where and why the records stop.

    Raises:
        ValueError: a position outside the view.
    """
    walker = Walker(view, ROWS, crc=crc, code=code)
    forgotten = at
    while True:
        scanned, following = walker.walk(at, limit, at + _WINDOW)
        if scanned.records:
            yield Scanned(scanned, walker.table)
        elif isinstance(end := read(view, at, limit, crc=crc), End):
            return end
        else:  # a record that was being written, or one that the compiled code does not handle
            walker.table[:, 0] = row_of(end, at)
            following = at + end.total_size
            yield Scanned(Rows(*walker.table[:, :1]), walker.table)
        at = following
        if at - forgotten >= _WINDOW:
            forget(view, forgotten, at)
            forgotten = at


class FileRows(NamedTuple):
    """Consecutive records of one file."""

    file: Segment
    view: memoryview
    rows: Rows  # overwritten by the next step


def scan_log(log: CommitLog, *, crc: bool = True) -> Iterator[FileRows | Damage]:
    """Bulk form of :meth:`CommitLog.walk` over the whole log: every record once, and every damaged range."""
    for file in log.segments:
        yield from scan_file(file, last=file is log.segments.files[-1], crc=crc)
        file.release()


def scan_file(file: Segment, *, last: bool, crc: bool = True) -> Iterator[FileRows | Damage]:
    """The part of :func:`scan_log` in one file.

    Args:
        last: whether this is the last file of the log.
    """
    view, at = file.map(), 0
    while at < file.size:
        stop = file.size  # records of a DLedger log are never adjacent
        if not file.entries:
            for scanned in scan(view, at, file.size, crc=crc):
                yield FileRows(file, view, scanned.rows)
                at = int(scanned.rows.at[-1] + scanned.rows.total_size[-1])
            stop = at + 1
        walked = walk_file(file, at, stop, last=last, crc=crc)
        at = yield from _as_rows(walked, file, view)


def _as_rows(
    walked: Generator[LocatedRecord | Damage, None, int], file: Segment, view: memoryview
) -> Generator[FileRows | Damage, None, int]:
    """Wrap each record of a walk in rows; returns the walk's return value."""
    items = Returning(walked)
    for item in items:
        if isinstance(item, LocatedRecord):
            columns = np.array(row_of(item.record, item.at), np.int64)[:, np.newaxis]
            yield FileRows(file, view, Rows(*columns))
        else:
            yield item
    return items.value


def holds(view: memoryview, text: bytes) -> bool:
    """Whether a view contains a byte string; searched on all cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        starts = range(0, len(view), _WINDOW)
        return any(pool.map(lambda start: find(view, text, start, min(start + _WINDOW, len(view))) >= 0, starts))
