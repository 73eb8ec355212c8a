"""Salvage from a disk with bad sectors, which a process cannot distinguish from real ones."""

import json
import resource
from pathlib import Path

import pytest

from formats.message.read import Record
from rmqtool import NewMessage, Store
from rmqtool.store.disk.readable import copy_readable, is_fully_readable
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests.amounts import by_turns
from tests.bad_disk import bad_disk
from tests.cli.running import Result, process
from tests.store.helpers import tree

pytestmark = [pytest.mark.slow, by_turns(3)]

SIZES = {"mappedFileSizeCommitLog": str(4 << 20), "mappedFileSizeConsumeQueue": "200000"}
PAGE = 4096
FILES = [f"{n << 22:020d}" for n in range(3)]
# a record's middle, two files' beginnings, a run that is no multiple of anything, and a place where nothing is written
BAD = {
    FILES[0]: [(0, PAGE), (1 << 20, (1 << 20) + 37 * PAGE), (3_000_000, 3_000_001)],
    FILES[1]: [(0, 3 * PAGE)],
    FILES[2]: [((4 << 20) - 2 * PAGE, (4 << 20) - PAGE)],
}


def pages(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(start // PAGE * PAGE, -(-stop // PAGE) * PAGE) for start, stop in ranges]


def bodies(layout: StoreLayout) -> dict[int, Record]:
    """Bodies by born timestamp, which numbers the messages."""
    located = (item.record for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord))
    return {record.born_timestamp: record for record in located}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("whole") / "store"
    with Store.create(store, broker_conf=SIZES) as made:
        made.append_many(
            [NewMessage(topic="ab"[n % 2], body=bytes([n % 251]) * 1000, born_timestamp=n) for n in range(1, 9001)]
        )
    return store


@pytest.fixture
def broken(whole: Path, tmp_path: Path) -> Path:
    try:
        with bad_disk(whole, tmp_path / "disk", BAD) as path:
            yield path  # type: ignore[misc]
    except PermissionError as err:
        pytest.skip(f"cannot mount a file system: {err}")


def survivors(whole: Path) -> set[int]:
    """Messages without bytes in a bad page."""
    kept = set()
    for item in CommitLog(StoreLayout(str(whole))).walk():
        assert isinstance(item, LocatedRecord)
        stop = item.at + item.record.total_size
        if not any(item.at < end and start < stop for start, end in pages(BAD[Path(item.file.path).name])):
            kept.add(item.record.born_timestamp)
    return kept


def warnings(done: Result) -> list[str]:
    return [line for line in done.err.splitlines() if "cannot be read: Input/output error" in line]


def test_all_that_can_be_read_is_kept(whole: Path, broken: Path, tmp_path: Path) -> None:
    kept, before = survivors(whole), tree(whole)
    assert 8800 < len(kept) < 9000
    result = process("salvage", broken, tmp_path / "new", "--output", "json")
    assert result.code == 1, result.err
    assert set(bodies(StoreLayout(str(tmp_path / "new")))) == kept
    report = json.loads(result.out)
    assert report["messages"] == len(kept)
    ranges = [(Path(row["file"]).parent, row["at"], row["length"]) for row in report["lostRanges"]]
    assert {folder for folder, _at, _length in ranges} == {broken / "commitlog"}
    lines = [line for line in report["warnings"] if "cannot be read" in line]
    assert [line.partition(": ")[0] for line in lines] == [
        str(broken / "commitlog" / name) for name in FILES for _ in BAD[name]
    ]
    for line, (start, stop) in zip(
        lines, [page_range for name in FILES for page_range in pages(BAD[name])], strict=True
    ):
        assert f"bytes {start} to {stop} cannot be read: Input/output error" in line
    assert tree(whole) == before


def test_as_lines_and_on_stdout(whole: Path, broken: Path, tmp_path: Path) -> None:
    kept = survivors(whole)
    for out in ("-", tmp_path / "lines"):
        result = process("salvage", broken, out, "--to", "ndjson")
        assert result.code == 1, result.err
        assert len(warnings(result)) == sum(map(len, BAD.values()))
        text = result.out if out == "-" else Path(out).read_text()
        assert {json.loads(line)["bornTimestamp"] for line in text.splitlines()} == kept
        assert "/proc/self" not in result.out + result.err


def test_as_parquet(whole: Path, broken: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    result = process("salvage", broken, tmp_path / "all.parquet", "--to", "parquet")
    assert result.code == 1, result.err
    table = pq.read_table(tmp_path / "all.parquet")
    assert {time // 1000 for time in table["bornTimestamp"].cast("int64").to_pylist()} == survivors(whole)
    assert not [name for name in table.column_names if "/proc/self" in str(table[name][0])]


def test_a_file_is_read_to_the_last_byte_that_can_be(whole: Path, broken: Path, tmp_path: Path) -> None:
    for name in FILES:
        path, size = broken / "commitlog" / name, 4 << 20
        assert not is_fully_readable(str(path), size)
        assert is_fully_readable(str(whole / "commitlog" / name), size)
        with open(tmp_path / name, "w+b") as copy:
            copy.truncate(size)
            gaps = copy_readable(str(path), size, copy)
        assert [(gap.start, gap.stop) for gap in gaps] == pages(BAD[name])
        expected = bytearray((whole / "commitlog" / name).read_bytes())
        for start, stop in pages(BAD[name]):
            expected[start:stop] = bytes(stop - start)
        assert (tmp_path / name).read_bytes() == expected


def test_no_room_for_a_copy_is_told(broken: Path, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    result = process("salvage", broken, tmp_path / "new", preexec_fn=limit)
    assert result.code == 3
    assert "no room for a copy of what can be read of" in result.err
    assert len(result.err.splitlines()) == 1
    assert not (tmp_path / "new").exists()
