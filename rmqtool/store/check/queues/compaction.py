"""Check compacted topics: files, units and records of each queue, and whether messages of the commit log are missing.

Source: store.kv.CompactionLog (load, sanityCheck, recover, shouldRetainMsg); the consequences were observed on 5.3.3
brokers.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from formats.config.files import Topics
from formats.message.properties import KEYS, parse
from formats.queues.batch import END_UNIT, SIZE, BatchEntry, as_array
from rmqtool.errors import CorruptFile, RmqError, UnreadableStore
from rmqtool.store.check.advice.steps import RECOVER
from rmqtool.store.check.codes.all import INFO
from rmqtool.store.check.codes.compaction import WITHOUT_LOG
from rmqtool.store.check.common.context import Context
from rmqtool.store.config.files import read_config
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.disk.sparse import is_zero
from rmqtool.store.log.commit_log import Damage, LocatedRecord
from rmqtool.store.log.records import says_position
from rmqtool.store.queues.batch import open_any_queue
from rmqtool.store.queues.compaction import FOLDER, POSITIONS, CompactionQueue, compaction_queues_of, positions_of
from rmqtool.store.releases.rules import COMPACTED, topics_with
from rmqtool.words import counted

if TYPE_CHECKING:
    from formats.arrays import Array


def check_compaction(ctx: Context) -> None:
    """Check every queue of every compacted topic."""
    if not ctx.layout.conf.flag("enableCompaction", True):
        return  # then the topics are read from the commit log
    queues = {(queue.topic, queue.queue_id): queue for queue in compaction_queues_of(ctx.layout)}
    topics = _compacted_topics(ctx)
    for topic, queue_id in ctx.queues_seen.ends:
        if topics is not None and topic in topics:
            queues.setdefault((topic, queue_id), CompactionQueue(ctx.layout, topic, queue_id))
    positions = _positions(ctx)
    for (topic, queue_id), queue in sorted(queues.items()):
        try:
            compacted = topics is None or topic in topics
            _Check(ctx, queue, positions.get(f"{topic}_{queue_id}", -1), compacted=compacted).run()
        except UnreadableStore as err:
            ctx.found.add("file-unreadable", ctx.name(queue.path), actual=str(err), topic=topic, queueId=queue_id)


def _compacted_topics(ctx: Context) -> set[str] | None:
    """Topics with cleanup.policy=COMPACTION; None if no table of topics can be read."""
    for bak in (False, True):
        try:
            if isinstance(config := read_config(ctx.layout, "topics.json", bak=bak), Topics):
                return topics_with(config.topics, *COMPACTED)
        except RmqError:
            continue
    return None


def _positions(ctx: Context) -> dict[str, int]:
    try:
        positions = positions_of(ctx.layout)
    except CorruptFile as err:
        ctx.found.add("compaction-checkpoint", f"{FOLDER}/{POSITIONS}", actual=str(err))
        return {}
    return dict(positions.offsets) if positions is not None else {}


class _Check:
    """Checks one queue.

    Args:
        position: queue offset up to which it has been compacted.
        compacted: whether the topic is compacted.
    """

    def __init__(self, ctx: Context, queue: CompactionQueue, position: int, *, compacted: bool) -> None:
        self.ctx, self.queue, self.position, self.compacted = ctx, queue, position, compacted
        self.about: dict[str, Any] = {"topic": queue.topic, "queueId": queue.queue_id}
        self._last = -1  # queue offset of the previous unit

    def _report(self, code: str, path: str, **more: Any) -> None:
        self.ctx.found.add(code, self.ctx.name(path), **more, **self.about)

    def run(self) -> None:
        queue = self.queue
        if not self.compacted and (queue.queue.files or queue.log.files):
            self._report("compaction-unused", queue.log_path)
        self._check_files()
        for path in queue.work:
            self._report("compaction-unfinished", path)
        for file in queue.queue:
            self._check_units(file)
        self._check_log_end()
        if self.compacted and not self.ctx.log_seen.absent:
            self._compare_with_log()
        if self.compacted and self.position >= max(queue.max_offset, 1) and not self._is_past():
            self._report(
                "compaction-checkpoint-ahead",
                f"{self.ctx.layout.root}/{FOLDER}/{POSITIONS}",
                expected=f"less than {queue.max_offset}",
                actual=self.position,
            )

    def _is_past(self) -> bool:
        """Whether the log has lost messages that are nowhere else, while new ones will still be after the position."""
        queue = self.queue
        end = self.ctx.queues_seen.ends.get((queue.topic, queue.queue_id), 0)
        return self.position < end and not any(True for _missing in self._find_wanted())

    def _check_files(self) -> None:
        queue = self.queue
        if bool(queue.queue.files) != bool(queue.log.files):
            there, lacks = (queue.log_path, "queue") if queue.log.files else (queue.path, "log")
            self._report("compaction-half", there, expected=f"a {lacks} beside it", actual="none")
        for segments, size in ((queue.log, queue.log_size), (queue.queue, queue.queue_size)):
            self._check_lengths(segments, size)
        if (refused := queue.refused) is not None:
            path, reason = refused
            self.ctx.found.situation.refused = True
            self._report("compaction-foreign" if queue.strange else "compaction-unpaired", path, actual=reason)

    def _check_lengths(self, segments: Segments, size: int) -> None:
        strange = self.queue.strange if segments is self.queue.log else []
        for path, length in (*((file.path, file.size) for file in segments), *strange):
            # a broker deletes an empty last file when it loads the queue
            last = bool(segments.files) and path == segments.files[-1].path
            if not self.queue.fits(path, length) and (length or not last):
                self._report("compaction-size", path, expected=f"{size} bytes", actual=f"{length} bytes")

    def _check_units(self, file: Segment) -> None:
        view = file.view()
        count = self.queue.count(file)
        units = as_array(view)
        for start in range(0, count, 4096):
            for number, row in enumerate(units[start : min(start + 4096, count)].tolist(), start):
                self._check_unit(file, number, BatchEntry(*row))
        self._check_rest(file, units, count)
        del units, view
        file.release()

    def _check_unit(self, file: Segment, number: int, unit: BatchEntry) -> None:
        about = {"offset": number * SIZE, "queueOffset": unit.base_queue_offset}
        if unit.base_queue_offset <= self._last:
            expected = f"more than {self._last}"
            self._report("compaction-order", file.path, expected=expected, actual=unit.base_queue_offset, **about)
        self._last = unit.base_queue_offset
        message = self.queue.look(unit)
        if isinstance(message, Damage):
            actual = f"position {unit.physical_offset}: {message.reason}"
            self._report("compaction-no-record", file.path, expected="a record", actual=actual, **about)
            return
        record = message.record
        stated = (record.topic, record.queue_id, record.queue_offset, record.total_size, record.physical_offset)
        topic = self.queue.topic.encode("utf-8", "surrogateescape")
        should = (topic, self.queue.queue_id, unit.base_queue_offset, unit.size, unit.physical_offset)
        if stated != should:
            expected, actual = _describe(*should), _describe(*stated)
            self._report("compaction-other-record", file.path, expected=expected, actual=actual, **about)
        elif not parse(record.properties).get(KEYS, "").strip():
            self._report("compaction-no-key", message.file.path, **(about | {"offset": message.at}))

    def _check_rest(self, file: Segment, units: "Array", count: int) -> None:
        """Check that the units of a file are followed by nothing, or by the end unit of a closed file."""
        at = count * SIZE
        if count >= len(units) or is_zero(file.path, at, file.size):
            return
        entry = BatchEntry(*units[count].tolist())
        later = int(_valid(units[count + 1 :]).sum())
        if entry == END_UNIT and not later:
            return
        empty = not any(entry)
        self._report(
            "compaction-hole" if empty and later else "compaction-torn",
            file.path,
            offset=at,
            count=max(later, 1),
            expected="a unit",
            actual=f"zeros, and {later} units after them" if empty else f"bytes that are none, {later} units follow",
        )

    def _check_log_end(self) -> None:
        """Report records at the end of the log without a unit."""
        queue, end = self.queue, self.queue.log_end
        for file in queue.log if queue.queue.files else ():
            start = max(end - file.base, 0)
            if start < file.size and (records := self._count_records(file, start)):
                self._report("compaction-unqueued", file.path, offset=start, count=records)

    def _count_records(self, file: Segment, start: int) -> int:
        """Number of consecutive records from a position of a file on."""
        at, records, view = start, 0, file.map()
        while at + 8 <= len(view) and says_position(view, file.base, at):
            size = int.from_bytes(view[at : at + 4], "big", signed=True)
            unit = BatchEntry(file.base + at, size, 0, 0, 0, 1)
            if size <= 0 or not isinstance(self.queue.look(unit), LocatedRecord):
                break
            records, at = records + 1, at + size
        file.release()
        return records

    def _compare_with_log(self) -> None:
        queue, ctx = self.queue, self.ctx
        end = ctx.queues_seen.ends.get((queue.topic, queue.queue_id))
        if end is None:
            return  # no queue to compare with
        if queue.max_offset > end:
            path = ctx.layout.queue_path(queue.topic, queue.queue_id)
            # a queue that has lost its files gets its end back from its compaction log by recovery; one whose log was
            # truncated does not
            lost: dict[str, Any] = {}
            if not ctx.log.segments.files:
                lost = {"steps": WITHOUT_LOG}
            elif not ctx.layout.files_in(path).files:
                lost = {"steps": (RECOVER,)}
            self._report("compaction-ahead", queue.path, expected=f"at most {end}", actual=queue.max_offset, **lost)
        wanted = list(self._find_wanted())
        if not wanted:
            return
        if not queue.queue.files and not queue.log.files:
            all_soon = all(self._is_redispatched(physical) for _offset, physical in wanted)
            self._report_missing("compaction-behind" if all_soon else "compaction-queue-missing", wanted)
            return
        known: set[int] = set()
        for _base, units in queue.runs():
            known.update(units["base_queue_offset"].tolist())
        missing = [entry for entry in wanted if entry[0] not in known]
        soon = [entry for entry in missing if entry[0] >= queue.max_offset and self._is_redispatched(entry[1])]
        for code, some in (("compaction-behind", soon), ("compaction-missing", sorted({*missing} - {*soon}))):
            if some:
                self._report_missing(code, some)

    def _report_missing(self, code: str, some: list[tuple[int, int]]) -> None:
        first, physical = some[0]
        severity = {"severity": INFO} if code == "compaction-behind" else {}
        rest = "is not there" if len(some) == 1 else f"the first at physical offset {physical}, are not there"
        actual = f"{counted(len(some), 'message')} of the commit log, {rest}"
        self._report(code, self.queue.path, queueOffset=first, count=len(some), actual=actual, **severity)

    def _is_redispatched(self, physical: int) -> bool:
        """Whether the next start adds this message of the commit log again."""
        start = self.ctx.start.redispatch_from
        return start is not None and physical >= start

    def _find_wanted(self) -> Iterator[tuple[int, int]]:
        """(queue offset, physical offset) of messages of the commit log that must be in the compaction log.

        These are all messages after the last compaction, and before it the newest of each key unless it deletes the
        key.
        """
        entries = open_any_queue(self.ctx.layout, self.queue.topic, self.queue.queue_id)
        newest: dict[bytes, tuple[int, int, bool]] = {}
        topic = self.queue.topic.encode("utf-8", "surrogateescape")
        for entry in entries.entries(entries.min_offset(self.ctx.log.min_offset)) if entries is not None else ():
            message = self.ctx.log.read(entry.physical_offset, crc=False)
            if message is None or message.record.topic != topic:
                continue
            key = parse(message.record.properties).get(KEYS, "")
            if not key.strip():
                continue  # a broker ignores it
            raw = key.encode("utf-8", "surrogatepass")
            if (before := newest.pop(raw, None)) is not None and before[0] > self.position:
                yield before[:2]
            newest[raw] = (entry.queue_offset, entry.physical_offset, bool(message.record.body))
        for offset, physical, body in newest.values():
            if body or offset > self.position:
                yield offset, physical


def _describe(topic: bytes, queue_id: int, queue_offset: int, size: int, position: int) -> str:
    return f"{topic.decode('utf-8', 'replace')} queue {queue_id} offset {queue_offset}, {size} bytes, at {position}"


def _valid(units: "Array") -> "Array":
    good = (units["physical_offset"] >= 0) & (units["size"] > 0)
    good &= (units["base_queue_offset"] >= 0) & (units["batch_size"] > 0)
    return good
