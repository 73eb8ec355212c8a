"""Dispatch of large logs: :mod:`rmqtool.store.dispatch.batch` with kernels, on all cores.

A file is divided into blocks that are scanned in parallel. The start of a block is guessed at first: the first record
in it that states its own position. The scan of the previous block shows where the next one has to start; a block that
started elsewhere is scanned again. So the result does not depend on the guesses. When a file has no more blocks, those
of the next file are started.
"""

import os
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from formats.message.read import End, Record, read
from rmqtool.kernels.dispatch import DispatchColumns, Room
from rmqtool.kernels.load.library import Implementation
from rmqtool.kernels.scan import Walker, space_rows
from rmqtool.kernels.tables.collected import DONE, FIELDS, FULL
from rmqtool.store.disk.mapping import forget
from rmqtool.store.dispatch.batch import BatchBuilder, Following, LightQueuePut, QueueRows, RecordBatch, is_bulk
from rmqtool.store.log.returning import Returning
from rmqtool.store.log.scan import Scanned

BLOCK_BYTES = 64 << 20
_LEAST_BLOCK_BYTES = 8 << 20
_LEAST_SHARE = 1 << 20  # per thread, for small files
BATCH_RECORDS = space_rows(1 << 16)  # more than in the plain code: a queue's part of a batch is written at once
_LEAST_BATCH_RECORDS = 1 << 14
_SEARCHED = 8 << 20  # bytes of a block in which a record should begin: a broker takes messages of 4 MB by default
_LOOK = 4096  # this many zero bytes mean unwritten space
_MOST_WORKERS = 4  # a single thread dispatches what they find


class BulkBuilder:
    """Collects the records of one view in batches.

    Args:
        view: contains the records.
        plain: has the settings, and handles records that the kernel does not.
        spare: memory of released batches.
        capacity: maximum number of records in a batch; by default :data:`BATCH_RECORDS`.
        code: which implementation to use.
    """

    def __init__(
        self,
        view: memoryview,
        plain: BatchBuilder,
        spare: deque[Room] | None = None,
        capacity: int | None = None,
        code: Implementation | None = None,
    ) -> None:
        self._view, self._plain = view, plain
        capacity = BATCH_RECORDS if capacity is None else capacity
        self._columns = DispatchColumns(
            capacity,
            plain.delays.millis,
            light=plain.light_queues is not None,
            tags=plain.index_tags,
            spare=spare,
            code=code,
        )
        self._light: list[LightQueuePut] = []

    def __len__(self) -> int:
        return self._columns.records

    def add(self, scanned: Scanned) -> Generator[RecordBatch, None, None]:
        """Add records; yields batches that are full."""
        rows, table = scanned
        row = 0
        while True:
            row, why = self._columns.add(self._view, table, row, rows.records)
            if why == DONE:
                return
            if why == FULL:
                yield self.take()
            else:
                self._add_plain(int(rows.at[row]))
                row += 1

    def survey(self, walker: Walker, at: int, limit: int, stop: int) -> Generator[RecordBatch, None, int]:
        """Scan and add the records that begin before ``stop``; yields batches that are full, returns the end."""
        while True:
            at, why = self._columns.survey(walker, at, limit, stop)
            if why == DONE:
                return at
            if why == FULL:
                yield self.take()
            else:
                at += self._add_plain(at)

    def _add_plain(self, at: int) -> int:
        record = read(self._view, at, len(self._view), crc=False)
        assert isinstance(record, Record)
        tags_code, hashes, light = self._plain.texts(record, len(self) - 1)
        self._columns.complete(tags_code, hashes)
        self._light += light
        return record.total_size

    def take(self) -> RecordBatch:
        """Return the batch so far, and start an empty one."""
        table, key_rows, key_hashes = self._columns.take()
        columns = dict(zip(FIELDS, table, strict=True))
        columns["queued"] = columns["queued"].astype(bool)
        topics = [str(self._view[at : at + size], "utf-8", "replace") for at, size in self._columns.topics]
        grouped = self._columns.group()
        batch = RecordBatch(
            **columns,
            topics=topics,
            key_row=key_rows,
            key_hash=key_hashes,
            light=self._light,
            numbers=self._columns.numbers,
            room=self._columns.room,
            groups=None if grouped is None else QueueRows(*grouped),
        )
        self._columns.clear()
        self._light = []
        return batch


