"""The data source without Spark: what is planned and read, and how much of it, for every golden store and every cut."""

import hashlib
import pickle
import shutil
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from rmqtool.analytics import source_narrow
from rmqtool.analytics.schema import MESSAGE_SCHEMA
from rmqtool.analytics.source import FilteringReader, Reader, RocketMQSource, condition_of
from rmqtool.analytics.source_filter import Condition, Wanted
from rmqtool.analytics.source_plan import Piece, pieces, request_of, stores_of
from rmqtool.analytics.source_read import Counters, read_piece, saved
from rmqtool.analytics.source_start import exact
from rmqtool.analytics.source_tables import SCHEMAS, TABLES, Store
from rmqtool.analytics.splits import Split
from rmqtool.contract import QUEUE_ENTRY_FIELDS
from rmqtool.errors import BadValue, CorruptFile, UnreadableStore
from rmqtool.services.offsets import consumer_offsets
from rmqtool.store.check import check_store
from rmqtool.store.commit_log import CommitLog, Damage, Found
from rmqtool.store.layout import StoreLayout
from tests import goldens
from tests.analytics.helpers import engine_messages, log_of, plain, same_as_golden, store_of
from tests.analytics.stores import MESSAGES, day_store, time_of, topic_of
from tests.analytics.test_splits import body_with_a_record, holes, moved, old_records_behind_a_blank
from tests.conftest import Unpacked
from tests.store.helpers import conf_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(millis: int) -> datetime:
    return EPOCH + timedelta(milliseconds=millis)


def read(
    root: object, conditions: Iterable[Condition] = (), columns: list[str] | None = None, **options: str
) -> tuple[list[dict[str, Any]], Counters]:
    """Rows as a reader gives them, before Spark looks at conditions, and what it cost."""
    request = request_of({"path": str(root), **options})
    found, bytes_read = pieces(request, request.wanted.narrowed(conditions))
    counters = Counters(bytesRead=bytes_read)
    names = columns or SCHEMAS[request.table].names
    rows = [
        row
        for piece in found
        for batch in read_piece(pickle.loads(pickle.dumps(piece)), names, counters)
        for row in batch.to_pylist()
    ]
    assert counters.rows == len(rows)
    return rows, counters


# -- every golden store -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", goldens.cases())
def test_messages_are_what_the_engine_says(case: str, golden: Unpacked) -> None:
    rows, counters = read(golden(case), splitBytes="9000")
    items = list(CommitLog(StoreLayout(str(golden(case)))).walk())
    assert [row["physicalOffset"] for row in rows] == [i.physical_offset for i in items if isinstance(i, Found)]
    damage = [item for item in items if isinstance(item, Damage)]
    assert (counters.damaged, counters.damagedBytes) == (len(damage), sum(item.length for item in damage))
    by_offset = {row["physicalOffset"]: plain(row) for row in rows}
    assert {row["broker"] for row in rows} <= {"store"}
    # of a damaged store the engine's own recovery has cut what lies behind the damage
    said = engine_messages(case) if goldens.has(case, "messages.ndjson.gz") else {}
    messages = {at: message for at, message in said.items() if at in by_offset}
    if not damage:
        assert messages.keys() == said.keys()
    for offset, message in messages.items():
        same_as_golden(by_offset[offset], message)
    assert sum(row["storeSize"] for row in rows if row["physicalOffset"] in messages) == sum(
        message["storeSize"] for message in messages.values()
    )


@pytest.mark.parametrize("case", goldens.cases())
def test_the_other_tables_are_what_the_commands_say(case: str, golden: Unpacked) -> None:
    root = golden(case)
    layout = StoreLayout(str(root))
    findings, _counters = read(root, table="findings")
    assert [{k: v for k, v in row.items() if k != "broker"} for row in findings] == [
        finding.to_dict() for finding in check_store(layout)
    ]
    queues, _counters = read(root, table="queues", splitBytes="1")
    entries = {(row["topic"], row["queueId"], row["queueOffset"]): row for row in queues}
    assert len(entries) == len(queues)
    if case in ("clean", "broker", "delay", "ipv6", "large-bodies", "queue-ext"):
        said = list(goldens.messages(case))
        assert len(said) == len(queues)
        for row in said:
            entry = entries[row["cqTopic"], row["cqQueueId"], row["cqOffset"]]
            told = (row["cqPhysicalOffset"], row["cqSize"], row["cqTagsCode"])
            assert (entry["physicalOffset"], entry["size"], entry["tagsCode"]) == told
    if case.startswith("broker"):
        offsets, _counters = read(root, table="offsets")
        assert [{k: v for k, v in row.items() if k != "broker"} for row in offsets] == [
            row.to_dict() for row in consumer_offsets(layout)
        ]
    assert list(SCHEMAS["queues"].names) == [*QUEUE_ENTRY_FIELDS, "broker"]


