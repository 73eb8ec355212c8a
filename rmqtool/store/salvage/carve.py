"""Copy every intact record of a damaged store into a new one that a broker can start on.

The source is only read. Records keep topic, queue, times, hosts, flags, properties and body. After damage their
physical offset changes, and after a lost message of the same queue their queue offset too, since a queue cannot have
gaps. Unreadable parts are copied to ``lost+found`` next to the new store's log, with a manifest.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count

from formats.errors import BadLength
from formats.message.properties import MULTI_QUEUE_OFFSET
from formats.message.read import Record
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE
from formats.topics import HALVES
from formats.variants.timer import QUEUE_ID, TOPIC
from rmqtool.errors import Refused, RmqError, UnreadableStore
from rmqtool.progress import stage
from rmqtool.store.disk.durable import NO_ROOM
from rmqtool.store.disk.files import make_file, remove_folder, remove_tree
from rmqtool.store.disk.ownership import make_folders
from rmqtool.store.disk.readable import Readable
from rmqtool.store.disk.work_folder import WorkFolder, prepare_target, refuse_existing
from rmqtool.store.dispatch.light import dispatches_to_light_queues
from rmqtool.store.index.reader import pass_over_unreadable
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.parts import Fate, PartFate, fates_of
from rmqtool.store.layout.paths import StoreLayout, checked_path
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.log.dledger import describe_uncommitted, why_unreadable
from rmqtool.store.log.writer import LogWriter
from rmqtool.store.queues.compaction import FOLDER
from rmqtool.store.queues.reader import open_queue
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.recovery.command import recover
from rmqtool.store.releases.first_file import has_bad_batch_numbers
from rmqtool.store.releases.rules import ReleaseRulesV5, rules_for
from rmqtool.store.roles.elsewhere import log_missing
from rmqtool.store.roles.table import NAMES, Role, heed
from rmqtool.store.salvage.accounts import copy_accounts
from rmqtool.store.salvage.compacted import carry_over
from rmqtool.store.salvage.config_copies import ConfigCopies
from rmqtool.store.salvage.copies import CopyTaken, MergedLog, Taken
from rmqtool.store.salvage.delays import seen_levels
from rmqtool.store.salvage.empty_queues import EmptyQueue, keep_ends
from rmqtool.store.salvage.lost_found import NAME as LOST
from rmqtool.store.salvage.lost_found import LostFound
from rmqtool.store.salvage.message_store import open_halves
from rmqtool.store.salvage.numbering import LightNumbers, Numbering
from rmqtool.store.salvage.popped import keep_popped
from rmqtool.store.salvage.records import WRONG_PORT, mend_ports, pack_moved, span_of, torn_properties
from rmqtool.store.salvage.report import Renumbered, SalvageReport
from rmqtool.store.salvage.selection import TopicSelection
from rmqtool.store.salvage.survey import Survey, describe_misnamed, true_files, true_length
from rmqtool.store.salvage.tiers import TierCopy, Tiers
from rmqtool.store.tier.only_tiered import find_only_tiered

_PART = ".salvaging"  # suffix of the new store's name until it is complete
_PARTS = (
    "commitlog", "consumequeue", "batchconsumequeue", "index", "config", "checkpoint", "timerwheel", "timerlog",
    "compaction", "kvStore", "abort", "lock", LOST,
)  # fmt: skip
_LIGHT_MARK = MULTI_QUEUE_OFFSET.encode()
_EVERYWHERE = 1 << 62
HALF_TOPICS = {topic.encode() for topic in HALVES}


_OF_THE_SOURCE = {
    "storeType", "storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths", "messageStorePlugIn",
    "tieredStoreFilePath", "enableControllerMode", "enableDLegerCommitLog", "brokerRole", "brokerId",
    "storePathDLedgerCommitLog", "indexRocksDBEnable", "indexFileReadEnable", "indexFileWriteEnable",
    "timerRocksDBEnable", "transRocksDBEnable",
}  # fmt: skip

Accept = Callable[[SalvageReport, StoreLayout], None]


def _queue_of(record: Record) -> tuple[str, int]:
    return record.topic.decode("utf-8", "surrogateescape"), record.queue_id


class Salvage:
    """One salvage: read, renumber, write, rebuild.

    Args:
        command: the purpose, for the table of roles.
        others: further copies of the same store, which have what is damaged or missing in it.
        selection: the topics to copy; all by default.

    Raises:
        Refused: a role of the store forbids it.
    """

    def __init__(
        self,
        layout: StoreLayout,
        target: str,
        command: str = "salvage",
        others: Sequence[StoreLayout] = (),
        selection: TopicSelection | None = None,
    ) -> None:
        self._selection = selection
        self.layout, self.store = layout.passing_over(), checked_path(target)
        self._others = [other.passing_over() for other in others]
        for each in (self.layout, *self._others):
            pass_over_unreadable(each)
        self._initial_warnings = [*heed(self.layout, command), *describe_uncommitted(self.layout)]
        if others:  # what one replica lacks, another one has
            warnings = [text for copy in (self.layout, *self._others) for text in heed(copy, command)]
            behind = tuple(NAMES[role] for role in (Role.DLEDGER, Role.CONTROLLER, Role.SLAVE))
            self._initial_warnings = [text for text in dict.fromkeys(warnings) if not text.startswith(behind)]
        self.target = self.store + _PART
        self.log = CommitLog(self.layout)
        self._rules = rules_for(self.layout).rules
        disk = Readable()
        self.log.segments = disk.take(self.log.segments)
        self.log.segments, moved, skipped = true_files(self.log)
        shortened = true_length(self.log)
        self._survey = Survey()
        self._merged: MergedLog | None = None
        self._first = max(self.log.min_offset, 0)
        self.writer = self._make_writer()
        self.queues: dict[tuple[bytes, int], Numbering] = {}
        self.light = LightNumbers(whole=not self._first)
        self.halves: dict[int, int] = {}  # new physical offset of half messages by their old one; commits refer to it
        self.lost = LostFound(layout.root, os.path.join(self.target, LOST), name=disk.name)
        self.warnings = disk.describe() + describe_misnamed(moved, skipped, disk.name) + shortened
        self._light = False
        self._dispatches = dispatches_to_light_queues(self.layout.conf, lambda: True)
        self._delays: str | None = None
        self.left_out: list[str] = []
        self._log_missing: str | None = None
        self.contradictions = self.contradicting_bytes = 0  # records of copies that contradict each other
        self.in_tier = self._damages = 0  # messages taken from a tier, damaged places of the log
        self._tiers = Tiers(())
        self._own_halves: dict[int, dict[int, int]] = {}  # the same of copies with a history of their own
        self.messages = self.duplicates = self.renumbered = self.restarted = self.torn = self.mended_ports = 0

    def run(self, accept: Accept | None = None) -> SalvageReport:
        """Carry out the salvage.

        Args:
            accept: called with the report and the new store; if it raises, the new store is discarded.

        Raises:
            Refused: the target exists, is inside the source, or cannot be written to.
            UnreadableStore: the source has neither a commit log nor tables.
        """
        self._check_target()
        if (reason := why_unreadable(self.layout)) is not None:
            raise UnreadableStore(reason)
        if not self.log.segments.files and not Tiers((self.layout, *self._others)).copies:
            if not self.layout.entries("config"):
                raise UnreadableStore(f"{self.layout.root}: no commit log in it")
            self._log_missing = next(log_missing(self.layout, "not taken"), None)
            self.warnings.append(
                self._log_missing or f"{self.layout.root}: no commit log in it: its tables are taken, and no message"
            )
        if self._others:
            self._merged = MergedLog(self.log, self._others)
            self.warnings += self._merged.warnings
            self._first = self._merged.first
            self.writer = self._make_writer()
        try:
            prepare_target(self.store)
            with WorkFolder(self.target, holds=_PARTS) as work:
                report = self._run()
                if accept is not None:
                    accept(report, StoreLayout(self.target, self._conf()))
                work.become(self.store)
        except BaseException as err:
            cause = err.__cause__ if isinstance(err, RmqError) else err
            if isinstance(cause, OSError) and cause.errno in NO_ROOM:
                raise Refused(f"{self.store}: cannot be written: {os.strerror(cause.errno or 0)}") from err
            raise
        return report

    def _run(self) -> SalvageReport:
        make_folders(os.path.join(self.target, "commitlog"))
        # until everything is done the store counts as not cleanly stopped, so that a broker rebuilds instead of
        # trusting it
        make_file(os.path.join(self.target, "abort")).close()
        make_file(os.path.join(self.target, "lock")).close()  # without it recover would plan first, and then do it
        self._survey = Survey.of(self.layout, self.log.segments)
        self._delays = seen_levels(self.layout, self.log)
        self._tiers = Tiers((self.layout, *self._others))
        if self._selection is None:
            self._copy_all_tiered(self._tiers.by_time(self._alone_in_tiers()))
        with stage("copying messages", sum(file.size for file in self.log.segments)) as copying:
            for entry in self._items():
                if isinstance(entry, Damage):
                    self._damages += 1
                    self.lost.damage(entry)
                elif isinstance(entry, Taken):
                    self._copy_merged(entry)
                elif self._selection is None or self._selection.takes(entry.record):
                    self._copy(entry)
                copying.done = self.writer.position - self._first
        self._fill_ends()
        self.writer.close()
        configs = ConfigCopies(
            self.layout,
            self._others,
            self.target,
            self._numbers(),
            self._moved_queues(),
            self.left_out,
            self.warnings,
            self._selection,
        ).copy(in_tier=bool(self.in_tier))
        self.lost.close()
        recover(StoreLayout(self.target, self._conf()), fix_delay_times=True, backup=self._scratch())
        empty = self._keep_ends()
        self._make_timer()
        if self._selection is None:
            self.warnings += carry_over(
                self.layout, StoreLayout(self.target, self._conf()), self._moved_queues(), self._scratch(),
                self.left_out,
            )  # fmt: skip
            self.warnings += keep_popped(self.layout, self.target, self._moved_queues(), self.left_out)
            self.warnings += open_halves(self.layout, self.left_out)
        configs += copy_accounts(self.layout, self.target, self.left_out, self.warnings)
        self._warn_of_skipped()
        remove_tree(self._scratch())
        with suppress(OSError):  # it stays if anything was lost
            remove_folder(os.path.join(self.target, LOST))
        return SalvageReport(
            source=self.layout.root,
            store=self.store,
            messages=self.messages,
            bytes=self.writer.position - self._first,
            lostRanges=self.lost.ranges,
            lostRangeCount=self.lost.count,
            lostBytes=self.lost.bytes,
            renumbered=[
                Renumbered(topic=topic.decode("utf-8", "replace"), queueId=queue_id, lost=queue.lost)
                for (topic, queue_id), queue in sorted(self._numbers().items())
                if queue.lost
            ],
            restarted=self.restarted,
            duplicates=self.duplicates,
            wrongOffsets=self.renumbered,
            configs=configs,
            leftOut=[*dict.fromkeys(self.left_out)],
            warnings=[*self._initial_warnings, *self.warnings],
            tornProperties=self.torn,
            mendedPorts=self.mended_ports,
            takenFromTier=self.in_tier,
            notTaken=[] if self._tiers.copies else find_only_tiered(self.layout, self._first_of),
            emptyQueues=empty,
            parts=self._parts(),
            contradictions=self.contradictions,
            contradictingBytes=self.contradicting_bytes,
            logMissing=self._log_missing,
            copies=self._copies_taken(),
        )

    def _copies_taken(self) -> list[CopyTaken]:
        """What was taken from each copy, tiers included; empty for a store that is one copy by itself."""
        tiers = self._tiers.report()
        if self._merged is not None:
            return [*self._merged.report(), *tiers]
        taken = self.messages - sum(tier.taken for tier in tiers)
        contradicting = sum(tier.contradicting for tier in tiers)
        own = CopyTaken(
            store=self.layout.root, taken=taken, known=0, damaged=self._damages, contradicting=contradicting
        )
        return [own, *tiers] if tiers else []

    def _parts(self) -> list[PartFate]:
        """Every part of the source. Those that could not be read are left out, and said to be elsewhere."""
        names = [entry.name for entry in self.layout.entries()]
        names += [f"config/{entry.name}" for entry in self.layout.entries("config")]
        return [
            part._replace(fate=Fate.LEFT_OUT, words="it could not be read") if part.part in self.left_out else part
            for part in fates_of(names)
        ]

    def _keep_ends(self) -> list[EmptyQueue]:
        """Create the queues without messages in the new log."""
        numbered = {(topic.decode("utf-8", "surrogateescape"), queue_id) for topic, queue_id in self._numbers()}
        names = count()
        make_folders(self._scratch())

        def stage() -> str:
            return os.path.join(self._scratch(), f"queue-{next(names)}")

        takes = self._selection.takes_topic if self._selection is not None else lambda _topic: True
        return keep_ends(self.layout, StoreLayout(self.target, self._conf()), numbered, stage, takes)

    def _first_of(self, key: tuple[str, int]) -> int | None:
        """The lowest queue offset of a queue in the log; None if it has none."""
        known = (key[0].encode("utf-8", "surrogateescape"), key[1]) in self.queues
        return self._survey.begin(*key) if known else None

    def _moved_queues(self) -> dict[tuple[str, int], int]:
        """The first old queue offset that has changed, by queue."""
        first_moved = {}
        for (topic, queue_id), queue in self._numbers().items():
            moved = [old for old, down in queue.moves if down]
            if moved or queue.lost:
                first_moved[topic.decode("utf-8", "surrogateescape"), queue_id] = min(moved, default=queue.next_old)
        return first_moved

    def _make_timer(self) -> None:
        """Build wheel and timer log from the messages of their topic, whose offsets may have changed.

        A broker that finds the timer's checkpoint but no wheel would never deliver the waiting messages.
        """
        new = StoreLayout(self.target, self._conf())
        if open_queue(new, TOPIC, QUEUE_ID) is not None:
            from rmqtool.store.repair.rebuild import TIMER, rebuild

            report = rebuild(new, (TIMER,), backup=self._scratch())
            self.warnings += report.warnings

    @contextmanager
    def _refuse_short_file(self) -> Iterator[None]:
        """Convert the error for a wrong file size, which results from a single, truncated file."""
        try:
            yield
        except BadLength as err:
            raise Refused(f"{self.layout.root}: {err.reason}: give --broker-conf, which has the true length") from err

    def _scratch(self) -> str:
        return os.path.join(self.target, LOST, "scratch")

    def _check_target(self) -> None:
        for layout in (self.layout, *self._others):
            source = os.path.realpath(layout.root)
            if os.path.realpath(self.store).startswith(source + os.sep) or os.path.realpath(self.store) == source:
                raise Refused(f"{self.store}: lies in {source}: give a place outside of it")
        refuse_existing(self.store)

    def _conf(self) -> BrokerConf:
        """The settings for building the new store: with files in a single directory, whatever form the old one has.

        Only brokers that dispatch to light queues write their offsets into messages. Nothing else in the new store
        shows that yet, and the old one may have lost its queues.
        """
        values = {name: value for name, value in self.layout.conf.values.items() if name not in _OF_THE_SOURCE}
        if self._delays is not None:
            values["messageDelayLevel"] = self._delays
        if timer_files := TimerFiles(self.layout).log.files:
            values.setdefault("mappedFileSizeTimerLog", str(timer_files[0].size))
        conf = BrokerConf(values, self.layout.conf.path)
        if not self._light or conf.text("enableMultiDispatch") or conf.text("enableLmq"):
            return conf
        return BrokerConf({**conf.values, "enableMultiDispatch": "true"}, conf.path)

    def _items(self) -> Iterator[LocatedRecord | Taken | Damage]:
        """What is in the log, or in the logs of all copies."""
        return self._merged.walk(self._expects) if self._merged is not None else self.log.walk()

    def _make_writer(self) -> LogWriter:
        with self._refuse_short_file():
            return LogWriter([os.path.join(self.target, "commitlog")], self.log.file_size, self._first)

    def _expects(self, record: Record) -> bool:
        """Whether a record is the next one of its queue."""
        queue = self.queues.get((record.topic, record.queue_id))
        return queue is not None and queue.next_old == record.queue_offset

    def _copy_merged(self, taken: Taken) -> None:
        """Copy a record of one of several copies, and keep those that contradict it."""
        if taken.others:
            for number, located in (taken.copy, taken.located), *taken.others:
                self._keep_contradicting(located, self._source_of(number))
        self._copy(taken.located, taken.copy, own=taken.own)

    def _keep_contradicting(self, located: LocatedRecord, source: str) -> None:
        """Keep one of several records that contradict each other."""
        reason = f"copies contradict each other: this is the record of {source}"
        size = located.record.total_size
        self.lost.keep(located.file.path, located.at, located.physical_offset, size, reason)
        self.contradictions += 1
        self.contradicting_bytes += size

    def _source_of(self, copy: int) -> str:
        return (self.layout, *self._others)[copy].root

    def _copy(self, located: LocatedRecord, copy: int = 0, *, own: bool = False) -> None:
        """Copy a record.

        Args:
            copy: the number of the copy that it comes from.
            own: it is of a history of its own, and follows what its queue has.
        """
        located = located if own else self._better(self._settle(located))
        record = located.record
        self._light = self._light or _LIGHT_MARK in record.properties
        stumbles = self._rules.stumbles if self._rules.stumbles_over(record) else None
        if stumbles is None and has_bad_batch_numbers(record):  # the new store may be used by another release
            stumbles = ReleaseRulesV5.stumbles
        if stumbles is not None:
            self.lost.keep(located.file.path, located.at, located.physical_offset, record.total_size, stumbles)
            return
        if (torn := torn_properties(record)) is not None:  # brokers accept it, and so must later readers
            self.torn += 1
            self.lost.keep(located.file.path, located.at, located.physical_offset, record.total_size, torn)
        if (mended := mend_ports(record)) is not record:
            self.mended_ports += 1
            self.lost.keep(located.file.path, located.at, located.physical_offset, record.total_size, WRONG_PORT)
            record = mended
        transaction = record.sys_flag & TRANSACTION_MASK
        queue_offset = record.queue_offset
        if transaction in (TRANSACTION_NONE, TRANSACTION_COMMIT):
            number = self._number_after(located) if own else self._number(located, copy)
            if number is None:
                self.duplicates += 1
                self.lost.keep(
                    located.file.path, located.at, located.physical_offset, record.total_size, "repeated record"
                )
                return
            queue_offset = number
            if self._dispatches and self._rules.release.fills_light_queues(record.topic.decode("utf-8", "replace")):
                record = self.light.renumber(record)
        with self._refuse_short_file():
            physical = self.writer.reserve(record.total_size)
        halves = self._own_halves.setdefault(copy, {}) if own else self.halves
        if record.topic in HALF_TOPICS and (own or physical != located.physical_offset):
            halves[located.physical_offset] = physical
        prepared = record.prepared_transaction_offset
        moved = record._replace(
            queue_offset=queue_offset,
            physical_offset=physical,
            prepared_transaction_offset=halves.get(prepared, self.halves.get(prepared, prepared)) if prepared else 0,
        )
        self.writer.append(pack_moved(located.record, moved))
        self.messages += 1

    # -- tiers --------------------------------------------------------------------------------------------------------

    def _alone_in_tiers(self) -> dict[tuple[str, int], range]:
        """Queue offsets in the tiers that precede the first message of their queue in the log; numbers those queues."""
        alone = self._tiers.alone(self._survey.first)
        for (topic, queue_id), offsets in alone.items():
            self.queues[topic.encode("utf-8", "surrogateescape"), queue_id] = Numbering(
                offsets.start if self._first else 0
            )
        return alone

    def _copy_all_tiered(self, items: Iterable[tuple[LocatedRecord, TierCopy] | Damage]) -> None:
        for item in items:
            if isinstance(item, Damage):
                self.lost.damage(item)
            else:
                self._copy_tiered(item[0])

    def _copy_tiered(self, located: LocatedRecord) -> None:
        """Copy a message of a tier; it is in a plain queue, and not a half message."""
        record, span = mend_ports(located.record), span_of(located.record)
        queue = self.queues[record.topic, record.queue_id]
        if record.queue_offset < queue.next_old:
            return  # follows damage
        number = queue.next_new
        queue.follow(record.queue_offset, span)
        queue.next_new, queue.stored = number + span, record.store_timestamp
        with self._refuse_short_file():
            physical = self.writer.reserve(record.total_size)
        moved = record._replace(queue_offset=number, physical_offset=physical)
        self.writer.append(pack_moved(record, moved))
        self.messages += 1
        self.in_tier += 1

    def _settle(self, located: LocatedRecord) -> LocatedRecord:
        """A record of the log, with the queue offset under which a tier has its message."""
        record = located.record
        queue = self.queues.get((record.topic, record.queue_id))
        wrong = located.physical_offset in self._survey.wrong
        if not self._tiers.copies or queue is None or not (wrong or record.queue_offset > queue.next_old):
            return located
        true = self._tiers.offset_of(_queue_of(record), record, range(queue.next_old, _EVERYWHERE))
        if true is None or true == record.queue_offset:
            return located
        self.renumbered += 1
        self._survey.wrong.discard(located.physical_offset)
        return located._replace(record=record._replace(queue_offset=true))

    def _fill_gap(self, queue: Numbering, record: Record) -> None:
        """Copy what only tiers have of a queue before a record of the log."""
        if record.queue_offset > queue.next_old and not queue.floating:
            self._copy_all_tiered(self._tiers.between(_queue_of(record), range(queue.next_old, record.queue_offset)))

    def _better(self, located: LocatedRecord) -> LocatedRecord:
        """A record of the log, or the same message from a tier if its properties are torn; keeps contradicting ones."""
        record = located.record
        if not self._tiers.copies:
            return located
        better, others = self._tiers.compare(_queue_of(record), record)
        if others:
            names = (self.layout.root, *(copy.folder for copy, _item in others))
            for name, item in zip(names, (located, *(item for _copy, item in others)), strict=True):
                self._keep_contradicting(item, name)
        if better is None:
            return located
        return located._replace(record=better.record._replace(physical_offset=record.physical_offset))

    def _fill_ends(self) -> None:
        """Copy what tiers have of each queue after its last message in the log."""
        for copy in self._tiers.copies:
            for (topic, queue_id), tiered in copy.tier.queues.items():
                key = topic.encode("utf-8", "surrogateescape"), queue_id
                if key in self.queues and not self.queues[key].floating:
                    begin = self.queues[key].next_old
                    self._copy_all_tiered(self._tiers.between((topic, queue_id), range(begin, tiered.max_offset)))

    def _number_after(self, located: LocatedRecord) -> int:
        """The queue offset of a record that follows what its queue has so far."""
        record, span = located.record, span_of(located.record)
        queue = self.queues.get((record.topic, record.queue_id))
        if queue is None:
            begin = record.queue_offset if self._first else 0
            queue = self.queues[record.topic, record.queue_id] = Numbering(begin)
        number = queue.next_new
        queue.floating += span
        queue.next_new, queue.stored = number + span, record.store_timestamp
        return number

    def _number(self, located: LocatedRecord, copy: int) -> int | None:
        """The queue offset of a record in the new store; None for a duplicate.

        Args:
            copy: the number of the copy that it comes from.
        """
        record, span = located.record, span_of(located.record)
        key = (record.topic, record.queue_id)
        queue = self.queues.get(key)
        if queue is None:
            # If the head of the log has expired, queues begin above 0. In a log that begins at 0 they must not: the
            # broker would take the filler entries in front of such a queue for messages at offset 0.
            first = record.queue_offset if copy else self._survey.begin(record.topic.decode("utf-8", "replace"), key[1])
            queue = self.queues[key] = Numbering(first if self._first else 0)
        wrong = not copy and located.physical_offset in self._survey.wrong
        if not wrong:
            self._fill_gap(queue, record)
        number = queue.next_new
        if wrong:
            self.renumbered += 1
            queue.floating += span
        elif record.queue_offset < queue.next_old:
            if record.store_timestamp < queue.stored:
                return None  # truncated once but not overwritten; a message that was kept has its offset
            # a broker whose queue was lost begins it at 0 again, and assigns offsets twice
            self.restarted += 1
            queue.floating += span
        else:
            queue.follow(record.queue_offset, span)
        queue.next_new = number + span
        queue.stored = record.store_timestamp
        return number

    def _warn_of_skipped(self) -> None:
        """Warn of files that could not be read. Queues, index and checkpoint are rebuilt in any case."""
        for path, reason in sorted((self.layout.passed or {}).items()):
            name = os.path.relpath(path, self.layout.root)
            self.warnings.append(f"{reason}: passed over")
            if name.partition(os.sep)[0] in ("config", FOLDER):
                self.left_out.append(name)

    def _numbers(self) -> dict[tuple[bytes, int], Numbering]:
        """The numbering of all queues, including light ones."""
        return {**self.light.queues, **self.queues}
