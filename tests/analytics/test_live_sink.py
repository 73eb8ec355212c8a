"""Sending rows to a live cluster without Spark: what they become, order, retries, refusals."""

import multiprocessing
import pickle
import re
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, MapType, StringType, StructField, StructType

from formats.message.properties import UNIQ_KEY
from rmqtool import read_arrow
from rmqtool.analytics.live import waiting
from rmqtool.analytics.live.options import live_request_of
from rmqtool.analytics.live.plan import plan_ranges
from rmqtool.analytics.live.read import read_range
from rmqtool.analytics.live.rows import TaskMessages, bundles
from rmqtool.analytics.live.waiting import Patience
from rmqtool.analytics.live.writer import ClusterStreamWriter, ClusterWriter, SinkOptions
from rmqtool.client.cluster import attempts
from rmqtool.errors import BadValue, RmqError
from rmqtool.rules.ids import stable_id
from rmqtool.testing import TestBroker, broker
from tests.analytics.test_live_stream import Late
from tests.interop.serving import Serving
from tests.interop.test_namesrv import name_server
from tests.model.neighbours import Neighbour
from tests.remoting.certificates import Certificates

TEXT, BYTES = StringType(), BinaryType()
SCHEMA = StructType(
    [
        StructField("topic", TEXT), StructField("tags", TEXT), StructField("keys", ArrayType(TEXT)),
        StructField("properties", MapType(TEXT, TEXT)), StructField("body", BYTES), StructField("shardingKey", TEXT),
        StructField("delay", IntegerType()),
    ]
)  # fmt: skip
ARROW = pa.schema(
    [
        ("topic", pa.string()), ("tags", pa.string()), ("keys", pa.list_(pa.string())),
        ("properties", pa.map_(pa.string(), pa.string())), ("body", pa.binary()), ("shardingKey", pa.string()),
        ("delay", pa.int32()),
    ]
)  # fmt: skip


@pytest.fixture
def served() -> Iterator[TestBroker]:
    with broker() as running:
        yield running


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "PAUSES", (0.05,) * 2)


def batch_of(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in ARROW.names} for row in rows], ARROW)


def sent(namesrv: str, *rows: dict[str, Any], **options: str) -> int:
    first_writer = ClusterWriter(SinkOptions.of({"namesrv": namesrv, **options}, SCHEMA))
    copy: ClusterWriter = pickle.loads(pickle.dumps(first_writer))
    return copy.write(iter([batch_of(*rows)])).messages


def stored(store: str | Path) -> list[dict[str, Any]]:
    names = ["topic", "queueId", "queueOffset", "msgId", "tags", "keys", "properties", "body"]
    rows = read_arrow(str(store), columns=names).read_all().to_pylist()
    return [{**row, "properties": dict(row["properties"])} for row in rows]


def test_columns_are_fields_of_messages(served: TestBroker) -> None:
    rows = [
        {"topic": "A", "body": b"1", "tags": "t", "keys": ["k1", "k2"], "properties": {"p": "ü", "CLUSTER": "old"}},
        {"topic": "A", "body": b"2", "shardingKey": "s"},
        {"body": b"3", "properties": {UNIQ_KEY: "0" * 32}},
        {"topic": "B", "body": b"4", "delay": 1},
    ]
    assert sent(served.namesrv, *rows, topic="Rest") == 4
    deadline = time.monotonic() + 20
    while len(listed := {row["body"]: row for row in stored(served.store) if row["topic"] in ("A", "B", "Rest")}) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    first = listed[b"1"]
    assert (first["topic"], first["tags"], first["keys"]) == ("A", "t", ["k1", "k2"])
    assert (first["properties"]["p"], first["properties"]["CLUSTER"]) == ("ü", "DefaultCluster")
    assert listed[b"2"]["properties"]["__SHARDINGKEY"] == "s"
    assert (listed[b"3"]["topic"], listed[b"3"]["msgId"]) == ("Rest", "0" * 32)
    assert listed[b"4"]["topic"] == "B"  # after a second


