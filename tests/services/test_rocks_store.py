"""A RocksDB store of a real 5.3.3 broker: reading commands compared with the admin tool."""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from formats.config.files import ConsumerOffsets, SubscriptionGroups, Topics
from formats.queues import rocks as codec
from rmqtool.analytics.source.tables import NamedStore as TableStore
from rmqtool.analytics.source.tables import pieces_of, rows_of
from rmqtool.services.lookup.get_message import get_message
from rmqtool.services.lookup.query_time import offset_by_time
from rmqtool.services.open_store.opened import read_store
from rmqtool.services.open_store.store import Store
from rmqtool.store.config.files import read_config
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.batch import every_queue, open_any_queue
from tests import goldens, rocks
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.rocks import build_offset

CASE = "rocksdb-5.3.3"
FACTS = goldens.STORES_OF_5 / CASE / "facts"
SAID = list(goldens.messages(CASE))


def rows(*args: object) -> list[dict[str, Any]]:
    result = rmqtool(*args, "-o", "ndjson")
    assert (result.code, result.err) == (0, "")
    return [json.loads(line) for line in result.out.splitlines()]


def progress() -> Iterator[tuple[str, str, int, int, int, int]]:
    """(group, topic, queue, broker's offset, group's offset, lag) as printed by the admin tool."""
    group = ""
    for line in (FACTS / "consumer-progress.txt").read_text().splitlines():
        if line.startswith("## "):
            group = line[3:]
        elif match := re.match(r"(\S+)\s+lab-a\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", line):
            topic, *numbers = match.groups()
            yield (group, topic, *map(int, numbers))  # type: ignore[misc]


def test_lag_is_what_the_admin_tool_said(golden: Unpacked) -> None:
    told = list(progress())
    assert len(told) == 20
    listed = {
        (row["group"], row["topic"], row["queueId"], row["brokerOffset"], row["consumerOffset"] or 0, row["diff"])
        for row in rows("group", "lag", golden(CASE))
        if not row["group"].startswith("CID_RMQ_SYS_")
    }
    assert listed == set(told)


def test_offsets_of_topics_are_what_the_admin_tool_said(golden: Unpacked) -> None:
    told = {}
    topic = ""
    for line in (FACTS / "topic-status.txt").read_text().splitlines():
        if line.startswith("## "):
            topic = line[3:]
        elif match := re.match(r"lab-a\s+(\d+)\s+(\d+)\s+(\d+)", line):
            queue_id, low, high = map(int, match.groups())
            told[topic, queue_id] = (low, high)
    assert len(told) > 20
    layout = StoreLayout(str(golden(CASE)))
    log = CommitLog(layout)
    result = {(q.topic, q.queue_id): (q.min_offset(log.min_offset), q.max_offset) for q in every_queue(layout)}
    # the tool also tells of queues that no message ever came to
    assert {key: result.get(key, (0, 0)) for key in told} == told


def test_config_tables(golden: Unpacked) -> None:
    layout = StoreLayout(str(golden(CASE)))
    topics, groups = read_config(layout, "topics.json"), read_config(layout, "subscriptionGroup.json")
    offsets = read_config(layout, "consumerOffset.json")
    assert isinstance(topics, Topics)
    assert isinstance(groups, SubscriptionGroups)
    assert isinstance(offsets, ConsumerOffsets)
    assert len(topics.topics) == 23
    assert topics.topics["Timers"].attributes == {"message.type": "DELAY"}
    assert (topics.data_version.counter, topics.data_version.timestamp) == (11, 1795392246988)
    assert groups.groups["orderly-group"].retry_max_times == 2
    assert offsets.offset("Orders", "pull-group", 2) == 61
    assert read_config(layout, "topics.json", bak=True) is None


def test_config_shows_the_databases(golden: Unpacked) -> None:
    listed = {row["name"]: (row["kind"], row["readable"]) for row in rows("config", golden(CASE))}
    assert listed["topics"] == ("Topics", True)
    assert listed["consumerOffsets"] == ("ConsumerOffsets", True)
    table = json.loads(rmqtool("config", golden(CASE), "subscriptionGroup.json").out)
    assert table["subscriptionGroupTable"]["pop-group"]["retryMaxTimes"] == 2


def test_the_killed_broker_kept_its_tables(golden: Unpacked) -> None:
    # what it had in memory went into RocksDB's own log, which is read too
    same = [
        [read_config(StoreLayout(str(golden(case))), name) for name in ("topics.json", "consumerOffset.json")]
        for case in (CASE, CASE + "-crash")
    ]
    assert same[0] == same[1]


def test_queues_that_were_not_written_before_a_crash(golden: Unpacked) -> None:
    result = rmqtool("group", "lag", golden(CASE + "-crash"), "-o", "ndjson")
    assert {json.loads(line)["state"] for line in result.out.splitlines()} == {"ok", "behind"}
    assert result.err == (
        "warning: consumequeue: the database has the log up to physical offset 0 only: the rest is taken from the log "
        "here, as a broker does it at its next start\n"
    )


