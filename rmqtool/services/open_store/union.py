"""Several copies of one store, read as one: every message that is intact in any of them, without a new store.

The logs of all copies are read once, and the queues are built from them in memory, by queue offset, some 50 bytes for
each message. The copies share one space of physical offsets: the first one, whose history counts, keeps its own; each
other one has a range of its own above it.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from formats.layouts.derived import CQ_ENTRY
from formats.message.inner import is_inner_batch
from formats.message.properties import TAGS, parse
from formats.message.read import Record
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE, java_hash
from rmqtool.errors import Refused, UnreadableStore
from rmqtool.progress import stage
from rmqtool.rules.releases import Release
from rmqtool.services.lookup.get_message import ReadRecord
from rmqtool.services.lookup.query import KeyReader, Search
from rmqtool.services.open_store.reading import OpenQueue, Reading
from rmqtool.services.open_store.store import Store
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.layout.paths import UNIT, StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.queues.reader import NO_OFFSET, QueueEnd
from rmqtool.store.salvage.copies import MergedLog, Taken, digest_of
from rmqtool.words import command_line, counted

Key = tuple[str, int]
Warn = Callable[[str], None]
_SPACE = 1 << 50  # physical offsets of each copy
_NOTHING = (-1, 1, 0)  # entry of a queue offset without a message; no file of a log holds this position
_SPARSE = 64  # unused queue offsets, for each message of a queue, at which its offsets cannot be right


class _InMemory(Segment):
    """Queue entries that are in no file."""

    def __init__(self, base: int, data: bytes) -> None:
        super().__init__("", base, len(data), 0)
        self._view = memoryview(data)

    def read(self, at: int, size: int) -> bytes:
        return bytes(self.map()[at : at + size])

    def forget(self, start: int, stop: int) -> None:
        pass

    def release(self) -> None:
        pass

    def let_go(self) -> bool:
        return False


class UnionQueue(OpenQueue):
    """One queue of all copies.

    Args:
        first: queue offset of the first entry.
        units: the entries, of CQ_ENTRY.
    """

    def __init__(self, store: Store, topic: str, queue_id: int, first: int, units: bytes) -> None:
        super().__init__(store, topic, queue_id)
        self._first = first
        self.segments = Segments([_InMemory(first * UNIT, units)], [])

    @property
    def recovered(self) -> QueueEnd:
        return QueueEnd(self.max_offset * UNIT, NO_OFFSET)

    @property
    def max_offset(self) -> int:
        return self.segments.files[0].end // UNIT

    def min_offset(self, min_physical_offset: int, release: Release | None = None) -> int:
        return self._first


class Union:
    """The messages of several copies.

    Args:
        layouts: the copies, the one whose history counts first.
        warn: takes sentences about what is damaged in all of them.

    Attributes:
        log: the logs, in one space of physical offsets.
        units: by queue, its first queue offset and its entries.

    Raises:
        Refused: the copies cannot be read as one.
        UnreadableStore: a log cannot be read.
    """

    def __init__(self, layouts: Sequence[StoreLayout], warn: Warn) -> None:
        self.layouts = [layout.passing_over() for layout in layouts]
        merged = MergedLog.of(self.layouts)
        for text in merged.warnings:
            warn(text)
        self._merged, self._warn = merged, warn  # it has the copies of files that can only be read in part
        logs = merged.logs
        self.log = CommitLog(self.layouts[0])
        self.log.segments = Segments(
            [_shift(file, number * _SPACE) for number, log in enumerate(logs) for file in log.segments], []
        )
        self.end = max((file.end for file in logs[0].segments), default=0)
        self.copies = len(logs)
        self.messages: list[int] = [0] * len(logs)  # from each copy
        self.units = self._build()

    def _build(self) -> dict[Key, tuple[int, bytes]]:
        queues: dict[Key, _Entries] = {}
        damaged = contradicting = 0

        def expects(record: Record) -> bool:
            queue = queues.get(_queue_of(record))
            return queue is not None and queue.following == record.queue_offset

        with stage("reading the copies", sum(file.size for file in self.log.segments)) as reading:
            for item in self._merged.walk(expects):
                if isinstance(item, Damage):
                    damaged += 1
                    continue
                record = item.located.record
                reading.done += record.total_size
                if is_inner_batch(record.sys_flag):
                    raise Refused(self._no_union("they have batches of several messages in one record"))
                if record.sys_flag & TRANSACTION_MASK not in (TRANSACTION_NONE, TRANSACTION_COMMIT):
                    continue
                contradicting += bool(item.others) and not item.own
                queue = queues.setdefault(_queue_of(record), _Entries())
                if (known := queue.physical_offset(record.queue_offset)) is not None:
                    self._compare(item, known)
                    continue
                tags = parse(record.properties).get(TAGS)
                at = item.copy * _SPACE + item.located.physical_offset
                queue.put(record.queue_offset, at, record.total_size, java_hash(tags) if tags else 0)
                self.messages[item.copy] += 1
        if damaged:
            self._warn(f"{counted(damaged, 'place')} of the log cannot be read in any copy")
        if contradicting:
            served = f"the one that most copies have is served, or that of {self.layouts[0].root}"
            records = counted(contradicting, "record")
            self._warn(f"{records} of copies contradict each other: {served}; {command_line('replicas')} lists them")
        return {key: units for key, queue in queues.items() if (units := self._pack(key, queue)) is not None}

    def _compare(self, item: Taken, known: int) -> None:
        """Refuse two messages at one queue offset.

        Args:
            known: physical offset of the other one.
        """
        record = item.located.record
        there = self.log.read(known)
        if there is not None and digest_of(there.record) == digest_of(record):
            return
        topic, queue_id = _queue_of(record)
        names = [self.layouts[number].root for number in (known // _SPACE, item.copy)]
        where = f"of {names[0]} and {names[1]}" if names[0] != names[1] else f"of {names[0]}"
        reason = f"{topic} queue {queue_id}: queue offset {record.queue_offset} has two messages, {where}"
        raise Refused(self._no_union(reason))

    def _no_union(self, reason: str) -> str:
        stores = [layout.root for layout in self.layouts]
        return (
            f"{reason}: the copies cannot be served as one. Make one store of them, which has every message of each "
            f"({command_line('salvage', *stores, 'NEWSTORE')}), and serve that; or serve one of them"
        )

    def _pack(self, key: Key, queue: "_Entries") -> tuple[int, bytes] | None:
        """(first queue offset, entries); offsets that are far from all others are damage, and left out."""
        rows = queue.rows()
        offsets = rows[:, 0]
        gaps = np.diff(offsets) > _SPARSE * len(offsets) + (1 << 16)
        kept = max(np.split(rows, gaps.nonzero()[0] + 1), key=len)
        if len(kept) < len(rows):
            lost = counted(len(rows) - len(kept), "message")
            self._warn(f"{key[0]} queue {key[1]}: {lost} with an impossible queue offset not served")
        first, number = int(kept[0, 0]), int(kept[-1, 0] - kept[0, 0]) + 1
        if first < 0:
            return None
        units = np.full(number, np.array([_NOTHING], CQ_ENTRY.dtype), CQ_ENTRY.dtype)
        for column, name in enumerate(("physical_offset", "size", "tags_code"), 1):
            units[name][kept[:, 0] - first] = kept[:, column]
        return first, units.tobytes()


class _Entries:
    """The entries of one queue, mostly added in order."""

    def __init__(self) -> None:
        self.following = 0
        self._offsets = array("q")  # increasing
        self._entries = array("q")  # physical offset, size and tags code of each
        self._late: dict[int, tuple[int, int, int]] = {}  # those added after higher ones

    def put(self, offset: int, physical_offset: int, size: int, tags_code: int) -> None:
        if not self._offsets or offset > self._offsets[-1]:
            self._offsets.append(offset)
            self._entries.extend((physical_offset, size, tags_code))
        else:
            self._late[offset] = physical_offset, size, tags_code
        self.following = offset + 1

    def physical_offset(self, offset: int) -> int | None:
        """The physical offset of the message at a queue offset; None if there is none yet."""
        if not self._offsets or offset > self._offsets[-1]:
            return None
        row = bisect_left(self._offsets, offset)
        if self._offsets[row] == offset:
            return self._entries[3 * row]
        late = self._late.get(offset)
        return late[0] if late is not None else None

    def rows(self) -> npt.NDArray[np.int64]:
        """(queue offset, physical offset, size, tags code) of each, by queue offset."""
        offsets = np.frombuffer(self._offsets, np.int64)
        entries = np.frombuffer(self._entries, np.int64).reshape(-1, 3)
        late = np.array([(offset, *entry) for offset, entry in self._late.items()], np.int64).reshape(-1, 4)
        rows = np.concatenate([np.column_stack([offsets, entries]), late])
        return rows[np.argsort(rows[:, 0], kind="stable")]


class UnionStore(Store):
    """Several copies of a store, opened for reading as one; its tables are those of the first one.

    Attributes:
        union: their messages.
    """

    def __init__(self, layouts: Sequence[StoreLayout], warn: Warn, release: Release | None = None) -> None:
        super().__init__(layouts[0].root, broker_conf=dict(layouts[0].conf.values), release=release)
        self.union = Union(layouts, warn)


class UnionReading(Reading):
    """See :class:`Reading`; the copies stay as they were opened."""

    def __init__(self, store: UnionStore) -> None:
        super().__init__(store)
        self._union = store.union
        self._log = store.union.log
        self._readers: list[KeyReader] | None = None

    def refresh(self) -> None:
        """Do nothing: no copy may be in use."""

    @property
    def end(self) -> int:
        return self._union.end

    @property
    def message_end(self) -> int:
        return self._union.end

    def queue(self, topic: str, queue_id: int) -> OpenQueue | None:
        key = topic, queue_id
        if key not in self._queues and key in self._union.units:
            self._queues[key] = UnionQueue(self.store, *key, *self._union.units[key])
        return self._queues.get(key)

    def _records(self) -> ReadRecord[memoryview]:
        """As :meth:`record`, but a message that is gone ends the pull: consumers must not pass over it."""

        def read(physical_offset: int, size: int) -> memoryview | None:
            record = self.record(physical_offset, size)
            if record is None and physical_offset >= 0:
                root = self._union.layouts[physical_offset // _SPACE].root
                raise UnreadableStore(f"{root}: its log was changed while it is served")
            return record

        return read

    def record(self, physical_offset: int, size: int | None = None) -> memoryview | None:
        """The bytes of the record at an offset in the common space; None if there is none of that size."""
        file = self.log.segments.find(physical_offset)
        if file is None:
            return None
        at = physical_offset - file.base
        record = self.log.read(physical_offset, crc=False)  # its own idea of its place may be damaged
        if record is None or size not in (None, record.record.total_size):
            return None
        return file.map()[at : at + record.record.total_size]

    def message(self, physical_offset: int) -> LocatedRecord | None:
        """The message at an offset in any of the copies, the first one first."""
        places = range(physical_offset, self._union.copies * _SPACE, _SPACE) if 0 <= physical_offset < _SPACE else ()
        return next((item for at in places if (item := self.log.read(at)) is not None), None)

    def by_key(self, topic: str, key: str, search: Search) -> list[LocatedRecord]:
        if self._readers is None:
            self._readers = [KeyReader(layout, lambda _text: None) for layout in self._union.layouts]
        by_digest: dict[bytes, LocatedRecord] = {}
        for item in chain.from_iterable(reader.query(topic, key, search) for reader in self._readers):
            by_digest.setdefault(digest_of(item.record), item)
        return list(by_digest.values())[: search.limit]


def _shift(file: Segment, by: int) -> Segment:
    moved = Segment(file.path, file.base + by, file.size, file.mtime_ns, entries=file.entries)
    moved.where = file.where
    return moved


def _queue_of(record: Record) -> Key:
    return record.topic.decode("utf-8", "surrogateescape"), record.queue_id
