"""A directory with several stores, such as the root of a broker container, which has one per broker."""

import os

from rmqtool.store.disk.directories import DirectoryEntry, list_dir
from rmqtool.store.layout.paths import is_dledger_log

_PARTS = ("commitlog", "consumequeue", "consumequeue_rocksdb")


def stores_below(root: str) -> list[str]:
    """Paths of the stores in a directory, by name; empty if the directory is a store itself.

    Raises:
        UnreadableStore: it, or a directory in it, cannot be listed.
    """
    entries = list_dir(root)
    if _holds_a_store(entries):
        return []
    return [entry.path for entry in entries if entry.is_dir() and _holds_a_store(list_dir(entry.path))]


def _holds_a_store(entries: list[DirectoryEntry]) -> bool:
    """Whether a directory is a store, judged by parts that only stores have."""
    return any((entry.name in _PARTS and entry.is_dir()) or is_dledger_log(entry) for entry in entries)


def name_below(root: str, store: str) -> str:
    """The path of a store relative to its container."""
    return os.path.relpath(store, root)