@dataclass(frozen=True, slots=True)
class _Block:
    """The result for one block; positions are in the file."""

    start: int
    end: int
    batches: list[RecordBatch]


class _Reader:
    """Scans blocks; used by several threads.

    Args:
        base: physical offset of the view's first byte, according to a record in it.
        spare: memory of released batches.
        capacity: maximum number of records in a batch.
        code: which implementation to use.
    """

    def __init__(
        self,
        view: memoryview,
        limit: int,
        plain: BatchBuilder,
        spare: deque[Room],
        *,
        crc: bool,
        base: int,
        capacity: int,
        code: Implementation | None,
    ) -> None:
        self._code = code
        self._view, self._limit, self._plain, self._crc, self._base = view, limit, plain, crc, base
        self._spare, self._capacity = spare, capacity
        self._idle: SimpleQueue[tuple[BulkBuilder, Walker]] = SimpleQueue()

    def guess(self, start: int, stop: int) -> _Block:
        """Scan the block [start, stop) from its first record that states its own position."""
        builder, walker = self._tools()
        begin = walker.seek(start, min(stop, start + _SEARCHED), self._base)
        return self._find(builder, walker, begin, stop)

    def find(self, start: int, stop: int) -> _Block:
        """Scan the records from ``start`` that begin before ``stop``, up to the first invalid one."""
        return self._find(*self._tools(), start, stop)

    def _find(self, builder: BulkBuilder, walker: Walker, start: int, stop: int) -> _Block:
        survey = Returning(builder.survey(walker, start, self._limit, stop))
        batches, end = [*survey], survey.value
        if len(builder):
            batches.append(builder.take())
        self._idle.put((builder, walker))
        # a long scan must not count as this process's memory
        forget(self._view, start, end)
        return _Block(start, end, batches)

    def _tools(self) -> tuple[BulkBuilder, Walker]:
        try:
            return self._idle.get_nowait()
        except Empty:
            builder = BulkBuilder(self._view, self._plain, self._spare, self._capacity, self._code)
            return builder, Walker(self._view, crc=self._crc, code=self._code)


