"""Predict the queues of a DLedger member after its start: which messages of the log they do not lead to then.

A broker of 5.x reads the end of the log after a kill, from the file on that its checkpoint names, and puts its messages
into queues. It ends at the first damaged one. Then it adds up the sizes of the messages that it has read in the last
file, without the headers of their entries, takes the result for the end of the log, and cuts queues that reach beyond.
It goes on at the end of what is known to be committed: if that is after the cut, the entries are not made again. The
next messages take the queue offsets of those that were cut, so that the log has two messages for each of them.

A broker of 4.9 cuts queues at the end of the log alone, and goes on where they end.

Both leave out what follows damage in the same file when they go on, as they skip all that they have read at once: the
file as far as the group has committed it by then. What it commits later is put into queues, so their number is a bound.

Source: store.dledger.DLedgerCommitLog (dledgerRecoverAbnormally, isMmapFileMatchedRecover, getConfirmOffset),
store.DefaultMessageStore (start, ReputMessageService.doReput), store.ConsumeQueue (4.9.8, 5.3.3, 5.5.0).
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from formats.checkpoint import parse as parse_checkpoint
from formats.layouts.codes import MAGIC_V1
from formats.layouts.derived import BLANK
from formats.message.read import Record, read
from formats.primitives import INNER_BATCH, TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE
from formats.variants.dledger import HEAD_SIZE, MAGIC_END
from rmqtool.errors import Refused, RmqError
from rmqtool.store.config.release import release_of
from rmqtool.store.disk.segments import Segment
from rmqtool.store.dispatch.light import is_light
from rmqtool.store.layout.paths import UNIT, StoreLayout
from rmqtool.store.layout.version import has_rocksdb_queues
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.log.dledger import DLedgerLog
from rmqtool.store.log.returning import Returning
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.queues.reader import NO_OFFSET
from rmqtool.store.recovery.dledger.member import MemberRefused, MemberVerdict, judge_member
from rmqtool.store.recovery.inputs import StoreInputs
from rmqtool.store.recovery.loading import StagedQueues

Key = tuple[str, int]  # topic, queue id
Put = Callable[[Record], None]
_Places = npt.NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class QueueStart:
    """The queues after a start. Messages are counted by queue, intact ones only.

    Attributes:
        position: physical offset from which on the start cuts entries of messages that the log has; None if it does
            not.
        cut: messages whose entries it cuts, and does not make again.
        unserved: all messages to which no entry leads then, those of ``cut`` among them.
        behind_damage: messages of ``unserved`` that follow damage. Those that the group commits only after the broker
            has read up to the damage are served.
        repeated: messages whose queue offset an earlier one has, too, so that an entry leads to one of them only.
    """

    position: int | None = None
    cut: Counter[Key] = field(default_factory=Counter)
    unserved: Counter[Key] = field(default_factory=Counter)
    behind_damage: Counter[Key] = field(default_factory=Counter)
    repeated: Counter[Key] = field(default_factory=Counter)


def predict_queues(layout: StoreLayout, verdict: MemberVerdict, *, rebuilt: bool = False) -> QueueStart:
    """The queues after the next start; nothing is unserved if they cannot be read.

    Args:
        verdict: the log after that start.
        rebuilt: whether ``rebuild`` makes them new before the start.

    Raises:
        Refused: they cannot be rebuilt.
        UnreadableStore: a file of the log cannot be read.
    """
    if verdict.stop_file is None or has_rocksdb_queues(layout):
        return QueueStart()
    try:
        queues = {} if rebuilt else _read_queues(layout)
    except RmqError:
        return QueueStart()
    start = _Start(layout, verdict, queues)
    if rebuilt:
        end = end_for_queues(layout)
        for record in start.log_records(end):
            start.put(record)
    return start.run()


def end_for_queues(layout: StoreLayout) -> int:
    """The physical offset at which rebuilt queues must end, so that the broker's start goes on behind them.

    That is the end of what is known to be committed, as brokers put nothing else into queues; for 5.x after a kill also
    the last record before the place at which that start cuts queues, as it puts the others into them before.

    Raises:
        Refused: the member does not know what is committed, or does not start.
        UnreadableStore: a file of the log cannot be read.
    """
    log = DLedgerLog.of(layout)[0]
    try:
        verdict = judge_member(log, layout.commit_log_size(log.data))
    except MemberRefused as refusal:
        raise Refused(f"{layout.root}: its broker does not start: {refusal}") from refusal
    end = verdict.committed.position
    if end < 0:
        reason = "the checkpoint of its DLedger log does not have a committed index, up to which queues are made"
        raise Refused(f"{layout.root}: {reason}. Start the brokers of its group: they fill up what it lacks")
    if verdict.stop_file is None or not _scans_log(layout):
        return end
    scanned = _Scan(layout, verdict).run(lambda _record: None)
    # such a start reads that file in any case, and puts it into queues, committed or not
    end = max(end, scanned.base)
    if end < scanned.cut_at:
        return end
    for item in CommitLog(layout).walk(scanned.base, verdict.end):
        if isinstance(item, LocatedRecord) and item.end >= scanned.cut_at:
            return min(item.physical_offset, end)
    return end


class _Scanned(NamedTuple):
    """The end of the log as a start of 5.x takes it after a kill."""

    base: int  # physical offset of the file in which its scan ended
    cut_at: int  # queues are cut there if one of them has a message that ends there or later


class _Scan:
    """The scan of the end of the log by a start of 5.x after a kill."""

    def __init__(self, layout: StoreLayout, verdict: MemberVerdict) -> None:
        removed = {file.path for file in verdict.removed}
        self._files = [file for file in DLedgerLog.of(layout)[0].data if file.path not in removed]
        self._conf, self._point = layout.conf, parse_checkpoint(layout.checkpoint() or b"")

    def run(self, put: Put) -> _Scanned:
        """Scan, calling ``put`` with each record, also with those that the group has cut off behind the log's end."""
        crc, number = self._conf.flag("checkCRCOnRecover", True), self._first_file()
        while True:
            file = self._files[number]
            records, size = Returning(_read_entries(file, 0, crc=crc)), 0
            for record in records:
                size += record.total_size
                put(record)
            file.release()
            number += 1
            if not records.value or number == len(self._files):
                return _Scanned(file.base, file.base + size)

    def _first_file(self) -> int:
        """The newest file whose first message is certainly in the queues on disk."""
        conf, point = self._conf, self._point
        indexed = conf.flag("messageIndexEnable", True) and conf.flag("messageIndexSafe", False)
        limit = point.min_timestamp_index if indexed else point.min_timestamp
        for number in range(len(self._files) - 1, 0, -1):
            file = self._files[number]
            record = read(file.map(), HEAD_SIZE, file.size, crc=False)
            file.release()
            if isinstance(record, Record) and record.magic == MAGIC_V1 and 0 < record.store_timestamp <= limit:
                return number
        return 0


