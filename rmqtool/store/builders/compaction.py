"""Rebuild the logs of compacted topics (5.x) from every intact message in them or in the commit log.

A consistent queue is left alone. In the others each key keeps its newest message, and all messages that no
compaction has processed are kept for the next one. If both logs have a queue offset, the commit log is right.

Source: store.kv.CompactionLog (asyncPutMessage, shouldRetainMsg, CompactionAppendMessageCallback).
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from formats.config.files import Topics
from formats.message.build import BLANK_SIZE, build_blank
from formats.message.properties import KEYS, TAGS, parse
from formats.message.read import Record
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE, java_hash
from formats.queues.batch import END_UNIT, SIZE, BatchEntry, build, valid_prefix
from formats.queues.batch import as_array as units_of
from formats.variants import compaction
from rmqtool.errors import CorruptFile, Refused
from rmqtool.store.changes.change import Change
from rmqtool.store.config.files import read_config
from rmqtool.store.disk import files as disk
from rmqtool.store.disk.segments import Segment
from rmqtool.store.disk.sparse import is_zero
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord, walk_file
from rmqtool.store.queues.batch import open_any_queue, queues_where
from rmqtool.store.queues.compaction import (
    FOLDER,
    POSITIONS,
    CompactionQueue,
    compaction_queues_of,
    positions_of,
)
from rmqtool.store.queues.reader import QueueEntry
from rmqtool.store.releases.rules import COMPACTED, topics_with

_AT_ONCE = 1 << 20


class _Message(NamedTuple):
    """The place of an intact message; its bytes are read when they are written."""

    file: Segment
    at: int
    size: int
    key: str
    body: bool


class EntryQueue(Protocol):
    """The part of a consume queue's interface needed here."""

    topic: str
    queue_id: int
    path: str

    @property
    def max_offset(self) -> int:
        """Queue offset after the last entry."""

    def min_offset(self, min_physical_offset: int) -> int:
        """Lowest queue offset, for a log that begins at a physical offset."""

    def entry(self, queue_offset: int) -> QueueEntry | None:
        """The entry at a queue offset; None if there is none."""

    def entries(self, start: int) -> Iterator[QueueEntry]:
        """Entries from a queue offset on."""


