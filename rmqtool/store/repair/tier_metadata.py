"""Write ``config/tieredStoreMetadata.json`` from the segments of a tier.

A broker finds its tier through this file alone: without it, it serves nothing of the tier and starts a new one in the
same directory. Everything in it follows from the segments: names and lengths of files, store times of the messages,
and the ids of topics, which the items of index segments refer to.

Source: tieredstore.metadata.DefaultMetadataStore, file.FlatAppendFile, index.IndexStoreFile (5.3.3, 5.5.0).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import numpy as np

from formats.config.tiered import (
    COMMIT_LOG,
    CONSUME_QUEUE,
    DELETED,
    INDEX,
    TieredMetadata,
    TieredQueue,
    TieredQueueName,
    TieredSegment,
    TieredTopic,
)
from formats.layouts.derived import CQ_ENTRY, TIERED_INDEX_HEAD, TIERED_INDEX_ITEM
from formats.message.read import Record, read
from formats.versions import V5_3
from rmqtool.errors import BadValue, Refused, RmqError
from rmqtool.store.changes.change import Change
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.tier_signs import METADATA
from rmqtool.store.layout.tiered import Key, tiered_files
from rmqtool.store.tier.tier import DO_NOT_START, Tier, local_ranges, metadata_of
from rmqtool.words import counted

_MAGIC = 0xBCC50285 - (1 << 32)
_MOST_ITEMS = 20_000  # of each segment, to find the ids of topics
_UNKNOWN = 2**63 - 1


class TierMetadataBuilder:
    """Builds the metadata of a store's tier.

    What a metadata file or its ``.bak`` says of a segment or topic is kept, except for the length.

    Attributes:
        warnings: what a broker's next start does to the tier all the same.
        messages: number of units in the queues of the tier.
        queues: number of its queues.

    Raises:
        BadValue: the store has no tier.
        Refused: its segments are not files, or belong to several brokers of which the settings name none.
        UnreadableStore: a segment cannot be read.
    """

    def __init__(self, layout: StoreLayout) -> None:
        self._layout = layout
        self.warnings: list[str] = []
        files = tiered_files(layout)
        if files.folder is None:
            known = metadata_of(layout)
            reason = "its segments are not files here (tieredStoreFilePath)" if known else "it has no tiered storage"
            raise Refused(f"{layout.root}: {reason}") if known else BadValue(f"{layout.root}: {reason}")
        self._old = metadata_of(layout) or TieredMetadata()
        broker = self._broker({path.partition("/")[0] for path, _kind, _base in files.segments})
        self._gone = {(old.path, old.type, old.base_offset) for old in self._old.segments() if old.status == DELETED}
        own = [(key, segment) for key, segment in sorted(files.segments.items()) if key[0].partition("/")[0] == broker]
        self._segments: dict[Key, Segment] = {}
        self._logs: dict[str, list[Segment]] = {}  # path of a queue → segments of its log
        for key, segment in own:
            path, kind, _base = key
            if not _is_queue(path):
                self.warnings.append(f"{segment.path}: not below BROKER/TOPIC/QUEUE: left out")
            elif key not in self._gone:
                self._segments[key] = segment
                if kind == COMMIT_LOG:
                    self._logs.setdefault(path, []).append(segment)
        self._made = max((segment.mtime_ns // 1_000_000 for segment in self._segments.values()), default=0)
        self.messages = sum(
            segment.size // CQ_ENTRY.size for key, segment in self._segments.items() if key[1] == CONSUME_QUEUE
        )
        self.queues = len({path for path, kind, _base in self._segments if kind == CONSUME_QUEUE})

    def _broker(self, brokers: set[str]) -> str:
        name = self._layout.conf.text("brokerName")
        if name in brokers:
            return str(name)
        known = {segment.path.partition("/")[0] for segment in self._old.segments()} & brokers
        chosen = known or brokers
        if len(chosen) != 1:
            raise Refused(
                f"{self._layout.root}: its tier has segments of {counted(len(brokers), 'broker')} "
                f"({', '.join(sorted(brokers))}): give --broker-conf, which has brokerName"
            )
        return chosen.pop()

    def build(self) -> TieredMetadata:
        """The metadata of all segments."""
        tables: dict[int, dict[str, dict[int, TieredSegment]]] = {COMMIT_LOG: {}, CONSUME_QUEUE: {}, INDEX: {}}
        known = {(old.path, old.type, old.base_offset): old for old in self._old.segments()}
        for key, segment in self._segments.items():
            path, kind, base = key
            old = known.get(key)
            tables[kind].setdefault(path, {})[base] = (
                self._describe(key, segment) if old is None else replace(old, size=segment.size)
            )
            segment.release()
        queues = self._queue_tables()
        ids = self._topic_ids({*queues})
        topics = {
            topic: self._old.topics.get(topic) or TieredTopic(topic_id=number, topic=topic, update_timestamp=self._made)
            for topic, number in ids.items()
        }
        return TieredMetadata(
            commit_logs=tables[COMMIT_LOG],
            consume_queues=tables[CONSUME_QUEUE],
            indexes=tables[INDEX],
            queues=queues,
            topics=topics,
            topic_serial_number=max([self._old.topic_serial_number, *ids.values()]),
        )

    def prepare(self, change: Change) -> list[str]:
        """Add the new file to a change; returns the plan as text, empty if the file is as it should be."""
        metadata = self.build()
        self._warn(metadata)
        if metadata == self._old:
            return []
        change.put_content(self._layout.path("config", METADATA), metadata.build(V5_3))
        segments = counted(len(self._segments), "segment")
        return [f"write config/{METADATA}: {segments} of {counted(self.queues, 'queue')}"]

    def _warn(self, metadata: TieredMetadata) -> None:
        tier = Tier.of(self._layout)
        if tier is None:
            return
        there = Tier(folder=tier.folder, known=bool(metadata.commit_logs), queues=tier.queues)
        try:
            dangers = there.dangers(local_ranges(self._layout))
        except RmqError as err:
            self.warnings.append(f"{err}: whether a broker's start goes on with the tier is not known")
            return
        self.warnings += [f"{DO_NOT_START}: {danger.words}" for danger in dangers]

    # -- segments -----------------------------------------------------------------------------------------------------

    def _describe(self, key: Key, segment: Segment) -> TieredSegment:
        path, kind, base = key
        first, last = self._times(key, segment)
        return TieredSegment(
            path=path,
            type=kind,
            base_offset=base,
            size=segment.size,
            create_timestamp=segment.mtime_ns // 1_000_000,
            begin_timestamp=first,
            end_timestamp=last,
        )

    def _times(self, key: Key, segment: Segment) -> tuple[int, int]:
        """Store times of the first and the last message of a segment."""
        path, kind, _base = key
        if kind == INDEX:
            head = _index_head(segment)
            return (head[1], head[2]) if head is not None else (_UNKNOWN, _UNKNOWN)
        if kind == COMMIT_LOG:
            times = [record.store_timestamp for record in _records(segment)]
        else:
            last = segment.size - segment.size % CQ_ENTRY.size - CQ_ENTRY.size
            units = [CQ_ENTRY.unpack_from(segment.read(at, CQ_ENTRY.size), 0) for at in {0, last} if last >= 0]
            records = [self._record(path, position) for position, _size, _tags in units]
            times = sorted(record.store_timestamp for record in records if record is not None)
        return (times[0], times[-1]) if times else (_UNKNOWN, _UNKNOWN)

    def _log(self, path: str, position: int) -> Segment | None:
        """The segment of a queue's log that contains a position."""
        segments = self._logs.get(path, ())
        return next((segment for segment in segments if segment.base <= position < segment.base + segment.size), None)

    def _record(self, path: str, position: int) -> Record | None:
        segment = self._log(path, position)
        if segment is None:
            return None
        record = read(segment.view(), position - segment.base, segment.size, crc=False)
        return record if isinstance(record, Record) else None

    # -- queues and topics --------------------------------------------------------------------------------------------

    def _queue_tables(self) -> dict[str, dict[int, TieredQueue]]:
        """Every queue; brokers write -1 for its range."""
        queues: dict[str, dict[int, TieredQueue]] = {}
        for path, kind, _base in self._segments:
            broker, topic, queue_id = path.split("/")
            if kind == INDEX:
                continue
            old = self._old.queues.get(topic, {}).get(int(queue_id))
            name = TieredQueueName(topic=topic, broker_name=broker, queue_id=int(queue_id))
            new = TieredQueue(queue=name, min_offset=-1, max_offset=-1, update_timestamp=self._made)
            queues.setdefault(topic, {})[int(queue_id)] = old or new
        return queues

    def _topic_ids(self, topics: set[str]) -> dict[str, int]:
        """The id of each topic: the known one, the one that index items use for its messages, or a new one."""
        ids = {topic: self._old.topics[topic].topic_id for topic in topics if topic in self._old.topics}
        votes = self._votes(topics - ids.keys()) if topics - ids.keys() else Counter()
        for (topic, number), _votes in votes.most_common():
            if topic not in ids and number not in ids.values():
                ids[topic] = number
        used = {*ids.values(), *(number for _topic, number in votes)}
        free = (number for number in count(max(used, default=-1) + 1))
        return ids | {topic: next(free) for topic in sorted(topics - ids.keys())}

    def _votes(self, topics: set[str]) -> Counter[tuple[str, int]]:
        """How many index items of an id have the place of a message of a topic, by its queue entries."""
        wanted: dict[int, dict[tuple[int, int], list[int]]] = {}  # queue id → place → topic ids
        for topic_id, queue_id, position, size in self._items():
            wanted.setdefault(queue_id, {}).setdefault((position, size), []).append(topic_id)
        votes: Counter[tuple[str, int]] = Counter()
        for (path, kind, _base), segment in self._segments.items():
            _broker, topic, number = path.split("/")
            if kind != CONSUME_QUEUE or topic not in topics or not (places := wanted.get(int(number))):
                continue
            data = segment.read(0, segment.size - segment.size % CQ_ENTRY.size)
            units = np.frombuffer(data, CQ_ENTRY.dtype)
            units = units[np.isin(units["physical_offset"], [position for position, _size in places])]
            for place in zip(units["physical_offset"].tolist(), units["size"].tolist(), strict=True):
                votes.update((topic, topic_id) for topic_id in places.get(place, ()))
        return votes

    def _items(self) -> Iterator[tuple[int, int, int, int]]:
        """(topic id, queue id, position, size) of the items of uploaded index segments."""
        for (_path, kind, _base), segment in self._segments.items():
            head = _index_head(segment) if kind == INDEX else None
            if head is None:
                continue
            start = segment.size - TIERED_INDEX_ITEM.size * head[4]  # the number of slots is not stored
            data = segment.read(start, min(head[4], _MOST_ITEMS) * TIERED_INDEX_ITEM.size)
            items = np.frombuffer(data, TIERED_INDEX_ITEM.dtype, len(data) // TIERED_INDEX_ITEM.size)
            yield from zip(
                *(items[name].tolist() for name in ("topic_id", "queue_id", "position", "size")), strict=True
            )


def _is_queue(path: str) -> bool:
    """Whether a path in the tier has the form ``broker/topic/queue``."""
    parts = path.split("/")
    return len(parts) == 3 and parts[2].isascii() and parts[2].isdecimal()


def _index_head(segment: Segment) -> tuple[int, ...] | None:
    """The header of an uploaded index segment; None if it has none."""
    data = segment.read(0, TIERED_INDEX_HEAD.size)
    if len(data) < TIERED_INDEX_HEAD.size:
        return None
    head: tuple[int, ...] = TIERED_INDEX_HEAD.unpack_from(data, 0)
    whole = 0 <= head[4] * TIERED_INDEX_ITEM.size <= segment.size - TIERED_INDEX_HEAD.size
    return head if head[0] == _MAGIC and whole else None


def _records(segment: Segment) -> Iterator[Record]:
    at = 0
    while at < segment.size and isinstance(record := read(segment.view(), at, segment.size, crc=False), Record):
        yield record
        at += record.total_size