@pytest.mark.parametrize(
    ("args", "count"),
    [
        (["topic", "list"], 13),
        (["dlq", "list"], 4),
        (["transaction", "list"], 18),
        (["group", "list"], 12),
        (["offsets"], 24),
    ],
)
def test_commands_that_list(golden: Unpacked, args: list[str], count: int) -> None:
    assert len(rows(*args, golden(CASE))) == count


def test_waiting_messages(golden: Unpacked) -> None:
    levels = {row["level"]: row["pending"] for row in rows("delay", "list", golden(CASE))}
    assert levels[18] == 3  # far-N
    assert levels[0] == 6  # later-N and recall-0, in the timer wheel
    dead = rows("dlq", "list", golden(CASE))
    assert sorted(row["keys"][0] for row in dead) == ["order-0", "order-120", "order-40", "order-80"]


def test_every_message_by_its_queue_offset(golden: Unpacked) -> None:
    layout = StoreLayout(str(golden(CASE)))
    log = CommitLog(layout)
    for row in SAID:
        queue = open_any_queue(layout, row["cqTopic"], row["cqQueueId"])
        result = get_message(log, queue, row["cqOffset"], 1)
        assert (result.status, result.next_begin_offset) == ("FOUND", row["cqOffset"] + 1)
        assert [stored.physical_offset for stored in result.messages] == [row["message"]["physicalOffset"]]


def test_pulls_beside_the_queue(golden: Unpacked) -> None:
    layout = StoreLayout(str(golden(CASE)))
    log, queue = CommitLog(layout), open_any_queue(StoreLayout(str(golden(CASE))), "Orders", 0)
    told = [get_message(log, queue, offset, 32)[:2] for offset in (-1, 41, 42)]
    assert told == [("OFFSET_TOO_SMALL", 0), ("OFFSET_OVERFLOW_ONE", 41), ("OFFSET_OVERFLOW_BADLY", 41)]
    assert get_message(log, queue, 30, 100).next_begin_offset == 41
    empty = open_any_queue(layout, "rmq_sys_REVIVE_LOG_LabCluster", 1)
    assert get_message(log, empty, 0, 32)[:2] == ("NO_MESSAGE_IN_QUEUE", 0)


def test_a_pull_from_a_gap(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)

    def remove(families: rocks.Families) -> None:
        del families[codec.UNITS][codec.unit_key("Orders", 0, 7)]

    rocks.change(store / "consumequeue", remove)
    layout = StoreLayout(str(store))
    log, queue = CommitLog(layout), open_any_queue(layout, "Orders", 0)
    assert get_message(log, queue, 7, 32)[:2] == ("OFFSET_FOUND_NULL", 0)  # a broker's next file is always 0
    result = get_message(log, queue, 5, 4)
    assert ([stored.record.queue_offset for stored in result.messages], result.next_begin_offset) == ([5, 6, 8], 9)


def test_times(golden: Unpacked) -> None:
    layout = StoreLayout(str(golden(CASE)))
    log, queue = CommitLog(layout), open_any_queue(layout, "Orders", 2)
    assert queue is not None
    times = [row["message"]["storeTimestamp"] for row in SAID if (row["cqTopic"], row["cqQueueId"]) == ("Orders", 2)]
    assert times == sorted(times)
    for time in sorted({*times, *(t + 1 for t in times), *(t - 1 for t in times)}):
        lower, upper = (offset_by_time(log, queue, time, upper=upper) for upper in (False, True))
        assert lower == sum(t < time for t in times)
        assert upper == max(sum(t <= time for t in times) - 1, 0)


def test_times_as_the_engine_answered(golden: Unpacked) -> None:
    layout = StoreLayout(str(golden(CASE)))
    log, asked = CommitLog(layout), list(goldens.offsets_by_time(CASE))
    assert len(asked) > 200
    for row in asked:
        queue = open_any_queue(layout, row["topic"], row["queueId"])
        assert queue is not None
        result = [offset_by_time(log, queue, row["timestamp"], upper=upper) for upper in (False, True)]
        assert result == [row["lower"], row["upper"]]


@pytest.mark.parametrize(
    ("time", "lower", "upper"),
    # as the engine's own test of this search has it: late, early, between, exact
    [(20000, 1001, 1000), (1, 100, 0), (2005, 201, 200), (2000, 200, 200)],
)
def test_times_as_the_engines_own_test_has_them(tmp_path: Path, time: int, lower: int, upper: int) -> None:
    (tmp_path / "commitlog").mkdir()
    units = {codec.unit_key("T", 0, n): codec.build_unit(codec.RocksUnit(n, 10, 0, 10 * n)) for n in range(100, 1001)}
    ends = {codec.MAX: codec.RocksOffset(1000, 1000), codec.MIN: codec.RocksOffset(100, 100)}
    noted = {codec.offset_key("T", 0, bound): build_offset(end) for bound, end in ends.items()}
    rocks.write(tmp_path / "consumequeue", {codec.UNITS: units, codec.OFFSETS: noted})
    layout = StoreLayout(str(tmp_path))
    log, queue = CommitLog(layout), open_any_queue(layout, "T", 0)
    assert queue is not None
    assert [offset_by_time(log, queue, time, upper=bound) for bound in (False, True)] == [lower, upper]


