"""What a broker removes when it is told to: expired files, queues without messages, queues of topics without settings.

Nothing is removed by itself. What a start after a kill would need stays, and offsets of groups follow a queue that
begins again.

Source: broker.processor.AdminBrokerProcessor (cleanExpiredConsumeQueue, deleteExpiredCommitLog, cleanUnusedTopic),
store.DefaultMessageStore (cleanExpiredConsumerQueue, executeDeleteFilesManually, cleanUnusedTopic); store-engine 6.
"""

from collections.abc import Callable

from formats.topics import LMQ_PREFIX, SYSTEM_PREFIX
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.open_store.reading import Reading
from rmqtool.services.open_store.store import Store
from rmqtool.store.layout.paths import QUEUE_KINDS
from rmqtool.store.queues.batch import AnyQueue
from rmqtool.store.repair.expiry import clean_open

QueueKey = tuple[str, int]


class Cleaning:
    """Removes what has expired in a store that is open for writing.

    Args:
        is_system: whether a topic belongs to brokers themselves; its queues are kept.
        restarted: called with topic, group and queue id of each offset that was set to 0.
    """

    def __init__(
        self,
        store: Store,
        state: BrokerState,
        reading: Reading,
        is_system: Callable[[str], bool],
        restarted: Callable[[str, str, int], None],
    ) -> None:
        self._store, self._state, self._reading = store, state, reading
        self._is_system, self._restarted = is_system, restarted

    def remove_expired_files(self) -> int:
        """Remove files of the log that are older than ``fileReservedTime``, and what points to them; returns how many.

        Raises:
            OSError, RmqError: one cannot be removed.
        """
        try:
            return len(clean_open(self._store.live).files)
        finally:
            self._reading.refresh()

    def remove_expired_queues(self) -> list[QueueKey]:
        """Remove queues none of whose messages is in the log any more.

        A broker leaves the offsets of groups in them: those of 5.x then pass over messages that come before a group is
        there again. Here they begin at 0, too.

        Raises:
            OSError, RmqError: one cannot be removed.
        """
        self._store.live.settle()
        return self._remove([key for key in self._queues() if not self._is_kept(key[0]) and self._has_expired(*key)])

    def remove_unused_queues(self) -> tuple[list[QueueKey], list[QueueKey]]:
        """Remove queues of topics without settings; returns those that are removed, and those that are kept.

        A broker also removes queues with messages in the log. A start after a kill then takes the first of these for
        the beginning of the queue, and messages that were stored later, from offset 0 on, are lost to consumers: such
        queues are kept until their messages have expired.

        Raises:
            OSError, RmqError: one cannot be removed.
        """
        self._store.live.settle()
        unused = [
            (topic, queue_id)
            for topic, queue_id in self._queues()
            if self._state.topic(topic) is None and not self._is_kept(topic)
        ]
        expired, kept = list[QueueKey](), list[QueueKey]()
        for key in unused:
            (expired if self._has_expired(*key) else kept).append(key)
        return self._remove(expired), kept

    def _queues(self) -> list[QueueKey]:
        layout = self._store.live.layout
        return [(topic, queue_id) for kind in QUEUE_KINDS for topic, queue_id, _path in layout.each_queue_dir(kind)]

    def _is_kept(self, topic: str) -> bool:
        return self._is_system(topic) or topic.startswith((SYSTEM_PREFIX, LMQ_PREFIX))

    def _has_expired(self, topic: str, queue_id: int) -> bool:
        queue = self._reading.queue(topic, queue_id)
        return queue is not None and _last_physical(queue) < self._reading.log.min_offset

    def _remove(self, queues: list[QueueKey]) -> list[QueueKey]:
        wanted = set(queues)
        try:
            for (topic, group, queue_id), offset in list(self._state.offsets.items()):
                if offset > 0 and (topic, queue_id) in wanted:
                    self._state.set_offset(topic, group, queue_id, 0)
                    self._restarted(topic, group, queue_id)
            self._state.persist()
            for topic, queue_id in queues:
                self._store.live.remove_queue(topic, queue_id)
        finally:
            self._reading.refresh()
        return queues


def _last_physical(queue: AnyQueue) -> int:
    """The physical offset of a queue's last message; beyond any log for a queue without one."""
    entry = queue.entry(queue.max_offset - 1) if queue.max_offset else None
    return 1 << 63 if entry is None else entry.physical_offset
