"""The log of several copies of one store, each message once.

The first copy is the base: its history counts. Where it has no intact record, one comes from another copy that has the
same history there: a place is looked at in all copies, body checksums and the ends of properties included. Records that
are intact and not the same are decided by the majority of their bits, and all of them are kept in ``lost+found``. What
another copy has of a history of its own follows after everything else.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from heapq import merge
from itertools import groupby
from typing import NamedTuple

import numpy as np

from formats.endings import Ending
from formats.message.properties import parse
from formats.message.read import Record
from formats.variants.dledger import HEAD_SIZE
from rmqtool.errors import UnreadableStore
from rmqtool.store.disk.readable import Readable
from rmqtool.store.disk.sparse import has_bytes
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.log.comparison import LogComparison, Numbers, compare_logs, look_at
from rmqtool.store.log.dledger import why_unreadable
from rmqtool.store.log.scan import scan_log
from rmqtool.store.salvage.records import torn_properties
from rmqtool.store.salvage.survey import true_files, true_length

_NOWHERE, _EVERYWHERE = -1, 1 << 62
Expects = Callable[[Record], bool]


class Taken(NamedTuple):
    """A record for the new store.

    Attributes:
        copy: the number of the copy that it comes from.
        own: it is of a history of its own, and follows what the base has in its queue.
        others: intact records that contradict it: (number of the copy, record).
    """

    located: LocatedRecord
    copy: int = 0
    own: bool = False
    others: tuple[tuple[int, LocatedRecord], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTaken:
    """What a salvage of several copies took from one of them.

    Attributes:
        taken: number of its records in the new store.
        known: intact records that another copy gave already.
        damaged: places of its log without an intact record.
        contradicting: intact records that other copies contradict; ``lost+found`` has them too.
    """

    store: str
    taken: int
    known: int
    damaged: int
    contradicting: int


class _Copy:
    """One copy, and its relation to the base."""

    def __init__(self, layout: StoreLayout, log: CommitLog) -> None:
        self.layout, self.log = layout, log
        self.limit = _NOWHERE  # up to this physical offset its history is the base's
        self.own: Numbers = np.zeros(0, np.int64)  # physical offsets of messages that the base does not have
        self.replaced: dict[int, int] = {}  # of these, the physical offset of the base's message with that queue offset
        self.taken = self.contradicting = 0


@dataclass(slots=True)
class _Candidate:
    copy: int
    located: LocatedRecord

    @property
    def raw(self) -> bytes:
        return _raw(self.located)


class MergedLog:
    """The records of several copies.

    Args:
        base: the log of the first copy.
        layouts: the other copies.

    Attributes:
        warnings: sentences about their files.
        first: physical offset at which the merged log begins.
    """

    def __init__(self, base: CommitLog, layouts: Sequence[StoreLayout]) -> None:
        self.warnings: list[str] = []
        self._disks: list[Readable] = []
        self._copies = [_Copy(base.layout, base)]
        self._differing: set[int] = set()
        for layout in layouts:
            copy = _Copy(layout, self._open(layout))
            self._relate(copy, compare_logs(base, copy.log))
            self._copies.append(copy)
        starts = [copy.log.min_offset for copy in self._copies if copy.limit > copy.log.min_offset]
        self.first = max(min([base.min_offset, *starts]), 0)
        self._parted = any(copy.limit != _EVERYWHERE for copy in self._copies[1:])
        self._given: set[bytes] = set()  # digests of what other copies than the base gave, if any has an own history
        self._entries = any(file.entries for file in base.segments)
        self._filled: list[tuple[int, int]] = []  # ranges without an intact record of the base
        self._chosen: list[int] = []  # physical offsets of its records that were held against the others

    @classmethod
    def of(cls, layouts: Sequence[StoreLayout]) -> "MergedLog":
        """The records of copies, the base first.

        Raises:
            UnreadableStore: the base has no log that can be read.
        """
        if (reason := why_unreadable(layouts[0])) is not None:
            raise UnreadableStore(reason)
        base, disk, warnings = _open(layouts[0])
        if not base.segments.files:
            raise UnreadableStore(f"{layouts[0].root}: no commit log in it")
        merged = cls(base, layouts[1:])
        merged._disks.append(disk)
        merged.warnings[:0] = warnings
        return merged

    @property
    def logs(self) -> list[CommitLog]:
        """The log of each copy, with its files where their records say that they belong."""
        return [copy.log for copy in self._copies]

    def _open(self, layout: StoreLayout) -> CommitLog:
        log, disk, warnings = _open(layout)
        self._disks.append(disk)
        self.warnings += warnings
        return log

    def _relate(self, copy: _Copy, compared: LogComparison) -> None:
        copy.limit = _common_end(compared, (self._copies[0].log, copy.log))
        if copy.limit == _NOWHERE and not _overlap(self._copies[0].log, copy.log):
            copy.limit = _EVERYWHERE  # each has what the other one has lost
        parted = [item for item in compared.differing if item.start >= copy.limit and not item.is_damage]
        self._differing.update(item.start for item in compared.differing if item.start < copy.limit)
        own = [run.second_at for run in compared.runs]
        own.append(np.array([item.second.physical_offset for item in parted], np.int64))
        copy.own = np.unique(np.concatenate(own))
        for run in compared.runs:
            if run.kind == "different":
                copy.replaced |= zip(run.second_at.tolist(), run.first_at.tolist(), strict=True)
        copy.replaced |= {item.second.physical_offset: item.first.physical_offset for item in parted}

    # -- all records --------------------------------------------------------------------------------------------------

    def walk(self, expects: Expects) -> Iterator[Taken | Damage]:
        """Every record of the new store, and every range that is damaged in all copies.

        Args:
            expects: whether a record is the next one of its queue.
        """
        base = self._copies[0].log
        at = self.first
        for item in base.walk():
            begin = _begin(item)
            if begin > at:  # a file is missing, or the blank at a file's end
                yield from self._fill(at, begin, None, expects)
            if isinstance(item, Damage):
                yield from self._fill(begin, begin + item.length, item, expects)
                at = begin + item.length
            else:
                yield self._choose(item, begin, expects)
                at = item.end
        yield from self._fill(at, _EVERYWHERE, None, expects)
        for number in range(1, len(self._copies)):
            yield from self._own(number)

    def _choose(self, item: LocatedRecord, begin: int, expects: Expects) -> Taken:
        """A record of the base, or a better one that another copy has in its place."""
        if begin not in self._differing and torn_properties(item.record) is None:
            self._copies[0].taken += 1
            return Taken(item)
        self._chosen.append(item.physical_offset)
        candidates = [_Candidate(0, item)]
        for number, copy in enumerate(self._copies[1:], 1):
            there = _record_at(copy.log, begin, item.physical_offset, crc=True) if begin < copy.limit else None
            if there is not None:
                candidates.append(_Candidate(number, there))
        return self._take(candidates, begin, expects)

    def _fill(self, start: int, stop: int, damage: Damage | None, expects: Expects) -> Iterator[Taken | Damage]:
        """The records that other copies have in [start, stop), and what is left of a damaged range."""
        self._filled.append((start, stop))
        at = start
        streams = [self._records(number, start, stop) for number in range(1, len(self._copies))]
        for begin, group in groupby(merge(*streams, key=_begin_of), key=_begin_of):
            candidates = [*group]
            if candidates[0].located.physical_offset < at:  # inside the record before it
                continue
            if damage is not None:
                yield from self._find_rest(damage, at, begin)
            taken = self._take(candidates, begin, expects)
            if self._parted:
                self._given.add(digest_of(taken.located.record))
            yield taken
            at = taken.located.end
        if damage is not None and at < stop and not self._is_filler(at):
            yield from self._find_rest(damage, at, stop)

    def _find_rest(self, damage: Damage, start: int, stop: int) -> Iterator[Damage]:
        """The part of a damaged range in [start, stop), unless it is just the header of a DLedger entry."""
        if stop - start > (HEAD_SIZE if self._entries else 0):
            shift = start - damage.physical_offset
            yield damage._replace(at=damage.at + shift, physical_offset=start, length=stop - start)

    def _is_filler(self, at: int) -> bool:
        """Whether the records of a file end here in a copy that has the base's history."""
        items = (look_at(copy.log, at) for copy in self._copies[1:] if at < copy.limit)
        return any(isinstance(item, Damage) and item.ending is Ending.FILLER for item in items)

    def _records(self, number: int, start: int, stop: int) -> Iterator[_Candidate]:
        """The intact records of a copy that lie in [start, stop), where its history is the base's."""
        copy = self._copies[number]
        stop = min(stop, copy.limit)
        if start >= stop:
            return
        for item in copy.log.walk(start, None if stop == _EVERYWHERE else stop):
            if isinstance(item, LocatedRecord) and item.end <= stop:
                yield _Candidate(number, item)

    def _take(self, candidates: list[_Candidate], begin: int, expects: Expects) -> Taken:
        """The best of the intact records at one place."""
        chosen = candidates[0]
        if any(candidate.raw != chosen.raw for candidate in candidates):
            voted = self._vote(candidates, begin)

            def rank(candidate: _Candidate) -> tuple[bool, int, bool, bool, int]:
                record = candidate.located.record
                return (
                    torn_properties(record) is None,
                    -_distance(candidate.raw, voted),
                    expects(record),
                    bool(parse(record.properties)) or not record.properties,
                    -candidate.copy,
                )

            chosen = max(candidates, key=rank)
        others = [
            (other.copy, other.located)
            for other in candidates
            if other.raw != chosen.raw and torn_properties(other.located.record) is None
        ]
        for number, _located in others:
            self._copies[number].contradicting += 1
        self._copies[chosen.copy].taken += 1
        return Taken(chosen.located, chosen.copy, others=tuple(others))

    def _vote(self, candidates: list[_Candidate], begin: int) -> bytes | None:
        """The bits that most copies have at a place, rotten ones included; None without three of one length."""
        size, at = len(candidates[0].raw), candidates[0].located.physical_offset
        pieces = []
        for copy in self._copies:
            item = _record_at(copy.log, begin, at) if begin < copy.limit or copy is self._copies[0] else None
            if item is not None and item.record.total_size == size:
                pieces.append(np.unpackbits(np.frombuffer(_raw(item), np.uint8)))
        if len(pieces) < 3:
            return None
        return np.packbits(np.sum(pieces, axis=0, dtype=np.int64) * 2 > len(pieces)).tobytes()

    def _own(self, number: int) -> Iterator[Taken]:
        """The records of a copy's own history, without those that copies before it gave."""
        copy = self._copies[number]
        starts = np.array([start for start, _stop in self._filled], np.int64)
        stops = np.array([stop for _start, stop in self._filled], np.int64)
        rows = np.searchsorted(starts, copy.own, "right") - 1
        handled = (rows >= 0) & (copy.own < stops[rows]) & (copy.own < copy.limit)
        handled |= np.isin(copy.own, self._chosen) & (copy.own < copy.limit)
        for physical_offset in copy.own[~handled].tolist():
            located = copy.log.read(physical_offset)
            if located is None:
                continue
            digest = digest_of(located.record)
            if digest in self._given:
                continue
            self._given.add(digest)
            others: tuple[tuple[int, LocatedRecord], ...] = ()
            replaced = copy.replaced.get(physical_offset)
            if replaced is not None and (there := self._copies[0].log.read(replaced)) is not None:
                if digest_of(there.record) == digest:
                    continue  # the same message, with other properties
                others = ((0, there),)
                copy.contradicting += 1
            copy.taken += 1
            yield Taken(located, number, own=True, others=others)

    # -- report -------------------------------------------------------------------------------------------------------

    def report(self) -> list[CopyTaken]:
        """What was taken from each copy, the base first; every log is read once for it."""
        return [_count(copy) for copy in self._copies]


