"""Finding a few messages without reading the whole log: via index, consume queues or store times.

No message may be missed. Index and queues are therefore used only in a store that was shut down cleanly or is in use by
a broker, only if they pass inexpensive checks, and what they do not cover is scanned.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from formats.index import ENTRY_SIZE, IndexEntry, chain, entries_array, entry_at, key_hash, newest, slot_at, slots_array
from formats.message.ids import is_id, parse_offset_id
from formats.message.read import Record
from formats.queues.consume import FILLER_SIZE, as_array
from formats.topics import LMQ_PREFIX
from rmqtool.analytics.remote.stores import each
from rmqtool.analytics.source.cover import Cover
from rmqtool.analytics.source.filter import Wanted
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.errors import CorruptFile
from rmqtool.store.config.files import read_config
from rmqtool.store.disk.lock import holder
from rmqtool.store.disk.mapping import need
from rmqtool.store.disk.segments import Segment
from rmqtool.store.disk.sparse import data_end
from rmqtool.store.index.reader import IndexView, open_index
from rmqtool.store.layout.paths import UNIT, StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.log.records import next_record, record_at, record_start
from rmqtool.store.queues.reader import ConsumeQueue

NEAR = 4096  # messages with a gap up to this size are read together, bytes
_SHARE = 3  # an access path must read at most this fraction (1/3) of the log
_CLOCK_SLACK = 60_000  # how far a broker's clock may have gone back while it ran, ms
_NEAR_ENOUGH = 4 << 10  # bytes; granularity of a search by time
_MOST_HELD = 1 << 24  # maximum number of queue entries to compare with those of the index
_UNCLEAR = set("*?[\ufffd")


@dataclass(slots=True)
class Way:
    """An access path: exact positions of messages, and ranges of the log that must be scanned in addition.

    Attributes:
        starts: physical offsets of records, ascending.
        stops: ends of these records.
        scan: (start, stop) of ranges to scan; None for the end of the log.
        bytes_read: bytes of index, queues and log read so far.
    """

    starts: Any
    stops: Any
    scan: list[tuple[int, int | None]] = field(default_factory=list)
    bytes_read: int = 0


def is_orderly(layout: StoreLayout) -> bool:
    """Return whether a broker shut the store down cleanly or is using it, so that queues and index are up to date."""
    return not layout.aborted or holder(layout.root) is not None


def shortest(log: CommitLog, wanted: Wanted) -> Way | None:
    """Return the shortest access path; None if that is to scan the log."""
    if not log.segments.files or not is_orderly(log.layout):
        return None
    way = _by_index(log, wanted) if wanted.ids or wanted.choice.keys else None
    if way is None and _names(wanted.choice):
        way = _by_queues(log, wanted.choice)
    if way is None:
        return None
    hint = int(way.scan[-1][0])
    end = log.segments.files[-1].end
    if log.segments.find(hint):
        newest = log.last(hint)
        end = newest.end if newest is not None else hint
    scanned = sum((max(end, start) if stop is None else stop) - start for start, stop in way.scan)
    return way if (int((way.stops - way.starts).sum()) + scanned) * _SHARE <= end - log.min_offset else None


def _names(choice: MessageChoice) -> tuple[str, ...]:
    """Return the topics asked for, or () if any of them is a pattern."""
    # names that are not UTF-8 are shown with replacement characters, so several can look the same
    return () if any(_UNCLEAR & set(topic) for topic in choice.topics) else choice.topics


# -- index ------------------------------------------------------------------------------------------------------------


def _by_index(log: CommitLog, wanted: Wanted) -> Way | None:
    """Access by key or unique id; both are in the index, hashed together with the topic.

    A broker may have run without an index for a while, and lost index files go unnoticed. Every message in the queues
    must therefore have an index entry; messages without one are read in addition.
    """
    files = list(open_index(log.layout, whole=False))
    bytes_read = 0
    sound: list[IndexView] = []
    for file in files:
        if not isinstance(file, IndexView):
            return None
        need(file.view, 0, slot_at(file.slots))
        if not _all_slots(file):
            return None
        bytes_read += slots_array(file.view, file.slots).nbytes
        if file.header.index_count > 1:
            sound.append(file)
    covered = _find_covered(log, hold=True) if sound else None
    if covered is None:
        return None
    scan, looked, every, sizes = covered
    indexed = [np.empty(0, np.int64)]
    for file in sound:
        count = file.header.index_count
        need(file.view, entry_at(file.slots, 1), entry_at(file.slots, count))
        entries = entries_array(file.view, file.slots)[1:count]
        indexed.append(entries["physical_offset"].astype(np.int64))
        bytes_read += entries.nbytes
    bare = ~np.isin(every, np.concatenate(indexed))
    queued = {topic for topic, _queue_id, _path in log.layout.queue_dirs()}
    topics = _names(wanted.choice) or (queued and queued | _configured_queues(log.layout).keys())
    if not topics:
        return None  # without queues, the topics are unknown
    # the msgId of a message without unique id is its offset id
    offsets = {parse_offset_id(text).physical_offset for text in wanted.ids if is_id(text)}
    for topic in topics:
        for key in wanted.ids or wanted.choice.keys:
            hashed = key_hash(topic, key)
            for file in sound:
                for entry in _chain(file, hashed):
                    bytes_read += UNIT
                    if entry.key_hash % file.slots != hashed % file.slots:
                        return None  # a page of the file was lost, and with it the rest of the chain
                    if entry.key_hash == hashed:
                        offsets.add(entry.physical_offset)
    messages = [item for offset in sorted(offsets) if isinstance(item := log.look(offset, crc=False), LocatedRecord)]
    starts = np.array([item.physical_offset for item in messages], np.int64)
    stops = starts + np.array([item.record.total_size for item in messages], np.int64)
    starts, stops = np.concatenate((starts, every[bare])), np.concatenate((stops, (every + sizes)[bare]))
    starts, kept = np.unique(starts, return_index=True)
    outside = _outside(starts, scan)
    return Way(*_join(starts[outside], stops[kept][outside], log), scan, bytes_read + looked)


def _chain(file: IndexView, hashed: int) -> Iterator[IndexEntry]:
    """As :func:`formats.index.chain`, after fetching the bytes it reads."""
    number = newest(file.view, file.slots, hashed)
    need(file.view, at := entry_at(file.slots, number), at + ENTRY_SIZE)
    for _number, entry in chain(file.view, file.slots, hashed):
        need(file.view, at := entry_at(file.slots, entry.previous_entry), at + ENTRY_SIZE)
        yield entry


def _all_slots(file: IndexView) -> bool:
    """Return whether as many slots are in use as the header says, which detects a lost page of slots."""
    header = file.header
    used = int(np.count_nonzero(slots_array(file.view, file.slots)))
    whole = used >= header.hash_slot_count and (used > 0) == (header.index_count > 1)
    return whole and header.index_count <= file.entries


# -- consume queues ---------------------------------------------------------------------------------------------------


def _by_queues(log: CommitLog, choice: MessageChoice) -> Way | None:
    """Access by topic, and optionally by queue id and queue offset."""
    covered = _find_covered(log)
    if covered is None:
        return None
    scan, bytes_read, _offsets, _sizes = covered
    layout = log.layout
    written: dict[str, dict[int, str]] = {}
    for topic, queue_id, path in layout.queue_dirs():
        written.setdefault(topic, {})[queue_id] = path
    entries = []
    for topic in choice.topics:
        for queue_id, path in written.get(topic, {}).items():
            if not choice.queues or queue_id in choice.queues:
                units = _entries(ConsumeQueue(layout, topic, queue_id, path), choice)
                if units is None:
                    return None
                entries.append(units[units["physical_offset"] >= log.min_offset])
    units = np.concatenate(entries) if entries else np.empty(0, as_array(b"").dtype)
    units = units[np.argsort(units["physical_offset"], kind="stable")]
    starts = units["physical_offset"].astype(np.int64)
    stops = starts + units["size"]
    inside = (starts >= (choice.start or 0)) & (starts < (choice.stop if choice.stop is not None else 1 << 62))
    inside &= _outside(starts, scan)
    return Way(*_join(starts[inside], stops[inside], log), scan, bytes_read)


def _outside(starts: Any, scan: list[tuple[int, int | None]]) -> Any:
    """Return which messages are not in a range that is scanned anyway."""
    outside = np.ones(len(starts), bool)
    for first, end in scan:
        outside &= (starts < first) | (starts >= (1 << 62 if end is None else end))
    return outside


def _find_covered(log: CommitLog, *, hold: bool = False) -> tuple[list[tuple[int, int | None]], int, Any, Any] | None:
    """Return (ranges that queues may not cover, bytes read, offsets and sizes of all messages in queues if ``hold``).

    Returns None if the entries of a queue belong to another topic or id, or if there are too many to hold.
    """
    cover, bytes_read, count = Cover(log), 0, 0
    offsets, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]

    def read(queue: tuple[str, int, str]) -> Any:
        return _entries(ConsumeQueue(log.layout, *queue), MessageChoice())

    for topic, queue_id, path in log.layout.queue_dirs():
        if topic.startswith(LMQ_PREFIX):
            continue  # light queues: their messages are in other queues too
        units = read((topic, queue_id, path))
        if units is None:
            continue  # the queue has a hole, which the cover detects
        bytes_read += units.nbytes
        units = units[units["physical_offset"] >= log.min_offset]
        if not len(units):
            continue
        starts = units["physical_offset"].astype(np.int64)
        lengths = units["size"].astype(np.int64)
        if (starts >= log.segments.files[-1].end).any():
            return None
        item = log.look(int(starts[-1]), crc=False)  # a renamed directory would belong to another topic
        if isinstance(item, LocatedRecord):
            name = item.record.topic.decode("utf-8", "surrogateescape")
            if (name, item.record.queue_id) != (topic, queue_id):
                return None
            bytes_read += item.record.total_size
        cover.add(starts, starts + lengths)
        count += len(units)
        if hold:
            if count > _MOST_HELD:
                return None
            offsets.append(starts)
            sizes.append(lengths)
    return cover.gaps(), bytes_read, np.concatenate(offsets), np.concatenate(sizes)


def _data_end(file: Segment) -> int:
    """Return the start of the hole at the end of a file; there are no entries after it."""
    return data_end(file.path, 0, file.size)


def _entries(queue: ConsumeQueue, choice: MessageChoice) -> Any:
    """Return the selected entries of a queue; None if the queue has a hole."""
    files = queue.segments.files
    if any(b.base != a.base + queue.file_size for a, b in pairwise(files)):
        return None
    entries = []
    for number, file in enumerate(files):
        units = as_array(file.map())
        base = file.base // UNIT
        low = min(max((choice.queue_start or 0) - base, 0), len(units))
        high = len(units) if choice.queue_stop is None else min(max(choice.queue_stop - base, 0), len(units))
        need(file.map(), low * UNIT, high * UNIT)
        selected = np.array(units[low : min(high, -(-_data_end(file) // UNIT))])
        valid = selected["size"] > 0
        count = int(valid.sum())
        if not valid[:count].all() or (number < len(files) - 1 and count < high - low):
            return None
        selected = selected[:count]
        entries.append(selected[selected["size"] != FILLER_SIZE])
        file.release()
    return np.concatenate(entries) if entries else np.empty(0, as_array(b"").dtype)


def _configured_queues(layout: StoreLayout) -> dict[str, int]:
    """Return the number of write queues of each topic in the configuration."""
    from formats.config.files import Topics

    try:
        table = read_config(layout, "topics.json")
    except CorruptFile:
        return {}
    return {name: topic.write_queue_nums for name, topic in table.topics.items()} if isinstance(table, Topics) else {}


def _join(starts: Any, stops: Any, log: CommitLog) -> tuple[Any, Any]:
    """Join ranges of the same file that are close to each other."""
    if not len(starts):
        return starts, stops
    bases = np.array([file.base for file in log.segments.files], np.int64)
    file = np.searchsorted(bases, starts, side="right")
    ends = np.maximum.accumulate(stops)
    apart = np.flatnonzero((starts[1:] - ends[:-1] > NEAR) | (file[1:] != file[:-1])) + 1
    return starts[np.concatenate(([0], apart))], ends[np.concatenate((apart - 1, [len(ends) - 1]))]


# -- store time -------------------------------------------------------------------------------------------------------


def between(log: CommitLog, since: int | None, until: int | None) -> tuple[int | None, int | None, int]:
    """Return (start, stop, bytes read): the physical offsets between which messages of a period are; None for the end.

    The caller must know that store times increase along the log (see :mod:`rmqtool.analytics.source.times`); a broker's
    clock may go back by up to a minute.
    """
    if since is None and until is None:
        return None, None, 0
    files, probes = log.segments.files, _Probes(log.layout.root)
    first = None if since is None else _first_at(files, since - _CLOCK_SLACK, probes)
    stop = None if until is None else _first_at(files, until + _CLOCK_SLACK, probes, before=False)
    return first, stop, probes.bytes


class _Probes:
    """Reads single records and counts their bytes."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.bytes = 0

    def first_times(self, files: list[Segment]) -> list[tuple[Segment, int]]:
        """Return the files that begin with a record, with its store time."""
        return [
            (file, time)
            for file, time in zip(files, each(self._first_time, files, self._root), strict=True)
            if time is not None
        ]

    def _first_time(self, file: Segment) -> int | None:
        try:
            return self.time(file, 0)
        finally:
            file.release()  # a long log has many files

    def time(self, file: Segment, at: int) -> int | None:
        """Return the store time of a record; None if there is none."""
        record = record_at(file.map(), record_start(file.map(), at), file.size, crc=False)
        if not isinstance(record, Record):
            return None
        self.bytes += record.total_size
        return record.store_timestamp


def _first_at(files: list[Segment], time: int, probes: _Probes, *, before: bool = True) -> int | None:
    """Return where messages of a time begin: all earlier ones are older. None if at the end or unknown.

    Args:
        before: whether to return a lower or an upper bound of that position.
    """
    later = probes.first_times(files)
    low, high = 0, len(later)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if later[middle][1] < time else (low, middle)
    if not low:
        return later[0][0].base if later and not before else None
    file = later[low - 1][0]
    following = later[low][0].base if low < len(later) else None
    start, stop = 0, file.size  # the record at start is older than the time; those from stop on are not known to be
    while stop - start > _NEAR_ENOUGH:
        middle = next_record(file.map(), file.base, (start + stop) // 2, stop)
        if middle >= stop:
            stop = (start + stop) // 2
        elif (probed := probes.time(file, middle)) is None:
            break
        elif probed < time:
            start = middle
        else:
            stop = (start + stop) // 2
    if before:
        return file.base + start
    return following if stop >= file.size else file.base + stop
