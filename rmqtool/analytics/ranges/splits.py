"""Splits a commit log into byte ranges that can be read independently.

A range begins at the first record whose physical offset matches its position and includes what follows, as defined by
:func:`rmqtool.store.log.commit_log.walk_file`. This can be wrong: a message body can contain a record, and old records
can follow an end-of-file blank. Each range therefore reports where it began and where the next one must begin; where
these disagree, it is read again (:func:`rmqtool.analytics.dump.tasks.reconcile`).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats.endings import Ending
from rmqtool.store.disk.directories import file_size
from rmqtool.store.disk.remote import uri_of
from rmqtool.store.disk.segments import Segment
from rmqtool.store.disk.sparse import data_end
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.tier_signs import tier_sign
from rmqtool.store.log.commit_log import CommitLog, Damage

if TYPE_CHECKING:
    from rmqtool.store.tier.tier import Stretch

SPLIT_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class TieredPart:
    """What a split of a tiered segment belongs to.

    Attributes:
        number: among tiered splits, whose positions repeat in every queue.
        offsets: the first queue offset of its messages, and the one after the last.
        units: (path, position, size) of the segments of the queue's entries.
    """

    number: int
    topic: str
    queue_id: int
    offsets: tuple[int, int]
    units: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Split:
    """Bytes [start, stop) of one commit-log file."""

    number: int  # number of this split in the plan
    path: str
    base: int  # physical offset of the file's first byte
    size: int  # size of the file
    start: int
    stop: int
    last: bool  # whether the file is the log's last one
    exact: bool  # whether start is known to be a record boundary
    uri: str | None = None  # URI of a remote store
    entries: bool = False  # whether the file belongs to a DLedger log
    tier: TieredPart | None = None  # if the file is a tiered segment

    @property
    def place(self) -> str:
        """Position of the split, for use in file names."""
        return f"{self.base + self.start:020d}" + (f"-t{self.tier.number:05d}" if self.tier is not None else "")

    def segment(self) -> Segment:
        """Return the file for reading."""
        if self.uri is not None:
            from rmqtool.analytics.remote.stores import attach_store

            attach_store(self.uri)
        return Segment(self.path, self.base, self.size, 0, entries=self.entries)

    def stretch(self, file: Segment) -> "Stretch | None":
        """Return what :func:`split_of_tier` was given; None for a split of the log."""
        if (tier := self.tier) is None:
            return None
        from rmqtool.store.tier.tier import Stretch

        units = [Segment(*unit, 0) for unit in tier.units]
        return Stretch(file, self.start, self.stop, tier.topic, tier.queue_id, range(*tier.offsets), units)


def plan(
    log: CommitLog, start: int | None = None, stop: int | None = None, split_bytes: int = SPLIT_BYTES
) -> tuple[list[Split], list[Damage]]:
    """Return the splits in log order, and the files that cannot be read at all.

    Args:
        start: physical offset to begin at; only whole records are included.
        stop: physical offset to end at, exclusive.
        split_bytes: size of a split; smaller files form one split.
    """
    splits: list[Split] = []
    unusable = []
    files = log.segments.files
    for path in log.segments.foreign:
        name = os.path.basename(path)
        if name.isdecimal() and (size := file_size(path)) is not None:
            reason = "the file's name is beyond any 64-bit offset"
            unusable.append(Damage(path, 0, int(name), size, Ending.DAMAGED, reason))
    for file in files:
        uri = uri_of(file.path)
        first = max((start or 0) - file.base, 0)
        limit = file.size if stop is None else min(file.size, stop - file.base)
        filled = limit if uri is not None else data_end(file.path, first, limit)
        for at in range(first, limit, split_bytes):
            # unwritten space at the end of a file needs no task of its own
            end = limit if at + split_bytes >= filled else at + split_bytes
            last, exact = file is files[-1], at == 0
            place = len(splits), file.path, file.base, file.size, at, end
            splits.append(Split(*place, last, exact, uri, file.entries))
            if end == limit:
                break
    return splits, unusable


def plan_tier(layout: StoreLayout, asked: Callable[[str, int], bool] | None = None, number: int = 0) -> list[Split]:
    """Return splits for messages that exist only in tiered storage, if its segments are local files.

    Args:
        asked: returns whether a queue (topic, queue id) is wanted; all by default.
        number: number of the first split.
    """
    if tier_sign(layout) is None or uri_of(layout.root) is not None:
        return []
    from rmqtool.store.tier.only_tiered import OnlyTiered  # few stores have a tier

    return [split_of_tier(stretch, tier, number) for tier, stretch in enumerate(OnlyTiered(layout).stretches(asked))]


def split_of_tier(stretch: "Stretch", tier: int, number: int = 0) -> Split:
    """Return the split of a stretch of a tiered segment.

    Args:
        tier: its number among tiered splits.
        number: of the first of them among all splits.
    """
    file, offsets = stretch.file, (stretch.offsets.start, stretch.offsets.stop)
    units = tuple((unit.path, unit.base, unit.size) for unit in stretch.units)
    place = number + tier, file.path, file.base, file.size, stretch.start, stretch.stop
    part = TieredPart(tier, stretch.topic, stretch.queue_id, offsets, units)
    return Split(*place, last=False, exact=True, tier=part)
