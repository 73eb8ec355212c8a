"""Check tiered storage: metadata, segments, queues, logs and index, and what the local log has of the same queues.

Source: tieredstore.file.FlatAppendFile (recover, recoverFileSize), core.MessageStoreDispatcherImpl (5.3.3).
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from formats.config.tiered import DELETED, INDEX, TieredMetadata
from formats.layouts.derived import CQ_ENTRY
from formats.message.read import Record, read
from rmqtool.errors import RmqError, UnreadableStore
from rmqtool.progress import stage
from rmqtool.rules.releases import Release
from rmqtool.store.check.advice.advice import Situation
from rmqtool.store.check.codes.all import INFO, WARNING
from rmqtool.store.check.common.context import Context
from rmqtool.store.check.common.findings import DETAILS, Finding, FindingCollector
from rmqtool.store.check.tiered_index import TieredIndexCheck
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.tier_signs import METADATA
from rmqtool.store.layout.tiered import TieredFiles, tiered_files
from rmqtool.store.queues.batch import AnyQueue, every_queue
from rmqtool.store.tier.coverage import delivered_offsets, lost_and_waiting
from rmqtool.store.tier.tier import Key, Tier, TierQueue, local_ranges, metadata_of

_AT_ONCE = 4096  # queue entries per read


def check_tier(
    layout: StoreLayout, *, release: Release | None = None, details: int = DETAILS, situation: Situation | None = None
) -> Iterator[Finding]:
    """Check only the tier of a store, and what it and the local log have in common; see :func:`check_store`."""
    ctx = Context(layout.passing_over(), FindingCollector(details, situation), release)
    check_tier_continues(ctx)
    check_tiered(ctx)
    yield from ctx.found.rest()


def check_tiered(ctx: Context) -> None:
    """Check everything; does nothing for a store without tiered storage."""
    try:
        files = tiered_files(ctx.layout)
        metadata = metadata_of(ctx.layout)
        if metadata is not None or files.segments or files.foreign:
            _Check(ctx, files, metadata).run()
    except UnreadableStore as err:
        ctx.found.add("file-unreadable", METADATA, actual=str(err))


def check_tier_continues(ctx: Context) -> None:
    """Check whether a broker's next start could continue with the tier; reported before other findings."""
    try:
        tier = ctx.tier
        dangers = tier.dangers(local_ranges(ctx.layout)) if tier is not None and not ctx.log_seen.absent else []
    except RmqError:
        return  # unreadable queues are reported by their check
    for danger in reversed(dangers):
        about = {"topic": danger.topic, "queueId": danger.queueId} if danger.topic is not None else {}
        ctx.found.add(f"tiered-{danger.kind}", METADATA, count=max(danger.messages, 1), actual=danger.words, **about)
        ctx.found.first()


