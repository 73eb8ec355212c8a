"""Reports: expected values come from the golden stores and from what their clients did (scenario.md)."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqtool.analytics.sql.ready import READY
from rmqtool.store.log.commit_log import CommitLog
from tests.amounts import by_turns, every
from tests.analytics.helpers import TIME, record, store_of
from tests.analytics.ready_frame import ready_frame
from tests.cli.running import Result, rmqtool
from tests.conftest import Unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

# topic: (messages, bytes), all of 2026-11-20, 20 h UTC
BROKER = {
    "%DLQ%lab-consumer": (16, 6076),
    "%RETRY%lab-consumer": (20, 7950),
    "Batched": (20, 4700),
    "Delayed": (12, 3148),
    "Orders": (420, 105_676),
    "Payments": (9, 2595),
    "RMQ_SYS_TRANS_HALF_TOPIC": (26, 7900),
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": (17, 2305),
    "SCHEDULE_TOPIC_XXXX": (38, 12_880),
    "Sequenced": (30, 6250),
    "TRANS_CHECK_MAX_TIME_TOPIC": (1, 323),
}
SOME = {"unconsumed", "retries"}  # the queries with most in them
AT_ONCE = {60, 10, 110, 210, 260, 310}  # sent to the dead letters without a retry


def rows(name: str, store: object, *more: object) -> list[dict[str, Any]]:
    result = rmqtool("report", name, store, *more, "-o", "json")
    assert result.code in (0, 1), result.err
    listed: list[dict[str, Any]] = json.loads(result.out)
    return listed


def table(name: str, store: object, *more: object) -> Result:
    return rmqtool("report", name, store, *more)


def test_traffic(spark: "SparkSession", golden: Unpacked) -> None:
    listed = rows("traffic", golden("broker"))
    assert {row["topic"]: (row["messages"], row["bytes"]) for row in listed} == BROKER
    assert {row["hour"] for row in listed} == {"2026-11-20T20:00:00.000Z"}
    assert [row["topic"] for row in rows("traffic", golden("broker"), "-t", "Ord*", "-t", "Batched")] == [
        "Batched",
        "Orders",
    ]
    assert rows("traffic", golden("broker"), "--until", "2026-11-20T20:34:44.371Z")[0]["messages"] == 1
    assert len(rows("traffic", golden("broker"), "--limit", "2")) == 2
    nothing = table("traffic", golden("broker"), "--topic", "nothing", "-o", "json")
    assert (nothing.code, nothing.out) == (1, "[]\n")
    assert nothing.err.endswith("nothing matches --topic nothing\n")
    lines = table("traffic", golden("broker")).out.splitlines()
    assert lines[0].split()[-1] == "bar"
    bars = {line.split()[1]: line.split()[-1] for line in lines[1:]}
    assert bars["Orders"] == "█" * 20
    assert bars["SCHEDULE_TOPIC_XXXX"] == "██"
    assert bars["TRANS_CHECK_MAX_TIME_TOPIC"] == "█"  # more than nothing


def test_traffic_is_by_hour(spark: "SparkSession", tmp_path: Path) -> None:
    data = b""
    for number, time in enumerate((0, 100, 3_599_999, 3_600_000)):
        data += record("T", len(data), number=number, store_timestamp=TIME // 3_600_000 * 3_600_000 + time)
    listed = rows("traffic", store_of(tmp_path, data).root)
    assert [row["messages"] for row in listed] == [3, 1]
    assert listed[0]["hour"].endswith(":00:00.000Z")


def test_sizes(spark: "SparkSession", golden: Unpacked, tmp_path: Path) -> None:
    assert rows("sizes", golden("broker"), "--topic", "Orders") == [
        {
            "broker": "store", "topic": "Orders", "atMost": 256, "messages": 410, "bytes": 103_076,
            "smallest": 212, "largest": 255,
        },
        {
            "broker": "store", "topic": "Orders", "atMost": 512, "messages": 10, "bytes": 2600,
            "smallest": 260, "largest": 260,
        },
    ]  # fmt: skip
    data = b""
    for size in (128, 129, 256):  # on both sides of a bound
        data += record("T", len(data), body=b"b" * (size - 91 - 1), properties=b"")
    listed = rows("sizes", store_of(tmp_path, data).root)
    assert [(row["atMost"], row["messages"], row["largest"]) for row in listed] == [(128, 1, 128), (256, 2, 256)]


def test_duplicates_by_id(spark: "SparkSession", golden: Unpacked, tmp_path: Path) -> None:
    clean = rmqtool("report", "duplicates", golden("broker"), "-o", "json")
    assert (clean.code, clean.out) == (0, "[]\n")  # retries and half messages are copies by design
    data = b""
    for number, (topic, key) in enumerate([("T", b"a"), ("T", b"b"), ("T", b"a"), ("U", b"a"), ("%RETRY%g", b"a")]):
        data += record(topic, len(data), number=number, properties=b"UNIQ_KEY\x01" + key)
    layout = store_of(tmp_path, data)
    starts = [item.physical_offset for item in CommitLog(layout).walk()]
    (row,) = rows("duplicates", layout.root)
    assert {name: row[name] for name in ("topic", "id", "copies", "firstPhysicalOffset", "lastPhysicalOffset")} == {
        "topic": "T", "id": "a", "copies": 2, "firstPhysicalOffset": 0, "lastPhysicalOffset": starts[2],
    }  # fmt: skip
    assert table("duplicates", layout.root).code == 1


def test_duplicates_by_key(spark: "SparkSession", golden: Unpacked) -> None:
    listed = rows("duplicates", golden("broker"), "--by", "key")
    assert len(listed) == 17
    orders = {row["key"]: row["copies"] for row in listed if row["topic"] == "Orders"}
    # 400 orders of user-(i mod 17)
    assert orders == {f"user-{i}": len(range(i, 400, 17)) for i in range(17)}


def test_producers(spark: "SparkSession", golden: Unpacked, tmp_path: Path) -> None:
    (row,) = rows("producers", golden("broker"))
    own = [topic for topic in BROKER if not topic.startswith(("%", "RMQ_SYS", "SCHEDULE", "TRANS_CHECK"))]
    assert (row["host"], row["topics"]) == ("127.0.0.1", len(own))
    assert row["messages"] == sum(BROKER[topic][0] for topic in own)
    assert row["bytes"] == sum(BROKER[topic][1] for topic in own)
    data = b""
    for number, host in enumerate([b"\x0a\0\0\1", b"\x0a\0\0\1", bytes(15) + b"\1"]):
        data += record("T", len(data), number=number, born_address=host, born_port=1000 + number)
    listed = rows("producers", store_of(tmp_path, data).root)
    assert [(row["messages"], row["connections"]) for row in listed] == [(2, 2), (1, 1)]
    assert listed[0]["host"] == "10.0.0.1"
    assert ":" in listed[1]["host"]
    assert not listed[1]["host"].endswith(":1002")


def offsets(root: Path, **positions: int) -> None:
    """Set a group's offsets in queues of Orders."""
    path = root / "config" / "consumerOffset.json"
    before, name, after = path.read_text().partition('"Orders@lab-consumer":{')
    assert name
    for queue, offset in positions.items():  # not JSON: the broker's library writes numbers as names
        after, count = re.subn(
            rf"\b{queue.removeprefix('q')}:\d+", f"{queue.removeprefix('q')}:{offset}", after, count=1
        )
        assert count == 1
    path.write_text(before + name + after)


