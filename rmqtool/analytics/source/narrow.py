"""Ways to a few messages that do not go through the whole log: index, consume queues, store times.

What a way leads past must not be missed. Index and queues are therefore used only in a store that a broker has closed,
or holds; only where they are sound as far as that shows at little cost; and what they do not reach yet is scanned.
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
from rmqtool.store.disk.remote import need, record_at, record_start
from rmqtool.store.disk.segments import Segment
from rmqtool.store.disk.sparse import data_end
from rmqtool.store.index.reader import IndexView, open_index
from rmqtool.store.layout.paths import UNIT, StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord, next_record
from rmqtool.store.queues.reader import ConsumeQueue

NEAR = 4096  # bytes between two messages that are read together with what lies between them
_SHARE = 3  # a way that leads to more than one in so many bytes of the log is no shorter one
_CLOCK_SLACK = 60_000  # ms that a broker's clock may have gone back while it ran
_NEAR_ENOUGH = 4 << 10  # bytes; a search by time ends here
_MOST_HELD = 1 << 24  # entries of queues that are compared with those of the index
_UNCLEAR = set("*?[\ufffd")


@dataclass(slots=True)
class Way:
    """Where messages lie: exact ranges, and stretches of the log that must be scanned besides.

    Attributes:
        starts: physical offsets at which records begin, ascending.
        stops: where these records end.
        scan: (start, stop) of stretches; None is the log's end.
        bytes_read: of index, queues and log, to find out.
    """

    starts: Any
    stops: Any
    scan: list[tuple[int, int | None]] = field(default_factory=list)
    bytes_read: int = 0


def is_orderly(layout: StoreLayout) -> bool:
    """Whether a broker has closed the store, or holds it: then its queues and index are what it works with itself."""
    return not layout.aborted or holder(layout.root) is not None


def shortest(log: CommitLog, wanted: Wanted) -> Way | None:
    """The shortest way to what is wanted; None when that is the log itself."""
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
    """The topics asked for, by name; none where there are patterns among them."""
    # a name that is not UTF-8 is shown with another letter, and several may look the same
    return () if any(_UNCLEAR & set(topic) for topic in choice.topics) else choice.topics


# -- index ------------------------------------------------------------------------------------------------------------


def _by_index(log: CommitLog, wanted: Wanted) -> Way | None:
    """By key or unique id, which the index has both; the broker hashes them with the topic.

    A broker may have kept no index for a while, and lost index files go unnoticed. So each message that
    queues point at must have an entry; those that have none are read besides.
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
        used = file.header.index_count
        need(file.view, entry_at(file.slots, 1), entry_at(file.slots, used))
        entries = entries_array(file.view, file.slots)[1:used]
        indexed.append(entries["physical_offset"].astype(np.int64))
        bytes_read += entries.nbytes
    bare = ~np.isin(every, np.concatenate(indexed))
    queued = {topic for topic, _queue_id, _path in log.layout.queue_dirs()}
    topics = _names(wanted.choice) or (queued and queued | _configured_queues(log.layout).keys())
    if not topics:
        return None  # without queues there is no telling which topics there are
    # what has no unique id has its offset id as msgId
    offsets = {parse_offset_id(text).physical_offset for text in wanted.ids if is_id(text)}
    for topic in topics:
        for key in wanted.ids or wanted.choice.keys:
            hashed = key_hash(topic, key)
            for file in sound:
                for entry in _chain(file, hashed):
                    bytes_read += UNIT
                    if entry.key_hash % file.slots != hashed % file.slots:
                        return None  # a page of the file was lost: the rest of the chain is too
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
    """:func:`formats.index.chain`, with all there that it looks at."""
    number = newest(file.view, file.slots, hashed)
    need(file.view, at := entry_at(file.slots, number), at + ENTRY_SIZE)
    for _number, entry in chain(file.view, file.slots, hashed):
        need(file.view, at := entry_at(file.slots, entry.previous_entry), at + ENTRY_SIZE)
        yield entry


def _all_slots(file: IndexView) -> bool:
    """Whether as many slots are in use as the header counts: a page of slots that was lost shows here."""
    header = file.header
    used = int(np.count_nonzero(slots_array(file.view, file.slots)))
    whole = used >= header.hash_slot_count and (used > 0) == (header.index_count > 1)
    return whole and header.index_count <= file.entries


# -- consume queues ---------------------------------------------------------------------------------------------------


def _by_queues(log: CommitLog, choice: MessageChoice) -> Way | None:
    """By topic, and maybe queue id and queue offset."""
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
    """Which messages lie in no stretch that is read anyway."""
    outside = np.ones(len(starts), bool)
    for first, end in scan:
        outside &= (starts < first) | (starts >= (1 << 62 if end is None else end))
    return outside


