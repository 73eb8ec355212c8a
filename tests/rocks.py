"""Databases of RocksDB for tests: what golden stores hold, written anew with changes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import rocksdict

from formats.layouts.derived import POP_KEY_HEAD, POP_KEY_TAIL, ROCKS_OFFSET
from formats.queues.rocks import RocksOffset
from formats.variants.pop_store import PopStoreKey
from rmqtool.store.layout.rocksdb import Database

_KEY_MARK = b"@"
Families = dict[str, dict[bytes, bytes]]


def content(folder: Path) -> Families:
    """Column family to its keys and values."""
    database = Database(str(folder))
    return {name: dict(database.items(name)) for name in database.families}


def _options() -> rocksdict.Options:
    options = rocksdict.Options(raw_mode=True)
    tables = rocksdict.BlockBasedOptions()
    tables.set_format_version(5)  # a 5.3.3 broker's RocksDB knows none above
    options.set_block_based_table_factory(tables)
    return options


def write(folder: Path, families: Families) -> None:
    """Make a database anew with this content, in tables as a broker that stopped leaves it."""
    shutil.rmtree(folder, ignore_errors=True)
    options = _options()
    options.create_if_missing(True)
    database = rocksdict.Rdict(str(folder), options=options)
    for name, pairs in families.items():
        family = database
        if name != "default":
            family = database.create_column_family(name, _options())
        for key, value in pairs.items():
            family.put(key, value)
        family.flush()
    database.close()
    (folder / "rocksdict-config.json").unlink()


def change(folder: Path, what: Callable[[Families], None]) -> None:
    """Write a database anew with something changed."""
    families = content(folder)
    what(families)
    write(folder, families)


def write_tables(folder: Path, count: int) -> None:
    """A database of so many tables with a key in each."""
    options = _options()
    options.create_if_missing(True)
    options.set_disable_auto_compactions(True)
    database = rocksdict.Rdict(str(folder), options=options)
    for number in range(count):
        database.put(b"key-%d" % number, b"value")
        database.flush()
    database.close()


def build_offset(offset: RocksOffset) -> bytes:
    """Stored form of one end of a queue."""
    return ROCKS_OFFSET.pack(*offset)


def build_key(key: PopStoreKey) -> bytes:
    """Stored form of the key of a record of POP."""
    names = _KEY_MARK.join(name.encode("utf-8", "surrogateescape") for name in (key.group, key.topic))
    tail = POP_KEY_TAIL.pack(_KEY_MARK, key.queue_id, _KEY_MARK, key.queue_offset)
    return POP_KEY_HEAD.pack(key.visible_time) + names + tail
