"""Build consume queues, index or checkpoint anew from the commit log alone, aside, and swap them in; mend config files.

The same builders as recovery has, fed with every message of the log from its first file on. For consume queues, which
number their messages, the log must be whole but for wrong checksums of bodies: where it is damaged, recover cuts it and
salvage goes around. Index and checkpoint number nothing, and pass damage over. Config files are mended in a store in
any state.
"""

import os
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from formats import checkpoint
from formats.endings import Ending
from formats.message.read import End, Record, read
from rmqtool.errors import BadValue, CorruptFile, Refused
from rmqtool.store.changes.change import Transaction
from rmqtool.store.changes.pending import pending_runs
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.writing import changing, planning
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.disk.sparse import has_bytes
from rmqtool.store.dispatch.batch import Batch, BatchBuilder, recovery_batches
from rmqtool.store.index.builder import IndexBuilder
from rmqtool.store.index.reader import geometry_of
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.version import unsupported
from rmqtool.store.log.commit_log import next_record
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.recovery.actions import lost, prepare_index
from rmqtool.store.recovery.plan import Recovery, Stage
from rmqtool.store.repair.config_doctor import ConfigDoctor, ConfigOutcome

CONFIG = "config"
PARTS = ("consumequeue", "index", "checkpoint", CONFIG)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport:
    """What was built."""

    store: str
    parts: list[str]
    messages: int
    queues: int
    queueEntries: int
    indexEntries: int
    configs: list[ConfigOutcome] = field(default_factory=list)  # of the part config alone
    warnings: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    applied: bool = False
    backup: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As machine output has it."""
        return asdict(self)


class Rebuild(Recovery):
    """Recovery's dispatch over the whole log, into queues and an index that begin empty."""

    def __init__(self, layout: StoreLayout, stage: Stage, parts: tuple[str, ...]) -> None:
        super().__init__(layout, stage, fix_delay_times=True)
        self.parts = parts
        self.index = IndexBuilder([], geometry_of(layout), stage)
        self._file: Segment | None = None  # that is read, and how far
        self._position = 0
        self._wrong_bodies = 0
        self._passed_bytes = 0

    def run(self) -> None:
        """Dispatch every message.

        Raises:
            CorruptFile: the log does not read as a whole, or lacks messages of a queue that it should have.
        """
        for path in self.log.segments.foreign:
            raise CorruptFile(path, None, "does not belong into a commit-log directory (see rmqtool check)")
        builder = BatchBuilder(self._levels, light_queues=self._light)
        expected = self.files[0].base if self.files else 0
        for number, file in enumerate(self.files):
            if file.size != self.file_size or file.base != expected:
                raise CorruptFile(file.path, None, "of a wrong length, or not where the file before ends")
            expected = file.end
            self._file, self._position = file, file.base
            end = self._read(file, builder)
            file.release()
            if "consumequeue" not in self.parts:
                continue
            self.stop, self.stop_file, self.end = end, file, file.base + end.at
            if end.ending is Ending.FILLER:
                said, left = int.from_bytes(file.view()[end.at : end.at + 4], "big"), file.size - end.at
                file.release()
                if said != left:
                    raise CorruptFile(file.path, end.at, f"end-of-file blank of {said} bytes, {left} are left")
                continue
            # the next file may have been made ahead, and not used yet
            if end.ending is not Ending.UNWRITTEN or lost(self)[0] or number + 2 < len(self.files):
                reason = f"{end.reason}: recover cuts the log here, salvage goes around"
                raise CorruptFile(file.path, end.at, reason)
            break
        for queue in self.queues.values() if "consumequeue" in self.parts else ():
            if queue.misplaced:
                # dispatch would move entries away from their queue offsets, and what is on disk may be better
                raise CorruptFile(
                    queue.path, None, f"{queue.misplaced} messages do not follow the one before: salvage renumbers them"
                )
        self._need_messages()
        self._say_what_was_met()
        self.index.finish()

    def _read(self, file: Segment, builder: BatchBuilder) -> End:
        """Dispatch the records of one file; where it ends, or where it cannot be gone on with."""
        view, at = file.view(), 0
        while True:
            end = self._drain(recovery_batches(view, at, file.size, builder, crc=True))
            record = read(view, end.at, file.size, crc=False) if end.ending is Ending.DAMAGED else None
            if isinstance(record, Record):
                # readers find it where its entry leads, and dispatch does not look at bodies either
                builder.add(record)
                self._dispatch(builder.take(), recovering=True)
                self.last_store_timestamp = record.store_timestamp
                self._wrong_bodies += 1
                at = end.at + record.total_size
                continue
            used = has_bytes(file.path, end.at, file.size)
            if "consumequeue" in self.parts or used <= end.at or is_blank(view, end, file.size):
                return end
            at = next_record(view, file.base, end.at + 1, file.size)
            if at >= file.size:
                return end
            self._passed_bytes += at - end.at
            self._position = file.base + at

    def _need_messages(self) -> None:
        """A log that is not there must not empty the queues that know what was in it."""
        if self.dispatched:
            return
        queues = (segment for _topic, _id, path in self.layout.queue_dirs() for segment in Segments.of([path]))
        for segment in queues:
            if has_bytes(segment.path, 0, segment.size):
                where = ", ".join(self.layout.commit_log_paths)
                raise Refused(
                    f"there are no messages in {where}, though queues know of some: is its disk mounted, is it the "
                    "true path (--broker-conf)?"
                )

    def _say_what_was_met(self) -> None:
        if self._wrong_bodies:
            self.warnings.append(
                f"{self._wrong_bodies} messages have another body than their checksum says (see check)"
            )
        if self._passed_bytes:
            self.warnings.append(
                f"{self._passed_bytes} bytes of the log hold no message, and were passed over (see check)"
            )

    def _dispatch(self, batch: Batch, *, recovering: bool) -> None:
        # dispatch trusts what a record says of its position; entries made from a wrong one would point elsewhere
        ends = self._position + np.cumsum(batch.size)
        wrong = np.flatnonzero(batch.physical_offset != ends - batch.size)
        if len(wrong) and self._file is not None:
            at = int(ends[wrong[0]] - batch.size[wrong[0]]) - self._file.base
            raise CorruptFile(self._file.path, at, "a record that says another position than its own (see check)")
        self._position = int(ends[-1])
        if "index" not in self.parts and "consumequeue" not in self.parts:
            self.dispatched += len(batch)
            return
        super()._dispatch(batch, recovering=recovering)

    def _queue(self, topic: str, queue_id: int, messages: int) -> QueueBuilder | None:
        known = (topic, queue_id) in self.queues
        queue = super()._queue(topic, queue_id, messages)
        if queue is not None and not known:
            queue.files = []  # what is on disk is not looked at
        return queue

    def prepare(self, transaction: Transaction) -> list[str]:
        """Hand the swap to a transaction; returns it in words."""
        words: list[str] = []

        def say(text: str, path: str) -> None:
            words.append(f"{text} {os.path.relpath(path, self.layout.root)}")

        if "consumequeue" in self.parts:
            self._swap_queues(transaction, say)
        if "index" in self.parts:
            self.index.removed = IndexBuilder(self.layout.index_paths(), geometry_of(self.layout), self._stage).files
            prepare_index(self, transaction, say)
        if "checkpoint" in self.parts:
            self._swap_checkpoint(transaction, say)
        return words

    def _swap_queues(self, transaction: Transaction, say: Any) -> None:
        made = set()
        if self.layout.queue_dirs("consumequeue_ext"):
            self.warnings.append("entries hold plain tag hashes again; the extension files are not used any more")
        for _key, queue in sorted(self.queues.items()):
            queue.drop_unwritten()
            for part in queue.files:
                target = queue.target(part)
                made.add(target)
                assert part.staged is not None
                part.finish()
                transaction.put(target, part.staged, part.last_store_timestamp * 1_000_000 or None)
                say("put", target)
        for _topic, _queue_id, path in self.layout.queue_dirs():
            for segment in Segments.of([path]):
                if segment.path not in made:
                    transaction.remove(segment.path)
                    say("remove", segment.path)

    def _swap_checkpoint(self, transaction: Transaction, say: Any) -> None:
        last = self.last_store_timestamp
        if "index" in self.parts:
            full = [f.end_timestamp for f in self.index.files if f.full]
        else:
            old = IndexBuilder(self.layout.index_paths(), geometry_of(self.layout), self._stage)
            full = [f.end_timestamp for f in old.files if f.full]
        new = self.checkpoint._replace(
            physic_msg_timestamp=last, logics_msg_timestamp=last, index_msg_timestamp=max(full, default=0)
        )
        staged = transaction.staging()
        with open(staged, "wb") as file:
            file.write(checkpoint.build(new))
        transaction.put(self.layout.path("checkpoint"), staged)
        say("put", self.layout.path("checkpoint"))


