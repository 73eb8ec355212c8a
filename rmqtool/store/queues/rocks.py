"""Consume queues in RocksDB (storeType=defaultRocksDB), read-only: one unit per message, keyed by topic, queue, offset.

Source: store.queue.RocksDBConsumeQueueStore, RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable of 5.3.3;
store-formats 4.6.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from formats.errors import FormatError
from formats.layouts.derived import ROCKS_UNIT, ROCKS_UNIT_KEY_TAIL
from formats.queues.consume import as_array, build
from formats.queues.rocks import (
    CHECKPOINT_KEY,
    CHECKPOINT_TOPIC,
    MAX,
    MIN,
    OFFSETS,
    UNITS,
    RocksOffset,
    RocksUnit,
    end_of_units,
    offset_key,
    parse_built,
    parse_offset,
    parse_offset_key,
    parse_unit,
    parse_unit_key,
    unit_key,
)
from rmqtool.rules.releases import Release
from rmqtool.store.disk.remote import place_of
from rmqtool.store.disk.segments import Segments
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.rocksdb import Database
from rmqtool.store.layout.version import queue_database_place, second_queues
from rmqtool.store.queues.reader import NO_OFFSET, QueueEnd, QueueEntry

if TYPE_CHECKING:
    from formats.arrays import Units


_STEP = 1 << 13  # units per block
_OFFSET_BYTES = ROCKS_UNIT_KEY_TAIL.size - ROCKS_UNIT_KEY_TAIL.offsets["queue_offset"]
_MOST = 2**63 - 1
_OPENED: "WeakKeyDictionary[StoreLayout, Database | None]" = WeakKeyDictionary()


def queue_database(layout: StoreLayout) -> Database | None:
    """The database with a store's queues, in the state in which it was first opened; None if there is none.

    Besides queue files it is the second copy of the queues (:func:`rmqtool.store.layout.version.second_queues`), which
    alone may have the light queues.

    Raises:
        MissingRuntime: the library to read it is not installed.
        CorruptFile: it cannot be opened.
    """
    if layout not in _OPENED:
        place = None
        if place_of(layout.root) is None:
            place = queue_database_place(layout) or second_queues(layout)
        _OPENED[layout] = Database(layout.path(place)) if place is not None else None
    return _OPENED[layout]


def built_up_to(database: Database) -> int:
    """Physical offset up to which the log has been dispatched to the queues; 0 if not recorded."""
    value = database.get(OFFSETS, CHECKPOINT_KEY)
    try:
        return parse_built(value) if value is not None else 0
    except FormatError:
        return 0


class RocksQueue:
    """One queue of the database. Units that are too short are skipped, as by a broker."""

    def __init__(self, layout: StoreLayout, database: Database, topic: str, queue_id: int) -> None:
        self.topic, self.queue_id = topic, queue_id
        self.path = os.path.join(database.path, topic, str(queue_id))  # only for messages: there is no such directory
        self.segments = Segments.of([])
        self._layout, self._database = layout, database

    def __repr__(self) -> str:
        return f"RocksQueue({self.topic!r}, {self.queue_id})"

    def _read_bound(self, which: bytes) -> RocksOffset | None:
        value = self._database.get(OFFSETS, offset_key(self.topic, self.queue_id, which))
        with suppress(FormatError):
            return parse_offset(value) if value is not None else None
        return None

    @cached_property
    def last(self) -> RocksOffset | None:
        """The recorded last message; None if there never was one."""
        return self._read_bound(MAX)

    @cached_property
    def first(self) -> RocksOffset | None:
        """The recorded first message in the log, as of a broker's last look-up; None if there was no look-up."""
        return self._read_bound(MIN)

    @property
    def there(self) -> bool:
        """Whether the database contains anything of the queue."""
        return self.last is not None or self.first is not None or self.unit(0) is not None

    @property
    def max_offset(self) -> int:
        """Queue offset after the last message."""
        return self.last.queue_offset + 1 if self.last is not None else 0

    @cached_property
    def recovered(self) -> QueueEnd:
        """The recorded end, unchecked (recover of this store does nothing).

        ``end`` counts messages, as there are no byte positions here.
        """
        if self.last is None:
            return QueueEnd(0, NO_OFFSET)
        unit = self.unit(self.last.queue_offset)
        size = unit.size if unit is not None and unit.physical_offset == self.last.physical_offset else 0
        return QueueEnd(self.max_offset, self.last.physical_offset + size)

    def min_offset(self, min_physical_offset: int, release: Release | None = None) -> int:
        """The lowest queue offset whose message is still in the log (getMinCqOffset, correctMinCqOffset).

        Args:
            min_physical_offset: where the log begins.
            release: unused, as all releases have the same rule; see :class:`rmqtool.store.queues.reader.ConsumeQueue`.
        """
        noted = self.first.queue_offset if self.first is not None else 0
        if self.first is not None and self.first.physical_offset >= min_physical_offset:
            return noted
        if self.last is None:
            return 0
        if self.last.physical_offset < min_physical_offset:
            return self.max_offset
        low, high, answer = noted, self.last.queue_offset, -1
        while high >= low:
            middle = low + (high - low) // 2
            unit = self.unit(middle)
            if unit is None or unit.physical_offset < min_physical_offset:
                low = middle + 1
                continue
            answer = middle
            if unit.physical_offset == min_physical_offset:
                break
            high = middle - 1
        return answer if answer >= 0 else noted

    def unit(self, queue_offset: int) -> RocksUnit | None:
        """The unit of a queue offset; None if there is none."""
        if not 0 <= queue_offset <= _MOST or not -(2**31) <= self.queue_id < 2**31:
            return None
        value = self._database.get(UNITS, unit_key(self.topic, self.queue_id, queue_offset))
        with suppress(FormatError):
            return parse_unit(value) if value is not None else None
        return None

    def entry(self, queue_offset: int) -> QueueEntry | None:
        """Like :meth:`unit`, as :class:`QueueEntry`."""
        unit = self.unit(queue_offset)
        return QueueEntry(queue_offset, *unit[:3]) if unit is not None else None

    def units(
        self, start: int = 0, stop: int | None = None, *, beyond: bool = False
    ) -> Iterator[tuple[int, RocksUnit]]:
        """(queue offset, unit) of the existing units in [start, stop), up to the queue's end.

        Args:
            beyond: also units after that end; requires ``stop``.
        """
        end = self.max_offset if stop is None else stop if beyond else min(stop, self.max_offset)
        low = max(start, 0)
        if low >= end:
            return
        keys = (unit_key(self.topic, self.queue_id, offset) for offset in (low, min(end, _MOST)))
        for key, value in self._database.items(UNITS, *keys):
            with suppress(FormatError):
                yield parse_unit_key(key).queue_offset, parse_unit(value)

    def raw_units(self, start: int, stop: int) -> tuple[bytes, bytes]:
        """(the queue offsets of the units in [start, stop) as in their keys, the units as stored), one after another.

        Units after the queue's end are among them.

        Raises:
            CorruptFile: a part of the database cannot be read.
        """
        offsets, values = list[bytes](), list[bytes]()
        low, high = (unit_key(self.topic, self.queue_id, min(max(at, 0), _MOST)) for at in (start, stop))
        for key, value in self._database.items(UNITS, low, high):
            if len(key) == len(low) and len(value) >= ROCKS_UNIT.size:
                offsets.append(key[-_OFFSET_BYTES:])
                values.append(value[: ROCKS_UNIT.size])
        return b"".join(offsets), b"".join(values)

    def runs(self, start: int = 0, stop: int | None = None) -> Generator[tuple[int, "Units"], None, None]:
        """(queue offset of the first unit, units as entries of a queue file) for contiguous parts of [start, stop)."""
        first, rows = 0, list[tuple[int, int, int]]()
        for queue_offset, unit in self.units(start, stop):
            if rows and (queue_offset != first + len(rows) or len(rows) == _STEP):
                yield first, as_array(build(rows))
                rows = []
            if not rows:
                first = queue_offset
            rows.append(unit[:3])
        if rows:
            yield first, as_array(build(rows))

    def entries(self, start: int = 0, stop: int | None = None) -> Iterator[QueueEntry]:
        """Like :meth:`units`, as :class:`QueueEntry`."""
        for queue_offset, unit in self.units(start, stop):
            yield QueueEntry(queue_offset, *unit[:3])


