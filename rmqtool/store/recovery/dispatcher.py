"""Dispatch the log to consume queues and index, in recovery and in a running store.

Source: DefaultMessageStore.doDispatch, with CommitLogDispatcherBuildConsumeQueue and CommitLogDispatcherBuildIndex.
"""

from collections import Counter
from collections.abc import Callable, Set

from rmqtool.store.dispatch.batch import QueuePuts, RecordBatch
from rmqtool.store.dispatch.light import light_queue_id
from rmqtool.store.index.builder import IndexBuilder
from rmqtool.store.layout.paths import BATCH_UNIT, UNIT
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.recovery.report import QueueChange

QueueKey = tuple[str, int]
OpenQueue = Callable[[str, int], QueueBuilder | None]
_MOST_HELD = 32 << 20  # bytes of entries that queues may buffer before all of them are flushed


class Dispatcher:
    """Dispatches batches of records to queues and index.

    Args:
        queues: by topic and queue id; queues opened later are added.
        index: receives the keys.
        open_queue: called with topic and queue id for a queue that is not in ``queues``; returns None for a name that
            no directory can have.
        indexed: False if the settings disable the index, so that nothing is added to it.
        batch_topics: topics with batch queues; their messages do not go to additional queues.

    Attributes:
        messages: number of records dispatched.
        displaced: whether some records state a position that is not theirs; set by the caller.
        unnamed: number of messages by topic for which ``open_queue`` returned None.
    """

    def __init__(
        self,
        queues: dict[QueueKey, QueueBuilder],
        index: IndexBuilder,
        open_queue: OpenQueue,
        *,
        indexed: bool = True,
        batch_topics: Set[str] = frozenset(),
    ) -> None:
        self.queues, self.index, self._open_queue, self._indexed = queues, index, open_queue, indexed
        self._batch_topics, self._unit = batch_topics, BATCH_UNIT if batch_topics else UNIT
        self.messages = 0
        self.displaced = False
        self.unnamed: Counter[str] = Counter()
        self._buffered = 0  # upper bound of the bytes of entries buffered in queues

    @property
    def ends(self) -> dict[QueueKey, int]:
        """Queue offset after the last message of each queue."""
        return {key: queue.end // UNIT for key, queue in self.queues.items()}

    @property
    def changes(self) -> list[QueueChange]:
        """The changes of queues that were truncated or extended, sorted by topic and queue id."""
        changed = [
            QueueChange(topic=q.topic, queueId=q.queue_id, entriesCut=q.cut, entriesAdded=q.added)
            for q in self.queues.values()
            if q.cut or q.added
        ]
        return sorted(changed, key=lambda q: (q.topic, q.queueId))

    def put(self, batch: RecordBatch) -> None:
        """Dispatch records in the order of the log."""
        self.messages += len(batch)
        self._buffered += len(batch) * self._unit
        if self._buffered > _MOST_HELD:
            for queue in self.queues.values():
                queue.hand_over()
            self._buffered = 0
        for row, puts in batch.puts():
            self._put(batch.topics[int(batch.topic[row])], int(batch.queue_id[row]), puts)
        for put in batch.light:
            of_batches = {put.queue, batch.topics[int(batch.topic[put.row])]} & self._batch_topics
            if batch.queued[put.row] and not of_batches:
                queue_id = light_queue_id(put.queue, int(batch.queue_id[put.row]))
                self._put(put.queue, queue_id, batch.light_puts(put))
        if self._indexed:
            self.index.put(batch)

    def _put(self, topic: str, queue_id: int, puts: QueuePuts) -> None:
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            queue = self._open_queue(topic, queue_id)
            if queue is None:
                self.unnamed[topic] += len(puts)
                return
            self.queues[topic, queue_id] = queue
        queue.put(puts)
