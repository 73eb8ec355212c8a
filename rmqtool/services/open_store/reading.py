"""Repeated reading of a store that may grow: files are opened once.

Source: store.DefaultMessageStore (getMessage, getMaxOffsetInQueue, getMinOffsetInQueue, lookMessageByOffset).
"""

import time
from collections.abc import Callable, Iterator
from itertools import chain

from formats.layouts.derived import CQ_ENTRY
from formats.message.read import MIN_SIZE
from rmqtool.errors import NoRoom
from rmqtool.rules.releases import Release
from rmqtool.services.lookup.get_message import (
    GetResult,
    Limits,
    PulledRecords,
    ReadRecord,
    nothing_at,
    select,
    select_batches,
)
from rmqtool.services.lookup.newest_message import find_newest
from rmqtool.services.lookup.pull_at_once import PullAtOnce
from rmqtool.services.lookup.query import KeyReader, Search
from rmqtool.services.open_store.store import Store
from rmqtool.store.config.release import release_of
from rmqtool.store.layout.paths import UNIT, is_path_name
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.log.records import claimed_size
from rmqtool.store.queues.batch import AnyQueue, BatchQueue, every_queue
from rmqtool.store.queues.reader import NO_OFFSET, ConsumeQueue, QueueEnd, QueueEntry
from rmqtool.store.queues.rocks import RocksQueue
from rmqtool.store.queues.rocks_open import open_rocks_queue

Accept = Callable[[QueueEntry], bool]
_AGAIN = 1.0  # s before a dispatch that found no room is retried


