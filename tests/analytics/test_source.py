"""The data source's tables without Spark: planning and reading, for every golden store and every split."""

import hashlib
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from rmqtool.analytics.ranges import beginning
from rmqtool.analytics.ranges.beginning import exact
from rmqtool.analytics.ranges.splits import SPLIT_BYTES, Split
from rmqtool.analytics.source.filter import Condition
from rmqtool.analytics.source.plan import Piece, request_of, stores_of
from rmqtool.analytics.source.read import Counters, read_piece, sum_counters
from rmqtool.analytics.source.tables import SCHEMAS, TABLES, NamedStore
from rmqtool.analytics.source.tables_source import Reader, RocketMQSource
from rmqtool.analytics.table.schema import MESSAGE_SCHEMA
from rmqtool.contract import QUEUE_ENTRY_FIELDS
from rmqtool.errors import BadValue, CorruptFile, UnreadableStore
from rmqtool.services.lookup.offsets import consumer_offsets
from rmqtool.store.check.run import check_store
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from tests import goldens
from tests.amounts import by_turns, every, some
from tests.analytics.helpers import engine_messages, log_of, plain, record, same_as_golden, store_of
from tests.analytics.reading import read
from tests.analytics.test_splits import body_with_a_record, holes, moved, old_records_behind_a_blank
from tests.conftest import Unpacked
from tests.store.helpers import conf_of

# -- every golden store -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", every(4, goldens.cases(), 2))
def test_messages_are_what_the_engine_says(case: str, golden: Unpacked) -> None:
    rows, counters = read(golden(case), splitBytes="9000")
    items = list(CommitLog(StoreLayout(str(golden(case)))).walk())
    assert [row["physicalOffset"] for row in rows] == [i.physical_offset for i in items if isinstance(i, LocatedRecord)]
    damage = [item for item in items if isinstance(item, Damage)]
    assert (counters.damaged, counters.damagedBytes) == (len(damage), sum(item.length for item in damage))
    by_offset = {row["physicalOffset"]: plain(row) for row in rows}
    assert {row["broker"] for row in rows} <= {"store"}
    # of a damaged store the engine's own recovery has cut what lies behind the damage
    answer = engine_messages(case) if goldens.has(case, "messages.ndjson.gz") else {}
    messages = {at: message for at, message in answer.items() if at in by_offset}
    if not damage:
        assert messages.keys() == answer.keys()
    for offset, message in messages.items():
        same_as_golden(by_offset[offset], message)
    assert sum(row["storeSize"] for row in rows if row["physicalOffset"] in messages) == sum(
        message["storeSize"] for message in messages.values()
    )


@pytest.mark.parametrize("case", every(4, goldens.cases(), 3))
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
        answer = list(goldens.messages(case))
        assert len(answer) == len(queues)
        for row in answer:
            entry = entries[row["cqTopic"], row["cqQueueId"], row["cqOffset"]]
            told = (row["cqPhysicalOffset"], row["cqSize"], row["cqTagsCode"])
            assert (entry["physicalOffset"], entry["size"], entry["tagsCode"]) == told
    if case.startswith("broker"):
        offsets, _counters = read(root, table="offsets")
        assert [{k: v for k, v in row.items() if k != "broker"} for row in offsets] == [
            row for rows in consumer_offsets(layout) for row in rows.dicts()
        ]
    assert list(SCHEMAS["queues"].names) == [*QUEUE_ENTRY_FIELDS, "broker"]


def test_columns_in_any_order(golden: Unpacked) -> None:
    rows, _counters = read(golden("clean"), columns=["broker", "queueId", "topic"])
    assert list(rows[0]) == ["broker", "queueId", "topic"]
    counted, _counters = read(golden("clean"), columns=["broker"])
    assert len(counted) == len(rows) == 500


# -- cuts -------------------------------------------------------------------------------------------------------------


def starts(root: str, file: Path, start: int, stop: int, *, exactly: bool = False, last: bool = True) -> list[int]:
    """Positions of the messages in a byte range."""
    split = Split(0, str(file), int(file.name), file.stat().st_size, start, stop, last, exactly or start == 0)
    piece = Piece(NamedStore(root, "b"), "messages", splits=(split,), ranges=(None,))
    batches = read_piece(piece, ["physicalOffset"], Counters())
    return [row["physicalOffset"] for batch in batches for row in batch.to_pylist()]


