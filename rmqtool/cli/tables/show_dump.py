"""What became of a dump, for people and for scripts."""

import sys
import time
from types import TracebackType

from rmqtool.analytics.dump.report import DumpReport
from rmqtool.cli.shell.output import Column, note, write_all, write_object, writer

_SILENT = 2.0  # seconds; what is done by then shows no progress

FIELDS = (
    "out",
    "rows",
    "files",
    "partitions",
    "bytesRead",
    "bytesWritten",
    "damaged",
    "damagedBytes",
    "notDecompressed",
)


class ProgressLine:
    """How far a long dump is, in one line of a terminal that goes at the end; nothing where stderr is none."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._began = time.monotonic()
        self._shown = False

    def show(self, read: int, total: int) -> None:
        """Show bytes of log that are read, and all."""
        seconds = time.monotonic() - self._began
        if self._terminal and seconds >= _SILENT:
            self._shown = True
            share = f"{read / total:4.0%} of {total / (1 << 20):.0f} MiB of log, {seconds:.0f} s"
            sys.stderr.write(f"\r\x1b[K{share}")
            sys.stderr.flush()

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def write_report(report: DumpReport, form: str) -> None:
    """Print a report; damage is named on stderr too."""
    row = report.to_dict()
    if form in ("json", "ndjson"):
        write_object(form, row)
    else:
        columns = [Column(name, right=name != "out") for name in FIELDS]
        write_all(writer(form, FIELDS, columns), [row])
    for item in report.damage:
        note(
            f"damage: {item.path}: byte {item.at}: {item.reason}; physical offset {item.physical_offset}, "
            f"{item.length} bytes passed over"
        )
    if report.damaged > len(report.damage):
        note(f"damage: {report.damaged - len(report.damage)} more damaged ranges")
    if report.not_decompressed:
        note(f"{report.not_decompressed} bodies do not decompress and are given as stored; see column bodyError")
    if report.expired_bytes:
        note(f"{report.expired_bytes} bytes of log were deleted before they could be written")
    if report.resumed:
        note(f"{report.resumed} of {report.splits} splits had been read by an earlier run")
    where = report.spark or "this process"
    note(f"{report.rows} messages by {where} in {report.seconds:.1f} s, {report.startup_seconds:.1f} s of it to start")
