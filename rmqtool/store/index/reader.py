"""Look keys up in the index files (store.index.IndexService.queryOffset; store-engine 5.4)."""

import errno
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from formats.errors import FormatError
from formats.index import HEADER_SIZE, Header, chain, file_size, infer_geometry, key_hash, read_header, slot_at
from rmqtool.errors import UnreadableStore
from rmqtool.store.disk.directories import file_size as size_of
from rmqtool.store.disk.mapping import is_partial, map_file, need
from rmqtool.store.disk.readable import is_fully_readable
from rmqtool.store.disk.remote import place_of
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.paths import DEFAULT_ENTRIES, DEFAULT_SLOTS, StoreLayout

MAX_TIME = 2**63 - 1


class IndexView:
    """A readable index file. It is mapped on access, so that only a few of many are mapped at a time.

    Attributes:
        path: of the file.
        header: the header when the file was opened.
        slots, entries: capacity of the file.
    """

    __slots__ = ("_file", "_whole", "entries", "header", "path", "slots")

    def __init__(self, file: Segment, header: Header, slots: int, entries: int, *, whole: bool = True) -> None:
        self._file, self._whole = file, whole
        self.path, self.header, self.slots, self.entries = file.path, header, slots, entries

    @property
    def view(self) -> memoryview:
        """The file's bytes; keep this object while reading more than once."""
        return self._file.view() if self._whole else self._file.map()


class BadIndex(NamedTuple):
    """An unreadable index file, with the reason. Look-ups are then incomplete."""

    path: str
    reason: str


def open_index(
    layout: StoreLayout, paths: Sequence[str] | None = None, *, whole: bool = True
) -> Iterator[IndexView | BadIndex]:
    """Open index files, newest first. The geometry of an empty one may be unknown, but is not needed.

    Args:
        paths: which files; all if None.
        whole: see :func:`rmqtool.store.disk.segments.map_file`.
    """
    configured = layout.index_geometry()
    for path in reversed(layout.index_paths() if paths is None else paths):
        file = segment_of(path)
        if not _is_readable(path, whole=configured is None):
            yield BadIndex(path, os.strerror(errno.EIO))
            continue
        view = file.view() if whole else file.map()
        need(view, 0, HEADER_SIZE)
        try:
            header = read_header(view)
        except FormatError as err:
            yield BadIndex(path, str(err))
            continue
        geometry = configured or _geometry(view) or ((1, 1) if header.index_count <= 1 else None)
        if geometry is None:
            yield BadIndex(path, "the numbers of its slots and entries are not known (see --broker-conf)")
        elif slot_at(geometry[0]) > len(view):
            yield BadIndex(path, f"{len(view)} bytes long: too short for {geometry[0]} hash slots")
        else:
            del view
            yield IndexView(file, header, *geometry, whole=whole)


def pass_over_unreadable(layout: StoreLayout) -> None:
    """Have a layout leave out the index files that a failing disk cannot read; each is read once."""
    for path in layout.index_paths():
        if place_of(path) is None and not is_fully_readable(path, size_of(path) or 0):
            layout.pass_over(path, UnreadableStore(f"{path}: {os.strerror(errno.EIO)}"))


def _is_readable(path: str, *, whole: bool = True) -> bool:
    """Whether the disk reads a file before it is mapped: through a mapping, a bad sector would be fatal.

    Args:
        whole: not only the header, as inferring a geometry reads most of a file. That of a file of the default size is
            known.
    """
    if place_of(path) is not None:
        return True
    size = size_of(path) or 0
    whole = whole and size != file_size(DEFAULT_SLOTS, DEFAULT_ENTRIES)
    return is_fully_readable(path, size if whole else min(size, HEADER_SIZE))


def segment_of(path: str) -> Segment:
    """An index file as a segment, opened on access.

    Raises:
        UnreadableStore: the file does not exist.
    """
    size = 0 if place_of(path) is None else size_of(path)
    if size is None:
        raise UnreadableStore(f"{path}: no such file")
    return Segment(path, 0, size, 0)


def _geometry(view: memoryview) -> tuple[int, int] | None:
    """(slots, entries) inferred from the contents; for a remote file from the length, if that is the default one."""
    if is_partial(view):
        if len(view) == file_size(DEFAULT_SLOTS, DEFAULT_ENTRIES):
            return DEFAULT_SLOTS, DEFAULT_ENTRIES
        need(view, 0, len(view))
    return infer_geometry(view)


def geometry_of(layout: StoreLayout) -> tuple[int, int]:
    """(hash slots, entries) of new files: configured, as in existing files, or the broker's default."""
    configured = layout.index_geometry()
    if configured is not None:
        return configured
    for path in filter(_is_readable, layout.index_paths()):
        geometry = _geometry(memoryview(map_file(path, whole=False)))
        if geometry is not None:
            return geometry
    return DEFAULT_SLOTS, DEFAULT_ENTRIES


def _overlaps(header: Header, begin: int, end: int) -> bool:
    low, high = header.begin_timestamp, header.end_timestamp
    return (begin < low and end > high) or low <= begin <= high or low <= end <= high


def physical_offsets(
    files: list[IndexView], topic: str, key: str, *, limit: int, begin: int = 0, end: int = MAX_TIME
) -> list[int]:
    """Physical offsets of messages with a key of the same hash, newest first; collisions are not resolved here.

    Args:
        files: newest first.
        limit: maximum number of offsets.
        begin, end: range of store times in ms; compared in whole seconds since each file's begin time, as by the
            broker.
    """
    wanted = key_hash(topic, key)
    offsets: list[int] = []
    for file in files:
        if file.header.index_count > 1 and _overlaps(file.header, begin, end):
            for _number, entry in chain(file.view, file.slots, wanted, file.header.index_count):
                if entry.seconds < 0:
                    break
                time = file.header.begin_timestamp + 1000 * entry.seconds
                if entry.key_hash == wanted and begin <= time <= end:
                    offsets.append(entry.physical_offset)
                    if len(offsets) >= limit:
                        return offsets
                if time < begin:
                    break
        if file.header.begin_timestamp < begin:
            break
    return offsets
