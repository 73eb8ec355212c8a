"""Differences between releases in recovery, on top of the procedure that they share (store-engine 1.3, 4).

:class:`ReleaseRules` has the rules of 4.9.8, :class:`ReleaseRulesV5` the changes in 5.3.3. :func:`rules_for` chooses.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from mmap import mmap
from typing import ClassVar, NamedTuple

import numpy as np

from formats.checkpoint import Checkpoint
from formats.config.files import Topics
from formats.endings import Ending
from formats.errors import FormatError
from formats.layouts.codes import MAGIC_V2
from formats.message.properties import INNER_BASE, INNER_NUM
from formats.message.read import End, Record, read
from formats.model.topics import TopicConfig
from formats.variants.message_store import END, HALVES, INDEX
from rmqtool.errors import CorruptFile, MissingRuntime, Refused, UnreadableStore
from rmqtool.rules.releases import LATER, V4_9, V5_3, V5_4, V5_5, Release
from rmqtool.store.config.release import first_version, release_of, version_of
from rmqtool.store.config.sources import choose, is_broken
from rmqtool.store.disk.directories import read_small
from rmqtool.store.disk.mapping import is_partial
from rmqtool.store.disk.segments import Segment, offset_name
from rmqtool.store.disk.sparse import extents_of
from rmqtool.store.dispatch.batch import is_bulk
from rmqtool.store.layout.paths import BATCH_QUEUES, UNIT, StoreLayout
from rmqtool.store.layout.version import second_queues, why_unsupported, writes_both
from rmqtool.store.log.records import blank_room, record_start
from rmqtool.store.queues.batch_builder import BatchQueueBuilder
from rmqtool.store.queues.builder import QueueBuilder
from rmqtool.store.queues.compaction import FOLDER, LOGS, compaction_queues_of
from rmqtool.store.queues.message_store import SETTINGS, family_in_use, position
from rmqtool.store.queues.rocks import built_up_to, queue_database
from rmqtool.store.releases.first_file import (
    SCANNED_FILES,
    first_checked,
    first_checked_v5,
    first_checked_v5_4,
    has_bad_batch_numbers,
    known_number,
)

EVERYTHING = -(2**63)  # lower than any offset that a record can state
_MAGIC_V2 = MAGIC_V2.to_bytes(4, "big", signed=True)
BATCH_QUEUE = ("queue.type", "BatchCQ")  # attribute of a topic
COMPACTED = ("cleanup.policy", "COMPACTION")  # another
_MOVE_DATABASE = (
    "the queues are in files, too: move the files of the database out of the store, and the broker makes a new one, "
    "which begins with the messages after that (light queues that are only in it, with those of the newest log files)"
)
_BATCH_MARK = INNER_BASE.encode() + b"\x01"


class Admitted(NamedTuple):
    """The files of one directory that the broker does not load."""

    refused: list[tuple[str, str]]  # (path, why); with any of these the broker does not start
    removed: list[Segment]  # files that it deletes before it loads the others


class ReleaseRules:
    """The rules of 4.9.8.

    Attributes:
        release: the release; by default the one that the class is named after.
        knows_delays: whether the delay levels are loaded before recovery, so that delayed messages get their deliver
            time.
        waits: whether the start dispatches messages that are missing in the queues, and waits for that.
        exactly: do exactly what the broker does, even if it loses entries or fails needlessly.
        stumbles: description of the intact records that its reader takes for damage.
        only_predicts: nothing will be written, so databases that would have to follow are no reason to refuse.
    """

    release: Release = V4_9
    knows_delays: ClassVar[bool] = False
    stumbles: ClassVar[str] = "V2 record, which 4.9 does not know"

    def __init__(self, layout: StoreLayout, *, exactly: bool, only_v1: bool = False) -> None:
        self.layout, self.conf, self.exactly = layout, layout.conf, exactly
        self.waits = True
        self.only_predicts = False
        self._only_v1 = only_v1

    @cached_property
    def named_batch_topics(self) -> set[str]:
        """Topics with batch queues, as a broker reads them from ``topics.json`` or its ``.bak``."""
        return set()

    @cached_property
    def batch_topics(self) -> set[str]:
        """Topics with batch queues, also if ``topics.json`` is broken, and recovery restores it."""
        return set()

    @cached_property
    def compacted_topics(self) -> set[str]:
        """Topics that are read from a compaction log."""
        return set()

    def batch_dirs(self) -> list[tuple[str, int, str]]:
        """(topic, queue id, path) of every batch queue that the broker loads."""
        return []

    def check_forms(self) -> list[str]:
        """Why the broker would not load the store, regardless of the contents of its files.

        Raises:
            Refused: these rules would damage this form of store.
        """
        if (reason := self._why_unsupported()) is not None:
            raise Refused(f"{self.layout.root}: {reason}")
        return []

    def index_directories(self) -> list[str]:
        """Directories with the names of index files, which the broker would not load."""
        return []

    def strange_compaction(self) -> list[str]:
        """Why the broker would not load the store because of the logs of compacted topics."""
        return []

    def _why_unsupported(self) -> str | None:
        return why_unsupported(self.layout)

    def admit(self, files: list[Segment], foreign: list[str], size: int, kind: str) -> Admitted:
        """Check the files of a directory: all must have the same size and a numeric name."""
        refused = [(path, f"does not belong into a {kind} directory") for path in foreign]
        refused += [(f.path, f"{f.size} bytes long, not {size}") for f in files if f.size != size]
        return Admitted(refused, [])

    def first_checked(self, files: list[Segment], point: Checkpoint, known: int, *, aborted: bool) -> tuple[int, str]:
        """The commit-log file at which the check starts, and the reason; ``known`` is the end of the queues."""
        return first_checked(files, self.conf, point, aborted=aborted)

    def next_start(self, files: list[Segment], known: int) -> int:
        """The file at which the check starts after a clean stop."""
        return max(0, len(files) - SCANNED_FILES)

    def dispatched_from(self, known: int, unknown: int, *, aborted: bool) -> int | None:
        """Physical offset from which on records are dispatched while they are checked; None if none are.

        Args:
            known: end of the log in the queues; for batch queues the beginning of their last record.
            unknown: offset from which on records may be missing in the queues.
        """
        return EVERYTHING if aborted else None

    def readable(self, file: Segment) -> int:
        """Return how many bytes of a file the broker can read: up to the first V2 record if it only knows V1."""
        return self._before(file, _MAGIC_V2) if self._only_v1 else file.size

    def begins_at(self, file: Segment, point: Checkpoint, known: int, *, aborted: bool) -> int:
        """Byte of the first file that is checked at which the check begins."""
        return 0

    def recoverable(self, file: Segment, at: int, *, aborted: bool) -> int:
        """As :meth:`readable`, for recovery, which begins to read at a byte."""
        return self.readable(file)

    def refuse_start(self, files: list[Segment], point: Checkpoint, known: int, *, aborted: bool) -> list[str]:
        """Why the broker would not load a log, given where its databases and checkpoint tell it to begin."""
        return []

    def _before(self, file: Segment, mark: bytes) -> int:
        """Position of the first record that the broker takes for damage; only searched if the file has the mark."""
        view = file.view()
        if not _holds(file, mark):
            return file.size
        at = record_start(view, 0)
        while isinstance(record := read(view, at, file.size, crc=False), Record):
            if self.stumbles_over(record):
                return at
            at = record_start(view, at + record.total_size)
        return file.size

    def stumbles_over(self, record: Record) -> bool:
        """Whether the broker's reader takes an intact record for damage."""
        return self._only_v1 and record.version == 2

    def find_end(self, file: Segment, end: End, limit: int) -> End:
        """Return where and why the broker considers the records of a file to end, given the result of its reader."""
        if end.at == limit < file.size:
            return End(Ending.DAMAGED, end.at, self._why_stopped(file, end.at))
        return end

    def _why_stopped(self, file: Segment, at: int) -> str:
        """Why the broker takes a whole record for damage."""
        return self.stumbles

    def redispatches(self, *, cut: bool) -> bool:
        """Whether messages missing in the queues after the check are dispatched.

        Args:
            cut: whether queues were ahead of the log and were truncated, perhaps to less than the log.
        """
        return self.waits

    @property
    def counts_dispatched(self) -> bool:
        """Whether queues are truncated even if they only match the log because its check has dispatched the rest."""
        return False

    def is_blocked(self, queue: QueueBuilder) -> bool:
        """Whether the broker fails to load a queue after having recovered it."""
        return False

    def lacks_in_database(self, end: int) -> bool:
        """Whether a database that has the queues besides the files lacks messages of the log, given its end."""
        return False

    def correct_min(self, queue: QueueBuilder, min_physical_offset: int) -> None:
        """Set a queue's lowest offset."""
        queue.correct_min(min_physical_offset)

    def confirm(self, point: Checkpoint, *, low: int, end: int, last: int) -> Checkpoint:
        """The checkpoint with the field that recovery sets.

        Args:
            low, end: range of the log.
            last: physical offset of the last record checked; if none was, the value that the broker uses.
        """
        return point

    def warnings(self) -> list[str]:
        """Warnings for this store, independent of the result of recovery."""
        return []


