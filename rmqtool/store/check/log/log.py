"""A single pass over the commit log: checks every record, and passes batches of records to the other checks."""

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import numpy as np

from formats.arrays import Column
from formats.endings import Ending
from formats.message.read import End, Record
from rmqtool.progress import stage
from rmqtool.rules.releases import LATER
from rmqtool.store.check.advice.steps import RECOVER, SALVAGE
from rmqtool.store.check.codes.code import ERROR, WARNING
from rmqtool.store.check.common.context import Context
from rmqtool.store.check.common.files import check_files
from rmqtool.store.check.log.records import RecordCheck, RecordColumns, columns_of
from rmqtool.store.disk.segments import Segment
from rmqtool.store.disk.sparse import has_bytes
from rmqtool.store.dispatch.batch import BATCH_RECORDS, RecordBatch, is_bulk
from rmqtool.store.log.commit_log import is_rest_of_page, next_in_file
from rmqtool.store.log.dledger import DLedgerLog
from rmqtool.store.log.records import blank_room, next_record, record_at, record_start
from rmqtool.store.log.returning import Returning
from rmqtool.store.log.shape import DamagedRange, FileSpan, LogShape
from rmqtool.words import counted

_WINDOW = 16 << 20  # bytes read before their pages are released


class RecordRun(NamedTuple):
    """Consecutive records, with what the checks across files need.

    Attributes:
        file: the file that contains them.
        batch: what dispatch would derive from them.
        position: actual offset of each record, whatever it states; int64, ascending.
        inner: positions of inner batches, which have another kind of entry.
        epoch: changes if there is damage or a gap between this stretch and the previous one.
    """

    file: Segment
    batch: RecordBatch
    position: Column
    inner: Column
    epoch: int


class _Damage(NamedTuple):
    code: str
    path: str
    at: int
    length: int
    number: int  # number of the file
    records_before: int  # number of records before it in the log, itself included
    about: dict[str, Any]


