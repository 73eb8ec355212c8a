"""Equal-sized files seen as one offset space (store.MappedFileQueue).

Files are opened on the first read, and always read-only: inspecting a store must not change it.
"""

import errno
import os
from _weakref import ref  # as weakref has it, which takes time to load
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from stat import S_ISREG

from rmqtool.errors import CorruptFile, UnreadableStore
from rmqtool.store.disk.mapping import MAPPED, forget, freeing, map_file, read_at
from rmqtool.store.disk.remote import Partial, RemoteStat, need, place_of

EMPTY = memoryview(b"")
_TOO_FAR = 2**63 - 2**40
_EARLY = 1 << 16  # bytes; smaller writes are not worth a call
_AT_ONCE = 2 << 20  # bytes per write, copied while the medium writes the previous ones


class Segment:
    """A file whose name is the offset of its first byte.

    Attributes:
        where: path of the file that holds the data.
        entries: whether it is a file of a DLedger log.
    """

    __slots__ = ("__weakref__", "_view", "base", "entries", "mtime_ns", "path", "size", "where")

    def __init__(self, path: str, base: int, size: int, mtime_ns: int, *, entries: bool = False) -> None:
        self.path, self.base, self.size, self.mtime_ns = path, base, size, mtime_ns
        self.entries = entries
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
        """Like :meth:`view`, for callers that announce what they read with :func:`rmqtool.store.disk.remote.need`."""
        view = self._view
        if view is None:
            place = place_of(self.where)
            # a remote file is limited to the size it had when the store was listed
            view = self._view = memoryview(
                map_file(self.where, entries=self.entries) if place is None else place.map(self.where, self.size)
            )
            self.size = len(view)
            if place is None and view:
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


def write_all(fd: int, data: bytes | memoryview, at: int) -> None:
    """Write all of ``data`` at an offset, in as many calls as it takes."""
    rest = memoryview(data)
    while rest:
        done = os.pwrite(fd, rest, at)
        rest, at = rest[done:], at + done


def write_early(fd: int, data: bytes | memoryview, at: int) -> None:
    """Like :func:`write_all`, for data that will be synced soon: starts writeback at once."""
    rest = memoryview(data)
    while rest:
        part, rest = rest[:_AT_ONCE], rest[_AT_ONCE:]
        write_all(fd, part, at)
        if len(part) >= _EARLY and hasattr(os, "posix_fadvise"):
            # DONTNEED starts writeback of dirty pages; those being written stay in memory
            with suppress(OSError):  # only advice
                os.posix_fadvise(fd, at, len(part), os.POSIX_FADV_DONTNEED)
        at += len(part)


class DirectoryEntry:
    """A name in a directory; circular and dangling links are neither files nor directories."""

    __slots__ = ("_entry", "name", "path")

    def __init__(self, entry: os.DirEntry[str]) -> None:
        self.name, self.path, self._entry = entry.name, entry.path, entry

    def is_file(self) -> bool:
        """Whether it is a regular file, or a link to one."""
        return self._ask(self._entry.is_file)

    def is_dir(self) -> bool:
        """Whether it is a directory, or a link to one."""
        return self._ask(self._entry.is_dir)

    @property
    def size(self) -> int:
        """Size in bytes, of the target if it is a link."""
        return self._entry.stat().st_size

    @property
    def mtime_ns(self) -> int:
        """Modification time, of the target if it is a link."""
        return self._entry.stat().st_mtime_ns

    def _ask(self, question: Callable[[], bool]) -> bool:
        try:
            return question()
        except OSError as err:
            if err.errno == errno.ELOOP:
                return False
            raise UnreadableStore(f"{self.path}: {os.strerror(err.errno or 0)}") from err


class RemoteEntry(DirectoryEntry):
    """A name in a directory of a remote store."""

    __slots__ = ("_status",)

    def __init__(self, directory: str, status: RemoteStat) -> None:
        self.name, self.path, self._status = status.name, f"{directory}/{status.name}", status

    def is_file(self) -> bool:
        return not self._status.is_dir

    def is_dir(self) -> bool:
        return self._status.is_dir

    @property
    def size(self) -> int:
        return self._status.size

    @property
    def mtime_ns(self) -> int:
        return self._status.mtime_ns


def list_dir(path: str) -> list[DirectoryEntry]:
    """Directory entries sorted by name; empty if the directory does not exist.

    Raises:
        UnreadableStore: no permission, or not a directory.
    """
    if (place := place_of(path)) is not None:
        return [RemoteEntry(path, status) for status in place.entries(path)]
    try:
        with freeing(lambda: os.scandir(path)) as entries:
            return sorted(map(DirectoryEntry, entries), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as err:
        raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
    except ValueError as err:
        raise UnreadableStore(f"{path!r}: {err}") from err  # a path that contains a NUL


def files_below(path: str) -> tuple[int, int]:
    """(number of files, bytes) below a directory; local directories that cannot be listed are not counted."""
    if place_of(path) is not None:
        counts = [files_below(entry.path) if entry.is_dir() else (1, entry.size) for entry in list_dir(path)]
        return sum(files for files, _size in counts), sum(size for _files, size in counts)
    files = size = 0
    for directory, _subdirs, names in os.walk(path):
        for name in names:
            files += 1
            size += os.lstat(os.path.join(directory, name)).st_size
    return files, size


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
        listing: "Callable[[str], list[DirectoryEntry]] | None" = None,
        *,
        entries: Collection[str] = (),
    ) -> "Segments":
        """List the directories; a missing one counts as empty.

        Args:
            listing: returns the entries of a directory; :func:`list_dir` by default.
            entries: those directories that belong to a DLedger log.

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
                    files.append(Segment(entry.path, base, size, changed, entries=directory in entries))
                except OSError as err:
                    raise UnreadableStore(f"{entry.path}: {os.strerror(err.errno or 0)}") from err
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


def read_small(path: str, limit: int = 64 << 20) -> bytes | None:
    """The contents of a small file; None if it does not exist.

    Raises:
        UnreadableStore: no permission, or not a regular file.
        CorruptFile: larger than ``limit``, which no such file ever is.
    """
    place = place_of(path)
    data = _read_local(path, limit + 1) if place is None else place.read(path, limit + 1)
    if data is not None and len(data) > limit:
        raise CorruptFile(path, limit, f"larger than {limit} bytes")
    return data


def _read_local(path: str, size: int) -> bytes | None:
    try:
        fd = freeing(lambda: os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        with open(fd, "rb") as file:
            if not S_ISREG(os.fstat(fd).st_mode):
                raise UnreadableStore(f"{path}: not a regular file")
            return file.read(size)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
    except ValueError as err:  # the path contains a NUL
        raise UnreadableStore(f"{path!r}: no path") from err
