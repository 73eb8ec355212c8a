"""Which release wrote a store, as far as that can be seen."""

import os
from contextlib import suppress
from weakref import WeakKeyDictionary

from formats import checkpoint
from formats.layouts.codes import MAGIC_V2
from formats.layouts.derived import DLEDGER_ENTRY_HEAD
from formats.topics import REVIVE_PREFIX, ROCKS_HALF, TIMER
from rmqtool.errors import UnreadableStore
from rmqtool.rules.releases import V4_9, V5_3, V5_4, V5_5, Release
from rmqtool.store.disk.directories import exists
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.version import (
    SEPARATE_QUEUES,
    has_rocksdb_queues,
    read_if_readable,
    rocksdb_forms,
)

_PARTS_OF_5 = ("timerwheel", "timerlog", "compaction", "epochFileCheckpoint", "batchconsumequeue", "kvStore")
_TABLES_OF_5 = ("consumerOrderInfo.json", "messageRequestMode.json", "timercheck", "timermetrics", "transactionMetrics")
_VERSIONED = (
    "topics.json", "subscriptionGroup.json", "consumerOffset.json", "lmqConsumerOffset.json", "delayOffset.json",
)  # fmt: skip
_DATABASES_OF_5_4 = ("rocksdbstore", "config/metadata")
_EITHER = "5.4 or later, which of them does not show"
_MAGIC_V2 = MAGIC_V2.to_bytes(4, "big", signed=True)
_RELEASES: "WeakKeyDictionary[StoreLayout, Release]" = WeakKeyDictionary()


def version_of(layout: StoreLayout, record_version: int = 1) -> tuple[str, str]:
    """("4.x" or "5.x", the sign of it, or that there is none).

    Args:
        record_version: of the log's first record.
    """
    release, reason = _detect_release(layout, record_version)
    return "5.x" if release.is_5 else "4.x", reason


def _detect_release(layout: StoreLayout, record_version: int) -> tuple[Release, str]:
    """(the release whose rules apply, the sign of it)."""
    point = checkpoint.parse(read_if_readable(layout.path("checkpoint")))
    newer = _sign_of_5_4(layout, point)
    if newer is not None:
        return newer
    if (sign := _sign_of_5(layout, point, record_version)) is not None:
        return V5_3, sign
    # new stores are of the newest release and say so; a 5.x broker, too, leaves one of these signs at its first start
    written = ("lock", "abort", *(f"config/{name}" for name in _VERSIONED))
    if any(exists(layout.path(name)) for name in written):
        return V4_9, "it has nothing of 5.x"
    return V4_9, "it lacks the files that would show the release; the oldest is taken (see --engine)"


def _sign_of_5_4(layout: StoreLayout, point: checkpoint.Checkpoint) -> tuple[Release, str] | None:
    forms = rocksdb_forms(layout)
    if point.logics_physical_offset:
        return V5_5, "the checkpoint has a field of 5.5"
    if SEPARATE_QUEUES in forms:
        return V5_5, f"{SEPARATE_QUEUES} is a RocksDB database of 5.5"
    for place in _DATABASES_OF_5_4:
        if place in forms:
            if point.logics_msg_timestamp and not has_rocksdb_queues(layout) and not _only_first_flushed(layout, point):
                return V5_4, f"{place} is a RocksDB database of 5.4 or later, and the checkpoint lacks the field of 5.5"
            return V5_5, f"{place} is a RocksDB database of {_EITHER}"
    if exists(layout.path("lock")):
        return None
    # only a part of a store, as each start of these releases makes both a database and that file
    if ROCKS_HALF.encode() in read_if_readable(layout.path("config", "topics.json")):
        return V5_5, f"topics.json has {ROCKS_HALF}, of {_EITHER}"
    from rmqtool.store.index.tags import has_tag_entries  # few stores are parts alone
    from rmqtool.store.log.commit_log import CommitLog

    if has_tag_entries(layout, CommitLog(layout)):
        return V5_5, f"the index has entries for tags, of {_EITHER}"
    return None


def _only_first_flushed(layout: StoreLayout, point: checkpoint.Checkpoint) -> bool:
    """Whether queues were last flushed with the first message of the log, whose physical offset is 0."""
    from rmqtool.store.log.commit_log import CommitLog

    first = CommitLog(layout).first()
    return (
        first is not None and first.physical_offset == 0 and first.record.store_timestamp >= point.logics_msg_timestamp
    )


def _sign_of_5(layout: StoreLayout, point: checkpoint.Checkpoint, record_version: int) -> str | None:
    if read_if_readable(layout.path("abort"), 1 << 16):
        return "the abort file holds a process id"
    for place in rocksdb_forms(layout):
        return f"{place} is a RocksDB database"
    for part in ("abort.bak", *_PARTS_OF_5):
        if exists(layout.path(part)):
            return f"it has {part}"
    if record_version == 2:
        return "the log begins with a V2 record"
    if point.master_flushed_offset or point.confirm_phy_offset:
        return "the checkpoint has fields of 5.x"
    for name in _VERSIONED:
        if b'"stateVersion"' in read_if_readable(layout.path("config", name)):
            return f"{name} has a stateVersion"
    for name in _TABLES_OF_5:
        if os.path.isfile(layout.path("config", name)):
            return f"it has config/{name}"
    with suppress(UnreadableStore):  # reported by what reads the queues
        for entry in layout.entries("consumequeue"):
            if entry.name == TIMER or entry.name.startswith(REVIVE_PREFIX):
                return f"it has queues of {entry.name}"
    return None


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