def _open(layout: StoreLayout) -> tuple[CommitLog, Readable, list[str]]:
    """(a log, the copies of those of its files that can only be read in part, warnings)."""
    log, disk = CommitLog(layout), Readable()
    log.segments = disk.take(log.segments)
    log.segments, _moved, _skipped = true_files(log)
    return log, disk, disk.describe() + true_length(log)


def _count(copy: _Copy) -> CopyTaken:
    whole = damaged = 0
    for item in scan_log(copy.log):
        if isinstance(item, Damage):
            damaged += 1
        else:
            whole += item.rows.records
    return CopyTaken(
        store=copy.layout.root,
        taken=copy.taken,
        known=max(whole - copy.taken - copy.contradicting, 0),
        damaged=damaged,
        contradicting=copy.contradicting,
    )


def _common_end(compared: LogComparison, logs: tuple[CommitLog, CommitLog]) -> int:
    """The physical offset up to which two logs have one history."""
    if compared.common is None:
        return _NOWHERE
    for differing in compared.differing:
        if differing.is_other_message and all(
            isinstance(look_at(log, differing.start, crc=True), LocatedRecord) for log in logs
        ):
            return differing.start
    if compared.parted_at is not None and all(isinstance(item, LocatedRecord) for item in compared.there):
        return compared.parted_at
    return _EVERYWHERE


