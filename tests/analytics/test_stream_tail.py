"""How far a live log is read, and what a stream makes of it, without Spark: at every byte that is written."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructField, StructType

from formats.message_build import build_blank
from rmqtool.analytics.source import RocketMQSource
from rmqtool.analytics.stream import Tail
from rmqtool.analytics.stream_tail import Budget, Expired, frontier
from rmqtool.errors import BadValue, UnreadableStore
from rmqtool.store.commit_log import CommitLog
from rmqtool.store.layout import StoreLayout
from tests.analytics.helpers import log_of, record, store_of

SCHEMA = StructType([StructField("physicalOffset", LongType()), StructField("topic", StringType())])
SIZE = 4096


def ends_of(data: bytes) -> list[int]:
    """Where the records of a log end, and 0."""
    ends = [0]
    while ends[-1] < len(data) and data[ends[-1] + 4 : ends[-1] + 5] != b"\0":
        ends.append(ends[-1] + int.from_bytes(data[ends[-1] : ends[-1] + 4], "big"))
    return ends


def tail(*paths: object, **options: str) -> Tail:
    path = ",".join(map(str, paths))
    return RocketMQSource(CaseInsensitiveDict({"path": path, **options})).streamReader(SCHEMA)


def offsets(stream: Tail, start: dict[str, int], end: dict[str, int]) -> list[int]:
    """The messages of a batch."""
    parts = stream.partitions(start, end)
    return [row["physicalOffset"] for part in parts for batch in stream.read(part) for row in batch.to_pylist()]


def everything(stream: Tail, limit: Any) -> list[list[int]]:
    """The batches until nothing more comes."""
    found, at = [], stream.initialOffset()
    while (reached := stream.latestOffset(at, limit)) != at:
        found.append(offsets(stream, at, reached))
        at = json.loads(json.dumps(reached))  # as a checkpoint keeps it
    return found


@pytest.mark.parametrize("properties", [b"TAGS\x01t\x02KEYS\x01a b", b""])
@pytest.mark.parametrize("preallocated", [True, False])
def test_a_record_is_read_when_its_last_byte_is_there(properties: bytes, preallocated: bool, tmp_path: Path) -> None:
    data = log_of(["T", "Topic", "T"], properties=properties, body=b"b" * 9)
    ends = ends_of(data)
    layout = store_of(tmp_path, b"", size=SIZE)
    path = Path(layout.root) / "commitlog" / f"{0:020d}"
    for written in range(len(data) + 1):
        path.write_bytes(data[:written].ljust(SIZE if preallocated else written, b"\0"))
        reached = frontier(CommitLog(layout), 0, Budget())
        # without properties a record ends with their length, which is zero: whether it is there cannot be seen
        slack = 2 if not properties and preallocated else 0
        assert reached in ends, written
        assert max(end for end in ends if end <= written) <= reached <= written + slack


def test_a_body_that_is_not_written_yet_holds_a_record_back(tmp_path: Path) -> None:
    whole = record("T", 0, body=b"x" * 100)
    at = whole.index(b"x" * 100)
    torn = whole[: at + 50] + bytes(50) + whole[at + 100 :]
    layout = store_of(tmp_path, torn, size=SIZE)
    assert frontier(CommitLog(layout), 0, Budget()) == 0
    # with another record behind it, it is damaged: the reader says so and goes on
    path = Path(layout.root) / "commitlog" / f"{0:020d}"
    path.write_bytes((torn + record("T", len(torn), number=1)).ljust(SIZE, b"\0"))
    stream = tail(layout.root)
    assert everything(stream, ReadAllAvailable()) == [[len(torn)]]


def two_files(folder: Path, *, last: bool = True) -> tuple[StoreLayout, list[int]]:
    """A log of two files, and where its messages lie."""
    first = log_of(["A", "B", "A"])
    starts = ends_of(first)[:-1]
    second = log_of(["B"] * 4, base=SIZE)
    full = first + build_blank(SIZE - len(first))
    layout = store_of(folder, full, *([second] if last else []), size=SIZE)
    return layout, starts + ([SIZE + at for at in ends_of(second)[:-1]] if last else [])


def test_a_log_rolls(tmp_path: Path) -> None:
    layout, starts = two_files(tmp_path, last=False)
    stream = tail(layout.root)
    reached = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert reached == {layout.root: SIZE}
    assert stream.latestOffset(reached, ReadAllAvailable()) == reached  # the next file is not there yet
    second = log_of(["C", "D"], base=SIZE)
    (Path(layout.root) / "commitlog" / f"{SIZE:020d}").write_bytes(second)
    later = stream.latestOffset(reached, ReadAllAvailable())
    assert later == {layout.root: SIZE + len(second)}
    assert offsets(stream, stream.initialOffset(), later)[: len(starts)] == starts
    assert offsets(stream, reached, later) == [SIZE, SIZE + len(second) // 2]


@pytest.mark.parametrize("size", [1, 300, 1000, 10**6])
def test_limits(size: int, tmp_path: Path) -> None:
    layout, starts = two_files(tmp_path)
    batches = everything(tail(layout.root, splitBytes="200"), ReadMaxBytes(size))
    assert [offset for batch in batches for offset in batch] == starts
    assert len(batches[0]) == max(min(size // (starts[1] + 2), len(starts)), 1)
    for count in (1, 2, 5):
        batches = everything(tail(layout.root), ReadMaxRows(count))
        assert [len(batch) for batch in batches[:-1]] == [count] * (len(batches) - 1)
        assert [offset for batch in batches for offset in batch] == starts


def test_two_stores_share_a_limit_and_neither_waits_for_ever(tmp_path: Path) -> None:
    stores = [two_files(tmp_path / name)[0].root for name in ("a", "b")]
    stream = tail(*stores)
    at, seen = stream.initialOffset(), []
    for _ in range(14):
        reached = stream.latestOffset(at, ReadMaxRows(1))
        assert len(offsets(stream, at, reached)) == 1
        seen.append(next(root for root in stores if reached[root] != at[root]))
        at = reached
    assert stream.latestOffset(at, ReadMaxRows(1)) == at
    assert set(seen[:7]) == set(stores)


def test_options_say_which_limit_spark_is_told(tmp_path: Path) -> None:
    root = two_files(tmp_path)[0].root
    assert tail(root).getDefaultReadLimit() == ReadAllAvailable()
    assert tail(root, maxBytesPerTrigger="10").getDefaultReadLimit() == ReadMaxBytes(10)
    assert tail(root, maxRecordsPerTrigger="2").getDefaultReadLimit() == ReadMaxRows(2)
    both = tail(root, maxBytesPerTrigger="1000000", maxRecordsPerTrigger="2")
    assert len(everything(both, both.getDefaultReadLimit())[0]) == 2


def test_where_a_stream_begins(tmp_path: Path) -> None:
    layout, starts = two_files(tmp_path)
    end = CommitLog(layout).end()[0]
    assert tail(layout.root, startingPosition="latest").initialOffset() == {layout.root: end}
    given = tail(layout.root, startingPosition=json.dumps({layout.root: starts[2]}))
    assert everything(given, ReadAllAvailable()) == [starts[2:]]
    with pytest.raises(BadValue, match="no position in"):
        tail(layout.root, startingPosition="{}").initialOffset()
    for wrong in ("nowhere", "[1]", '{"/a": "x"}'):
        with pytest.raises(BadValue, match="startingPosition"):
            tail(layout.root, startingPosition=wrong)
    with pytest.raises(BadValue, match="onExpired"):
        tail(layout.root, onExpired="ignore")
    with pytest.raises(BadValue, match="cannot be streamed"):
        tail(layout.root, table="queues")


def test_available_now_ends_where_the_log_ended(tmp_path: Path) -> None:
    layout, starts = two_files(tmp_path)
    stream = tail(layout.root)
    stream.prepareForTriggerAvailableNow()
    path = Path(layout.root) / "commitlog" / f"{SIZE:020d}"
    content = bytearray(path.read_bytes())
    end = CommitLog(layout).end()[0] - SIZE
    later = record("late", end, base=SIZE)
    content[end : end + len(later)] = later
    path.write_bytes(content)
    assert everything(stream, ReadMaxRows(3)) == [starts[:3], starts[3:6], starts[6:]]
    assert everything(tail(layout.root), ReadAllAvailable()) == [[*starts, SIZE + end]]


def test_expired_files(tmp_path: Path) -> None:
    layout, starts = two_files(tmp_path)
    stream, skipping = tail(layout.root), tail(layout.root, onExpired="skip")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    planned = skipping.partitions(start, end), stream.partitions(start, end)
    (Path(layout.root) / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(Expired, match=f"begins at {SIZE}, and was read up to 0: {SIZE} bytes have expired"):
        stream.latestOffset(start, ReadAllAvailable())
    with pytest.raises(UnreadableStore, match="has expired"):
        stream.partitions(start, end)
    assert offsets(skipping, start, skipping.latestOffset(start, ReadAllAvailable())) == starts[3:]
    # files that go between planning and reading
    assert [row for part in planned[0] for batch in skipping.read(part) for row in batch.to_pylist()]
    with pytest.raises(UnreadableStore, match="No such file"):
        list(stream.read(planned[1][0]))


def test_a_log_that_was_cut_or_replaced(tmp_path: Path) -> None:
    layout, _starts = two_files(tmp_path)
    stream = tail(layout.root)
    with pytest.raises(UnreadableStore, match="was read up to 999999"):
        stream.latestOffset({layout.root: 999_999}, ReadAllAvailable())
    for path in (Path(layout.root) / "commitlog").iterdir():
        path.unlink()
    with pytest.raises(UnreadableStore, match="has no files"):
        stream.latestOffset({layout.root: SIZE}, ReadAllAvailable())


def test_large_logs_are_gone_through_by_compiled_code(tmp_path: Path) -> None:
    from tests.bench.make_log import write_log

    root = tmp_path / "store"
    count = write_log(root / "commitlog", body=200, file_size=24 << 20, messages=100_000)
    stream = tail(root)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end == {str(root): CommitLog(StoreLayout(str(root))).end()[0]}
    assert len(offsets(stream, start, end)) == count
    reached = stream.latestOffset(start, ReadMaxBytes(5 << 20))
    assert (5 << 20) - 1000 < reached[str(root)] <= 5 << 20
    assert stream.latestOffset(start, ReadMaxRows(70_001)) != end
    assert len(offsets(stream, start, stream.latestOffset(start, ReadMaxRows(70_001)))) == 70_001
