"""The messages of one queue in order. Only those are read, so a small queue is cheap."""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from formats.message.ids import offset_id
from formats.message.properties import MULTI_DISPATCH, UNIQ_KEY, parse, parse_raw
from formats.message.read import Record
from formats.topics import LMQ_PREFIX
from rmqtool.services.lookup.configs import Warn
from rmqtool.store.disk.segments import Segment
from rmqtool.store.dispatch.light import is_light
from rmqtool.store.layout.paths import BATCH_QUEUES, QUEUE_KINDS, StoreLayout, is_path_name
from rmqtool.store.layout.version import queue_database_place, second_queues
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import AnyQueue, BatchQueue, PlainQueue
from rmqtool.store.queues.reader import ConsumeQueue, QueueEntry
from rmqtool.store.queues.rocks import RocksQueue
from rmqtool.store.queues.rocks_open import built_only_to, rocks_queues_of, unbuilt_units
from rmqtool.words import counted

_LIGHT, _MULTI_DISPATCH = LMQ_PREFIX.encode(), MULTI_DISPATCH.encode()
_WINDOW = 16 << 20  # bytes of the log to read before releasing their pages
RETRY_TOPIC, ORIGIN_MESSAGE_ID = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"


class QueueMessage(NamedTuple):
    """A message with its queue entry."""

    entry: QueueEntry
    record: Record
    properties: dict[str, str]

    @property
    def message_id(self) -> str:
        """What a client calls ``msgId``: the unique id if there is one, else the offset id."""
        return self.properties.get(UNIQ_KEY) or self.offset_id

    @property
    def offset_id(self) -> str:
        """The offset message id of this copy."""
        return offset_id(self.record.store_address, self.record.store_port, self.entry.physical_offset)


def raw(topic: str) -> bytes:
    """The bytes of a topic from a directory name, which need not be UTF-8."""
    return topic.encode("utf-8", "surrogateescape")


class TopicQueues:
    """The queues of each topic on disk. Directories are listed lazily and once; queues are opened once."""

    def __init__(self, layout: StoreLayout) -> None:
        self._layout = layout
        self._dirs: dict[str, dict[int, str]] = {}
        self._batches: dict[str, list[BatchQueue]] = {}
        self._opened: dict[str, ConsumeQueue] = {}  # by path

    @cached_property
    def _rocks(self) -> dict[str, dict[int, RocksQueue]]:
        queues: dict[str, dict[int, RocksQueue]] = {}
        for queue in rocks_queues_of(self._layout):
            queues.setdefault(queue.topic, {})[queue.queue_id] = queue
        return queues

    @cached_property
    def _topics(self) -> list[str]:
        topics: dict[str, dict[int, str]] = {}
        for topic, queue_id, path in self._layout.queue_dirs():
            topics.setdefault(topic, {})[queue_id] = path
        self._dirs = topics | self._dirs  # known queues stay as they are
        return list(topics)

    def _ids(self, topic: str) -> dict[int, str]:
        if topic not in self._dirs:
            self._dirs[topic] = self._layout.queues_of(topic)
        return self._dirs[topic]

    def topics(self, prefix: str = "") -> list[str]:
        """Topics with this prefix, sorted."""
        return sorted(topic for topic in {*self._topics, *self._rocks} if topic.startswith(prefix))

    def names(self) -> set[str]:
        """Topics in any kind of queues, also those whose directory has no queue; no topic's directory is listed."""
        names = (name for kind in QUEUE_KINDS for name in self._layout.topic_names(kind))
        return {*names, *self._rocks}

    def of(self, topic: str) -> list[PlainQueue]:
        """A topic's queues, sorted by id; empty for an unknown topic."""
        rocks = self._rocks.get(topic, {})
        files = {queue_id: self._open(topic, queue_id) for queue_id in self._ids(topic)}
        return [queue for _queue_id, queue in sorted((rocks | files).items())]

    def one(self, topic: str, queue_id: int) -> PlainQueue | None:
        """A queue in files or in RocksDB, or None."""
        queue = self._open(topic, queue_id) if queue_id in self._ids(topic) else None
        if queue is not None and queue.segments.files:
            return queue
        return self._rocks.get(topic, {}).get(queue_id)

    def every(self, topic: str) -> list[AnyQueue]:
        """As :meth:`of`, including batch queues."""
        plain = self.of(topic)
        if plain or not is_path_name(topic):
            return [*plain]
        if topic not in self._batches:
            queues = self._layout.queues_of(topic, BATCH_QUEUES).items()
            self._batches[topic] = [BatchQueue(self._layout, topic, queue_id, path) for queue_id, path in queues]
        return [*self._batches[topic]]

    def either(self, topic: str, queue_id: int) -> AnyQueue | None:
        """As :meth:`one`, including batch queues."""
        return next((queue for queue in self.existing(topic) if queue.queue_id == queue_id), None)

    def existing(self, topic: str) -> Iterator[AnyQueue]:
        """As :meth:`every`, without directories that have no file."""
        return (queue for queue in self.every(topic) if isinstance(queue, RocksQueue) or queue.segments.files)

    def _open(self, topic: str, queue_id: int) -> ConsumeQueue:
        path = self._ids(topic)[queue_id]
        if path not in self._opened:
            self._opened[path] = ConsumeQueue(self._layout, topic, queue_id, path)
        return self._opened[path]


def warn_of_unbuilt(log: CommitLog, warn: Warn) -> None:
    """Warn if queues in RocksDB lack messages of the log, which a killed broker had in memory.

    Raises:
        MissingRuntime: no library to read the database.
    """
    built = built_only_to(log)
    if built is None:
        return
    place = queue_database_place(log.layout)
    if place is None:  # beside queue files, of which it alone may have the light queues
        if not any(is_light(topic) for topic, _queue_id in unbuilt_units(log.layout)):
            return
        place = second_queues(log.layout)
    warn(
        f"{place}: the database has the log up to physical offset {built} only: the rest is taken from the log here, "
        "as a broker does it at its next start"
    )


def messages_of(
    log: CommitLog, queue: PlainQueue, warn: Warn, start: int | None = None, stop: int | None = None
) -> Iterator[QueueMessage]:
    """Messages of queue offsets [start, stop), by default all that the log still has.

    A light queue (``%LMQ%``) has messages of other topics, which name it in a property. Entries that do not lead to a
    message of this queue are skipped; one warning has their number.
    """
    topic = raw(queue.topic)
    missing, first = 0, -1
    last: Segment | None = None
    forgotten = 0  # byte of that file up to which its pages were released
    for entry in queue.entries(queue.min_offset(log.min_offset) if start is None else start, stop):
        message = log.read(entry.physical_offset, crc=False)
        if message is None or not _is_in(message.record, topic, queue.queue_id):
            missing, first = missing + 1, entry.queue_offset if first < 0 else first
            continue
        if last is not message.file:
            if last is not None:
                last.release()
            last, forgotten = message.file, message.at
        elif message.at - forgotten >= _WINDOW:
            last.forget(forgotten, message.at)
            forgotten = message.at
        yield QueueMessage(entry, message.record, parse(message.record.properties))
    if missing:
        warn(
            f"{queue.topic} queue {queue.queue_id}: {counted(missing, 'entry', 'entries')}"
            " without a message, the first at queue offset "
            f"{first}: skipped"
        )


def _is_in(record: Record, topic: bytes, queue_id: int) -> bool:
    if record.topic == topic and record.queue_id == queue_id:
        return True
    if not topic.startswith(_LIGHT):
        return False
    return topic in parse_raw(record.properties).get(_MULTI_DISPATCH, b"").split(b",")