def is_blank(view: memoryview, end: End, size: int) -> bool:
    """Whether records end at an end-of-file blank that says its true length: what is behind it means nothing."""
    return (
        end.ending is Ending.FILLER and int.from_bytes(view[end.at : end.at + 4], "big", signed=True) == size - end.at
    )


def rebuild(
    layout: StoreLayout, parts: tuple[str, ...], *, dry_run: bool = False, backup: str | None = None
) -> RebuildReport:
    """Rebuild parts of a stopped store under the broker's lock; what they replace is kept.

    Args:
        parts: of :data:`PARTS`; ``config`` alone, since it goes by the queues that the others would build.

    Raises:
        Refused: the store is in use, was not stopped cleanly, or there is no place for the backup.
        CorruptFile: the log does not read as a whole.
        BadValue: config together with other parts.
    """
    if CONFIG in parts and len(parts) > 1:
        raise BadValue("config is mended by itself: rebuild the other parts first")
    if CONFIG not in parts and (reason := unsupported(layout)) is not None:
        raise Refused(f"{layout.root}: {reason}")
    if CONFIG not in parts and layout.aborted:
        raise Refused(f"{layout.root}: was not stopped cleanly: run rmqtool recover first")
    if dry_run:
        with planning(layout.root) as transaction:
            report = _run(layout, parts, transaction, apply=False)
        for pending in pending_runs(Places.of(layout), backup):
            report.actions.insert(0, pending.action())
            report.warnings.extend(pending.warnings(layout.root))
        return report
    with changing(layout, "rebuild", backup) as transaction:
        return _run(StoreLayout(layout.root, layout.conf), parts, transaction, apply=True)


