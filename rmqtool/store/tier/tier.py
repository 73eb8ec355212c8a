"""The queue offsets in the tier, read from its segments, and conflicts between them and the local queues.

A broker with tiered storage serves a queue from the lower of both beginnings to the end of the local queue. It finds
the tier only through ``tieredStoreMetadata.json``, deletes a queue's tier if it ends before the local queue begins, and
uploads nothing more of a queue whose tier extends beyond the local end.

Source: tieredstore.TieredMessageStore, core.MessageStoreDispatcherImpl (doScheduleDispatch), file.FlatMessageFile,
metadata.DefaultMetadataStore (5.3.3, 5.5.0).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from formats.config.tiered import COMMIT_LOG, DELETED, INDEX, TieredMetadata
from formats.endings import Ending
from formats.layouts.derived import CQ_ENTRY
from formats.message.read import Record, read
from rmqtool.errors import Refused
from rmqtool.store.config.files import read_either
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.paths import UNIT, StoreLayout
from rmqtool.store.layout.tier_signs import LOCAL_INDEX, METADATA, tier_sign
from rmqtool.store.layout.tiered import Key as SegmentKey
from rmqtool.store.layout.tiered import tiered_files
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord, walk_file
from rmqtool.store.log.returning import Returning
from rmqtool.store.queues.batch import AnyQueue, every_queue
from rmqtool.words import command_line, counted

Key = tuple[str, int]  # topic, queue id
Ranges = Mapping[Key, tuple[int, int]]  # lowest and next queue offset of local queues
_NONE = (0, 0)
_TRIED = 64  # entries looked at around one that leads nowhere


class TierQueue(NamedTuple):
    """The tier of one queue: queue offsets [min_offset, max_offset), and its segments, oldest first.

    Both offsets are 0 if there is no segment of entries.
    """

    min_offset: int
    max_offset: int
    units: list[Segment]
    log: list[Segment]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes [start, stop) of a segment, which contain adjacent messages of a queue, and the entries that lead to them.

    Attributes:
        offsets: queue offsets among which these messages are.
        units: segments of the queue's entries.
    """

    file: Segment
    start: int
    stop: int
    topic: str
    queue_id: int
    offsets: range
    units: list[Segment]

    def walk(self, *, last: bool = True) -> Generator[LocatedRecord | Damage, None, int]:
        """The messages, in order; their physical offset is the position in the tier.

        For ``last`` and what is returned see :func:`rmqtool.store.log.commit_log.walk_file`.
        """
        following = self.offsets.start
        walk = Returning(walk_file(self.file, self.start, self.stop, last=last))
        for item in walk:
            if isinstance(item, Damage):
                yield from self.read_inside(item, following)
            else:
                following = item.record.queue_offset + 1
                yield item
        return walk.value

    def read_inside(self, damage: Damage, following: int) -> Iterator[LocatedRecord | Damage]:
        """What lies in a damaged range: intact messages to which entries lead, though they state another position.

        Args:
            following: the lowest queue offset that these messages can have.
        """
        at, end, beyond = damage.at, damage.at + damage.length, 0
        for offset in range(max(following, self.offsets.start), self.offsets.stop):
            unit = _unit_at(self.units, offset)
            place = unit[0] - self.file.base if unit is not None else -1
            if place >= end:  # a damaged entry may lead anywhere
                beyond += 1
                if beyond == _TRIED:
                    break
                continue
            beyond = 0
            record = read(self.file.map(), place, self.file.size) if place >= at else None
            if isinstance(record, Record) and _is_message(record, (self.topic, self.queue_id), offset):
                if place > at:
                    yield _damage(self.file, at, place - at, damage.ending, damage.reason)
                yield LocatedRecord(self.file, place, record)
                at = place + record.total_size
        if at < end:
            yield _damage(self.file, at, end - at, damage.ending, damage.reason)


DO_NOT_START = "do not start a broker"
_NAMED = 3  # dangers that a refusal names