class CompactionBuilder:
    """Rebuilds the logs of compacted topics.

    Args:
        limits: by queue, the queue offset from which on only the commit log counts.
        topics: the compacted topics; by default those that the config files name.
        opened: opens a queue in the state after recovery; by default queues are read as they are on disk.
        names: the queues that exist in that state.
        left: queues to skip.

    Attributes:
        messages: number of messages read.
        queues: number of queues rebuilt.
        units: number of units in these queues.
        warnings: for the user.

    Raises:
        Refused: there is no table of topics that says which topics are compacted.
    """

    def __init__(
        self,
        layout: StoreLayout,
        limits: Mapping[tuple[str, int], int] | None = None,
        *,
        topics: Collection[str] | None = None,
        opened: Callable[[str, int], EntryQueue | None] | None = None,
        names: Collection[tuple[str, int]] = (),
        left: Collection[tuple[str, int]] = (),
    ) -> None:
        self._limits, self._names, self._left = limits or {}, names, left
        self._opened, self._recovered = opened, opened is not None
        self.layout, self.log = layout, CommitLog(layout)
        self.messages = self.queues = self.units = 0
        self.warnings: list[str] = []
        self._lost_positions = self._warned_of_sizes = False
        self._topics = self._compacted_topics() if topics is None else topics
        self._positions = self._known_positions()
        self._offsets = dict(self._positions.offsets)

    def _compacted_topics(self) -> Collection[str]:
        for bak in (False, True):
            try:
                config = read_config(self.layout, "topics.json", bak=bak)
            except CorruptFile:
                continue
            if isinstance(config, Topics):
                return topics_with(config.topics, *COMPACTED)
        raise Refused(f"{self.layout.root}: no topics.json says which topics are compacted: see rebuild config")

    def _known_positions(self) -> compaction.CompactionPositions:
        try:
            return positions_of(self.layout) or compaction.CompactionPositions()
        except CorruptFile as err:
            self.warnings.append(f"{err}: the next compaction looks at all messages again")
            self._lost_positions = True
            return compaction.CompactionPositions()

    def prepare(self, change: Change) -> list[str]:
        """Build the files aside and add the swap to a change; returns descriptions of the steps."""
        steps: list[str] = []
        queues = {(queue.topic, queue.queue_id): queue for queue in compaction_queues_of(self.layout)}
        for source in queues_where(self.layout, lambda topic, _queue_id: topic in self._topics):
            queues.setdefault(
                (source.topic, source.queue_id), CompactionQueue(self.layout, source.topic, source.queue_id)
            )
        for topic, queue_id in self._names:
            queues.setdefault((topic, queue_id), CompactionQueue(self.layout, topic, queue_id))
        for (topic, queue_id), queue in sorted(queues.items()):
            if topic in self._topics and (topic, queue_id) not in self._left:
                self._rebuild_queue(queue, change, steps)
        if self._offsets != self._positions.offsets or (self._lost_positions and (steps or self._recovered)):
            new = replace(self._positions, offsets=self._offsets, empty=not self._offsets)
            change.put_content(self.layout.path(FOLDER, POSITIONS), new.build())
            steps.append(f"put {FOLDER}/{POSITIONS}")
        change.expect_log([(file.path, file.size) for file in self.log.segments], None, 0)
        return steps

    def _rebuild_queue(self, queue: CompactionQueue, change: Change, steps: list[str]) -> None:
        name = compaction.position_key(queue.topic, queue.queue_id)
        position = self._offsets.get(name, -1)
        wanted, end = self._find_wanted(queue, position)
        if end is not None and position >= end:
            self._offsets.pop(name)  # future messages would never be compacted
            wanted, end = self._find_wanted(queue, -1)
        if self._in_order(queue, wanted, end):
            return
        if not (queue.knows_sizes or self._warned_of_sizes):
            self._warned_of_sizes = True
            self.warnings.append(
                f"{FOLDER}: no file tells the length of its files: they are made as long as is the broker's default "
                f"({queue.log_size} and {queue.queue_size} bytes; --broker-conf knows better), and it shows consumers "
                "none of another length"
            )
        writer = _Writer(queue, change)
        for offset, message in sorted(wanted.items()):
            data = bytes(message.file.view()[message.at : message.at + message.size])
            if not writer.append(data, offset):
                self.warnings.append(
                    f"{queue.topic} queue {queue.queue_id}: the message at queue offset {offset} is longer than a file "
                    "of the log, and is left out, as by a broker"
                )
        writer.close()
        old = [file.path for file in (*queue.log, *queue.queue)] + [path for path, _size in queue.strange]
        for path in old:
            if path not in writer.paths:
                change.remove(path)
                steps.append(f"remove {os.path.relpath(path, self.layout.root)}")
        steps += [f"put {os.path.relpath(path, self.layout.root)}" for path in writer.paths]
        self.queues, self.units = self.queues + 1, self.units + writer.units

    def _find_wanted(self, queue: CompactionQueue, position: int) -> tuple[dict[int, _Message], int | None]:
        """(messages by queue offset, queue offset of the topic's queue end; None if unknown)."""
        wanted: dict[int, _Message] = {}
        for file in queue.log:
            for item in walk_file(file, 0, file.size, last=file is queue.log.files[-1]):
                if isinstance(item, LocatedRecord):
                    self._add_message(wanted, queue, item)
        if (limit := self._limits.get((queue.topic, queue.queue_id))) is not None:
            wanted = {offset: message for offset, message in wanted.items() if offset < limit}
        entries = self._open(queue.topic, queue.queue_id)
        end = None
        if entries is not None:
            low = entries.min_offset(self.log.min_offset)
            if entries.max_offset and (self._recovered or not self.layout.aborted):
                # messages after the queue's end were truncated, and their offsets are assigned again
                end = entries.max_offset
                if any(offset >= end for offset in wanted):
                    self._need_whole(entries)
                wanted = {offset: message for offset, message in wanted.items() if offset < end}
            for entry in entries.entries(low):
                if (message := self.log.read(entry.physical_offset)) is not None:
                    wanted.pop(entry.queue_offset, None)
                    self._add_message(wanted, queue, message)
        return _newest(wanted, position), end

    def _open(self, topic: str, queue_id: int) -> EntryQueue | None:
        return (
            self._opened(topic, queue_id) if self._opened is not None else open_any_queue(self.layout, topic, queue_id)
        )

    def _need_whole(self, entries: EntryQueue) -> None:
        """Check that what the queue lacks is missing in the commit log, too, so that it can be dropped.

        Raises:
            Refused: the queue lacks messages that the log has.
        """
        last = entries.entry(entries.max_offset - 1)
        start = last.physical_offset + last.size if last is not None else None
        topic = entries.topic.encode("utf-8", "surrogateescape")
        for item in self.log.walk(start, crc=False):
            if not isinstance(item, LocatedRecord):
                continue
            record = item.record
            queued = record.sys_flag & TRANSACTION_MASK in (TRANSACTION_NONE, TRANSACTION_COMMIT)
            if queued and (record.topic, record.queue_id) == (topic, entries.queue_id):
                raise Refused(f"{entries.path}: lacks messages that the log has: rebuild consumequeue first")

    def _add_message(self, messages: dict[int, _Message], queue: CompactionQueue, item: LocatedRecord) -> None:
        record = item.record
        topic = queue.topic.encode("utf-8", "surrogateescape")
        if (record.topic, record.queue_id) != (topic, queue.queue_id):
            return
        self.messages += 1
        key = parse(record.properties).get(KEYS, "")
        if key.strip():
            messages[record.queue_offset] = _Message(item.file, item.at, record.total_size, key, bool(record.body))

    def _in_order(self, queue: CompactionQueue, wanted: dict[int, _Message], end: int | None) -> bool:
        """Whether the files of a queue are consistent, and complete."""
        files = [(file.path, file.size) for file in (*queue.log, *queue.queue)]
        if queue.strange or not all(queue.fits(*file) for file in files):
            return False
        if [file.base for file in queue.log] != [file.base for file in queue.queue]:
            return False
        topic, known, last = queue.topic.encode("utf-8", "surrogateescape"), set(), -1
        for unit in queue.entries():
            there = queue.look(unit)
            if not isinstance(there, LocatedRecord) or unit.base_queue_offset <= last:
                return False
            record = there.record
            says = (record.topic, record.queue_id, record.queue_offset, record.total_size, record.physical_offset)
            if says != (topic, queue.queue_id, unit.base_queue_offset, unit.size, unit.physical_offset):
                return False
            if not parse(record.properties).get(KEYS, "").strip():
                return False
            known.add(last := unit.base_queue_offset)
        if end is not None and last >= end:
            return False
        return wanted.keys() <= known and all(map(_has_valid_end, queue.queue))