class LogCheck:
    """Reads the log once, from beginning to end.

    Args:
        ctx: shared state; ``log_seen`` is complete when :meth:`run` has finished.
        take: called with every stretch of records, in order.
    """

    def __init__(self, ctx: Context, take: Callable[[RecordRun], None]) -> None:
        self.ctx, self._take = ctx, take
        self._records = 0
        self._epoch = 0
        self._passed = 0  # bytes of files that were read
        self._damages: list[_Damage] = []
        self._record_check = RecordCheck(ctx)
        self._builder = ctx.inputs.batch_builder(keeps_tags=True)

    def run(self) -> Iterator[None]:
        """Check the log; yields from time to time, so that findings can be passed on."""
        ctx = self.ctx
        log = ctx.log
        files = log.segments.files
        check_files(ctx, log.segments, log.file_size)
        last_used = self._last_used(files)
        used = sum(file.size for file in files[: last_used + 1])
        with stage("reading the log", used) as self._reading:
            for number, file in enumerate(files):
                if number and file.base != files[number - 1].end:
                    self._epoch += 1
                if number > last_used:
                    if (stop := has_bytes(file.path, 0, file.size)) > 0:
                        ctx.found.add("log-stale", ctx.name(file.path), offset=0, actual=f"bytes up to {stop}")
                    continue
                yield from self._check_file(file, number, last=number == last_used)
                file.release()
                self._passed += file.size
        self._report_damages()
        ctx.log_seen.first_timestamp = self._record_check.first_timestamp
        ctx.log_seen.last_timestamp = self._record_check.last_timestamp

    @staticmethod
    def _last_used(files: list[Segment]) -> int:
        """Number of the last file that contains a record or an end-of-file blank; -1 without any."""
        for number in range(len(files) - 1, -1, -1):
            file = files[number]
            view = file.view()
            try:
                first = record_at(view, record_start(view, 0), file.size, crc=False)
                if isinstance(first, Record) or first.ending is Ending.FILLER:
                    return number
                used = has_bytes(file.path, 0, file.size)
                if used and next_record(view, file.base, 0, used) < used:
                    return number
            finally:
                file.release()
        return -1

    def _check_file(self, file: Segment, number: int, *, last: bool) -> Iterator[None]:
        view, name = file.view(), self.ctx.name(file.path)
        at, forgotten = record_start(view, 0), 0
        self._check_readable(file, number)
        while at < file.size:
            end = yield from self._stretch(file, at)
            at = end.at
            if at > forgotten + _WINDOW:
                file.forget(forgotten, at)
                forgotten = at
            if end.ending is Ending.CLEAN:
                break
            if end.ending is Ending.FILLER:
                size, left = blank_room(view, at), file.size - at
                if size == left:
                    break
                # a wrong mark may have overwritten a message; bytes after a right one are stale
                following = next_in_file(file, at + 8)
                if following >= file.size:
                    if not last and self.ctx.rules.find_end(file, end, file.size).ending is Ending.DAMAGED:
                        about = {"severity": ERROR, "expected": left, "actual": size}
                        self._damages.append(_Damage("log-blank-size", file.path, at, 8, number, self._records, about))
                    elif size:
                        more: dict[str, Any] = {}
                        later = [release for release in LATER if release.name == self.ctx.rules.release.name]
                        if size < 0 and not last and any(release.refuses_negative_blanks for release in later):
                            more = {"severity": WARNING, "steps": (SALVAGE,)}
                        self.ctx.found.add("log-blank-size", name, offset=at, expected=left, actual=size, **more)
                    break
                self._report_damage("log-damage", file, number, at, following - at, f"{end.reason}, {left} are left")
                at = following
                continue
            again = record_at(view, at, file.size, crc=False)
            if isinstance(again, Record):
                self._add_crc_damage(file, number, at, again, end)
                at = record_start(view, at + again.total_size)
                continue
            following = next_in_file(file, at + 1)
            if following >= file.size:
                self._check_tail(file, number, end, last=last)
                break
            self._report_damage("log-damage", file, number, at, following - at, end.reason)
            at = following
            yield

    def _check_readable(self, file: Segment, number: int) -> None:
        """Find an intact record that the broker cannot read because of its properties."""
        view, at = file.view(), self.ctx.rules.readable(file)
        if at == file.size:
            return
        before, size_before = 1, record_start(view, 0)
        while size_before < at and isinstance(item := record_at(view, size_before, at, crc=False), Record):
            before, size_before = before + 1, record_start(view, size_before + item.total_size)
        record = record_at(view, at, file.size, crc=False)
        assert isinstance(record, Record)
        about = {**_message_fields(record), "expected": "two numbers", "actual": self.ctx.rules.stumbles}
        self._damages.append(
            _Damage("log-batch-numbers", file.path, at, record.total_size, number, self._records + before, about)
        )

    def _add_crc_damage(self, file: Segment, number: int, at: int, record: Record, end: End) -> None:
        """Report a wrong body checksum; all other checks treat the record as intact."""
        about = {**_message_fields(record), "expected": end.expected, "actual": end.actual}
        self._damages.append(_Damage("log-crc", file.path, at, record.total_size, number, self._records + 1, about))
        self._builder.add(record)
        self._pass_records(file, [(at, record)])

    def _check_tail(self, file: Segment, number: int, end: End, *, last: bool) -> None:
        """Report what follows the last record of a file."""
        at, name, findings = end.at, self.ctx.name(file.path), self.ctx.found
        stop = has_bytes(file.path, at, file.size)
        if last and is_rest_of_page(file, at):
            return
        if not last:
            code = "log-damage" if stop > at else "log-blank-missing"
            self._report_damage(code, file, number, at, file.size - at, end.reason)
        elif stop > at and end.ending is Ending.UNWRITTEN:
            view = file.view()
            first = at
            while not any(view[first : first + 4096]):
                first += 4096
            first += next(i for i, byte in enumerate(view[first : first + 4096]) if byte)
            findings.add(
                "log-stale", name, offset=first, expected=f"zeros from byte {at} on", actual=f"bytes up to {stop}"
            )
        elif stop > at:
            findings.add("log-torn", name, offset=at, expected="a whole record, or zeros", actual=end.reason)

    def _report_damage(self, code: str, file: Segment, number: int, at: int, length: int, reason: str) -> None:
        self._epoch += 1
        about = {
            "expected": "an end-of-file blank" if code == "log-blank-missing" else "a record",
            "actual": f"{length} bytes skipped: {reason}",
        }
        self._damages.append(_Damage(code, file.path, at, length, number, self._records, about))

    def _report_damages(self) -> None:
        """Report damage, once it is known how much data follows it."""
        log_ends = [damage for damage in self._damages if self._ends_log(damage)]
        first = min(log_ends, key=lambda damage: (damage.number, damage.at), default=None)
        if first is not None:
            damaged = sum(d.code == "log-crc" and d.records_before > first.records_before for d in self._damages)
            self.ctx.found.situation.cuts = self._records - first.records_before - damaged
        self._damages = [damage for damage in self._damages if not self._is_stale(damage)]
        self.ctx.found.situation.log = self._shape(first)
        for damage in self._damages:
            self.ctx.found.add(
                damage.code,
                self.ctx.name(damage.path),
                offset=damage.at,
                consequence=self._describe_cut(damage, self._records - damage.records_before, first),
                steps=(RECOVER,) if damage in log_ends else (SALVAGE,),
                **damage.about,
            )
        self._damages.clear()

    def _shape(self, first: _Damage | None) -> LogShape:
        """The shape of the log.

        Args:
            first: the damage at which the next start ends it.
        """
        files = self.ctx.log.segments.files
        damaged = [DamagedRange(files[each.number].base + each.at, each.length, each.code) for each in self._damages]
        return LogShape(
            files=[FileSpan(self.ctx.name(file.path), file.base, file.size) for file in files],
            end=self.ctx.log_seen.end,
            damaged=sorted(damaged),
            cut=files[first.number].base + first.at if first is not None and self.ctx.found.situation.cuts else None,
        )

    def _ends_log(self, damage: _Damage) -> bool:
        """Whether the next start reads this damage and ends the log there."""
        if self._is_dledger(damage):
            return False
        if damage.code == "log-crc" and not self.ctx.layout.conf.flag("checkCRCOnRecover", True):
            return False
        return damage.number >= self.ctx.start.number

    def _is_dledger(self, damage: _Damage) -> bool:
        return self.ctx.log.segments.files[damage.number].entries

    def _is_stale(self, damage: _Damage) -> bool:
        """Whether it lies among entries that a DLedger group has replaced."""
        if not self._is_dledger(damage):
            return False
        stale_from = DLedgerLog.of(self.ctx.layout)[0].find_stale_tail()
        return stale_from is not None and self.ctx.log.segments.files[damage.number].base + damage.at >= stale_from

    def _describe_cut(self, damage: _Damage, behind: int, first: _Damage | None) -> str:
        if self._is_dledger(damage):
            return (
                "a start of DLedger goes by the headers of entries alone: damage in a message stays, and its broker "
                "puts neither it nor what it has read with it into queues"
            )
        how_many = f"{counted(behind, 'message')} after it"
        if damage is first:
            return f"a broker's next start ends the log here and cuts off {how_many}"
        if first is not None and self._ends_log(damage):
            return f"a broker's next start ends the log before this, at byte {first.at} of {self.ctx.name(first.path)}"
        text = "the next start does not check this file"
        if damage.number >= self.ctx.start.after_next:
            text += f"; the start after that does if the broker stops cleanly before, and cuts off {how_many}"
        else:
            text += (
                "; a start after a crash does if the checkpoint is missing or older than this file, and cuts off "
                f"{how_many}"
            )
        if damage.code == "log-crc":
            return f"{text}; until then consumers get the damaged body"
        if damage.code in ("log-blank-size", "log-batch-numbers"):
            return text
        return f"{text}; until then only the damaged messages are lost"

    # -- records ------------------------------------------------------------------------------------------------------

    def _stretch(self, file: Segment, at: int) -> Generator[None, None, End]:
        """Check the records from ``at`` up to the first invalid one, which is returned."""
        if is_bulk(file.view(), at, file.size):
            return (yield from self._bulk(file, at))
        return (yield from self._plain(file, at))

    def _plain(self, file: Segment, at: int) -> Generator[None, None, End]:
        view, size = file.view(), file.size
        rows: list[tuple[int, Record]] = []
        start = at
        while isinstance(item := record_at(view, at, size), Record):
            self._builder.add(item)
            rows.append((at, item))
            at = record_start(view, at + item.total_size)
            if len(rows) >= BATCH_RECORDS or at - start >= _WINDOW:
                self._pass_records(file, rows)
                rows, start = [], at
                yield
        if rows:
            self._pass_records(file, rows)
        return item

    def _bulk(self, file: Segment, at: int) -> Generator[None, None, End]:
        from rmqtool.store.dispatch.bulk import BulkBuilder
        from rmqtool.store.log.scan import scan

        view = file.view()
        self._record_check.bulk = True
        builder = BulkBuilder(view, self._builder)
        scanned = Returning(scan(view, at, file.size))
        inner: list[Column] = []
        start = at
        for part in scanned:
            columns = RecordColumns(*(getattr(part.rows, name) for name in RecordColumns._fields))
            inner.append(self._check_records(file, columns))
            for batch in builder.add(part):
                start = self._pass_batch(file, start, batch, inner)
                yield
        if len(builder):
            self._pass_batch(file, start, builder.take(), inner)
        return scanned.value

    def _pass_batch(self, file: Segment, start: int, batch: RecordBatch, inner: list[Column]) -> int:
        ends = start + np.cumsum(batch.size)
        at = ends - batch.size
        self._take(RecordRun(file, batch, file.base + at, np.concatenate(inner) if inner else at[:0], self._epoch))
        del inner[:-1]  # the last part may also be in the next batch
        self._advance(file, int(ends[-1]), len(batch))
        return int(ends[-1])

    def _pass_records(self, file: Segment, rows: list[tuple[int, Record]]) -> None:
        """Like :meth:`_pass_batch`, for the records in the builder; in a DLedger log they are not adjacent."""
        columns = columns_of(rows)
        inner = self._check_records(file, columns)
        self._take(RecordRun(file, self._builder.take(), file.base + columns.at, inner, self._epoch))
        at, record = rows[-1]
        self._advance(file, at + record.total_size, len(rows))

    def _check_records(self, file: Segment, columns: RecordColumns) -> Column:
        return self._record_check.check(file, columns)

    def _advance(self, file: Segment, end: int, records: int) -> None:
        self.ctx.log_seen.end = file.base + end
        self._reading.done = self._passed + end
        self._records += records


def _message_fields(record: Record) -> dict[str, Any]:
    return {
        "topic": record.topic.decode("utf-8", "replace"),
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
    }
