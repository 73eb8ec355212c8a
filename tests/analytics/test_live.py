"""Reading a live cluster without Spark: options, plans, rows as the store has them, and answers that prove nothing."""

import json
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_schema

from formats.remoting.shapes import MessageQueue
from rmqtool import read_arrow
from rmqtool.analytics.live import read
from rmqtool.analytics.live.options import LiveRequest, live_request_of
from rmqtool.analytics.live.plan import plan_ranges
from rmqtool.analytics.live.positions import (
    QueuePosition,
    Range,
    divide,
    from_json,
    join_small,
    ranges_between,
    share,
    to_json,
)  # fmt: skip
from rmqtool.analytics.live.queues import DataLoss
from rmqtool.analytics.live.read import read_range
from rmqtool.analytics.source.tables_source import RocketMQSource
from rmqtool.analytics.table.schema import MESSAGE_TABLE
from rmqtool.client import Message
from rmqtool.client.cluster import attempts
from rmqtool.client.consumer.proof import Last
from rmqtool.client.sync import Producer
from rmqtool.errors import BadValue, RmqError
from rmqtool.testing import TestBroker, broker
from tests.amounts import by_turns, some
from tests.client.lying import LIES, Liar
from tests.client.test_lying import through
from tests.client.test_made_again import CONF, another_store, fill
from tests.model.neighbours import Neighbour

COLUMNS = MESSAGE_TABLE.names
OF_FILES = ("sourceFile", "fileOffset", "broker")


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    """A broker with the topics Told (400 messages) and Other, with tags, keys, a compressed body and a batch."""
    with broker(settings={"enablePropertyFilter": "true"}) as running, Producer(running.namesrv) as producer:
        queues = producer.queues("Told")
        for number in range(400):
            message = Message(
                "Told", b"%d" % number, tags=f"t{number % 3}", keys=[f"k{number}"], properties={"n": str(number)}
            )
            producer.send(message, queue=queues[number % 4])
            if number == 200:
                time.sleep(0.05)
        producer.send(Message("Other", b"long " * 5000))
        producer.send_batch([Message("Other", b"batch %d" % number) for number in range(20)])
        yield running


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "PAUSES", (0.05,) * 30)


def request_of(namesrv: str, options: dict[str, str]) -> LiveRequest:
    """A request for the topic Told, unless the options say otherwise; ``{namesrv}`` stands for the address."""
    given = {name: value.replace("{namesrv}", namesrv) for name, value in options.items()}
    if "path" not in given:
        given.setdefault("namesrv", namesrv)
    if {"subscribe", "subscribePattern", "assign"}.isdisjoint(given):
        given["subscribe"] = "Told"
    return live_request_of(given)


def rows(address: str, columns: list[str] | None = None, **options: str) -> list[dict[str, Any]]:
    """Every row of a request, in the order of its ranges."""
    request = request_of(address, options)
    batches = [batch for part in plan_ranges(request) for batch in read_range(request, part, columns or COLUMNS)]
    return [row for batch in batches for row in batch.to_pylist()]


def numbers(address: str, **options: str) -> list[int]:
    return sorted(int(row["body"]) for row in rows(address, ["body"], **options))


# -- rows --------------------------------------------------------------------------------------------------------------


def test_rows_are_those_of_the_store(served: TestBroker) -> None:
    live = rows(served.namesrv, subscribe="Told,Other")
    stored = read_arrow(served.store, topic=["Told", "Other"]).read_all().to_pylist()
    assert len(live) == 421
    assert {row["broker"] for row in live} == {"broker-a"}
    assert {(row["sourceFile"], row["fileOffset"]) for row in live} == {("", -1)}
    for row_list in (live, stored):
        row_list.sort(key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))
        for row in row_list:
            for name in OF_FILES:
                del row[name]
    assert live == stored


