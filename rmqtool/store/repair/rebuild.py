"""Rebuild consume queues, index or checkpoint from the commit log, aside, and swap them in; mend config files.

This uses the builders of recovery, fed with every message of the log from its first file on. Consume queues number
their messages, so for them the log must be intact except for wrong body checksums; a damaged log is for recover, which
truncates it, or salvage, which skips the damage. Index and checkpoint do not number anything, so damage is skipped.
Config files are mended whatever the state of the store.
"""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from formats import checkpoint
from formats.endings import Ending
from formats.message.read import End, Record, read
from rmqtool.errors import BadValue, CorruptFile, Refused
from rmqtool.progress import stage
from rmqtool.store.builders.compaction import CompactionBuilder
from rmqtool.store.builders.config_outcome import ConfigOutcome
from rmqtool.store.builders.timer import TimerBuilder
from rmqtool.store.changes.change import Change
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.writing import changing, pending_runs, planning
from rmqtool.store.disk.segments import Segment
from rmqtool.store.disk.sparse import has_bytes
from rmqtool.store.dispatch.batch import BATCH_RECORDS, BatchBuilder, QueuePuts, RecordBatch
from rmqtool.store.dispatch.generations import Generations, find_remade
from rmqtool.store.dispatch.reading import recovery_batches
from rmqtool.store.index.builder import IndexBuilder
from rmqtool.store.layout.mending import refuse_shared_queues
from rmqtool.store.layout.paths import BATCH_QUEUES, StoreLayout
from rmqtool.store.log.commit_log import Damage, next_in_file, walk_file
from rmqtool.store.log.returning import Returning
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.queues.reader import BATCH, PLAIN, runs_of
from rmqtool.store.recovery.actions import Say, prepare_index
from rmqtool.store.recovery.dispatcher import Dispatcher, QueueKey
from rmqtool.store.recovery.dledger.queue_start import end_for_queues
from rmqtool.store.recovery.inputs import StoreInputs
from rmqtool.store.recovery.loading import Stage, StagedQueues
from rmqtool.store.recovery.summary import find_lost
from rmqtool.store.recovery.verdict import LogVerdict
from rmqtool.store.recovery.warnings import of_unnamed_topics
from rmqtool.store.repair.lengths import LengthMender
from rmqtool.store.repair.old_queues import OldQueues
from rmqtool.store.roles.table import heed
from rmqtool.store.tier.tier import DO_NOT_START, Tier, local_ranges, refuse_dangers
from rmqtool.words import command_line, counted

CONFIG, TIMER, COMPACTION, LENGTHS = "config", "timer", "compaction", "files"
TIER = "tiered-metadata"
PARTS = ("consumequeue", "index", "checkpoint", CONFIG, TIMER, COMPACTION, LENGTHS, TIER)
_ALONE = {
    CONFIG: "config is rebuilt alone: rebuild the other parts first",
    TIMER: "timer is rebuilt alone, from the queues: rebuild the other parts first",
    COMPACTION: "compaction is rebuilt alone, from the queues: rebuild the other parts first",
    TIER: "tiered-metadata is rebuilt alone, from the segments of the tier",
    LENGTHS: "files are put right alone, before other parts are rebuilt from them",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport:
    """The result of a rebuild."""

    store: str
    parts: list[str]
    messages: int
    queues: int
    queueEntries: int
    indexEntries: int
    configs: list[ConfigOutcome] = field(default_factory=list)  # only for the part config
    warnings: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)  # only for the part files: what the user must repair
    actions: list[str] = field(default_factory=list)
    applied: bool = False
    backup: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return asdict(self)


@dataclass(slots=True)
class _Observed:
    """Observations while reading the log."""

    wrong_bodies: int = 0
    passed_bytes: int = 0
    last_store_timestamp: int = 0


