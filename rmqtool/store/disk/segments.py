"""Equal-sized files seen as one offset space (store.MappedFileQueue).

Nothing is opened until it is read, and everything is opened read-only: looking at a store must not change it.
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
from rmqtool.store.disk.remote import Known, Partial, need, place_of

EMPTY = memoryview(b"")
_TOO_FAR = 2**63 - 2**40
_EARLY = 1 << 16  # bytes; less is not worth a call
_AT_ONCE = 2 << 20  # bytes that are copied while the medium writes those before them


class Segment:
    """One file whose name is the offset of its first byte.

    Attributes:
        where: path of the file that holds its bytes.
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
        """The file's bytes, mapped once and kept until :meth:`release`, or until many others were mapped since."""
        view = self.map()
        if isinstance(mapped := view.obj, Partial):
            mapped.need_whole()
        return view

    def map(self) -> memoryview:
        """As :meth:`view`, for those who say by :func:`rmqtool.store.disk.remote.need` what they look at."""
        view = self._view
        if view is None:
            place = place_of(self.where)
            # of a file elsewhere no more is looked at than was known of it
            view = self._view = memoryview(
                map_file(self.where, entries=self.entries) if place is None else place.map(self.where, self.size)
            )
            self.size = len(view)
            if place is None and view:
                MAPPED.add(self)
        return view

    def read(self, at: int, size: int) -> bytes:
        """Bytes [at, at + size) of the file, as far as it goes; of one that is not mapped without mapping it.

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
        """Let the kernel take back the pages of [start, stop): a long scan must not count as this process's memory."""
        if (view := self._view) is not None:
            forget(view, start, stop)

    def release(self) -> None:
        """Drop the mapping; views handed out keep it alive as long as they live."""
        if self._view is not None:
            self._view = None
            MAPPED.drop(id(self))

    def let_go(self) -> bool:
        """Drop the mapping unless views of it exist; whether it is gone."""
        view = self._view
        if view is None:
            return True
        mapped = view.obj
        alive = ref(mapped)
        self._view = None
        del view, mapped
        if (kept := alive()) is None:
            return True
        if self._view is None:
            self._view = memoryview(kept)
        return False


def write_all(fd: int, data: bytes | memoryview, at: int) -> None:
    """Write at a position all of it, which one call need not do."""
    left = memoryview(data)
    while left:
        done = os.pwrite(fd, left, at)
        left, at = left[done:], at + done


def write_early(fd: int, data: bytes | memoryview, at: int) -> None:
    """As :func:`write_all`, of what will be synced soon: the medium begins with it now."""
    left = memoryview(data)
    while left:
        part, left = left[:_AT_ONCE], left[_AT_ONCE:]
        write_all(fd, part, at)
        if len(part) >= _EARLY and hasattr(os, "posix_fadvise"):
            # what is not needed in memory any more is written; what is being written stays there
            with suppress(OSError):  # it is advice
                os.posix_fadvise(fd, at, len(part), os.POSIX_FADV_DONTNEED)
        at += len(part)


class DirectoryEntry:
    """A name in a directory; a link that leads in a circle is neither file nor directory, as one that leads nowhere."""

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
        """Bytes of what a link leads to."""
        return self._entry.stat().st_size

    @property
    def mtime_ns(self) -> int:
        """When that was changed."""
        return self._entry.stat().st_mtime_ns

    def _ask(self, question: Callable[[], bool]) -> bool:
        try:
            return question()
        except OSError as err:
            if err.errno == errno.ELOOP:
                return False
            raise UnreadableStore(f"{self.path}: {os.strerror(err.errno or 0)}") from err


class FarEntry(DirectoryEntry):
    """A name in a directory of a store that is elsewhere."""

    __slots__ = ("_known",)

    def __init__(self, directory: str, known: Known) -> None:
        self.name, self.path, self._known = known.name, f"{directory}/{known.name}", known

    def is_file(self) -> bool:
        return not self._known.is_dir

    def is_dir(self) -> bool:
        return self._known.is_dir

    @property
    def size(self) -> int:
        return self._known.size

    @property
    def mtime_ns(self) -> int:
        return self._known.mtime_ns


def list_dir(path: str) -> list[DirectoryEntry]:
    """Directory entries sorted by name; none when the directory is missing.

    Raises:
        UnreadableStore: no permission, or not a directory.
    """
    if (place := place_of(path)) is not None:
        return [FarEntry(path, known) for known in place.entries(path)]
    try:
        with freeing(lambda: os.scandir(path)) as entries:
            return sorted(map(DirectoryEntry, entries), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as err:
        raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
    except ValueError as err:
        raise UnreadableStore(f"{path!r}: {err}") from err  # a path with a zero byte in it


def files_below(path: str) -> tuple[int, int]:
    """(files, bytes) below a directory; what cannot be listed here is not counted."""
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
    """The offset that a file name says, or None for a foreign file. Java takes any decimal digits, non-Latin too.

    No file can begin so near the last offset of a ``long`` that its end would lie beyond.
    """
    offset = int(name) if name.isdecimal() and len(name) <= 20 else _TOO_FAR
    return offset if offset < _TOO_FAR else None


def name_of(offset: int) -> str:
    """20 digits, zero-padded."""
    return f"{offset:020d}"


class Segments:
    """The files of one directory, or of several that share one offset space (``MultiPathMappedFileQueue``).

    Attributes:
        files: files with a numeric name, in the broker's order (by name).
        foreign: paths in the directory that are not such files.
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
            entries: those of them that are of a DLedger log.
            listing: gives what is in a directory; :func:`list_dir` by default.

        Raises:
            UnreadableStore: a directory or a file in it cannot be looked at.
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
        """The file that holds an offset."""
        at = bisect_right(self._bases, offset) - 1
        if at < 0:
            return None
        file = self.files[at]
        return file if offset < file.end else None

    @property
    def bytes(self) -> int:
        """Sum of the files' lengths."""
        return sum(file.size for file in self.files)


def common_size(segments: Iterable[Segment]) -> int | None:
    """The file size that the files tell: their common length, else the step between their names; None without files."""
    files = list(segments)
    lengths = [file.size for file in files if file.size]
    if len(set(lengths)) == 1:
        return lengths[0]
    # some file is too short or too long: names are spaced by the true size, or by a multiple where one is missing
    steps = [b.base - a.base for a, b in pairwise(files) if b.base > a.base]
    known = [size for size in lengths if size in steps]
    return max(known, key=known.count) if known else min(steps, default=max(lengths, default=None))


def read_small(path: str, limit: int = 64 << 20) -> bytes | None:
    """A small file's bytes; None when it does not exist.

    Raises:
        UnreadableStore: no permission, or not a regular file.
        CorruptFile: larger than ``limit``, which no such file ever is.
    """
    place = place_of(path)
    data = _read_here(path, limit + 1) if place is None else place.read(path, limit + 1)
    if data is not None and len(data) > limit:
        raise CorruptFile(path, limit, f"larger than {limit} bytes")
    return data


def _read_here(path: str, size: int) -> bytes | None:
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
    except ValueError as err:  # a NUL in it, which no shell gives, but a program may
        raise UnreadableStore(f"{path!r}: no path") from err
