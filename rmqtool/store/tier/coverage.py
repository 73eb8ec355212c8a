"""What of each queue is in the tier, in the local log, in both, or in neither."""

from collections.abc import Mapping
from dataclasses import dataclass

from formats.config.files import DelayOffsets
from formats.config.tiered import TYPES
from formats.queues.consume import FILLER_SIZE
from formats.topics import SCHEDULE
from rmqtool.contract import PlainRow
from rmqtool.store.config.files import read_either
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.tiered import tiered_files
from rmqtool.store.queues.batch import AnyQueue, every_queue
from rmqtool.store.tier.tier import Key, Tier, TierQueue, local_ranges, metadata_of

_NO_QUEUE = TierQueue(0, 0, [], [])


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCoverage(PlainRow):
    """One queue of a broker with a tier. Offsets are queue offsets; each range ends before its second one.

    Attributes:
        localMinOffset: the lowest one whose message is in the local log.
        lost: messages that are in neither, although the local queue or the tier shows that they existed.
        lostRanges: their offsets, ``first:next``.
        waiting: how many of them were delayed messages that were not delivered yet.
        segments, bytes: files of the tier, queue and log.
    """

    topic: str
    queueId: int
    tierMinOffset: int
    tierMaxOffset: int
    localMinOffset: int
    localMaxOffset: int
    inTierAlone: int
    inBoth: int
    inLogAlone: int
    lost: int
    lostRanges: list[str]
    waiting: int
    segments: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSegment(PlainRow):
    """A segment: a file, a line of the metadata, or both.

    Attributes:
        path: ``broker/topic/queue``.
        size: length of the file; None if there is none.
        metadataSize: length by the metadata; None if they do not have the segment.
    """

    path: str
    type: str
    baseOffset: int
    size: int | None
    metadataSize: int | None
    file: str | None


def coverage_of(layout: StoreLayout, tier: Tier) -> list[QueueCoverage]:
    """Every queue in the tier or in the local store, by topic and queue id.

    Raises:
        UnreadableStore, CorruptFile: queues cannot be read.
        MissingRuntime: they are in RocksDB, and the library to read them is not installed.
    """
    queues = {(queue.topic, queue.queue_id): queue for queue in every_queue(layout)}
    ranges, delivered = local_ranges(layout, queues.values()), delivered_offsets(layout)
    covered = []
    for key in sorted({*queues, *tier.queues}):
        tiered, (low, high) = tier.queues.get(key, _NO_QUEUE), ranges.get(key, (0, 0))
        in_tier, local = range(tiered.min_offset, tiered.max_offset), range(low, high)
        both = len(range(max(in_tier.start, low), min(in_tier.stop, high)))
        lost, waiting = lost_and_waiting(key, queues.get(key), tiered, low, delivered)
        covered.append(
            QueueCoverage(
                topic=key[0],
                queueId=key[1],
                tierMinOffset=in_tier.start,
                tierMaxOffset=in_tier.stop,
                localMinOffset=low,
                localMaxOffset=high,
                inTierAlone=len(in_tier) - both,
                inBoth=both,
                inLogAlone=len(local) - both,
                lost=sum(map(len, lost)),
                lostRanges=[f"{offsets.start}:{offsets.stop}" for offsets in lost],
                waiting=waiting,
                segments=len(tiered.units) + len(tiered.log),
                bytes=sum(file.size for file in (*tiered.units, *tiered.log)),
            )
        )
    return covered


def lost_and_waiting(
    key: Key, queue: AnyQueue | None, tiered: TierQueue | None, low: int, delivered: Mapping[int, int]
) -> tuple[list[range], int]:
    """Queue offsets below the local log whose messages are not in the tier either, and how many were not delivered.

    Args:
        key: topic and queue id.
        queue: the local queue; its files may have entries of messages that are no longer in the log.
        low: the lowest queue offset whose message is in the local log.
        delivered: see :func:`delivered_offsets`.
    """
    first = next((entry.queue_offset for entry in queue.entries() if entry.size != FILLER_SIZE), low) if queue else low
    gaps = [range(first, low)]
    if tiered is not None and tiered.max_offset > tiered.min_offset:
        begin = min(first, tiered.max_offset)
        gaps = [range(begin, min(tiered.min_offset, low)), range(max(begin, tiered.max_offset), low)]
    lost = [gap for gap in gaps if len(gap)]
    waits_from = delivered.get(key[1], 0) if key[0] == SCHEDULE else low
    return lost, sum(len(range(max(gap.start, waits_from), gap.stop)) for gap in lost)


def delivered_offsets(layout: StoreLayout) -> dict[int, int]:
    """Queue offset up to which each queue of delayed messages was delivered."""
    offsets = read_either(layout, "delayOffset.json")
    return {level - 1: at for level, at in offsets.offsets.items()} if isinstance(offsets, DelayOffsets) else {}


def segments_of(layout: StoreLayout) -> list[TierSegment]:
    """Every segment that exists or that the metadata name, by path, type and base offset.

    Raises:
        UnreadableStore: a directory cannot be listed.
    """
    files, metadata = tiered_files(layout).segments, metadata_of(layout)
    known = {(s.path, s.type, s.base_offset): s.size for s in (metadata.segments() if metadata else ())}
    return [
        TierSegment(
            path=key[0],
            type=TYPES.get(key[1], str(key[1])),
            baseOffset=key[2],
            size=files[key].size if key in files else None,
            metadataSize=known.get(key),
            file=files[key].path if key in files else None,
        )
        for key in sorted({*files, *known})
    ]