def _overlap(log: CommitLog, other: CommitLog) -> bool:
    """Whether two logs have something at the same place."""
    for file in other.segments:
        there = {log.segments.find(file.base), log.segments.find(file.end - 1)} - {None}
        if there and all(has_bytes(part.path, 0, part.size) for part in (file, *there) if part is not None):
            return True
    return False


def _begin(item: LocatedRecord | Damage) -> int:
    """Physical offset of a record, or of the DLedger entry around it."""
    head = HEAD_SIZE if isinstance(item, LocatedRecord) and item.file.entries else 0
    return item.physical_offset - head


def _begin_of(candidate: _Candidate) -> int:
    return _begin(candidate.located)


def _record_at(log: CommitLog, begin: int, physical_offset: int, *, crc: bool = False) -> LocatedRecord | None:
    """The record at a physical offset, in the DLedger entry at ``begin`` even if the entry's head is broken."""
    item = look_at(log, begin, crc=crc)
    return item if isinstance(item, LocatedRecord) else log.read(physical_offset, crc=crc)


def _raw(item: LocatedRecord) -> bytes:
    return bytes(item.file.map()[item.at : item.at + item.record.total_size])


def _distance(raw: bytes, voted: bytes | None) -> int:
    """Number of bytes that differ; 0 if there was no vote."""
    if voted is None or len(voted) != len(raw):
        return 0
    return int(np.count_nonzero(np.frombuffer(raw, np.uint8) != np.frombuffer(voted, np.uint8)))


def digest_of(record: Record) -> bytes:
    """A digest of what makes a message, wherever it lies in a log, and also if its properties are torn."""
    hashed = blake2b(record.topic + bytes(1) + record.born_address, digest_size=16)
    for part in (record.queue_id, record.queue_offset, record.born_timestamp, record.store_timestamp, record.body_crc):
        hashed.update(part.to_bytes(8, "big", signed=True))
    return hashed.digest()
