"""Stores in object storage and HDFS: named by a URI, listed and read through pyarrow's file systems.

Credentials are looked for where pyarrow looks for them, by every process that reads; options go into the URI. What is
read comes in parts (:mod:`rmqtool.analytics.remote.mirror`); nothing is ever written there.
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
from rmqtool.store.disk.remote import RemoteStat, attach, is_uri, need, place_of, record_at, show_uri
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, next_record

_PATTERN = re.compile(r"[*\[]")  # a question mark begins a URI's options
_LINE = re.compile(r"[\r\n].*", re.DOTALL)
_ERRORS = (OSError, ValueError, ImportError, pa.ArrowException)
_LOCAL = "file:"
_PROBE = 16 << 10  # bytes that are looked at to see whether a file is written there
_LONG_WALK = 64 << 20  # bytes from the place that halving has found to the end of the log
_T = TypeVar("_T")
_R = TypeVar("_R")


class Meter:
    """Bytes that this process has fetched."""

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = Lock()

    def add(self, size: int) -> None:
        """Count."""
        with self._lock:
            self.bytes += size


METER = Meter()


class Remote:
    """A store elsewhere, as it was when it was first listed; see :class:`rmqtool.store.disk.remote.Place`.

    Args:
        uri: of the store.
        listing: which listing it is to be: another one is made again.

    Raises:
        BadValue: a URI that is of no known file system.
    """

    def __init__(self, uri: str, listing: str = "") -> None:
        self.uri, self.listing, self.root = uri, listing, show_uri(uri)
        self._fs, path = _open_uri(uri)
        self._path = path.rstrip("/")

    @cached_property
    def _directories(self) -> dict[str, dict[str, RemoteStat]]:
        """Every directory by its path in the store, and what is in it by name."""
        directories: dict[str, dict[str, RemoteStat]] = {"": {}}
        selector = fs.FileSelector(self._path, allow_not_found=True, recursive=True)
        for info in _call(self.root, lambda: self._fs.get_file_info(selector)):
            parts = info.path[len(self._path) :].strip("/").split("/")
            is_dir = info.type == fs.FileType.Directory
            # object storage has no directories of its own: they are where files are below them
            for level in range(1, len(parts) + is_dir):
                above, name = "/".join(parts[: level - 1]), parts[level - 1]
                directories.setdefault("/".join(parts[:level]), {})
                directories.setdefault(above, {})[name] = RemoteStat(name, is_dir=True, size=0, mtime_ns=0)
            if info.type == fs.FileType.File:
                known = RemoteStat(parts[-1], is_dir=False, size=info.size, mtime_ns=info.mtime_ns or 0)
                directories.setdefault("/".join(parts[:-1]), {})[known.name] = known
        return directories

    def entries(self, path: str) -> list[RemoteStat]:
        """What is in a directory, by name."""
        return sorted(self._directories.get(self._inside(path), {}).values())

    def find(self, path: str) -> RemoteStat | None:
        """A file or directory."""
        above, _slash, name = self._inside(path).rpartition("/")
        if not name:
            return RemoteStat("", is_dir=True, size=0, mtime_ns=0) if self._directories[""] else None
        return self._directories.get(above, {}).get(name)

    def read(self, path: str, limit: int) -> bytes | None:
        """The first bytes of a file."""
        known = self.find(path)
        if known is None or known.is_dir:
            return None
        return self._fetch(path, 0, min(known.size, limit)) if known.size else b""

    def map(self, path: str, size: int | None = None) -> Mirror | bytes:
        """A file's first bytes, to be fetched.

        Raises:
            UnreadableStore: there is no such file.
        """
        if size is None:
            known = self.find(path)
            if known is None or known.is_dir:
                raise UnreadableStore(f"{path}: no such file")
            size = known.size
        return Mirror(size, _Source(self, path).fetch) if size else b""

    def open(self, path: str) -> pa.NativeFile:
        """A file, to read parts of it."""
        return _call(path, lambda: self._fs.open_input_file(f"{self._path}/{self._inside(path)}"))

    def _fetch(self, path: str, start: int, stop: int) -> bytes:
        return _Source(self, path).fetch(start, stop)

    def _inside(self, path: str) -> str:
        return path[len(self.root) :].strip("/")


class _Source:
    """One file of a store, opened when it is first read."""

    def __init__(self, remote: Remote, path: str) -> None:
        self._remote, self._path = remote, path
        self._lock = Lock()

    @cached_property
    def _file(self) -> pa.NativeFile:
        return self._remote.open(self._path)

    def fetch(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop).

        Raises:
            UnreadableStore: they cannot be had.
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
    """The result of a call, or an error that names what it was about."""
    try:
        return call()
    except _ERRORS as err:
        raise UnreadableStore(f"{name}: {_first_line(err)}") from err


def _first_line(err: Exception) -> str:
    return os.strerror(err.errno) if isinstance(err, OSError) and err.errno else _LINE.sub("", remove_secrets(str(err)))


def attach_store(uri: str, listing: str = "") -> str:
    """Have a store looked for at its URI; what it has for a path.

    Args:
        listing: as for :class:`Remote`; whichever there is when it is empty.
    """
    root = show_uri(uri)
    place = place_of(root)
    if not isinstance(place, Remote) or place.uri != uri or (listing and place.listing != listing):
        attach(root, Remote(uri, listing))
    return root


def new_listing() -> str:
    """What to call a listing that is to be made now."""
    return uuid.uuid4().hex


def matching(uri: str) -> list[str]:
    """The URIs of directories that a URI names: levels of its path may have ``*`` and ``[...]`` in them.

    Raises:
        BadValue: a URI that is of no known file system.
        UnreadableStore: there is none, or the server does not answer, or refuses.
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
        known = _call(show_uri(uri), lambda: system.get_file_info(path))
        uris = uris if known.type == fs.FileType.Directory else []
    if not uris:
        raise UnreadableStore(f"{show_uri(uri)}: no such directory")
    return uris


