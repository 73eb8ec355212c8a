"""Scan a commit log, checking every record and checksum, compared with one CRC-32 pass of zlib over the same file.

Run as ``python -m tests.bench.scan``. Both take turns in one process, on one thread, over new mappings of a file in the
page cache, and both release pages as they go.
"""

import time
import zlib
from pathlib import Path
from statistics import median
from typing import TypedDict

from rmqtool.store.disk.segments import Segment
from tests.bench.make_log import write_log
from tests.bench.measure import in_own_process, peak_rss, report_logs, told

MIB = 1 << 20
TARGETS = {128: 3.0, 2048: 0.8}  # bytes of a body: most that a scan may take, as a multiple of the CRC pass
_STEP = 8 * MIB


class Figures(TypedDict):
    """Seconds of each round; bytes of memory."""

    records: int
    scan: list[float]
    crc: list[float]
    peak_rss: int


def crc_pass(file: Segment) -> int:
    """One zlib pass over a file."""
    view, crc = file.view(), 0
    for at in range(0, file.size, _STEP):
        crc = zlib.crc32(view[at : at + _STEP], crc)
        file.forget(at, min(at + _STEP, file.size))
    file.release()
    return crc


def scan_pass(file: Segment) -> int:
    """Check all records; returns their number."""
    from rmqtool.store.log.scan import scan

    count = sum(part.rows.records for part in scan(file.view(), 0, file.size))
    file.release()
    return count


def measure(path: str, rounds: int) -> Figures:
    """Time both in turn; the first scan, which loads compiled code, is not counted."""
    size = Path(path).stat().st_size
    figures = Figures(records=scan_pass(Segment(path, 0, size, 0)), scan=[], crc=[], peak_rss=0)
    for _ in range(rounds):
        for name, run in (("crc", crc_pass), ("scan", scan_pass)):
            file = Segment(path, 0, size, 0)
            start = time.perf_counter()
            run(file)
            figures[name].append(time.perf_counter() - start)  # type: ignore[literal-required]
    figures["peak_rss"] = peak_rss()
    return figures


def report(folder: Path, body: int, size: int, rounds: int) -> Figures:
    """Create a log, measure and print."""
    records = write_log(folder, body=body, file_size=size, files=1)
    figures: Figures = in_own_process("tests.bench.scan", "measure", str(folder / f"{0:020d}"), rounds)
    assert figures["records"] == records, (figures["records"], records)
    best = min(figures["scan"]) / min(figures["crc"])
    middle = median(a / b for a, b in zip(figures["scan"], figures["crc"], strict=True))
    print(f"{size / MIB:.0f} MiB of {body}-byte bodies, {records} records")
    print(f"  zlib.crc32  {told(figures['crc'])}")
    print(f"  scan        {told(figures['scan'])}")
    print(
        f"  ratio       best {best:.2f}, median {middle:.2f}" + (f", target {TARGETS[body]}" if body in TARGETS else "")
    )
    print(f"  peak memory {figures['peak_rss'] / MIB:.0f} MiB")
    return figures


def main() -> None:
    """Measure both kinds of log."""
    report_logs(report, TARGETS, __doc__, size=256, rounds=9)


if __name__ == "__main__":
    main()