class _Check:
    def __init__(self, ctx: Context, files: TieredFiles, metadata: TieredMetadata | None) -> None:
        self.ctx, self.files, self.metadata = ctx, files, metadata or TieredMetadata()
        self.local: dict[Key, tuple[AnyQueue, int, int]] = {}  # queue, lowest offset in the log, next offset

    def run(self) -> None:
        known = {(s.path, s.type, s.base_offset): s.size for s in self.metadata.segments()}
        if self.files.folder is None:
            if known:
                actual = f"{len(known)} segments of tiered storage, which are not files here"
                self.ctx.found.add("not-checked", METADATA, actual=actual)
            return
        for path in self.files.foreign:
            self.ctx.found.add("file-ignored", self.ctx.name(path))
        for key, segment in sorted(self.files.segments.items()):
            if key not in known:
                self.ctx.found.add("tiered-unknown", self.ctx.name(segment.path), actual=f"{segment.size} bytes")
        tier = self.ctx.tier
        if tier is None:
            return  # its directories cannot be read
        self._check_chains(tier, known)
        self._open_local_queues()
        with stage("checking the tier", unit="queues") as checking:
            for name, queue in sorted(tier.queues.items()):
                self._check_queue(name, queue)
                checking.done += 1
        self._check_lost(tier)
        TieredIndexCheck(self.ctx, tier, self.metadata).run()

    def _open_local_queues(self) -> None:
        try:
            queues = every_queue(self.ctx.layout)
            ranges = local_ranges(self.ctx.layout, queues)
        except RmqError:
            return  # reported by their check
        self.local = {(q.topic, q.queue_id): (q, *ranges[q.topic, q.queue_id]) for q in queues}

    # -- segments -----------------------------------------------------------------------------------------------------

    def _check_chains(self, tier: Tier, known: dict[tuple[str, int, int], int]) -> None:
        """Check the length of every segment, and that each begins where the previous one ends."""
        chains: dict[tuple[str, int], set[int]] = {}
        deleted = {(s.path, s.type, s.base_offset) for s in self.metadata.segments() if s.status == DELETED}
        for path, kind, base in {*known, *tier.segments} - deleted:
            chains.setdefault((path, kind), set()).add(base)
        for (path, kind), bases in sorted(chains.items()):
            order = sorted(bases)
            for base in order:
                self._check_length((path, kind, base), known, last=base == order[-1])
            for before, after in pairwise(order) if kind != INDEX else ():
                file = self.files.segments.get((path, kind, before))
                end = before + known.get((path, kind, before), file.size if file is not None else 0)
                if end != after:
                    expected = f"{path}: a segment of type {kind} at {end}"
                    self.ctx.found.add("tiered-gap", METADATA, expected=expected, actual=after)

    def _check_length(self, key: tuple[str, int, int], known: dict[tuple[str, int, int], int], *, last: bool) -> None:
        file, size = self.files.segments.get(key), known.get(key)
        if size is None:
            return
        path, kind, base = key
        about: dict[str, Any] = {"expected": f"{size} bytes"}
        if file is None:
            self.ctx.found.add("tiered-missing", METADATA, actual=f"{path}: segment {base} of type {kind}", **about)
        elif file.size < size:
            self.ctx.found.add("tiered-short", self.ctx.name(file.path), actual=f"{file.size} bytes", **about)
        elif file.size > size:
            about["severity"] = INFO if last else WARNING
            self.ctx.found.add("tiered-long", self.ctx.name(file.path), actual=f"{file.size} bytes", **about)

    # -- messages -----------------------------------------------------------------------------------------------------

    def _check_queue(self, key: Key, queue: TierQueue) -> None:
        """Check every record that an entry leads to, against the entry and against the local log."""
        logs, listed = Segments(queue.log, []), _Ranges()
        for file in queue.units:
            whole = file.size - file.size % CQ_ENTRY.size
            for at in range(0, whole, _AT_ONCE * CQ_ENTRY.size):
                data = file.read(at, min(_AT_ONCE * CQ_ENTRY.size, whole - at))
                for start in range(0, len(data) - CQ_ENTRY.size + 1, CQ_ENTRY.size):
                    position, size, _tags = CQ_ENTRY.unpack_from(data, start)
                    offset = (file.base + at + start) // CQ_ENTRY.size
                    record = _find_message(logs.find(position), position, size, (*key, offset))
                    if not isinstance(record, Record):
                        self._add("tiered-message", file, at + start, key, offset, record)
                    elif (fault := self._compare(key, offset, record)) is not None:
                        self._add("tiered-differs", file, at + start, key, offset, fault)
                    listed.add(position, position + max(size, 0))
            if whole < file.size:
                reason = f"{file.size - whole} bytes of an entry"
                self._add("tiered-message", file, whole, key, (file.base + whole) // CQ_ENTRY.size, reason)
        for file in queue.log:
            self._check_unlisted(file, key, listed)
            file.release()

    def _add(self, code: str, file: Segment, at: int, key: Key, queue_offset: int, actual: str) -> None:
        about = {"topic": key[0], "queueId": key[1], "queueOffset": queue_offset}
        self.ctx.found.add(code, self.ctx.name(file.path), offset=at, actual=actual, **about)

    def _compare(self, key: Key, queue_offset: int, record: Record) -> str | None:
        """Why the local log has another message; None if it has the same, none at all, or a damaged one."""
        queue, low, high = self.local.get(key, (None, 0, 0))
        if queue is None or not low <= queue_offset < high:
            return None
        entry = queue.entry(queue_offset)
        located = self.ctx.log.read(entry.physical_offset) if entry is not None else None
        if located is None or located.record.queue_offset != queue_offset:
            return None
        local = located.record._replace(physical_offset=record.physical_offset)
        fields = [name for name, a, b in zip(Record._fields, record, local, strict=True) if a != b]
        return f"other {', '.join(fields)} than at {entry.physical_offset} of the log" if fields and entry else None

    def _check_unlisted(self, log: Segment, key: Key, listed: "_Ranges") -> None:
        """Count the records of a segment that no entry leads to, as a kill before the entries were written leaves."""
        records = at = first = 0
        begin = max(log.base, listed.first)  # entries before it expired
        for start, stop in listed.gaps(begin, log.end):
            at = start - log.base
            while at < stop - log.base and isinstance(record := read(log.view(), at, stop - log.base), Record):
                first = first if records else at
                records, at = records + 1, at + record.total_size
        if records:
            about: dict[str, Any] = {"topic": key[0], "queueId": key[1], "offset": first}
            self.ctx.found.add("tiered-unlisted", self.ctx.name(log.path), count=records, **about)

    def _check_lost(self, tier: Tier) -> None:
        """Report messages that are neither in the local log nor in the tier; brokers never upload system topics."""
        delivered = delivered_offsets(self.ctx.layout)
        for key in sorted({*self.local, *tier.queues}):
            queue, low, _high = self.local.get(key, (None, 0, 0))
            lost, waiting = lost_and_waiting(key, queue, tier.queues.get(key), low, delivered)
            about: dict[str, Any] = {"topic": key[0], "queueId": key[1]}
            for offsets in (range(part.start, min(part.stop, low - waiting)) for part in lost):
                if not len(offsets):
                    continue  # all of them wait
                actual = f"queue offsets {offsets.start} to {offsets.stop - 1}"
                self.ctx.found.add(
                    "tiered-lost", METADATA, count=len(offsets), queueOffset=offsets.start, actual=actual, **about
                )
            if waiting:
                actual = f"queue offsets {low - waiting} to {low - 1}"
                self.ctx.found.add(
                    "tiered-undelivered", METADATA, count=waiting, queueOffset=low - waiting, actual=actual, **about
                )


class _Ranges:
    """Ranges of an address space that are added mostly in order, and what lies between them."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []

    def add(self, start: int, stop: int) -> None:
        if self._stops and start == self._stops[-1]:
            self._stops[-1] = stop
        elif not self._stops or start > self._stops[-1]:
            self._starts.append(start)
            self._stops.append(stop)

    @property
    def first(self) -> int:
        """Where the first range begins; 0 without any."""
        return self._starts[0] if self._starts else 0

    def gaps(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """The parts of [low, high) that no range covers."""
        at = low
        for row in range(max(bisect_right(self._starts, low) - 1, 0), len(self._starts)):
            start, stop = self._starts[row], self._stops[row]
            if start >= high:
                break
            if start > at:
                yield at, start
            at = max(at, stop)
        if at < high:
            yield at, high


def _find_message(log: Segment | None, position: int, size: int, message: tuple[str, int, int]) -> Record | str:
    """The message of an entry, or why it is not there."""
    if log is None:
        return f"position {position}: no segment"
    record = read(log.view(), position - log.base, log.size)
    if not isinstance(record, Record):
        return f"position {position}: {record.reason}"
    if record.total_size != size:
        return f"position {position}: a record of {record.total_size} bytes, not {size}"
    topic = record.topic.decode("utf-8", "surrogateescape")
    if (topic, record.queue_id, record.queue_offset) != message:
        return f"position {position}: {topic} {record.queue_id}, queue offset {record.queue_offset}"
    return record