def _names(uri: str, pattern: str) -> list[str]:
    """Names of directories in a directory."""
    system, path = _open_uri(uri)
    selector = fs.FileSelector(path, allow_not_found=True)
    infos = _call(show_uri(uri), lambda: system.get_file_info(selector))
    return sorted(i.base_name for i in infos if i.type == fs.FileType.Directory and fnmatchcase(i.base_name, pattern))


def is_remote(path: str) -> bool:
    """Whether a path is the URI of something that is not on this machine."""
    return is_uri(path) and not path.startswith(_LOCAL)


def local_of(path: str) -> str:
    """A path as it is; of a URI of this machine the path that it means."""
    return _open_uri(path)[1] if is_uri(path) and path.startswith(_LOCAL) else path


def resolve_store(store: str) -> str:
    """What :class:`rmqtool.store.layout.paths.StoreLayout` takes for a store that a path or a URI names.

    Raises:
        BadValue: a URI that is of no known file system.
    """
    return attach_store(store, new_listing()) if is_remote(store) else local_of(store)


def keep_apart(out: str, root: str) -> None:
    """Refuse an output in a store at a URI, or around it.

    Raises:
        Refused: it is.
    """
    if is_remote(out):
        place = show_uri(out)
        if f"{place}/".startswith(f"{root}/"):
            raise Refused(f"{place}: the output must not lie in the store ({root})")
        if root.startswith(f"{place}/"):
            raise Refused(f"{place}: the store ({root}) lies in it")


def each(function: Callable[[_T], _R], items: Sequence[_T], path: str) -> list[_R]:
    """The results of a function; at the same time for a store elsewhere, where most of it is waiting.

    Args:
        path: of the store.
    """
    if place_of(path) is None or len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(function, items))


# -- where a closed log ends -------------------------------------------------------------------------------------------


def open_log(layout: StoreLayout) -> CommitLog:
    """The commit log of a store; elsewhere without the zeros behind its end, where that is known.

    A file is made at its full length, and the zeros behind the last record need not be fetched to know that they are
    zeros: a broker that closes its store leaves in the checkpoint when its last message was stored.
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
    """(number of the file, byte in it) where the log ends; None where that is not known.

    Args:
        time: when the last message was stored, in ms; not after that.
    """
    files = log.segments.files
    for number in range(len(files) - 1 if time > 0 else -1, -1, -1):
        file = files[number]
        view = file.map()
        used = _length_in_use(view)
        if not used:
            continue  # made ahead of its use
        at = used
        for back in (_PROBE, MOST):  # nearly every message is small
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
    """Bytes up to the first that are zero for long, found by halving; what is behind them is not looked at."""
    low, high = 0, -(-len(view) // _PROBE)
    while low < high:
        middle = (low + high) // 2
        need(view, middle * _PROBE, (middle + 1) * _PROBE)
        if any(view[middle * _PROBE : (middle + 1) * _PROBE]):
            low = middle + 1
        else:
            high = middle
    return min(low * _PROBE, len(view))