@dataclass(frozen=True, slots=True, kw_only=True)
class Danger:
    """An effect of a broker's next start on the tier. ``kind``: ``deleted``, ``stopped`` or ``ignored``."""

    kind: str
    topic: str | None
    queueId: int | None
    messages: int  # number of messages lost to consumers
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """The tier of one broker.

    Attributes:
        folder: directory of its segments; None if they are not local files.
        known: whether the metadata file, or its ``.bak``, can be read.
        queues: by topic and queue id; from the metadata alone if there are no local segments.
        segments: all files of this broker, index included, that its metadata do not have as deleted.
    """

    folder: str | None
    known: bool
    queues: dict[Key, TierQueue] = field(default_factory=dict)
    segments: dict[SegmentKey, Segment] = field(default_factory=dict)

    @classmethod
    def of(cls, layout: StoreLayout) -> "Tier | None":
        """The tier of a store, or None without one.

        Raises:
            UnreadableStore: a directory or a segment cannot be read.
        """
        if tier_sign(layout) is None:
            return None
        metadata = metadata_of(layout)
        files = tiered_files(layout)
        if files.folder is None:
            return cls(folder=None, known=metadata is not None, queues=_by_metadata(metadata or TieredMetadata()))
        gone = {
            (s.path, s.type, s.base_offset) for s in (metadata.segments() if metadata else ()) if s.status == DELETED
        }
        owner = _owner(layout, metadata, {path.partition("/")[0] for path, _kind, _base in files.segments})
        own = {
            key: segment
            for key, segment in sorted(files.segments.items())
            if key not in gone and owner in (None, key[0].partition("/")[0])
        }
        parts: dict[str, tuple[list[Segment], list[Segment]]] = {}
        for (path, kind, _base), segment in own.items():
            if kind != INDEX:
                parts.setdefault(path, ([], []))[kind == COMMIT_LOG].append(segment)
        queues = {}
        for path, (units, log) in parts.items():
            topic_queue = _topic_queue(path)
            if topic_queue is not None:
                queues[topic_queue] = _range(units, log)
        return cls(folder=files.folder, known=metadata is not None, queues=queues, segments=own)

    def begin(self, topic: str, queue_id: int, local: int) -> int:
        """The lowest queue offset available to consumers.

        Args:
            local: the lowest one whose message is in the local log.
        """
        queue = self.queues.get((topic, queue_id))
        return min(local, queue.min_offset) if queue is not None and queue.max_offset > queue.min_offset else local

    def alone(self, topic: str, queue_id: int, local: int) -> range:
        """Queue offsets whose messages are only in the tier.

        Args:
            local: see :meth:`begin`.
        """
        queue = self.queues.get((topic, queue_id))
        return range(queue.min_offset, min(queue.max_offset, local)) if queue is not None else range(0)

    def all_alone(self, ranges: Ranges) -> dict[Key, range]:
        """:meth:`alone` for every queue with such messages; for a queue without local files that is all of it."""
        ranges_alone = {}
        for key, queue in sorted(self.queues.items()):
            low, high = ranges.get(key, _NONE)
            alone = self.alone(*key, low if high else queue.max_offset)
            if len(alone):
                ranges_alone[key] = alone
        return ranges_alone

    def unit(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        """(position, size, tags code) of a queue offset; None if it is not in the tier, or segments are not local."""
        queue = self.queues.get((topic, queue_id))
        return _unit_at(queue.units, queue_offset) if queue is not None else None

    def stretches(self, topic: str, queue_id: int, offsets: range) -> list[Stretch]:
        """The file ranges with the messages of queue offsets in the tier, in order."""
        queue = self.queues.get((topic, queue_id))
        if queue is None or (bounds := self._bounds((topic, queue_id), offsets)) is None:
            return []
        low, high = bounds
        return [
            Stretch(
                file, max(low - file.base, 0), min(high - file.base, file.size), topic, queue_id, offsets, queue.units
            )
            for file in queue.log
            if file.base < high and file.end > low
        ]

    def _bounds(self, key: Key, offsets: range) -> tuple[int, int] | None:
        """Positions of the first of these messages and of the end of the last one; None if none is found.

        They are those of messages that are there: an entry alone may lead anywhere. What lies before the first or after
        the last of them belongs to it if entries say so without a gap.
        """

        def find(wanted: Iterable[int]) -> tuple[int, LocatedRecord] | None:
            items = ((at, self.look(*key, at)) for at in wanted)
            return next(((at, item) for at, item in items if isinstance(item, LocatedRecord)), None)

        first, last = find(offsets), find(reversed(offsets))
        if first is None or last is None:
            return None
        low, high = first[1].physical_offset, last[1].end
        for at in range(first[0] - 1, offsets.start - 1, -1):
            unit = self.unit(*key, at)
            if unit is None or unit[1] <= 0 or unit[0] + unit[1] != low:
                break
            low = unit[0]
        for at in range(last[0] + 1, offsets.stop):
            unit = self.unit(*key, at)
            if unit is None or unit[1] <= 0 or unit[0] != high:
                break
            high += unit[1]
        return low, high

    def walk(self, topic: str, queue_id: int, offsets: range) -> Iterator[LocatedRecord | Damage]:
        """The messages of queue offsets in the tier, in order; their physical offset is the position in the tier."""
        for stretch in self.stretches(topic, queue_id, offsets):
            yield from stretch.walk()
            stretch.file.release()

    def record(self, topic: str, queue_id: int, queue_offset: int) -> Record | None:
        """The message of a queue offset in the tier; None if it is not there, or the segments are not local."""
        queue, unit = self.queues.get((topic, queue_id)), self.unit(topic, queue_id, queue_offset)
        if queue is None or unit is None:
            return None
        position, size, _tags = unit
        data = _at(queue.log, position, size) if size > 0 else None
        parsed = read(memoryview(data), 0, len(data), crc=False) if data is not None else None
        return parsed if isinstance(parsed, Record) and parsed.queue_offset == queue_offset else None

    def look(self, topic: str, queue_id: int, queue_offset: int) -> LocatedRecord | Damage | None:
        """The intact message of a queue offset, or what is in its place; None if the tier does not have the offset.

        If its entry does not lead to it, it is looked for where the entries before it lead.
        """
        queue = self.queues.get((topic, queue_id))
        if queue is None or not queue.log or not queue.min_offset <= queue_offset < queue.max_offset:
            return None
        key, unit = (topic, queue_id), self.unit(topic, queue_id, queue_offset)
        item = _look(queue, *unit[:2]) if unit is not None else None
        if isinstance(item, LocatedRecord):
            if _is_message(item.record, key, queue_offset):
                return item
            item = _damage(item.file, item.at, item.record.total_size, Ending.CLEAN, "the message of another queue")
        searched = self._search(queue, key, queue_offset)
        return searched or (item if item is not None and item.length else None)

    def _search(self, queue: TierQueue, key: Key, queue_offset: int) -> LocatedRecord | None:
        """The message of a queue offset, by reading on from the last entry before it that leads to its message."""
        begin = queue.log[0].base
        for before in range(queue_offset - 1, max(queue_offset - 1 - _TRIED, queue.min_offset - 1), -1):
            unit = self.unit(*key, before)
            item = _look(queue, *unit[:2]) if unit is not None else None
            if isinstance(item, LocatedRecord) and _is_message(item.record, key, before):
                begin = item.end
                break
        for file in queue.log:
            if file.end <= begin:
                continue
            for item in walk_file(file, max(begin - file.base, 0), file.size, last=True):
                if isinstance(item, LocatedRecord) and item.record.queue_offset >= queue_offset:
                    return item if _is_message(item.record, key, queue_offset) else None
        return None

    def offset_by_time(self, topic: str, queue_id: int, stop: int, timestamp: int) -> int | None:
        """The first queue offset before ``stop`` whose message was stored at or after a time; None without any.

        A message that cannot be read counts as too early.
        """
        alone = self.alone(topic, queue_id, stop)
        low, high = alone.start, max(alone.stop, alone.start)
        while low < high:
            middle = (low + high) // 2
            record = self.record(topic, queue_id, middle)
            if record is None or record.store_timestamp < timestamp:
                low = middle + 1
            else:
                high = middle
        return low if low < alone.stop else None

    def dangers(self, ranges: Ranges) -> list[Danger]:
        """Return what a broker's start would do to the tier, given local queues with these ranges."""
        return list(self._dangers(ranges))

    def _dangers(self, ranges: Ranges) -> Iterator[Danger]:
        if not self.known:
            if self.queues:
                alone = sum(map(len, self.all_alone(ranges).values()))
                text = (
                    f"config/{METADATA} and its .bak cannot be read: a broker's next start finds nothing of the tier, "
                    f"serves nothing of what it has alone ({counted(alone, 'message')}), and starts a new tier in the "
                    "same folder"
                )
                yield Danger(kind="ignored", topic=None, queueId=None, messages=alone, words=text)
            return
        for key, queue in sorted(self.queues.items()):
            topic, queue_id = key
            low, high = ranges.get(key, _NONE)
            if queue.max_offset <= queue.min_offset:
                continue
            name = f"{topic} queue {queue_id}: its tier has {queue.min_offset} to {queue.max_offset}"
            if queue.max_offset > high:
                have = f"the local queue ends at {high}" if high else "there is no local queue"
                text = (
                    f"{name}, but {have}: a broker numbers new messages from {high} on, though the tier has others "
                    "under these numbers, and uploads nothing more of this queue"
                )
                yield Danger(
                    kind="stopped", topic=topic, queueId=queue_id, messages=queue.max_offset - high, words=text
                )
            elif queue.max_offset < low:
                lost = queue.max_offset - queue.min_offset
                text = f"{name}, but the local queue begins at {low}: a broker deletes the whole tier of this queue"
                yield Danger(kind="deleted", topic=topic, queueId=queue_id, messages=lost, words=text)


def log_segments(layout: StoreLayout) -> list[Segment]:
    """The files of the logs of a store's tier, those that the metadata have as deleted included; empty without any.

    Raises:
        Refused: the tier has segments that are not here as files, or it is unknown which ones are this store's.
        UnreadableStore: a directory cannot be listed.
    """
    if tier_sign(layout) is None:
        return []
    provider = layout.conf.text("tieredBackendServiceProvider") or "PosixFileSegment"
    in_memory = provider.endswith("MemoryFileSegment")  # gone since its broker stopped
    if not in_memory and not provider.endswith("PosixFileSegment"):
        raise Refused(f"{layout.root}: the segments of its tier are kept by {provider}: rmqtool does not write there")
    metadata, files = metadata_of(layout), tiered_files(layout)
    logs = {key: segment for key, segment in sorted(files.segments.items()) if key[1] == COMMIT_LOG}
    brokers = {path.partition("/")[0] for path, _kind, _base in logs}
    owner = _owner(layout, metadata, brokers)
    if owner is None and len(brokers) > 1:
        raise Refused(
            f"{files.folder}: has segments of several brokers ({', '.join(sorted(brokers))}), and which of them is "
            "this store's is unknown: give its settings with --broker-conf"
        )
    kept = [s for s in (metadata.segments() if metadata else ()) if s.type == COMMIT_LOG and s.status != DELETED]
    missing = [f"{s.path}/{s.base_offset}" for s in kept if s.size and (s.path, s.type, s.base_offset) not in logs]
    if files.folder is None and metadata is None and layout.entries(LOCAL_INDEX):
        missing = [LOCAL_INDEX]
    if missing and not in_memory:
        raise Refused(
            f"{layout.root}: its tier has segments that are not here, such as that of {missing[0]} "
            "(tieredStoreFilePath names their directory: --broker-conf)"
        )
    return [segment for key, segment in logs.items() if owner in (None, key[0].partition("/")[0])]


def local_ranges(
    layout: StoreLayout, queues: Iterable[AnyQueue] | None = None, low: int | None = None
) -> dict[Key, tuple[int, int]]:
    """(lowest offset whose message is in the local log, next offset) of every local queue.

    Args:
        low: physical offset of the beginning of the log; by default the current one.

    Raises:
        UnreadableStore, CorruptFile: queues cannot be read.
        MissingRuntime: they are in RocksDB, and the library to read them is not installed.
    """
    begin = CommitLog(layout).min_offset
    queues_here = every_queue(layout) if queues is None else list(queues)
    ranges = {(queue.topic, queue.queue_id): (queue.min_offset(begin), queue.max_offset) for queue in queues_here}
    if low is not None:
        for queue in queues_here:
            first, end = ranges[queue.topic, queue.queue_id]
            first = bisect_left(range(end), low, min(first, end), key=lambda at, queue=queue: _physical(queue, at))  # type: ignore[misc]
            ranges[queue.topic, queue.queue_id] = first, end
    return ranges


def _physical(queue: AnyQueue, queue_offset: int) -> int:
    entry = queue.entry(queue_offset)
    return entry.physical_offset if entry is not None else -1


def metadata_of(layout: StoreLayout) -> TieredMetadata | None:
    """The metadata that a broker would load: from the file, else from its ``.bak``."""
    config = read_either(layout, METADATA)
    return config if isinstance(config, TieredMetadata) else None


def _owner(layout: StoreLayout, metadata: TieredMetadata | None, brokers: set[str]) -> str | None:
    """The broker that owns the tier, if several share a directory; None if not needed or unknown."""
    name = layout.conf.text("brokerName")
    if name in brokers:
        return name
    known = {segment.path.partition("/")[0] for segment in metadata.segments()} if metadata is not None else set()
    return known.pop() if len(known) == 1 else None


def _topic_queue(path: str) -> Key | None:
    parts = path.split("/")
    if len(parts) != 3 or not (parts[2].isascii() and parts[2].isdigit()) or len(parts[2]) > 10:
        return None
    return parts[1], int(parts[2])


def _range(units: list[Segment], log: list[Segment]) -> TierQueue:
    """[max(first unit, queue offset of the first record), last unit) (FlatMessageFile)."""
    if not units:
        return TierQueue(*_NONE, units, log)
    low, high = units[0].base // UNIT, units[-1].end // UNIT
    if log:
        first = read(log[0].view(), 0, log[0].size, crc=False) if log[0].size else None
        log[0].release()
        if isinstance(first, Record) and first.queue_offset > low:
            # the entries before it are of an expired segment of the log, unless its queue offset is damaged
            unit = _at(units, first.queue_offset * UNIT, UNIT)
            if unit is not None and CQ_ENTRY.unpack_from(unit, 0)[0] == log[0].base:
                low = first.queue_offset
    return TierQueue(low, high, units, log)


def _by_metadata(metadata: TieredMetadata) -> dict[Key, TierQueue]:
    queues = {}
    for path, table in metadata.consume_queues.items():
        key = _topic_queue(path)
        segments = [segment for _base, segment in sorted(table.items()) if segment.status != DELETED]
        if key is not None and segments:
            last = segments[-1]
            low, high = segments[0].base_offset // UNIT, (last.base_offset + last.size) // UNIT
            queues[key] = TierQueue(low, high, [], [])
    return queues


def _at(segments: list[Segment], offset: int, size: int) -> bytes | None:
    """Bytes of an address space, read from the segment that contains them."""
    number = bisect_right(segments, offset, key=lambda segment: segment.base) - 1
    if number < 0 or offset + size > segments[number].end:
        return None
    data = segments[number].read(offset - segments[number].base, size)
    return data if len(data) == size else None


def _unit_at(units: list[Segment], queue_offset: int) -> tuple[int, int, int] | None:
    unit = _at(units, queue_offset * UNIT, UNIT)
    return CQ_ENTRY.unpack_from(unit, 0) if unit is not None else None


def _look(queue: TierQueue, position: int, size: int) -> LocatedRecord | Damage | None:
    """The record at a position of a queue's log, or what is there instead; None if no segment has it."""
    number = bisect_right(queue.log, position, key=lambda segment: segment.base) - 1
    if number < 0 or position >= queue.log[number].end:
        return None
    file = queue.log[number]
    at = position - file.base
    parsed = read(file.view(), at, file.size)
    if isinstance(parsed, Record):
        return LocatedRecord(file, at, parsed)
    return _damage(file, at, size, parsed.ending, parsed.reason)


def _damage(file: Segment, at: int, size: int, ending: Ending, reason: str) -> Damage:
    return Damage(file.path, at, file.base + at, min(max(size, 0), file.size - at), ending, reason)


def _is_message(record: Record, key: Key, queue_offset: int) -> bool:
    """Whether a record is the message of a queue offset; no checksum covers topic, queue and offset."""
    topic = record.topic.decode("utf-8", "surrogateescape")
    return (topic, record.queue_id, record.queue_offset) == (*key, queue_offset)


def tier_dangers(layout: StoreLayout, ranges: Ranges) -> list[str]:
    """Return what a broker's next start would do to the tier, given queues with these ranges; one sentence each.

    Raises:
        UnreadableStore: the tier cannot be read.
    """
    tier = Tier.of(layout)
    cure = command_line("rebuild", layout.root, "tiered-metadata")
    return [
        f"{danger.words}. {cure} writes the file from the segments" if danger.kind == "ignored" else danger.words
        for danger in (tier.dangers(ranges) if tier is not None else ())
    ]


def refuse_dangers(layout: StoreLayout, dangers: Iterable[str]) -> None:
    """Refuse to write if there are any such dangers.

    Raises:
        Refused: there are; names the first ones.
    """
    if reasons := list(dangers):
        more = f"; and {len(reasons) - _NAMED} more queues" if len(reasons) > _NAMED else ""
        raise Refused(f"{layout.root}: {'; '.join(reasons[:_NAMED])}{more}. Nothing was changed; {DO_NOT_START}")
