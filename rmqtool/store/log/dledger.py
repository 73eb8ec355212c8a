"""The files that DLedger keeps for its log: entries, their index, and how far the group has committed.

Records inside the entries are read like those of any commit log (:meth:`StoreLayout.commit_log`); this is the rest.

Source: io.openmessaging.storage.dledger (DLedgerMmapFileStore, MemberState) 0.3; store-formats 8.8.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from formats.endings import Ending, UnitEnd
from formats.errors import BadText, FormatError
from formats.layouts.derived import DLEDGER_INDEX_UNIT
from formats.variants.dledger import HEAD_SIZE, MAGIC_ENTRY, DLedgerEntry, parse_checkpoint, parse_current_term
from formats.variants.dledger import read_entry as parse_entry
from rmqtool.errors import RmqError
from rmqtool.store.disk.directories import read_small
from rmqtool.store.disk.remote import place_of
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import next_in_file
from rmqtool.words import counted

UNIT = DLEDGER_INDEX_UNIT.size
_EVENT_TYPE = 2  # bytes before the JSON of a controller's event
_WINDOW = 16 << 20
_CHECKED_FILES = 3  # from the end, by a start


class DLedgerIndexUnit(NamedTuple):
    """One unit of the index, as stored."""

    magic: int
    position: int
    size: int
    index: int  # type: ignore[assignment]
    term: int


class Uncommitted(NamedTuple):
    """Entries after the last one that the member knows to be on a majority."""

    committed: int  # index of that last one
    entries: int
    physical_offset: int  # of the first one's record


@dataclass(frozen=True, slots=True)
class DLedgerLog:
    """The DLedger log of one member.

    Attributes:
        folder: ``dledger-ID``.
        data: files of its entries.
        index: files of its index.
    """

    folder: str
    data: Segments
    index: Segments

    @classmethod
    def of(cls, layout: StoreLayout) -> "list[DLedgerLog]":
        """Every DLedger log of a store; brokers write only one.

        Raises:
            UnreadableStore: a directory cannot be listed.
        """
        folders = layout.dledger_dirs()
        where = layout.configured_paths("storePathDLedgerCommitLog")
        logs = []
        for folder in folders:
            data = where or [os.path.join(folder, "data")]
            segments = Segments.of(data, layout.entries_at, entries=data)
            logs.append(cls(folder, segments, layout.files_in(os.path.join(folder, "index"))))
        return logs

    def marks(self) -> tuple[int, int]:
        """(end index, committed index) as last written by the member; -1 for each that was not written.

        Raises:
            CorruptFile, UnreadableStore: the file cannot be read.
            BadText: the file does not hold the two numbers.
        """
        data = read_small(os.path.join(self.folder, "checkpoint"))
        return parse_checkpoint(data) if data is not None else (-1, -1)

    def is_unused(self) -> bool:
        """Whether the member has never had an entry: there are no files, and its marks name none."""
        try:
            return not self.data.files and not self.index.files and self.marks()[0] < 0
        except (RmqError, BadText):
            return False

    def term(self) -> tuple[int, str]:
        """(term, id of the member voted for); (-1, "") if not written.

        Raises:
            CorruptFile, UnreadableStore, BadText: as :meth:`marks`.
        """
        data = read_small(os.path.join(self.folder, "currterm"))
        return parse_current_term(data) if data is not None else (-1, "")

    def unit(self, index: int) -> DLedgerIndexUnit | None:
        """The index unit of an entry; None if none is written."""
        file = self.index.find(index * UNIT) if index >= 0 else None
        data = file.read(index * UNIT - file.base, UNIT) if file is not None else b""
        unit = DLedgerIndexUnit._make(DLEDGER_INDEX_UNIT.unpack_from(data, 0)) if len(data) == UNIT else None
        return unit if unit is not None and unit.magic == MAGIC_ENTRY else None

    def entry(self, unit: DLedgerIndexUnit) -> DLedgerEntry | None:
        """The entry that an index unit points to; None if it is a different one."""
        file = self.data.find(unit.position)
        if file is None:
            return None
        entry = parse_entry(file.map(), unit.position - file.base, file.size)
        same = isinstance(entry, DLedgerEntry) and entry[:5] == (
            unit.magic, unit.size, unit.index, unit.term, unit.position,
        )  # fmt: skip
        return entry if isinstance(entry, DLedgerEntry) and same else None

    def holds_events(self) -> bool:
        """Whether this is a controller's log, whose entries are events instead of messages."""
        for file in self.data:
            view, at = file.map(), 0
            while isinstance(entry := parse_entry(view, at, file.size), DLedgerEntry):
                body = bytes(view[at + HEAD_SIZE : at + HEAD_SIZE + _EVENT_TYPE + 1])
                if entry.body_size:
                    return body.endswith(b"{")
                at += entry.size
        return False

    def last(self) -> DLedgerEntry | None:
        """The last intact entry; None if there is none.

        Raises:
            CorruptFile, UnreadableStore, BadText: as :meth:`marks`.
        """
        unit = self.unit(self.marks()[0])
        if unit is None or self.entry(unit) is None:  # the checkpoint belongs to another log, or the index is damaged
            unit = None
        last = None
        for _file, _position, entry in self.entries(unit.position if unit is not None else 0):
            last = entry if isinstance(entry, DLedgerEntry) else last
        return last

    def find_stale_tail(self) -> int | None:
        """Position from which on the files have entries that the group has replaced; None without.

        A member truncates its log without clearing what follows: entries of the new leader, and behind them older ones
        of a lower term. Brokers end the log there.
        """
        end, term, stale = 0, -1, False
        files = self.data.files[-_CHECKED_FILES:]
        for _file, position, entry in self.entries(files[0].base if files else 0):
            if not isinstance(entry, DLedgerEntry):
                continue
            if entry.term < term:
                stale = True
            elif stale:
                return None  # entries of another log
            else:
                end, term = position + entry.size, entry.term
        return end if stale else None

    def find_uncommitted(self) -> Uncommitted | None:
        """The entries after the committed index; None if there are none or that index is not known.

        Raises:
            CorruptFile, UnreadableStore, BadText: as :meth:`marks`.
        """
        _end, committed = self.marks()
        if committed < 0 or not self.data.files:
            return None
        unit = self.unit(committed)
        if unit is not None and self.entry(unit) is not None:
            start = unit.position + unit.size
        else:
            start = self.data.files[0].base
        first, entries = -1, 0
        for _file, place, entry in self.entries(start):
            if isinstance(entry, DLedgerEntry) and entry.index > committed:
                first = place if first < 0 else first
                entries += 1
        return Uncommitted(committed, entries, first + HEAD_SIZE) if entries else None

    def entries(self, start: int = 0) -> "Iterator[tuple[Segment, int, DLedgerEntry | UnitEnd]]":
        """(file, position, entry) of every entry from a position on, including ends and damage.

        After damage it continues with the next entry whose record states its own position.

        Args:
            start: the start of an entry, or any position at or before the start of the log.
        """
        for file in self.data:
            if file.end <= start:
                continue
            view, at, forgotten = file.map(), max(start - file.base, 0), 0
            while at < file.size:
                entry = parse_entry(view, at, file.size)
                yield file, file.base + at, entry
                if is_end(entry):
                    break
                if isinstance(entry, UnitEnd):
                    at = next_in_file(file, at + 1 + HEAD_SIZE) - HEAD_SIZE
                    if at + HEAD_SIZE >= file.size:
                        break
                    continue
                at += entry.size
                if at - forgotten >= _WINDOW:
                    file.forget(forgotten, at)
                    forgotten = at
            file.release()


