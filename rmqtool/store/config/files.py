"""The JSON files below ``config/``: reading, classifying and checking (common.ConfigManager; store-formats 1.3).

If the broker keeps its queues in RocksDB (``storeType=defaultRocksDB``), three of the files are databases instead, or
one database for all three (``useSingleRocksDBForAllConfigs=true`` since 5.4, or ``configManagerVersion=v2``). They are
read into the same models as the files.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, NamedTuple

from formats.config.file import ConfigFile
from formats.config.files import NAMES, kind_of
from formats.config.rocksdb import ACCOUNTS, ENTRIES, SINGLE, TABLES, V2, accounts, as_file, as_file_v2, bounds_of
from formats.errors import FormatError
from formats.fastjson.read import loads
from formats.fastjson.values import Key, Value
from formats.fastjson.write import dumps
from rmqtool.errors import CorruptFile, MissingRuntime, RmqError, UnreadableStore
from rmqtool.store.disk.directories import exists, files_below, read_small
from rmqtool.store.disk.remote import place_of
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.rocksdb import Database
from rmqtool.store.layout.version import queue_database_place, rocksdb_forms

# path to the length and hash of a file's content, and what it says; None outside of keep_parsed
_parsed: ContextVar[dict[str, tuple[tuple[int, int], ConfigFile]] | None] = ContextVar("parsed", default=None)


class ConfigFileInfo(NamedTuple):
    """One file below ``config/``."""

    name: str
    size: int
    kind: str | None  # name of its model; None if it is not one of the broker's JSON files
    error: str | None  # why a broker could not read it; None if it could
    tables: tuple[ConfigFile, ...] = ()  # what a broker that starts now takes from it


def read_config(layout: StoreLayout, name: str, *, bak: bool = False) -> ConfigFile | None:
    """Read a config file into its model; None if it does not exist.

    Args:
        bak: read ``<name>.bak``, the previous generation.

    Raises:
        CorruptFile: not JSON as brokers write it, or not with this file's structure.
        UnreadableStore: it cannot be read, or a broker has no such file.
        MissingRuntime: it is in RocksDB, and the library to read that is not installed.
    """
    name = name + ".bak" if bak else name
    model = kind_of(name)
    if model is None:
        raise UnreadableStore(f"config/{name}: not one of the broker's config files")
    path = layout.path("config", name)
    database = config_database(layout, name)
    if database is not None:
        try:
            return model.parse(dumps(_value(database, name)))
        except FormatError as err:
            raise CorruptFile(database.path, None, err.reason) from err
    data = read_small(path)
    if data is None:
        return None
    try:
        return parse_config(model, path, data)
    except FormatError as err:
        raise CorruptFile(path, err.at, err.reason + _advice(layout, name)) from err


def read_either(layout: StoreLayout, name: str) -> ConfigFile | None:
    """The file, or its ``.bak`` if the file is missing or cannot be read, as a broker loads it; None without both."""
    for bak in (False, True):
        with suppress(RmqError):
            if (config := read_config(layout, name, bak=bak)) is not None:
                return config
    return None


@contextmanager
def keep_parsed() -> Iterator[None]:
    """Parse a file once, however often it is read within the block, unless its content changes.

    An offsets file may have millions of entries, and several parts of a report need it. A ``.bak`` is not kept.
    """
    token = _parsed.set({})
    try:
        yield
    finally:
        _parsed.reset(token)


def parse_config(model: type[ConfigFile], path: str, data: bytes) -> ConfigFile:
    """What the content of a file says, see :func:`keep_parsed`.

    Raises:
        FormatError: it is not JSON as brokers write it, or not with this file's structure.
    """
    kept = None if path.endswith(".bak") else _parsed.get()
    content = len(data), hash(data) if kept is not None else 0
    if kept is not None and path in kept and kept[path][0] == content:
        return kept[path][1]
    try:
        config = model.parse(data)
    except MemoryError:
        raise MemoryError(f"{path} has {len(data)} bytes and takes about ten times as much to read") from None
    if kept is not None:
        kept[path] = content, config
    return config


def config_database(layout: StoreLayout, name: str) -> Database | None:
    """The database that a broker keeps in place of a file; None if it keeps the file.

    A broker with ``storeType=defaultRocksDB`` keeps all of these databases. When it goes back to files it leaves them
    behind, with their state of that time.

    Raises:
        MissingRuntime: the library to read it is not installed.
        CorruptFile: it cannot be opened.
    """
    place = config_place(layout, name)
    return Database(layout.path(place)) if place is not None else None


def config_place(layout: StoreLayout, name: str) -> str | None:
    """The path of that database relative to the store; None if the broker keeps the file.

    If there are several and the settings do not select one, the one written last counts. A broker with its queues in
    files keeps these tables in files, too.
    """
    table = TABLES.get(name)
    if table is None or place_of(layout.root) is not None:
        return None
    forms, file = rocksdb_forms(layout), exists(layout.path("config", name))
    in_rocks = queue_database_place(layout) is not None or not file
    places = [place for place in (table.place, SINGLE) if place in forms and in_rocks]
    if len(places) > 1 and layout.conf.text("useSingleRocksDBForAllConfigs") is not None:
        places = [SINGLE if layout.conf.flag("useSingleRocksDBForAllConfigs", False) else table.place]
    place = max(places, key=lambda place: _mtime(layout, name, place), default=None)
    if V2 in forms:
        version = layout.conf.text("configManagerVersion")
        if version == "v2" or (version is None and _mtime(layout, name, place) <= _mtime(layout, name, V2)):
            return V2
    return place


def _mtime(layout: StoreLayout, name: str, place: str | None) -> int:
    """The last modification, in ns since the epoch, of a database (its newest file) or of the file of that name."""
    entries = layout.entries(place) if place is not None else layout.entries("config")
    return max((entry.mtime_ns for entry in entries if place is not None or entry.name == name), default=0)


def _value(database: Database, name: str) -> dict[Key, Value]:
    if database.path.endswith(V2):
        return as_file_v2(name, database.items(ENTRIES, *bounds_of(name)))
    families = {family: database.items(family) for family in database.families}
    return as_file(name, families, single=database.path.endswith(SINGLE))


def _advice(layout: StoreLayout, name: str) -> str:
    """A remark on the state of the previous generation, for the error about a broken file."""
    model = kind_of(name)
    if name.endswith(".bak") or model is None:
        return ""
    try:
        data = read_small(layout.path("config", name + ".bak"))
        if data is None:
            return ""
        model.parse(data)
    except (FormatError, RmqError):
        return f" ({name}.bak is broken too)"
    return f" ({name}.bak is good: {layout.command('config', name, '--bak')} shows it)"


def raw_config(layout: StoreLayout, name: str) -> Any:
    """Read a config file of any kind as plain values.

    Raises:
        CorruptFile: not JSON as brokers write it.
        UnreadableStore: the file does not exist.
    """
    if "/" in name or name in ("", ".", ".."):
        raise UnreadableStore(f"{name!r} is not a file name")
    path = layout.path("config", name)
    if (table := read_accounts(layout, name)) is not None:
        return table
    database = config_database(layout, name)
    if database is not None:
        try:
            return _value(database, name)
        except FormatError as err:
            raise CorruptFile(database.path, None, err.reason) from err
    data = read_small(path)
    if data is None:
        raise UnreadableStore(f"{path}: no such file")
    try:
        return loads(data, cycles=False)
    except FormatError as err:
        raise CorruptFile(path, err.at, err.reason + _advice(layout, name)) from err


def read_accounts(layout: StoreLayout, name: str) -> dict[Key, Value] | None:
    """Users or access lists of the auth module; None where the store has no such database.

    Args:
        name: ``users`` or ``acls``.

    Raises:
        CorruptFile: the database cannot be read.
        MissingRuntime: no library to read it.
    """
    if name not in ACCOUNTS or place_of(layout.root) is not None or f"config/{name}" not in rocksdb_forms(layout):
        return None
    database = Database(layout.path("config", name))
    try:
        return accounts(database.items(ENTRIES))
    except FormatError as err:
        raise CorruptFile(database.path, None, err.reason) from err


def list_configs(layout: StoreLayout) -> Iterator[ConfigFileInfo]:
    """Every file below ``config/``, with the result of parsing it; they come one by one, since tables may be large."""
    for entry in layout.entries("config"):
        model = kind_of(entry.name)
        if not entry.is_file():
            if model is not None:
                yield ConfigFileInfo(entry.name, 0, model.__name__, "not a regular file")
            continue
        if model is None:  # not read, since it may be of any size
            yield ConfigFileInfo(entry.name, entry.size, None, None)
            continue
        try:
            table = parse_config(model, entry.path, read_small(entry.path) or b"")
        except (FormatError, CorruptFile, UnreadableStore) as err:
            yield ConfigFileInfo(entry.name, entry.size, model.__name__, str(err))
            continue
        in_use = entry.name in NAMES and config_place(layout, entry.name) is None
        yield ConfigFileInfo(entry.name, entry.size, model.__name__, None, (table,) if in_use else ())
    places: dict[str, list[str]] = {}
    for name in TABLES:
        if (place := config_place(layout, name)) is not None:
            places.setdefault(place, []).append(name)
    for place, names in places.items():
        error: str | None = None
        tables: tuple[ConfigFile, ...] = ()
        try:
            for name in names:
                loaded = read_config(layout, name)
                tables += () if loaded is None else (loaded,)
        except MissingRuntime:
            continue  # we cannot tell whether a broker could read it
        except CorruptFile as err:
            error = str(err)
        kind = ", ".join(model.__name__ for name in names if (model := kind_of(name)) is not None)
        yield ConfigFileInfo(place.rpartition("/")[2], files_below(layout.path(place))[1], kind, error, tables)
    yield from _list_accounts(layout)


def _list_accounts(layout: StoreLayout) -> Iterator[ConfigFileInfo]:
    for name, kind in ACCOUNTS.items():
        error = None
        try:
            if read_accounts(layout, name) is None:
                continue
        except MissingRuntime:
            continue
        except CorruptFile as err:
            error = str(err)
        yield ConfigFileInfo(name, files_below(layout.path("config", name))[1], kind, error)
