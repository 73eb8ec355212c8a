"""The broker's recovery on paper: what a 4.9 broker would make of a store at its next start (store-engine 1.3, 1.4, 4).

:class:`Recovery` runs the broker's algorithm over the store, which it only reads; queues and index that change are
built in staging files. :mod:`rmqtool.store.recovery_actions` turns the outcome into words and file actions.
"""

import os
from collections import Counter
from collections.abc import Callable, Generator

import numpy as np

from formats import checkpoint
from formats.consume_queue import FILLER_SIZE
from formats.endings import Ending
from formats.message import End, Record, read
from rmqtool.errors import Refused
from rmqtool.store.commit_log import CommitLog
from rmqtool.store.dispatch import Batch, BatchBuilder, DelayLevels, checked, is_bulk, recovery_batches, reput_batches
from rmqtool.store.index_builder import IndexBuilder
from rmqtool.store.index_files import geometry_of
from rmqtool.store.layout import StoreLayout, is_path_name
from rmqtool.store.queue_builder import QueueBuilder
from rmqtool.store.recovery_report import QueueRange, StoreState
from rmqtool.store.segments import Segment
from rmqtool.store.start_file import SCANNED_FILES, start_number
from rmqtool.store.version import unsupported, version_of

Stage = Callable[[], str]
Say = Callable[[str, str], None]
_LIGHT_PREFIX = "%LMQ%"


