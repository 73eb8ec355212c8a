"""Compacted topics of 5.x: a separate log with the newest message of each key, and its queue.

Source: store.kv.CompactionLog, CompactionStore, store.queue.SparseConsumeQueue; store-formats 8.4. Consumers of a topic
with ``cleanup.policy=COMPACTION`` get its messages only from here, not from the commit log: messages that have expired
there are still here, and messages that are not here are never consumed.
"""

from collections import Counter
from collections.abc import Generator, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from formats.endings import Ending
from formats.errors import FormatError
from formats.message.properties import KEYS, parse
from formats.message.read import End
from formats.queues.batch import SIZE, BatchEntry, as_array, valid_prefix
from formats.variants import compaction
from rmqtool.errors import CorruptFile, UnreadableStore
from rmqtool.store.disk.directories import files_below
from rmqtool.store.disk.mapping import need
from rmqtool.store.disk.segments import Segment, Segments, offset_name
from rmqtool.store.layout.paths import COMPACTION, StoreLayout, is_path_name
from rmqtool.store.log.commit_log import Damage, LocatedRecord
from rmqtool.store.log.records import record_at

if TYPE_CHECKING:
    from formats.arrays import Units


FOLDER, LOGS, QUEUES, POSITIONS = COMPACTION, "compactionLog", "compactionCq", "position-checkpoint"
_ASKED = 16  # queues consulted for the length of files
WORK = ("compacting", "replicating")  # folders of a broker's unfinished work