def _run(layout: StoreLayout, parts: tuple[str, ...], transaction: Transaction, *, apply: bool) -> RebuildReport:
    if CONFIG in parts:
        doctor = ConfigDoctor(layout)
        doctor.run()
        actions = doctor.prepare(transaction)
        counts = {"messages": 0, "queues": 0, "queueEntries": 0, "indexEntries": 0}
        configs, warnings = doctor.outcomes, doctor.warnings
    else:
        run = Rebuild(layout, transaction.staging, parts)
        run.run()
        actions = run.prepare(transaction)
        files = [(file.path, file.size) for file in run.log.segments]
        if run.stop is not None and run.stop_file is not None:
            transaction.expect_log(files, run.stop_file.path, run.stop.at)
        else:
            transaction.expect_log(files, None, 0)
        run._warn()
        entries = sum(queue.added for queue in run.queues.values())
        counts = {"messages": run.dispatched, "queues": len(run.queues)}
        counts |= {"queueEntries": entries, "indexEntries": run.index.added}
        configs, warnings = [], run.warnings
    if apply and actions:
        transaction.commit()
    applied = apply and bool(actions)
    return RebuildReport(
        store=layout.root,
        parts=list(parts),
        **counts,
        configs=configs,
        warnings=warnings,
        actions=actions,
        applied=applied,
        backup=transaction.path if applied else None,
    )
