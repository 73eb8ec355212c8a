"""An open store as its consumers see it, whichever way it was opened."""

from rmqtool.services.open_store.reading import LiveReading, Reading
from rmqtool.services.open_store.store import Store
from rmqtool.services.open_store.union import UnionReading, UnionStore


def read_store(store: Store) -> Reading:
    """Choose the way in which a store is read: open for writing, several copies, or just a directory."""
    if isinstance(store, UnionStore):
        return UnionReading(store)
    return LiveReading(store) if store.writable else Reading(store)
