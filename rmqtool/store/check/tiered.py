"""Check tiered storage: its metadata against its segments, and its queues against its logs.

Source: tieredstore.file.FlatAppendFile (recover, recoverFileSize), core.MessageStoreDispatcherImpl (5.3.3).
"""

from itertools import pairwise

from formats.config.tiered import COMMIT_LOG, CONSUME_QUEUE, DELETED, INDEX, TieredMetadata, TieredSegment
from formats.layouts.derived import CQ_ENTRY
from formats.message.read import Record, read
from rmqtool.errors import RmqError, UnreadableStore
from rmqtool.store.check.common.context import Context
from rmqtool.store.config.files import read_config
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.layout.tier_signs import LOCAL_INDEX, METADATA
from rmqtool.store.layout.tiered import TieredFiles, tiered_files
from rmqtool.store.tier.tier import local_ranges

_AT_ONCE = 4096  # queue entries per read


def check_tiered(ctx: Context) -> None:
    """Check everything; does nothing for a store without tiered storage."""
    try:
        files = tiered_files(ctx.layout)
        metadata = _metadata(ctx)
        if metadata is not None or files.segments or files.foreign:
            _Check(ctx, files, metadata).run()
    except UnreadableStore as err:
        ctx.found.add("file-unreadable", METADATA, actual=str(err))
    if any(entry.is_file() for entry in ctx.layout.entries(LOCAL_INDEX)):
        ctx.found.add("not-checked", LOCAL_INDEX, actual="the index of tiered storage: only searches by key use it")


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


def _metadata(ctx: Context) -> TieredMetadata | None:
    for bak in (False, True):
        try:
            if isinstance(config := read_config(ctx.layout, METADATA, bak=bak), TieredMetadata):
                return config
        except RmqError:
            continue  # reported with the other config files
    return None


class _Check:
    def __init__(self, ctx: Context, files: TieredFiles, metadata: TieredMetadata | None) -> None:
        self.ctx, self.files, self.metadata = ctx, files, metadata or TieredMetadata()

    def run(self) -> None:
        known = {(segment.path, segment.type, segment.base_offset): segment for segment in self.metadata.segments()}
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
        for table in (self.metadata.commit_logs, self.metadata.consume_queues, self.metadata.indexes):
            for path, segments in sorted(table.items()):
                self._check_chain(
                    path, [segment for _base, segment in sorted(segments.items()) if segment.status != DELETED]
                )
        for path in sorted(self.metadata.consume_queues):
            self._check_queue(path)

    def _check_chain(self, path: str, segments: list[TieredSegment]) -> None:
        """Check segments of one kind and queue: each must begin where the previous one ends."""
        for segment in segments:
            file = self.files.segments.get((path, segment.type, segment.base_offset))
            about = {"expected": f"{segment.size} bytes"}
            if file is None:
                actual = f"{path}: segment {segment.base_offset} of type {segment.type}"
                self.ctx.found.add("tiered-missing", METADATA, actual=actual, **about)
            elif file.size < segment.size:
                self.ctx.found.add("tiered-short", self.ctx.name(file.path), actual=f"{file.size} bytes", **about)
        for before, after in pairwise(segments):
            if before.type != INDEX and before.base_offset + before.size != after.base_offset:
                expected = f"{path}: a segment of type {before.type} at {before.base_offset + before.size}"
                self.ctx.found.add("tiered-gap", METADATA, expected=expected, actual=after.base_offset)

    def _check_queue(self, path: str) -> None:
        """Check that every entry of a queue points to its message."""
        logs = Segments(self._sort(path, COMMIT_LOG), [])
        broker_and_topic, _slash, queue_id = path.rpartition("/")
        topic = broker_and_topic.partition("/")[2].encode("utf-8", "surrogateescape")
        for file in self._sort(path, CONSUME_QUEUE):
            for at in range(0, file.size - CQ_ENTRY.size + 1, _AT_ONCE * CQ_ENTRY.size):
                data = file.read(at, _AT_ONCE * CQ_ENTRY.size)
                for start in range(0, len(data) - CQ_ENTRY.size + 1, CQ_ENTRY.size):
                    position, size, _tags = CQ_ENTRY.unpack_from(data, start)
                    offset = (file.base + at + start) // CQ_ENTRY.size
                    reason = _find_fault(logs.find(position), position, size, (topic, queue_id, offset))
                    if reason is not None:
                        self.ctx.found.add(
                            "tiered-message",
                            self.ctx.name(file.path),
                            offset=at + start,
                            topic=topic.decode("utf-8", "surrogateescape"),
                            queueOffset=offset,
                            actual=reason,
                        )
        for log in logs:
            log.release()

    def _sort(self, path: str, kind: int) -> list[Segment]:
        keys = sorted(key for key in self.files.segments if key[:2] == (path, kind))
        return [self.files.segments[key] for key in keys]


def _find_fault(log: Segment | None, position: int, size: int, message: tuple[bytes, str, int]) -> str | None:
    """Why the position of an entry does not contain its message; None if it does."""
    if log is None:
        return f"position {position}: no segment"
    record = read(log.view(), position - log.base, log.size)
    if not isinstance(record, Record):
        return f"position {position}: {record.reason}"
    if record.total_size != size:
        return f"position {position}: a record of {record.total_size} bytes, not {size}"
    if (record.topic, str(record.queue_id), record.queue_offset) != message:
        topic = record.topic.decode("utf-8", "replace")
        return f"position {position}: {topic} {record.queue_id}, queue offset {record.queue_offset}"
    return None
