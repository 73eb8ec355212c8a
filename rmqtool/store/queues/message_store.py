"""The database ``rocksdbstore`` of 5.4 and later, read-only: timer messages, open half messages, and the index.

Which of the three a broker keeps in it is a setting for each. Where no settings are known, a family with anything in it
says so.

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
    """The database, as it was when it was first asked for; None without one.

    Raises:
        MissingRuntime: no library to read it.
        CorruptFile: it cannot be opened.
    """
    if layout not in _OPENED:
        there = place_of(layout.root) is None and PLACE in rocksdb_forms(layout)
        _OPENED[layout] = Database(layout.path(PLACE)) if there else None
    return _OPENED[layout]


def family_in_use(layout: StoreLayout, family: str) -> Database | None:
    """The database, where a broker keeps this family in it; else None.

    Raises:
        MissingRuntime, CorruptFile: as :func:`message_store`.
    """
    wanted = layout.conf.text(SETTINGS[family])
    if wanted is not None and not layout.conf.flag(SETTINGS[family], False):
        return None
    database = message_store(layout)
    if database is None or (wanted is None and next(database.items(family), None) is None):
        return None
    return database


def position(database: Database, family: str, key: bytes) -> int | None:
    """How far a family has come; None where it does not say.

    Raises:
        CorruptFile: its value is not one that brokers write.
    """
    value = database.get(family, key)
    try:
        return parse_position(value) if value is not None else None
    except FormatError as err:
        raise CorruptFile(database.path, None, f"{key.decode()}: {err.reason}") from err


class Timeline:
    """Timer messages where a broker keeps them in RocksDB (``timerRocksDBEnable``).

    Attributes:
        scanned: next queue offset of the timer's queue that a broker takes up; 0 where nothing says so.
        delivered: what is due before this time has been delivered, ms; None where nothing says so: then a broker
            begins ten seconds before its start, and delivers at once what it takes up and is due.
    """

    def __init__(self, database: Database) -> None:
        self.path = database.path
        self._database = database
        self.scanned = position(database, TIMELINE, SCANNED) or 0
        self.delivered = position(database, TIMELINE, DELIVERED)

    def units(self, warn: Callable[[str], None]) -> Iterator[TimelineUnit]:
        """Those that are not delivered, by deliver time; one that cannot be read is warned of.

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
    """The timeline of a store; None where a broker keeps its timer in files.

    Raises:
        MissingRuntime: no library to read it.
        CorruptFile: it cannot be read.
    """
    database = family_in_use(layout, TIMELINE)
    return Timeline(database) if database is not None else None


class RocksIndex:
    """The index where a broker keeps it in RocksDB (``indexRocksDBEnable``).

    Attributes:
        end: physical offset of the last record that is in it; None where it has none.
    """

    def __init__(self, database: Database) -> None:
        self.path = database.path
        self._database = database
        self.end = position(database, INDEX, END)
        self._last = position(database, INDEX, LAST_STORED) or 0

    def offsets(self, topic: bytes, key: bytes, begin: int, end: int) -> set[int]:
        """Physical offsets of the messages that have a key or a unique key; times are store times, ms.

        A broker looks through a week at most; here it is all that the database has.

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
        """The first hour from one on of which the index has anything."""
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
    """The index of a store; None where a broker keeps it in files.

    Where no settings are known, an empty one counts if there are no index files, and queues are in RocksDB, too: a
    killed broker loses what its databases had in memory.

    Raises:
        MissingRuntime: no library to read it.
        CorruptFile: it cannot be read.
    """
    database = family_in_use(layout, INDEX)
    if database is None and layout.conf.text(SETTINGS[INDEX]) is None and not layout.index_paths():
        database = message_store(layout) if queue_database_place(layout) is not None else None
    return RocksIndex(database) if database is not None else None


class OpenHalves:
    """Half messages that no op message has ended, where a broker keeps them in RocksDB (``transRocksDBEnable``).

    Attributes:
        end: physical offset of the last record that the database has; None where it has none.
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
        """What is noted of the half message there; None where it is not open, or not noted yet."""
        return self._open.get(physical_offset)

    def has(self, physical_offset: int) -> bool:
        """Whether the database has come as far as that: what it does not list from there is not open."""
        return self.end is not None and physical_offset <= self.end


def open_halves_of(layout: StoreLayout, warn: Callable[[str], None]) -> OpenHalves | None:
    """Open half messages of a store; None where a broker keeps none in RocksDB.

    Raises:
        MissingRuntime: no library to read it.
        CorruptFile: it cannot be read.
    """
    database = family_in_use(layout, HALVES)
    return OpenHalves(database, warn) if database is not None else None