def rocks_queue_names(layout: StoreLayout, *, units: bool = False) -> list[tuple[str, int]]:
    """(topic, queue id) of every queue whose end is recorded in the database, sorted.

    Args:
        units: also queues that only have units, which a broker does not see.
    """
    database = queue_database(layout)
    return [] if database is None else queue_names(database, units=units)


def queue_names(database: Database, *, units: bool = False) -> list[tuple[str, int]]:
    """Like :func:`rocks_queue_names`, for a database."""
    names = set()
    for key, _value in database.items(OFFSETS):
        with suppress(FormatError):
            name = parse_offset_key(key)
            if name.bound == MAX:  # a look-up notes the beginning of queues that never had a message, too
                names.add((name.topic, name.queue_id))
    names.discard((CHECKPOINT_TOPIC, 0))
    if units:
        names.update(_with_units(database))
    return sorted(names)


def _with_units(database: Database) -> Iterator[tuple[str, int]]:
    start = b""
    while (item := next(database.items(UNITS, start), None)) is not None:
        try:
            name = parse_unit_key(item[0])
        except FormatError:
            start = item[0] + b"\0"
            continue
        yield name.topic, name.queue_id
        start = max(end_of_units(name.topic, name.queue_id), item[0] + b"\0")


def is_name(topic: str) -> bool:
    """Whether a topic can be encoded as UTF-8: JSON may contain lone surrogates."""
    try:
        topic.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True
