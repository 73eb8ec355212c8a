"""Dispatch of large logs: :mod:`rmqtool.store.dispatch.batch` by kernels, on all cores.

A file is cut into blocks that are looked through at the same time. Where a block begins is a guess at first: at the
first record in it that says its own position. The block before it ends where the next one has to begin; a block that
has begun elsewhere is looked through again. So what is found does not depend on any guess. Where a file's blocks run
out, those of the next file are begun with.
"""

import os
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from formats.message.read import End, Record, read
from rmqtool.kernels.dispatch import DispatchColumns, Room
from rmqtool.kernels.load.library import Code
from rmqtool.kernels.scan import Walker, space_rows
from rmqtool.kernels.tables.collected import DONE, FIELDS, FULL
from rmqtool.store.disk.mapping import forget
from rmqtool.store.dispatch.batch import BatchBuilder, Following, LightQueuePut, QueueRows, RecordBatch, is_bulk
from rmqtool.store.log.scan import Scanned

BLOCK_BYTES = 64 << 20
_LEAST_BLOCK_BYTES = 8 << 20
_LEAST_SHARE = 1 << 20  # for each thread, where there is little
BATCH_RECORDS = space_rows(1 << 16)  # more than the plain way has: a queue's share of a batch is written at once
_LEAST_BATCH_RECORDS = 1 << 14
_SEARCHED = 8 << 20  # bytes of a block in which a record should begin: a broker takes messages of 4 MB by default
_LOOK = 4096  # bytes; so many zeros, and nothing is written there
_MOST_WORKERS = 4  # one thread puts into queues and index what they find


class BulkBuilder:
    """Collects the records of one view into batches.

    Args:
        view: what the records lie in.
        plain: has the settings, and the rules for what the kernel leaves to it.
        spare: has what batches lay in that were released.
        capacity: records of a batch at most; :data:`BATCH_RECORDS` where it is not said.
        code: which code collects them.
    """

    def __init__(
        self,
        view: memoryview,
        plain: BatchBuilder,
        spare: deque[Room] | None = None,
        capacity: int | None = None,
        code: Code | None = None,
    ) -> None:
        self._view, self._plain = view, plain
        capacity = BATCH_RECORDS if capacity is None else capacity
        self._columns = DispatchColumns(
            capacity,
            plain.delays.millis,
            light=plain.light_queues,
            tags=plain.index_tags,
            spare=spare,
            code=code,
        )
        self._light: list[LightQueuePut] = []

    def __len__(self) -> int:
        return self._columns.records

    def add(self, scanned: Scanned) -> Generator[RecordBatch, None, None]:
        """Take records; yields batches that become full."""
        rows, table = scanned
        row = 0
        while True:
            row, why = self._columns.add(self._view, table, row, rows.records)
            if why == DONE:
                return
            if why == FULL:
                yield self.take()
            else:
                self._add_odd(int(rows.at[row]))
                row += 1

    def survey(self, walker: Walker, at: int, limit: int, stop: int) -> Generator[RecordBatch, None, int]:
        """Find and take the records that begin before ``stop``; yields batches that become full, returns the end."""
        while True:
            at, why = self._columns.survey(walker, at, limit, stop)
            if why == DONE:
                return at
            if why == FULL:
                yield self.take()
            else:
                at += self._add_odd(at)

    def _add_odd(self, at: int) -> int:
        record = read(self._view, at, len(self._view), crc=False)
        assert isinstance(record, Record)
        tags_code, hashes, light = self._plain.texts(record, len(self) - 1)
        self._columns.complete(tags_code, hashes)
        self._light += light
        return record.total_size

    def take(self) -> RecordBatch:
        """The batch so far; the builder starts an empty one."""
        table, key_rows, key_hashes = self._columns.take()
        columns = dict(zip(FIELDS, table, strict=True))
        columns["queued"] = columns["queued"].astype(bool)
        topics = [str(self._view[at : at + size], "utf-8", "replace") for at, size in self._columns.topics]
        apart = self._columns.group()
        batch = RecordBatch(
            **columns,
            topics=topics,
            key_row=key_rows,
            key_hash=key_hashes,
            light=self._light,
            numbers=self._columns.numbers,
            room=self._columns.room,
            groups=None if apart is None else QueueRows(*apart),
        )
        self._columns.clear()
        self._light = []
        return batch


@dataclass(frozen=True, slots=True)
class _Found:
    """What one block holds; positions in the file."""

    start: int
    end: int
    batches: list[RecordBatch]