class CompactionQueue:
    """One queue of a compacted topic, read-only. Damage appears as an early end, as to a broker; it is not an error.

    Attributes:
        log: files of its log.
        queue: files of its queue, each with the name of the log file it belongs to.
        conf: settings of the broker.
        work: folders with files that a broker was building when it stopped.
    """

    def __init__(self, layout: StoreLayout, topic: str, queue_id: int) -> None:
        self.topic, self.queue_id = topic, queue_id
        self.log_path = layout.path(FOLDER, LOGS, topic, str(queue_id))
        self.path = layout.path(FOLDER, QUEUES, topic, str(queue_id))
        folders = [layout.path(FOLDER, kind, topic, str(queue_id)) for kind in (LOGS, QUEUES)]
        self.log, self.queue = (layout.files_in(folder) for folder in folders)
        work = [f"{folder}/{name}" for folder in folders for name in WORK]
        self.work = [path for path in work if files_below(path)[0]]
        self._layout, self.conf = layout, layout.conf

    def __repr__(self) -> str:
        return f"CompactionQueue({self.topic!r}, {self.queue_id})"

    @cached_property
    def queue_size(self) -> int:
        """Bytes per file of the queue: configured, that of the files, or the default."""
        configured = self._layout.conf.sizes.get("compactionCqMappedFileSize")
        if configured:
            return compaction.queue_file_size(configured)
        return self._usual(QUEUES, self.queue) or compaction.queue_file_size()

    @cached_property
    def log_size(self) -> int:
        """Bytes per file of the log: configured, that of the files, or the default."""
        sizes = self._layout.conf.sizes
        if configured := sizes.get("compactionMappedFileSize"):
            return compaction.log_file_size(configured, sizes.get("compactionCqMappedFileSize", 10 << 20))
        return self._usual(LOGS, self.log) or compaction.log_file_size()

    def _usual(self, kind: str, segments: Segments) -> int | None:
        """The length of most files, including other queues'. Names are no help, since there are gaps between the
        files.
        """
        lengths = Counter(file.size for file in segments if file.size)
        for _topic, _queue_id, path in self._layout.queue_dirs(f"{FOLDER}/{kind}")[:_ASKED]:
            lengths.update(file.size for file in self._layout.files_in(path) if file.size)
        return max(lengths, key=lambda length: (lengths[length], length), default=None)

    @cached_property
    def strange(self) -> list[tuple[str, int]]:
        """(path, length) of everything that is neither a directory nor a file with a numeric name."""
        return [
            (entry.path, entry.size)
            for folder in (self.log_path, self.path)
            for entry in self._layout.entries_at(folder)
            if offset_name(entry.name) is None and entry.is_file()
        ]

    @property
    def knows_sizes(self) -> bool:
        """Whether the file lengths come from settings or files instead of the broker's defaults."""
        lengths_set = {"compactionMappedFileSize", "compactionCqMappedFileSize"} <= self._layout.conf.sizes.keys()
        return lengths_set or bool(self._usual(LOGS, self.log) and self._usual(QUEUES, self.queue))

    def fits(self, path: str, length: int) -> bool:
        """Whether a file of the log or the queue has the length that a broker loads."""
        return length == (self.log_size if path.startswith(self.log_path) else self.queue_size)

    @property
    def refused(self) -> tuple[str, str] | None:
        """(path, reason) if a broker does not start because of this queue; None if it does.

        A broker checks queues that have both directories. A wrong length keeps it from loading the queue, and so from
        noticing anything else (CompactionStore.load, TopicPartitionLog.init).
        """
        if not (self._layout.is_folder(self.log_path) and self._layout.is_folder(self.path)):
            return None
        files = [
            (file.path, file.size) for segments in (self.log, self.queue) for file in _without_empty_last(segments)
        ]
        strange = [(path, length) for path, length in self.strange if length or not self._is_last(path)]
        if not all(self.fits(*file) for file in (*files, *strange)):
            return None
        if strange:
            return strange[0][0], "a broker makes a number of its name, which it is not"
        log, queue = (
            {file.base: file.path for file in _without_empty_last(segments)} for segments in (self.log, self.queue)
        )
        if (end := self.log_end) > 0:  # a broker truncates the log there before it compares the names
            log = {base: path for base, path in log.items() if base <= end}
        if odd := log.keys() ^ queue.keys():
            return (log | queue)[min(odd)], "no file of the same name in the other folder"
        return None

    def _is_last(self, path: str) -> bool:
        """Whether a file is the last of its directory by name; a broker deletes it if it is empty."""
        folder, _, name = path.rpartition("/")
        return all(entry.name <= name for entry in self._layout.entries_at(folder) if entry.is_file())

    def count(self, file: Segment) -> int:
        """Number of units in a file of the queue before the first invalid element."""
        if file.base not in self._counts:
            try:
                self._counts[file.base] = valid_prefix(_units(file))
            except UnreadableStore as err:
                self._layout.pass_over_file(file.path, err)
                self._counts[file.base] = 0
            file.release()
        return self._counts[file.base]

    @cached_property
    def _counts(self) -> dict[int, int]:
        return {}

    @cached_property
    def log_end(self) -> int:
        """Position after the last record, in the state after a start: that of the last unit of the last file.

        If that file has no unit, the log is not truncated (TopicPartitionLog.recover).
        """
        files = _without_empty_last(self.queue)
        if files and (count := self.count(files[-1])):
            last = self._unit(files[-1], count - 1)
            return last.physical_offset + last.size
        return self.log.files[-1].end if self.log.files else 0

    @property
    def max_offset(self) -> int:
        """Queue offset after the last message; 0 without any."""
        for file in reversed(self.queue.files):
            if count := self.count(file):
                return self._unit(file, count - 1).next_queue_offset
        return 0

    @property
    def min_offset(self) -> int:
        """Queue offset of the first message; 0 without any."""
        for file in self.queue.files:
            if self.count(file):
                return self._unit(file, 0).base_queue_offset
        return 0

    @property
    def messages(self) -> int:
        """Number of messages in the queue."""
        return sum(map(self.count, self.queue.files))

    def _unit(self, file: Segment, number: int) -> BatchEntry:
        view = file.map()
        need(view, number * SIZE, (number + 1) * SIZE)
        return BatchEntry(*as_array(view)[number].tolist())

    def file_of(self, offset: int) -> int:
        """Number of the file in which a broker searches for a queue offset: the last that begins at or before it."""
        begins = [self._unit(file, 0).base_queue_offset if self.count(file) else None for file in self.queue.files]
        return max((number for number, begin in enumerate(begins) if begin is not None and begin <= offset), default=0)

    def runs(self, first: int = 0) -> Generator[tuple[int, "Units"], None, None]:
        """(log position of the file's beginning, units) of each file that has any, starting at a file number."""
        for file in self.queue.files[first:]:
            if count := self.count(file):
                try:
                    yield file.base, _units(file)[:count]
                finally:
                    file.release()

    def entries(self, start: int = 0) -> Iterator[BatchEntry]:
        """Units of queue offsets >= ``start``, in the order of the files."""
        for _base, units in self.runs():
            for row in units[units["base_queue_offset"] >= start].tolist():
                yield BatchEntry(*row)

    def look(self, entry: BatchEntry, *, crc: bool = True) -> LocatedRecord | Damage:
        """The record that a unit points to, or what is there instead; positions are in this log."""
        position = entry.physical_offset
        file = self.log.find(position)
        if file is None:
            return Damage(self.log_path, position, position, 0, Ending.CLEAN, "no file holds this position")
        try:
            view = file.map()
        except UnreadableStore as err:
            self._layout.pass_over_file(file.path, err)
            return Damage(file.path, position - file.base, position, 0, Ending.CLEAN, str(err))
        record = record_at(view, position - file.base, len(view), crc=crc)
        if isinstance(record, End):
            return Damage(file.path, position - file.base, position, 0, record.ending, record.reason)
        return LocatedRecord(file, position - file.base, record)

    def at(self, position: int, size: int) -> LocatedRecord | None:
        """The record at a position; None if there is none."""
        message = self.look(BatchEntry(position, size, 0, 0, 0, 1), crc=False)
        return message if isinstance(message, LocatedRecord) else None

    def read(self, start: int = 0) -> Iterator[LocatedRecord]:
        """The messages of queue offsets >= ``start``, in order; units without their message are skipped."""
        topic = self.topic.encode("utf-8", "surrogateescape")
        for entry in self.entries(start):
            message = self.look(entry, crc=False)
            if isinstance(message, LocatedRecord) and (message.record.topic, message.record.queue_id) == (
                topic,
                self.queue_id,
            ):
                yield message

    def latest(self) -> dict[str, LocatedRecord]:
        """The newest message of each key, oldest first. A key whose newest message has no body is deleted.

        The key is the whole property KEYS, as in compaction. This holds one message per key in memory.
        """
        newest: dict[str, LocatedRecord] = {}
        for message in self.read():
            key = key_of(message)
            newest.pop(key, None)  # the newest moves to the end
            if message.record.body:
                newest[key] = message
        return newest