class _File:
    """The blocks of one file, in order: those being scanned and those left to scan."""

    def __init__(
        self,
        view: memoryview,
        at: int,
        limit: int,
        plain: BatchBuilder,
        spare: deque[Room],
        *,
        crc: bool,
        code: Implementation | None,
    ) -> None:
        self.view, self.at, self.limit = view, at, limit
        self.pending: deque[tuple[int, Future[_Block]]] = deque()
        self._blocks: Iterator[tuple[int, int]] = iter(())
        first = read(view, at, limit, crc=False)
        self.empty = isinstance(first, End)
        if isinstance(first, Record):
            # for short messages about one batch per block, since all blocks being scanned are in memory
            size = min(max(first.total_size * BATCH_RECORDS, _LEAST_BLOCK_BYTES), BLOCK_BYTES)
            size = min(size, max((limit - at) // _workers(), _LEAST_SHARE))
            # enough for a block if messages are like the first one: new memory takes time
            records = max(size // first.total_size * 5 // 4, _LEAST_BATCH_RECORDS)
            self.reader = _Reader(
                view,
                limit,
                plain,
                spare,
                crc=crc,
                base=first.physical_offset - at,
                capacity=min(space_rows(records), BATCH_RECORDS),
                code=code,
            )
            edges = list(_edges(at, limit, size, _guess_end(view, at, limit)))
            self._blocks = zip(edges, [*edges[1:], limit], strict=True)

    def submit(self, pool: ThreadPoolExecutor, count: int) -> int:
        """Start to scan more blocks, at most ``count``; returns how many."""
        before = len(self.pending)
        for _number, (start, stop) in zip(range(count), self._blocks, strict=False):
            look = self.reader.find if start == self.at else self.reader.guess
            self.pending.append((stop, pool.submit(look, start, stop)))
        return len(self.pending) - before

    def cancel(self) -> None:
        """Stop scanning blocks."""
        for _stop, future in self.pending:
            future.cancel()
        self.pending.clear()


def _workers() -> int:
    return min(os.cpu_count() or 1, _MOST_WORKERS)


class LogReader:
    """Scans the files of a log in order, on all cores; call :meth:`close` at the end."""

    def __init__(self, plain: BatchBuilder, *, crc: bool = True, code: Implementation | None = None) -> None:
        self._plain, self._crc, self._code = plain, crc, code
        self._ahead = _workers() + 2
        self._pool = ThreadPoolExecutor(_workers(), "rmqtool-dispatch")
        self._next: _File | None = None
        self._spare: deque[Room] = deque()

    def batches(
        self, view: memoryview, at: int, limit: int, following: Following | None = None
    ) -> Generator[RecordBatch, None, End]:
        """All batches of the records from ``at`` up to the first invalid one.

        Threads scan some blocks ahead of the one whose batches are being consumed.

        Args:
            following: returns the next file, whose blocks are started when those of this one run out.

        Returns:
            The end: where and why the records stop.
        """
        file, self._next = self._next, None
        if file is None or file.view is not view or (file.at, file.limit) != (at, limit):
            self._drop(file)
            file = _File(view, at, limit, self._plain, self._spare, crc=self._crc, code=self._code)
        try:
            while not file.empty:
                free = self._ahead - len(file.pending)
                if file.submit(self._pool, free) < free and following is not None:
                    self._next = self._open_following(following)
                    following = None
                if self._next is not None:
                    self._next.submit(self._pool, self._ahead - len(file.pending) - len(self._next.pending))
                if not file.pending:
                    break
                stop, future = file.pending.popleft()
                if at >= stop:
                    continue  # a record covers the whole block
                block = future.result()
                if block.start != at:
                    block = file.reader.find(at, stop)
                yield from block.batches
                at = block.end
                if at < stop:
                    break
        finally:
            file.cancel()
        return (yield from self._finish(file, at))

    def _open_following(self, following: Following) -> _File | None:
        block = following()
        if block is None or not is_bulk(block[0], 0, block[1]):
            return None
        return _File(block[0], 0, block[1], self._plain, self._spare, crc=self._crc, code=self._code)

    def _finish(self, file: _File, at: int) -> Generator[RecordBatch, None, End]:
        """Determine the end, adding records that were skipped.

        There may be a record at the end after all: one that was being written in the meantime, or one that compiled
        code does not handle. The plain reader continues from there.
        """
        while isinstance(record := read(file.view, at, file.limit, crc=self._crc), Record):
            self._plain.add(record)
            at += record.total_size
            if len(self._plain) >= BATCH_RECORDS:
                yield self._plain.take()
        if len(self._plain):
            yield self._plain.take()
        return record

    def _drop(self, file: _File | None) -> None:
        if file is not None:
            file.cancel()

    def close(self) -> None:
        """Stop scanning; returns when all threads are idle."""
        self._drop(self._next)
        self._next = None
        self._pool.shutdown()


def batches(
    view: memoryview, at: int, limit: int, plain: BatchBuilder, *, crc: bool = True, code: Implementation | None = None
) -> Generator[RecordBatch, None, End]:
    """:meth:`LogReader.batches` for a single file."""
    reader = LogReader(plain, crc=crc, code=code)
    try:
        return (yield from reader.batches(view, at, limit))
    finally:
        reader.close()


def _edges(at: int, limit: int, size: int, written: int) -> Iterator[int]:
    """The starts of blocks.

    The first ones are small, since the consumer of their batches is idle until then. So are those at the end of the
    written part, so that all threads finish at the same time.
    """
    least, workers = min(size, _LEAST_BLOCK_BYTES), _workers()
    step = least
    while at < limit:
        yield at
        left = (written - at) // workers
        at += max(min(step, left), least) if left > 0 else size
        step = min(2 * step, size)


def _guess_end(view: memoryview, at: int, limit: int) -> int:
    """A guess where the written part ends, used only to divide it into blocks."""
    while limit - at > _LEAST_SHARE:
        middle = (at + limit) // 2
        if bytes(view[middle : middle + _LOOK]).strip(b"\0"):
            at = middle
        else:
            limit = middle
    return limit
