"""Records in a mapped file of the log: where they begin, how long they are, and where the next one is.

A file of a remote store is fetched in parts; these functions fetch what they read.
"""

from mmap import mmap

from formats.endings import Ending
from formats.layouts.codes import MAGIC_V1, MAGIC_V2
from formats.layouts.derived import BLANK, HEAD_V4_V4
from formats.message.read import HEADS, HOSTS_V6, End, Record, read
from rmqtool.store.disk.mapping import Entries, forget, is_partial, need
from rmqtool.store.disk.remote import Partial

WINDOW = 16 << 20  # bytes walked before their pages are given back
_FIRST_WINDOW = 16 << 10  # first window of a search in a remote file; most searches end within it
_MAGICS = {MAGIC_V1, MAGIC_V2}
_MAGIC_PREFIX = MAGIC_V1.to_bytes(4, "big", signed=True)[:3]  # shared by both versions, so one search finds either
_STATED = HEAD_V4_V4.field("total_size", "magic", "physical_offset")  # these fields have the same offsets in every head
_HEAD = max(head.size for head in HEADS.values())
_LONGEST = 0x7FFF + 4  # bytes of the longest topic and the length fields around it
_SYS_FLAG = HEADS[0].field("sys_flag")
_STORED = {flags: head.field("store_timestamp") for flags, head in HEADS.items()}


def is_entries(view: memoryview) -> bool:
    """Whether a DLedger entry header precedes every record."""
    return isinstance(view.obj, Entries)


def record_start(view: memoryview, at: int) -> int:
    """Return where the record after ``at`` begins; ``at`` is the end of the previous record, or 0.

    That is ``at`` itself, except in a DLedger log, where an entry header comes first.
    """
    if not is_entries(view):
        return at
    from formats.variants import dledger

    return dledger.record_start(view, at, len(view))


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


def _blank_of_entries(view: memoryview, at: int, limit: int) -> End | None:
    from formats.variants.dledger import blank_size  # few stores have such a log

    size = blank_size(view, at, limit)
    return None if size is None else End(Ending.FILLER, at, f"end-of-file blank of {size} bytes", 0)


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


def says_position(view: memoryview, base: int, at: int) -> bool:
    """Whether a record seems to begin here: its magic is valid and the physical offset it states is this one."""
    return claimed_size(view, base, at) is not None


def claimed_size(view: memoryview, base: int, at: int) -> int | None:
    """The size stated by the record that seems to begin here (see :func:`says_position`); None if there is none."""
    need(view, at, at + _STATED.size)
    if at + _STATED.size > len(view):
        return None
    size: int
    size, magic, physical_offset = _STATED.unpack_from(view, at)
    return size if physical_offset == base + at and magic in _MAGICS else None


def stated_store_time(view: memoryview, base: int, at: int) -> int | None:
    """The store timestamp (ms) of the record that seems to begin here (see :func:`says_position`); None without one."""
    size = claimed_size(view, base, at)
    if size is None or at + max(size, _HEAD) > len(view):
        return None
    need(view, at, at + _HEAD)
    (sys_flag,) = _SYS_FLAG.unpack_from(view, at)
    timestamp: int
    (timestamp,) = _STORED[sys_flag & HOSTS_V6].unpack_from(view, at)
    return timestamp


def next_record(view: memoryview, base: int, at: int, stop: int) -> int:
    """The position of the next record in [at, stop) by :func:`says_position`, or ``stop``.

    Pages already searched are released, so that a long search does not count as memory of this process.
    """
    mapped: mmap | bytes = view.obj  # type: ignore[assignment]
    until = min(stop + 6, len(view))  # a magic's first three bytes end here at the latest
    at, forgotten = at + 4, at
    window = _FIRST_WINDOW if is_partial(view) else WINDOW
    while at < until:
        edge = min(at + window, until)
        need(view, at, edge)
        magic_at = mapped.find(_MAGIC_PREFIX, at, edge)
        if magic_at >= 0:
            if says_position(view, base, magic_at - 4):
                return magic_at - 4
            at = magic_at + 1
        else:
            at = edge if edge == until else edge - 2  # the magic may straddle the edge
            window = min(2 * window, WINDOW)
        if at - forgotten >= WINDOW:
            forget(view, forgotten, at)
            forgotten = at
    return stop
