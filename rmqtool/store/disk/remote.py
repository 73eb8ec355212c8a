"""Stores that are not on this machine, by the URI that such a store has for a path.

Nothing here knows how files are fetched: :mod:`rmqtool.analytics.remote.stores` does, and says so by :func:`attach`.
Files are mapped at full length, and the bytes that are needed are fetched into them: a reader of a mapped
file that may be such a one says by :func:`need` which bytes it looks at next. On a file of this machine that does
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
_LONGEST = 0x7FFF + 4  # bytes of a topic and of the lengths around it
_SYS_FLAG = HEADS[0].field("sys_flag")


class Partial(mmap.mmap):
    """A read-only mapping of a file of which only parts are there. What is not there reads as zero.

    All methods raise UnreadableStore when bytes cannot be had.
    """

    @abstractmethod
    def need(self, start: int, stop: int) -> None:
        """Have bytes [start, stop), as far as the file goes."""

    @abstractmethod
    def need_all(self, ranges: Iterable[tuple[int, int]]) -> None:
        """As :meth:`need`, for many ranges in ascending order."""

    @abstractmethod
    def need_whole(self) -> None:
        """Have all of it, and keep it."""

    @abstractmethod
    def forget(self, start: int, stop: int) -> None:
        """Give back the room of [start, stop): later reads must ask for it again."""


class Entries(mmap.mmap):
    """A read-only mapping of a file of a DLedger log, in which every record has an entry's header before it."""


class Known(NamedTuple):
    """A name in a directory."""

    name: str
    is_dir: bool
    size: int
    mtime_ns: int


class Place(Protocol):
    """A store elsewhere, as it was when it was first looked at. All methods raise UnreadableStore."""

    uri: str  # with all that it takes to get there, secrets too

    def entries(self, path: str) -> list[Known]:
        """What is in a directory, by name; nothing when there is none."""

    def find(self, path: str) -> Known | None:
        """A file or directory; None when there is none."""

    def read(self, path: str, limit: int) -> bytes | None:
        """The first bytes of a file; None when there is none."""

    def map(self, path: str, size: int | None = None) -> Partial | bytes:
        """A file's first ``size`` bytes, all where that is None; ``b""`` for none. Nothing of it is there yet."""


_places: dict[str, Place] = {}


def attach(root: str, place: Place) -> None:
    """Have the store at ``root`` looked for in a place; it takes the place of one that was there."""
    _places[root] = place


def place_of(path: str) -> Place | None:
    """Where a path leads; None for this machine."""
    if _MARK not in path:
        return None
    return next((place for root, place in _places.items() if path == root or path.startswith(f"{root}/")), None)


def uri_of(path: str) -> str | None:
    """The URI of the store that a file is in; None for one on this machine."""
    return None if (place := place_of(path)) is None else place.uri


def is_uri(path: str) -> bool:
    """Whether a path is a URI, and not the name of something that is on this machine."""
    return _MARK in path and not os.path.exists(path)


def show_uri(uri: str) -> str:
    """A URI as messages and columns have it: without options, and without what may be a secret."""
    scheme, mark, rest = uri.partition("?")[0].partition(_MARK)
    authority, slash, path = rest.partition("/")
    _key, colon, port = authority.rpartition(":")
    if colon and "@" not in authority and "]" not in port and port and not port.isdecimal():
        # no port: a key that was not escaped, with a slash or a question mark in it, goes on to the last @
        authority, slash, path = uri.partition(_MARK)[2].rpartition("@")[2].partition("?")[0].partition("/")
        authority, path = (authority, path) if "@" in uri else ("***", "")
    user, at, host = authority.rpartition("@")
    if scheme != "s3":  # there the user is a key
        host = user.partition(":")[0] + at + host
    return f"{scheme}{mark}{host}{slash}{path}".rstrip("/")


def exists(path: str) -> bool:
    """As ``os.path.exists``, wherever it is."""
    place = place_of(path)
    return os.path.exists(path) if place is None else place.find(path) is not None


def is_dir(path: str) -> bool:
    """As ``os.path.isdir``, wherever it is."""
    place = place_of(path)
    return os.path.isdir(path) if place is None else (known := place.find(path)) is not None and known.is_dir


