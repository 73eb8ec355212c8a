"""Helpers for tests of check: short forms of findings, and byte-level damage."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqtool.store.check import run
from rmqtool.store.check.common.findings import Finding
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout

Told = tuple[str, str, int | None, int]  # code, file, offset, count
UNIT = 20


def check_store(layout: StoreLayout, **options: Any) -> Iterator[Finding]:
    """Check a store as `rmqtool.store.check.run.check_store` does, without the info that it has no ``topics.json``.

    All stores have that info on which no broker has run, and so most of the small ones here.
    """
    result = run.check_store(layout, **options)
    return (finding for finding in result if (finding.code, finding.severity) != ("topics-missing", "info"))


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
