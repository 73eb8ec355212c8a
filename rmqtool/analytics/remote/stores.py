"""Stores in object storage and HDFS, identified by a URI and accessed through pyarrow's file systems.

Every process that reads looks for credentials where pyarrow does; options are part of the URI. Files are fetched in
parts (:mod:`rmqtool.analytics.remote.mirror`); nothing is ever written to the remote store.
"""

import os
import re
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import cached_property
from threading import Lock
from typing import TypeVar

import pyarrow as pa
from pyarrow import fs

from formats import checkpoint
from formats.endings import Ending
from formats.message.read import Record
from rmqtool.analytics.remote.files import open_uri
from rmqtool.analytics.remote.mirror import MOST, THREADS, Mirror
from rmqtool.analytics.remote.secrets import remove_secrets
from rmqtool.errors import BadValue, Refused, UnreadableStore
from rmqtool.store.disk.mapping import need
from rmqtool.store.disk.remote import RemoteStat, attach, is_uri, place_of, show_uri
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.log.records import next_record, record_at

_PATTERN = re.compile(r"[*\[]")  # a question mark starts the options of a URI
_LINE = re.compile(r"[\r\n].*", re.DOTALL)
_ERRORS = (OSError, ValueError, ImportError, pa.ArrowException)
_LOCAL = "file:"
_PROBE = 16 << 10  # bytes inspected to see whether a file has data at a position
_LONG_WALK = 64 << 20  # maximum number of bytes from the position found by bisection to the end of the log
_T = TypeVar("_T")
_R = TypeVar("_R")


class Meter:
    """Counts the bytes fetched by this process."""

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = Lock()

    def add(self, size: int) -> None:
        """Add to the count."""
        with self._lock:
            self.bytes += size


METER = Meter()


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
        self._fs, path = _open_uri(uri)
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


def _open_uri(uri: str) -> tuple[fs.FileSystem, str]:
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


def attach_store(uri: str, listing: str = "") -> str:
    """Register a store for its URI; return the path by which it is known.

    Args:
        listing: as for :class:`Remote`; if empty, any existing listing is used.
    """
    root = show_uri(uri)
    place = place_of(root)
    if not isinstance(place, Remote) or place.uri != uri or (listing and place.listing != listing):
        attach(root, Remote(uri, listing))
    return root


def new_listing() -> str:
    """Return an id for a new listing."""
    return uuid.uuid4().hex


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
        system, path = _open_uri(uri)
        info = _call(show_uri(uri), lambda: system.get_file_info(path))
        uris = uris if info.type == fs.FileType.Directory else []
    if not uris:
        raise UnreadableStore(f"{show_uri(uri)}: no such directory")
    return uris


def _names(uri: str, pattern: str) -> list[str]:
    """Return the names of matching subdirectories."""
    system, path = _open_uri(uri)
    selector = fs.FileSelector(path, allow_not_found=True)
    infos = _call(show_uri(uri), lambda: system.get_file_info(selector))
    return sorted(i.base_name for i in infos if i.type == fs.FileType.Directory and fnmatchcase(i.base_name, pattern))


def is_remote(path: str) -> bool:
    """Return whether a path is the URI of something on another machine."""
    return is_uri(path) and not path.startswith(_LOCAL)


def local_of(path: str) -> str:
    """Return the local path of a ``file:`` URI; other paths are returned unchanged."""
    return _open_uri(path)[1] if is_uri(path) and path.startswith(_LOCAL) else path


def resolve_store(store: str) -> str:
    """Return the argument for :class:`rmqtool.store.layout.paths.StoreLayout` for a path or URI of a store.

    Raises:
        BadValue: a URI of an unknown file system.
    """
    return attach_store(store, new_listing()) if is_remote(store) else local_of(store)


def keep_apart(out: str, root: str) -> None:
    """Reject an output inside or above a store at a URI.

    Raises:
        Refused: the output is inside or above the store.
    """
    if is_remote(out):
        place = show_uri(out)
        if f"{place}/".startswith(f"{root}/"):
            raise Refused(f"{place}: the output must not lie in the store ({root})")
        if root.startswith(f"{place}/"):
            raise Refused(f"{place}: the store ({root}) lies in it")


def each(function: Callable[[_T], _R], items: Sequence[_T], path: str) -> list[_R]:
    """Apply a function to each item; concurrently for a remote store, where most of the time is spent waiting.

    Args:
        path: path of the store.
    """
    if place_of(path) is None or len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(function, items))


# -- where a closed log ends -------------------------------------------------------------------------------------------


def open_log(layout: StoreLayout) -> CommitLog:
    """Open the commit log of a store; for a remote one, without the zeros after its end if the end is known.

    Files are allocated at full length, and the zeros after the last record need not be fetched: a broker that closes
    its store writes the time of its last message to the checkpoint.
    """
    log = CommitLog(layout)
    if place_of(layout.root) is None or layout.aborted:
        return log
    end = _closed_end(log, checkpoint.parse(layout.checkpoint() or b"").physic_msg_timestamp)
    if end is not None:
        number, at = end
        files = log.segments.files
        trimmed = [Segment(file.path, file.base, 0, file.mtime_ns) for file in files[number:]]
        trimmed[0].size = at
        log.segments = Segments([*files[:number], *trimmed], log.segments.foreign)
    return log


def _closed_end(log: CommitLog, time: int) -> tuple[int, int] | None:
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
