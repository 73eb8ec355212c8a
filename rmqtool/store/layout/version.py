"""Which parts of a store are not plain files."""

import os

from formats import checkpoint
from formats.topics import LMQ_PREFIX
from formats.variants.rocksdb import PLACES, Form, describe
from rmqtool.errors import RmqError
from rmqtool.store.disk.directories import is_dir, read_small
from rmqtool.store.layout.paths import StoreLayout

QUEUES, SEPARATE_QUEUES = "consumequeue", "consumequeue_rocksdb"
_FLUSH = 2 * 60_000  # ms; a broker flushes queue files each minute


def rocksdb_forms(layout: StoreLayout) -> dict[str, Form]:
    """The contents of every directory of the store that is a RocksDB database, by path."""
    forms = {}
    for place in PLACES:
        if not is_dir(layout.path(place)):
            continue
        form = describe([entry.name for entry in layout.entries(place) if entry.is_file()], place)
        if form is not None:
            forms[place] = form
    return forms


def queue_database_place(layout: StoreLayout) -> str | None:
    """The path, relative to the store, of the database with its queues; None if the queues are files.

    A 5.5 broker uses a directory of its own if ``useSeparateStorePathForRocksdbCQ`` is set. If there are queue files
    too, see :func:`second_queues`.
    """
    forms = rocksdb_forms(layout)
    place = next((place for place in (QUEUES, SEPARATE_QUEUES) if place in forms), None)
    return place if place is not None and second_queues(layout) is None else None


def second_queues(layout: StoreLayout) -> str | None:
    """The path, relative to the store, of a database that has the queues besides the files; None if there is none.

    A broker of 5.4 or later with ``rocksdbCQDoubleWriteEnable`` writes both, and by default numbers messages and reads
    by the files (CombineConsumeQueueStore). In the directory ``consumequeue`` files may also be left from before
    ``storeType=defaultRocksDB``. Where the settings do not say, the checkpoint does: only queue files advance its
    ``logicsMsgTimestamp``.
    """
    forms = rocksdb_forms(layout)
    place = next((place for place in (SEPARATE_QUEUES, QUEUES) if place in forms), None)
    if place is None or wants_rocksdb(layout):
        return None
    if writes_both(layout):
        return place
    if next(layout.each_queue_dir(), None) is None:
        return None
    if place == SEPARATE_QUEUES:
        return place
    if layout.conf.text("storeType") is not None or layout.conf.text("rocksdbCQDoubleWriteEnable") is not None:
        return None
    point = checkpoint.parse(read_if_readable(layout.path("checkpoint")))
    current = point.logics_msg_timestamp > 0 and point.physic_msg_timestamp - point.logics_msg_timestamp < _FLUSH
    return place if current else None


def writes_both(layout: StoreLayout) -> bool:
    """Whether the settings say that queues are written to files and to a database (``rocksdbCQDoubleWriteEnable``)."""
    return layout.conf.flag("rocksdbCQDoubleWriteEnable", False) and not wants_rocksdb(layout)


def light_queues_in_database(layout: StoreLayout) -> bool:
    """Whether the light queues are only in the database beside the queue files (``combineCQUseRocksdbForLmq``)."""
    if layout.conf.text("combineCQUseRocksdbForLmq") is not None:
        both = layout.conf.flag("rocksdbCQDoubleWriteEnable", second_queues(layout) is not None)
        return both and layout.conf.flag("combineCQUseRocksdbForLmq", False)
    return second_queues(layout) is not None and not layout.has_queues(LMQ_PREFIX)


def wants_rocksdb(layout: StoreLayout) -> bool:
    """Whether the settings say that queues are in RocksDB only."""
    return (layout.conf.text("storeType") or "").lower() == "defaultrocksdb"


def has_rocksdb_queues(layout: StoreLayout) -> bool:
    """Whether the broker keeps its queues in RocksDB: such a database exists, or the settings say so."""
    return wants_rocksdb(layout) or queue_database_place(layout) is not None


def read_if_readable(path: str, limit: int = 64 << 20) -> bytes:
    """The contents of a small file; empty if it cannot be read."""
    try:
        return read_small(path, limit) or b""
    except RmqError:
        return b""


def why_unsupported(layout: StoreLayout) -> str | None:
    """Why no command may write to this store's queues; None if commands may."""
    if has_rocksdb_queues(layout):
        return (
            "its queues are in a RocksDB database (storeType=defaultRocksDB), which rmqtool does not modify: "
            f"{layout.command('recover', '--dry-run')} shows what a broker does at its next start, and "
            f"{layout.command('salvage', 'NEWSTORE')} creates a new store with queue files"
        )
    return dledger_reason(layout)


def dledger_reason(layout: StoreLayout) -> str | None:
    """Why a DLedger log is not written; None if there is none."""
    if directories := layout.dledger_dirs():
        return f"its log is a DLedger log ({os.path.basename(directories[0])}), which rmqtool does not write"
    return None