def test_frames_of_other_shapes_are_sent(served: TestBroker) -> None:
    """Names in any case, other names by the option ``map``, and the frames that the source itself reads."""
    fields = [StructField("KEY", TEXT), StructField("value", TEXT)]
    options = {"namesrv": served.namesrv, "topic": "A", "map": "value=body,key=keys,key=shardingKey"}
    writing = ClusterWriter(SinkOptions.of(options, StructType(fields)))
    arrow = pa.schema([("KEY", pa.string()), ("value", pa.string())])
    rows = [{"KEY": f"user-{n % 3}", "value": f"{n}"} for n in range(30)]
    assert writing.write(iter([pa.RecordBatch.from_pylist(rows, arrow)])).messages == 30
    first = stored(served.store)
    assert {(row["keys"][0], int(row["body"]) % 3) for row in first} == {(f"user-{n}", n) for n in range(3)}
    assert len({(row["queueId"], row["keys"][0]) for row in first}) == 3

    read = read_arrow(str(served.store)).read_all().combine_chunks().to_batches()[0]
    columns = StructType([_spark_field(field) for field in read.schema])
    copying = ClusterWriter(SinkOptions.of({"namesrv": served.namesrv}, columns))
    assert copying.write(iter([read])).messages == 30
    second = stored(served.store)[30:]
    assert sorted((row["msgId"], row["queueId"], row["body"]) for row in second) == sorted(
        (row["msgId"], row["queueId"], row["body"]) for row in first
    )
    broken = read.set_column(read.schema.get_field_index("bodyError"), "bodyError", pa.array(["not zlib"] * 30))
    with pytest.raises(BadValue, match="its body is as stored: not zlib"):
        copying.write(iter([broken]))


HEADERS = ArrayType(StructType([StructField("key", TEXT), StructField("value", BYTES)]))


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("a", "ü".encode()), ("b", b"")], {"a": "ü", "b": ""}),
        ([], {}),
        ([("a", b"1"), ("a", b"2")], "row 0 of a task cannot be sent: header a is there twice"),
        ([("a", None)], "row 0 of a task cannot be sent: header a has no value"),
        ([("a", b"\xff")], "row 0 of a task cannot be sent: header a is not text"),
    ],
)
def test_headers_of_kafka_are_properties(headers: list[tuple[str, bytes]], expected: dict[str, str] | str) -> None:
    schema = StructType([StructField("value", BYTES), StructField("headers", HEADERS)])
    options = {"namesrv": "127.0.0.1:1", "topic": "A", "map": "value=body,headers=properties"}
    assert SinkOptions.of(options, schema).columns == {"body": 0, "properties": 1}
    row = {"body": b"x", "properties": [{"key": name, "value": value} for name, value in headers]}
    if isinstance(expected, str):
        with pytest.raises(BadValue, match=expected):
            TaskMessages("x", 0, "A").message(row, 0)
    else:
        sent_with = dict(TaskMessages("x", 0, "A").message(row, 0).message.properties)
        del sent_with[UNIQ_KEY]
        assert sent_with == expected


def _spark_field(field: pa.Field) -> StructField:
    return StructField(field.name, from_arrow_type(field.type), field.nullable)


def test_messages_of_a_sharding_key_are_in_one_queue_in_order(served: TestBroker) -> None:
    rows = [{"topic": "A", "body": b"%d" % n, "shardingKey": f"key {n % 7}"} for n in range(2500)]
    rows += [{"topic": "A", "body": b"%d" % n} for n in range(2500, 3000)]
    assert sent(served.namesrv, *rows) == 3000
    by_key = defaultdict(list)
    for row in sorted(stored(served.store), key=lambda row: (row["queueId"], row["queueOffset"])):
        by_key[row["properties"].get("__SHARDINGKEY")].append((row["queueId"], int(row["body"])))
    assert sorted(number for _queue, number in by_key.pop(None)) == list(range(2500, 3000))
    assert len(by_key) == 7
    for pairs in by_key.values():
        assert len({queue for queue, _number in pairs}) == 1
        assert [number for _queue, number in pairs] == sorted(number for _queue, number in pairs)


