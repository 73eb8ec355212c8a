"""Load a store like a broker: which files of log and queues it loads, and why it would refuse to start.

Source: store.DefaultMessageStore.load, store.MappedFileQueue.load; store-engine 1.3.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.mending import can_go, refuse_shared_queues
from rmqtool.store.layout.paths import BATCH_QUEUES, is_path_name
from rmqtool.store.queues.batch_builder import BatchQueueBuilder
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.recovery.deleted import DeletedTopics
from rmqtool.store.recovery.dispatcher import QueueKey
from rmqtool.store.recovery.inputs import StoreInputs
from rmqtool.store.recovery.whole_log import fit_log

Stage = Callable[[], str]


class StagedQueues:
    """Opens queues whose changes go to staging files.

    Args:
        stage: returns a path for a new staging file, outside the store.

    Attributes:
        deleted: topics that get no queues.
    """

    def __init__(self, inputs: StoreInputs, stage: Stage) -> None:
        self._inputs, self.stage = inputs, stage
        self.deleted = DeletedTopics(inputs.layout)

    def open(self, topic: str, queue_id: int) -> QueueBuilder | None:
        """Open a queue for its first dispatch.

        None for a name that no directory can have, and for a deleted topic, which a broker would partly restore.
        """
        # a broker splits names at commas and creates several directories (ensureDirOK), so there is no such queue
        if not is_path_name(topic) or "," in topic:
            return None
        if self._inputs.whole and topic in self.deleted:
            return None
        layout = self._inputs.layout
        if topic in self._inputs.rules.batch_topics:
            return self.batches_at(topic, queue_id, layout.queue_path(topic, queue_id, BATCH_QUEUES))
        return self.at(topic, queue_id, layout.queue_path(topic, queue_id))

    def at(self, topic: str, queue_id: int, path: str) -> QueueBuilder:
        """The queue in a directory."""
        inputs = self._inputs
        segments = inputs.layout.files_in(path)
        return QueueBuilder(topic, queue_id, path, inputs.queue_size, self.stage, segments)

    def batches_at(self, topic: str, queue_id: int, path: str) -> BatchQueueBuilder:
        """The batch queue in a directory."""
        inputs = self._inputs
        segments = inputs.layout.files_in(path)
        return BatchQueueBuilder(topic, queue_id, path, inputs.batch_queue_size, self.stage, segments)

    def all(self) -> Iterator[QueueBuilder]:
        """Every queue that the broker loads, of both kinds."""
        layout = self._inputs.layout
        for topic, queue_id, path in layout.queue_dirs():
            yield self.at(topic, queue_id, path)
        for topic, queue_id, path in self._inputs.rules.batch_dirs():
            yield self.batches_at(topic, queue_id, path)


@dataclass(slots=True, kw_only=True)
class Loaded:
    """The files of a store that a broker loads.

    Attributes:
        files: files of the log.
        removed: files of the log that it deletes before continuing.
        queues: by topic and queue id; empty if files of the log are refused.
        refusals: why it would not load the store.
        log_refused: whether some of them concern files of the log.
        mended: for repaired queues, why the broker would not load them.
        log_mended: the same for the log.
        log_foreign: paths to be removed from the log.
    """

    files: list[Segment]
    removed: list[Segment]
    queues: dict[QueueKey, QueueBuilder] = field(default_factory=dict)
    refusals: list[str]
    log_refused: bool
    mended: dict[QueueKey, list[str]] = field(default_factory=dict)
    log_mended: list[str] = field(default_factory=list)
    log_foreign: list[str] = field(default_factory=list)

    @property
    def unloaded(self) -> list[str]:
        """Why the broker would not load the store, where that has been repaired."""
        return [*self.log_mended, *(why for reasons in self.mended.values() for why in reasons)]


def load_log(inputs: StoreInputs, stage: Stage | None = None) -> Loaded:
    """Load the files of the log. A broker mostly refuses files with a wrong length, and foreign ones.

    Args:
        stage: returns a path for a new staging file; None to leave files unrepaired.

    Raises:
        Refused: these rules would damage this form of store.
        UnreadableStore: a file cannot be read.
    """
    log, rules = inputs.log, inputs.rules
    forms, strange = rules.check_forms(), rules.strange_compaction()
    if not inputs.mends_compaction:
        forms, strange = [*forms, *strange], []
    refused, removed = rules.admit(log.segments.files, log.segments.foreign, log.file_size, "commit-log")
    if refused and stage is not None:
        fitted = fit_log(log, refused, removed, stage)
        if not fitted.refused:
            return Loaded(
                files=fitted.files,
                removed=fitted.removed,
                refusals=forms,
                log_refused=False,
                log_mended=[*strange, *_describe(fitted.mended)],
                log_foreign=fitted.foreign,
            )
    gone = {file.path for file in removed}
    # files count in the order of their names, up to the first that the broker refuses
    first = min((os.path.basename(path) for path, _why in refused), default=None)
    files = [
        file
        for file in log.segments
        if file.path not in gone and (first is None or os.path.basename(file.path) < first)
    ]
    refusals = [*forms, *_describe(refused)]
    return Loaded(files=files, removed=removed, refusals=refusals, log_refused=bool(refused), log_mended=list(strange))


def load(inputs: StoreInputs, staged: StagedQueues) -> Loaded:
    """Load the files of log and queues.

    Raises:
        Refused: these rules would damage this form of store, or two queues have the same files.
    """
    loaded, rules = load_log(inputs, staged.stage if inputs.whole else None), inputs.rules
    if loaded.log_refused:
        return loaded
    if inputs.whole:
        refuse_shared_queues(inputs.layout)
    for queue in staged.all():
        refused, queue.removed = rules.admit(queue.sources, queue.foreign, queue.file_size, "queue")
        queue.files = [file for file in queue.files if file.source not in queue.removed]
        if inputs.whole and refused:
            refused = _mend(queue, refused, loaded)
        loaded.refusals += _describe(refused)
        loaded.queues[queue.topic, queue.queue_id] = queue
    return loaded


def _mend(queue: QueueBuilder, refused: list[tuple[str, str]], loaded: Loaded) -> list[tuple[str, str]]:
    """Correct the length of files and remove foreign ones; returns what is still refused."""
    left = []
    for path, why in refused:
        if path not in queue.foreign:
            continue
        if can_go(path):
            queue.foreign_removed.append(path)
        else:
            left.append((path, why))
    queue.fit()
    loaded.mended[queue.topic, queue.queue_id] = _describe(refused)
    return left


def _describe(refused: list[tuple[str, str]]) -> list[str]:
    return [f"{path}: {why}" for path, why in refused]
