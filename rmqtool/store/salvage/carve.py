"""Carve every intact record out of a damaged store into a fresh one that a broker boots.

The source is only read. Records keep topic, queue, times, hosts, flags, properties and body. Behind damage their
physical offset is new, and behind a lost message of the same queue their queue offset too, because a queue has no room
for holes. What could not be read is copied to ``lost+found`` beside the new store's log, with a manifest.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count

from formats.config.files import ConsumerOffsets, LmqConsumerOffsets, kind_of
from formats.config.rocksdb import TABLES
from formats.errors import BadLength, FormatError
from formats.message.properties import MULTI_QUEUE_OFFSET
from formats.primitives import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE
from formats.topics import HALVES
from formats.variants.timer import QUEUE_ID, TOPIC
from formats.versions import V4_9, V5_3
from rmqtool.errors import CorruptFile, MissingRuntime, Refused, RmqError, UnreadableStore
from rmqtool.progress import stage
from rmqtool.store.config.files import config_database, read_config
from rmqtool.store.disk.durable import NO_ROOM
from rmqtool.store.disk.files import make_file, remove_folder, remove_tree
from rmqtool.store.disk.ownership import make_folders
from rmqtool.store.disk.readable import Readable
from rmqtool.store.disk.remote import exists
from rmqtool.store.disk.segments import read_small
from rmqtool.store.disk.work_folder import WorkFolder, refuse_existing
from rmqtool.store.dispatch.light import dispatches_to_light_queues
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.parts import Fate, PartFate, fates_of
from rmqtool.store.layout.paths import StoreLayout, checked_path
from rmqtool.store.layout.tier_signs import METADATA
from rmqtool.store.layout.version import queue_database_place
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.log.dledger import uncommitted_words, why_not_read
from rmqtool.store.log.writer import LogWriter
from rmqtool.store.queues.compaction import FOLDER
from rmqtool.store.queues.reader import open_queue
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.recovery.command import recover
from rmqtool.store.releases.first_file import has_bad_batch_numbers
from rmqtool.store.releases.rules import ReleaseRulesV5, rules_for
from rmqtool.store.repair.rebuild import TIMER, rebuild
from rmqtool.store.roles.table import heed
from rmqtool.store.salvage.accounts import copy_accounts
from rmqtool.store.salvage.compacted import carry_over
from rmqtool.store.salvage.delays import seen_levels
from rmqtool.store.salvage.empty_queues import EmptyQueue, keep_ends
from rmqtool.store.salvage.lost_found import NAME as LOST
from rmqtool.store.salvage.lost_found import LostFound
from rmqtool.store.salvage.message_store import open_halves, timer_checkpoint
from rmqtool.store.salvage.numbering import LightNumbers, Numbering, move_offsets
from rmqtool.store.salvage.popped import keep_popped
from rmqtool.store.salvage.records import pack_moved, span_of, torn_properties
from rmqtool.store.salvage.report import Renumbered, SalvageReport
from rmqtool.store.salvage.survey import Survey, moved_words, true_files, true_length
from rmqtool.store.tier.left_behind import left_behind
from rmqtool.store.tier.only_tiered import OnlyTiered

_PART = ".salvaging"  # until the store is whole
_PARTS = (
    "commitlog", "consumequeue", "batchconsumequeue", "index", "config", "checkpoint", "timerwheel", "timerlog",
    "compaction", "kvStore", "abort", "lock", LOST,
)  # fmt: skip
_LIGHT_MARK = MULTI_QUEUE_OFFSET.encode()
_LIGHT_OFFSETS = "lmqConsumerOffset.json"
HALF_TOPICS = {topic.encode() for topic in HALVES}


_OF_THE_SOURCE = {
    "storeType", "storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths", "messageStorePlugIn",
    "tieredStoreFilePath", "enableControllerMode", "enableDLegerCommitLog", "brokerRole", "brokerId",
    "storePathDLedgerCommitLog", "indexRocksDBEnable", "indexFileReadEnable", "indexFileWriteEnable",
    "timerRocksDBEnable",
}  # fmt: skip

Accept = Callable[[SalvageReport, StoreLayout], None]


class Salvage:
    """One run: read, renumber, write, rebuild.

    Args:
        command: for what, by the table of roles.

    Raises:
        Refused: the store has a role that forbids it.
    """

    def __init__(self, layout: StoreLayout, target: str, command: str = "salvage") -> None:
        self.layout, self.store = layout.passing_over(), checked_path(target)
        self._said = [*heed(layout, command), *uncommitted_words(layout)]
        self.target = self.store + _PART
        self.log = CommitLog(self.layout)
        self._rules = rules_for(self.layout).rules
        disk = Readable()
        self.log.segments = disk.take(self.log.segments)
        self.log.segments, moved, skipped = true_files(self.log)
        shortened = true_length(self.log)
        self._survey = Survey()
        self._first = max(self.log.min_offset, 0)
        with self._room():
            self.writer = LogWriter([os.path.join(self.target, "commitlog")], self.log.file_size, self._first)
        self.queues: dict[tuple[bytes, int], Numbering] = {}
        self.light = LightNumbers(whole=not self._first)
        self.halves: dict[int, int] = {}  # old to new physical offset of half messages, which commits point at
        self.lost = LostFound(layout.root, os.path.join(self.target, LOST), name=disk.name)
        self.warnings = disk.words() + moved_words(moved, skipped, disk.name) + shortened
        self._light = False
        self._dispatches = dispatches_to_light_queues(self.layout.conf, lambda: True)
        self._delays: str | None = None
        self.left_out: list[str] = []
        self.in_tier = 0  # messages that the tier alone has
        self.messages = self.duplicates = self.renumbered = self.restarted = self.torn = 0

    def run(self, accept: Accept | None = None) -> SalvageReport:
        """Do it all.

        Args:
            accept: gets the report and the new store, and raises where it is not to be; nothing is left of it then.

        Raises:
            Refused: the target exists, lies in the source, or cannot be written.
            UnreadableStore: the source has no commit log.
        """
        self._check_target()
        if (reason := why_not_read(self.layout)) is not None:
            raise UnreadableStore(reason)
        if not self.log.segments.files:
            raise UnreadableStore(f"{self.layout.root}: no commit log in it")
        try:
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
        # until all is done the store counts as not cleanly stopped: a broker would rebuild it, not trust half of it
        make_file(os.path.join(self.target, "abort")).close()
        self._survey = Survey.of(self.layout, self.log.segments)
        self._delays = seen_levels(self.layout, self.log)
        for item in self._only_tiered().by_time():
            if isinstance(item, LocatedRecord):
                self._take_tiered(item)
            else:
                self.lost.damage(item)
        with stage("copying messages", sum(file.size for file in self.log.segments)) as copying:
            for item in self.log.walk():
                copying.done = item.physical_offset - self._first
                if isinstance(item, LocatedRecord):
                    self._take(item)
                else:
                    self.lost.damage(item)
        self.writer.close()
        configs = self._copy_configs()
        self.lost.close()
        recover(StoreLayout(self.target, self._conf()), fix_delay_times=True, backup=self._scratch())
        empty = self._keep_ends()
        self._make_timer()
        self.warnings += carry_over(
            self.layout, StoreLayout(self.target, self._conf()), self._moved_queues(), self._scratch(),
            self.left_out,
        )  # fmt: skip
        self.warnings += keep_popped(self.layout, self.target, self._moved_queues(), self.left_out)
        self.warnings += open_halves(self.layout, self.left_out)
        configs += copy_accounts(self.layout, self.target, self.left_out, self.warnings)
        self._say_passed()
        remove_tree(self._scratch())
        with suppress(OSError):  # something was lost, and found
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
            leftOut=self.left_out,
            warnings=[*self._said, *self.warnings],
            tornProperties=self.torn,
            takenFromTier=self.in_tier,
            notTaken=[] if self.in_tier else left_behind(self.layout, self._first_of),
            emptyQueues=empty,
            parts=self._parts(),
        )

    def _parts(self) -> list[PartFate]:
        """Every part of the source. Those that could not be read are left out, and said to be elsewhere."""
        names = [entry.name for entry in self.layout.entries()]
        names += [f"config/{entry.name}" for entry in self.layout.entries("config")]
        return [
            part._replace(fate=Fate.LEFT_OUT, words="it could not be read") if part.part in self.left_out else part
            for part in fates_of(names)
        ]

    def _keep_ends(self) -> list[EmptyQueue]:
        """Make the queues that the new log has no message of."""
        numbered = {(topic.decode("utf-8", "surrogateescape"), queue_id) for topic, queue_id in self._numbers()}
        names = count()
        make_folders(self._scratch())

        def stage() -> str:
            return os.path.join(self._scratch(), f"queue-{next(names)}")

        return keep_ends(self.layout, StoreLayout(self.target, self._conf()), numbered, stage)

    def _first_of(self, key: tuple[str, int]) -> int | None:
        """The lowest queue offset of a queue that the log has; None without any."""
        known = (key[0].encode("utf-8", "surrogateescape"), key[1]) in self.queues
        return self._survey.begin(*key) if known else None

    def _moved_queues(self) -> dict[tuple[str, int], int]:
        """Queue to the first of its old queue offsets that are others now."""
        first_moved = {}
        for (topic, queue_id), queue in self._numbers().items():
            moved = [old for old, down in queue.moves if down]
            if moved or queue.lost:
                first_moved[topic.decode("utf-8", "surrogateescape"), queue_id] = min(moved, default=queue.next_old)
        return first_moved

    def _make_timer(self) -> None:
        """Wheel and timer log from the messages of their topic, which may lie elsewhere now.

        A broker that finds how far its timer was, and no wheel, never delivers what waited.
        """
        new = StoreLayout(self.target, self._conf())
        if open_queue(new, TOPIC, QUEUE_ID) is not None:
            report = rebuild(new, (TIMER,), backup=self._scratch())
            self.warnings += report.warnings

    @contextmanager
    def _room(self) -> Iterator[None]:
        """A lone file that was cut short says a wrong length of files."""
        try:
            yield
        except BadLength as err:
            raise Refused(f"{self.layout.root}: {err.reason}: give --broker-conf, which has the true length") from err

    def _scratch(self) -> str:
        return os.path.join(self.target, LOST, "scratch")

    def _check_target(self) -> None:
        source = os.path.realpath(self.layout.root)
        if os.path.realpath(self.store).startswith(source + os.sep) or os.path.realpath(self.store) == source:
            raise Refused(f"{self.store}: lies in {source}: give a place outside of it")
        refuse_existing(self.store)

    def _conf(self) -> BrokerConf:
        """The settings that queues are made by: in files and in one folder, whatever the old store has them in.

        Only a broker that dispatches to light queues writes their offsets into a message. The new store shows nothing
        else of it yet, and the old one may have lost its queues.
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

    def _take(self, found: LocatedRecord) -> None:
        record = found.record
        self._light = self._light or _LIGHT_MARK in record.properties
        stumbles = self._rules.stumbles if self._rules.stumbles_over(record) else None
        if stumbles is None and has_bad_batch_numbers(record):  # the new store may go to the other release
            stumbles = ReleaseRulesV5.stumbles
        if stumbles is not None:
            self.lost.keep(found.file.path, found.at, found.physical_offset, record.total_size, stumbles)
            return
        if (torn := torn_properties(record)) is not None:  # brokers take it as whole, and so must later readers
            self.torn += 1
            self.lost.keep(found.file.path, found.at, found.physical_offset, record.total_size, torn)
        transaction = record.sys_flag & TRANSACTION_MASK
        queue_offset = record.queue_offset
        if transaction in (TRANSACTION_NONE, TRANSACTION_COMMIT):
            number = self._number(found)
            if number is None:
                self.duplicates += 1
                self.lost.keep(found.file.path, found.at, found.physical_offset, record.total_size, "repeated record")
                return
            queue_offset = number
            if self._dispatches:
                record = self.light.renumber(record)
        with self._room():
            physical = self.writer.reserve(record.total_size)
        if record.topic in HALF_TOPICS and physical != found.physical_offset:
            self.halves[found.physical_offset] = physical
        prepared = record.prepared_transaction_offset
        moved = record._replace(
            queue_offset=queue_offset,
            physical_offset=physical,
            prepared_transaction_offset=self.halves.get(prepared, prepared) if prepared else 0,
        )
        self.writer.append(pack_moved(found.record, moved))
        self.messages += 1

    def _only_tiered(self) -> OnlyTiered:
        """What the tier has of every queue before the first message of it in the log."""
        tiered = OnlyTiered(self.layout, self._survey.first)
        self.in_tier = tiered.messages
        for (topic, queue_id), offsets in tiered.offsets.items():
            self.queues[topic.encode("utf-8", "surrogateescape"), queue_id] = Numbering(
                offsets.start if self._first else 0
            )
        return tiered

    def _take_tiered(self, found: LocatedRecord) -> None:
        """A message that the tier alone has; it is of a plain queue, and no half message."""
        record, span = found.record, span_of(found.record)
        queue = self.queues[record.topic, record.queue_id]
        if record.queue_offset < queue.next_old:
            return  # behind damage
        number = queue.next_new
        queue.follow(record.queue_offset, span)
        queue.next_new, queue.stored = number + span, record.store_timestamp
        with self._room():
            physical = self.writer.reserve(record.total_size)
        moved = record._replace(queue_offset=number, physical_offset=physical)
        self.writer.append(pack_moved(record, moved))
        self.messages += 1

    def _number(self, found: LocatedRecord) -> int | None:
        """The queue offset that a record has in the new store; None for one that was there already."""
        record, span = found.record, span_of(found.record)
        key = (record.topic, record.queue_id)
        queue = self.queues.get(key)
        if queue is None:
            # A log whose head has expired has queues that begin above 0. In one that begins at 0 they must not: the
            # broker takes the filler entries in front of such a queue for messages at offset 0.
            queue = self.queues[key] = Numbering(self._survey.begin(record.topic.decode("utf-8", "replace"), key[1]))
        number = queue.next_new
        if found.physical_offset in self._survey.wrong:
            self.renumbered += 1
            queue.floating += span
        elif record.queue_offset < queue.next_old:
            if record.store_timestamp < queue.stored:
                return None  # cut once, and never overwritten: a message that is kept took its place later
            # a broker whose queue was lost begins it at 0 again, and gives offsets a second time
            self.restarted += 1
            queue.floating += span
        else:
            queue.follow(record.queue_offset, span)
        queue.next_new = number + span
        queue.stored = record.store_timestamp
        return number

    def _copy_configs(self) -> list[str]:
        """Config files, each from the generation that can be read; consumer offsets follow their moved queues."""
        copied: list[str] = []
        listed = self.layout.entries("config")
        for entry in listed:
            if not entry.is_file() and kind_of(entry.name) is not None:
                self.left_out.append(f"config/{entry.name}")
                self.warnings.append(f"{entry.path}: not a regular file: left out, or taken from its .bak")
        names = {
            # only of the files that brokers know is a .bak the generation before
            entry.name.removesuffix(".bak") if kind_of(entry.name.removesuffix(".bak")) is not None else entry.name
            for entry in listed
            if entry.is_file()
        }
        tables = self._tables()
        for name in sorted(names | tables.keys()):
            data = tables[name] if name in tables else self._readable(name)
            if data is None:
                continue
            if name == METADATA:  # two brokers with one tier would delete each other's
                if not self.in_tier:
                    self.left_out.append(f"config/{name}")
                self.warnings.append(
                    f"config/{name} is left out: start a broker on the new store without tiered storage "
                    "(messageStorePlugIn), or with another tieredStoreFilePath"
                )
                continue
            if name in ("consumerOffset.json", _LIGHT_OFFSETS):
                data = self._moved_offsets(name, data)
            path = os.path.join(self.target, "config", name)
            make_folders(os.path.dirname(path))
            with make_file(path) as file:
                file.write(0, data)
                file.sync()
            copied.append(name)
        return copied

    def _say_passed(self) -> None:
        """What could not be read beside the messages; queues, index and marks are rebuilt whatever they were."""
        for path, reason in sorted((self.layout.passed or {}).items()):
            name = os.path.relpath(path, self.layout.root)
            self.warnings.append(f"{reason}: passed over")
            if name.partition(os.sep)[0] in ("config", FOLDER):
                self.left_out.append(name)

    def _tables(self) -> dict[str, bytes | None]:
        """File name to its content, of tables that a broker keeps in RocksDB; None for one that cannot be read."""
        tables: dict[str, bytes | None] = {}
        for name in TABLES:
            try:
                if config_database(self.layout, name) is None:
                    continue
                tables[name] = None
                table = read_config(self.layout, name)
                tables[name] = table.build(V5_3) if table is not None else None
            except (CorruptFile, MissingRuntime, UnreadableStore) as err:
                tables[name] = None
                self.left_out.append(f"config/{name}")
                self.warnings.append(f"{err}: config/{name} is left out")
        if (point := timer_checkpoint(self.layout, self._moved_queues(), self.left_out, self.warnings)) is not None:
            tables["timercheck"] = point
        if tables or queue_database_place(self.layout) is not None:
            self.warnings.append("the new store has its queues and tables in files: start a broker on it without "
                                 "storeType=defaultRocksDB")  # fmt: skip
        if not self.layout.conf.writes_index_files and self.layout.conf.flag("messageIndexEnable", True):
            self.warnings.append("the new store has its index in files: start a broker on it without "
                                 "indexFileReadEnable=false and indexFileWriteEnable=false")  # fmt: skip
        return tables

    def _readable(self, name: str) -> bytes | None:
        """A file's bytes; None for one that is left out, which is said."""
        model = kind_of(name)
        if model is None:
            try:
                return read_small(self.layout.path("config", name))
            except RmqError as err:
                self.left_out.append(f"config/{name}")
                self.warnings.append(f"{err}: left out")
                return None
        for candidate in (name, name + ".bak"):
            try:
                data = read_small(self.layout.path("config", candidate))
                if data is not None:
                    model.parse(data)
                    if candidate != name:
                        if exists(self.layout.path("config", name)):
                            self.left_out.append(f"config/{name}")
                        self.warnings.append(f"config/{name} cannot be read: {candidate} is taken")
                    return data
            except (FormatError, RmqError):
                continue
        self.left_out.append(f"config/{name}")
        self.warnings.append(f"config/{name} cannot be read and has no good .bak: left out")
        return None

    def _numbers(self) -> dict[tuple[bytes, int], Numbering]:
        """Numbering of all queues, light ones among them."""
        return {**self.light.queues, **self.queues}

    def _moved_offsets(self, name: str, data: bytes) -> bytes:
        model = LmqConsumerOffsets if name == _LIGHT_OFFSETS else ConsumerOffsets
        table = model.parse(data)
        moved = move_offsets(table, self._numbers())
        return data if moved is table else moved.build(V5_3 if b'"dataVersion"' in data else V4_9)