def file_size(path: str) -> int | None:
    """Bytes of a file, wherever it is; None when there is none."""
    place = place_of(path)
    if place is None:
        return os.path.getsize(path) if os.path.isfile(path) else None
    return known.size if (known := place.find(path)) is not None and not known.is_dir else None


# -- mapped files ------------------------------------------------------------------------------------------------------


def need(view: memoryview, start: int, stop: int) -> None:
    """Have bytes [start, stop) of a mapped file, as far as it goes.

    Args:
        view: of the whole file, as for all here.

    Raises:
        UnreadableStore: they cannot be had.
    """
    if isinstance(mapped := view.obj, Partial):
        mapped.need(start, stop)


def need_all(view: memoryview, ranges: Iterable[tuple[int, int]]) -> None:
    """As :func:`need`, for many ranges in ascending order."""
    if isinstance(mapped := view.obj, Partial):
        mapped.need_all(ranges)


def is_partial(view: memoryview) -> bool:
    """Whether bytes that nobody has asked for may not be there."""
    return isinstance(view.obj, Partial)


def record_at(view: memoryview, at: int, limit: int, *, crc: bool = True) -> Record | End:
    """:func:`formats.message.read`, with all there that it looks at."""
    if not isinstance(mapped := view.obj, Partial):
        record = read(view, at, limit, crc=crc)
        return _blank_of_entries(view, at, limit) or record if isinstance(record, End) and is_entries(view) else record
    mapped.need(at, _record_end(mapped, at, limit))
    record = read(view, at, limit, crc=crc)
    if isinstance(record, End) and record.ending in (Ending.DAMAGED, Ending.CUT) and at + _HEAD < limit:
        # why it is none depends on where its lengths lead, and that may be anywhere
        (sys_flag,) = _SYS_FLAG.unpack_from(view, at)
        head = HEADS[sys_flag & HOSTS_V6]
        topic_at = at + head.size + max(head.as_dict(view, at)["body_length"], 0)
        mapped.need(topic_at, topic_at + _LONGEST)
        record = read(view, at, limit, crc=crc)
    return record


def is_entries(view: memoryview) -> bool:
    """Whether records have an entry's header of DLedger before them."""
    return isinstance(view.obj, Entries)


def _blank_of_entries(view: memoryview, at: int, limit: int) -> End | None:
    from formats.variants.dledger import blank_size  # few stores have such a log

    size = blank_size(view, at, limit)
    return None if size is None else End(Ending.FILLER, at, f"end-of-file blank of {size} bytes", 0)


def record_start(view: memoryview, at: int) -> int:
    """Where the record begins that follows the one that ends at ``at``, or is the first of a file (0).

    That is at once, but in a DLedger log behind the header of its entry.
    """
    if not is_entries(view):
        return at
    from formats.variants import dledger

    return dledger.record_start(view, at, len(view))


def blank_room(view: memoryview, at: int) -> int:
    """Bytes to the end of the file that the end-of-file blank at ``at`` says."""
    at += 4 if is_entries(view) else 0
    return int.from_bytes(view[at : at + 4], "big", signed=True)


def reach(view: memoryview, at: int, stop: int, limit: int) -> int:
    """Up to where a walk over records from ``at`` on may look: over the one at ``at``, and all that end by ``stop``.

    Args:
        limit: where the readable part of the file ends; the answer where all of it is on this machine.
    """
    if not isinstance(mapped := view.obj, Partial):
        return limit
    end = max(_record_end(mapped, at, limit), min(stop, limit))
    mapped.need(at, end)
    return end


def _record_end(mapped: Partial, at: int, limit: int) -> int:
    """The end of the record at ``at`` as it says itself; of what may be a record's head where it says nothing."""
    head = min(at + _HEAD, limit)
    mapped.need(at, head)
    if limit - at < BLANK.size:
        return head
    size, magic = BLANK.unpack_from(mapped, at)
    return max(head, at + size) if magic in (MAGIC_V1, MAGIC_V2) and size <= limit - at else head
