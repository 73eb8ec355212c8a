"""Stores on other machines, addressed by a URI in place of a path.

This module does not know how files are fetched: :mod:`rmqtool.analytics.remote.stores` does, and registers itself with
:func:`attach`. Remote files are mapped at full length, and their bytes are fetched on demand: code that reads a mapped
file which may be remote calls :func:`need` first with the range it is about to read. For local files that does
nothing.
"""

import mmap
import os
from abc import abstractmethod
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from formats.endings import Ending
from formats.layouts.codes import MAGIC_V1, MAGIC_V2
from formats.layouts.derived import BLANK
from formats.message.read import HEADS, HOSTS_V6, End, Record, read

_MARK = "://"
_HEAD = max(head.size for head in HEADS.values())
_LONGEST = 0x7FFF + 4  # bytes of the longest topic and the length fields around it
_SYS_FLAG = HEADS[0].field("sys_flag")


class Partial(mmap.mmap):
    """A read-only mapping of a file that is fetched in parts. Parts not fetched yet read as zeros.

    All methods raise UnreadableStore if bytes cannot be fetched.
    """

    @abstractmethod
    def need(self, start: int, stop: int) -> None:
        """Fetch bytes [start, stop), up to the end of the file."""

    @abstractmethod
    def need_all(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Like :meth:`need`, for many ranges in ascending order."""

    @abstractmethod
    def need_whole(self) -> None:
        """Fetch the whole file and keep it."""

    @abstractmethod
    def forget(self, start: int, stop: int) -> None:
        """Release the memory of [start, stop); later reads must fetch it again."""


class Entries(mmap.mmap):
    """A read-only mapping of a file of a DLedger log, in which an entry header precedes every record."""


class RemoteStat(NamedTuple):
    """An entry of a remote directory."""

    name: str
    is_dir: bool
    size: int
    mtime_ns: int


class Place(Protocol):
    """A remote store in the state in which it was first seen. All methods raise UnreadableStore."""

    uri: str  # with everything needed to connect, secrets included

    def entries(self, path: str) -> list[RemoteStat]:
        """The entries of a directory, by name; empty if it does not exist."""

    def find(self, path: str) -> RemoteStat | None:
        """The entry of a file or directory; None if it does not exist."""

    def read(self, path: str, limit: int) -> bytes | None:
        """The first bytes of a file; None if it does not exist."""

    def map(self, path: str, size: int | None = None) -> Partial | bytes:
        """Map a file's first ``size`` bytes (None: all); ``b""`` if empty. Nothing is fetched yet."""


_places: dict[str, Place] = {}


def attach(root: str, place: Place) -> None:
    """Register the place of the store at ``root``, replacing an earlier one."""
    _places[root] = place


def place_of(path: str) -> Place | None:
    """The remote place that a path leads to; None for this machine."""
    if _MARK not in path:
        return None
    return next((place for root, place in _places.items() if path == root or path.startswith(f"{root}/")), None)


def uri_of(path: str) -> str | None:
    """The URI of the store that contains a file; None for a local one."""
    return None if (place := place_of(path)) is None else place.uri


def is_uri(path: str) -> bool:
    """Whether a path is a URI and not the name of a local file."""
    return _MARK in path and not os.path.exists(path)


def show_uri(uri: str) -> str:
    """A URI for messages and columns: without options and without anything that may be a secret."""
    scheme, mark, rest = uri.partition("?")[0].partition(_MARK)
    authority, slash, path = rest.partition("/")
    _key, colon, port = authority.rpartition(":")
    if colon and "@" not in authority and "]" not in port and port and not port.isdecimal():
        # not a port but an unescaped key containing a slash or a question mark; it extends to the last @
        authority, slash, path = uri.partition(_MARK)[2].rpartition("@")[2].partition("?")[0].partition("/")
        authority, path = (authority, path) if "@" in uri else ("***", "")
    user, at, host = authority.rpartition("@")
    if scheme != "s3":  # in an S3 URI the user is a key
        host = user.partition(":")[0] + at + host
    return f"{scheme}{mark}{host}{slash}{path}".rstrip("/")


def exists(path: str) -> bool:
    """Like ``os.path.exists``, for local and remote paths."""
    place = place_of(path)
    return os.path.exists(path) if place is None else place.find(path) is not None


def is_dir(path: str) -> bool:
    """Like ``os.path.isdir``, for local and remote paths."""
    place = place_of(path)
    return os.path.isdir(path) if place is None else (status := place.find(path)) is not None and status.is_dir


def file_size(path: str) -> int | None:
    """Size of a local or remote file in bytes; None if it does not exist."""
    place = place_of(path)
    if place is None:
        return os.path.getsize(path) if os.path.isfile(path) else None
    return status.size if (status := place.find(path)) is not None and not status.is_dir else None


# -- mapped files ------------------------------------------------------------------------------------------------------


def need(view: memoryview, start: int, stop: int) -> None:
    """Fetch bytes [start, stop) of a mapped remote file, up to its end; does nothing for a local one.

    Args:
        view: the whole file, as in all functions of this section.

    Raises:
        UnreadableStore: they cannot be fetched.
    """
    if isinstance(mapped := view.obj, Partial):
        mapped.need(start, stop)


def need_all(view: memoryview, ranges: Iterable[tuple[int, int]]) -> None:
    """Like :func:`need`, for many ranges in ascending order."""
    if isinstance(mapped := view.obj, Partial):
        mapped.need_all(ranges)


def is_partial(view: memoryview) -> bool:
    """Whether bytes may be missing unless :func:`need` has been called for them."""
    return isinstance(view.obj, Partial)


def record_at(view: memoryview, at: int, limit: int, *, crc: bool = True) -> Record | End:
    """:func:`formats.message.read`, fetching everything that it reads."""
    if not isinstance(mapped := view.obj, Partial):
        item = read(view, at, limit, crc=crc)
        return _blank_of_entries(view, at, limit) or item if isinstance(item, End) and is_entries(view) else item
    mapped.need(at, _record_end(mapped, at, limit))
    record = read(view, at, limit, crc=crc)
    if isinstance(record, End) and record.ending in (Ending.DAMAGED, Ending.CUT) and at + _HEAD < limit:
        # why it is not a record depends on where its lengths lead, which may be anywhere
        (sys_flag,) = _SYS_FLAG.unpack_from(view, at)
        head = HEADS[sys_flag & HOSTS_V6]
        topic_at = at + head.size + max(head.as_dict(view, at)["body_length"], 0)
        mapped.need(topic_at, topic_at + _LONGEST)
        record = read(view, at, limit, crc=crc)
    return record


def is_entries(view: memoryview) -> bool:
    """Whether a DLedger entry header precedes every record."""
    return isinstance(view.obj, Entries)


def _blank_of_entries(view: memoryview, at: int, limit: int) -> End | None:
    from formats.variants.dledger import blank_size  # few stores have such a log

    size = blank_size(view, at, limit)
    return None if size is None else End(Ending.FILLER, at, f"end-of-file blank of {size} bytes", 0)


def record_start(view: memoryview, at: int) -> int:
    """Return where the record after ``at`` begins; ``at`` is the end of the previous record, or 0.

    That is ``at`` itself, except in a DLedger log, where an entry header comes first.
    """
    if not is_entries(view):
        return at
    from formats.variants import dledger

    return dledger.record_start(view, at, len(view))


def blank_room(view: memoryview, at: int) -> int:
    """The distance to the end of the file according to the end-of-file blank at ``at``."""
    at += 4 if is_entries(view) else 0
    return int.from_bytes(view[at : at + 4], "big", signed=True)


def reach(view: memoryview, at: int, stop: int, limit: int) -> int:
    """Return how far a walk over records from ``at`` may read: the record at ``at``, and all that end by ``stop``.

    Args:
        limit: where the readable part of the file ends; returned as it is for a local file.
    """
    if not isinstance(mapped := view.obj, Partial):
        return limit
    end = max(_record_end(mapped, at, limit), min(stop, limit))
    mapped.need(at, end)
    return end


def _record_end(mapped: Partial, at: int, limit: int) -> int:
    """The end of the record at ``at`` by its own size; the end of a record header if there is no valid size."""
    head = min(at + _HEAD, limit)
    mapped.need(at, head)
    if limit - at < BLANK.size:
        return head
    size, magic = BLANK.unpack_from(mapped, at)
    return max(head, at + size) if magic in (MAGIC_V1, MAGIC_V2) and size <= limit - at else head
