"""Read commit-log files in batches: for recovery, and for dispatch (store-engine 3.1, 4.2).

Small parts of a file are read record by record, large ones by compiled code (:mod:`rmqtool.store.dispatch.bulk`).
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

from formats.endings import Ending
from formats.message.read import End, Record, read
from rmqtool.store.dispatch.batch import BATCH_RECORDS, BatchBuilder, Following, RecordBatch, is_bulk
from rmqtool.store.log.returning import Returning

if TYPE_CHECKING:
    from rmqtool.kernels.load.library import Implementation
    from rmqtool.store.dispatch.bulk import LogReader


class Readahead:
    """Reads ahead when the files of a log are read in order.

    While threads finish a large file, others can start on the next one.

    Args:
        code: which implementation to use.
    """

    def __init__(self, code: "Implementation | None" = None) -> None:
        self._code = code
        self._reader: LogReader | None = None

    @property
    def in_columns(self) -> bool:
        """Whether large files are read in columns; without compiled code, record by record is faster."""
        if self._code is not None:
            return True
        from rmqtool.kernels.load.library import is_compiled

        return is_compiled(None)

    def reader(self, builder: BatchBuilder, *, crc: bool) -> "LogReader":
        """The reader of all large files, created for the first one."""
        if self._reader is None:
            from rmqtool.store.dispatch.bulk import LogReader

            self._reader = LogReader(builder, crc=crc, code=self._code)
        return self._reader

    def close(self) -> None:
        """Stop reading ahead."""
        if self._reader is not None:
            self._reader.close()


def _records(
    view: memoryview,
    at: int,
    limit: int,
    builder: BatchBuilder,
    *,
    crc: bool,
    readahead: Readahead | None = None,
    following: Following | None = None,
) -> Generator[RecordBatch, None, End]:
    """Full batches of the records from ``at`` up to the first invalid one; the rest stays in the builder."""
    own = readahead or Readahead()
    if is_bulk(view, at, limit) and own.in_columns:
        try:
            if len(builder):
                yield builder.take()
            return (yield from own.reader(builder, crc=crc).batches(view, at, limit, following))
        finally:
            if readahead is None:
                own.close()
    while isinstance(record := read(view, at, limit, crc=crc), Record):
        builder.add(record)
        at += record.total_size
        if len(builder) >= BATCH_RECORDS:
            yield builder.take()
    return record


def recovery_batches(
    view: memoryview,
    at: int,
    limit: int,
    builder: BatchBuilder,
    *,
    crc: bool = True,
    readahead: Readahead | None = None,
    following: Following | None = None,
) -> Generator[RecordBatch, None, End]:
    """Batches of the records from ``at`` up to the first one that recovery would reject.

    Args:
        readahead: shared by all files of a log, always with the same builder and ``crc``.
        following: returns the next file and the end of its readable part; None if there is none.

    Returns:
        The end: where and why the records stop.
    """
    end = yield from _records(view, at, limit, builder, crc=crc, readahead=readahead, following=following)
    if len(builder):
        yield builder.take()
    return end


def check_records(view: memoryview, at: int, limit: int, *, crc: bool = True) -> tuple[End, int | None]:
    """Like :func:`recovery_batches` without dispatch: (end, store timestamp of the last record before it)."""
    last: int | None = None
    if is_bulk(view, at, limit):
        from rmqtool.store.log.scan import scan

        scanned = Returning(scan(view, at, limit, crc=crc))
        for part in scanned:
            last = int(part.rows.store_timestamp[-1])
        return scanned.value, last
    while isinstance(record := read(view, at, limit, crc=crc), Record):
        last = record.store_timestamp
        at += record.total_size
    return record, last


def reput_batches(view: memoryview, at: int, limit: int, builder: BatchBuilder) -> Generator[RecordBatch, None, int]:
    """Batches as a running broker dispatches them from one file; returns how far it gets (byte in the file).

    Dispatch does not verify CRCs. A record whose lengths disagree is skipped by the size that it states; at any other
    damage the rest of the file is skipped (as by a master; store-engine 3.1).
    """
    # ``position`` is the position in the buffer, ``at`` what dispatch takes it for; they differ after a record with a
    # wrong size, which does not count as read
    position = read_to = at
    while read_to < limit:
        end = yield from _records(view, position, limit, builder, crc=False)
        at += end.at - position
        read_to += end.at - position
        position = end.at
        if end.ending is Ending.FILLER:
            at += len(view) - at % len(view)
            break
        if end.size <= 0:
            at += limit - read_to
            break
        at += end.size
        position += end.consumed
    if len(builder):
        yield builder.take()
    return at
