"""Recognizes the RocksDB directories that 5.x may create in a store. The RocksDB library reads their files.

Source: store-formats 1, 4.6, 5.7, 7.12; file names of RocksDB.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from formats.versions import V5_3, V5_4, V5_5

_FILES = re.compile(r"CURRENT|IDENTITY|LOCK|LOG(\.old\.\d+)?|MANIFEST-\d+|OPTIONS-\d+(\.dbtmp)?|\d+\.(sst|log|blob)")
_TABLES = re.compile(r"MANIFEST-\d+|\d+\.sst")
_STARTS = re.compile(r"CURRENT|(MANIFEST|OPTIONS)-\d+|\d+\.log")
_READ = re.compile(r"MANIFEST-\d+|\d+\.(sst|log|blob)")


class Form(NamedTuple):
    """Role of a RocksDB directory in a store."""

    name: str
    since: str  # first RocketMQ version that writes it
    holds: str


PLACES = {
    "consumequeue": Form("consume queues", "5.2", "all queues of the store (storeType=defaultRocksDB)"),
    "config/topics": Form("topics", "5.x", "topic settings (config manager v1)"),
    "config/subscriptionGroups": Form("subscription groups", "5.x", "consumer groups (config manager v1)"),
    "config/consumerOffsets": Form("consumer offsets", "5.x", "consumer progress (config manager v1)"),
    "consumequeue_rocksdb": Form(
        "consume queues", str(V5_5), "all queues of the store (useSeparateStorePathForRocksdbCQ)"
    ),
    "config/metadata": Form(
        "config", str(V5_4), "topics, groups and consumer progress (useSingleRocksDBForAllConfigs)"
    ),
    "config/rdb": Form("config v2", "5.x", "topics, groups and consumer progress (config manager v2)"),
    "config/users": Form("users", str(V5_3), "accounts of the auth module"),
    "config/acls": Form("access lists", str(V5_3), "permissions of the auth module"),
    "kvStore": Form("pop records", "5.x", "messages that pop consumers hold"),
    "rocksdbstore": Form("index, timers, transactions", str(V5_4), "index, timers and half messages"),
    "RocksDBMessageStore": Form("index, timers, transactions", "after 5.3", "indexes of newer development versions"),
}
_UNKNOWN = Form("unknown", "", "a RocksDB directory in no known place")


def is_rocksdb(file_names: Iterable[str]) -> bool:
    """Return whether a directory with these entries is a RocksDB database: it has CURRENT and a MANIFEST."""
    names = set(file_names)
    return "CURRENT" in names and any(re.fullmatch(r"MANIFEST-\d+", name) for name in names)


def has_remains(file_names: Iterable[str]) -> bool:
    """Return whether a directory is a RocksDB database or the remains of one."""
    return any(name == "CURRENT" or _TABLES.fullmatch(name) for name in file_names)


def starts_database(name: str) -> bool:
    """Return whether this file makes RocksDB (as in 5.3.3) open the directory as an existing database, or fail to.

    If there are only tables, RocksDB creates a new database.
    """
    return _STARTS.fullmatch(name) is not None


def is_table_or_log(name: str) -> bool:
    """Return whether a file of a database holds data, or lists the files that do. ``CURRENT`` names such a manifest."""
    return _READ.fullmatch(name) is not None


def describe(file_names: Iterable[str], place: str) -> Form | None:
    """Return which of the broker's databases a directory is, or None if it is not a database.

    In a known place, a database that has lost files still counts as one.

    Args:
        place: path of the directory relative to the store's root, with ``/`` separators.
    """
    names, form = set(file_names), PLACES.get(place.strip("/"))
    if is_rocksdb(names) or (form is not None and has_remains(names)):
        return form or _UNKNOWN
    return None