@pytest.mark.parametrize("case", goldens.cases())
def test_narrow_reads_miss_nothing(case: str, golden: Unpacked) -> None:
    """By topic, id, key and time: what a whole read would have kept, in damaged stores too."""
    root = golden(case)
    columns = ["topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "msgId", "keys", "tags"]
    whole, _counters = read(root, columns=columns)

    def check(conditions: list[Condition], keep: Callable[[dict[str, Any]], bool]) -> None:
        found, _counters = read(root, conditions, columns)
        kept = sorted(row["physicalOffset"] for row in found if keep(row))
        assert kept == [row["physicalOffset"] for row in whole if keep(row)], conditions

    for topic in {row["topic"] for row in whole}:
        check([Condition("topic", "=", topic)], lambda row, topic=topic: row["topic"] == topic)
        both = [Condition("topic", "=", topic), Condition("queueId", "in", [1, 3]), Condition("queueOffset", ">=", 5)]
        check(
            both,
            lambda row, topic=topic: row["topic"] == topic and row["queueId"] in (1, 3) and row["queueOffset"] >= 5,
        )
    for row in whole[:: max(len(whole) // 15, 1)]:
        check([Condition("msgId", "=", row["msgId"])], lambda other, row=row: other["msgId"] == row["msgId"])
        check(
            [Condition("storeTimestamp", "<=", row["storeTimestamp"]), Condition("tags", "=", row["tags"])],
            lambda other, row=row: other["storeTimestamp"] <= row["storeTimestamp"] and other["tags"] == row["tags"],
        )
        for key in row["keys"]:
            check([Condition("keys", "has", key)], lambda other, key=key: key in other["keys"])


def test_columns_in_any_order(golden: Unpacked) -> None:
    rows, _counters = read(golden("clean"), columns=["broker", "queueId", "topic"])
    assert list(rows[0]) == ["broker", "queueId", "topic"]
    counted, _counters = read(golden("clean"), columns=["broker"])
    assert len(counted) == len(rows) == 500


# -- cuts -------------------------------------------------------------------------------------------------------------


def starts(root: str, file: Path, start: int, stop: int, *, exactly: bool = False, last: bool = True) -> list[int]:
    """Where the messages of one byte range lie."""
    split = Split(0, str(file), int(file.name), file.stat().st_size, start, stop, last, exactly or start == 0)
    piece = Piece(Store(root, "b"), "messages", splits=(split,), ranges=(None,))
    batches = read_piece(piece, ["physicalOffset"], Counters())
    return [row["physicalOffset"] for batch in batches for row in batch.to_pylist()]


HOSTILE = [body_with_a_record, old_records_behind_a_blank, moved, holes]


@pytest.mark.parametrize("build", [lambda: log_of(["A", "B"] * 6), *HOSTILE])
def test_a_cut_at_any_byte_loses_and_doubles_nothing(build: Callable[[], bytes], tmp_path: Path) -> None:
    data = build()
    layout = store_of(tmp_path, data, size=len(data) + 40)
    (file,) = (Path(layout.root) / "commitlog").iterdir()
    size = file.stat().st_size
    whole = [item.physical_offset for item in CommitLog(layout).walk() if isinstance(item, Found)]
    assert len(whole) >= 2
    for cut in range(1, size):
        parts = [starts(layout.root, file, 0, cut), starts(layout.root, file, cut, size)]
        assert parts[0] + parts[1] == whole, cut
        assert parts[0] == whole[: len(parts[0])]


@pytest.mark.parametrize("case", ["clean", "torn-header", "body-bit-flip-last-file", "size-field-negative"])
@pytest.mark.parametrize("step", [61, pytest.param(1, marks=pytest.mark.slow)])
def test_golden_logs_cut_at_any_byte(case: str, step: int, golden: Unpacked) -> None:
    log = CommitLog(StoreLayout(str(golden(case))))
    file = log.segments.files[3]
    path, last = Path(file.path), file is log.segments.files[-1]
    whole = starts(log.layout.root, path, 0, file.size, last=last)
    at = 0
    for cut in range(at + 1, file.size, step):
        # where a range begins decides what it has; its end was tried above
        split = Split(0, file.path, file.base, file.size, cut, file.size, last, exact=False)
        begin, _looked = exact(split, Store(log.layout.root, "b"))
        seen = [at for at in whole if at >= file.base + begin.start]
        assert starts(log.layout.root, path, 0, cut, last=last) + seen == whole, cut


def test_a_range_of_a_large_log_begins_where_the_one_before_ends(tmp_path: Path) -> None:
    """Without queues nothing proves a start: the log is gone through, by compiled code."""
    from tests.bench.make_log import write_log

    count = write_log(tmp_path / "store" / "commitlog", body=100, file_size=24 << 20, messages=80_000)
    rows, counters = read(tmp_path / "store", columns=["physicalOffset"], splitBytes=str(9_999_999))
    assert len({row["physicalOffset"] for row in rows}) == len(rows) == count
    assert counters.bytesRead > CommitLog(StoreLayout(str(tmp_path / "store"))).end()[0]


# -- how little is read -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> StoreLayout:
    return day_store(tmp_path_factory.mktemp("day"))


def share(counters: Counters, layout: StoreLayout) -> float:
    return counters.bytesRead / (CommitLog(layout).end()[0])


@pytest.mark.parametrize("way", ["key", "array", "id", "option"])
def test_one_key_reads_under_five_percent(way: str, day: StoreLayout) -> None:
    conditions = {
        "key": [Condition("keys", "has", "k777")],
        "array": [Condition("keys", "=", ["k777"])],
        "id": [Condition("msgId", "=", "U777")],
        "option": [],
    }[way]
    rows, counters = read(day.root, conditions, **({"key": "k777"} if way == "option" else {}))
    assert [row["physicalOffset"] for row in rows if row["msgId"] == "U777"]
    assert len(rows) == 1
    assert 0 < share(counters, day) < 0.05
    nothing, counters = read(day.root, [Condition("msgId", "=", "no such id")])
    assert not nothing
    assert 0 < share(counters, day) < 0.05


def test_one_topic_of_fifty_reads_under_five_percent(day: StoreLayout) -> None:
    rows, counters = read(day.root, [Condition("topic", "=", "topic-07")])
    assert [row["msgId"] for row in rows] == [f"U{n}" for n in range(MESSAGES) if topic_of(n) == "topic-07"]
    assert 0 < share(counters, day) < 0.05
    some, counters = read(
        day.root, [Condition("topic", "=", "topic-07"), Condition("queueId", "=", 1), Condition("queueOffset", "<", 5)]
    )
    assert [row["queueOffset"] for row in some] == [0, 1, 2, 3, 4]
    assert 0 < share(counters, day) < 0.02
    whole, counters = read(day.root, [Condition("topic", "=", "topic-07")], through="log")
    assert whole == rows
    assert share(counters, day) > 0.99


@pytest.mark.parametrize("hour", [0, 7, 23])
def test_one_hour_of_a_day_reads_under_five_percent(hour: int, day: StoreLayout) -> None:
    first, after = time_of(0) + hour * 3_600_000, time_of(0) + (hour + 1) * 3_600_000
    rows, counters = read(
        day.root, [Condition("storeTimestamp", ">=", moment(first)), Condition("storeTimestamp", "<", moment(after))]
    )
    assert [row["msgId"] for row in rows] == [f"U{n}" for n in range(MESSAGES) if first <= time_of(n) < after]
    assert 0.04 < share(counters, day) < 0.05


def test_options_are_applied_and_not_only_looked_up(day: StoreLayout) -> None:
    rows, _counters = read(
        day.root, topic="topic-01,topic-02", tag="t1", queueId="1", since=str(time_of(1000)),
        until=moment(time_of(5000)).isoformat(), startOffset="1000", stopOffset="900000",
    )  # fmt: skip
    assert rows
    for row in rows:
        assert row["topic"] in ("topic-01", "topic-02")
        assert (row["tags"], row["queueId"]) == ("t1", 1)
        assert moment(time_of(1000)) <= row["storeTimestamp"] < moment(time_of(5000))
        assert 1000 <= row["physicalOffset"] < 900_000


def test_a_store_that_was_not_closed_is_read_from_its_log(day: StoreLayout, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(day.root, root)
    (root / "abort").write_text("1")
    rows, counters = read(root, [Condition("topic", "=", "topic-07")])
    assert len(rows) == MESSAGES // 50
    assert share(counters, day) > 0.99


def lost_slots(root: Path) -> None:
    path = sorted((root / "index").iterdir())[0]
    data = bytearray(path.read_bytes())
    data[40 : 40 + 4096] = bytes(4096)
    path.write_bytes(data)


def lost_entries(root: Path) -> None:
    path = sorted((root / "index").iterdir())[0]
    data = bytearray(path.read_bytes())
    at = 40 + 4 * 5000
    data[at : at + 20 * 9000] = bytes(20 * 9000)
    path.write_bytes(data)


def lost_index_file(root: Path) -> None:
    sorted((root / "index").iterdir())[1].unlink()


def lost_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "topic-07")
    shutil.rmtree(root / "index")


def lost_queue_file(root: Path) -> None:
    sorted((root / "consumequeue" / "topic-07" / "1").iterdir())[1].unlink()
    shutil.rmtree(root / "index")


def hole_in_a_queue(root: Path) -> None:
    path = sorted((root / "consumequeue" / "topic-07" / "1").iterdir())[1]
    data = bytearray(path.read_bytes())
    data[200:400] = bytes(200)
    path.write_bytes(data)
    shutil.rmtree(root / "index")


@pytest.mark.parametrize(
    "damage", [lost_slots, lost_entries, lost_index_file, lost_queue, lost_queue_file, hole_in_a_queue]
)
def test_a_way_with_a_hole_is_not_taken(damage: Callable[[Path], None], day: StoreLayout, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(day.root, root)
    damage(root)
    for number in (7, 19_907):
        rows, _counters = read(root, [Condition("topic", "=", "topic-07"), Condition("keys", "has", f"k{number}")])
        assert [row["msgId"] for row in rows] == [f"U{number}"]
    rows, _counters = read(root, [Condition("topic", "=", "topic-07")])
    assert len(rows) == MESSAGES // 50


def test_messages_that_no_queue_points_at_yet_are_found(day: StoreLayout, tmp_path: Path) -> None:
    from tests.analytics.helpers import record

    root = tmp_path / "store"
    shutil.copytree(day.root, root)
    end = CommitLog(day).end()[0]
    path = sorted((root / "commitlog").iterdir())[-1]
    late = record(
        "topic-07", end - int(path.name), base=int(path.name), properties=b"KEYS\x01late\x02UNIQ_KEY\x01U-late"
    )
    data = bytearray(path.read_bytes())
    data[end - int(path.name) : end - int(path.name) + len(late)] = late
    path.write_bytes(data)
    rows, counters = read(root, [Condition("topic", "=", "topic-07")])
    assert len(rows) == MESSAGES // 50 + 1
    assert rows[-1]["msgId"] == "U-late"
    for condition in (Condition("msgId", "=", "U-late"), Condition("keys", "has", "late")):
        rows, counters = read(root, [condition])
        assert [row["msgId"] for row in rows] == ["U-late"]
        assert share(counters, day) < 0.05


# -- filters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pushed", "changed"),
    [
        (EqualTo(("topic",), "T"), {"topics": ("T",)}),
        (In(("topic",), ("T", "U")), {"topics": ("T", "U")}),
        (In(("topic",), ("T", None)), {}),
        (EqualTo(("queueId",), 3), {"queues": (3,)}),
        (EqualTo(("tags",), "a"), {"tags": ("a",)}),
        (EqualTo(("keys",), ["k", "l"]), {"keys": ("k",)}),
        (EqualTo(("keys",), []), {}),
        (EqualTo(("physicalOffset",), 7), {"start": 7, "stop": 8}),
        (GreaterThan(("physicalOffset",), 7), {"start": 8}),
        (GreaterThanOrEqual(("queueOffset",), 7), {"queue_start": 7}),
        (LessThan(("queueOffset",), 7), {"queue_stop": 7}),
        (LessThanOrEqual(("queueOffset",), 7), {"queue_stop": 8}),
        (EqualTo(("storeTimestamp",), moment(5)), {"since": 5, "until": 6}),
        (GreaterThan(("storeTimestamp",), moment(5)), {"since": 6}),
        (GreaterThan(("storeTimestamp",), moment(5) + timedelta(microseconds=1)), {"since": 6}),
        (GreaterThanOrEqual(("storeTimestamp",), moment(5) + timedelta(microseconds=1)), {"since": 6}),
        (LessThan(("storeTimestamp",), moment(5) + timedelta(microseconds=1)), {"until": 6}),
        (LessThan(("storeTimestamp",), moment(5)), {"until": 5}),
        (LessThanOrEqual(("storeTimestamp",), moment(1_700_000_000_123)), {"until": 1_700_000_000_124}),
        (Not(EqualTo(("topic",), "T")), {}),
        (StringContains(("topic",), "T"), {}),
        (EqualTo(("body",), b"x"), {}),
        (EqualTo(("topic",), None), {}),
        (EqualTo(("properties", "topic"), "T"), {}),
    ],
)
def test_filters(pushed: Any, changed: dict[str, Any]) -> None:
    choice = Wanted().narrowed([condition_of(pushed)]).choice
    assert {name: value for name, value in choice.__dict__.items() if value not in (None, ())} == changed


def test_filters_narrow_each_other() -> None:
    wanted = Wanted().narrowed(
        [
            Condition("topic", "in", ("A", "B")), Condition("topic", "in", ("B", "C")),
            Condition("physicalOffset", ">", 5), Condition("physicalOffset", ">", 3), Condition("queueId", "=", 1),
            Condition("queueId", "=", 2), Condition("msgId", "in", ("x", "y")),
        ]
    )  # fmt: skip
    assert wanted.choice.topics == ("B",)
    assert wanted.choice.start == 6
    assert wanted.choice.queues == (1,)  # no row has both; either says enough
    assert wanted.ids == ("x", "y")


# -- readers, options, stores -----------------------------------------------------------------------------------------


def source(path: object, **options: str) -> RocketMQSource:
    return RocketMQSource(CaseInsensitiveDict({"path": str(path), **options}))


COUNT = StructType([StructField("queueId", IntegerType())])


def test_a_reader_as_spark_uses_it(golden: Unpacked, tmp_path: Path) -> None:
    reader = source(golden("clean"), counters=str(tmp_path), splitBytes="20000").reader(COUNT)
    assert type(reader) is Reader  # Spark fails on one that takes filters, unless it is set up to hand them on
    reader = pickle.loads(pickle.dumps(reader))
    parts = list(reader.partitions())
    assert len(parts) > 3
    batches = [batch for part in parts for batch in reader.read(pickle.loads(pickle.dumps(part)))]
    assert sum(batch.num_rows for batch in batches) == 500
    assert saved(str(tmp_path)).rows == 500
    assert saved(str(tmp_path)).bytesRead > 150_000


def test_a_reader_that_is_handed_filters(golden: Unpacked) -> None:
    given = source(golden("clean"))
    reader = FilteringReader(given._request(), COUNT)
    filters = [EqualTo(("topic",), "TopicA"), StringContains(("topic",), "A")]
    assert list(reader.pushFilters(filters)) == filters  # Spark applies them all again
    rows = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
    assert rows == sum(row["topic"] == "TopicA" for row in read(golden("clean"))[0]) > 0


def test_schemas(golden: Unpacked) -> None:
    for table in TABLES:
        assert source(golden("clean"), table=table).schema().fieldNames() == SCHEMAS[table].names
    assert SCHEMAS["messages"].names == [*MESSAGE_SCHEMA.names, "broker"]
    wrong = StructType([StructField("topics", StringType())])
    with pytest.raises(BadValue, match="has no column topics; it has topic, queueId"):
        source(golden("clean")).reader(wrong)
    with pytest.raises(BadValue, match="column queueId of table messages is int, not bigint"):
        source(golden("clean")).reader(StructType([StructField("queueId", LongType())]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "message"}, "none of messages, queues"),
        ({"Topics": "x"}, "option Topics is not known"),
        ({"through": "index"}, "none of auto, log"),
        ({"since": "yesterday"}, "option since: 'yesterday'"),
        ({"queueId": "1,x"}, "option queueId"),
        ({"splitBytes": "0"}, "option splitBytes: '0' is no positive number"),
        ({"path": ""}, "no path"),
    ],
)
def test_bad_options(options: dict[str, str], said: str, golden: Unpacked) -> None:
    with pytest.raises(BadValue, match=said):
        request_of({"path": str(golden("clean")), **options})


def test_many_stores_in_one_table(golden_copy: Unpacked, tmp_path: Path) -> None:
    for name in ("broker-a", "broker-a-s", "broker-b"):
        (tmp_path / name).mkdir()
        shutil.copytree(golden_copy("clean"), tmp_path / name / "store")
    rows, _counters = read(f"{tmp_path}/broker-*/store", columns=["broker", "physicalOffset"])
    assert len(rows) == 1500
    assert {row["broker"] for row in rows} == {"broker-a", "broker-a-s", "broker-b"}
    rows, _counters = read(f"{tmp_path}/broker-a/store, {tmp_path}/broker-b/store", columns=["broker"])
    assert [row["broker"] for row in rows] == ["broker-a"] * 500 + ["broker-b"] * 500
    with pytest.raises(UnreadableStore, match="nowhere: no such directory"):
        stores_of(f"{tmp_path}/broker-a/store,{tmp_path}/nowhere")
    with pytest.raises(UnreadableStore, match="no such directory"):
        stores_of(f"{tmp_path}/none-*")


@pytest.mark.parametrize(
    ("paths", "brokers"),
    [
        (["/a/x/store", "/a/y/store"], ["x", "y"]),
        (["/a", "/a/b"], ["a", "a/b"]),
        (["/data/store"], ["store"]),
        (["/c1/m/store", "/c2/s/store"], ["c1/m", "c2/s"]),
        (["/store-1", "/store-2"], ["store-1", "store-2"]),
    ],
)
def test_what_tells_stores_apart(paths: list[str], brokers: list[str]) -> None:
    from rmqtool.analytics.source_plan import _brokers

    assert _brokers(paths) == brokers


def test_a_path_with_a_comma_is_itself(golden_copy: Unpacked, tmp_path: Path) -> None:
    shutil.copytree(golden_copy("clean"), tmp_path / "a,b")
    assert [store.broker for store in stores_of(str(tmp_path / "a,b"))] == ["a,b"]


def test_stores_without_a_part(tmp_path: Path) -> None:
    layout = store_of(tmp_path, log_of(["A"] * 3))
    for table in ("queues", "index", "offsets"):
        assert read(layout.root, table=table)[0] == []
    assert len(read(layout.root)[0]) == 3
    empty = tmp_path / "empty"
    (empty / "commitlog").mkdir(parents=True)
    assert read(empty)[0] == []
    assert read(empty, [Condition("topic", "=", "A"), Condition("msgId", "=", "x")])[0] == []
    with pytest.raises(UnreadableStore, match="not a store"):
        read(tmp_path)


def test_broken_configs_do_not_stop_messages(golden_copy: Unpacked) -> None:
    root = golden_copy("broker")
    (root / "config" / "topics.json").write_text("{")
    assert read(root, [Condition("topic", "=", "Delayed")])[0]
    (root / "config" / "consumerOffset.json").write_text("[")
    with pytest.raises(CorruptFile, match=r"consumerOffset\.json"):
        read(root, table="offsets")


def test_sizes_come_from_the_brokers_properties(golden: Unpacked, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("".join(f"{name}={value}\n" for name, value in conf_of("clean").values.items()))
    rows, _counters = read(golden("clean"), table="index", brokerConf=str(path))
    assert len(rows) == 975


def test_the_same_ranges_however_large_the_pieces(day: StoreLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = [Condition("topic", "in", ("topic-07", "topic-08"))]
    whole = read(day.root, conditions, columns=["physicalOffset"])[0]
    for size in ("1000", "40000"):
        assert read(day.root, conditions, columns=["physicalOffset"], splitBytes=size)[0] == whole
    monkeypatch.setattr(source_narrow, "NEAR", 0)
    assert read(day.root, conditions, columns=["physicalOffset"])[0] == whole


def test_bodies_come_whole(golden: Unpacked) -> None:
    rows, _counters = read(golden("large-bodies"), columns=["physicalOffset", "body"])
    said = engine_messages("large-bodies")
    assert {row["physicalOffset"]: hashlib.sha256(row["body"]).hexdigest() for row in rows} == {
        at: message["bodySha256"] for at, message in said.items()
    }
