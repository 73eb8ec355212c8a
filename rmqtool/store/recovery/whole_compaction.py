"""Rebuild logs of compacted topics that are damaged or lack messages of the commit log.

A broker's start truncates each after the last unit of its queue, and adds missing messages of the commit log only after
an unclean stop, the signs of which are gone after a recovery. Queues whose own log is ahead of the commit log are left
alone: their messages are nowhere else. The command ``rebuild compaction``, which drops them, says so.

Source: store.kv.CompactionStore, CompactionLog.
"""

from collections.abc import Callable, Iterator

from rmqtool.store.builders.compaction import CompactionBuilder, EntryQueue
from rmqtool.store.changes.change import Change
from rmqtool.store.queues.batch import AnyQueue, open_any_queue
from rmqtool.store.queues.batch_builder import BatchQueueBuilder
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.queues.compaction import CompactionQueue, compaction_queues_of
from rmqtool.store.queues.reader import QueueEntry
from rmqtool.store.recovery.plan import Recovery

Say = Callable[[str, str], None]


class StagedQueue:
    """A queue in its state after recovery, with an interface to read entries."""

    def __init__(self, queue: QueueBuilder) -> None:
        self._queue = queue
        self.topic, self.queue_id, self.path = queue.topic, queue.queue_id, queue.path
        queue.hand_over()

    @property
    def max_offset(self) -> int:
        """Queue offset after the last entry."""
        return self._queue.max_offset

    def min_offset(self, min_physical_offset: int) -> int:
        """Queue offset of the first entry whose message is in a log that begins at a physical offset."""
        entries = self.entries(0)
        return next((e.queue_offset for e in entries if e.physical_offset >= min_physical_offset), self.max_offset)

    def entry(self, queue_offset: int) -> QueueEntry | None:
        """The entry at a queue offset."""
        return next(self.entries(queue_offset), None)

    def entries(self, start: int) -> Iterator[QueueEntry]:
        """Entries from a queue offset on."""
        for file in self._queue.files:
            base, count = file.base // file.form.size, file.wrote // file.form.size
            first = max(start - base, 0)
            if first < count:
                for number, units in file.runs(first, count):
                    for row, unit in enumerate(units.tolist(), base + number):
                        yield QueueEntry(row, *unit)


def prepare_compaction(recovery: Recovery, change: Change, say: Say) -> None:
    """Add the rebuilt logs to a change."""
    layout, rules = recovery.inputs.layout, recovery.inputs.rules
    if not rules.compacted_topics or not layout.conf.flag("enableCompaction", True) or not recovery.verdict.files:
        return

    def open_queue(topic: str, queue_id: int) -> EntryQueue | AnyQueue | None:
        queue = recovery.queues.get((topic, queue_id))
        if queue is None or isinstance(queue, BatchQueueBuilder):
            return open_any_queue(layout, topic, queue_id)
        return StagedQueue(queue)

    def is_ahead(queue: CompactionQueue) -> bool:
        builder = recovery.queues.get((queue.topic, queue.queue_id))
        return builder is not None and 0 < builder.max_offset < queue.max_offset

    ahead = {(queue.topic, queue.queue_id) for queue in compaction_queues_of(layout) if is_ahead(queue)}
    names = {key for key in recovery.queues if key[0] in rules.compacted_topics}
    topics = rules.compacted_topics
    builder = CompactionBuilder(layout, topics=topics, opened=open_queue, names=names, left=ahead)
    for action in builder.prepare(change):
        verb, _, name = action.partition(" ")
        say(verb, layout.path(name))
    recovery.warnings += builder.warnings
