"""Predict how a DLedger member recovers its log when it starts: where the scan begins and where log and index end.

This module is read-only. Like the member, it validates entry headers only, neither bodies nor checksums.

Source: io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore (load, recover, reviseLedgerBeginIndex,
updateCommittedIndex), MmapFileList of 0.3.1.2 and 0.3.2, which do the same.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from formats.layouts.derived import BLANK, DLEDGER_ENTRY_HEAD, DLEDGER_INDEX_UNIT
from formats.message.read import java_int
from formats.variants.dledger import HEAD_SIZE, MAGIC_END, MAGIC_ENTRY, DLedgerEntry, parse_properties
from rmqtool.errors import RmqError
from rmqtool.store.disk.directories import read_small
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.log.dledger import UNIT, DLedgerIndexUnit, DLedgerLog

INDEX_FILE_SIZE = 5 * 1024 * 1024 * UNIT  # bytes; fixed in the broker
_JAVA_SPACE = bytes(range(33)).decode()  # the characters removed by String.trim
_CHECKED_FILES = 3  # newest files that a start reads


class _Stop(Exception):
    """The scan of the entries ends here; the text is the reason."""


class MemberRefused(Exception):
    """The member does not start; the text is the reason."""


@dataclass(slots=True)
class MemberIndexFile:
    """One file of the index, in its state after the start.

    Attributes:
        written: length of its valid part, bytes; the next unit goes there.
        source: the file on disk; None for a new one.
    """

    base: int
    written: int
    source: Segment | None


class IndexFiles:
    """The files of the index, with the changes of a start.

    Attributes:
        rewritten: how many units are rewritten; they follow each other.
        removed: files to be removed.
    """

    def __init__(self, files: Segments) -> None:
        self.files = [MemberIndexFile(file.base, INDEX_FILE_SIZE, file) for file in files]
        self._first = 0  # position of the first rewritten unit
        self._units = bytearray()  # packed, as a scan of three files may rewrite millions
        self.removed: list[Segment] = []

    def unit(self, offset: int, *, whole: bool) -> DLedgerIndexUnit | None:
        """The unit at a position of the index; None if it cannot be read.

        Args:
            whole: whether it must end within the valid part; otherwise it must begin there.
        """
        file = self._find(offset)
        if file is None:
            return None
        at = offset % INDEX_FILE_SIZE
        if at + UNIT > file.written and (whole or at >= file.written):
            return None
        if 0 <= offset - self._first < len(self._units):
            return DLedgerIndexUnit._make(DLEDGER_INDEX_UNIT.unpack_from(self._units, offset - self._first))
        data = file.source.read(at, UNIT) if file.source is not None else bytes(UNIT)
        return DLedgerIndexUnit._make(DLEDGER_INDEX_UNIT.unpack_from(data, 0)) if len(data) == UNIT else None

    def _find(self, offset: int) -> MemberIndexFile | None:
        if offset < 0:
            return None
        return next((file for file in self.files if file.base <= offset < file.base + INDEX_FILE_SIZE), None)

    @property
    def rewritten(self) -> int:
        return len(self._units) // UNIT

    def units(self) -> Iterator[tuple[int, DLedgerIndexUnit]]:
        """(position in the index, unit) of each rewritten unit."""
        for at in range(0, len(self._units), UNIT):
            yield self._first + at, DLedgerIndexUnit._make(DLEDGER_INDEX_UNIT.unpack_from(self._units, at))

    def rewritten_entries(self) -> tuple[int, int] | None:
        """Index of the first and of the last entry whose units are rewritten; None if none are."""
        if not self._units:
            return None
        first, last = (DLEDGER_INDEX_UNIT.unpack_from(self._units, at) for at in (0, len(self._units) - UNIT))
        return DLedgerIndexUnit._make(first).index, DLedgerIndexUnit._make(last).index

    @property
    def end(self) -> int:
        """Position of the next unit; 0 without files."""
        return self.files[-1].base + self.files[-1].written if self.files else 0

    def truncate(self, offset: int) -> None:
        """Let the index end at a position, if it is that long; files after it are removed."""
        for file in self.files:
            if file.base <= offset < file.base + INDEX_FILE_SIZE:
                file.written = offset - file.base
        self._remove([file for file in self.files if file.base > offset])

    def remove_before(self, offset: int) -> None:
        """Remove files that end at or before a position."""
        self._remove([file for file in self.files if file.base + INDEX_FILE_SIZE <= offset])

    def restart(self, offset: int) -> None:
        """Remove all files, and create one whose valid part begins at a position.

        Raises:
            _Stop: no file can contain it.
        """
        self._remove(self.files)
        if offset < 0:
            raise _Stop(f"its index would begin at {offset}")
        at = offset % INDEX_FILE_SIZE
        self.files.append(MemberIndexFile(offset - at, at, None))

    def append(self, unit: DLedgerIndexUnit) -> None:
        """Append the unit of the next entry."""
        if not self.files or self.files[-1].written == INDEX_FILE_SIZE:
            self.files.append(MemberIndexFile(self.files[-1].base + INDEX_FILE_SIZE if self.files else 0, 0, None))
        if not self._units:
            self._first = self.end
        self._units += DLEDGER_INDEX_UNIT.pack(*unit)
        self.files[-1].written += UNIT

    def _remove(self, files: list[MemberIndexFile]) -> None:
        gone = {id(file) for file in files}
        self.removed += [file.source for file in files if file.source is not None]
        self.files = [file for file in self.files if id(file) not in gone]


class Committed(NamedTuple):
    """The part of the log that a member knows to be on a majority."""

    index: int = -1  # type: ignore[assignment]
    position: int = -1  # position after that entry


UNKNOWN = Committed()


@dataclass(slots=True, kw_only=True)
class MemberVerdict:
    """The log of a member after a start.

    Attributes:
        first: the file in which the scan begins; None without files.
        begin_index, end_index, end_term: as the member reports them; -1 without entries, a term of 0 without files.
        end: position after the last entry.
        stop_file, stop_at, reason: where the scan ended, and why.
        removed: data files to be removed.
        index: the index.
        committed: as the member knows it.
    """

    first: Segment | None = None
    begin_index: int = -1
    end_index: int = -1
    end_term: int = 0
    end: int = 0
    stop_file: Segment | None = None
    stop_at: int = 0
    reason: str = "no files"
    removed: list[Segment] = field(default_factory=list)
    index: IndexFiles
    committed: Committed = UNKNOWN


def judge_member(log: DLedgerLog, file_size: int) -> MemberVerdict:
    """Determine the log of a member after a start.

    Args:
        file_size: bytes of each data file.

    Raises:
        MemberRefused: it does not start.
        UnreadableStore: a file cannot be read.
    """
    _admit(log.data, file_size, "data")
    _admit(log.index, INDEX_FILE_SIZE, "index")
    return _Recovery(log, file_size).run()


def _admit(files: Segments, size: int, kind: str) -> None:
    """Check that a directory has only files of the right length, without gaps between them."""
    for path in files.foreign:
        raise MemberRefused(f"{path}: does not belong into the {kind} directory of a DLedger log")
    for file in files:
        if file.size != size:
            raise MemberRefused(f"{file.path}: {file.size} bytes long, not {size}")
    for file, following in zip(files.files, files.files[1:], strict=False):
        if following.base - file.base != size:
            raise MemberRefused(f"{following.path}: does not begin where the file before it ends, {file.end}")


class _Recovery:
    def __init__(self, log: DLedgerLog, file_size: int) -> None:
        self._log, self._files, self._size = log, log.data.files, file_size
        self._index = IndexFiles(log.index)
        self._writes = False  # whether units are being rewritten
        self._last_index = self._last_term = -1

    def run(self) -> MemberVerdict:
        index, files = self._index, self._files
        if not files:
            index.truncate(0)
            return MemberVerdict(index=index)
        number = self._first_file()
        verdict = MemberVerdict(index=index, first=files[number], end_term=-1)
        self._scan(number, verdict)
        verdict.end_index, verdict.end_term = self._last_index, self._last_term
        if files[-1].base - verdict.end > self._size:
            raise MemberRefused(
                f"{files[-1].path}: the log ends at {verdict.end} ({verdict.reason}), more than a file before this one"
            )
        if self._last_index != -1:
            self._check_last(verdict)
            verdict.begin_index = _head(files[0], 0).index
            index.remove_before(_long(verdict.begin_index * UNIT))
        verdict.removed = [file for file in files if file.base > verdict.end]
        index.truncate(_long((self._last_index + 1) * UNIT))
        verdict.committed = self._committed_index(verdict)
        return verdict

    def _first_file(self) -> int:
        """The third file from the end, or the newest before it whose first entry is in the index."""
        for number in range(max(len(self._files) - _CHECKED_FILES, 0), -1, -1):
            file = self._files[number]
            try:
                head = _head(file, 0)
                if head.magic < MAGIC_ENTRY or head.size <= HEAD_SIZE:
                    raise _Stop("no entry")
                self._compare(head, file.base, self._index.unit(_long(head.index * UNIT), whole=False))
            except _Stop:
                continue
            finally:
                file.release()
            return number
        return 0

    def _compare(self, head: DLedgerEntry, position: int, unit: DLedgerIndexUnit | None) -> None:
        """Check that an entry is where it states, has a consistent length, and agrees with its unit."""
        _check_place(head, position)
        if unit is None or unit != (head.magic, position, head.size, head.index, head.term):
            raise _Stop("the index does not lead to it")

    def _scan(self, number: int, verdict: MemberVerdict) -> None:
        file = self._files[number]
        verdict.end, at = file.base, 0
        while True:
            verdict.stop_file, verdict.stop_at = file, at
            file.map()
            if file.size - at >= 4 and _first_int(file, at) == MAGIC_END:
                verdict.end = file.end
                number += 1
                file.release()
                if number >= len(self._files):
                    verdict.stop_at, verdict.reason = file.size, "the last file is full"
                    return
                file, at = self._files[number], 0
                verdict.end = file.base
                continue
            try:
                size = self._take(file, at)
            except _Stop as stop:
                verdict.reason = str(stop)
                file.release()
                return
            at += size
            verdict.end += size

    def _take(self, file: Segment, at: int) -> int:
        """Check the entry at a position, and its unit; returns its size.

        Raises:
            _Stop: the log ends before it.
        """
        if file.size - at < BLANK.size:
            raise _Stop(f"{file.size - at} bytes are left in the file")
        if not BLANK.unpack_from(file.read(at, BLANK.size), 0)[1]:
            raise _Stop("nothing is written after it")
        head = _head(file, at)
        _check_place(head, file.base + at)
        if not 0 <= at + head.size <= file.size:
            raise _Stop(f"entry of {head.size} bytes, {file.size - at} left in the file")
        if head.magic != MAGIC_ENTRY:
            raise _Stop(f"magic {head.magic} is not that of a DLedger entry")
        if self._last_index != -1 and head.index != self._last_index + 1:
            raise _Stop(f"entry {head.index} follows entry {self._last_index}")
        if head.term < self._last_term:
            raise _Stop(f"entry {head.index} of term {head.term} follows one of term {self._last_term}")
        if head.size <= HEAD_SIZE:
            raise _Stop(f"entry {head.index} has no body")
        self._index_entry(head, file.base + at)
        self._last_index, self._last_term = head.index, head.term
        return head.size

    def _index_entry(self, head: DLedgerEntry, position: int) -> None:
        """Compare an entry with its unit; from the first difference on, units are rewritten."""
        where = _long(head.index * UNIT)
        if not self._writes:
            try:
                self._compare(head, position, self._index.unit(where, whole=False))
                return
            except _Stop:
                self._index.truncate(where)
                if self._index.end != where:
                    self._index.restart(where)
                self._writes = True
        self._index.append(DLedgerIndexUnit(head.magic, position, head.size, head.index, head.term))

    def _check_last(self, verdict: MemberVerdict) -> None:
        """The last entry is read again through the index."""
        if self._last_index < 0:
            raise MemberRefused(f"{self._log.folder}: the last entry has the index {self._last_index}")

    def _committed_index(self, verdict: MemberVerdict) -> Committed:
        """The committed index from the checkpoint, limited to the log."""
        path = os.path.join(self._log.folder, "checkpoint")
        try:
            data = read_small(path) or b""
        except RmqError:  # a start logs that and continues
            data = b""
        # invalid UTF-8 becomes a character that no number contains
        text = parse_properties(data.decode("utf-8", "replace").encode()).get("committedIndex", "").strip(_JAVA_SPACE)
        if not text:
            return UNKNOWN
        if (index := java_int(text, 64)) is None:
            raise MemberRefused(f"{path}: committedIndex {text!r} is not a number")
        if index < 0 or verdict.end_index == -1 or index < verdict.begin_index:
            return UNKNOWN
        index = min(index, verdict.end_index)
        if index < verdict.begin_index:
            first = self._files[0].path
            raise MemberRefused(f"{first}: begins with entry {verdict.begin_index}, behind the last one, {index}")
        unit = self._index.unit(index * UNIT, whole=True)
        if unit is None:
            raise MemberRefused(f"{path}: entry {index} is committed, and the index does not have it")
        return Committed(index, _long(unit.position + unit.size))


def _first_int(file: Segment, at: int) -> int:
    return int.from_bytes(file.read(at, 4), "big", signed=True)


def _head(file: Segment, at: int) -> DLedgerEntry:
    """The header at a position.

    Raises:
        _Stop: the file ends in the header.
    """
    data = file.read(at, HEAD_SIZE)
    if len(data) < HEAD_SIZE:
        raise _Stop(f"{len(data)} bytes are left in the file, fewer than the header of an entry")
    return DLedgerEntry._make(DLEDGER_ENTRY_HEAD.unpack_from(data, 0))


def _check_place(head: DLedgerEntry, position: int) -> None:
    if head.position != position:
        raise _Stop(f"entry that says position {head.position}")
    if _int(head.body_size + HEAD_SIZE) != head.size:
        raise _Stop(f"entry of {head.size} bytes with a body of {head.body_size}")


def _int(number: int) -> int:
    """Overflow like Java's int."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def _long(number: int) -> int:
    """Overflow like Java's long."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
