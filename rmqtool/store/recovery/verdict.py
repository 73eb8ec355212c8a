"""The verdict on the commit log: where its check begins, and where the log ends.

Source: CommitLog.recoverNormally, recoverAbnormally; store-engine 4.2.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial

import numpy as np

from formats.endings import Ending
from formats.message.read import End
from rmqtool.errors import UnreadableStore
from rmqtool.progress import Stage, stage
from rmqtool.store.disk.segments import Segment
from rmqtool.store.dispatch.batch import RecordBatch
from rmqtool.store.dispatch.reading import Readahead, check_records, recovery_batches
from rmqtool.store.log.returning import Returning
from rmqtool.store.recovery.dispatcher import Dispatcher
from rmqtool.store.recovery.inputs import StoreInputs
from rmqtool.store.recovery.loading import Loaded
from rmqtool.store.releases.rules import EVERYTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class LogVerdict:
    """The result of the check of the log.

    Attributes:
        files: the files that remain, in order.
        removed: the files to be removed entirely.
        end: physical offset after the last remaining message.
        stop: why the log ends there, with the position in ``stop_file``; None without files.
        first_file: the first file that was checked; ``start_reason`` says why.
        lost_from: physical offset from which on intact messages are removed because the user asked for it; None if the
            log ends at damage or at its own end.
        last_store_timestamp: store timestamp of the last message checked, ms, or if it has none, of the last one
            before that has one; 0 if none has.
        last_record: physical offset of that message, if the rules need it.
        dispatched_from: all records from there on were dispatched to queues that lacked them; None if none were.
        known: physical offset after the last message in any queue before; -1 without one.
        passed_over: the first message missing in the queues, if it begins at ``known``; a 5.3 broker skips it.
    """

    files: list[Segment]
    removed: list[Segment]
    end: int
    stop: End | None = None
    stop_file: Segment | None = None
    first_file: Segment | None = None
    start_reason: str | None = None
    lost_from: int | None = None
    last_store_timestamp: int = 0
    last_record: int = 0
    dispatched_from: int | None = None
    known: int = -1
    passed_over: str | None = None

    @property
    def min_offset(self) -> int:
        """Physical offset of the first remaining byte; -1 without files."""
        return self.files[0].base if self.files else -1


Judge = Callable[[StoreInputs, Loaded, int, Dispatcher], LogVerdict]
"""Determines the end of a non-empty log, given the end of the queues; may dispatch what it reads."""


def split_at(loaded: Loaded, end: int) -> tuple[list[Segment], list[Segment]]:
    """(files that remain, files to be removed) of a log that ends at an offset."""
    behind = [file for file in loaded.files if file.base > end]
    return [file for file in loaded.files if file.base <= end], [*loaded.removed, *behind]


def refuse_start(inputs: StoreInputs, loaded: Loaded, known: int) -> list[str]:
    """Why the broker would not begin to check the log; empty if it would."""
    return inputs.rules.refuse_start(loaded.files, inputs.checkpoint, known, aborted=inputs.aborted)


def judge_log(inputs: StoreInputs, loaded: Loaded, known: int, dispatcher: Dispatcher) -> LogVerdict:
    """Check records from the start file on; the log ends at the first invalid one.

    What is missing in the queues is dispatched on the way if the rules say so.

    Args:
        known: end of the last message in any queue.
    """
    return _LogCheck(inputs, loaded, known, dispatcher).run()


class _LogCheck:
    """One check of the log."""

    def __init__(self, inputs: StoreInputs, loaded: Loaded, known: int, dispatcher: Dispatcher) -> None:
        self._inputs, self._loaded, self._known, self._dispatcher = inputs, loaded, known, dispatcher
        self._files = loaded.files
        self._readable: dict[int, int] = {}  # readable bytes of each opened file, by its base
        self._last_store_timestamp = 0
        self._last_size = 0  # size of the last record checked and dispatched
        self._passed_over: str | None = None
        # the broker's rule is right for batch queues: the record at their "end" is one that they have
        self._unknown = max((queue.unknown_from for queue in loaded.queues.values()), default=known)

    def run(self) -> LogVerdict:
        inputs, files = self._inputs, self._files
        number, reason = inputs.rules.first_checked(files, inputs.checkpoint, self._known, aborted=inputs.aborted)
        with stage("checking the log", sum(file.size for file in files[number:])) as checking:
            return self._run(number, reason, checking)

    def _run(self, number: int, reason: str, checking: Stage) -> LogVerdict:
        inputs, files = self._inputs, self._files
        rules, aborted = inputs.rules, inputs.aborted
        size_before = 0
        dispatched_from = rules.dispatched_from(self._known, self._unknown, aborted=aborted)
        first_file = file = files[number]
        at = first_at = rules.begins_at(file, inputs.checkpoint, self._known, aborted=aborted)
        # without a record, a broker takes the position where the check begins, or the end of the files
        last_record = file.base + at if aborted else files[-1].end
        builder = inputs.batch_builder(delays=inputs.knows_delays)
        readahead = Readahead()
        try:
            while True:
                view, limit = self._open(file, at)
                if dispatched_from is None:
                    end, last = check_records(view, at, limit, crc=inputs.checks_crc)
                    self._last_store_timestamp = self._last_store_timestamp if last is None else last
                else:
                    following = partial(self._open_following, number)
                    crc = inputs.checks_crc
                    batches = recovery_batches(
                        view, at, limit, builder, crc=crc, readahead=readahead, following=following
                    )
                    end = self._dispatch(batches, file.base + at, dispatched_from, checking)
                    if end.at:
                        last_record = file.base + end.at - self._last_size
                end = rules.find_end(file, end, limit)
                file.release()
                size_before += file.size
                checking.done = size_before
                if end.ending is not Ending.FILLER or number + 1 >= len(files):
                    break
                number += 1
                file, at = files[number], 0
        finally:
            readahead.close()
        if number + 1 < len(files):
            files[number + 1].release()  # may have been opened for read-ahead
        if not self._last_store_timestamp and not rules.exactly:
            self._last_store_timestamp = self._find_last_time(number, end.at)
        stay, removed = split_at(self._loaded, file.base + end.at)
        return LogVerdict(
            files=stay,
            removed=removed,
            end=file.base + end.at,
            stop=end,
            stop_file=file,
            first_file=first_file,
            start_reason=reason,
            last_store_timestamp=self._last_store_timestamp,
            last_record=last_record,
            dispatched_from=None if dispatched_from is None else max(first_file.base + first_at, dispatched_from),
            known=self._known,
            passed_over=self._passed_over,
        )

    def _find_last_time(self, number: int, end: int) -> int:
        """Store timestamp, ms, of the last message that has one; 0 without one.

        Args:
            number: of the file in which the log ends.
            end: position in it.
        """
        builder = self._inputs.batch_builder(delays=False, light_queues=False)
        for file in reversed(self._files[: number + 1]):
            last = 0
            limit = end if file is self._files[number] else file.size
            for batch in recovery_batches(file.view(), 0, limit, builder, crc=False):
                times = batch.store_timestamp[batch.store_timestamp > 0]
                last = int(times[-1]) if len(times) else last
                batch.release()
            file.release()
            if last:
                return last
        return 0

    def _open(self, file: Segment, at: int = 0) -> tuple[memoryview, int]:
        """A file's bytes, and how far a broker can read records in it from a position on."""
        view = file.view()
        if file.base not in self._readable:
            self._readable[file.base] = self._inputs.rules.recoverable(file, at, aborted=self._inputs.aborted)
        return view, self._readable[file.base]

    def _open_following(self, number: int) -> tuple[memoryview, int] | None:
        """The next file; None if it cannot be opened, which will be reported when it is its turn."""
        if number + 1 >= len(self._files):
            return None
        try:
            return self._open(self._files[number + 1])
        except UnreadableStore:
            return None

    def _dispatch(
        self, batches: Generator[RecordBatch, None, End], at: int, dispatched_from: int, checking: Stage
    ) -> End:
        """Dispatch the records of one file that state a position of at least ``dispatched_from``; all are checked."""
        records = Returning(batches)
        for batch in records:
            self._last_store_timestamp = int(batch.store_timestamp[-1])
            self._last_size = int(batch.size[-1])
            self._dispatcher.displaced |= not batch.lies_at(at)
            size = int(batch.size.sum())
            at += size
            checking.done += size
            wanted = batch
            if dispatched_from != EVERYTHING:
                self._record_skipped(batch)
                wanted = batch.since(dispatched_from)
            self._dispatcher.put(wanted)
            batch.release()
        return records.value

    def _record_skipped(self, batch: RecordBatch) -> None:
        """Record the message that begins where queues end; a 5.3 broker dispatches only those after it."""
        if self._unknown > self._known:
            return
        rows = np.flatnonzero(batch.physical_offset == self._known)
        if len(rows) and self._passed_over is None:
            row = int(rows[0])
            topic, queue_id = batch.topics[int(batch.topic[row])], int(batch.queue_id[row])
            self._passed_over = f"topic {topic!r} queue {queue_id} offset {int(batch.queue_offset[row])}"
