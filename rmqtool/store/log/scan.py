"""Records of commit-log files at memory speed, in bounded memory."""

import os
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from formats.message.read import End, read
from rmqtool.kernels.load.library import Code
from rmqtool.kernels.plain.scan import row_of
from rmqtool.kernels.scan import Rows, Walker, space_rows
from rmqtool.kernels.search import find
from rmqtool.kernels.tables.shapes import Table
from rmqtool.store.disk.mapping import forget
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord, walk_file

ROWS = space_rows(2048)  # at once: their columns and bytes stay in the processor's cache for the next reader
_WINDOW = 8 << 20  # bytes after which pages are given back


class Scanned(NamedTuple):
    """Records in a row; arrays that a later step overwrites."""

    rows: Rows
    table: Table  # what the rows are views of


def scan(
    view: memoryview, at: int, limit: int, *, crc: bool = True, code: Code | None = None
) -> Generator[Scanned, None, End]:
    """All records from ``at`` to the first place where :func:`formats.message.read` finds none; returns that place.

    Pages behind are given back as it goes. Positions in the rows stay valid: what is read again is mapped again.

    Args:
        limit: where the readable part of the view ends.
        code: which code looks for records.

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
        else:  # a record that was being written meanwhile, or one that compiled code does not know
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
    rows: Rows  # arrays that a later step overwrites


def scan_log(log: CommitLog, *, crc: bool = True) -> Iterator[FileRows | Damage]:
    """What :meth:`CommitLog.walk` gives of the whole log, in bulk: every record once, and every damaged range."""
    for file in log.segments:
        yield from scan_file(file, last=file is log.segments.files[-1], crc=crc)
        file.release()


def scan_file(file: Segment, *, last: bool, crc: bool = True) -> Iterator[FileRows | Damage]:
    """One file's share of :func:`scan_log`.

    Args:
        last: whether no file of the log follows.
    """
    view, at = file.map(), 0
    while at < file.size:
        stop = file.size  # no two records lie together in a DLedger log
        if not file.entries:
            for scanned in scan(view, at, file.size, crc=crc):
                yield FileRows(file, view, scanned.rows)
                at = int(scanned.rows.at[-1] + scanned.rows.total_size[-1])
            stop = at + 1
        walked = walk_file(file, at, stop, last=last, crc=crc)
        at = yield from _one_by_one(walked, file, view)


def _one_by_one(
    walked: Generator[LocatedRecord | Damage, None, int], file: Segment, view: memoryview
) -> Generator[FileRows | Damage, None, int]:
    """The same with rows for each record; returns what the walk returns."""
    while True:
        try:
            item = next(walked)
        except StopIteration as stop:
            following: int = stop.value
            return following
        if isinstance(item, LocatedRecord):
            columns = np.array(row_of(item.record, item.at), np.int64)[:, np.newaxis]
            yield FileRows(file, view, Rows(*columns))
        else:
            yield item


def holds(view: memoryview, text: bytes) -> bool:
    """Whether a text is anywhere in a view; all cores look for it."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        starts = range(0, len(view), _WINDOW)
        return any(pool.map(lambda start: find(view, text, start, min(start + _WINDOW, len(view))) >= 0, starts))