class _Reader:
    """Looks through blocks; used by several threads.

    Args:
        base: physical offset of the view's first byte, as a record in it says.
        spare: has what batches lay in that were released.
        capacity: records of a batch at most.
        code: which code looks through them.
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
        code: Code | None,
    ) -> None:
        self._code = code
        self._view, self._limit, self._plain, self._crc, self._base = view, limit, plain, crc, base
        self._spare, self._capacity = spare, capacity
        self._idle: SimpleQueue[tuple[BulkBuilder, Walker]] = SimpleQueue()

    def guess(self, start: int, stop: int) -> _Found:
        """The block [start, stop), from its first record that says its own position on."""
        builder, walker = self._tools()
        begin = walker.seek(start, min(stop, start + _SEARCHED), self._base)
        return self._find(builder, walker, begin, stop)

    def find(self, start: int, stop: int) -> _Found:
        """The records from ``start`` on that begin before ``stop``, to the first place that is none."""
        return self._find(*self._tools(), start, stop)

    def _find(self, builder: BulkBuilder, walker: Walker, start: int, stop: int) -> _Found:
        batches: list[RecordBatch] = []
        survey = builder.survey(walker, start, self._limit, stop)
        while True:
            try:
                batches.append(next(survey))
            except StopIteration as ended:
                end: int = ended.value
                break
        if len(builder):
            batches.append(builder.take())
        self._idle.put((builder, walker))
        # a long scan must not count as this process's memory
        forget(self._view, start, end)
        return _Found(start, end, batches)

    def _tools(self) -> tuple[BulkBuilder, Walker]:
        try:
            return self._idle.get_nowait()
        except Empty:
            builder = BulkBuilder(self._view, self._plain, self._spare, self._capacity, self._code)
            return builder, Walker(self._view, crc=self._crc, code=self._code)


class _File:
    """One file's blocks, in order: those that are being looked through, and those that are still to be."""

    def __init__(
        self,
        view: memoryview,
        at: int,
        limit: int,
        plain: BatchBuilder,
        spare: deque[Room],
        *,
        crc: bool,
        code: Code | None,
    ) -> None:
        self.view, self.at, self.limit = view, at, limit
        self.waiting: deque[tuple[int, Future[_Found]]] = deque()
        self._blocks: Iterator[tuple[int, int]] = iter(())
        first = read(view, at, limit, crc=False)
        self.empty = isinstance(first, End)
        if isinstance(first, Record):
            # short messages: about a batch in a block, for all that blocks hold is in memory
            size = min(max(first.total_size * BATCH_RECORDS, _LEAST_BLOCK_BYTES), BLOCK_BYTES)
            size = min(size, max((limit - at) // _workers(), _LEAST_SHARE))
            # room for what lies in a block if messages are like the first one: new memory takes time
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
        """Have further blocks looked through, ``count`` at most; returns how many."""
        before = len(self.waiting)
        for _number, (start, stop) in zip(range(count), self._blocks, strict=False):
            look = self.reader.find if start == self.at else self.reader.guess
            self.waiting.append((stop, pool.submit(look, start, stop)))
        return len(self.waiting) - before

    def cancel(self) -> None:
        """Have no more looked through."""
        for _stop, future in self.waiting:
            future.cancel()
        self.waiting.clear()


def _workers() -> int:
    return min(os.cpu_count() or 1, _MOST_WORKERS)


class LogReader:
    """Looks through the files of a log, one after the other, on all cores; closed by :meth:`close`."""

    def __init__(self, plain: BatchBuilder, *, crc: bool = True, code: Code | None = None) -> None:
        self._plain, self._crc, self._code = plain, crc, code
        self._ahead = _workers() + 2
        self._pool = ThreadPoolExecutor(_workers(), "rmqtool-dispatch")
        self._next: _File | None = None
        self._spare: deque[Room] = deque()

    def batches(
        self, view: memoryview, at: int, limit: int, following: Following | None = None
    ) -> Generator[RecordBatch, None, End]:
        """All batches of the records from ``at`` to the first place that is none; returns that place.

        Other threads look through some blocks ahead of the one whose batches are asked for.

        Args:
            following: gives the file behind it, whose blocks are begun with when those of this one run out.
        """
        file, self._next = self._next, None
        if file is None or file.view is not view or (file.at, file.limit) != (at, limit):
            self._drop(file)
            file = _File(view, at, limit, self._plain, self._spare, crc=self._crc, code=self._code)
        try:
            while not file.empty:
                free = self._ahead - len(file.waiting)
                if file.submit(self._pool, free) < free and following is not None:
                    self._next = self._look_on(following)
                    following = None
                if self._next is not None:
                    self._next.submit(self._pool, self._ahead - len(file.waiting) - len(self._next.waiting))
                if not file.waiting:
                    break
                stop, future = file.waiting.popleft()
                if at >= stop:
                    continue  # one record lies over the whole block
                block = future.result()
                if block.start != at:
                    block = file.reader.find(at, stop)
                yield from block.batches
                at = block.end
                if at < stop:
                    break
        finally:
            file.cancel()
        return (yield from self._last(file, at))

    def _look_on(self, following: Following) -> _File | None:
        block = following()
        if block is None or not is_bulk(block[0], 0, block[1]):
            return None
        return _File(block[0], 0, block[1], self._plain, self._spare, crc=self._crc, code=self._code)

    def _last(self, file: _File, at: int) -> Generator[RecordBatch, None, End]:
        """What is there instead of a record.

        A record may be there all the same: one that was being written meanwhile, or one that compiled code does not
        know. From there on the plain reader goes on.
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
        """Look no further; returns when nobody does."""
        self._drop(self._next)
        self._next = None
        self._pool.shutdown()


def batches(
    view: memoryview, at: int, limit: int, plain: BatchBuilder, *, crc: bool = True, code: Code | None = None
) -> Generator[RecordBatch, None, End]:
    """:meth:`LogReader.batches` of one file alone."""
    reader = LogReader(plain, crc=crc, code=code)
    try:
        return (yield from reader.batches(view, at, limit))
    finally:
        reader.close()


def _edges(at: int, limit: int, size: int, written: int) -> Iterator[int]:
    """Where blocks begin.

    The first ones are small: who puts what they hold has nothing to do until then. So are those at the end of what is
    written: all are to end at one time.
    """
    least, workers = min(size, _LEAST_BLOCK_BYTES), _workers()
    step = least
    while at < limit:
        yield at
        left = (written - at) // workers
        at += max(min(step, left), least) if left > 0 else size
        step = min(2 * step, size)


def _guess_end(view: memoryview, at: int, limit: int) -> int:
    """About where what is written ends: zeros follow it. It only tells into which blocks to cut."""
    while limit - at > _LEAST_SHARE:
        middle = (at + limit) // 2
        if bytes(view[middle : middle + _LOOK]).strip(b"\0"):
            at = middle
        else:
            limit = middle
    return limit
