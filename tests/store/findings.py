"""Helpers for tests of check: short forms of findings, and byte-level damage."""

from pathlib import Path

from rmqtool.store.check import Finding, check_store
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout

Told = tuple[str, str, int | None, int]  # code, file, offset, count
UNIT = 20


def found_in(store: Path, conf: BrokerConf | None = None) -> list[Finding]:
    """All findings of a check."""
    return list(check_store(StoreLayout(str(store), conf)))


def told(findings: list[Finding]) -> list[Told]:
    """Short forms of findings, sorted."""
    return sorted((f.code, f.file, f.offset, f.count) for f in findings)


def totals(findings: list[Finding]) -> dict[str, int]:
    """Number of findings per code."""
    counts: dict[str, int] = {}
    for finding in findings:
        counts[finding.code] = counts.get(finding.code, 0) + finding.count
    return counts


def write(path: Path, at: int, data: bytes) -> None:
    """Overwrite bytes."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip(path: Path, at: int, bit: int = 0) -> None:
    """Flip one bit of a byte."""
    data = path.read_bytes()[at]
    write(path, at, bytes([data ^ 1 << bit]))
