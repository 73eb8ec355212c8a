"""Queues without messages in the log: their end determines where the next message goes, so it must be preserved."""

from collections.abc import Collection

from rmqtool.store.changes.change import Change
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.queues.compaction import compaction_queues_of
from rmqtool.store.recovery.actions import Say
from rmqtool.store.recovery.dispatcher import QueueKey
from rmqtool.store.recovery.inputs import StoreInputs
from rmqtool.store.recovery.loading import StagedQueues
from rmqtool.store.recovery.whole_queue import keep_end


class OldQueues:
    """Existing queues reduced to their end, without entries that point into the log.

    Args:
        made: queues with messages in the log.

    Attributes:
        queues: the other queues, by topic and queue id.
    """

    def __init__(self, inputs: StoreInputs, staged: StagedQueues, made: Collection[QueueKey]) -> None:
        ends = {}
        if inputs.rules.compacted_topics:
            # compaction logs outlive the commit log, and a broker takes lower queue offsets for repeated messages
            compacted = (q for q in compaction_queues_of(inputs.layout) if q.topic in inputs.rules.compacted_topics)
            ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in compacted}
        queues = {(queue.topic, queue.queue_id): queue for queue in staged.all()}
        self.queues: dict[QueueKey, QueueBuilder] = {}
        for key in sorted((queues.keys() | ends.keys()) - set(made)):
            queue = queues.get(key) or staged.open(*key)
            if queue is not None:
                self.queues[key] = queue
                self._keep_end(queue, inputs.log.min_offset, staged, ends.get(key, 0))

    @staticmethod
    def _keep_end(queue: QueueBuilder, min_physical: int, staged: StagedQueues, at_least: int) -> None:
        queue.fit()
        queue.recover()
        keep_end(queue, min_physical, staged.stage, at_least)
        queue.drop_unwritten()

    def prepare(self, change: Change, say: Say) -> None:
        """Add all changed files to a change."""
        for _key, queue in sorted(self.queues.items()):
            targets = {queue.target(file) for file in queue.files}
            for file in queue.files:
                if file.staged is not None:
                    file.finish()
                    change.put(queue.target(file), file.staged)
                    say("put", queue.target(file))
            for segment in queue.removed:
                if segment.path not in targets:
                    change.remove(segment.path)
                    say("remove", segment.path)