class ReleaseRulesV5(ReleaseRules):
    """The rules of 5.3.3."""

    release: Release = V5_3
    knows_delays: ClassVar[bool] = True
    stumbles: ClassVar[str] = f"{INNER_BASE} or {INNER_NUM} is not a number, which 5.3 takes for damage"

    def __init__(self, layout: StoreLayout, *, exactly: bool, release: Release | None = None) -> None:
        super().__init__(layout, exactly=exactly)
        self.release = release or self.release
        self.waits = self.conf.flag("recheckReputOffsetFromCq", False)
        self._controller = self.conf.flag("enableControllerMode", os.path.exists(layout.path("epochFileCheckpoint")))

    @cached_property
    def _topics(self) -> Mapping[str, TopicConfig]:
        """The topics in topics.json, or in its .bak if that cannot be read, as loaded by a broker."""
        for file in ("topics.json", "topics.json.bak"):
            try:
                if data := read_small(self.layout.path("config", file)):
                    return Topics.parse(data).topics
            except (FormatError, UnreadableStore):
                continue
        return {}

    @cached_property
    def named_batch_topics(self) -> set[str]:
        return topics_with(self._topics, *BATCH_QUEUE)

    @cached_property
    def batch_topics(self) -> set[str]:
        return self.named_batch_topics | self._topics_with(*BATCH_QUEUE)

    @cached_property
    def compacted_topics(self) -> set[str]:
        return topics_with(self._topics, *COMPACTED) | self._topics_with(*COMPACTED)

    def _topics_with(self, name: str, value: str) -> set[str]:
        """Topics with an attribute in what can be saved of a broken topics.json, else those whose files show it."""
        if self.exactly or self._topics or not is_broken(self.layout, "topics.json"):
            return set()
        saved = (choose(self.layout, "topics.json").value or {}).get("topicConfigTable") or {}
        named = {topic for topic, entry in saved.items() if (entry.get("attributes") or {}).get(name) == value}
        shown = attributes_shown(self.layout)
        return named | {topic for topic in shown.keys() - saved.keys() if shown[topic].get(name) == value}

    def batch_dirs(self) -> list[tuple[str, int, str]]:
        return self.layout.queue_dirs(BATCH_QUEUES)

    def check_forms(self) -> list[str]:
        super().check_forms()
        if self.conf.flag("forceVerifyPropCRC", False):
            raise Refused(f"{self.layout.root}: forceVerifyPropCRC is on, which rmqtool does not support")
        index = [f"{path}: a directory where an index file should be" for path in self.index_directories()]
        return self._strange_queues() + index

    def _strange_queues(self) -> list[str]:
        strange = [
            f"{path}: topics.json says that the topic has batch consume queues"
            for topic, _queue_id, path in self.layout.queue_dirs()
            if topic in self.batch_topics
        ]
        strange += [
            f"{path}: topics.json does not say that the topic has batch consume queues"
            for topic, _queue_id, path in self.batch_dirs()
            if topic not in self.batch_topics
        ]
        return strange

    def strange_compaction(self) -> list[str]:
        if not self.conf.flag("enableCompaction", True):
            return []
        refused = (queue.refused for queue in compaction_queues_of(self.layout))
        return [f"{path}: {reason}" for path, reason in filter(None, refused)]

    def index_directories(self) -> list[str]:
        return [
            entry.path
            for entry in self.layout.entries("index")
            if offset_name(entry.name) is not None and entry.is_dir()
        ]

    def admit(self, files: list[Segment], foreign: list[str], size: int, kind: str) -> Admitted:
        """Ignores directories, and deletes a last file if it is empty (MappedFileQueue.doLoad)."""
        names = sorted([f.path for f in files] + foreign, key=os.path.basename)
        strange = [path for path in foreign if not os.path.isdir(path)]
        empty = [f for f in files if not f.size]
        empty += [Segment(path, 0, 0, 0) for path in strange if os.path.isfile(path) and not os.path.getsize(path)]
        removed = [f for f in empty if f.path == names[-1]]
        gone = {f.path for f in removed}
        refused, _ = super().admit(files, strange, size, kind)
        return Admitted([(path, why) for path, why in refused if path not in gone], removed)

    def first_checked(self, files: list[Segment], point: Checkpoint, known: int, *, aborted: bool) -> tuple[int, str]:
        return first_checked_v5(files, self.conf, point, known, aborted=aborted)

    def next_start(self, files: list[Segment], known: int) -> int:
        return known_number(files, known)

    def dispatched_from(self, known: int, unknown: int, *, aborted: bool) -> int | None:
        """After a clean stop all that is missing in the queues except the first message (compared by ``>``)."""
        if aborted:
            return EVERYTHING
        return known + 1 if self.exactly else unknown

    def readable(self, file: Segment) -> int:
        """Up to the first record whose inner-batch numbers cannot be parsed (CommitLog.setBatchSizeIfNeeded)."""
        return self._before(file, _BATCH_MARK)

    def stumbles_over(self, record: Record) -> bool:
        return has_bad_batch_numbers(record)

    def find_end(self, file: Segment, end: End, limit: int) -> End:
        """Accepts a blank only if its length fits the file, as for any record."""
        end = super().find_end(file, end, limit)
        if end.ending is Ending.FILLER:
            stated, room = blank_room(file.view(), end.at), limit - end.at
            overflows = stated - 4 < -(1 << 31)  # Java subtracts the size field, and gets a number above any room
            if stated > room or overflows or (stated < 0 and self.release.refuses_negative_blanks):
                return End(Ending.DAMAGED, end.at, f"end-of-file blank of {stated} bytes, {room} left")
        return end

    def redispatches(self, *, cut: bool) -> bool:
        """The broker does not, and its next start then skips the first of these messages."""
        return self.waits or (cut and not self.exactly)

    def is_blocked(self, queue: QueueBuilder) -> bool:
        """True for a last file without entries: the broker reads the last entry before its start (correctMinOffset)."""
        if isinstance(queue, BatchQueueBuilder):
            return False
        return queue.min_logic_offset < queue.end and not queue.files[-1].wrote

    def correct_min(self, queue: QueueBuilder, min_physical_offset: int) -> None:
        """A binary search in the first file; the queue's end if its last entry is too old."""
        if isinstance(queue, BatchQueueBuilder):
            queue.correct_min(min_physical_offset)
            return
        if queue.min_logic_offset >= queue.end:
            return
        first, last = queue.files[0], queue.files[-1]
        if last.wrote and int(last.units()[last.wrote // UNIT - 1]["physical_offset"]) < min_physical_offset:
            queue.min_logic_offset = queue.end
            return
        start = max(queue.min_logic_offset - first.base, 0)
        offsets = first.units()["physical_offset"][start // UNIT : first.wrote // UNIT]
        if not len(offsets) or (queue.min_logic_offset >= first.base and offsets[0] >= min_physical_offset):
            return
        low, high = 0, len(offsets) - 1
        while high - low > 1:
            middle = (low + high) // 2
            if offsets[middle] == min_physical_offset:
                low = high = middle
            elif offsets[middle] > min_physical_offset:
                high = middle
            else:
                low = middle
        fits = np.flatnonzero(offsets[low : high + 1] >= min_physical_offset)
        if len(fits):
            queue.min_logic_offset = first.base + start + (low + int(fits[0])) * UNIT

    def confirm(self, point: Checkpoint, *, low: int, end: int, last: int) -> Checkpoint:
        if self._controller:
            last = min(max(point.confirm_phy_offset, low), end)
        return point._replace(confirm_phy_offset=last)

    def warnings(self) -> list[str]:
        if self._controller:
            return ["controller mode: messages are dispatched as on a master; a slave stops at the confirmed offset"]
        return []


class StartsInsideFiles(ReleaseRulesV5):
    """What 5.5 does after an unclean stop where the settings ask for it, whatever queues are kept in."""

    def dispatch_from(self, point: Checkpoint, known: int) -> int:
        """Physical offset up to which a start after an unclean stop considers the log to be dispatched everywhere."""
        return point.logics_physical_offset

    def begins_at(self, file: Segment, point: Checkpoint, known: int, *, aborted: bool) -> int:
        if not aborted or not self.conf.flag("enableAcceleratedRecovery", False):
            return 0
        return max(self.dispatch_from(point, known) - file.base, 0)

    def refuse_start(self, files: list[Segment], point: Checkpoint, known: int, *, aborted: bool) -> list[str]:
        """Return why recovery cannot start: its start is beyond the end of the file (CommitLog.recoverAbnormally)."""
        if not files:
            return []
        file = files[self.first_checked(files, point, known, aborted=aborted)[0]]
        at = self.begins_at(file, point, known, aborted=aborted)
        if at <= file.size:
            return []
        where = f"the check of the log would begin at {file.base + at}"
        return [f"{file.path}: enableAcceleratedRecovery is on, and {where}, behind the end of this file"]

    def recoverable(self, file: Segment, at: int, *, aborted: bool) -> int:
        limit = super().recoverable(file, at, aborted=aborted)
        if not aborted or not self.conf.flag("checkCommitLogOffsetOnRecover", False):
            return limit
        view = file.view()
        at = record_start(view, at)
        while at < limit and isinstance(record := read(view, at, file.size, crc=False), Record):
            if _is_of_another_file(record, file):
                return at
            at = record_start(view, at + record.total_size)
        return limit

    def _why_stopped(self, file: Segment, at: int) -> str:
        record = read(file.view(), at, file.size, crc=False)
        if isinstance(record, Record) and not self.stumbles_over(record):
            return f"record that says physical offset {record.physical_offset} (checkCommitLogOffsetOnRecover)"
        return super()._why_stopped(file, at)


class ReleaseRulesV5_4(ReleaseRulesV5):
    """The rules of 5.4.0."""

    release: Release = V5_4

    def check_forms(self) -> list[str]:
        for family in self._other_databases:
            if not self.only_predicts:
                raise Refused(f"{self.layout.root}: {SETTINGS[family]} is on: rmqtool does not modify that database")
        reasons = super().check_forms()
        try:
            _ = self._second_end
            for family in self._other_databases:
                family_in_use(self.layout, family)
        except CorruptFile as err:
            reasons.append(f"{err.path}: {err.reason}; {_MOVE_DATABASE}")
        return reasons

    def first_checked(self, files: list[Segment], point: Checkpoint, known: int, *, aborted: bool) -> tuple[int, str]:
        marked = self.release.marks_flushed_queues
        return first_checked_v5_4(
            files, self.conf, point, known, aborted=aborted, marked=marked, second=self._second_end,
            others=self._other_ends,
        )  # fmt: skip

    @property
    def _other_databases(self) -> list[str]:
        """The column families of ``rocksdbstore`` that a broker fills from the log, by its settings."""
        return [family for family in (INDEX, HALVES) if self.conf.flag(SETTINGS[family], False)]

    @cached_property
    def _other_ends(self) -> list[int]:
        """Up to where each of them covers the log; 0 if it is not recorded or cannot be read: no broker starts then."""
        return list(map(self._end_of, self._other_databases))

    def _end_of(self, family: str) -> int:
        with suppress(CorruptFile, MissingRuntime):
            database = family_in_use(self.layout, family)
            return (database is not None and position(database, family, END)) or 0
        return 0

    @cached_property
    def _second_end(self) -> int | None:
        """Up to where a database that has the queues, too, covers the log; None if the broker does not write one.

        Raises:
            CorruptFile: it cannot be read.
            MissingRuntime: the library to read it is not installed.
        """
        if second_queues(self.layout) is None:
            return 0 if writes_both(self.layout) else None
        database = queue_database(self.layout)
        return built_up_to(database) if database is not None else None

    def dispatched_from(self, known: int, unknown: int, *, aborted: bool) -> int | None:
        """Also what only the database lacks; to the files it makes no difference."""
        ends = [end for end in self._other_ends if end > 0]
        if self._second_end is not None:
            ends.append(self._second_end)
        return super().dispatched_from(min([known, *ends]), min([unknown, *ends]), aborted=aborted)

    def lacks_in_database(self, end: int) -> bool:
        return self._second_end is not None and 0 < self._second_end < end

    @property
    def counts_dispatched(self) -> bool:
        """As in the broker (ConsumeQueueStore.truncateDirty); this only affects queues without entries."""
        return self.exactly

    def next_start(self, files: list[Segment], known: int) -> int:
        return self.first_checked(files, Checkpoint(), known, aborted=False)[0]


class ReleaseRulesV5_5(StartsInsideFiles, ReleaseRulesV5_4):
    """The rules of 5.5.0."""

    release: Release = V5_5

    def dispatch_from(self, point: Checkpoint, known: int) -> int:
        ends = [super().dispatch_from(point, known), *(end for end in self._other_ends if end > 0)]
        return min(ends if self._second_end is None else [*ends, self._second_end])

    def refuse_start(self, files: list[Segment], point: Checkpoint, known: int, *, aborted: bool) -> list[str]:
        """Also ConsumeQueueStore.getDispatchFromPhyOffset: it does not know where to begin, and gives up."""
        accelerates = aborted and self.conf.flag("enableAcceleratedRecovery", False)
        if accelerates and point.physic_msg_timestamp > 0 and point.logics_physical_offset <= 0:
            path = self.layout.path("checkpoint")
            return [f"{path}: enableAcceleratedRecovery is on, and the checkpoint says no logicsPhysicalOffset"]
        return super().refuse_start(files, point, known, aborted=aborted)

    def is_blocked(self, queue: QueueBuilder) -> bool:
        """Never: a last file without entries is handled."""
        return False

    def confirm(self, point: Checkpoint, *, low: int, end: int, last: int) -> Checkpoint:
        """Limits the queues' offset to the log's end; with a later one a broker would find no file to begin at."""
        point = super().confirm(point, low=low, end=end, last=last)
        return point._replace(logics_physical_offset=min(point.logics_physical_offset, end))


_RULES: Mapping[Release, type[ReleaseRulesV5]] = {
    V5_3: ReleaseRulesV5,
    V5_4: ReleaseRulesV5_4,
    V5_5: ReleaseRulesV5_5,
}
"""By release, oldest first. A release without an entry has the rules of the one before it."""


def _class_of(release: Release) -> type[ReleaseRulesV5]:
    return [rules for known, rules in _RULES.items() if known.version <= release.version][-1]


def _is_of_another_file(record: Record, file: Segment) -> bool:
    return not file.base <= record.physical_offset <= file.base + file.size


def _holds(file: Segment, mark: bytes) -> bool:
    view = file.view()
    if is_bulk(view, 0, len(view)):
        from rmqtool.store.log.scan import holds

        return holds(view, mark)
    mapped: mmap | bytes = view.obj  # type: ignore[assignment]
    if is_partial(view):
        return mapped.find(mark) >= 0
    beyond = len(mark)  # a mark may extend into a hole on either side
    return any(
        mapped.find(mark, max(start - beyond, 0), stop + beyond) >= 0
        for start, stop in extents_of(file.where, 0, file.size)
    )


class ChosenRules(NamedTuple):
    """The rules of a store, why they were chosen, and a warning if they do not fit."""

    rules: ReleaseRules
    reason: str
    warning: str | None


def rules_for(layout: StoreLayout, release: Release | None = None, *, exactly: bool = False) -> ChosenRules:
    """The rules of a given release, or of the one that seems to have written the store."""
    _, shown = version_of(layout, first_version(layout))
    seen = release_of(layout)
    reason, warning = shown, None
    if release is not None:
        reason = f"asked for as {release.full_version}" if release in LATER else "asked for"
    release = release or seen
    line = "5.4 or later" if max(release.version, seen.version) >= V5_4.version and release.is_5 else "5.x"
    if min(release.version, seen.version) >= V5_4.version:
        warning = None  # after the first start a store need not show which of them wrote it
    elif release.version < seen.version:
        warning = f"a {line} broker seems to have written this store ({shown}), but the rules of {release} are used"
    elif release != seen:
        warning = f"nothing shows that a {line} broker has written this store, but the rules of {release} are used"
    if release.is_5:
        return ChosenRules(_class_of(release)(layout, exactly=exactly, release=release), reason, warning)
    return ChosenRules(ReleaseRules(layout, exactly=exactly, only_v1=seen.is_5), reason, warning)


def attributes_shown(layout: StoreLayout) -> dict[str, dict[str, str]]:
    """The attributes of topics that their files show: batch queues and no others, or a compaction log."""
    plain = {topic for topic, _queue_id, _path in layout.queue_dirs()}
    batch = {topic for topic, _queue_id, _path in layout.queue_dirs(BATCH_QUEUES)} - plain
    compacted = {topic for topic, _queue_id, _path in layout.queue_dirs(f"{FOLDER}/{LOGS}")}
    return {
        topic: dict([BATCH_QUEUE] * (topic in batch) + [COMPACTED] * (topic in compacted))
        for topic in batch | compacted
    }


def batch_topics_of(topics: Mapping[str, TopicConfig]) -> set[str]:
    """Topics that have batch consume queues (5.x)."""
    return topics_with(topics, *BATCH_QUEUE)


def topics_with(topics: Mapping[str, TopicConfig], name: str, value: str) -> set[str]:
    """Topics with an attribute (5.x)."""
    return {topic for topic, config in topics.items() if (config.attributes or {}).get(name) == value}
