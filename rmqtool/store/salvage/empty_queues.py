"""Queues without messages in the new log: the next message goes to their old end, not to 0.

Consumers have offsets in the old numbering. If a queue began at 0 again, they would see nothing until it has grown to
their offset, and neither would the broker itself for delayed messages, timers and transactions.
"""

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from rmqtool.errors import CorruptFile, MissingRuntime, UnreadableStore
from rmqtool.store.disk.files import open_to_change, rename
from rmqtool.store.disk.ownership import make_folders
from rmqtool.store.layout.paths import StoreLayout, is_path_name
from rmqtool.store.queues.batch import AnyQueue, BatchQueue, every_queue
from rmqtool.store.queues.compaction import compaction_queues_of
from rmqtool.store.queues.reader import ConsumeQueue
from rmqtool.store.recovery.inputs import StoreInputs
from rmqtool.store.recovery.loading import StagedQueues
from rmqtool.store.recovery.whole_queue import are_old, keep_end

Key = tuple[str, int]  # topic, queue id


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyQueue:
    """A queue whose messages have all expired or cannot be read."""

    topic: str
    queueId: int
    endedAt: int  # queue offset after its last message in the source
    endsAt: int  # the same in the new store; 0 if it cannot be kept

    @property
    def kept(self) -> bool:
        """Whether its next message gets the same queue offset as in the source."""
        return self.endsAt >= self.endedAt


def keep_ends(
    source: StoreLayout,
    target: StoreLayout,
    made: Collection[Key],
    stage: Callable[[], str],
    takes: Callable[[str], bool] = lambda _topic: True,
) -> list[EmptyQueue]:
    """Create the files of these queues in a new store, each with one entry that stands for an expired message.

    Args:
        made: queues with messages in the new log.
        stage: returns a path for a new staging file.
        takes: whether a topic is wanted.
    """
    inputs = StoreInputs.of(target)
    ends = {key: end for key, end in _ends(source, inputs.log.min_offset).items() if key not in made and takes(key[0])}
    staged, kept = StagedQueues(inputs, stage), []
    for (topic, queue_id), (ended_at, end) in sorted(ends.items()):
        ends_at = 0
        if end and inputs.log.min_offset > 0 and is_path_name(topic) and topic not in inputs.rules.batch_topics:
            queue = staged.at(topic, queue_id, target.queue_path(topic, queue_id))
            keep_end(queue, inputs.log.min_offset, stage, end)
            make_folders(queue.path)
            for file in queue.files:
                file.finish()
                assert file.staged is not None
                with open_to_change(file.staged) as made_file:
                    made_file.sync()
                rename(file.staged, os.path.join(target.root, queue.target(file)))
            ends_at = queue.max_offset
        kept.append(EmptyQueue(topic=topic, queueId=queue_id, endedAt=ended_at, endsAt=ends_at))
    return kept


def _ends(source: StoreLayout, min_physical: int) -> dict[Key, tuple[int, int]]:
    """(end of the queue, end of its expired messages) of each queue that does not end at 0."""
    ends: dict[Key, tuple[int, int]] = {}
    with suppress(MissingRuntime, CorruptFile, UnreadableStore):
        for queue in every_queue(source):
            with suppress(CorruptFile, UnreadableStore):
                if queue.max_offset:
                    ends[queue.topic, queue.queue_id] = queue.max_offset, _end_of_old(queue, min_physical)
    with suppress(CorruptFile, UnreadableStore):
        for compacted in compaction_queues_of(source):
            key, end = (compacted.topic, compacted.queue_id), compacted.max_offset
            if end:
                ended_at, old = ends.get(key, (0, 0))
                ends[key] = max(ended_at, end), max(old, end)
    return ends


def _end_of_old(queue: AnyQueue, min_physical: int) -> int:
    if isinstance(queue, BatchQueue):
        return 0
    if not isinstance(queue, ConsumeQueue):
        return queue.max_offset
    end = 0
    for first, units in queue.runs():
        rows = np.flatnonzero(are_old(units, min_physical))
        end = first + int(rows[-1]) + 1 if len(rows) else end
    return end