def test_lag(spark: "SparkSession", golden: Unpacked, golden_copy: Unpacked) -> None:
    listed = rows("lag", golden("broker"))
    by_row = {(row["group"], row["topic"]): (row["queues"], row["stored"], row["lag"]) for row in listed}
    assert by_row["lab-consumer", "Orders"] == (4, 420, 0)
    assert by_row["lab-orderly", "Sequenced"] == (3, 30, 0)
    assert len(by_row) == 9
    assert {lag for _queues, _stored, lag in by_row.values()} == {0}
    root = golden_copy("broker")
    offsets(root, q0=100, q3=80)
    (row, *_others) = rows("lag", root, "--group", "lab-c*")
    assert (row["topic"], row["lag"], row["largest"]) == ("Orders", 30, 25)
    lines = table("lag", root, "--group", "lab-consumer", "--topic", "Orders").out.splitlines()
    assert lines[1].endswith("█" * 20)
    assert len(lines) == 2


def test_unconsumed(spark: "SparkSession", golden: Unpacked, golden_copy: Unpacked) -> None:
    assert rows("unconsumed", golden("broker")) == []
    root = golden_copy("broker")
    offsets(root, q0=100, q3=103)
    listed = rows("unconsumed", root)
    assert [(row["group"], row["topic"], row["queueId"], row["queueOffset"]) for row in listed] == [
        *(("lab-consumer", "Orders", 0, offset) for offset in range(100, 105)),
        *(("lab-consumer", "Orders", 3, offset) for offset in (103, 104)),
    ]
    assert all(row["msgId"] and row["keys"] for row in listed)
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (root / "config" / name).unlink(missing_ok=True)
    assert len(rows("unconsumed", root, "--topic", "Sequenced")) == 30
    assert {row["group"] for row in rows("unconsumed", root, "--topic", "Orders")} == {None}
    assert rows("unconsumed", root, "--group", "lab*") == []


