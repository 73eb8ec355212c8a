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
from rmqtool.store.recovery.deleted import DeletedTopics
from rmqtool.store.recovery.dispatcher import QueueKey
from rmqtool.store.recovery.inputs import StoreInputs
from rmqtool.store.recovery.whole_log import can_go, fit_log

Stage = Callable[[], str]


class StagedQueues:
    """Opens queues whose changes go into staging files.

    Args:
        stage: gives a path for a new staging file, outside the store.

    Attributes:
        deleted: topics that get no queues.
    """

    def __init__(self, inputs: StoreInputs, stage: Stage) -> None:
        self._inputs, self.stage = inputs, stage
        self.deleted = DeletedTopics(inputs.layout)

    def open(self, topic: str, queue_id: int) -> QueueBuilder | None:
        """A queue that is dispatched to for the first time; None for a name that no directory can have, and for that of
        a topic that was deleted, which a broker would bring back in part.
        """
        # a broker takes a name with a comma for those of several directories (ensureDirOK), and so has none
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
        mended: queues with files that the broker would not load, and foreign files among them.
        log_mended: the same of the log: why the broker would not load it.
        log_foreign: paths that leave the log.
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
        """Why the broker would not load the store, where that is mended."""
        return [*self.log_mended, *(why for reasons in self.mended.values() for why in reasons)]


def load_log(inputs: StoreInputs, stage: Stage | None = None) -> Loaded:
    """Load the files of the log. The broker refuses mostly a file of another length than configured, or a foreign one.

    Args:
        stage: gives a path for a new staging file, where these are to be put right.

    Raises:
        Refused: the store has a form that these rules would do harm to.
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
                log_mended=[*strange, *_in_words(fitted.mended)],
                log_foreign=fitted.foreign,
            )
    gone = {file.path for file in removed}
    # files count in the order of their names, up to the first that the broker does not take
    first = min((os.path.basename(path) for path, _why in refused), default=None)
    files = [
        file
        for file in log.segments
        if file.path not in gone and (first is None or os.path.basename(file.path) < first)
    ]
    refusals = [*forms, *_in_words(refused)]
    return Loaded(files=files, removed=removed, refusals=refusals, log_refused=bool(refused), log_mended=list(strange))


def load(inputs: StoreInputs, staged: StagedQueues) -> Loaded:
    """Load the files of log and queues.

    Raises:
        Refused: the store has a form that these rules would do harm to.
    """
    loaded, rules = load_log(inputs, staged.stage if inputs.whole else None), inputs.rules
    if loaded.log_refused:
        return loaded
    for queue in staged.all():
        refused, queue.removed = rules.admit(queue.sources, queue.foreign, queue.file_size, "queue")
        queue.files = [file for file in queue.files if file.source not in queue.removed]
        if inputs.whole and refused:
            refused = _mend(queue, refused, loaded)
        loaded.refusals += _in_words(refused)
        loaded.queues[queue.topic, queue.queue_id] = queue
    return loaded


def _mend(queue: QueueBuilder, refused: list[tuple[str, str]], loaded: Loaded) -> list[tuple[str, str]]:
    """Give files the right length, and take foreign ones out; returns what stays refused."""
    left = []
    for path, why in refused:
        if path not in queue.foreign:
            continue
        if can_go(path):
            queue.foreign_removed.append(path)
        else:
            left.append((path, why))
    queue.fit()
    loaded.mended[queue.topic, queue.queue_id] = _in_words(refused)
    return left


def _in_words(refused: list[tuple[str, str]]) -> list[str]:
    return [f"{path}: {why}" for path, why in refused]