def test_ids_are_the_same_however_often_a_task_runs(served: TestBroker) -> None:
    rows = [{"topic": "A", "body": b"%d" % n} for n in range(300)]
    first_writer = ClusterWriter(SinkOptions.of({"namesrv": served.namesrv}, SCHEMA))
    for _attempt in range(2):
        assert (
            pickle.loads(pickle.dumps(first_writer))
            .write(iter([batch_of(*rows[:100]), batch_of(*rows[100:])]))
            .messages
            == 300
        )
    ids = defaultdict(list)
    for row in stored(served.store):
        ids[row["msgId"]].append(row["body"])
    assert len(ids) == 300
    assert all(len(bodies) == 2 and len(set(bodies)) == 1 for bodies in ids.values())
    # another run has others
    sent(served.namesrv, *rows)
    assert len({row["msgId"] for row in stored(served.store)}) == 600


class Context:
    """What a task of a stream knows."""

    def __init__(self, batch: str) -> None:
        self._batch = batch

    def partitionId(self) -> int:
        return 3

    def getLocalProperty(self, name: str) -> str:
        return {"sql.streaming.queryId": "q", "streaming.sql.batchId": self._batch}[name]


def test_ids_of_a_stream_do_not_depend_on_its_driver(monkeypatch: pytest.MonkeyPatch, served: TestBroker) -> None:
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: Context("7"))
    for _driver in range(2):
        first_writer = ClusterStreamWriter(SinkOptions.of({"namesrv": served.namesrv}, SCHEMA))
        first_writer.write(iter([batch_of({"topic": "A", "body": b"x"}, {"topic": "A", "body": b"y"})]))
    assert {row["msgId"] for row in stored(served.store)} == {stable_id("q:7:3", 0), stable_id("q:7:3", 1)}


def test_stable_ids_are_unique() -> None:
    ids = {stable_id(seed, number) for seed in ("a", "b") for number in range(0, 200_000, 7)}
    assert len(ids) == 2 * len(range(0, 200_000, 7))
    assert all(len(each) == 32 for each in ids)


@pytest.mark.filterwarnings("ignore:1 damaged range")  # a record that is being written while the store is read
def test_a_broker_that_is_restarted_gets_every_message(tmp_path: Path) -> None:
    """Sent by another process, because a broker is started here by a fork."""
    with Neighbour(tmp_path / "store") as neighbour:
        sending = multiprocessing.get_context("spawn").Process(target=send_many, args=(neighbour.namesrv, 20_000))
        sending.start()
        kills = 0
        while kills < 2 and grows(tmp_path / "store", sending):
            neighbour.end(signal.SIGKILL)
            neighbour.start()
            kills += 1
        assert kills
        sending.join(60)
        assert sending.exitcode == 0
        neighbour.end(signal.SIGTERM)
    ids = defaultdict(set)
    for row in stored(tmp_path / "store"):
        ids[row["msgId"]].add(row["body"])
    assert {int(body) for bodies in ids.values() for body in bodies} == set(range(20_000))
    assert all(len(bodies) == 1 for bodies in ids.values())


def send_many(namesrv: str, count: int) -> None:
    """Send rows from a process of its own."""
    attempts.PAUSES = (0.1,)
    assert sent(namesrv, *({"topic": "A", "body": b"%d" % n} for n in range(count))) == count