def moved_by(at: int) -> bytes:
    """Many records for this position in a log."""
    raw = b""
    while len(raw) < 9000:
        raw += record("A", at + len(raw))
    return raw


HOSTILE = [body_with_a_record, old_records_behind_a_blank, moved, holes]


@by_turns(2)
@pytest.mark.parametrize("build", [lambda: log_of(["A", "B"] * 6), *HOSTILE])
def test_a_cut_at_any_byte_loses_and_doubles_nothing(build: Callable[[], bytes], tmp_path: Path) -> None:
    data = build()
    layout = store_of(tmp_path, data, size=len(data) + 40)
    (file,) = (Path(layout.root) / "commitlog").iterdir()
    size = file.stat().st_size
    whole = [item.physical_offset for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord)]
    assert len(whole) >= 2
    for cut in range(1, size):
        parts = [starts(layout.root, file, 0, cut), starts(layout.root, file, cut, size)]
        assert parts[0] + parts[1] == whole, cut
        assert parts[0] == whole[: len(parts[0])]


@by_turns(3)
@pytest.mark.parametrize("build", [lambda: log_of(["A", "B"] * 6), *HOSTILE])
def test_a_short_chain_proves_a_start_where_no_queue_does(
    build: Callable[[], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it is longer than any message."""
    hostile, walked = build(), beginning._end_of_walk
    data = hostile + moved_by(len(hostile))
    monkeypatch.setattr(beginning, "is_bulk", lambda *_args: True)
    monkeypatch.setattr(beginning, "CHAIN", 2 * len(hostile))
    monkeypatch.setattr(beginning, "WINDOW", 500)
    layout = store_of(tmp_path, data, size=len(data) + 40)
    (file,) = CommitLog(layout).segments.files
    chained = 0
    for cut in range(1, len(data), 7):
        split = Split(0, file.path, file.base, file.size, cut, file.size, True, exact=False)
        begin, looked = exact(split, NamedStore(layout.root, "b").layout)
        expected, _looked = walked(file, split)
        assert begin.start == min(expected, file.size), cut
        chained += 0 < looked < expected
    assert chained > (len(data) - 3 * len(hostile)) // 7 - 200


@by_turns(13)
@pytest.mark.parametrize("case", ["clean", "torn-header", "body-bit-flip-last-file", "size-field-negative"])
def test_golden_logs_cut_at_any_byte(case: str, golden: Unpacked) -> None:
    log = CommitLog(StoreLayout(str(golden(case))))
    file = log.segments.files[3]
    path, last = Path(file.path), file is log.segments.files[-1]
    whole = starts(log.layout.root, path, 0, file.size, last=last)
    # every byte about the edges of records, and of what is damaged; in between one is as another
    cuts, edge = set(range(1, file.size, some(331, 61))), some(8, 16)
    for at in whole:
        cuts.update(range(max(at - file.base - edge, 1), at - file.base + edge))
    damage = [item for item in log.walk() if isinstance(item, Damage) and item.path == file.path]
    for item in damage:
        cuts.update(every(3, range(item.at, item.at + item.length + 16)))
    assert bool(damage) == (case != "clean")
    assert len(cuts) > some(500, 3000)
    for cut in sorted(cuts):
        # where a range begins decides what it has; its end was tried above
        split = Split(0, file.path, file.base, file.size, cut, file.size, last, exact=False)
        begin, _looked = exact(split, NamedStore(log.layout.root, "b").layout)
        seen = [at for at in whole if at >= file.base + begin.start]
        assert starts(log.layout.root, path, 0, cut, last=last) + seen == whole, cut


def test_a_range_of_a_large_log_begins_where_the_one_before_ends(tmp_path: Path) -> None:
    """Without queues nothing proves a start: the log is scanned by compiled code."""
    from tests.bench.make_log import write_log

    count = write_log(tmp_path / "store" / "commitlog", body=100, file_size=24 << 20, messages=80_000)
    rows, counters = read(tmp_path / "store", columns=["physicalOffset"], splitBytes=str(9_999_999))
    assert len({row["physicalOffset"] for row in rows}) == len(rows) == count
    assert counters.bytesRead > CommitLog(StoreLayout(str(tmp_path / "store"))).end()[0]


def test_light_columns_are_read_in_larger_splits_if_no_size_is_asked_for(golden: Unpacked) -> None:
    asked = request_of({"path": str(golden("clean")), "splitBytes": str(SPLIT_BYTES)})
    assert asked.with_split_size(["topic"]).split_bytes == SPLIT_BYTES
    usual = request_of({"path": str(golden("clean"))})
    assert usual.with_split_size(["topic", "bodyLength"]).split_bytes == 2 * SPLIT_BYTES
    for heavy in ("body", "properties", "keys", "tags"):
        assert usual.with_split_size(["topic", heavy]).split_bytes is None
    assert request_of({"path": str(golden("clean")), "table": "queues"}).with_split_size(["topic"]).split_bytes is None


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
    assert sum_counters(str(tmp_path)).rows == 500
    assert sum_counters(str(tmp_path)).bytesRead > 150_000


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
    ("options", "text"),
    [
        ({"table": "message"}, "none of messages, queues"),
        ({"Topics": "x"}, "option Topics is not known"),
        ({"kafka.bootstrap.servers": "x"}, "for a live cluster give namesrv instead of kafka.bootstrap.servers"),
        ({"through": "index"}, "none of auto, log"),
        ({"since": "yesterday"}, "option since: 'yesterday'"),
        ({"queueId": "1,x"}, "option queueId"),
        ({"splitBytes": "0"}, "option splitBytes: '0' is not a positive number"),
        ({"path": ""}, "no path"),
    ],
)
def test_bad_options(options: dict[str, str], text: str, golden: Unpacked) -> None:
    with pytest.raises(BadValue, match=text):
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
    from rmqtool.analytics.source.plan import _brokers

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
    (tmp_path / "below" / "none").mkdir(parents=True)
    with pytest.raises(UnreadableStore, match="not a store"):
        read(tmp_path / "below")
    assert len(read(tmp_path)[0]) == 3  # a directory of stores


def test_broken_configs_do_not_stop_messages(golden_copy: Unpacked) -> None:
    root = golden_copy("broker")
    (root / "config" / "topics.json").write_text("{")
    assert read(root, [Condition("topic", "=", "Delayed")])[0]
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (root / "config" / name).write_text("[")
    with pytest.raises(CorruptFile, match=r"consumerOffset\.json"):
        read(root, table="offsets")


def test_sizes_come_from_the_brokers_properties(golden: Unpacked, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("".join(f"{name}={value}\n" for name, value in conf_of("clean").values.items()))
    rows, _counters = read(golden("clean"), table="index", brokerConf=str(path))
    assert len(rows) == 975


def test_bodies_come_whole(golden: Unpacked) -> None:
    rows, _counters = read(golden("large-bodies"), columns=["physicalOffset", "body"])
    answer = engine_messages("large-bodies")
    assert {row["physicalOffset"]: hashlib.sha256(row["body"]).hexdigest() for row in rows} == {
        at: message["bodySha256"] for at, message in answer.items()
    }


def test_names_of_columns_have_no_case(golden: Unpacked) -> None:
    """As in Spark, unless it is told otherwise."""
    options = {"path": str(golden("broker")), "columns": "TOPIC,queueid"}
    assert RocketMQSource(CaseInsensitiveDict(options)).schema().fieldNames() == ["topic", "queueId"]
    schema = StructType([StructField("TOPIC", StringType())])
    reader = RocketMQSource(CaseInsensitiveDict({"path": options["path"]})).reader(schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert {name for batch in batches for name in batch.schema.names} == {"TOPIC"}
    assert sum(batch.num_rows for batch in batches) == 609


def test_the_planner_asks_for_a_size(golden: Unpacked, tmp_path: Path) -> None:
    """Of what is read, and not of the file that a broker has prepared."""

    def size(path: object, **more: str) -> int:
        options = {"path": str(path), "statistics": "true", **more}
        (field,) = RocketMQSource(CaseInsensitiveDict(options)).schema().fields
        return field.metadata["bytes"]

    assert 159_803 <= size(golden("broker")) < 400_000
    assert 0 < size(golden("broker"), table="offsets") < 100_000
    log = tmp_path / "store" / "commitlog" / f"{0:020d}"
    log.parent.mkdir(parents=True)
    with log.open("wb") as file:
        file.write(log_of(["A"] * 3))
        file.truncate(1 << 30)
    assert size(tmp_path / "store") < 1 << 20
    assert (
        "bytes" not in RocketMQSource(CaseInsensitiveDict({"path": str(golden("broker"))})).schema().fields[0].metadata
    )
