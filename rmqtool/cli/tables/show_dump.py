"""What became of a dump, for people and for scripts."""

from rmqtool.analytics.dump.report import DumpReport
from rmqtool.cli.render.output import Column, write_all, write_object, writer
from rmqtool.cli.render.text import note
from rmqtool.words import counted

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
            f"{item.length} bytes skipped"
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
    note(
        f"{counted(report.rows, 'message')}"
        f" by {where} in {report.seconds:.1f} s, {report.startup_seconds:.1f} s of it to start"
    )