def test_query_time(golden: Unpacked) -> None:
    [row] = rows("query-time", golden(CASE), "Orders", 0, "2026-11-23T00:03:44Z")
    first = next(r for r in SAID if r["cqTopic"] == "Orders" and not r["cqQueueId"] and r["cqOffset"] == row["offset"])
    assert first["message"]["storeTimestamp"] >= 1795392224000
    assert row["msgId"] == first["message"]["properties"]["UNIQ_KEY"]


def test_tables_for_sql(golden: Unpacked) -> None:
    store = TableStore(str(golden(CASE)), "lab-a")
    parts = pieces_of("queues", store, 2000)
    assert len(parts) > 3
    listed = [row for part in parts for batch in rows_of("queues", store, part) for row in batch.to_pylist()]
    key = lambda row: (row["topic"], row["queueId"], row["queueOffset"])  # noqa: E731
    expected = [
        {"topic": r["cqTopic"], "queueId": r["cqQueueId"], "queueOffset": r["cqOffset"],
         "physicalOffset": r["cqPhysicalOffset"], "size": r["cqSize"], "tagsCode": r["cqTagsCode"], "batchNum": 1}
        for r in SAID
    ]  # fmt: skip
    assert [{k: row[k] for k in expected[0]} for row in sorted(listed, key=key)] == sorted(expected, key=key)
    assert sum(batch.num_rows for batch in rows_of("offsets", store)) == 24


def test_a_store_that_is_served_for_draining(golden: Unpacked) -> None:
    with Store(golden(CASE)) as store:
        reading = read_store(store)
        for row in SAID:
            topic, queue_id, offset = row["cqTopic"], row["cqQueueId"], row["cqOffset"]
            result = reading.pull(topic, queue_id, offset, 1)
            at = int.from_bytes(result.messages[0][28:36], "big")
            assert (result.status, at) == ("FOUND", row["message"]["physicalOffset"])
            assert reading.store_time(topic, queue_id, offset) == row["message"]["storeTimestamp"]
        assert (reading.min_offset("Orders", 2), reading.max_offset("Orders", 2)) == (0, 61)
        assert reading.queue("Orders", 99) is None
        assert {(queue.topic, queue.queueId): queue.maxOffset for queue in store.queues()}["Orders", 2] == 61
        assert store.get("Orders", 2, 60).messages[0].record.queue_offset == 60


# -- damage and what is missing ---------------------------------------------------------------------------------------


def test_a_value_that_is_no_json(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    rocks.change(store / "config" / "topics", lambda families: families["default"].update({b"Orders": b"{"}))
    result = rmqtool("config", store, "topics.json")
    assert (result.code, result.err.count("\n")) == (5, 1)
    assert "config/topics: key 'Orders'" in result.err
    assert json.loads(rmqtool("info", store, "-o", "json").out)["problems"]


@pytest.mark.parametrize("value", [b"[]", b'{"offsetTable":[]}', b'{"offsetTable":{"0":"x"}}', b"\xff", b""])
def test_values_of_another_shape(golden_copy: Unpacked, value: bytes) -> None:
    store = golden_copy(CASE)
    path = store / "config" / "consumerOffsets"
    rocks.change(path, lambda families: families["default"].update({b"Orders@pull-group": value}))
    result = rmqtool("group", "lag", store)
    assert (result.code, result.err.count("\n")) == (5, 1)


def test_files_of_a_broker_that_has_gone_back_to_them(golden: Unpacked, golden_copy: Unpacked) -> None:
    store = golden_copy("broker-5.3.3")
    shutil.copytree(golden(CASE) / "config" / "topics", store / "config" / "topics")
    topics = read_config(StoreLayout(str(store)), "topics.json")
    assert isinstance(topics, Topics)
    assert topics == read_config(StoreLayout(str(golden("broker-5.3.3"))), "topics.json")


def test_without_the_library(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    for arguments in (["group", "lag"], ["topic", "list"], ["offsets"]):
        result = rmqtool(*arguments, golden(CASE))
        assert (result.code, result.err.count("\n")) == (6, 1)
    assert "topics" not in {row["name"] for row in rows("config", golden(CASE))}


def test_offsets_are_not_written(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    result = rmqtool("group", "reset", store, "pull-group", "--to-earliest", "--yes")
    assert (result.code, result.err.count("\n")) == (4, 1)
