"""The load of a store: which files of log and queues the broker takes, and why it would take none at all.

Source: store.DefaultMessageStore.load, store.MappedFileQueue.load; store-engine 1.3.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.paths import BATCH_QUEUES, is_path_name
from rmqtool.store.queues.batch_builder import BatchQueueBuilder
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.recovery.dispatcher import QueueKey
from rmqtool.store.recovery.inputs import StoreInputs

Stage = Callable[[], str]


class StagedQueues:
    """Opens queues whose changes go into staging files.

    Args:
        stage: gives a path for a new staging file, outside the store.
    """

    def __init__(self, inputs: StoreInputs, stage: Stage) -> None:
        self._inputs, self._stage = inputs, stage

    def open(self, topic: str, queue_id: int) -> QueueBuilder | None:
        """A queue that is dispatched to for the first time; None for a name that no directory can have."""
        # a broker takes a name with a comma for those of several directories (ensureDirOK), and so has none
        if not is_path_name(topic) or "," in topic:
            return None
        layout = self._inputs.layout
        if topic in self._inputs.rules.batch_topics:
            return self.batches_at(topic, queue_id, layout.queue_path(topic, queue_id, BATCH_QUEUES))
        return self.at(topic, queue_id, layout.queue_path(topic, queue_id))

    def at(self, topic: str, queue_id: int, path: str) -> QueueBuilder:
        """The queue in a directory."""
        inputs = self._inputs
        segments = inputs.layout.files_in(path)
        return QueueBuilder(topic, queue_id, path, inputs.queue_size, self._stage, segments)

    def batches_at(self, topic: str, queue_id: int, path: str) -> BatchQueueBuilder:
        """The batch queue in a directory."""
        inputs = self._inputs
        segments = inputs.layout.files_in(path)
        return BatchQueueBuilder(topic, queue_id, path, inputs.batch_queue_size, self._stage, segments)

    def all(self) -> Iterator[QueueBuilder]:
        """Every queue that the broker loads, of either kind."""
        layout = self._inputs.layout
        for topic, queue_id, path in layout.queue_dirs():
            yield self.at(topic, queue_id, path)
        for topic, queue_id, path in self._inputs.rules.batch_dirs():
            yield self.batches_at(topic, queue_id, path)


@dataclass(slots=True, kw_only=True)
class Loaded:
    """What the broker takes of a store's files.

    Attributes:
        files: of the log.
        removed: files of the log that it deletes and goes on.
        queues: by topic and queue id; none where files of the log are refused.
        refusals: why it would not load the store.
        log_refused: some of them are of files of the log.
    """

    files: list[Segment]
    removed: list[Segment]
    queues: dict[QueueKey, QueueBuilder] = field(default_factory=dict)
    refusals: list[str]
    log_refused: bool


def load_log(inputs: StoreInputs) -> Loaded:
    """Load the files of the log. The broker refuses mostly a file of another length than configured, or a foreign one.

    Raises:
        Refused: the store has a form that these rules would do harm to.
    """
    log, rules = inputs.log, inputs.rules
    forms = rules.check_forms()
    refused, removed = rules.admit(log.segments.files, log.segments.foreign, log.file_size, "commit-log")
    gone = {file.path for file in removed}
    # files count in the order of their names, up to the first that the broker does not take
    first = min((os.path.basename(path) for path, _why in refused), default=None)
    files = [
        file
        for file in log.segments
        if file.path not in gone and (first is None or os.path.basename(file.path) < first)
    ]
    return Loaded(files=files, removed=removed, refusals=[*forms, *_worded(refused)], log_refused=bool(refused))


def load(inputs: StoreInputs, staged: StagedQueues) -> Loaded:
    """Load the files of log and queues.

    Raises:
        Refused: the store has a form that these rules would do harm to.
    """
    loaded, rules = load_log(inputs), inputs.rules
    if loaded.log_refused:
        return loaded
    for queue in staged.all():
        refused, queue.removed = rules.admit(queue.sources, queue.foreign, queue.file_size, "queue")
        queue.files = [file for file in queue.files if file.source not in queue.removed]
        loaded.refusals += _worded(refused)
        loaded.queues[queue.topic, queue.queue_id] = queue
    return loaded


def _worded(refused: list[tuple[str, str]]) -> list[str]:
    return [f"{path}: {why}" for path, why in refused]
