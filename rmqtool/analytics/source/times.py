"""Finds the messages of a period by reading the head of every record, without relying on the order of the log.

Store times need not increase along a log: a broker's clock may be set back, and a log imported from two others has the
times of one after those of the other. Nothing is therefore skipped because of neighbouring times.
"""

from typing import Any

import numpy as np

from formats.endings import Ending
from rmqtool.store.disk.remote import place_of
from rmqtool.store.disk.segments import Segment
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.log.records import blank_room, record_at

NEAR = 32 << 10  # messages with a gap up to this size are read together, bytes
_HEAD = 88  # bytes read of each record
_WINDOW = 8 << 20  # bytes after which pages are released
_FEW = 2 << 20  # size of a log for which this is not worthwhile, bytes
_Proof = tuple[Any, Any, list[tuple[int, int | None]], int]


def prove_times(log: CommitLog, since: int | None, until: int | None) -> _Proof | None:
    """Return (starts and stops of ranges with messages of a period, ranges to be scanned in addition, bytes inspected).

    Returns None if inspecting costs as much as reading: for a small log, and for a remote one.
    """
    files = log.segments.files
    if place_of(log.layout.root) is not None or log.segments.bytes < _FEW:
        return None
    low = -(1 << 63) if since is None else max(since, -(1 << 63))
    high = (1 << 63) - 1 if until is None else min(until - 1, (1 << 63) - 1)
    starts: list[Any] = []
    stops: list[Any] = []
    scan: list[tuple[int, int | None]] = []
    looked = 0
    for file in files:
        first, last, end, records = _in_file(file, low, high)
        looked += records * _HEAD
        starts.append(first + file.base)
        stops.append(last + file.base)
        if file is files[-1]:
            scan.append((file.base + end, None))
        elif not is_blank(file, end):
            scan.append((file.base + end, file.end))
        file.release()
    return np.concatenate(starts), np.concatenate(stops), scan, looked


def _in_file(file: Segment, low: int, high: int) -> tuple[Any, Any, int, int]:
    """Return (starts and stops of ranges, start of the unknown part, number of records), in bytes of the file."""
    from rmqtool.kernels.scan import Walker
    from rmqtool.store.log.scan import ROWS

    view, at, forgotten, records = file.map(), 0, 0, 0
    starts: list[Any] = [np.empty(0, np.int64)]
    stops: list[Any] = [np.empty(0, np.int64)]
    if not file.size:
        return starts[0], stops[0], 0, 0
    walker = Walker(view, ROWS, crc=False)
    while True:
        rows, following = walker.walk(at, file.size, at + _WINDOW)
        # readers of a part continue after damage at a record with a matching offset, so all skipped records must match
        if not rows.records or (rows.physical_offset != rows.at + file.base).any():
            break
        wanted = (rows.store_timestamp >= low) & (rows.store_timestamp <= high)
        starts.append(rows.at[wanted].copy())
        stops.append((rows.at + rows.total_size)[wanted])
        at, records = following, records + rows.records
        if at - forgotten >= _WINDOW:
            file.forget(forgotten, at)
            forgotten = at
    first, last = np.concatenate(starts), np.concatenate(stops)
    if len(first):
        apart = np.flatnonzero(first[1:] - last[:-1] > NEAR) + 1
        first, last = first[np.r_[0, apart]], last[np.r_[apart - 1, len(last) - 1]]
    return first, last, at, records


def is_blank(file: Segment, at: int) -> bool:
    """Return whether a file ends here: there is nothing after it, or a blank of exactly the remaining size."""
    if at >= file.size:
        return True
    record = record_at(file.map(), at, file.size, crc=False)
    return getattr(record, "ending", None) is Ending.FILLER and blank_room(file.map(), at) == file.size - at
