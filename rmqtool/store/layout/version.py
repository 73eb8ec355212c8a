"""Which release wrote a store, as far as that can be seen, and which parts of it are not plain files."""

import os
from contextlib import suppress
from weakref import WeakKeyDictionary

from formats import checkpoint
from formats.layouts.codes import MAGIC_V2
from formats.layouts.derived import DLEDGER_ENTRY_HEAD
from formats.topics import LMQ_PREFIX
from formats.variants.rocksdb import PLACES, Form, describe
from rmqtool.errors import RmqError, UnreadableStore
from rmqtool.rules.releases import V4_9, V5_3, V5_4, V5_5, Release
from rmqtool.store.disk.directories import exists, is_dir, read_small
from rmqtool.store.layout.paths import StoreLayout

_PARTS_OF_5 = ("timerwheel", "timerlog", "compaction", "epochFileCheckpoint", "batchconsumequeue", "kvStore")
QUEUES, SEPARATE_QUEUES = "consumequeue", "consumequeue_rocksdb"
_DATABASES_OF_5_4 = ("rocksdbstore", "config/metadata")
_FLUSH = 2 * 60_000  # ms; a broker flushes queue files each minute
_MAGIC_V2 = MAGIC_V2.to_bytes(4, "big", signed=True)
_RELEASES: "WeakKeyDictionary[StoreLayout, Release]" = WeakKeyDictionary()


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
    point = checkpoint.parse(_read_if_readable(layout.path("checkpoint")))
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


def version_of(layout: StoreLayout, record_version: int = 1) -> tuple[str, str]:
    """("4.x" or "5.x", the sign of it).

    Args:
        record_version: of the log's first record.
    """
    release, reason = _detect_release(layout, record_version)
    return "5.x" if release.is_5 else "4.x", reason


def _detect_release(layout: StoreLayout, record_version: int) -> tuple[Release, str]:
    """(the release whose rules apply, the sign of it)."""
    forms = rocksdb_forms(layout)
    point = checkpoint.parse(_read_if_readable(layout.path("checkpoint")))
    if point.logics_physical_offset:
        return V5_5, "the checkpoint has a field of 5.5"
    if SEPARATE_QUEUES in forms:
        return V5_5, f"{SEPARATE_QUEUES} is a RocksDB database of 5.5"
    for place in _DATABASES_OF_5_4:
        if place in forms:
            if point.logics_msg_timestamp and not has_rocksdb_queues(layout):
                return V5_4, f"{place} is a RocksDB database of 5.4 or later, and the checkpoint lacks the field of 5.5"
            return V5_5, f"{place} is a RocksDB database of 5.4 or later"
    if _read_if_readable(layout.path("abort"), 1 << 16):
        return V5_3, "the abort file holds a process id"
    for place in forms:
        return V5_3, f"{place} is a RocksDB database"
    for part in ("abort.bak", *_PARTS_OF_5):
        if exists(layout.path(part)):
            return V5_3, f"it has {part}"
    if record_version == 2:
        return V5_3, "the log begins with a V2 record"
    if point.master_flushed_offset or point.confirm_phy_offset:
        return V5_3, "the checkpoint has fields of 5.x"
    if b'"stateVersion"' in _read_if_readable(layout.path("config", "topics.json")):
        return V5_3, "topics.json has a stateVersion"
    # new stores are of the newest release and say so; a 5.x broker, too, leaves one of these signs at its first start
    return V4_9, "it has nothing of 5.x"


def release_of(layout: StoreLayout) -> Release:
    """The release by whose rules a store is read; determined once per layout.

    Raises:
        UnreadableStore: a directory of the store cannot be listed.
    """
    if layout not in _RELEASES:
        _RELEASES[layout] = _detect_release(layout, first_version(layout))[0]
    return _RELEASES[layout]


def first_version(layout: StoreLayout) -> int:
    """1 or 2: the version of the log's first record, by its magic alone."""
    for file in layout.commit_log():
        # the file's readers will report that it cannot be read; salvage can do without this page of it
        with suppress(UnreadableStore):
            return 2 if file.read(4 + (DLEDGER_ENTRY_HEAD.size if file.entries else 0), 4) == _MAGIC_V2 else 1
        break
    return 1


def _read_if_readable(path: str, limit: int = 64 << 20) -> bytes:
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
