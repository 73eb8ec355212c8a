"""Remote directories through pyarrow's file systems, as :mod:`rmqtool.store.disk.remote` has them.

Loaded for stores at a URI alone: file systems and their libraries take longer to load than a small store to read.
"""

import os
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import cached_property
from threading import Lock
from typing import TypeVar

import pyarrow as pa
from pyarrow import fs

from formats.endings import Ending
from formats.message.read import Record
from rmqtool.analytics.remote.files import open_uri
from rmqtool.analytics.remote.meter import METER
from rmqtool.analytics.remote.mirror import MOST, Mirror
from rmqtool.analytics.remote.secrets import remove_secrets
from rmqtool.errors import BadValue, UnreadableStore
from rmqtool.store.disk.mapping import need
from rmqtool.store.disk.remote import RemoteStat, show_uri
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.log.records import next_record, record_at

_PATTERN = re.compile(r"[*\[]")  # a question mark starts the options of a URI
_LINE = re.compile(r"[\r\n].*", re.DOTALL)
_ERRORS = (OSError, ValueError, ImportError, pa.ArrowException)
_PROBE = 16 << 10  # bytes inspected to see whether a file has data at a position
_LONG_WALK = 64 << 20  # maximum number of bytes from the position found by bisection to the end of the log
_R = TypeVar("_R")


class Remote:
    """A remote store, as of its first listing; see :class:`rmqtool.store.disk.remote.RemotePlace`.

    Args:
        uri: URI of the store.
        listing: id of the listing; another id causes a new listing.

    Raises:
        BadValue: a URI of an unknown file system.
    """

    def __init__(self, uri: str, listing: str = "") -> None:
        self.uri, self.listing, self.root = uri, listing, show_uri(uri)
        self._fs, path = open_place(uri)
        self._path = path.rstrip("/")

    @cached_property
    def _directories(self) -> dict[str, dict[str, RemoteStat]]:
        """Entries by name of every directory, by the directory's path in the store."""
        directories: dict[str, dict[str, RemoteStat]] = {"": {}}
        selector = fs.FileSelector(self._path, allow_not_found=True, recursive=True)
        for info in _call(self.root, lambda: self._fs.get_file_info(selector)):
            parts = info.path[len(self._path) :].strip("/").split("/")
            is_dir = info.type == fs.FileType.Directory
            # object storage has no real directories: they are implied by the paths of files
            for level in range(1, len(parts) + is_dir):
                above, name = "/".join(parts[: level - 1]), parts[level - 1]
                directories.setdefault("/".join(parts[:level]), {})
                directories.setdefault(above, {})[name] = RemoteStat(name, is_dir=True, size=0, mtime_ns=0)
            if info.type == fs.FileType.File:
                status = RemoteStat(parts[-1], is_dir=False, size=info.size, mtime_ns=info.mtime_ns or 0)
                directories.setdefault("/".join(parts[:-1]), {})[status.name] = status
        return directories

    def entries(self, path: str) -> list[RemoteStat]:
        """Return the entries of a directory, sorted by name."""
        return sorted(self._directories.get(self._inside(path), {}).values())

    def find(self, path: str) -> RemoteStat | None:
        """Return a file or directory, or None."""
        above, _slash, name = self._inside(path).rpartition("/")
        if not name:
            return RemoteStat("", is_dir=True, size=0, mtime_ns=0) if self._directories[""] else None
        return self._directories.get(above, {}).get(name)

    def read(self, path: str, limit: int) -> bytes | None:
        """Return the first bytes of a file."""
        status = self.find(path)
        if status is None or status.is_dir:
            return None
        return self._fetch(path, 0, min(status.size, limit)) if status.size else b""

    def map(self, path: str, size: int | None = None) -> Mirror | bytes:
        """Map the first bytes of a file; they are fetched when needed.

        Raises:
            UnreadableStore: the file does not exist.
        """
        if size is None:
            status = self.find(path)
            if status is None or status.is_dir:
                raise UnreadableStore(f"{path}: no such file")
            size = status.size
        return Mirror(size, _Source(self, path).fetch) if size else b""

    def open(self, path: str) -> pa.NativeFile:
        """Open a file for reading parts of it."""
        return _call(path, lambda: self._fs.open_input_file(f"{self._path}/{self._inside(path)}"))

    def _fetch(self, path: str, start: int, stop: int) -> bytes:
        return _Source(self, path).fetch(start, stop)

    def _inside(self, path: str) -> str:
        return path[len(self.root) :].strip("/")


