"""How far a live log is read, and the batches of a stream, without Spark, at every written byte."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from formats.message.build import build_blank
from rmqtool.analytics.ranges.tail import Budget, PositionExpired, frontier
from rmqtool.analytics.source.stream import Tail
from rmqtool.analytics.source.tables_source import RocketMQSource
from rmqtool.errors import BadValue, Refused, UnreadableStore
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests import roles
from tests.amounts import by_turns
from tests.analytics.helpers import log_of, record, store_of
from tests.cli.running import rmqtool
from tests.conftest import Unpacked

SCHEMA = StructType([StructField("physicalOffset", LongType()), StructField("topic", StringType())])
SIZE = 4096


def ends_of(data: bytes) -> list[int]:
    """The ends of a log's records, and 0."""
    ends = [0]
    while ends[-1] < len(data) and data[ends[-1] + 4 : ends[-1] + 5] != b"\0":
        ends.append(ends[-1] + int.from_bytes(data[ends[-1] : ends[-1] + 4], "big"))
    return ends


def tail(*paths: object, **options: str) -> Tail:
    path = ",".join(map(str, paths))
    return RocketMQSource(CaseInsensitiveDict({"path": path, **options})).streamReader(SCHEMA)


def ends(offset: dict[str, Any]) -> dict[str, int]:
    """The positions in a stream offset, without proofs."""
    return {root: told["next"] for root, told in offset.items()}


