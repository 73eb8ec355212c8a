"""The database ``kvStore`` with the messages held by POP consumers (``popConsumerKVServiceEnable``).

Source: broker.pop.PopConsumerRocksdbStore (5.3.3).
"""

from collections.abc import Callable, Iterator

from formats.errors import FormatError
from formats.variants.pop_store import FAMILY, PLACE, PopStoreRecord
from rmqtool.errors import RmqError
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.rocksdb import Database
from rmqtool.store.layout.version import rocksdb_forms
from rmqtool.words import counted


def pop_database(layout: StoreLayout) -> Database | None:
    """The database; None if there is none.

    Raises:
        MissingRuntime: the library to read it is not installed.
        CorruptFile: it cannot be opened.
        UnreadableStore: the system does not let us read a file of it.
    """
    return Database(layout.path(PLACE)) if PLACE in rocksdb_forms(layout) else None


def stored_records(layout: StoreLayout, warn: Callable[[str], None]) -> Iterator[PopStoreRecord]:
    """Every record, by the time at which its message may be handed out again; calls ``warn`` for unreadable ones.

    Raises:
        MissingRuntime, CorruptFile, UnreadableStore: see :func:`pop_database`.
    """
    database = pop_database(layout)
    if database is None:
        return
    for key, value in database.items(FAMILY):
        try:
            yield PopStoreRecord.parse(value)
        except FormatError as err:
            warn(f"{PLACE}: key {key.hex()}: no record of a popped message: {err}: passed over")


def warn_of_unserved(layout: StoreLayout) -> list[str]:
    """Warnings for a server that serves the store without this database."""
    warnings: list[str] = []
    try:
        count = sum(1 for _record in stored_records(layout, warnings.append))
    except RmqError as err:
        return [f"{err}: what POP groups hold by {PLACE} does not come back to them while this broker serves the store"]
    if count:
        warnings.append(
            f"{PLACE}: {counted(count, 'message')} that POP groups hold will not come back to them while this broker "
            "serves the store, only with a 5.x broker that has popConsumerKVServiceEnable=true"
        )
    return warnings
