"""A directory that holds several stores, as the root of a broker container does: one of each broker in it."""

import os

from rmqtool.store.disk.segments import DirectoryEntry, list_dir

_PARTS = ("commitlog", "consumequeue", "consumequeue_rocksdb")


def stores_below(root: str) -> list[str]:
    """Paths of the stores in a directory, by name; none where the directory is a store itself.

    Raises:
        UnreadableStore: it cannot be listed, or one of the directories in it.
    """
    entries = list_dir(root)
    if _holds_a_store(entries):
        return []
    return [entry.path for entry in entries if entry.is_dir() and _holds_a_store(list_dir(entry.path))]


def _holds_a_store(entries: list[DirectoryEntry]) -> bool:
    """By the parts that only a store has."""
    return any((entry.name in _PARTS or entry.name.startswith("dledger-")) and entry.is_dir() for entry in entries)


def name_below(root: str, store: str) -> str:
    """A store's name in its container."""
    return os.path.relpath(store, root)
