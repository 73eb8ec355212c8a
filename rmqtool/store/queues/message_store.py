"""The database ``rocksdbstore`` of 5.4 and later, read-only: timer messages, open half messages, and index entries.

A broker has a setting for each of the three. If the settings are unknown, a column family with anything in it counts as
in use.

Source: store.rocksdb.MessageRocksDBStorage, store.timer.rocksdb.Timeline, store.transaction.TransMessageRocksDBStore
(5.5.0); releases-5.4-5.5 4, 5.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from weakref import WeakKeyDictionary

from formats.errors import FormatError
from formats.layouts.derived import KEY_HOUR
from formats.variants.message_store import (
    DELIVERED,
    END,
    HALVES,
    HOUR,
    INDEX,
    LAST_STORED,
    PLACE,
    SCANNED,
    TIMELINE,
    OpenHalf,
    TimelineUnit,
    index_prefix,
    parse_half,
    parse_index,
    parse_position,
    parse_timeline,
)
from rmqtool.errors import CorruptFile
from rmqtool.store.disk.remote import place_of
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.rocksdb import Database
from rmqtool.store.layout.version import queue_database_place, rocksdb_forms

SETTINGS = {INDEX: "indexRocksDBEnable", TIMELINE: "timerRocksDBEnable", HALVES: "transRocksDBEnable"}
_OPENED: "WeakKeyDictionary[StoreLayout, Database | None]" = WeakKeyDictionary()


def message_store(layout: StoreLayout) -> Database | None:
    """The database, in the state in which it was first opened; None if there is none.

    Raises:
        MissingRuntime: the library to read it is not installed.
        CorruptFile: it cannot be opened.
    """
    if layout not in _OPENED:
        there = place_of(layout.root) is None and PLACE in rocksdb_forms(layout)
        _OPENED[layout] = Database(layout.path(PLACE)) if there else None
    return _OPENED[layout]


def family_in_use(layout: StoreLayout, family: str) -> Database | None:
    """The database if a broker keeps this column family in it; else None.

    Raises:
        MissingRuntime, CorruptFile: see :func:`message_store`.
    """
    wanted = layout.conf.text(SETTINGS[family])
    if wanted is not None and not layout.conf.flag(SETTINGS[family], False):
        return None
    database = message_store(layout)
    if database is None or (wanted is None and next(database.items(family), None) is None):
        return None
    return database


def position(database: Database, family: str, key: bytes) -> int | None:
    """A recorded position of a column family; None if it is not recorded.

    Raises:
        CorruptFile: its value is not in the form that brokers write.
    """
    value = database.get(family, key)
    try:
        return parse_position(value) if value is not None else None
    except FormatError as err:
        raise CorruptFile(database.path, None, f"{key.decode()}: {err.reason}") from err


class Timeline:
    """Timer messages of a broker that keeps them in RocksDB (``timerRocksDBEnable``).

    Attributes:
        scanned: next queue offset of the timer's queue that a broker will read; 0 if not recorded.
        delivered: time in ms before which everything due has been delivered; None if not recorded: a broker then begins
            ten seconds before its start, and delivers what it reads and is already due at once.
    """

    def __init__(self, database: Database) -> None:
        self.path = database.path
        self._database = database
        self.scanned = position(database, TIMELINE, SCANNED) or 0
        self.delivered = position(database, TIMELINE, DELIVERED)

    def units(self, warn: Callable[[str], None]) -> Iterator[TimelineUnit]:
        """The messages not delivered yet, by deliver time; calls ``warn`` for units that cannot be read.

        Raises:
            CorruptFile: a part of the database cannot be read.
        """
        for key, value in self._database.items(TIMELINE):
            if key in (SCANNED, DELIVERED):
                continue
            try:
                unit = parse_timeline(key, value)
            except FormatError as err:
                warn(f"{PLACE}: {err}: passed over")
                continue
            if unit.deliver_time >= (self.delivered or 0):
                yield unit


def timeline_of(layout: StoreLayout) -> Timeline | None:
    """The timeline of a store; None if a broker keeps its timer in files.

    Raises:
        MissingRuntime: the library to read it is not installed.
        CorruptFile: it cannot be read.
    """
    database = family_in_use(layout, TIMELINE)
    return Timeline(database) if database is not None else None


class RocksIndex:
    """The index of a broker that keeps it in RocksDB (``indexRocksDBEnable``).

    Attributes:
        end: physical offset of the last indexed record; None if there is none.
    """

    def __init__(self, database: Database) -> None:
        self.path = database.path
        self._database = database
        self.end = position(database, INDEX, END)
        self._last = position(database, INDEX, LAST_STORED) or 0

    def offsets(self, topic: bytes, key: bytes, begin: int, end: int) -> set[int]:
        """Physical offsets of the messages that have a key or unique key, by store time in ms.

        A broker searches at most a week; this searches everything in the database.

        Raises:
            CorruptFile: a part of the database cannot be read.
        """
        physical = set[int]()
        hour = self._hour_from(begin // HOUR * HOUR)
        while hour is not None and hour <= min(end, self._last):
            for kind in ("K", "U"):
                physical.update(self._under(index_prefix(hour, topic, kind, key), begin, end))
            hour = self._hour_from(hour + HOUR)
        return physical

    def _hour_from(self, hour: int) -> int | None:
        """The first hour, at or after a given one, of which the index has entries."""
        for key, value in self._database.items(INDEX, KEY_HOUR.pack(hour)):
            if key in (END, LAST_STORED):
                return None
            with suppress(FormatError):
                return parse_index(key, value).hour
        return None

    def _under(self, prefix: bytes, begin: int, end: int) -> Iterator[int]:
        for key, value in self._database.items(INDEX, prefix):
            if not key.startswith(prefix):
                return
            with suppress(FormatError):
                unit = parse_index(key, value)
                if begin <= unit.store_timestamp <= end:
                    yield unit.physical_offset


def rocks_index_of(layout: StoreLayout) -> RocksIndex | None:
    """The index of a store; None if a broker keeps it in files.

    If the settings are unknown, an empty index counts if there are no index files and the queues are in RocksDB, too:
    a killed broker loses what its databases had in memory.

    Raises:
        MissingRuntime: the library to read it is not installed.
        CorruptFile: it cannot be read.
    """
    database = family_in_use(layout, INDEX)
    if database is None and layout.conf.text(SETTINGS[INDEX]) is None and not layout.index_paths():
        database = message_store(layout) if queue_database_place(layout) is not None else None
    return RocksIndex(database) if database is not None else None


class OpenHalves:
    """Half messages without an op message, of a broker that keeps them in RocksDB (``transRocksDBEnable``).

    Attributes:
        end: physical offset of the last record in the database; None if there is none.
    """

    def __init__(self, database: Database, warn: Callable[[str], None]) -> None:
        self.end = position(database, HALVES, END)
        self._open: dict[int, OpenHalf] = {}
        for key, value in database.items(HALVES):
            if key == END:
                continue
            try:
                half = parse_half(key, value)
            except FormatError as err:
                warn(f"{PLACE}: {err}: passed over")
                continue
            self._open[half.physical_offset] = half

    def __len__(self) -> int:
        return len(self._open)

    def get(self, physical_offset: int) -> OpenHalf | None:
        """The record of a half message by its physical offset; None if it is not open, or not recorded yet."""
        return self._open.get(physical_offset)

    def has(self, physical_offset: int) -> bool:
        """Whether the database has reached an offset, so that a half message there is only open if listed."""
        return self.end is not None and physical_offset <= self.end


def open_halves_of(layout: StoreLayout, warn: Callable[[str], None]) -> OpenHalves | None:
    """Open half messages of a store; None if a broker keeps none in RocksDB.

    Raises:
        MissingRuntime: the library to read it is not installed.
        CorruptFile: it cannot be read.
    """
    database = family_in_use(layout, HALVES)
    return OpenHalves(database, warn) if database is not None else None
