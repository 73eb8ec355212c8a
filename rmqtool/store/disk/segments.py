"""Equal-sized files seen as one offset space (store.MappedFileQueue).

Files are opened on the first read, and always read-only: inspecting a store must not change it.
"""

import os
from _weakref import ref  # as weakref has it, which takes time to load
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise
from time import time

from rmqtool.errors import UnreadableStore
from rmqtool.store.disk.directories import DirectoryEntry, list_dir
from rmqtool.store.disk.mapping import MAPPED, forget, map_file, need, read_at
from rmqtool.store.disk.remote import Partial, place_of

EMPTY = memoryview(b"")
_TOO_FAR = 2**63 - 2**40


class Segment:
    """A file whose name is the offset of its first byte.

    Attributes:
        where: path of the file that holds the data.
        entries: whether it is a file of a DLedger log.
        whole_pages: whether whatever is appended is written up to the end of a page, with old bytes of the buffer
            (``writeWithoutMmap`` of 5.4 and later).
    """

    __slots__ = ("__weakref__", "_view", "base", "entries", "mtime_ns", "path", "size", "where", "whole_pages")

    def __init__(
        self, path: str, base: int, size: int, mtime_ns: int, *, entries: bool = False, whole_pages: bool = False
    ) -> None:
        self.path, self.base, self.size, self.mtime_ns = path, base, size, mtime_ns
        self.entries, self.whole_pages = entries, whole_pages
        self.where = path
        self._view: memoryview | None = None

    @property
    def end(self) -> int:
        """Offset after the file's last byte."""
        return self.base + self.size

    def view(self) -> memoryview:
        """The file's bytes, mapped once and kept until :meth:`release` or until many others have been mapped."""
        view = self.map()
        if isinstance(mapped := view.obj, Partial):
            mapped.need_whole()
        return view

    def map(self) -> memoryview:
        """Like :meth:`view`, for callers that announce what they read with :func:`rmqtool.store.disk.mapping.need`."""
        view = self._view
        if view is None:
            mapped = map_file(self.where, size=self.size, whole=False, entries=self.entries)
            view = self._view = memoryview(mapped)
            self.size = len(view)
            if view and not isinstance(mapped, Partial):
                MAPPED.add(self)
        return view

    def read(self, at: int, size: int) -> bytes:
        """Bytes [at, at + size), up to the end of the file; a file that is not mapped stays unmapped.

        Raises:
            UnreadableStore: they cannot be read.
        """
        view = self._view
        if view is None and place_of(self.where) is None:
            return read_at(self.where, at, size)
        view = self.map()
        need(view, at, at + size)
        return bytes(view[at : at + size])

    def is_changed_within(self, seconds: float) -> bool:
        """Whether the local file was changed in the last seconds; False if nobody can tell."""
        try:
            return place_of(self.where) is None and time() - os.stat(self.where).st_mtime < seconds
        except OSError:
            return False

    def forget(self, start: int, stop: int) -> None:
        """Release the pages of [start, stop), so that a long scan does not count as memory of this process."""
        if (view := self._view) is not None:
            forget(view, start, stop)

    def release(self) -> None:
        """Drop the mapping; it lives on as long as views handed out earlier."""
        if self._view is not None:
            self._view = None
            MAPPED.drop(id(self))

    def let_go(self) -> bool:
        """Drop the mapping unless views of it exist; returns whether it is gone."""
        view = self._view
        if view is None:
            return True
        mapped = view.obj
        alive = ref(mapped)
        self._view = None
        del view, mapped
        if (revived := alive()) is None:
            return True
        if self._view is None:
            self._view = memoryview(revived)
        return False


def offset_name(name: str) -> int | None:
    """The offset in a file name, or None for a foreign file. Java accepts any decimal digits, even non-Latin ones.

    Offsets so large that the file's end would exceed a ``long`` are rejected.
    """
    offset = int(name) if name.isdecimal() and len(name) <= 20 else _TOO_FAR
    return offset if offset < _TOO_FAR else None


def name_of(offset: int) -> str:
    """The file name of an offset: 20 digits, zero-padded."""
    return f"{offset:020d}"


class Segments:
    """The files of one directory, or of several that form one offset space (``MultiPathMappedFileQueue``).

    Attributes:
        files: files with a numeric name, in the broker's order (by name).
        foreign: paths of everything else in the directories.
    """

    def __init__(self, files: list[Segment], foreign: list[str]) -> None:
        self.files = files
        self.foreign = foreign
        self._bases = [file.base for file in files]

    @classmethod
    def of(
        cls,
        directories: Iterable[str],
        listing: Callable[[str], list[DirectoryEntry]] | None = None,
        *,
        entries: Collection[str] = (),
        whole_pages: bool = False,
    ) -> "Segments":
        """List the directories; a missing one counts as empty.

        Args:
            listing: returns the entries of a directory; :func:`list_dir` by default.
            entries: those directories that belong to a DLedger log.
            whole_pages: see :class:`Segment`.

        Raises:
            UnreadableStore: a directory or a file in it cannot be read.
        """
        files, foreign = [], []
        for directory in directories:
            for entry in (listing or list_dir)(directory):
                base = offset_name(entry.name)
                try:
                    if base is None or not entry.is_file():
                        foreign.append(entry.path)
                        continue
                    size, changed = entry.size, entry.mtime_ns
                    is_log = directory in entries
                    files.append(Segment(entry.path, base, size, changed, entries=is_log, whole_pages=whole_pages))
                except OSError as err:
                    raise UnreadableStore(f"{entry.path}: {os.strerror(err.errno or 0)}") from err
        if len(files) > 1:
            files.sort(key=lambda file: os.path.basename(file.path))
        return cls(files, foreign)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def find(self, offset: int) -> Segment | None:
        """The file that contains an offset; None if there is none."""
        at = bisect_right(self._bases, offset) - 1
        if at < 0:
            return None
        file = self.files[at]
        return file if offset < file.end else None

    @property
    def bytes(self) -> int:
        """Total size of the files."""
        return sum(file.size for file in self.files)


def common_size(segments: Iterable[Segment]) -> int | None:
    """The file size inferred from the files: their common length, else the step of their names; None without files."""
    files = list(segments)
    lengths = [file.size for file in files if file.size]
    if len(set(lengths)) == 1:
        return lengths[0]
    # some file is too short or too long: the names are spaced by the real size, or by a multiple if files are missing
    steps = [b.base - a.base for a, b in pairwise(files) if b.base > a.base]
    plausible = [size for size in lengths if size in steps]
    return max(plausible, key=plausible.count) if plausible else min(steps, default=max(lengths, default=None))