class _CurrentGenerations(Dispatcher):
    """Puts only the messages since its topic was last created into each queue.

    Attributes:
        generations: generations of each queue.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.generations: dict[QueueKey, Generations] = {}

    def _put(self, topic: str, queue_id: int, puts: QueuePuts) -> None:
        generations = self.generations.setdefault((topic, queue_id), Generations())
        physical = puts.entries["physical_offset"].astype(np.int64)
        for rows, begins in generations.take(puts.queue_offset, physical, puts.store_timestamp, puts.counts)[-1:]:
            if begins:
                self.queues.pop((topic, queue_id), None)
                puts = puts.since(rows.start)
        super()._put(topic, queue_id, puts)


class Rebuild:
    """Dispatches the whole log into empty queues and an empty index.

    Attributes:
        dispatcher: has the queues and index files that were built.
        verdict: where the log ends; None until a file has been read for queues.
        tier_dangers: what a broker with the new queues would do to the tier, one sentence each.
    """

    def __init__(self, inputs: StoreInputs, stage: Stage, parts: tuple[str, ...]) -> None:
        self.inputs, self.parts, self._stage = inputs, parts, stage
        self._staged = StagedQueues(inputs, stage)
        index = IndexBuilder([], inputs.geometry, stage)
        batch_topics = inputs.rules.batch_topics
        self.dispatcher = _CurrentGenerations(
            {}, index, self._open_queue, indexed=inputs.indexed, batch_topics=batch_topics
        )
        self.verdict: LogVerdict | None = None
        self.warnings: list[str] = list(inputs.warnings)
        self._observed = _Observed()
        self._left_out: set[str] = set()  # deleted topics
        self._former = Counter[str]()  # by topic that was created again: number of earlier messages
        self._old: OldQueues | None = None
        self._tier = Tier.of(inputs.layout)
        self.tier_dangers: list[str] = []
        self._stop: int | None = None  # of a DLedger log: physical offset at which queues and index end

    def run(self) -> None:
        """Dispatch every message.

        Raises:
            CorruptFile: the log is not intact, or lacks messages of a queue.
            Refused: there are no messages, although queues have entries; two queues have the same files; or topics.json
                and queues disagree on which topics have batch queues.
        """
        log = self.inputs.log
        if "consumequeue" in self.parts:
            refuse_shared_queues(self.inputs.layout)
        # the rules refuse a DLedger log, which a rebuild of queues only reads
        entries = bool(self.inputs.layout.dledger_dirs())
        forms = self.inputs.rules.check_forms() if "consumequeue" in self.parts and not entries else []
        if "consumequeue" in self.parts and (forms := [*forms, *self.inputs.rules.strange_compaction()]):
            raise Refused(forms[0])
        for path in log.segments.foreign:
            raise CorruptFile(path, None, f"does not belong in a commit-log directory (see {command_line('check')})")
        builder = self.inputs.batch_builder(keeps_tags=True)
        files = log.segments.files
        expected = files[0].base if files else 0
        self._stop = end_for_queues(self.inputs.layout) if entries else None
        with stage("reading the log", sum(file.size for file in files)) as self._reading:
            for number, file in enumerate(files):
                if file.size != log.file_size or file.base != expected:
                    raise CorruptFile(
                        file.path, None, "of a wrong length, or it does not begin where the file before it ends"
                    )
                expected = file.end
                if file.entries:
                    self._read_entries(file, builder, last=file is files[-1])
                    file.release()
                    continue
                end = self._read(file, builder)
                file.release()
                if "consumequeue" in self.parts and not self._continues(file, end, last=number + 2 >= len(files)):
                    break
        if "consumequeue" in self.parts:
            self._leave_former_out()
        for queue in self.dispatcher.queues.values() if "consumequeue" in self.parts else ():
            if queue.misplaced:
                # dispatch would move entries away from their queue offsets; the files on disk may be better
                raise CorruptFile(
                    queue.path,
                    None,
                    f"{counted(queue.misplaced, 'message does', 'messages do')} not follow the one before: "
                    "salvage renumbers them",
                )
        self._need_messages()
        if "consumequeue" in self.parts and self._tier is None:  # with a tier all of these are kept
            self._old = OldQueues(self.inputs, self._staged, self.dispatcher.queues)
        self._add_warnings()
        self.dispatcher.index.finish()

    def _leave_former_out(self) -> None:
        """Remove messages from before their topic was deleted and created again."""
        generations = self.dispatcher.generations
        there = {(topic, queue_id) for topic, queue_id, path in self._queue_dirs() if self.inputs.layout.files_in(path)}
        remade = find_remade({key: (of_queue, key in there) for key, of_queue in generations.items()})
        for (topic, queue_id), of_queue in sorted(generations.items()):
            if topic in self._left_out:
                continue
            if queue_id in remade.get(topic, ()):
                del self.dispatcher.queues[topic, queue_id]
                self._former[topic] += of_queue.messages
            if topic in remade:
                self._former[topic] += of_queue.former
            elif of_queue.former:
                self.warnings.append(
                    f"topic {topic} queue {queue_id} was renumbered from 0: its "
                    f"{counted(of_queue.former, 'earlier message')} get no entries (salvage renumbers everything)"
                )

    def _continues(self, file: Segment, end: End, *, last: bool) -> bool:
        """Whether records continue in the next file.

        Args:
            last: whether at most one file follows, which may be preallocated and unused.

        Raises:
            CorruptFile: records end where they should not.
        """
        log = self.inputs.log
        self.verdict = LogVerdict(
            files=log.segments.files, removed=[], end=file.base + end.at, stop=end, stop_file=file
        )
        if end.ending is Ending.FILLER:
            stated, left = int.from_bytes(file.view()[end.at : end.at + 4], "big"), file.size - end.at
            file.release()
            if stated != left:
                raise CorruptFile(file.path, end.at, f"end-of-file blank of {stated} bytes, {left} are left")
            return True
        if end.ending is not Ending.UNWRITTEN or find_lost(log, self.verdict)[0] or not last:
            raise CorruptFile(file.path, end.at, f"{end.reason}: recover cuts the log here, salvage does not")
        return False

    def _read(self, file: Segment, builder: BatchBuilder) -> End:
        """Dispatch the records of one file; returns where it ends or becomes unreadable."""
        view, at = file.view(), 0
        while True:
            batches = Returning(recovery_batches(view, at, file.size, builder, crc=True))
            for batch in batches:
                at = self._dispatch(file, at, batch)
            end = batches.value
            record = read(view, end.at, file.size, crc=False) if end.ending is Ending.DAMAGED else None
            if isinstance(record, Record):
                # readers can read such a message through its entry, and dispatch does not check bodies either
                builder.add(record)
                at = self._dispatch(file, end.at, builder.take())
                self._observed.wrong_bodies += 1
                continue
            used = has_bytes(file.path, end.at, file.size)
            if "consumequeue" in self.parts or used <= end.at or is_blank(view, end, file.size):
                return end
            at = next_in_file(file, end.at + 1)
            if at >= file.size:
                return end
            self._observed.passed_bytes += at - end.at

    def _read_entries(self, file: Segment, builder: BatchBuilder, *, last: bool) -> None:
        """Dispatch the records of one file of a DLedger log.

        Raises:
            CorruptFile: it has damage between entries, for queues.
        """
        for item in walk_file(file, 0, file.size, last=last):
            if self._stop is not None and item.physical_offset >= self._stop:
                break
            if isinstance(item, Damage):
                if "consumequeue" in self.parts:
                    raise CorruptFile(file.path, item.at, f"{item.reason}: queues cannot have gaps; salvage renumbers")
                self._observed.passed_bytes += item.length
                continue
            if item.record.physical_offset != item.physical_offset:
                raise CorruptFile(file.path, item.at, "a record that states another position than its own (see check)")
            builder.add(item.record)
            self._observed.last_store_timestamp = item.record.store_timestamp
            if len(builder) >= BATCH_RECORDS:
                self._put(builder.take())
        if len(builder):
            self._put(builder.take())
        self._reading.done = file.end - self.inputs.log.segments.files[0].base

    def _put(self, batch: RecordBatch) -> None:
        if "index" in self.parts or "consumequeue" in self.parts:
            self.dispatcher.put(batch)
        else:
            self.dispatcher.messages += len(batch)
        batch.release()

    def _dispatch(self, file: Segment, at: int, batch: RecordBatch) -> int:
        """Dispatch records at a position of a file; returns the position after them.

        Raises:
            CorruptFile: a record states a position that is not its own.
        """
        # dispatch relies on the position that a record states; entries with a wrong one would point elsewhere
        ends = at + np.cumsum(batch.size)
        wrong = np.flatnonzero(batch.physical_offset != file.base + ends - batch.size)
        if len(wrong):
            position = int(ends[wrong[0]] - batch.size[wrong[0]])
            raise CorruptFile(file.path, position, "a record that states another position than its own (see check)")
        self._observed.last_store_timestamp = int(batch.store_timestamp[-1])
        self._put(batch)
        self._reading.done = file.base + int(ends[-1]) - self.inputs.log.segments.files[0].base
        return int(ends[-1])

    def _open_queue(self, topic: str, queue_id: int) -> QueueBuilder | None:
        if topic in self._staged.deleted:
            self._left_out.add(topic)
            return None
        queue = self._staged.open(topic, queue_id)
        if queue is not None:
            queue.files = []  # start empty, ignoring the files on disk
        return queue

    def _queue_dirs(self) -> list[tuple[str, int, str]]:
        return [*self.inputs.layout.queue_dirs(), *self.inputs.rules.batch_dirs()]

    def _files_of_queues(self) -> Iterator[Segment]:
        layout = self.inputs.layout
        return (segment for _topic, _id, path in self._queue_dirs() for segment in layout.files_in(path))

    def _need_messages(self) -> None:
        """Refuse a missing log, which would empty the queues that have entries for it."""
        if self.dispatcher.messages:
            return
        for segment in self._files_of_queues():
            if self._knows_messages(segment):
                paths = ", ".join(self.inputs.layout.commit_log_paths)
                raise Refused(
                    f"there are no messages in {paths}, though queues know of some: is its disk mounted? Is this its "
                    "path (--broker-conf)?"
                )

    def _knows_messages(self, segment: Segment) -> bool:
        """Whether a file of a queue has entries of messages that the log should have; not those of expired ones."""
        log = self.inputs.log
        if not log.segments.files:
            return has_bytes(segment.path, 0, segment.size) > 0
        form = BATCH if os.sep + BATCH_QUEUES + os.sep in segment.path else PLAIN
        with closing(runs_of(segment.path, 0, segment.size // form.size, form)) as runs:
            return any(
                bool(((units["physical_offset"] >= log.min_offset) & (units["size"] > 0)).any())
                for _first, units in runs
            )

    def _add_warnings(self) -> None:
        for topic in sorted(self._left_out) if "consumequeue" in self.parts else ():
            self.warnings.append(
                f"topic {topic} was deleted (check: topic-deleted) and gets no queues; to have it again, make the "
                f"topic ({command_line('topic', 'create')}), stop the broker and rebuild"
            )
        for topic, messages in sorted(self._former.items()):
            self.warnings.append(
                f"topic {topic} was deleted and created again (check: topic-remade): its "
                f"{counted(messages, 'earlier message')} {'gets' if messages == 1 else 'get'} no entries"
            )
        if self._observed.wrong_bodies:
            self.warnings.append(
                f"{counted(self._observed.wrong_bodies, 'message has', 'messages have')} a body that does not match "
                "its checksum (see check)"
            )
        if self._observed.passed_bytes:
            self.warnings.append(
                f"{self._observed.passed_bytes} bytes of the log hold no message and were skipped (see check)"
            )

    def prepare(self, change: Change) -> list[str]:
        """Add the swap to a change; returns descriptions of the steps."""
        layout = self.inputs.layout
        steps: list[str] = []

        def say(text: str, path: str) -> None:
            steps.append(f"{text} {os.path.relpath(path, layout.root)}")

        if "consumequeue" in self.parts:
            self._swap_queues(change, say)
        if "index" in self.parts:
            self.dispatcher.index.removed = self._index_on_disk().files
            prepare_index(self.dispatcher.index, layout, change, say)
        if "checkpoint" in self.parts:
            self._swap_checkpoint(change, say)
        files = [(file.path, file.size) for file in self.inputs.log.segments]
        if self.verdict is not None and self.verdict.stop is not None and self.verdict.stop_file is not None:
            change.expect_log(files, self.verdict.stop_file.path, self.verdict.stop.at)
        else:
            change.expect_log(files, None, 0)
        self.warnings += of_unnamed_topics(self.dispatcher) + self.inputs.rules.warnings()
        return steps

    def _index_on_disk(self) -> IndexBuilder:
        return IndexBuilder(self.inputs.layout.index_paths(), self.inputs.geometry, self._stage)

    def _swap_queues(self, change: Change, say: Say) -> None:
        folders = set()
        if self.inputs.layout.queue_dirs("consumequeue_ext"):
            self.warnings.append("entries hold plain tag hashes again; the extension files are no longer used")
        for _key, queue in sorted(self.dispatcher.queues.items()):
            queue.drop_unwritten()
            for file in queue.files:
                target = queue.target(file)
                folders.add(target)
                assert file.staged is not None
                file.finish()
                change.put(target, file.staged, file.last_store_timestamp * 1_000_000 or None)
                say("put", target)
        if self._old is not None:
            self._old.prepare(change, say)
        for topic, queue_id, path in self._queue_dirs():
            if (topic, queue_id) not in self.dispatcher.queues:
                continue  # it has no messages in the log any more, and its files determine the next queue offset
            for segment in self.inputs.layout.files_in(path):
                if segment.path not in folders:
                    change.remove(segment.path)
                    say("remove", segment.path)
        self._check_tier()

    def _check_tier(self) -> None:
        """Determine what a broker would do to the tier, given the new queues and those that were kept."""
        if self._tier is None:
            return
        ranges = local_ranges(self.inputs.layout)
        for key, queue in self.dispatcher.queues.items():
            queue.correct_min(self.inputs.log.min_offset)
            ranges[key] = queue.min_offset, queue.max_offset
        self.tier_dangers = [danger.words for danger in self._tier.dangers(ranges)]

    def _swap_checkpoint(self, change: Change, say: Say) -> None:
        last = self._observed.last_store_timestamp
        index = self.dispatcher.index if "index" in self.parts else self._index_on_disk()
        full = [file.end_timestamp for file in index.files if file.full]
        new = self.inputs.checkpoint._replace(
            physic_msg_timestamp=last, logics_msg_timestamp=last, index_msg_timestamp=max(full, default=0)
        )
        path = self.inputs.layout.path("checkpoint")
        change.put_content(path, checkpoint.build(new))
        say("put", path)


def is_blank(view: memoryview, end: End, size: int) -> bool:
    """Whether records end at an end-of-file blank with the right length, so that what is after it means nothing."""
    return (
        end.ending is Ending.FILLER and int.from_bytes(view[end.at : end.at + 4], "big", signed=True) == size - end.at
    )


def rebuild(
    layout: StoreLayout, parts: tuple[str, ...], *, dry_run: bool = False, backup: str | None = None
) -> RebuildReport:
    """Rebuild parts of a stopped store under the broker's lock; replaced files are backed up.

    Args:
        parts: from :data:`PARTS`; ``config``, ``timer``, ``compaction``, ``files`` and ``tiered-metadata`` only alone:
            the first three depend on the other parts, the other parts on ``files``, and the last on the tier.

    Raises:
        Refused: the store is in use, was not stopped cleanly, a role forbids it, queues would not fit the tier, or
            the backup cannot be created.
        CorruptFile: the log is not intact.
        BadValue: one of those five together with other parts; or the store has no tier.
    """
    for part in _ALONE.keys() & set(parts):
        if len(parts) > 1:
            raise BadValue(_ALONE[part])
    warnings = heed(layout, *(f"rebuild {part}" for part in parts))
    # no recovery comes first where rmqtool does not write the log: a start of that broker only fits queues to it
    if not {CONFIG, COMPACTION, LENGTHS, TIER} & set(parts) and layout.aborted and not layout.dledger_dirs():
        raise Refused(f"{layout.root}: was not stopped cleanly: run {layout.command('recover')} first")
    if dry_run:
        with planning(layout) as change:
            report = _run(layout, parts, change, warnings, apply=False)
        for pending in pending_runs(Places.of(layout), backup):
            report.actions.insert(0, pending.action())
            report.warnings.extend(pending.warnings(layout.root))
        return report
    with changing(layout, "rebuild", backup) as change:
        # read again under the lock, after the snapshot that the commit compares with
        return _run(StoreLayout(layout.root, layout.conf), parts, change, warnings, apply=True)


def _run(
    layout: StoreLayout, parts: tuple[str, ...], change: Change, role_warnings: list[str], *, apply: bool
) -> RebuildReport:
    left: list[str] = []
    if CONFIG in parts:
        from rmqtool.store.builders.config_doctor import ConfigDoctor
        from rmqtool.store.repair.config_evidence import gather

        doctor = ConfigDoctor(layout, gather(layout))
        doctor.run()
        actions = doctor.prepare(change)
        counts = {"messages": 0, "queues": 0, "queueEntries": 0, "indexEntries": 0}
        configs, warnings = doctor.outcomes, doctor.warnings
    elif LENGTHS in parts:
        mender = LengthMender(layout)
        actions = mender.prepare(change)
        counts = dict.fromkeys(("messages", "queues", "queueEntries", "indexEntries"), 0)
        configs, warnings, left = [], [*mender.warnings, *mender.left], mender.left
    elif TIER in parts:
        from rmqtool.store.repair.tier_metadata import TierMetadataBuilder

        tier = TierMetadataBuilder(layout)
        actions = tier.prepare(change)
        counts = {"messages": tier.messages, "queues": tier.queues, "queueEntries": 0, "indexEntries": 0}
        configs, warnings = [], tier.warnings
    elif COMPACTION in parts:
        compacted = CompactionBuilder(layout)
        actions = compacted.prepare(change)
        counts = {"messages": compacted.messages, "queues": compacted.queues, "queueEntries": compacted.units}
        counts |= {"indexEntries": 0}
        configs, warnings = [], compacted.warnings
    elif TIMER in parts:
        builder = TimerBuilder(layout)
        actions = builder.prepare(change)
        counts = {"messages": builder.messages, "queues": 1, "queueEntries": builder.units, "indexEntries": 0}
        configs, warnings = [], builder.warnings
    else:
        run = Rebuild(StoreInputs.of(layout, fix_delay_times=True), change.staging, parts)
        run.run()
        actions = run.prepare(change)
        if apply:
            refuse_dangers(layout, run.tier_dangers)
        run.warnings += [f"{DO_NOT_START}: {danger}" for danger in run.tier_dangers]
        dispatcher = run.dispatcher
        entries = sum(queue.added for queue in dispatcher.queues.values())
        counts = {"messages": dispatcher.messages, "queues": len(dispatcher.queues)}
        counts |= {"queueEntries": entries, "indexEntries": dispatcher.index.added}
        configs, warnings = [], run.warnings
    if apply and actions:
        change.commit()
    applied = apply and bool(actions)
    return RebuildReport(
        store=layout.root,
        parts=list(parts),
        **counts,
        configs=configs,
        warnings=[*role_warnings, *warnings],
        left=left,
        actions=actions,
        applied=applied,
        backup=change.path if applied else None,
    )
