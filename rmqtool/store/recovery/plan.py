"""The broker's recovery on paper: what a broker would make of a store at its next start (store-engine 1.3, 1.4, 4).

:class:`Recovery` runs the broker's algorithm over the store, which it only reads; queues and index that change are
built in staging files. :mod:`rmqtool.store.releases.rules` says what the releases do differently, and
:mod:`rmqtool.store.recovery.actions` turns the outcome into words and file actions.
"""

import os
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from formats import checkpoint
from formats.endings import Ending
from formats.message.read import End
from formats.queues.consume import FILLER_SIZE
from rmqtool.errors import Refused, UnreadableStore
from rmqtool.store.disk.segments import Segment
from rmqtool.store.dispatch.batch import (
    Batch,
    BatchBuilder,
    DelayLevels,
    Readahead,
    checked,
    recovery_batches,
    reput_batches,
)
from rmqtool.store.index.builder import IndexBuilder
from rmqtool.store.index.reader import geometry_of
from rmqtool.store.layout.paths import UNIT, StoreLayout, is_path_name
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.recovery.report import QueueRange, StoreState
from rmqtool.store.releases.rules import EVERYTHING, rules_for

Stage = Callable[[], str]
_LIGHT_PREFIX = "%LMQ%"
_NAMED = 3  # queues that a warning names
_MOST_HELD = 32 << 20  # bytes of entries that queues may have gathered before they write them, all together