def offsets(stream: Tail, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """Physical offsets of a batch's messages."""
    parts = stream.partitions(start, end)
    return [row["physicalOffset"] for part in parts for batch in stream.read(part) for row in batch.to_pylist()]


def everything(stream: Tail, limit: Any) -> list[list[int]]:
    """All batches until there are no more."""
    collected, at = [], stream.initialOffset()
    while (reached := stream.latestOffset(at, limit)) != at:
        collected.append(offsets(stream, at, reached))
        at = json.loads(json.dumps(reached))  # as a checkpoint keeps it
    return collected


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
    """A log of two files, and the positions of its messages."""
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
    assert ends(reached) == {layout.root: SIZE}
    assert stream.latestOffset(reached, ReadAllAvailable()) == reached  # the next file is not there yet
    second = log_of(["C", "D"], base=SIZE)
    (Path(layout.root) / "commitlog" / f"{SIZE:020d}").write_bytes(second)
    later = stream.latestOffset(reached, ReadAllAvailable())
    assert ends(later) == {layout.root: SIZE + len(second)}
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


@pytest.mark.parametrize("pattern", ["*/store", ""], ids=["pattern", "directory"])
def test_a_store_that_comes_later_is_read_from_its_beginning(pattern: str, tmp_path: Path) -> None:
    """By a pattern, or in a directory that only has stores in it."""
    first, starts = two_files(tmp_path / "a")
    stream = tail(tmp_path / pattern)
    at = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    (tmp_path / "b" / "store").mkdir(parents=True)
    assert stream.latestOffset(at, ReadAllAvailable()) == at  # not a store yet
    (tmp_path / "b" / "store").rmdir()
    other = two_files(tmp_path / "b")[0].root
    noted = stream.latestOffset(at, ReadAllAvailable())
    assert ends(noted) == {**ends(at), other: 0}
    assert offsets(stream, at, noted) == []
    reached = stream.latestOffset(noted, ReadAllAvailable())
    assert offsets(stream, noted, reached) == starts
    assert stream.latestOffset(reached, ReadAllAvailable()) == reached
    # a process that begins with the checkpoint repeats the batch
    assert offsets(tail(tmp_path / pattern), noted, reached) == starts
    assert first.root in reached
    now = tail(tmp_path / pattern)
    now.prepareForTriggerAvailableNow()
    later = two_files(tmp_path / "c")[0].root
    assert later not in now.latestOffset(reached, ReadAllAvailable())


def test_a_store_that_goes_is_missed(tmp_path: Path) -> None:
    two_files(tmp_path / "a")
    other = Path(two_files(tmp_path / "b")[0].root)
    at = (stream := tail(tmp_path / "*" / "store")).initialOffset()
    reached = stream.latestOffset(at, ReadAllAvailable())
    other.rename(tmp_path / "away")
    again = tail(tmp_path / "*" / "store")
    with pytest.raises(UnreadableStore, match=f"{other}: no such directory, and what was stored there is to be read"):
        again.partitions(at, reached)
    assert again.latestOffset(reached, ReadAllAvailable()) == reached  # all of it was read
    assert again.partitions(reached, reached) == []


@pytest.mark.parametrize("name", ["x.importing", "x.salvaging", "x.rmqtool"])
def test_a_store_that_is_being_made_is_not_read(name: str, tmp_path: Path) -> None:
    two_files(tmp_path / "a")
    stream = tail(tmp_path / "*" / "store*")
    at = stream.initialOffset()
    made = two_files(tmp_path / "b")[0].root
    Path(made).rename(f"{made}-{name}")
    assert stream.latestOffset(at, ReadAllAvailable()).keys() == at.keys()


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
    assert tail(layout.root, startingPosition="latest").initialOffset()[layout.root]["next"] == end
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
    with pytest.raises(PositionExpired, match=f"begins at {SIZE}, and was read up to 0: {SIZE} bytes have expired"):
        stream.latestOffset(start, ReadAllAvailable())
    with pytest.raises(UnreadableStore, match="has expired"):
        stream.partitions(start, end)
    assert offsets(skipping, start, skipping.latestOffset(start, ReadAllAvailable())) == starts[3:]
    # files that go between planning and reading
    assert [row for part in planned[0] for batch in skipping.read(part) for row in batch.to_pylist()]
    with pytest.raises(UnreadableStore, match="No such file"):
        list(stream.read(planned[1][0]))


def cut_and_grown(root: Path, layout: StoreLayout) -> None:
    """Cut the log in the middle of the first file, and append far beyond its old end."""
    data = log_of(["A", "cut", "B", "B", "B", "B", "B"])
    (root / f"{0:020d}").write_bytes(data.ljust(SIZE, b"\0"))
    (root / f"{SIZE:020d}").write_bytes(log_of(["N"] * 9, base=SIZE).ljust(SIZE, b"\0"))


def only_cut(root: Path, layout: StoreLayout) -> None:
    path = root / f"{SIZE:020d}"
    data = path.read_bytes()
    path.write_bytes(data[: ends_of(data)[2]].ljust(SIZE, b"\0"))


def of_another_store(root: Path, layout: StoreLayout) -> None:
    """A log with seemingly the same messages, stored at another time."""
    for number, count in ((0, 3), (1, 6)):
        data = log_of(["A", "B", "A", "B", "B", "B"][:count], base=SIZE * number, store_timestamp=77)
        (root / f"{SIZE * number:020d}").write_bytes(data.ljust(SIZE, b"\0"))


def without_files(root: Path, layout: StoreLayout) -> None:
    for path in root.iterdir():
        path.unlink()


def shorter(root: Path, layout: StoreLayout) -> None:
    (root / f"{SIZE:020d}").unlink()


@pytest.mark.parametrize("change", [cut_and_grown, only_cut, of_another_store, without_files, shorter])
@pytest.mark.parametrize("options", [{}, {"onExpired": "skip"}, {"onUnproven": "accept"}])
def test_a_log_that_was_cut_or_replaced(
    options: dict[str, str], change: Callable[[Path, StoreLayout], None], tmp_path: Path
) -> None:
    """The stream stops: nothing is lost or repeated, even with a planned batch."""
    layout, _starts = two_files(tmp_path)
    stream = tail(layout.root, **options)
    start = stream.initialOffset()
    end = json.loads(json.dumps(stream.latestOffset(start, ReadAllAvailable())))
    planned = stream.partitions(start, end)
    change(Path(layout.root) / "commitlog", layout)
    again = tail(layout.root, **options)
    for call in (
        lambda: again.latestOffset(end, ReadAllAvailable()),
        lambda: again.partitions(start, end),
        lambda: again.partitions(end, end),
        lambda: [list(stream.read(part)) for part in planned],
    ):
        with pytest.raises((Refused, UnreadableStore)) as told:
            call()
        assert "\n" not in str(told.value)
    with pytest.raises(Refused, match=r"was read up to .* To go on: a new checkpointLocation, with startingPosition"):
        again.latestOffset(end, ReadAllAvailable())


def test_offsets_of_earlier_versions(tmp_path: Path) -> None:
    """They prove nothing: a user who knows that the store is unchanged can accept them."""
    layout, starts = two_files(tmp_path)
    root = layout.root
    assert everything(tail(root), ReadAllAvailable()) == [starts]
    fresh = tail(root).latestOffset({root: 0}, ReadAllAvailable())
    assert offsets(tail(root), {root: 0}, fresh) == starts  # nothing was read before it
    for old in (starts[2], 999_999):
        with pytest.raises(Refused, match=r"earlier version, which does not prove .* option onUnproven=accept"):
            tail(root).latestOffset({root: old}, ReadAllAvailable())
        with pytest.raises(Refused, match="earlier version"):
            tail(root).partitions({root: 0}, {root: old})
    accepting = tail(root, onUnproven="accept")
    reached = accepting.latestOffset({root: starts[2]}, ReadAllAvailable())
    assert offsets(accepting, {root: starts[2]}, reached) == starts[2:]
    assert tail(root).latestOffset(reached, ReadAllAvailable()) == reached  # from now on it is proved
    with pytest.raises(Refused, match=r"was cut and rewritten since: .* lies inside of the message at"):
        accepting.latestOffset({root: starts[2] + 30}, ReadAllAvailable())
    with pytest.raises(Refused, match="its files end at"):
        accepting.latestOffset({root: 999_999}, ReadAllAvailable())
    with pytest.raises(BadValue, match="onUnproven"):
        tail(root, onUnproven="yes")


@pytest.mark.parametrize(
    "offset", ["7", None, [], {"next": 5}, {"next": 9, "last": 5, "last_end": 4, "last_crc": 0}, 0.5]
)
def test_a_checkpoint_that_holds_anything(offset: Any, tmp_path: Path) -> None:
    layout, starts = two_files(tmp_path)
    stream = tail(layout.root)
    if offset is None:  # of a store that was not there before
        assert (
            offsets(stream, {layout.root: None}, stream.latestOffset({layout.root: None}, ReadAllAvailable())) == starts
        )
        return
    with pytest.raises(BadValue, match="which is not an offset"):
        stream.latestOffset({layout.root: offset}, ReadAllAvailable())


@by_turns(3)
def test_a_stream_begins_where_a_message_does(tmp_path: Path) -> None:
    layout, starts = two_files(tmp_path)
    blank = starts[3] - SIZE + ends_of((Path(layout.root) / "commitlog" / f"{0:020d}").read_bytes())[3]
    end = CommitLog(layout).end()[0]
    for begin in range(end + 1):
        stream = tail(layout.root, startingPosition=json.dumps({layout.root: begin}))
        if begin in (*starts, blank, end):
            result = everything(stream, ReadAllAvailable())
            assert result == ([[at for at in starts if at >= begin]] if begin < end else [])
        else:
            with pytest.raises(BadValue, match="startingPosition"):
                stream.initialOffset()
    with pytest.raises(BadValue, match="beyond the end of the log"):
        tail(layout.root, startingPosition=json.dumps({layout.root: 999_999})).initialOffset()
    with pytest.raises(BadValue, match="startingPosition"):
        tail(layout.root, startingPosition=json.dumps({layout.root: -1}))


def test_the_case_that_was_reported(golden_copy: Unpacked, tmp_path: Path) -> None:
    """Streamed to its end, cut by ``truncate``, and 200 appended, so that the log grew beyond the old position."""
    root = golden_copy("broker")
    whole = [item for item in CommitLog(StoreLayout(str(root))).walk() if isinstance(item, LocatedRecord)]
    stream = tail(root)
    at = stream.initialOffset()
    end = stream.latestOffset(at, ReadAllAvailable())
    assert len(offsets(stream, at, end)) == len(whole)
    middle = whole[len(whole) * 9 // 10].physical_offset
    result = rmqtool("truncate", root, middle, "--yes")
    assert result.code == 0, result.err
    lines = "".join(json.dumps({"topic": "Grown", "body": "x" * 1000}) + "\n" for _ in range(200))
    (tmp_path / "lines").write_text(lines)
    result = rmqtool("append", root, tmp_path / "lines")
    assert result.code == 0, result.err
    assert CommitLog(StoreLayout(str(root))).end()[0] > end[str(root)]["next"]
    with pytest.raises(Refused, match="is not the one that was read"):
        tail(root).latestOffset(end, ReadAllAvailable())


def test_large_logs_are_gone_through_by_compiled_code(tmp_path: Path) -> None:
    from tests.bench.make_log import write_log

    root = tmp_path / "store"
    count = write_log(root / "commitlog", body=200, file_size=24 << 20, messages=100_000)
    stream = tail(root)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    assert ends(end) == {str(root): CommitLog(StoreLayout(str(root))).end()[0]}
    assert len(offsets(stream, start, end)) == count
    reached = stream.latestOffset(start, ReadMaxBytes(5 << 20))
    assert (5 << 20) - 1000 < reached[str(root)]["next"] <= 5 << 20
    assert stream.latestOffset(start, ReadMaxRows(70_001)) != end
    assert len(offsets(stream, start, stream.latestOffset(start, ReadMaxRows(70_001)))) == 70_001


def test_batches_of_selected_messages_are_not_empty(tmp_path: Path) -> None:
    """Whatever the limit; and the position does not stay behind what retention deletes."""
    topics = ["A"] * 40 + ["B"] + ["A"] * 7 + ["B", "B"]
    layout = store_of(tmp_path, log_of(topics), size=1 << 16)
    for options in ({"maxRecordsPerTrigger": "3"}, {"maxBytesPerTrigger": "300"}, {}):
        batches = everything(tail(layout.root, topic="B", **options), ReadMaxRows(3) if "R" in str(options) else None)
        assert [len(batch) for batch in batches if batch] == [len(batch) for batch in batches]
        assert sum(map(len, batches)) == 3
    stream = tail(layout.root, topic="C", maxRecordsPerTrigger="3")
    start = stream.initialOffset()
    assert stream.latestOffset(start, ReadMaxRows(3)) == start
    assert stream.latestOffset(start, ReadMaxRows(3)) == start  # without looking again
    small = store_of(tmp_path / "small", *(log_of(["A"] * 10, base=SIZE * n) for n in range(3)), size=SIZE)
    stream = tail(small.root, topic="C", maxRecordsPerTrigger="3")
    start = stream.initialOffset()
    moved = stream.latestOffset(start, ReadMaxRows(3))
    assert ends(moved)[small.root] > SIZE
    assert offsets(stream, start, moved) == []


ALONE = "ignore:.* are in the tier alone"
PLACE = StructType(
    [
        StructField("topic", StringType()),
        StructField("queueId", IntegerType()),
        StructField("queueOffset", LongType()),
        StructField("physicalOffset", LongType()),
    ]
)


@pytest.fixture
def tiered(tmp_path: Path) -> roles.Node:
    return roles.unpack(roles.NEW_TIERED, "a", tmp_path)


def tier_stream(node: roles.Node, **options: str) -> Tail:
    given = {"path": str(node.store), "brokerConf": str(node.conf), **options}
    return RocketMQSource(CaseInsensitiveDict(given)).streamReader(PLACE)


def places(stream: Tail, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Queue and queue offset of each message of a batch."""
    parts = stream.partitions(start, end)
    rows = [row for part in parts for batch in stream.read(part) for row in batch.to_pylist()]
    return [(row["topic"], row["queueId"], row["queueOffset"]) for row in rows]


def dumped(node: roles.Node) -> list[tuple[str, int, int]]:
    """What the dump reads of a store with a tier."""
    result = rmqtool("commitlog", "dump", node.store, "--broker-conf", node.conf, "-o", "ndjson", "--body", "none")
    rows = map(json.loads, result.out.splitlines())
    return sorted((row["topic"], row["queueId"], row["queueOffset"]) for row in rows)


@pytest.mark.filterwarnings(ALONE)
@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(50), ReadMaxBytes(20_000)], ids=str)
def test_a_stream_begins_with_what_is_in_the_tier_alone(limit: Any, tiered: roles.Node) -> None:
    stream, batches = tier_stream(tiered), []
    at = stream.initialOffset()
    assert at[str(tiered.store)]["tier"], "otherwise the store has nothing in the tier alone"
    while (reached := stream.latestOffset(at, limit)) != at:
        batches.append(places(stream, at, reached))
        assert places(tier_stream(tiered), at, reached) == batches[-1], "a repeated batch has the same messages"
        at = json.loads(json.dumps(reached))
    assert sorted(place for batch in batches for place in batch) == dumped(tiered)
    if isinstance(limit, ReadMaxRows):
        assert max(map(len, batches)) <= 50
    if not isinstance(limit, ReadAllAvailable):
        assert len(batches) > 5
    assert "tier" not in at[str(tiered.store)]


@pytest.mark.filterwarnings(ALONE)
def test_small_files_of_a_tier_are_read_by_one_task(tiered: roles.Node) -> None:
    given = {"path": str(tiered.store), "brokerConf": str(tiered.conf)}
    reader = RocketMQSource(CaseInsensitiveDict(given)).reader(PLACE)
    parts = reader.partitions()
    assert len(parts) <= 2, "the log, and the tier"
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted((row["topic"], row["queueId"], row["queueOffset"]) for row in rows) == dumped(tiered)
    assert len(RocketMQSource(CaseInsensitiveDict({**given, "splitBytes": "1"})).reader(PLACE).partitions()) > 10


@pytest.mark.filterwarnings(ALONE)
def test_a_stream_from_the_end_leaves_the_tier_out(tiered: roles.Node) -> None:
    stream = tier_stream(tiered, startingPosition="latest")
    at = stream.initialOffset()
    assert stream.latestOffset(at, ReadAllAvailable()) == at


@pytest.mark.filterwarnings(ALONE)
def test_what_leaves_the_log_between_two_tries_of_a_batch_is_read_from_the_tier(tiered: roles.Node) -> None:
    stream = tier_stream(tiered)
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    first = min((tiered.store / "commitlog").iterdir())
    before = dumped(tiered)
    first.unlink()
    again = tier_stream(tiered)
    got = sorted(places(again, again.initialOffset(), end))
    assert got == dumped(tiered)
    assert len(got) == len(set(got)) > len(before) / 2


@pytest.mark.filterwarnings(ALONE)
def test_what_the_tier_has_deleted_meanwhile_stops_the_stream(tiered: roles.Node) -> None:
    stream = tier_stream(tiered)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    name = min(start[str(tiered.store)]["tier"])
    (units,) = {path.parent for path in (tiered.store / "tiered").rglob(f"{name}/CONSUME_QUEUE/*")}
    min(units.iterdir(), key=lambda path: path.name[-20:]).unlink()
    with pytest.raises(UnreadableStore, match="the tier has deleted"):
        places(stream, start, end)
    skipping = tier_stream(tiered, onExpired="skip")
    assert places(skipping, start, end)