def _newest(messages: dict[int, _Message], position: int) -> dict[int, _Message]:
    """All messages after a position, and before it the newest of each key unless that has no body."""
    newest: dict[str, int] = {}
    for offset in sorted(messages):
        newest[messages[offset].key] = offset
    return {
        offset: message
        for offset, message in messages.items()
        if offset > position or (message.body and newest[message.key] == offset)
    }


def _has_valid_end(file: Segment) -> bool:
    """Whether the units of a file are followed by zeros, or by an end unit and zeros."""
    units = units_of(file.view())
    count = valid_prefix(units)
    if count < len(units) and BatchEntry(*units[count].tolist()) == END_UNIT:
        count += 1
    del units
    file.release()
    return is_zero(file.path, count * SIZE, file.size)


class _Writer:
    """Writes the files of one queue and of its log, staging one pair after the other.

    Attributes:
        paths: target paths of the files.
        units: number of units written.
    """

    def __init__(self, queue: CompactionQueue, change: Change) -> None:
        self._rebuild_queue, self._change = queue, change
        self._base = -queue.log_size
        self._log, self._units = bytearray(), bytearray()
        self._open = False
        self.paths: list[str] = []
        self.units = 0

    def append(self, data: bytes, offset: int) -> bool:
        """Write one record; False if it is too long for a file."""
        if len(data) + BLANK_SIZE > self._rebuild_queue.log_size:
            return False
        full = len(self._units) + SIZE >= self._rebuild_queue.queue_size
        if not self._open or full or len(self._log) + len(data) + BLANK_SIZE > self._rebuild_queue.log_size:
            self._roll()
        position = self._base + len(self._log)
        record = compaction.read_record(data, 0, len(data), crc=False)
        assert isinstance(record, Record)  # it was parsed before
        tag = parse(record.properties).get(TAGS)
        self._log += compaction.move_record(data, position)
        self._units += build([compaction.entry_for(record, position, java_hash(tag) if tag else 0)])
        self.units += 1
        return True

    def _roll(self) -> None:
        if self._open:
            self._units += build([END_UNIT])
            self._log += build_blank(self._rebuild_queue.log_size - len(self._log))
            self.close()
        self._open = True
        self._base += self._rebuild_queue.log_size

    def close(self) -> None:
        """Stage the current pair of files."""
        if not self._open:
            return
        pairs = (
            (self._rebuild_queue.log_path, self._log, self._rebuild_queue.log_size),
            (self._rebuild_queue.path, self._units, self._rebuild_queue.queue_size),
        )
        for folder, data, size in pairs:
            staged, path = self._change.staging(), os.path.join(folder, f"{self._base:020d}")
            with disk.make_file(staged) as file:
                file.cut(size)
                for at in range(0, len(data), _AT_ONCE):
                    file.write(at, bytes(data[at : at + _AT_ONCE]))
            self._change.put(path, staged)
            self.paths.append(path)
            data.clear()
        self._open = False