class _Queue:
    """A queue during a start: its files, and what is put behind them."""

    def __init__(self, files: QueueBuilder | None) -> None:
        self._files = files
        self._begin = 0  # queue offset of the first message put, if there are no files
        self._added: list[tuple[int, int]] = []  # physical offset of each message put, and after it

    @property
    def reaches(self) -> int:
        """Physical offset after the last message; -1 without any."""
        if self._added:
            return self._added[-1][1]
        return self._files.max_physical_offset if self._files is not None else NO_OFFSET

    @property
    def end(self) -> int:
        """Queue offset after the last entry."""
        on_disk = self._files.max_offset if self._files is not None and self._files.files else self._begin
        return on_disk + len(self._added)

    def put(self, record: Record) -> None:
        """Append the entry of a message, unless it is or seems to be there already (putMessagePositionInfo)."""
        if record.physical_offset + record.total_size <= self.reaches:
            return
        if not self._added and (self._files is None or not self._files.files):
            self._begin = max(record.queue_offset, 0)
        elif record.queue_offset and record.queue_offset < self.end:
            return
        self._added.append((record.physical_offset, record.physical_offset + record.total_size))

    def truncate(self, position: int) -> None:
        """Cut the entries of messages that begin at or after a physical offset (truncateDirtyLogicFiles)."""
        del self._added[
            next((n for n, (start, _end) in enumerate(self._added) if start >= position), len(self._added)) :
        ]
        if not self._added and self._files is not None:
            self._files.truncate(position)

    def places(self) -> _Places:
        """The physical offsets of all its messages."""
        parts = [np.array([start for start, _end in self._added], np.int64)]
        for file in self._files.files if self._files is not None else ():
            with closing(file.runs(0, file.wrote // UNIT)) as runs:
                parts += [units["physical_offset"].astype(np.int64) for _first, units in runs]
        return np.concatenate(parts)


def _read_queues(layout: StoreLayout) -> dict[Key, _Queue]:
    """The queues as a start finds them.

    Raises:
        RmqError: they cannot be read.
    """
    staged = StagedQueues(StoreInputs.of(layout, exactly=True), _no_stage)
    queues = {}
    for queue in staged.all():
        queue.recover()
        queues[queue.topic, queue.queue_id] = _Queue(queue)
    return queues


def _no_stage() -> str:
    raise AssertionError("a prediction writes no files")


class _Start:
    """A start, and what its broker puts into queues until all of the log is committed."""

    def __init__(self, layout: StoreLayout, verdict: MemberVerdict, queues: dict[Key, _Queue]) -> None:
        self._layout, self._verdict, self._queues = layout, verdict, queues
        self._log = CommitLog(layout)
        self._passed: list[range] = []  # physical offsets that the broker passes over, from damage on

    def put(self, record: Record) -> None:
        """Put a message into its queue."""
        if _is_queued(record):
            key = _key_of(record)
            if key not in self._queues:
                self._queues[key] = _Queue(None)
            self._queues[key].put(record)

    def log_records(self, end: int, start: int = 0) -> Iterator[Record]:
        """The intact messages of the log that begin in [start, end)."""
        for item in self._log.walk(start, end):
            if isinstance(item, LocatedRecord) and item.physical_offset < end:
                yield item.record

    def run(self) -> QueueStart:
        verdict = self._verdict
        before = {key: queue.places() for key, queue in self._queues.items()}
        reached = max((queue.reaches for queue in self._queues.values()), default=NO_OFFSET)
        end = _Scan(self._layout, verdict).run(self.put).cut_at if _scans_log(self._layout) else verdict.end
        if reached >= end:
            for queue in self._queues.values():
                queue.truncate(end)
        after_cut = max((queue.reaches for queue in self._queues.values()), default=NO_OFFSET)
        self._go_on(max(verdict.committed.position if release_of(self._layout).is_5 else after_cut, 0))
        if self._served() >= verdict.end_index - verdict.begin_index + 1:
            return QueueStart()
        return self._compare(before, end if reached >= end else None)

    def _go_on(self, start: int) -> None:
        """Put what follows a position into queues; damage hides the rest of its file."""
        for file in DLedgerLog.of(self._layout)[0].data:
            if file.end > start and file.base < self._verdict.end:
                begin = max(start, file.base)
                for record in _read_entries(file, begin - file.base, crc=False):
                    if record.physical_offset >= self._verdict.end:
                        break
                    self.put(record)
                    begin = record.physical_offset + record.total_size
                self._passed.append(range(begin, file.end))
                file.release()

    def _served(self) -> int:
        """How many messages of the log have an entry, at most."""
        low = max(self._log.min_offset, 1)  # the first entry of a file may fill it up, and leads to 0 then
        queues = [queue for (topic, _queue_id), queue in self._queues.items() if not is_light(topic)]
        return sum(int((queue.places() >= low).sum()) for queue in queues)

    def _compare(self, before: dict[Key, _Places], cut_at: int | None) -> QueueStart:
        """Compare the log with the entries."""
        places: dict[Key, array[int]] = defaultdict(lambda: array("q"))
        offsets: dict[Key, array[int]] = defaultdict(lambda: array("q"))
        for item in self._log.walk(0, self._verdict.end):
            if isinstance(item, LocatedRecord) and _is_queued(item.record):
                places[_key_of(item.record)].append(item.physical_offset)
                offsets[_key_of(item.record)].append(item.record.queue_offset)
        result = QueueStart(position=cut_at)
        for key, found in places.items():
            logged, queue = np.frombuffer(found, np.int64), self._queues.get(key)
            missing = ~np.isin(logged, queue.places()) if queue is not None else np.ones(len(logged), np.bool_)
            result.unserved[key] = int(missing.sum())
            result.cut[key] = int((missing & np.isin(logged, before.get(key, _NONE))).sum())
            passed = [(logged >= part.start) & (logged < part.stop) for part in self._passed]
            result.behind_damage[key] = int((missing & np.any(passed, axis=0)).sum()) if passed else 0
            result.repeated[key] = len(logged) - len(np.unique(np.frombuffer(offsets[key], np.int64)))
        result.unserved, result.cut, result.repeated = +result.unserved, +result.cut, +result.repeated
        result.behind_damage = +result.behind_damage
        if not result.cut:
            result.position = None
        return result


_NONE: _Places = np.zeros(0, np.int64)


def _read_entries(file: Segment, at: int, *, crc: bool) -> Generator[Record, None, bool]:
    """The records of a data file as a start reads them, which looks at nothing in the headers of their entries.

    Returns:
        Whether they end at the end of the file, so that the next one follows.
    """
    view = file.map()
    while at + BLANK.size <= file.size:
        if BLANK.unpack_from(view, at)[0] == MAGIC_END:
            return True
        record = read(view, at + HEAD_SIZE, file.size, crc=crc)
        if not isinstance(record, Record):
            return False
        yield record
        at += HEAD_SIZE + record.total_size
    return False


def _scans_log(layout: StoreLayout) -> bool:
    """Whether the next start reads the end of the log, and takes a wrong end of it."""
    return layout.aborted and release_of(layout).is_5


def _key_of(record: Record) -> Key:
    return record.topic.decode("utf-8", "surrogateescape"), record.queue_id


def _is_queued(record: Record) -> bool:
    """Whether a message is in a queue of files with entries of one message each.

    Half messages are in that of their own topic, rolled-back ones in none.
    """
    is_plain = not record.sys_flag & INNER_BATCH
    return is_plain and record.sys_flag & TRANSACTION_MASK in (TRANSACTION_NONE, TRANSACTION_COMMIT)