def is_end(entry: DLedgerEntry | UnitEnd) -> bool:
    """Whether this is a regular end of a file's entries: a blank, or unwritten space."""
    return isinstance(entry, UnitEnd) and entry.ending in (Ending.FILLER, Ending.UNWRITTEN, Ending.CLEAN)


def why_unreadable(layout: StoreLayout) -> str | None:
    """Why the messages of a DLedger log cannot be read; None if they can, and for stores without such a log.

    Raises:
        UnreadableStore: a directory of the store cannot be listed.
    """
    if not (logs := DLedgerLog.of(layout)):
        return None
    if place_of(layout.root) is not None:
        return f"{logs[0].folder}: a DLedger log can only be read on this machine: copy the directory"
    for log in logs:
        if not log.data.files and not log.is_unused():
            return f"{log.folder}: a DLedger log whose entries are not here (storePathDLedgerCommitLog)"
        if log.holds_events():
            return f"{log.folder}: the log of a controller, which holds events and no messages"
    return None


def describe_uncommitted(layout: StoreLayout) -> Iterator[str]:
    """Sentences that say which messages of a DLedger log may never have been acknowledged.

    Raises:
        UnreadableStore: a directory of the store cannot be listed.
    """
    for log in DLedgerLog.of(layout):
        try:
            behind = log.find_uncommitted()
        except (FormatError, RmqError) as err:
            yield f"{log.folder}: how far it is committed cannot be read: {err}"
            continue
        if behind is not None:
            messages = counted(behind.entries, "message")
            yield (
                f"{log.folder}: {messages} from physical offset {behind.physical_offset} on "
                f"{'is' if behind.entries == 1 else 'are'} behind the committed index {behind.committed}: acknowledged "
                "only if other members of the group have the same there (the index is up to 3 s old after a kill)"
            )
