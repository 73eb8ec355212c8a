"""Filters of the data source without Spark: no matching message is missed, and little is read."""

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceReader

from rmqtool.analytics.source import narrow as source_narrow
from rmqtool.analytics.source.filter import Condition, Wanted
from rmqtool.analytics.source.options import condition_of as option_condition
from rmqtool.analytics.source.read import Counters
from rmqtool.analytics.source.tables_source import Reader
from rmqtool.errors import BadValue
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from tests import goldens
from tests.amounts import by_turns, every
from tests.analytics.reading import moment, read
from tests.analytics.stores import MESSAGES, time_of, topic_of
from tests.conftest import Unpacked

# -- every golden store -----------------------------------------------------------------------------------------------


@by_turns(3)
@pytest.mark.parametrize("case", every(4, goldens.cases(), 1))
def test_narrow_reads_miss_nothing(case: str, golden: Unpacked) -> None:
    """By topic, id, key and time: the same as filtering a full read, also in damaged stores."""
    root = golden(case)
    columns = ["topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "msgId", "keys", "tags"]
    whole, _counters = read(root, columns=columns)

    def check(conditions: list[Condition], keep: Callable[[dict[str, Any]], bool]) -> None:
        record, _counters = read(root, conditions, columns)
        kept = sorted(row["physicalOffset"] for row in record if keep(row))
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


# -- how little is read -----------------------------------------------------------------------------------------------


def share(counters: Counters, layout: StoreLayout) -> float:
    return counters.bytesRead / (CommitLog(layout).end()[0])


@pytest.mark.parametrize("way", ["key", "array", "id", "option"])
def test_one_key_reads_entries_and_no_messages(way: str, day: StoreLayout) -> None:
    conditions = {
        "key": [Condition("keys", "has", "k777")],
        "array": [Condition("keys", "=", ["k777"])],
        "id": [Condition("msgId", "=", "U777")],
        "option": [],
    }[way]
    rows, counters = read(day.root, conditions, **({"key": "k777"} if way == "option" else {}))
    assert [row["physicalOffset"] for row in rows if row["msgId"] == "U777"]
    assert len(rows) == 1
    assert 0 < share(counters, day) < 0.22
    nothing, counters = read(day.root, [Condition("msgId", "=", "no such id")])
    assert not nothing
    assert 0 < share(counters, day) < 0.22


def test_one_topic_of_fifty_reads_entries_and_its_messages(day: StoreLayout) -> None:
    rows, counters = read(day.root, [Condition("topic", "=", "topic-07")])
    assert [row["msgId"] for row in rows] == [f"U{n}" for n in range(MESSAGES) if topic_of(n) == "topic-07"]
    assert 0 < share(counters, day) < 0.22
    some, counters = read(
        day.root, [Condition("topic", "=", "topic-07"), Condition("queueId", "=", 1), Condition("queueOffset", "<", 5)]
    )
    assert [row["queueOffset"] for row in some] == [0, 1, 2, 3, 4]
    assert 0 < share(counters, day) < 0.09
    whole, counters = read(day.root, [Condition("topic", "=", "topic-07")], through="log")
    assert whole == rows
    assert share(counters, day) > 0.99


@pytest.mark.parametrize("hour", [0, 7, 23])
def test_one_hour_of_a_day_reads_heads_and_its_messages(hour: int, day: StoreLayout) -> None:
    """Or, if times are known to ascend along the log, almost nothing else."""
    first, after = time_of(0) + hour * 3_600_000, time_of(0) + (hour + 1) * 3_600_000
    times = [Condition("storeTimestamp", ">=", moment(first)), Condition("storeTimestamp", "<", moment(after))]
    rows, counters = read(day.root, times)
    assert [row["msgId"] for row in rows] == [f"U{n}" for n in range(MESSAGES) if first <= time_of(n) < after]
    assert share(counters, day) < 0.35
    ordered, counters = read(day.root, times, storeTimes="ordered")
    assert ordered == rows
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


@by_turns(3)
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
        assert share(counters, day) < 0.23


def test_the_same_ranges_however_large_the_pieces(day: StoreLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = [Condition("topic", "in", ("topic-07", "topic-08"))]
    whole = read(day.root, conditions, columns=["physicalOffset"])[0]
    for size in ("1000", "40000"):
        assert read(day.root, conditions, columns=["physicalOffset"], splitBytes=size)[0] == whole
    monkeypatch.setattr(source_narrow, "NEAR", 0)
    assert read(day.root, conditions, columns=["physicalOffset"])[0] == whole


# -- filters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "changed"),
    [
        (Condition("topic", "=", "T"), {"topics": ("T",)}),
        (Condition("topic", "in", ("T", "U")), {"topics": ("T", "U")}),
        (Condition("topic", "in", ("T", None)), {}),
        (Condition("queueId", "=", 3), {"queues": (3,)}),
        (Condition("tags", "=", "a"), {"tags": ("a",)}),
        (Condition("keys", "=", ["k", "l"]), {"keys": ("k",)}),
        (Condition("keys", "=", []), {}),
        (Condition("physicalOffset", "=", 7), {"start": 7, "stop": 8}),
        (Condition("physicalOffset", ">", 7), {"start": 8}),
        (Condition("queueOffset", ">=", 7), {"queue_start": 7}),
        (Condition("queueOffset", "<", 7), {"queue_stop": 7}),
        (Condition("queueOffset", "<=", 7), {"queue_stop": 8}),
        (Condition("storeTimestamp", "=", moment(5)), {"since": 5, "until": 6}),
        (Condition("storeTimestamp", ">", moment(5)), {"since": 6}),
        (Condition("storeTimestamp", ">", moment(5) + timedelta(microseconds=1)), {"since": 6}),
        (Condition("storeTimestamp", ">=", moment(5) + timedelta(microseconds=1)), {"since": 6}),
        (Condition("storeTimestamp", "<", moment(5) + timedelta(microseconds=1)), {"until": 6}),
        (Condition("storeTimestamp", "<", moment(5)), {"until": 5}),
        (Condition("storeTimestamp", "<=", moment(1_700_000_000_123)), {"until": 1_700_000_000_124}),
        (Condition("body", "=", b"x"), {}),
        (Condition("topic", "=", None), {}),
        (Condition("properties.topic", "=", "T"), {}),
        (Condition("topic", "", "T"), {}),
    ],
)
def test_filters(condition: Condition, changed: dict[str, Any]) -> None:
    choice = Wanted().narrow([condition]).choice
    assert {name: value for name, value in choice.__dict__.items() if value not in (None, ())} == changed


def test_filters_narrow_each_other() -> None:
    wanted = Wanted().narrow(
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


def test_a_reader_takes_no_filters_from_spark() -> None:
    """Spark would reuse the filtered result for every later query on the frame."""
    assert Reader.pushFilters is DataSourceReader.pushFilters


def test_lists_may_have_blanks_and_numbers_a_point() -> None:
    told = option_condition("topic", "Orders, Payments")
    assert told is not None
    assert list(told.value) == ["Orders", "Payments"]
    told = option_condition("queueId", "0, 3.0")
    assert told is not None
    assert list(told.value) == [0, 3]
    for value in ("1.5", "inf", "nan", "x", "1,"):
        with pytest.raises(BadValue):
            option_condition("queueId", value)