class _Source:
    """One file of a store, opened on the first read."""

    def __init__(self, remote: Remote, path: str) -> None:
        self._remote, self._path = remote, path
        self._lock = Lock()

    @cached_property
    def _file(self) -> pa.NativeFile:
        return self._remote.open(self._path)

    def fetch(self, start: int, stop: int) -> bytes:
        """Return bytes [start, stop).

        Raises:
            UnreadableStore: they cannot be read.
        """
        with self._lock:
            file = self._file
        data: bytes = _call(self._path, lambda: file.read_at(stop - start, start))
        METER.add(len(data))
        if len(data) < stop - start:
            raise UnreadableStore(f"{self._path}: ends at byte {start + len(data)}, and was longer when it was listed")
        return data


def open_place(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URI and the path in it.

    Raises:
        BadValue: a URI of an unknown file system.
    """
    try:
        return open_uri(uri)
    except _ERRORS as err:
        raise BadValue(f"{show_uri(uri)}: {_first_line(err)}") from err


def _call(name: str, call: Callable[[], _R]) -> _R:
    """Return the result of a call; on an error, raise one that names the file."""
    try:
        return call()
    except _ERRORS as err:
        raise UnreadableStore(f"{name}: {_first_line(err)}") from err


def _first_line(err: Exception) -> str:
    return os.strerror(err.errno) if isinstance(err, OSError) and err.errno else _LINE.sub("", remove_secrets(str(err)))


def expand_pattern(uri: str) -> list[str]:
    """Return the URIs of directories matching a URI, whose path may contain ``*`` and ``[...]``.

    Raises:
        BadValue: a URI of an unknown file system.
        UnreadableStore: there is no match, or the server does not answer or denies access.
    """
    base, mark, options = uri.partition("?")
    scheme, rest = base.rstrip("/").split("://", 1)
    levels = rest.split("/")
    fixed = next((number for number, level in enumerate(levels) if number and _PATTERN.search(level)), len(levels))
    matches = ["/".join(levels[:fixed])]
    for level in levels[fixed:]:
        matches = [
            f"{above}/{name}" for above in matches for name in _names(f"{scheme}://{above}{mark}{options}", level)
        ]
    uris = [f"{scheme}://{path}{mark}{options}" for path in matches]
    if fixed == len(levels):
        system, path = open_place(uri)
        info = _call(show_uri(uri), lambda: system.get_file_info(path))
        uris = uris if info.type == fs.FileType.Directory else []
    if not uris:
        raise UnreadableStore(f"{show_uri(uri)}: no such directory")
    return uris


def _names(uri: str, pattern: str) -> list[str]:
    """Return the names of matching subdirectories."""
    system, path = open_place(uri)
    selector = fs.FileSelector(path, allow_not_found=True)
    infos = _call(show_uri(uri), lambda: system.get_file_info(selector))
    return sorted(i.base_name for i in infos if i.type == fs.FileType.Directory and fnmatchcase(i.base_name, pattern))


# -- where a closed log ends -------------------------------------------------------------------------------------------


def closed_end(log: CommitLog, time: int) -> tuple[int, int] | None:
    """Return (number of the file, byte offset) of the end of the log; None if it cannot be determined.

    Args:
        time: upper bound for the store time of the last message, ms.
    """
    files = log.segments.files
    for number in range(len(files) - 1 if time > 0 else -1, -1, -1):
        file = files[number]
        view = file.map()
        used = _length_in_use(view)
        if not used:
            continue  # allocated in advance
        at = used
        for back in (_PROBE, MOST):  # almost all messages are small
            if at == used:
                at = next_record(view, file.base, max(used - back, 0), used)
        seen, start = -1, at
        while isinstance(record := record_at(view, at, file.size, crc=False), Record) and at - start < _LONG_WALK:
            seen, at = record.store_timestamp, at + record.total_size
        if seen < time:
            return None
        if not isinstance(record, Record) and record.ending is Ending.FILLER and number + 1 < len(files):
            return number, file.size
        need(view, at, used)
        ended = not isinstance(record, Record) and record.ending in (Ending.UNWRITTEN, Ending.CLEAN)
        return (number, at) if ended and not any(view[at:used]) else None
    return None


def _length_in_use(view: memoryview) -> int:
    """Return the length up to the first long run of zeros, found by bisection; later bytes are not inspected."""
    low, high = 0, -(-len(view) // _PROBE)
    while low < high:
        middle = (low + high) // 2
        need(view, middle * _PROBE, (middle + 1) * _PROBE)
        if any(view[middle * _PROBE : (middle + 1) * _PROBE]):
            low = middle + 1
        else:
            high = middle
    return min(low * _PROBE, len(view))