class OpenQueue(ConsumeQueue):
    """A queue whose files stay mapped."""

    def __init__(self, store: Store, topic: str, queue_id: int) -> None:
        super().__init__(store.layout, topic, queue_id)
        self._lowest: tuple[int, int] | None = None  # (begin of the log, lowest offset), cached

    def min_offset(self, min_physical_offset: int, release: Release | None = None) -> int:
        if self._lowest is None or self._lowest[0] != min_physical_offset:
            self._lowest = min_physical_offset, super().min_offset(min_physical_offset, release)
        return self._lowest[1]

    def units(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, tuple[int, int, int]]]:
        end = self.max_offset if stop is None else min(stop, self.max_offset)
        return chain.from_iterable(self._parts(start, end))

    def _parts(self, start: int, end: int) -> Iterator["enumerate[tuple[int, int, int]]"]:
        """The units of [start, end), file by file."""
        while start < end and (file := self.segments.find(start * UNIT)) is not None:
            base = file.base // UNIT
            upto = min(end, file.end // UNIT)
            part = file.map()[(start - base) * UNIT : (upto - base) * UNIT]
            yield enumerate(CQ_ENTRY.iter_unpack(part), start)
            start = upto


class GrowingQueue(OpenQueue):
    """A queue of a store that is open for writing; the store knows its end."""

    def __init__(self, store: Store, topic: str, queue_id: int) -> None:
        super().__init__(store, topic, queue_id)
        self._store = store

    @property
    def recovered(self) -> QueueEnd:
        return QueueEnd(self.max_offset * UNIT, NO_OFFSET)

    @property
    def max_offset(self) -> int:
        return self._store.live.queue_end(self.topic, self.queue_id)

    @property
    def has_new_files(self) -> bool:
        """Whether it has entries in files created since it was opened."""
        files = self.segments.files
        return self.max_offset * UNIT > (files[-1].end if files else 0)


class Reading:
    """A store as its consumers see it. A read-only one stays as it was opened, until :meth:`refresh`.

    Attributes:
        limits: of the answer to a pull.
    """

    def __init__(self, store: Store, release: Release | None = None) -> None:
        self.store = store
        self.release = release or release_of(store.layout)
        self.limits = Limits.of(store.layout.conf)
        self._queues: dict[tuple[str, int], OpenQueue] = {}
        self._rocks: dict[tuple[str, int], RocksQueue] = {}
        self._batches: dict[tuple[str, int], tuple[int, BatchQueue]] = {}  # with the log end when opened
        self._log = CommitLog(store.layout)
        self._at_once = PullAtOnce()
        self._keys: tuple[int, KeyReader] | None = None
        self._newest: int | None = None  # physical offset of the newest message when last asked for

    def refresh(self) -> None:
        """Look at the disk again: another process may have written or removed files."""
        self._queues.clear()
        self._batches.clear()
        self._at_once.forget()
        self._log = CommitLog(self.store.layout)
        self._keys = None

    @property
    def log(self) -> CommitLog:
        """The log, with all files that have messages."""
        return self._log

    @property
    def end(self) -> int:
        """Physical offset after which the log has no message."""
        files = self._log.segments.files
        return files[-1].end if files else 0

    @property
    def message_end(self) -> int:
        """Physical offset after the newest message that can be read, which is where a broker would write on."""
        newest = self._log.last(self._newest) if self._newest is not None else None
        if newest is None:
            newest = find_newest(self._log, every_queue(self.store.layout))
        if newest is None:
            return max(self._log.min_offset, 0)
        self._newest = newest.physical_offset
        return newest.end

    def queue(self, topic: str, queue_id: int) -> AnyQueue | None:
        """A queue that has or had messages, else None. One in RocksDB stays as it was first read."""
        in_files = self._open_queue(topic, queue_id) or self._open_batch_queue(topic, queue_id)
        if in_files is not None:
            return in_files
        key = (topic, queue_id)
        if key not in self._rocks:
            queue = open_rocks_queue(self.store.layout, topic, queue_id)
            if queue is None:
                return None
            self._rocks[key] = queue
        return self._rocks[key]

    def _open_queue(self, topic: str, queue_id: int) -> OpenQueue | None:
        """A queue in files of its own."""
        queue = self._queues.get((topic, queue_id))
        if queue is None and is_path_name(topic) and queue_id >= 0:
            queue = OpenQueue(self.store, topic, queue_id)
            if not queue.segments.files:
                return None
            self._queues[topic, queue_id] = queue
        return queue

    def _open_batch_queue(self, topic: str, queue_id: int) -> BatchQueue | None:
        if not is_path_name(topic) or queue_id < 0:
            return None
        key, end = (topic, queue_id), self.end
        known, queue = self._batches.get(key, (-1, None))
        if queue is None or known != end:
            queue = BatchQueue(self.store.layout, topic, queue_id)
            if not queue.segments.files:
                return None
            self._batches[key] = end, queue
        return queue

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset of the next message; 0 for a missing queue."""
        queue = self.queue(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset of the oldest message still in the log; 0 for a missing queue."""
        queue = self.queue(topic, queue_id)
        return queue.min_offset(self.log.min_offset, self.release) if queue is not None else 0

    def in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a broker assumes that the message at a queue offset is still in memory."""
        queue = self.queue(topic, queue_id)
        entry = queue.entry(offset) if queue is not None and offset < queue.max_offset else None
        return entry is not None and self.end - entry.physical_offset <= self.limits.kept

    def pull(
        self, topic: str, queue_id: int, offset: int, most: int, accept: Accept | None = None
    ) -> GetResult[memoryview]:
        """One pull; messages are the bytes of their records, each of which may hold a batch."""
        queue = self.queue(topic, queue_id)
        if isinstance(queue, BatchQueue):
            low = queue.min_offset(self.log.min_offset)
            nothing: GetResult[memoryview] | None = nothing_at(offset, low, queue.max_offset)
            if nothing is not None:
                return nothing
            return select_batches(queue, offset, most, self.record, low, self.end, self.limits, accept)
        return select(
            self.log,
            queue,
            offset,
            most,
            self._records(),
            log_end=self.end,
            release=self.release,
            accept=accept,
        )

    def pull_records(
        self, topic: str, queue_id: int, offset: int, most: int, accept: Accept | None = None
    ) -> PulledRecords:
        """As :meth:`pull`, with the records of all messages in one buffer."""
        queue = self.queue(topic, queue_id)
        if accept is None and isinstance(queue, ConsumeQueue):
            pulled = self._at_once.pull(self.log, queue, offset, most, log_end=self.end, release=self.release)
            if pulled is not None:
                return pulled
        result = self.pull(topic, queue_id, offset, most, accept)
        return PulledRecords(*result[:-1], len(result.messages), b"".join(result.messages))

    def _records(self) -> ReadRecord[memoryview]:
        """As :meth:`record`, for the entries of one pull, which are mostly in one file."""
        find = self.log.segments.find
        base, view, length = 0, memoryview(b""), 0

        def read(physical_offset: int, size: int) -> memoryview | None:
            nonlocal base, view, length
            if not 0 <= physical_offset - base < length:
                file = find(physical_offset)
                if file is None:
                    return None
                base, view = file.base, file.map()
                length = len(view)
            return record_in(view, base, physical_offset - base, size)

        return read

    def record(self, physical_offset: int, size: int | None = None) -> memoryview | None:
        """The bytes of the record at an offset; None if there is none of that size."""
        file = self.log.segments.find(physical_offset)
        if file is None or physical_offset < 0:
            return None
        return record_in(file.map(), file.base, physical_offset - file.base, size)

    def message(self, physical_offset: int) -> LocatedRecord | None:
        """The message at an offset, or None."""
        return self.log.read(physical_offset)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Store timestamp in ms of the message at a queue offset; -1 if there is none."""
        queue = self.queue(topic, queue_id)
        entry = queue.entry(offset) if queue is not None and offset < queue.max_offset else None
        stored = self.log.store_time(entry.physical_offset) if entry is not None else None
        return stored if stored is not None else -1

    def by_key(self, topic: str, key: str, search: Search) -> list[LocatedRecord]:
        """Messages with a key or unique id, through the index."""
        if self._keys is None or self._keys[0] != self.end:
            self._keys = self.end, KeyReader(self.store.layout, lambda _text: None)
        return self._keys[1].query(topic, key, search)


class LiveReading(Reading):
    """As :class:`Reading`, for a store that is open for writing: all appended messages are visible."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, store.live.release)
        self._seen = -1  # position in the log up to which messages are in the queues
        self._again = 0.0  # when a dispatch that found no room is retried

    def _dispatch(self) -> None:
        """Dispatch all appended messages: a missing entry would look like an expired message.

        If there is no room for entries, queues end before them.
        """
        if self.store.live.end != self._seen and time.monotonic() >= self._again:
            try:
                self.store.dispatch()
                self._seen = self.store.live.end
            except NoRoom:
                self._again = time.monotonic() + _AGAIN

    @property
    def log(self) -> CommitLog:
        files = self._log.segments.files
        if not files or files[-1].end <= self.store.live.end - 1:
            self._log = CommitLog(self.store.layout)
        return self._log

    @property
    def end(self) -> int:
        return self.store.live.end

    @property
    def message_end(self) -> int:
        return self.store.live.end

    def queue(self, topic: str, queue_id: int) -> AnyQueue | None:
        return self._open_queue(topic, queue_id) or self._open_batch_queue(topic, queue_id)

    def _open_queue(self, topic: str, queue_id: int) -> OpenQueue | None:
        self._dispatch()
        key = (topic, queue_id)
        queue = self._queues.get(key)
        if queue is None or (isinstance(queue, GrowingQueue) and queue.has_new_files):
            if not is_path_name(topic) or queue_id < 0:
                return None
            if queue is None and not self.store.live.queue_end(topic, queue_id):
                return None
            queue = GrowingQueue(self.store, topic, queue_id)
            if not queue.segments.files:
                return None
            self._queues[key] = queue
        return queue

    def _open_batch_queue(self, topic: str, queue_id: int) -> BatchQueue | None:
        return super()._open_batch_queue(topic, queue_id) if topic in self.store.live.batch_topics else None

    def max_offset(self, topic: str, queue_id: int) -> int:
        self._dispatch()
        return self.store.live.queue_end(topic, queue_id)

    def by_key(self, topic: str, key: str, search: Search) -> list[LocatedRecord]:
        self._dispatch()
        return super().by_key(topic, key, search)


def record_in(view: memoryview, base: int, at: int, size: int | None = None) -> memoryview | None:
    """The bytes of the record at a place in a file; None if there is none of that size.

    Args:
        base: physical offset of the file's first byte.
    """
    says = claimed_size(view, base, at)
    if says is None or (size is not None and says != size) or not MIN_SIZE <= says <= len(view) - at:
        return None
    return view[at : at + says]
