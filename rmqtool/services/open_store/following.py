"""Follow a store that another process is writing; nothing is locked or changed.

A broker writes through mappings, so what it stores is in the page cache and visible at once. Of a queue, only entries
count that were unchanged in two successive looks and lead to a message.
"""

import os
from dataclasses import dataclass

from rmqtool.errors import Refused
from rmqtool.rules.releases import Release
from rmqtool.services.open_store.reading import OpenQueue, Reading
from rmqtool.services.open_store.store import Store
from rmqtool.store.layout.paths import UNIT, is_path_name
from rmqtool.store.layout.version import has_rocksdb_queues
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.reader import NO_OFFSET, QueueEnd, QueueEntry

_AT_ONCE = 1 << 16  # most entries that one look adds to a queue

Stamp = tuple[int, ...]


def stamp_of(path: str) -> Stamp:
    """A stamp that changes when a path is replaced, or a folder gains or loses a file."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


class _Followed(OpenQueue):
    """A queue whose files stay mapped, and whose end moves."""

    def __init__(self, store: Store, topic: str, queue_id: int, path: str) -> None:
        self.stamp = stamp_of(path)
        super().__init__(store, topic, queue_id)
        self.shown = self.seen = super().recovered.end // UNIT
        self.last = self._at(self.shown - 1)
        self.newest = self.last

    @property
    def recovered(self) -> QueueEnd:
        return QueueEnd(self.shown * UNIT, NO_OFFSET) if hasattr(self, "shown") else super().recovered

    @property
    def whole(self) -> bool:
        """Whether no file is being created."""
        files = self.segments.files
        return bool(files) and all(file.size >= self.file_size for file in files)

    def min_offset(self, min_physical_offset: int, release: Release | None = None) -> int:
        low = super().min_offset(min_physical_offset, release)
        if not low:
            self._lowest = None  # the answer may change
        return low

    def cut(self) -> None:
        """Drop the last entry."""
        self.shown = self.seen = self.shown - 1
        self.last = self.newest = self._at(self.shown - 1)

    def _at(self, number: int) -> QueueEntry | None:
        return self.entry(number) if number >= 0 else None


@dataclass(frozen=True)
class Changes:
    """The changes that one look found.

    Attributes:
        grown: queues that have more entries, or fewer.
        files: the log has more files, or fewer.
    """

    grown: list[tuple[str, int]]
    files: bool


class Following(Reading):
    """As :class:`Reading`, for a store that a broker is writing: :meth:`look` finds new messages.

    Raises:
        Refused: queues are in RocksDB, where other processes do not see changes.
    """

    def __init__(self, store: Store) -> None:
        if has_rocksdb_queues(store.layout):
            raise Refused(f"{store.layout.root}: queues in RocksDB cannot be followed")
        super().__init__(store)
        self._stamps = self._log_stamps()

    def look(self) -> Changes:
        """Look for changes."""
        files = self._look_at_log()
        self._batches.clear()
        self._keys = None
        grown = [key for key in list(self._queues) if self._look_at_queue(*key)]
        return Changes(grown, files)

    def _log_stamps(self) -> tuple[Stamp, ...]:
        return tuple(map(stamp_of, self.store.layout.commit_log_paths))

    def _look_at_log(self) -> bool:
        stamps = self._log_stamps()
        if stamps == self._stamps:
            return False
        self._log = CommitLog(self.store.layout)
        making = any(file.size < self._log.file_size for file in self._log.segments)
        self._stamps = () if making else stamps  # look again next time
        return True

    def _look_at_queue(self, topic: str, queue_id: int) -> bool:
        queue = self._queues[topic, queue_id]
        assert isinstance(queue, _Followed)
        if stamp_of(queue.path) != queue.stamp or not queue.whole:
            reopened = self._open(topic, queue_id)
            if reopened is None:
                del self._queues[topic, queue_id]
                return True
            if reopened.seen >= queue.shown and reopened.entry(queue.shown - 1) == queue.last:
                reopened.shown, reopened.last = queue.shown, queue.last  # new entries were seen once
            self._queues[topic, queue_id] = queue = reopened
        elif queue.entry(queue.seen - 1) != queue.newest and queue.seen:
            # it was cut, for example by a recovery
            reopened = self._open(topic, queue_id)
            if reopened is None:
                del self._queues[topic, queue_id]
                return True
            self._queues[topic, queue_id] = reopened
            return reopened.shown != queue.shown
        before, queue.shown, queue.last = queue.shown, queue.seen, queue.newest
        self._advance(queue)
        return queue.shown != before

    def _advance(self, queue: _Followed) -> None:
        """Look for further entries."""
        for _ in range(_AT_ONCE):
            entry = queue.entry(queue.seen)
            if entry is None or entry.size <= 0 or entry.physical_offset < 0:
                return
            if not self._leads_somewhere(entry):
                return  # its message is not there yet, or was removed by a recovery
            queue.seen, queue.newest = queue.seen + 1, entry

    def _open(self, topic: str, queue_id: int) -> _Followed | None:
        queue = _Followed(self.store, topic, queue_id, self.store.layout.queue_path(topic, queue_id))
        for _ in range(_AT_ONCE):  # entries left behind by a recovery
            if queue.last is None or self._leads_somewhere(queue.last):
                break
            queue.cut()
        return queue if queue.segments.files else None

    def _leads_somewhere(self, entry: QueueEntry) -> bool:
        """Whether an entry's message exists or has expired."""
        return self.record(entry.physical_offset, entry.size) is not None or entry.physical_offset < self.log.min_offset

    def _open_queue(self, topic: str, queue_id: int) -> OpenQueue | None:
        queue = self._queues.get((topic, queue_id))
        if queue is None and is_path_name(topic) and queue_id >= 0:
            queue = self._open(topic, queue_id)
            if queue is not None:
                self._queues[topic, queue_id] = queue
        return queue