def _find_covered(log: CommitLog, *, hold: bool = False) -> tuple[list[tuple[int, int | None]], int, Any, Any] | None:
    """(stretches that queues may lack messages of, bytes read, offsets and sizes of all messages in queues if held).

    None where a queue's entries are not of its own topic and id, or there are too many to hold.
    """
    cover, bytes_read, count = Cover(log), 0, 0
    offsets, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]

    def read(queue: tuple[str, int, str]) -> Any:
        return _entries(ConsumeQueue(log.layout, *queue), MessageChoice())

    for topic, queue_id, path in log.layout.queue_dirs():
        if topic.startswith(LMQ_PREFIX):
            continue  # their messages are in other queues too
        units = read((topic, queue_id, path))
        if units is None:
            continue  # a hole: what it lacks shows
        bytes_read += units.nbytes
        units = units[units["physical_offset"] >= log.min_offset]
        if not len(units):
            continue
        starts = units["physical_offset"].astype(np.int64)
        lengths = units["size"].astype(np.int64)
        if (starts >= log.segments.files[-1].end).any():
            return None
        item = log.look(int(starts[-1]), crc=False)  # a directory that was renamed is another topic's
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
    """Where the hole begins that a file ends with: behind it no entry can be."""
    return data_end(file.path, 0, file.size)


def _entries(queue: ConsumeQueue, choice: MessageChoice) -> Any:
    """The entries of a queue that are asked for; None when the queue has a hole."""
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
        some = np.array(units[low : min(high, -(-_data_end(file) // UNIT))])
        valid = some["size"] > 0
        count = int(valid.sum())
        if not valid[:count].all() or (number < len(files) - 1 and count < high - low):
            return None
        some = some[:count]
        entries.append(some[some["size"] != FILLER_SIZE])
        file.release()
    return np.concatenate(entries) if entries else np.empty(0, as_array(b"").dtype)


def _configured_queues(layout: StoreLayout) -> dict[str, int]:
    """Topic: number of queues that it is written to, as its config says."""
    from formats.config.files import Topics

    try:
        table = read_config(layout, "topics.json")
    except CorruptFile:
        return {}
    return {name: topic.write_queue_nums for name, topic in table.topics.items()} if isinstance(table, Topics) else {}


def _join(starts: Any, stops: Any, log: CommitLog) -> tuple[Any, Any]:
    """Ranges with their near neighbours of the same file joined."""
    if not len(starts):
        return starts, stops
    bases = np.array([file.base for file in log.segments.files], np.int64)
    file = np.searchsorted(bases, starts, side="right")
    ends = np.maximum.accumulate(stops)
    apart = np.flatnonzero((starts[1:] - ends[:-1] > NEAR) | (file[1:] != file[:-1])) + 1
    return starts[np.concatenate(([0], apart))], ends[np.concatenate((apart - 1, [len(ends) - 1]))]


# -- store time -------------------------------------------------------------------------------------------------------


def between(log: CommitLog, since: int | None, until: int | None) -> tuple[int | None, int | None, int]:
    """(start, stop, bytes read): physical offsets between which messages of a time lie; None is the log's end.

    This goes by the log's order, which the caller must know of: see :mod:`rmqtool.analytics.source.times`. Store times
    grow along the log; by a minute a broker's clock may go back.
    """
    if since is None and until is None:
        return None, None, 0
    files, probes = log.segments.files, _Probes(log.layout.root)
    first = None if since is None else _first_at(files, since - _CLOCK_SLACK, probes)
    stop = None if until is None else _first_at(files, until + _CLOCK_SLACK, probes, before=False)
    return first, stop, probes.bytes


class _Probes:
    """Reads single records, and counts their bytes."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.bytes = 0

    def first_times(self, files: list[Segment]) -> list[tuple[Segment, int]]:
        """Files with the store times of their first records, where one is."""
        return [
            (file, time)
            for file, time in zip(files, each(self._first_time, files, self._root), strict=True)
            if time is not None
        ]

    def _first_time(self, file: Segment) -> int | None:
        try:
            return self.time(file, 0)
        finally:
            file.release()  # of a long log there are many

    def time(self, file: Segment, at: int) -> int | None:
        """Store time of a record; None where none is."""
        record = record_at(file.map(), record_start(file.map(), at), file.size, crc=False)
        if not isinstance(record, Record):
            return None
        self.bytes += record.total_size
        return record.store_timestamp


def _first_at(files: list[Segment], time: int, probes: _Probes, *, before: bool = True) -> int | None:
    """Where messages of a time begin: all before it in the log are older. None: at the end, or not known.

    Args:
        before: whether the answer may lie before that place, or behind it.
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
    start, stop = 0, file.size  # a record older than the time begins at start, and none is known to from stop on
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
