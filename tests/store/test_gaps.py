"""Long ranges without records: records after them are found, and neither holes nor garbage cost memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.message.build import pack
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log import records
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests.formats.strategies import a_record, examples


def search(raw: bytes, base: int, at: int, stop: int) -> int:
    """A simple reference for ``next_record``."""
    view = memoryview(raw)
    return next((i for i in range(at, stop) if records.says_position(view, base, i)), stop)


@examples
@given(
    st.lists(st.one_of(st.binary(max_size=12), st.just(b"\xda\xa3\x20"), st.integers(0, 60)), max_size=8),
    st.integers(0, 30),
    st.integers(0, 30),
    st.sampled_from([3, 4, 5, 8, 64]),
)
def test_records_are_found_across_windows(parts: list[bytes | int], at: int, short: int, window: int) -> None:
    """Integers are gaps before a record with its correct position."""
    raw = b""
    for part in parts:
        raw += part if isinstance(part, bytes) else bytes(part) + pack(a_record(physical_offset=7 + len(raw) + part))
    stop = max(len(raw) - short, 0)
    before, records.WINDOW = records.WINDOW, window
    try:
        position = records.next_record(memoryview(raw), 7, at, stop)
    finally:
        records.WINDOW = before
    assert position == (search(raw, 7, at, stop) if at < stop else stop)


def a_log(folder: Path, size: int, *files: dict[int, bytes]) -> CommitLog:
    """A log of sparse files, each with pieces at given positions."""
    (folder / "commitlog").mkdir(parents=True)
    for number, pieces in enumerate(files):
        with (folder / "commitlog" / f"{number * size:020d}").open("wb") as file:
            for at, piece in pieces.items():
                os.pwrite(file.fileno(), piece, at)
            file.truncate(size)
    return CommitLog(StoreLayout(str(folder)))


def told(log: CommitLog) -> list[tuple[str, int, int]]:
    """(record or name of the ending, physical offset, length) of a walk."""
    return [
        ("record", item.physical_offset, item.record.total_size)
        if isinstance(item, LocatedRecord)
        else (item.ending.value, item.physical_offset, item.length)
        for item in log.walk()
    ]


def test_holes_are_passed_over_and_what_lies_behind_is_found(tmp_path: Path) -> None:
    page = 4096
    for distance in range(9):  # records that begin up to eight bytes in front of a page that is there
        at = 20 * page - distance
        pieces = {at: pack(a_record(physical_offset=at))}
        log = a_log(tmp_path / str(distance), 1 << 20, {0: pack(a_record(physical_offset=0)), **pieces})
        size = len(pieces[at])
        assert told(log) == [("record", 0, size), ("unwritten", size, at - size), ("record", at, size)]


def test_an_unwritten_end_is_damage_only_where_files_follow(tmp_path: Path) -> None:
    size = 1 << 20
    record = pack(a_record(physical_offset=0))
    zeros = {0: record, len(record): bytes(9000)}  # zeros that were written are as empty as a hole
    for name, pieces in (("hole", {0: record}), ("zeros", zeros)):
        assert told(a_log(tmp_path / name, size, pieces)) == [("record", 0, len(record))]
        second = {0: pack(a_record(physical_offset=size))}
        assert told(a_log(tmp_path / f"{name}-2", size, pieces, second)) == [
            ("record", 0, len(record)),
            ("record", size, len(record)),
        ]
    torn = {0: record, len(record): record[:50], size // 2: b"x"}
    assert told(a_log(tmp_path / "torn", size, torn))[1:] == [("damaged", len(record), size - len(record))]


_WALK = """
import sys
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.layout.paths import StoreLayout
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
before = peak()
items = sum(1 for _ in CommitLog(StoreLayout(sys.argv[1])).walk())
print(items, peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("fill", [b"\0", b"\x7f"])
def test_long_ranges_without_records_take_no_memory(tmp_path: Path, fill: bytes) -> None:
    mib = 1 << 20
    record = pack(a_record(physical_offset=0))
    pieces = {0: record} | {i * mib + 1000: fill * mib for i in range(100)}
    a_log(tmp_path / "store", 200 * mib, pieces, {})
    result = subprocess.run(
        [sys.executable, "-c", _WALK, str(tmp_path / "store")], capture_output=True, text=True, check=True
    )
    items, grown = map(int, result.stdout.split())
    assert items == (1 if fill == b"\0" else 2)
    assert grown < 48 * 1024  # KiB