class Recovery:
    """One run of the broker's recovery. Call :meth:`run`, then :meth:`report` and perhaps :meth:`prepare`.

    Args:
        layout: the store.
        stage: gives a path for a new staging file, outside the store.
        fix_delay_times: give delayed messages that are dispatched anew after a crash their true deliver time, where a
            4.9 broker would have them delivered at once.
    """

    def __init__(self, layout: StoreLayout, stage: Stage, *, fix_delay_times: bool = False) -> None:
        self.layout, self._stage = layout, stage
        self.log = CommitLog(layout)
        self.files = list(self.log.segments)
        self.file_size = self.log.file_size
        self.aborted = layout.aborted
        self.checkpoint = checkpoint.parse(layout.checkpoint() or b"")
        self.queues: dict[tuple[str, int], QueueBuilder] = {}
        self.index = IndexBuilder([], geometry_of(layout), stage)
        self.refusals: list[str] = []
        self.warnings: list[str] = []
        self.removed: list[Segment] = []
        self.end = 0
        self.stop: End | None = None
        self.stop_file: Segment | None = None
        self.start_file: Segment | None = None
        self.start_reason: str | None = None
        self.dispatched = 0
        self.last_store_timestamp = 0  # of the last message that the check of the log has passed
        self.after_load: StoreState | None = None
        self.after_start: StoreState | None = None
        self._fix_delay_times = fix_delay_times
        self._no_levels = DelayLevels([])
        self._levels = DelayLevels(layout.conf.delay_levels)
        conf = layout.conf
        self._light = conf.flag("enableMultiDispatch", conf.flag("enableLmq", self._has_light_queues()))
        self._unnamed_topics: Counter[str] = Counter()
        self._early = 0

    def _has_light_queues(self) -> bool:
        return any(topic.startswith(_LIGHT_PREFIX) for topic, _queue_id, _path in self.layout.queue_dirs())

    # -- load ---------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """The broker's load and start, up to the moment at which it would take messages.

        Raises:
            Refused: the store has a form that these rules would do harm to.
        """
        if (reason := unsupported(self.layout)) is not None:
            raise Refused(f"{self.layout.root}: {reason}")
        self._check_files()
        if self.refusals:
            # files count in the order of their names, up to the first that the broker does not take
            wrong = [file.path for file in self.files if file.size != self.file_size] + self.log.segments.foreign
            first = min(map(os.path.basename, wrong), default=None)
            self.files = [f for f in self.files if first is None or os.path.basename(f.path) < first]
            self.end = self.files[-1].end if self.files else 0
            self.after_load = self._state(refused=True)
            return
        self.index = IndexBuilder(self.layout.index_paths(), geometry_of(self.layout), self._stage)
        if self.aborted:
            self.index.prune(self.checkpoint.index_msg_timestamp)
        for queue in self.queues.values():
            queue.recover()
        max_dispatched = max((queue.max_physical_offset for queue in self.queues.values()), default=-1)
        self._check_single_file(max_dispatched)
        if self.files:
            self._recover_log()
            if max_dispatched >= self.end:
                for queue in self.queues.values():
                    queue.truncate(self.end)
        else:
            self.end = 0
            for queue in self.queues.values():
                queue.destroy()
        self._correct_min()
        self.after_load = self._state()
        self._reput()
        self._correct_min()
        self.after_start = self._state()
        self.index.finish()
        self._warn()

    def _check_files(self) -> None:
        """What makes the broker refuse to load: a file of another length than configured, or a foreign one."""
        for path in self.log.segments.foreign:
            self.refusals.append(f"{path}: does not belong into a commit-log directory")
        for file in self.files:
            if file.size != self.file_size:
                self.refusals.append(f"{file.path}: {file.size} bytes long, not {self.file_size}")
        if self.refusals:
            return
        size = self.layout.queue_size()
        for topic, queue_id, path in self.layout.queue_dirs():
            queue = QueueBuilder(topic, queue_id, path, size, self._stage)
            self.refusals += [f"{path}: does not belong into a queue directory" for path in queue.foreign]
            for source in queue.sources:
                if source.size != size:
                    self.refusals.append(f"{source.path}: {source.size} bytes long, not {size}")
            self.queues[topic, queue_id] = queue

    def _check_single_file(self, max_dispatched: int) -> None:
        """A lone file is taken to be as long as it should be, unless queues know of messages behind its end.

        Raises:
            Refused: they do. A broker, which knows the true length, would not load such a file.
        """
        if len(self.files) != 1 or "mappedFileSizeCommitLog" in self.layout.conf.sizes:
            return
        (file,) = self.files
        # the end that a filler entry seems to have means nothing
        if file.end < max_dispatched != FILLER_SIZE:
            raise Refused(
                f"{file.path}: ends at {file.end}, but queues point at messages up to {max_dispatched}: it seems to "
                "have been cut short; --broker-conf tells how long it should be"
            )

    def _recover_log(self) -> None:
        """Check records from the start file on; the first that fails is the end of the log."""
        number, self.start_reason = start_number(self.files, self.layout.conf, self.checkpoint, aborted=self.aborted)
        levels = self._levels if self._fix_delay_times else self._no_levels
        builder = BatchBuilder(levels, light_queues=self._light)
        crc = self.layout.conf.flag("checkCRCOnRecover", True)
        self.start_file = file = self.files[number]
        while True:
            if self.aborted:
                end = self._drain(recovery_batches(file.view(), 0, file.size, builder, crc=crc))
            else:
                end, last = checked(file.view(), 0, file.size, crc=crc)
                self.last_store_timestamp = self.last_store_timestamp if last is None else last
            file.release()
            if end.ending is not Ending.FILLER or number + 1 >= len(self.files):
                break
            number += 1
            file = self.files[number]
        self.stop, self.stop_file = end, file
        self.end = file.base + end.at
        for later in [f for f in self.files if f.base > self.end]:
            self.files.remove(later)
            self.removed.append(later)

    def _drain(self, batches: Generator[Batch, None, End]) -> End:
        """Dispatch the records of one file while they are checked, as the broker does after a crash."""
        while True:
            try:
                batch = next(batches)
            except StopIteration as stop:
                end: End = stop.value
                return end
            self.last_store_timestamp = int(batch.store_timestamp[-1])
            self._dispatch(batch, recovering=True)

    # -- start --------------------------------------------------------------------------------------------------------

    def _reput(self) -> None:
        """Dispatch what no queue has yet, as the broker does before it takes messages."""
        if not self.files:
            return
        at = max(self.files[0].base, max((q.max_physical_offset for q in self.queues.values()), default=-1), 0)
        builder = BatchBuilder(self._levels, light_queues=self._light)
        while at < self.end:
            file = next((f for f in self.files if f.base <= at < f.base + self.file_size), None)
            if file is None:
                self.warnings.append(f"no commit-log file holds offset {at}: a 4.9 broker hangs here at its start")
                break
            view = file.view()
            batches = reput_batches(view, at - file.base, min(self.end - file.base, file.size), builder)
            while True:
                try:
                    self._dispatch(next(batches), recovering=False)
                except StopIteration as stop:
                    at = max(file.base + stop.value, at + 1)
                    break
            file.release()

    def _dispatch(self, batch: Batch, *, recovering: bool) -> None:
        self.dispatched += len(batch)
        for rows in batch.by_queue():
            queue = self._queue(batch.topics[int(batch.topic[rows[0]])], int(batch.queue_id[rows[0]]), len(rows))
            if queue is not None:
                added = queue.added
                queue.put(
                    batch.physical_offset[rows],
                    batch.size[rows],
                    batch.tags_code[rows],
                    batch.queue_offset[rows],
                    batch.store_timestamp[rows],
                )
                if recovering and queue.topic == "SCHEDULE_TOPIC_XXXX" and not self._fix_delay_times:
                    self._early += queue.added - added
        for row, name, queue_offset in batch.light:
            light = self._queue(name, 0 if name.startswith(_LIGHT_PREFIX) else int(batch.queue_id[row]), 1)
            if light is not None and batch.queued[row]:
                one = slice(row, row + 1)
                light.put(
                    batch.physical_offset[one],
                    batch.size[one],
                    batch.tags_code[one],
                    np.array([queue_offset], np.int64),
                    batch.store_timestamp[one],
                )
        if self.layout.conf.flag("messageIndexEnable", True):
            self.index.put(batch)

    def _queue(self, topic: str, queue_id: int, messages: int) -> QueueBuilder | None:
        """A queue, made when it is first dispatched to; None for a name that no directory can have."""
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            if not is_path_name(topic):
                self._unnamed_topics[topic] += messages
                return None
            path = self.layout.queue_path(topic, queue_id)
            queue = QueueBuilder(topic, queue_id, path, self.layout.queue_size(), self._stage)
            self.queues[topic, queue_id] = queue
        return queue

    def _correct_min(self) -> None:
        for queue in self.queues.values():
            queue.correct_min(self.files[0].base if self.files else -1)

    def _state(self, *, refused: bool = False) -> StoreState:
        ranges = [
            QueueRange(topic=t, queueId=i, minOffset=q.min_offset, maxOffset=q.max_offset)
            for (t, i), q in sorted(self.queues.items())
        ]
        low = self.files[0].base if self.files else -1
        return StoreState(minPhyOffset=low, maxPhyOffset=self.end, queues=[] if refused else ranges)

    def _warn(self) -> None:
        if self._early:
            self.warnings.append(
                f"{self._early} delayed messages were dispatched anew without their deliver time, as a 4.9 broker does "
                "after a crash: they will be delivered at once (--fix-delay-times keeps their time)"
            )
        for topic, messages in sorted(self._unnamed_topics.items()):
            self.warnings.append(f"{messages} messages of topic {topic!r}, which no queue directory can be named after")
        if self.aborted and self.start_file is not None and self.start_file.base > self.log.min_offset:
            self.warnings.append(
                f"messages before offset {self.start_file.base} are not indexed anew, as a broker does not either"
            )
        version, reason = version_of(self.layout)
        if version != "4.x":
            self.warnings.append(
                f"a 5.x broker seems to have written this store ({reason}); the rules are those of 4.9"
            )
        self._warn_of_next_start()

    def _warn_of_next_start(self) -> None:
        """The next start checks the last three files again, and one of them may not have been checked now."""
        crc = self.layout.conf.flag("checkCRCOnRecover", True)
        for file in self.files[-SCANNED_FILES:]:
            if self.start_file is None or file.base >= self.start_file.base:
                break
            end = _first_end(file, crc=crc)
            if end.ending is not Ending.FILLER:
                self.warnings.append(
                    f"{file.path}: damaged at byte {end.at} ({end.reason}), which is not checked now: the next start "
                    "of a 4.9 broker checks this file too, and cuts the log there"
                )
                break


def _first_end(file: Segment, *, crc: bool) -> End:
    """The first place of a file that holds no record."""
    view = file.view()
    if is_bulk(view, 0, file.size):
        from rmqtool.store.scan import scan_file

        scanned = scan_file(file, crc=crc)
        while True:
            try:
                next(scanned)
            except StopIteration as stop:
                end: End = stop.value
                return end
    at = 0
    while isinstance(record := read(view, at, file.size, crc=crc), Record):
        at += record.total_size
    file.release()
    return record
