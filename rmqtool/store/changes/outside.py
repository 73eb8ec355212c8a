"""Files that a store may share with another one, whose broker holds another lock.

A copy of a store leads to the log of the original where its settings, or a symbolic link that was copied, do. A copy
made of hard links has the very files.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rmqtool.errors import Refused
from rmqtool.store.changes.places import Places
from rmqtool.store.disk.lock import StoreLock
from rmqtool.store.disk.openers import writers_below
from rmqtool.store.layout.paths import StoreLayout


@contextmanager
def locked_store(layout: StoreLayout, named: Iterable[str] = ()) -> Iterator[Places]:
    """Hold the broker's lock on a store whose files belong to no other store.

    Args:
        named: as for :meth:`Places.of`.

    Raises:
        Refused: the store is in use, or shares files with another one.
    """
    refuse_parts_of_another(layout)
    places = Places.of(layout, named)
    with StoreLock(places.root):
        refuse_shared_files(places)
        yield places


def refuse_parts_of_another(layout: StoreLayout) -> None:
    """Check that the settings are not those of another store that is here too, with parts outside of both.

    Raises:
        Refused: they are, so those parts belong to the other one.
    """
    written = layout.conf.text("storePathRootDir")
    if written is None or not os.path.isdir(other := os.path.realpath(written)):
        return
    places = Places.of(layout)
    outside = places.outside()
    if other != places.real and outside:
        raise Refused(
            f"{outside[0]}: belongs to the store in {written} (storePathRootDir of {layout.conf.path}), not to "
            f"{layout.root}: nothing was changed. Give that store, or settings with the paths of this one"
        )


def refuse_shared_files(places: Places) -> None:
    """Check that no other process writes to parts outside the store, or to log files that have another hard link.

    Raises:
        Refused: one has such a file open for writing, as the broker of another store does, with another lock.
    """
    for writer, path in writers_below(places.outside(), places.log_folders):
        raise Refused(
            f"{path}: {writer} has it open, and holds another lock than that of {places.root}: is it the broker "
            "of another store with the same files? Nothing was changed"
        )
