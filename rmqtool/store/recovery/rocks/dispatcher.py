"""Simulate dispatch to queues in RocksDB: which units a broker would write, and where queues would end."""

from formats.errors import FormatError
from formats.queues.rocks import CHECKPOINT_KEY, OFFSETS, parse_built
from rmqtool.errors import CorruptFile
from rmqtool.store.dispatch.batch import QueuePuts, RecordBatch
from rmqtool.store.index.builder import IndexBuilder
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.rocksdb import Database
from rmqtool.store.queues.rocks import RocksQueue, queue_names
from rmqtool.store.recovery.dispatcher import Dispatcher, QueueKey
from rmqtool.store.recovery.report import QueueChange, QueueRange
from rmqtool.store.recovery.rocks.queues import PlannedQueue

_LONGEST = 281  # longest topic, in bytes, for which a unit's key fits the broker's buffer


class RocksDispatcher(Dispatcher):
    """Determines what the broker would write, without writing anything.

    Attributes:
        planned: queues by topic and queue id.
        built: physical offset up to which the log is in the queues, according to the database.
        stuck: queues whose end the broker cannot set back, by topic and queue id.
        found_built: ``built`` at the beginning.
        destroyed: whether the broker removes the database because there is no log.
        unread: why a part of the database cannot be read; None if it can.
        too_long: a topic whose messages the broker would try to write forever; None without one.

    Raises:
        CorruptFile: the database cannot be read, or its recorded position is invalid.
    """

    def __init__(self, layout: StoreLayout, database: Database, index: IndexBuilder, *, indexed: bool) -> None:
        super().__init__({}, index, lambda _topic, _queue_id: None, indexed=indexed)
        self._layout, self._database = layout, database
        self.planned: dict[QueueKey, PlannedQueue] = {}
        self.stuck: list[QueueKey] = []
        self.too_long: str | None = None
        self.unread: str | None = None
        self.destroyed = False
        value = database.get(OFFSETS, CHECKPOINT_KEY)
        try:
            self.built = 0 if value is None else parse_built(value)
        except FormatError as err:
            raise CorruptFile(database.path, None, f"how far the log is in the queues: {err}") from err
        self.found_built = self.built
        for topic, queue_id in queue_names(database):
            self._queue(topic, queue_id)

    def _queue(self, topic: str, queue_id: int) -> PlannedQueue:
        queue = self.planned.get((topic, queue_id))
        if queue is None:
            stored = RocksQueue(self._layout, self._database, topic, queue_id)
            queue = self.planned[topic, queue_id] = PlannedQueue(stored)
        return queue

    @property
    def ends(self) -> dict[QueueKey, int]:
        return {key: queue.max_offset for key, queue in self.planned.items()}

    @property
    def changes(self) -> list[QueueChange]:
        return [
            QueueChange(topic=topic, queueId=queue_id, entriesCut=queue.cut, entriesAdded=queue.added)
            for (topic, queue_id), queue in sorted(self.planned.items())
            if queue.cut or queue.added
        ]

    def ranges(self, log_begins: int) -> list[QueueRange]:
        """Lowest and next queue offset of all queues as the broker reports them; a second call may return others."""
        if self.destroyed:
            return []
        rows = []
        for (topic, queue_id), queue in sorted(self.planned.items()):
            try:
                low = queue.min_offset(log_begins)
            except CorruptFile as err:
                self.unread, low = err.reason, -1
            rows.append(QueueRange(topic=topic, queueId=queue_id, minOffset=low, maxOffset=queue.max_offset))
        return rows

    def put(self, batch: RecordBatch) -> None:
        super().put(batch)
        if batch.queued.any():
            self.built = int((batch.physical_offset + batch.size)[batch.queued][-1])

    def _put(self, topic: str, queue_id: int, puts: QueuePuts) -> None:
        if len(topic.encode("utf-8", "surrogateescape")) > _LONGEST:
            self.too_long = topic
            return
        physical, size, tags = (puts.entries[name].astype("i8") for name in ("physical_offset", "size", "tags_code"))
        try:
            self._queue(topic, queue_id).put(puts.queue_offset, physical, size, tags, puts.store_timestamp)
        except CorruptFile as err:
            self.unread = err.reason

    def destroy(self) -> None:
        """Without a log, remove the database like the broker."""
        self.destroyed, self.built = True, 0
        for queue in self.planned.values():
            queue.destroy()

    def truncate(self, log_begins: int, end: int) -> bool:
        """Set queues back to the end of the log (truncateDirty).

        Returns:
            Whether the broker does so; it does not if the database is not ahead of the log.
        """
        if end >= self.built:
            return False
        self.built = end
        for key, queue in sorted(self.planned.items()):
            if queue.last is None or queue.last.physical_offset < end:
                continue
            try:
                done = queue.set_back(log_begins, end)
            except CorruptFile as err:
                self.unread, done = err.reason, False
            if not done:
                self.stuck.append(key)
        return True