def grows(store: Path, sending: multiprocessing.process.BaseProcess) -> bool:
    """Wait until the log of a store grows; False if the sender has ended."""
    before = 0
    while sending.is_alive():
        now = read_arrow(str(store), columns=["queueId"]).read_all().num_rows
        if 0 < before < now:
            return True
        before = now
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"topic": "A"}, "row 1 of a task cannot be sent: the message body length is zero"),
        ({"topic": "A", "body": b""}, "row 1 of a task cannot be sent: the message body length is zero"),
        ({"body": b"x"}, "row 1 of a task cannot be sent: The specified topic is blank"),
        ({"topic": "a b", "body": b"x"}, "row 1 of a task cannot be sent: The specified topic[a b] contains"),
        ({"topic": "A", "body": bytes(5 << 20)}, "row 1 of a task cannot be sent: the message body size over max"),
        ({"topic": "A", "body": b"x", "properties": {"p": "a\2b"}}, "row 1 of a task cannot be sent: "),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_rows_that_are_refused(served: TestBroker, row: dict[str, Any], text: str) -> None:
    with pytest.raises(BadValue) as error:
        sent(served.namesrv, {"topic": "A", "body": b"good"}, row)
    assert text in str(error.value)
    assert "\n" not in str(error.value)
    assert stored(served.store) == []  # not even the row before it


