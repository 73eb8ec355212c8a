"""Check a DLedger log: its entries and their index.

The messages in it are checked like those of any log.

Source: io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore (recover).
"""

from zlib import crc32

from formats.endings import Ending, UnitEnd
from formats.errors import FormatError
from formats.variants.dledger import HEAD_SIZE, DLedgerEntry
from rmqtool.errors import RmqError
from rmqtool.store.check.common.context import Context
from rmqtool.store.disk.segments import Segment
from rmqtool.store.disk.sparse import has_bytes
from rmqtool.store.log.commit_log import next_in_file
from rmqtool.store.log.dledger import DLedgerLog, is_end
from rmqtool.store.recovery.dledger.member import MemberRefused, judge_member
from rmqtool.store.recovery.dledger.queue_start import predict_queues
from rmqtool.words import counted


def check_dledger(ctx: Context) -> None:
    """Check every DLedger log of the store, if there is any."""
    for log in DLedgerLog.of(ctx.layout):
        if log.data.files and not log.holds_events():
            _Check(ctx, log).run()


class _Check:
    def __init__(self, ctx: Context, log: DLedgerLog) -> None:
        self.ctx, self.log = ctx, log
        self.before: DLedgerEntry | None = None
        self.chained = True  # the entries follow each other from the first to the last
        self.wrong_units = 0
        self.first_wrong: tuple[int, str, str] | None = None  # index, expected, actual
        self.stale_from = log.find_stale_tail()
        self.stale: list[DLedgerEntry] = []

    def run(self) -> None:
        last_used = self._last_used()
        ended: Segment | None = None  # a file that ends without a blank
        for file, position, entry in self.log.entries():
            if self.stale_from is not None and position >= self.stale_from:
                if isinstance(entry, DLedgerEntry):
                    self.stale.append(entry)
            elif isinstance(entry, UnitEnd):
                self._check_end(file, position, entry, last=file.base >= last_used)
                ended = file if entry.ending is Ending.UNWRITTEN and file.base < last_used else None
                if ended is not None:
                    self._report_broken(ended, position, "an entry, or a blank", "zeros, and another file with entries")
                    self.before = None
            else:
                self._check_entry(file, position, entry)
        if self.stale_from is not None:
            self._report_stale(self.stale_from)
        self._check_index()
        self._check_marks()
        self._check_next_start()

    def _check_next_start(self) -> None:
        """Report that the broker does not start, or messages whose queue entries its next start cuts."""
        layout, findings = self.ctx.layout, self.ctx.found
        try:
            verdict = judge_member(self.log, layout.commit_log_size(self.log.data))
            if not self.chained:
                return  # the start ends the log at the damage that is reported, and cuts queues there
            queues = predict_queues(layout, verdict)
        except MemberRefused as refusal:
            findings.situation.refused = True
            findings.add("dledger-refused", self.ctx.name(self.log.folder), actual=str(refusal))
            return
        except RmqError:
            return  # what is wrong then is reported already
        for (topic, queue_id), messages in sorted(queues.cut.items()):
            self.ctx.found.add(
                "dledger-queue-cut",
                f"consumequeue/{topic}/{queue_id}",
                count=messages,
                expected="entries that the start leaves alone",
                actual=f"{counted(messages, 'message')} at or after physical offset {queues.position}",
            )

    def _report_stale(self, position: int) -> None:
        file = self.log.data.find(position)
        terms = sorted({entry.term for entry in self.stale})
        self.ctx.found.add(
            "dledger-stale",
            self.ctx.name(file.path if file is not None else self.log.folder),
            offset=position - file.base if file is not None else None,
            count=len(self.stale),
            expected=f"the end of the log at {position}",
            actual=f"{counted(len(self.stale), 'entry', 'entries')} of term {', '.join(map(str, terms))}",
        )

    def _last_used(self) -> int:
        """Offset of the last file that is not empty."""
        return max((file.base for file in self.log.data if has_bytes(file.path, 0, file.size)), default=0)

    def _report_broken(self, file: Segment, position: int, expected: str, actual: str) -> None:
        self.chained = False
        self.ctx.found.add(
            "dledger-entry", self.ctx.name(file.path), offset=position - file.base, expected=expected, actual=actual
        )

    def _check_end(self, file: Segment, position: int, end: UnitEnd, *, last: bool) -> None:
        if is_end(end):
            return
        at = position - file.base
        if not last or next_in_file(file, at + 1 + HEAD_SIZE) < file.size:
            self._report_broken(file, position, "an entry", end.reason)
            self.before = None
        else:
            name = self.ctx.name(file.path)
            self.ctx.found.add("dledger-torn", name, offset=at, expected="a whole entry, or zeros", actual=end.reason)

    def _check_entry(self, file: Segment, position: int, entry: DLedgerEntry) -> None:
        findings, name, at = self.ctx.found, self.ctx.name(file.path), position - file.base
        if entry.position != position:
            self._report_broken(file, position, f"position {position}", f"position {entry.position}")
        if entry.body_crc:
            body = file.map()[at + HEAD_SIZE : at + entry.size]
            if (checksum := crc32(body)) != entry.body_crc & 0xFFFFFFFF:
                checksums = f"0x{checksum:08X}", f"0x{entry.body_crc & 0xFFFFFFFF:08X}"
                findings.add("dledger-crc", name, offset=at, expected=checksums[0], actual=checksums[1])
        if self.before is not None:
            if entry.index != self.before.index + 1:
                self.chained, expected = False, f"index {self.before.index + 1}"
                findings.add("dledger-gap", name, offset=at, expected=expected, actual=f"index {entry.index}")
            if entry.term < self.before.term:
                self.chained, expected = False, f"term {self.before.term} or later"
                findings.add("dledger-term", name, offset=at, expected=expected, actual=f"term {entry.term}")
        unit = self.log.unit(entry.index)
        if unit is None or unit != (entry.magic, position, entry.size, entry.index, entry.term):
            actual = "nothing is written" if unit is None else f"byte {unit.position}, {unit.size} bytes"
            self._add_wrong_unit(entry.index, f"byte {position}, {entry.size} bytes, term {entry.term}", actual)
        self.before = entry

    def _add_wrong_unit(self, index: int, expected: str, actual: str) -> None:
        self.wrong_units += 1
        self.first_wrong = self.first_wrong or (index, expected, actual)

    def _check_index(self) -> None:
        following = self.before.index + 1 if self.before is not None else 0
        unit = self.log.unit(following)
        if unit is not None and self.log.entry(unit) is None and self.stale_from is None:
            self._add_wrong_unit(
                following, "nothing: the log ends before it", f"byte {unit.position}, {unit.size} bytes"
            )
        if self.first_wrong is not None:
            index, expected, actual = self.first_wrong
            self.ctx.found.add(
                "dledger-index",
                f"{self.ctx.name(self.log.folder)}/index",
                count=self.wrong_units,
                expected=f"unit {index}: {expected}",
                actual=f"{actual}; {counted(self.wrong_units, 'unit')} in all",
            )

    def _check_marks(self) -> None:
        findings, name = self.ctx.found, f"{self.ctx.name(self.log.folder)}/checkpoint"
        try:
            _end, committed = self.log.marks()
            last = self.before.index if self.before is not None else -1
            if committed > last:
                findings.add("dledger-lost", name, count=committed - last, expected=f"at most {last}", actual=committed)
            elif (behind := self.log.find_uncommitted()) is not None and behind.entries > len(self.stale):
                actual = f"{counted(behind.entries, 'message')} from physical offset {behind.physical_offset} on"
                findings.add("dledger-uncommitted", name, count=behind.entries, expected=committed, actual=actual)
        except (FormatError, RmqError) as err:
            findings.add("file-unreadable", name, actual=str(err))