def test_rows_are_decoded_in_bulk(served: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code and the reference, message by message, return the same; ordinary answers need no reference."""
    request = {"subscribe": "Told,Other"}
    with monkeypatch.context() as patched:
        patched.setattr(read, "_block_of", lambda _answers: None)
        expected = rows(served.namesrv, **request)
    monkeypatch.setattr(read.RowBatch, "add", None)
    monkeypatch.setattr(read.RangeReader, "_pull", None)
    assert rows(served.namesrv, **request) == expected
    assert rows(served.namesrv, ["msgId", "keys"], **request) == [
        {name: row[name] for name in ("msgId", "keys")} for row in expected
    ]
    monkeypatch.undo()
    tagged = [row for row in expected if row["tags"] == "t1"]
    assert rows(served.namesrv, tags="t1") == tagged


def test_types_are_those_of_the_declaration(served: TestBroker) -> None:
    request = live_request_of({"namesrv": served.namesrv, "subscribe": "Told"})
    (part, *_others) = plan_ranges(request)
    for columns in (COLUMNS, ["broker"], ["keys", "broker", "topic"]):
        (batch,) = read_range(request, part, columns)
        assert batch.schema.equals(pa.schema([MESSAGE_TABLE.field(name) for name in columns]))
        assert batch.num_rows == 100


def test_small_queues_are_read_by_one_task(served: TestBroker) -> None:
    """Of two topics, with batches and messages that are read one by one; the rows are those of single ranges."""
    source = RocketMQSource(CaseInsensitiveDict({"namesrv": served.namesrv, "subscribe": "Told,Other"}))
    reader = source.reader(from_arrow_schema(MESSAGE_TABLE))
    (task,) = reader.partitions()
    read = [row for batch in reader.read(task) for row in batch.to_pylist()]
    single = rows(served.namesrv, subscribe="Told,Other")
    assert [(row["topic"], row["queueId"], row["queueOffset"]) for row in read] == [
        (row["topic"], row["queueId"], row["queueOffset"]) for row in single
    ]
    assert [dict(row["properties"]) for row in read] == [dict(row["properties"]) for row in single]
    assert {row["broker"] for row in read} == {"broker-a"}


def test_queues_are_divided(served: TestBroker) -> None:
    for options in ({"minPartitions": "10"}, {"maxRecordsPerPartition": "7"}):
        request = live_request_of({"namesrv": served.namesrv, "subscribe": "Told", **options})
        assert len(plan_ranges(request)) >= 10
        assert numbers(served.namesrv, **options) == list(range(400))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribePattern": "T.l."}, range(400)),
        ({"subscribePattern": ".*", "tags": "none"}, []),
        ({"assign": '{"Told": {"broker-a": [1, 3]}}'}, [n for n in range(400) if n % 2]),
        ({"tags": "t0 || t2"}, [n for n in range(400) if n % 3 != 1]),
        ({"tags": "t1"}, range(1, 400, 3)),
        ({"sql": "n BETWEEN 10 AND 19 AND TAGS = 't1'"}, [10, 13, 16, 19]),
        ({"startingOffsets": "latest"}, []),
        (
            {"startingOffsets": '{"Told": {"broker-a": {"0": 99, "1": -2, "2": "latest", "3": -1}}}'},
            [*range(1, 400, 4), 396],
        ),
        ({"endingOffsets": '{"Told": {"broker-a": {"0": 0, "1": 1, "2": 2, "3": 3}}}'}, [1, 2, 3, 6, 7, 11]),
        ({"namesrv": "127.0.0.1:1;{namesrv}"}, range(400)),
        ({"path": "rocketmq://{namesrv}/DefaultCluster"}, range(400)),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_selected(served: TestBroker, options: dict[str, str], expected: Any) -> None:
    assert numbers(served.namesrv, **options) == sorted(expected)


def test_times_are_exact(served: TestBroker) -> None:
    stored = [
        (int(row["body"]), round(row["storeTimestamp"].timestamp() * 1000))
        for row in read_arrow(served.store, topic="Told", columns=["body", "storeTimestamp"]).read_all().to_pylist()
    ]
    times = sorted({time for _number, time in stored})
    for low, high in (
        (times[0], times[-1]), (times[len(times) // 2], times[-1] + 1), (times[3], times[5]), (0, times[7]),
        (times[-1] + 1, times[-1] + 2), (times[-1], 1 << 40),
    ):  # fmt: skip
        numbers_read = numbers(served.namesrv, startingTimestamp=str(low), endingTimestamp=str(high))
        assert numbers_read == sorted(number for number, time in stored if low <= time < high), (low, high)


def test_no_group_is_touched(tmp_path: Path) -> None:
    """Requests name the group that every broker has for tools; no offset is committed for it."""
    store = tmp_path / "store"
    with broker(store) as running, Producer(running.namesrv) as producer:
        producer.send_batch([Message("Told", b"%d" % number) for number in range(100)])
        assert numbers(running.namesrv) == list(range(100))
    groups = json.loads((store / "config" / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    assert set(groups) == {"TOOLS_CONSUMER"}
    assert read_arrow(str(store), "offsets").read_all().num_rows == 0


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "give one of subscribe"),
        ({"subscribe": "A", "assign": "{}"}, "give one of subscribe"),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"subscribe": "a b"}, "option subscribe: "),
        ({"subscribePattern": "("}, "'(' is not a regular expression"),
        ({"assign": '{"A": {"b": [-1]}}'}, "is not JSON like"),
        ({"assign": "[]"}, "is not JSON like"),
        ({"subscribe": "A", "startingOffsets": "middle"}, "option startingOffsets: 'middle' is not JSON like"),
        ({"subscribe": "A", "startingOffsets": '{"A": {"b": {"0": -3}}}'}, "-3 is neither an offset"),
        ({"subscribe": "A", "startingOffsets": '{"A": {"b": {"0": true}}}'}, "True is neither an offset"),
        ({"subscribe": "A", "endingOffsets": "earliest"}, "nothing lies before earliest"),
        ({"subscribe": "A", "startingTimestamp": "soon"}, "'soon' is not a time"),
        ({"subscribe": "A", "startingTimestamp": "1", "startingOffsets": "latest"}, "goes without startingOffsets"),
        ({"subscribe": "A", "tags": "x", "sql": "y"}, "option sql goes without tags"),
        ({"subscribe": "A", "minPartitions": "0"}, "is not a positive number"),
        ({"subscribe": "A", "failOnDataLoss": "maybe"}, "neither true nor false"),
        ({"subscribe": "A", "maxTriggerDelay": "soon"}, "not a time like 30s"),
        ({"subscribe": "A", "table": "queues"}, "a live cluster has the table messages"),
        ({"subscribe": "A", "brokerTimeout": "soon"}, "option brokerTimeout: 'soon' is not a time like 30s or 15m"),
        ({"subscribe": "A", "splitBytes": "1"}, "option splitBytes is not known for a live cluster"),
        ({"topic": "A"}, "for a live cluster give subscribe instead of topic"),
        ({"subscribe": "A", "path": "/store"}, "namesrv goes without a path"),
        ({"subscribe": "A", "namesrv": "here"}, "not HOST:PORT"),
    ],
    ids=str,
)  # fmt: skip
def test_options_that_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(BadValue) as error:
        live_request_of({"namesrv": "127.0.0.1:9876", **options})
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(BadValue, match="option endingOffsets: a stream has no end"):
        live_request_of({"namesrv": "a:1", "subscribe": "A", "endingOffsets": "latest"}, streaming=True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "Nowhere"}, "Nowhere: no name server knows the topic"),
        ({"subscribePattern": "No.*"}, "no topic matches No.*"),
        ({"assign": '{"Told": {"broker-a": [9]}}'}, "Told queue 9 of broker-a: is not among the queues"),
        ({"startingOffsets": '{"Told": {"broker-a": {"0": 5}}}'}, "gives no offset for Told queue 1 of broker-a"),
        (
            {"startingOffsets": '{"Told": {"broker-a": {"0": 5, "1": 5, "2": 5, "3": 101}}}'},
            "Told queue 3 of broker-a ends at offset 100, before 101",
        ),
        (
            {"startingOffsets": '{"Told": {"broker-b": {"0": 5}}}'},
            "startingOffsets: Told queue 0 of broker-b is not among the queues",
        ),
        ({"sql": "n ="}, "Told queue 0 of broker-a: "),
        ({"path": "rocketmq://{namesrv}/Far"}, "knows no cluster Far; it knows DefaultCluster"),
    ],
    ids=str,
)  # fmt: skip
def test_what_the_cluster_does_not_have(served: TestBroker, options: dict[str, str], text: str) -> None:
    with pytest.raises(RmqError) as error:
        numbers(served.namesrv, **options)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


# -- brokers that lie, or have another store meanwhile -----------------------------------------------------------------


@by_turns(3)
@pytest.mark.parametrize("kind", sorted(LIES))
@pytest.mark.parametrize("seed", range(1, some(2, 6)))
def test_every_message_or_an_error(served: TestBroker, kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pull that ends early, or skips, is repeated; what an empty answer says is not believed."""
    liar = Liar(seed, 0.5, kinds=(kind,), most=20)
    with through(served, liar) as namesrv:
        assert numbers(namesrv, maxRecordsPerPartition="50") == list(range(400))
    monkeypatch.setattr(attempts, "PAUSES", (0.01,) * 2)
    liar = Liar(seed, 0.9, kinds=(kind,), most=1 << 30)
    with through(served, liar) as namesrv:
        result, error = _try(namesrv)
    assert result == list(range(400)) or ("Told" in error and "\n" not in error)


def _try(namesrv: str) -> tuple[list[int], str]:
    """(messages, error)."""
    try:
        return numbers(namesrv), ""
    except RmqError as err:
        return [], str(err)


@pytest.fixture
def neighbour(tmp_path: Path) -> Iterator[Neighbour]:
    """A broker in another process, on a store with the messages 0 to 39 of the topic Again."""
    fill(tmp_path / "store", 0, 40)
    with Neighbour(tmp_path / "store", {**CONF, "brokerName": "a"}) as running:
        yield running


@by_turns(3)
@pytest.mark.parametrize("count", [20, 40, 400], ids=["shorter", "as long", "longer"])
def test_a_store_that_is_replaced_between_plan_and_reading(neighbour: Neighbour, tmp_path: Path, count: int) -> None:
    request = live_request_of({"namesrv": neighbour.namesrv, "subscribe": "Again", "maxRecordsPerPartition": "4"})
    parts = plan_ranges(request)
    assert sum(map(len, parts)) == 40
    another_store(neighbour, tmp_path / "store", count)
    for part in parts:
        with pytest.raises((DataLoss, RmqError), match=f"Again queue {part.queue.queue_id} of a: "):
            list(read_range(request, part, ["body"]))


def test_a_broker_that_is_restarted_while_it_is_read(neighbour: Neighbour) -> None:
    request = live_request_of({"namesrv": neighbour.namesrv, "subscribe": "Again"})
    parts = plan_ranges(request)
    listed = []
    for part in parts:
        neighbour.end(signal.SIGKILL)
        neighbour.start()
        listed += [row["body"] for batch in read_range(request, part, ["body"]) for row in batch.to_pylist()]
    assert sorted(map(int, listed)) == list(range(40))


def test_a_broker_that_does_not_answer(neighbour: Neighbour) -> None:
    request = live_request_of({"namesrv": neighbour.namesrv, "subscribe": "Again", "brokerTimeout": "100ms"})
    part = plan_ranges(request)[1]
    neighbour.end(signal.SIGKILL)
    with pytest.raises(RmqError, match=r"Again queue 1 of a: .*refused") as error:
        list(read_range(request, part, ["body"]))
    assert "\n" not in str(error.value)


# -- positions ---------------------------------------------------------------------------------------------------------

QUEUES = st.builds(MessageQueue, st.sampled_from("AB"), st.sampled_from("xy"), st.integers(0, 3))


@st.composite
def positions(draw: st.DrawFn) -> QueuePosition:
    offset = draw(st.integers(0, 1 << 40))
    last = (
        Last(draw(st.integers(0, offset - 1)), draw(st.integers(0, 1 << 32)))
        if offset and draw(st.booleans())
        else None
    )
    return QueuePosition(offset, last if draw(st.booleans()) else None, draw(st.none() | st.integers(0, offset)))


@given(st.dictionaries(QUEUES, positions()))
def test_positions_survive_json(given: dict[MessageQueue, QueuePosition]) -> None:
    offsets = to_json(given)
    assert from_json(json.loads(json.dumps(offsets))) == given
    assert ranges_between(given, given) == []


@pytest.mark.parametrize(
    "offsets",
    [
        {"/store": 17}, {"/store": {"next": 1, "crc": 2}}, {"A": {"b": {"0": {"offset": -1}}}}, [],
        {"A": {"b": {"0": {"offset": 5, "last": [5, 1]}}}}, {"A": {"b": {"0": {"offset": 5, "last": [1]}}}},
    ],
    ids=str,
)  # fmt: skip
def test_offsets_of_something_else(offsets: Any) -> None:
    with pytest.raises(BadValue, match="which are not offsets of a live cluster"):
        from_json(offsets)


@given(st.lists(st.integers(1, 1000), max_size=6), st.none() | st.integers(1, 20), st.none() | st.integers(1, 300))
def test_parts_cover_their_ranges(sizes: list[int], least: int | None, most: int | None) -> None:
    whole = [Range(MessageQueue("A", "b", number), 7, 7 + size) for number, size in enumerate(sizes)]
    parts = divide(whole, least, most)
    assert [at for part in parts for at in range(part.start, part.stop)] == [
        at for each in whole for at in range(each.start, each.stop)
    ]
    assert all(len(part) for part in parts)
    assert len(parts) >= min(least or 0, sum(sizes))
    assert most is None or all(len(part) <= most for part in parts)


@given(st.lists(st.integers(1, 1000), max_size=60), st.none() | st.integers(1, 20), st.none() | st.integers(1, 300))
def test_small_ranges_are_read_together(sizes: list[int], least: int | None, most: int | None) -> None:
    whole = [Range(MessageQueue("A", "b", number), 7, 7 + size) for number, size in enumerate(sizes)]
    parts = divide(whole, least, most)
    tasks = join_small(parts, least, most)
    assert [part for task in tasks for part in task] == parts
    assert len(tasks) >= min(least or 0, sum(sizes))
    read = [sum(map(len, task)) for task in tasks]
    assert most is None or max(read, default=0) <= most
    if least is None and most is None:
        assert all(a + b > 1000 for a, b in pairwise(read))


def test_a_long_queue_is_divided_beside_many_short_ones() -> None:
    sizes = [90_000, *[10] * 1000]
    parts = divide([Range(MessageQueue("A", "b", n), 0, size) for n, size in enumerate(sizes)], 10, None)
    assert max(map(len, parts)) <= 10_000
    assert len(join_small(parts, 10, None)) == 19
    nearly_even = [Range(MessageQueue("A", "b", n), 0, 10_000 + n) for n in range(8)]
    assert divide(nearly_even, 8, None) == nearly_even


@given(st.dictionaries(QUEUES, st.integers(0, 1 << 40)), st.integers(1, 1 << 20))
def test_a_limit_is_shared_in_proportion(backlogs: dict[MessageQueue, int], limit: int) -> None:
    shares = share(backlogs, limit)
    total = sum(backlogs.values())
    assert sum(shares.values()) == min(total, limit)
    for queue, waiting in backlogs.items():
        assert 0 <= shares[queue] <= waiting
        assert abs(shares[queue] - waiting * min(limit, total) / max(total, 1)) < 1.01


def test_a_table_of_the_catalog_has_no_path() -> None:
    """With its planner Spark adds the directory in which it would keep a table without a location."""
    table = {"provider": "rocketmq", "option.namesrv": "127.0.0.1:9876", "namesrv": "127.0.0.1:9876", "owner": "root"}
    kept = {**table, "subscribe": "Orders", "path": "file:/home/spark-warehouse/live"}
    assert live_request_of(kept).target.text == "rocketmq://127.0.0.1:9876"
    with pytest.raises(BadValue, match="option namesrv goes without a path"):
        live_request_of({**kept, "location": kept["path"]})