@pytest.mark.parametrize(
    ("fields", "options", "text"),
    [
        ([StructField("topic", TEXT)], {}, "has a column body"),
        ([StructField("body", BYTES)], {}, "a column topic, or all of them the option topic"),
        ([StructField("body", IntegerType())], {"topic": "A"}, "column body is int, not binary or string"),
        ([StructField("value", BYTES)], {"topic": "A"}, "column value is none of a message to send"),
        ([StructField("body", BYTES), StructField("total", TEXT)], {"topic": "A"}, "column total is none of a message"),
        ([StructField("value", BYTES)], {"topic": "A", "map": "other=body"}, "the frame has no column other"),
        ([StructField("value", BYTES)], {"topic": "A", "map": "value=content"}, "content is no field of a message"),
        ([StructField("value", IntegerType())], {"topic": "A", "map": "value=body"}, "column value is int, not binary"),
        ([StructField("body", BYTES)], {"topic": "a b"}, "The specified topic[a b] contains illegal"),
        ([StructField("body", BYTES)], {"topic": "A", "producerGroup": ""}, "the specified group is blank"),
        ([StructField("body", BYTES)], {"topic": "A", "tags": "x"}, "option tags is not known"),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_frames_that_are_refused(fields: list[StructField], options: dict[str, str], text: str) -> None:
    with pytest.raises(BadValue) as error:
        SinkOptions.of({"namesrv": "127.0.0.1:9876", **options}, StructType(fields))
    assert text in str(error.value)


def test_a_cluster_that_is_not_there() -> None:
    with pytest.raises(RmqError, match=r"A: not sent: .*refused") as error:
        sent("127.0.0.1:1", {"topic": "A", "body": b"x"}, brokerTimeout="100ms")
    assert "\n" not in str(error.value)


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said of each further attempt."""
    texts: list[str] = []
    monkeypatch.setattr(waiting, "_QUIET", 0.0)
    monkeypatch.setattr(waiting, "_REPORTS", 0.0)
    monkeypatch.setattr(waiting, "warn", texts.append)
    return texts


def test_a_broker_that_is_away_is_waited_for(
    tmp_path: Path, reports: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begins = tmp_path / "begins"

    def report(text: str) -> None:
        reports.append(text)
        if len(reports) > 4:  # more than there are pauses
            begins.touch()

    monkeypatch.setattr(waiting, "warn", report)
    with Late(tmp_path / "store", begins) as late:
        assert sent(late.namesrv, {"topic": "A", "body": b"x"}, brokerTimeout="100s") == 1
    assert len(reports) > 4
    for text in reports:
        # the client itself tries again first
        assert re.fullmatch(r"A: .*; it is tried again( for \d+ more seconds \(option brokerTimeout\))?", text), text
    assert any("brokerTimeout" in text for text in reports)


@pytest.mark.parametrize(
    ("batch", "patience", "text"),
    [
        ("0", Patience(100, 100), "not sent: A: no name server knows the topic"),  # not its broker, but the topic
        ("1", Patience(0, 3), "not sent: A: no name server knows the topic"),
        ("0", Patience(0, 100), "no broker is registered"),
    ],
)
def test_a_topic_without_a_route(
    batch: str, patience: Patience, text: str, reports: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a stream that has sent before knows that a broker is missing, and that its name server is the right one."""
    nobody = text.startswith("no broker")
    with ExitStack() as stack:
        if nobody:
            address = stack.enter_context(name_server())[1]
        else:
            address = stack.enter_context(broker(settings={"autoCreateTopicEnable": "false"})).namesrv
        monkeypatch.setattr("pyspark.TaskContext.get", lambda: Context(batch))
        options = SinkOptions.of({"namesrv": address}, SCHEMA, streaming=True)
        assert options.patience == Patience(60, 600)
        with pytest.raises(RmqError, match=text):
            ClusterStreamWriter(replace(options, patience=patience)).write(
                iter([batch_of({"topic": "A", "body": b"x"})])
            )
    if batch == "1":
        assert len(reports) > 2
        assert " more seconds" in reports[0]
    else:
        assert len(reports) == (0 if nobody else 2)
        assert not any(" more seconds" in report for report in reports)


def test_tls_and_keys(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    keys, accounts = tmp_path / "tools.yml", tmp_path / "plain_acl.yml"
    keys.write_text("accessKey: spark-job\nsecretKey: spark-secret\n")
    accounts.write_text(
        "accounts:\n- accessKey: spark-job\n  secretKey: spark-secret\n  topicPerms:\n  - A=PUB|SUB\n"
        "  groupPerms:\n  - TOOLS_CONSUMER=SUB\n"
    )
    server = made.server(tls_server_mode="enforcing")
    with Serving(tmp_path / "store", "--create", "--tls-config", server, "--acl-config", str(accounts)) as serving:
        options = {"tlsConfig": made.client(), "acl": str(keys)}
        assert sent(serving.namesrv, {"topic": "A", "body": b"x"}, **options) == 1
        asked = {"namesrv": serving.namesrv, "subscribe": "A", "brokerTimeout": "100ms", **options}
        assert [row["body"] for row in rows_of(asked)] == [b"x"]
        keys.write_text("accessKey: spark-job\nsecretKey: another\n")
        with pytest.raises(RmqError, match=r"A queue \d of lab-a: .*Check signature failed") as error:
            rows_of(asked)
        assert "another" not in str(error.value)
        del asked["tlsConfig"]
        with pytest.raises(RmqError, match=r"^A: "):
            rows_of(asked)


def rows_of(options: dict[str, str]) -> list[dict[str, Any]]:
    request = live_request_of(options)
    batches = [batch for part in plan_ranges(request) for batch in read_range(request, part, ["body"])]
    return [row for batch in batches for row in batch.to_pylist()]


def test_bundles() -> None:
    numbered = TaskMessages("x")
    rows = [{"topic": "AB"[n % 2], "body": b"%d" % n, "shardingKey": "k" if n % 3 == 0 else None} for n in range(60)]
    rows += [{"topic": "A", "body": b"later", "deliverTime": datetime(2030, 1, 1, tzinfo=UTC)}]
    messages = [numbered.message(row, n) for n, row in enumerate(rows)]
    parts = bundles(messages, 8)
    assert sorted(each.message.body for part in parts for each in part) == sorted(
        each.message.body for each in messages
    )
    assert all(len({(each.message.topic, each.sharding_key) for each in part}) == 1 for part in parts)
    assert max(map(len, parts)) == 8
    assert parts[-1][0].message.deliver_at == 1_893_456_000_000