def test_retries(spark: "SparkSession", golden: Unpacked) -> None:
    listed = rows("retries", golden("broker"))
    assert {row["group"] for row in listed} == {"lab-consumer"}
    assert {row["topic"] for row in listed} == {"Orders"}
    chains = {int(row["keys"][0].removeprefix("order-")): (row["retries"], row["dead"], row["chain"]) for row in listed}
    assert len(listed) == len(chains)
    assert chains == {
        **dict.fromkeys(range(0, 400, 40), (2, True, "wait, retry 1, wait, retry 2, dead letter")),
        **dict.fromkeys(AT_ONCE, (0, True, "dead letter")),
    }
    assert rows("retries", golden("broker"), "--group", "other") == []


def test_damage_shows_in_the_exit_code(spark: "SparkSession", golden: Unpacked) -> None:
    result = table("sizes", golden("torn-header"))
    assert result.code == 1
    assert result.err.startswith("damage: ")


@by_turns(7)
@pytest.mark.parametrize(
    "name", [name if name in SOME else pytest.param(name, marks=pytest.mark.slow) for name in READY]
)
def test_reports_are_data_frames_too(name: str, spark: "SparkSession", golden: Unpacked, tmp_path: Path) -> None:
    """The data source gives the same rows as the command."""
    frame = ready_frame(spark, name, str(golden("broker")), splitBytes=60_000)
    word, by, what = name.partition("-by-")
    args = [word, "--by", what] if by else [word]
    shown = rows(args[0], golden("broker"), *args[1:])
    assert frame.count() == len(shown)
    if shown:
        assert frame.columns == list(shown[0])


def odd_store(folder: Path) -> Path:
    """A store with times that cannot be represented and become null, and missing or duplicate ids and keys."""
    data = b""
    properties = [b"", b"UNIQ_KEY\x01a\x02KEYS\x01k k l", b"UNIQ_KEY\x01a\x02KEYS\x01k", b"", b"ORIGIN_MESSAGE_ID\x01o"]
    times = [-1, 0, 2**62, TIME, -86_400_001, TIME + 59_999]
    topics = ["T", "T", "U", "%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "\u00e4", "\U00010000", "\uffee"]
    for number in range(90):
        data += record(
            topics[number % 9], len(data), number=number, store_timestamp=times[number % 6],
            born_timestamp=times[number % 5], properties=properties[number % 5], body=b"b" * (number * 7 % 300),
        )  # fmt: skip
    return Path(store_of(folder, data).root)


@by_turns(13)
@pytest.mark.parametrize("case", every(3, ["odd", "clean", "torn-header", "large-bodies", "broker", "two"]))
def test_both_runners_say_the_same(case: str, spark: "SparkSession", golden: Unpacked, tmp_path: Path) -> None:
    if case == "two":
        store: object = f"{golden('broker')},{golden('clean')}"
    else:
        store = odd_store(tmp_path) if case == "odd" else golden(case)
    reports = ["traffic", "traffic --by minute", "sizes", "duplicates", "duplicates --by key", "producers", "lag"]
    for report in [*reports, "retries", "unconsumed", "traffic --since 2026-11-20T20:34:44.5", "sizes --topic O*"]:
        for form in ("ndjson", "table") if case in ("broker", "odd") else ("ndjson",):
            by_spark = table(*report.split()[:1], store, *report.split()[1:], "-o", form, "--runner", "spark")
            here = table(*report.split()[:1], store, *report.split()[1:], "-o", form, "--runner", "local")
            assert (here.code, here.out, here.err) == (by_spark.code, by_spark.out, by_spark.err), report


def test_a_small_store_needs_no_java(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_words: object, **_more: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("rmqtool.analytics.spark.session.spark_context", none)
    monkeypatch.setattr("rmqtool.analytics.sql.query.spark_context", none)
    assert table("traffic", golden("broker")).code == 0
    monkeypatch.setattr("rmqtool.analytics.sql.native.SMALL", 1000)
    with pytest.raises(AssertionError, match="Spark was started"):
        table("traffic", golden("broker"))


def test_an_empty_store(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    for name in ("traffic", "sizes", "duplicates", "producers", "lag", "unconsumed", "retries"):
        assert rows(name, tmp_path) == []
    assert table("traffic", tmp_path).out == ""  # a title alone says nothing