class Recovery:
    """One run of the broker's recovery. Call :meth:`run`, then :meth:`report` and perhaps :meth:`prepare`.

    Args:
        layout: the store.
        stage: gives a path for a new staging file, outside the store.
        engine: whose rules to follow, one of :data:`rmqtool.store.releases.rules.ENGINES`.
        exactly: do what a 5.3 broker does also where it leaves out a message that no queue has.
        fix_delay_times: give delayed messages that are dispatched anew after a crash their true deliver time, where a
            4.9 broker would have them delivered at once.
    """

    def __init__(
        self,
        layout: StoreLayout,
        stage: Stage,
        *,
        engine: str = "auto",
        exactly: bool = False,
        fix_delay_times: bool = False,
    ) -> None:
        self.layout, self._stage = layout, stage
        self.rules, self.rules_reason, warning = rules_for(layout, engine, exactly=exactly)
        self.log = CommitLog(layout)
        self.files = list(self.log.segments)
        self.file_size = self.log.file_size
        self.aborted = layout.aborted
        self.checkpoint = checkpoint.parse(layout.checkpoint() or b"")
        self.queues: dict[tuple[str, int], QueueBuilder] = {}
        self.found_ends: dict[tuple[str, int], int] = {}  # queue offset at which each queue ends on disk
        self.index = IndexBuilder([], geometry_of(layout), stage)
        self.refusals: list[str] = []
        self.warnings: list[str] = [] if warning is None else [warning]
        self.removed: list[Segment] = []
        self.end = 0
        self.lost_from: int | None = None  # where messages are cut that are no damage: what begins there is lost too
        self.stop: End | None = None
        self.stop_file: Segment | None = None
        self.start_file: Segment | None = None
        self.start_reason: str | None = None
        self.dispatched = 0
        self.last_store_timestamp = 0  # of the last message that the check of the log has passed
        self.last_record = self.checkpoint.confirm_phy_offset  # start of that message, where the rules need it
        self.after_load: StoreState | None = None
        self.after_start: StoreState | None = None
        self._knows_delays = fix_delay_times or self.rules.knows_delays
        self._levels = DelayLevels(layout.conf.delay_levels)
        conf = layout.conf
        self._light = conf.flag("enableMultiDispatch", conf.flag("enableLmq", self._has_light_queues()))
        self._queue_size = layout.queue_size()  # asked for once: it may take a look at every queue
        self._held = 0  # bytes of entries, at most, that queues have gathered
        self._unnamed_topics: Counter[str] = Counter()
        self._early = 0
        self._known = -1  # end of the last message that any queue knew
        self._last_size = 0  # of the last record that was dispatched while it was checked
        self._dispatched_from: int | None = None  # all records from there on went to queues that lacked them
        self._passed_over: str | None = None
        self._readable: dict[int, int] = {}  # bytes of each file that was opened, by its base

    def _has_light_queues(self) -> bool:
        return self.layout.has_queues(_LIGHT_PREFIX)

    # -- load ---------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """The broker's load and start, up to the moment at which it would take messages.

        Raises:
            Refused: the store has a form that these rules would do harm to.
        """
        self.refusals += self.rules.check_forms()
        self._check_files()
        if self.refusals:
            self.end = self.files[-1].end if self.files else 0
            self.after_load = self._state(refused=True)
            return
        with ThreadPoolExecutor(1, "rmqtool-index") as beside:
            self._load_and_start(beside)

    def _load_and_start(self, beside: ThreadPoolExecutor) -> None:
        self.index = IndexBuilder(self.layout.index_paths(), geometry_of(self.layout), self._stage)
        if self.aborted:
            self.index.prune(self.checkpoint.index_msg_timestamp)
        for queue in self.queues.values():
            queue.recover()
        self.found_ends = {key: queue.max_offset for key, queue in self.queues.items()}
        max_dispatched = self._max_dispatched()
        self._check_single_file(max_dispatched)
        if self.files:
            self._recover_log(max_dispatched)
            if max_dispatched >= self.end:
                for queue in self.queues.values():
                    queue.truncate(self.end)
        else:
            self.end = 0
            for queue in self.queues.values():
                queue.destroy()
        starts = self.rules.redispatches(cut=max_dispatched >= self.end)
        finished = None
        if not starts or self._reput_from() >= self.end:  # nothing more comes
            # queues write what they have gathered while the index writes its slots
            finished = beside.submit(self.index.finish)
        self._correct_min()
        self.after_load = self._state(refused=bool(self.refusals))
        if self.refusals:
            return
        if starts:
            before = self.dispatched
            self._reput()
            if self.dispatched > before:
                self._correct_min()
        self.after_start = self._state()
        (finished or beside.submit(self.index.finish)).result()
        self._warn()

    def _max_dispatched(self) -> int:
        """End of the last message that any queue knows."""
        return max((queue.max_physical_offset for queue in self.queues.values()), default=-1)

    def _check_files(self) -> None:
        """What makes the broker refuse to load: mostly a file of another length than configured, or a foreign one."""
        refused, self.removed = self.rules.admit(self.files, self.log.segments.foreign, self.file_size, "commit-log")
        gone = {file.path for file in self.removed}
        # files count in the order of their names, up to the first that the broker does not take
        first = min((os.path.basename(path) for path, _why in refused), default=None)
        self.files = [
            f for f in self.files if f.path not in gone and (first is None or os.path.basename(f.path) < first)
        ]
        self.refusals += [f"{path}: {why}" for path, why in refused]
        if refused:
            return
        size = self._queue_size
        for topic, queue_id, path in self.layout.queue_dirs():
            queue = QueueBuilder(topic, queue_id, path, size, self._stage)
            refused, queue.removed = self.rules.admit(queue.sources, queue.foreign, size, "queue")
            queue.files = [file for file in queue.files if file.source not in queue.removed]
            self.refusals += [f"{path}: {why}" for path, why in refused]
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

    def _recover_log(self, known: int) -> None:
        """Check records from the start file on; the first that fails is the end of the log.

        Args:
            known: end of the last message that any queue knows.
        """
        self._known = known
        point, rules = self.checkpoint, self.rules
        number, self.start_reason = rules.start_number(self.files, point, known, aborted=self.aborted)
        dispatched_from = rules.dispatched_from(known, aborted=self.aborted)
        levels = self._levels if self._knows_delays else DelayLevels([])
        builder = BatchBuilder(levels, light_queues=self._light)
        crc = self.layout.conf.flag("checkCRCOnRecover", True)
        self.start_file = file = self.files[number]
        if dispatched_from is not None:
            self._dispatched_from = max(file.base, dispatched_from)
        # where there is no record a broker takes the place where the check begins, or the end of the files
        self.last_record = file.base if self.aborted else self.files[-1].end
        readahead = Readahead()
        try:
            while True:
                view, limit = self._opened(file)
                if dispatched_from is not None:
                    following = partial(self._following, number)
                    batches = recovery_batches(
                        view, 0, limit, builder, crc=crc, readahead=readahead, following=following
                    )
                    end = self._drain(batches, dispatched_from)
                    if end.at:
                        self.last_record = file.base + end.at - self._last_size
                else:
                    end, last = checked(view, 0, limit, crc=crc)
                    self.last_store_timestamp = self.last_store_timestamp if last is None else last
                end = rules.ended(file, end, limit)
                file.release()
                if end.ending is not Ending.FILLER or number + 1 >= len(self.files):
                    break
                number += 1
                file = self.files[number]
        finally:
            readahead.close()
        if number + 1 < len(self.files):
            self.files[number + 1].release()  # it may have been begun with
        self.stop, self.stop_file = end, file
        self.end = file.base + end.at
        for later in [f for f in self.files if f.base > self.end]:
            self.files.remove(later)
            self.removed.append(later)

    def _opened(self, file: Segment) -> tuple[memoryview, int]:
        """A file's bytes, and how far a broker can read records in it."""
        view = file.view()
        if file.base not in self._readable:
            self._readable[file.base] = self.rules.readable(file)
        return view, self._readable[file.base]

    def _following(self, number: int) -> tuple[memoryview, int] | None:
        """The file behind one; if it cannot be opened, that is told when it is its turn."""
        if number + 1 >= len(self.files):
            return None
        try:
            return self._opened(self.files[number + 1])
        except UnreadableStore:
            return None

    def _drain(self, batches: Generator[Batch, None, End], dispatched_from: int = EVERYTHING) -> End:
        """Dispatch the records of one file while they are checked: those that say this position, or a later one."""
        while True:
            try:
                batch = next(batches)
            except StopIteration as stop:
                end: End = stop.value
                return end
            self.last_store_timestamp = int(batch.store_timestamp[-1])
            self._last_size = int(batch.size[-1])
            wanted = batch
            if dispatched_from != EVERYTHING:
                self._note_passed_over(batch)
                wanted = batch.since(dispatched_from)
            self._dispatch(wanted, recovering=True)
            batch.release()

    def _note_passed_over(self, batch: Batch) -> None:
        """The record right behind what queues know: a 5.3 broker dispatches those behind it only."""
        rows = np.flatnonzero(batch.physical_offset == self._known)
        if len(rows) and self._passed_over is None:
            row = int(rows[0])
            topic, queue_id = batch.topics[int(batch.topic[row])], int(batch.queue_id[row])
            self._passed_over = f"topic {topic!r} queue {queue_id} offset {int(batch.queue_offset[row])}"

    # -- start --------------------------------------------------------------------------------------------------------

    def _reput_from(self) -> int:
        """Where that begins; the end of the log without files."""
        return max(self.files[0].base, self._max_dispatched(), 0) if self.files else self.end

    def _reput(self) -> None:
        """Dispatch what no queue has yet, as the broker does before it takes messages."""
        at = self._reput_from()
        if at == self._known:
            self._passed_over = None  # it is dispatched after all
        if at < self.end and self._dispatched_from is None:
            self._dispatched_from = at
        builder = BatchBuilder(self._levels, light_queues=self._light)
        while at < self.end:
            file = next((f for f in self.files if f.base <= at < f.base + self.file_size), None)
            if file is None:
                words = "nothing from there on is dispatched"
                if self.rules.waits:
                    words = f"a {self.rules.engine} broker hangs here at its start"
                self.warnings.append(f"no commit-log file holds offset {at}: {words}")
                break
            view = file.view()
            limit = min(self.end - file.base, file.size)
            readable = min(limit, self.rules.readable(file))
            batches = reput_batches(view, at - file.base, readable, builder)
            while True:
                try:
                    self._dispatch(next(batches), recovering=False)
                except StopIteration as stop:
                    at = max(file.base + stop.value, at + 1)
                    break
            if readable < limit:
                at = file.end
            file.release()

    def _dispatch(self, batch: Batch, *, recovering: bool) -> None:
        self.dispatched += len(batch)
        self._held += len(batch) * UNIT
        if self._held > _MOST_HELD:
            for each in self.queues.values():
                each.hand_over()
            self._held = 0
        for row, puts in batch.puts():
            queue = self._queue(batch.topics[int(batch.topic[row])], int(batch.queue_id[row]), len(puts))
            if queue is not None:
                added = queue.added
                queue.put(puts)
                if recovering and queue.topic == "SCHEDULE_TOPIC_XXXX" and not self._knows_delays:
                    self._early += queue.added - added
        for put in batch.light:
            queue_id = 0 if put.queue.startswith(_LIGHT_PREFIX) else int(batch.queue_id[put.row])
            light = self._queue(put.queue, queue_id, 1)
            if light is not None and batch.queued[put.row]:
                light.put(batch.light_puts(put))
        if self.layout.conf.flag("messageIndexEnable", True):
            self.index.put(batch)

    def _queue(self, topic: str, queue_id: int, messages: int) -> QueueBuilder | None:
        """A queue, made when it is first dispatched to; None for a name that no directory can have.

        Raises:
            Refused: it would be of a kind that we do not write.
        """
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            # a broker takes a name with a comma for those of several directories (ensureDirOK), and so has none
            if not is_path_name(topic) or "," in topic:
                self._unnamed_topics[topic] += messages
                return None
            if topic in self.rules.batch_topics:
                raise Refused(f"{self.layout.root}: topic {topic!r} has batch consume queues, which cannot be written")
            path = self.layout.queue_path(topic, queue_id)
            queue = QueueBuilder(topic, queue_id, path, self._queue_size, self._stage)
            self.queues[topic, queue_id] = queue
        return queue

    def _correct_min(self) -> None:
        for queue in self.queues.values():
            if self.rules.blocked(queue):
                file = queue.files[-1]
                words = f"{queue.target(file)}: the last file of its queue, and empty: a 5.3 broker does not load it"
                if self.rules.exactly or len(queue.files) < 2 or queue.files[-2].base + queue.file_size != file.base:
                    self.refusals.append(words)
                    continue
                self.warnings.append(f"{words}; it is removed")
                queue.drop_unwritten()
            self.rules.correct_min(queue, self.files[0].base if self.files else -1)

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
        if self._passed_over is not None:
            words = f"{self._passed_over} at {self._known} is the first message that no queue has: a 5.3 broker "
            words += "leaves it out, and those behind it in its queue move one offset down"
            self.warnings.append(f"{words}; so it is here" if self.rules.exactly else f"{words}; here it is kept")
        self._warn_of_short_queues()
        self.warnings += self.rules.warnings()
        self._warn_of_next_start()

    def _warn_of_short_queues(self) -> None:
        """Queues that were begun anew, but not from the first message that the log may have for them."""
        if self._dispatched_from is None or self._dispatched_from <= self.log.min_offset:
            return
        begun = [f"topic {t!r} queue {i} (from {q.begun_at} on)" for (t, i), q in self.queues.items() if q.begun_at]
        if begun:
            names = ", ".join(sorted(begun)[:_NAMED]) + (f" and {len(begun) - _NAMED} more" if begun[_NAMED:] else "")
            self.warnings.append(
                f"{names}: without files before, begun anew with messages from offset {self._dispatched_from} on only, "
                "as by a broker; those that the log has before that are in no queue: see check, and rebuild "
                "consumequeue"
            )

    def _warn_of_next_start(self) -> None:
        """The next start checks some of the last files again, and one of them may not have been checked now."""
        known = self._max_dispatched()
        for file in self.files[self.rules.next_start(self.files, known) :]:
            if self.start_file is None or file.base >= self.start_file.base:
                break
            end = self._first_end(file)
            if end.ending is not Ending.FILLER:
                self.warnings.append(
                    f"{file.path}: damaged at byte {end.at} ({end.reason}), which is not checked now: the next start "
                    f"of a {self.rules.engine} broker checks this file too, and cuts the log there"
                )
                break

    def _first_end(self, file: Segment) -> End:
        """The first place of a file that holds no record."""
        view = file.view()
        limit = self.rules.readable(file)
        end, _last = checked(view, 0, limit, crc=self.layout.conf.flag("checkCRCOnRecover", True))
        end = self.rules.ended(file, end, limit)
        file.release()
        return end
