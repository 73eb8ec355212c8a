"""Readers of remote files request the bytes that they read: others are not available.

The mapping in these tests has exactly the requested bytes; all others have values that are neither zero nor part of any
store. So rows that differ from those of the same local store reveal bytes read without a request.
"""

import mmap
import os
import tempfile
from collections.abc import Iterable
from itertools import product

import pytest
from pyarrow import fs

from rmqtool.analytics.remote import place
from rmqtool.analytics.remote.mirror import Fetch
from rmqtool.analytics.source.plan import request_of
from rmqtool.analytics.source.read import plan_pieces, read_piece
from rmqtool.analytics.source.tables import SCHEMAS, TABLES
from rmqtool.store.disk.remote import Partial
from rmqtool.store.dispatch import batch as dispatch
from rmqtool.store.log.records import record_at
from tests.amounts import by_turns, every
from tests.analytics.helpers import log_of, record
from tests.conftest import Unpacked
from tests.goldens import cases

POISON = 0xA7


class Asked(Partial):
    """A remote file with exactly the requested bytes."""

    _fetch: Fetch
    _fd: int
    fetched = 0  # bytes, by all of them

    def __new__(cls, size: int, fetch: Fetch) -> "Asked":
        with tempfile.TemporaryFile() as file:
            file.write(bytes([POISON]) * size)
            file.flush()
            fd = os.dup(file.fileno())
        made = super().__new__(cls, fd, size, access=mmap.ACCESS_READ)
        made._fd, made._fetch = fd, fetch
        return made

    def need(self, start: int, stop: int) -> None:
        start, stop = max(start, 0), min(stop, len(self))
        if start < stop:
            Asked.fetched += os.pwrite(self._fd, self._fetch(start, stop), start)

    def need_all(self, ranges: Iterable[tuple[int, int]]) -> None:
        for each in ranges:
            self.need(*each)

    def need_whole(self) -> None:
        self.need(0, len(self))

    def forget(self, start: int, stop: int) -> None:
        """Drop everything: reading again requires requesting again."""
        start, stop = max(start, 0), min(stop, len(self))
        if start < stop:
            os.pwrite(self._fd, bytes([POISON]) * (stop - start), start)

    def __del__(self) -> None:
        os.close(self._fd)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read stores at URIs through :class:`Asked`."""
    monkeypatch.setattr(place, "Mirror", Asked)
    monkeypatch.setattr(place, "open_uri", lambda uri: (fs.LocalFileSystem(), uri.removeprefix("here://")))


def rows(path: object, table: str, **options: str) -> list[dict[str, object]]:
    request = request_of({"path": str(path), "table": table, **options})
    parts, counters = plan_pieces(request, request.wanted)
    read = (read_piece(piece, SCHEMAS[table].names, counters) for piece in parts)
    found_rows = [row for batches in read for batch in batches for row in batch.to_pylist()]
    for row in found_rows:
        for name, value in row.items():
            if isinstance(value, str):
                row[name] = value.replace("here://", "")  # all that may differ
    return found_rows


@by_turns(4)
@pytest.mark.parametrize(
    ("case", "split", "bulk"), every(15, list(product(cases(), ["", "20000", "3000"], [64, 1 << 40])))
)
def test_tables_of_golden_stores(
    case: str, split: str, bulk: int, golden: Unpacked, asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "BULK_BYTES", bulk)  # by compiled code, and without
    options, before = {"splitBytes": split} if split else {}, Asked.fetched
    for table in TABLES:
        assert rows(f"here://{golden(case)}", table, **options) == rows(golden(case), table, **options), table
    assert Asked.fetched > before or not any(path.stat().st_size for path in (golden(case) / "commitlog").glob("*"))


def test_the_mapping_tells() -> None:
    """Reading without a request is detected: the row differs."""
    data = log_of(["Orders"] * 3)
    made = Asked(len(data), lambda start, stop: data[start:stop])
    assert bytes(made[:50]) == bytes([POISON]) * 50
    made.need(10, 20)
    assert bytes(made[:30]) == bytes([POISON]) * 10 + data[10:20] + bytes([POISON]) * 10
    made.forget(0, 15)
    assert bytes(made[10:20]) == bytes([POISON]) * 5 + data[15:20]


@pytest.mark.parametrize("at", [0, 7])
@pytest.mark.parametrize("cut", [0, 1, 60, 200])
def test_a_record_is_read_from_what_it_asks_for(at: int, cut: int) -> None:
    """A complete record, a cut one, and one with wrong lengths, for all host widths."""
    for wide in (0, 0x10, 0x20, 0x30):
        hosts = {
            "sys_flag": wide,
            "born_address": bytes(16 if wide & 0x10 else 4),
            "store_address": bytes(16 if wide & 0x20 else 4),
        }
        whole = record("Orders", 0, **hosts)
        for byte in range(0, len(whole), 3):
            broken = bytearray(bytes(at) + whole + bytes(300))
            broken[at + byte] ^= 0x41
            data = bytes(broken[: len(broken) - 300 - cut]) if cut else bytes(broken)
            mapped = memoryview(Asked(len(data), lambda start, stop, data=data: data[start:stop]))  # type: ignore[misc]
            assert record_at(mapped, at, len(data)) == record_at(memoryview(data), at, len(data)), (wide, byte)