def _without_empty_last(segments: Segments) -> list[Segment]:
    """Files without an empty last one, which a broker deletes."""
    files = segments.files
    return files[:-1] if files and not files[-1].size else files


def key_of(message: LocatedRecord) -> str:
    """The key of a message for compaction; empty without one."""
    return parse(message.record.properties).get(KEYS, "")


def _units(file: Segment) -> "Units":
    view = file.map()
    need(view, 0, len(view))
    return as_array(view)


def compaction_queues_of(layout: StoreLayout) -> list[CompactionQueue]:
    """Every queue that has a directory for its log or its queue, sorted by topic and queue id."""
    names = {
        (topic, queue_id) for kind in (LOGS, QUEUES) for topic, queue_id, _path in layout.queue_dirs(f"{FOLDER}/{kind}")
    }
    return [CompactionQueue(layout, topic, queue_id) for topic, queue_id in sorted(names)]


def compaction_queues(layout: StoreLayout, topic: str) -> list[CompactionQueue]:
    """The queues of one topic, sorted by queue id."""
    if not is_path_name(topic):
        return []
    ids = {queue_id for kind in (LOGS, QUEUES) for queue_id in layout.queues_of(topic, f"{FOLDER}/{kind}")}
    return [CompactionQueue(layout, topic, queue_id) for queue_id in sorted(ids)]


def positions_of(layout: StoreLayout) -> compaction.CompactionPositions | None:
    """The position up to which each queue has been compacted; None if no broker has written it yet.

    Raises:
        CorruptFile: not in the form that brokers write.
    """
    path = layout.path(FOLDER, POSITIONS)
    data = layout.small(FOLDER, POSITIONS)
    try:
        return compaction.CompactionPositions.parse(data) if data is not None else None
    except FormatError as err:
        raise CorruptFile(path, err.at, err.reason) from err
