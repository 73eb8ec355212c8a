"""A commit log cut into byte ranges that can be read apart, and the proof that together they are the whole log.

A range begins at the first record that says its own position and owns what follows, as
:func:`rmqtool.store.log.commit_log.walk_file` tells. That guess can be wrong: a message's body may hold a record, and
behind an end-of-file blank may lie old ones. Each range therefore tells where it began and where the next one must
begin; where the two disagree, :func:`repairs` says what to read again.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from formats.endings import Ending
from rmqtool.store.disk.remote import file_size, uri_of
from rmqtool.store.disk.segments import Segment
from rmqtool.store.disk.sparse import extents_of
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.tier_signs import tier_sign
from rmqtool.store.log.commit_log import CommitLog, Damage

SPLIT_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class Split:
    """Bytes [start, stop) of one commit-log file."""

    number: int  # of this split in its plan
    path: str
    base: int  # physical offset of the file's first byte
    size: int  # of the file
    start: int
    stop: int
    last: bool  # whether the file is the log's last one
    exact: bool  # whether a record is known to begin at start, or to be missing there
    uri: str | None = None  # of a store that is elsewhere
    entries: bool = False  # whether the file is of a DLedger log
    tier: int | None = None  # number among those of tiered storage, whose positions are the same in every queue

    @property
    def place(self) -> str:
        """Where it begins, for the name of a file."""
        return f"{self.base + self.start:020d}" + (f"-t{self.tier:05d}" if self.tier is not None else "")

    def segment(self) -> Segment:
        """The file, to be read."""
        if self.uri is not None:
            from rmqtool.analytics.remote.stores import attach_store

            attach_store(self.uri)
        return Segment(self.path, self.base, self.size, 0, entries=self.entries)


class Walked(Protocol):
    """What reading a split has shown. Both are bytes in the file."""

    @property
    def first(self) -> int:
        """Where reading began; the split's stop when no record begins in it."""

    @property
    def next(self) -> int:
        """Where the next split must begin."""


def plan(
    log: CommitLog, start: int | None = None, stop: int | None = None, split_bytes: int = SPLIT_BYTES
) -> tuple[list[Split], list[Damage]]:
    """Splits in the order of the log, and the files that cannot be read at all.

    Args:
        start: physical offset to begin at, in whole records.
        stop: physical offset to end at, exclusive.
        split_bytes: size of a split; files smaller than that are one.
    """
    splits: list[Split] = []
    unusable = []
    files = log.segments.files
    for path in log.segments.foreign:
        if name_of(path).isdecimal() and (size := file_size(path)) is not None:
            reason = "the file's name is beyond any 64-bit offset"
            unusable.append(Damage(path, 0, int(name_of(path)), size, Ending.DAMAGED, reason))
    for file in files:
        uri = uri_of(file.path)
        first = max((start or 0) - file.base, 0)
        limit = file.size if stop is None else min(file.size, stop - file.base)
        filled = limit if uri is not None else _end_of_data(file.path, first, limit)
        for at in range(first, limit, split_bytes):
            # what was never written behind the last of a file is no work for a task of its own
            end = limit if at + split_bytes >= filled else at + split_bytes
            last, exact = file is files[-1], at == 0
            place = len(splits), file.path, file.base, file.size, at, end
            splits.append(Split(*place, last, exact, uri, file.entries))
            if end == limit:
                break
    return splits, unusable


def plan_tier(layout: StoreLayout, asked: Callable[[str, int], bool] | None = None, number: int = 0) -> list[Split]:
    """Splits of the messages that tiered storage alone has, where its segments are files of this machine.

    Args:
        asked: whether a queue is wanted (topic, queue id); all by default.
        number: of the first of them.
    """
    if tier_sign(layout) is None or uri_of(layout.root) is not None:
        return []
    from rmqtool.store.tier.only_tiered import OnlyTiered  # few stores have a tier

    return [
        Split(
            number + tier,
            stretch.file.path,
            stretch.file.base,
            stretch.file.size,
            stretch.start,
            stretch.stop,
            last=False,
            exact=True,
            tier=tier,
        )
        for tier, stretch in enumerate(OnlyTiered(layout).stretches(asked))
    ]


def _end_of_data(path: str, start: int, stop: int) -> int:
    """Where the last bytes of a range end that are not a hole."""
    return max((end for _start, end in extents_of(path, start, stop)), default=start)


def repairs(splits: Sequence[Split], walked: Callable[[Split], Walked]) -> tuple[list[Split], list[Split]]:
    """Which splits were not read from where the one before them ended.

    Args:
        splits: a whole plan, in order.
        walked: what reading a split has shown.

    Returns:
        Splits to read again (at most one of each file: what it shows decides about those behind it), and splits in
        which nothing begins, whose rows must go.
    """
    again: list[Split] = []
    empty: list[Split] = []
    path, expected, waiting = "", -1, False
    for split in splits:
        walk = walked(split)
        if split.path != path:
            path, expected, waiting = split.path, walk.next, False
        elif waiting:
            continue
        elif expected >= split.stop:
            if walk.first < split.stop:
                empty.append(split)
        elif walk.first == expected:
            expected = walk.next
        else:
            again.append(replace(split, start=expected, exact=True))
            waiting = True
    return again, empty


def name_of(path: str) -> str:
    """The name of a commit-log file, as the column ``sourceFile`` has it."""
    return os.path.basename(path)
