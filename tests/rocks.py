"""RocksDB databases for tests: copies of those in golden stores, with changes."""

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
    """Column family → keys and values."""
    database = Database(str(folder))
    return {name: dict(database.items(name)) for name in database.families}


def _options() -> rocksdict.Options:
    options = rocksdict.Options(raw_mode=True)
    tables = rocksdict.BlockBasedOptions()
    tables.set_format_version(5)  # the RocksDB of 5.3.3 knows no later one
    options.set_block_based_table_factory(tables)
    return options


def write(folder: Path, families: Families) -> None:
    """Replace a database by one with this content, in tables, as after a clean stop."""
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
    """Rewrite a database with a change."""
    families = content(folder)
    what(families)
    write(folder, families)


def write_tables(folder: Path, count: int) -> None:
    """Create a database of ``count`` tables with one key each."""
    options = _options()
    options.create_if_missing(True)
    options.set_disable_auto_compactions(True)
    database = rocksdict.Rdict(str(folder), options=options)
    for number in range(count):
        database.put(b"key-%d" % number, b"value")
        database.flush()
    database.close()


def build_offset(offset: RocksOffset) -> bytes:
    """Encode the end of a queue."""
    return ROCKS_OFFSET.pack(*offset)


def build_key(key: PopStoreKey) -> bytes:
    """Encode the key of a POP record."""
    names = _KEY_MARK.join(name.encode("utf-8", "surrogateescape") for name in (key.group, key.topic))
    tail = POP_KEY_TAIL.pack(_KEY_MARK, key.queue_id, _KEY_MARK, key.queue_offset)
    return POP_KEY_HEAD.pack(key.visible_time) + names + tail
