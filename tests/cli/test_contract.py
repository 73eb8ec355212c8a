"""Machine output equals what the broker reported for stores that it closed cleanly."""

import base64
import csv
import hashlib
import io
import json
from collections import defaultdict
from typing import Any

import pytest

from rmqtool.contract import MESSAGE_FIELDS, QUEUE_ENTRY_FIELDS
from tests import goldens
from tests.cli.running import Result, process, rmqtool
from tests.conftest import Unpacked

CLEAN = ["clean", "broker", "delay", "ipv6", "large-bodies", "lmq", "queue-ext"]
TIMED = ["clean", "broker", "delay", "ipv6"]
NOT_NUMBERS = {"topic", "bornHost", "storeHost", "offsetMsgId", "msgId", "tags", "keys", "properties", "body"}
THE_CONTRACT = (
    "topic queueId queueOffset physicalOffset storeSize sysFlag flag bodyCrc bornTimestamp storeTimestamp bornHost "
    "storeHost reconsumeTimes preparedTransactionOffset offsetMsgId msgId tags keys properties bodyLength body "
    "bodyEncoding"
)


def rows_of(result: Result, form: str) -> list[dict[str, Any]]:
    """The output of a run, parsed."""
    if form == "json":
        rows: list[dict[str, Any]] = json.loads(result.out)
        return rows
    if form == "ndjson":
        return [json.loads(line) for line in result.out.splitlines()]
    return list(csv.DictReader(io.StringIO(result.out, newline="")))


def expected_message(golden_message: dict[str, Any]) -> dict[str, Any]:
    """A golden message with the contract's names: the broker calls the offset id ``msgId``."""
    expected = dict(golden_message)
    assert expected.pop("msgId") == expected["offsetMsgId"]
    properties = expected["properties"]
    expected["msgId"] = properties.get("UNIQ_KEY", expected["offsetMsgId"])
    expected["tags"] = properties.get("TAGS")
    expected["keys"] = properties.get("KEYS", "").split()
    expected["bodyEncoding"] = "base64"
    return expected


def check_message(row: dict[str, Any], golden_message: dict[str, Any]) -> None:
    """Check every field of a row from ``--body base64``."""
    row, expected = dict(row), expected_message(golden_message)
    body = base64.b64decode(row.pop("body"), validate=True)
    assert hashlib.sha256(body).hexdigest() == expected.pop("bodySha256")
    assert len(body) == row["bodyLength"]
    assert row == expected


def test_the_names_and_their_order() -> None:
    assert tuple(THE_CONTRACT.split()) == MESSAGE_FIELDS
    assert QUEUE_ENTRY_FIELDS == ("topic", "queueId", "queueOffset", "physicalOffset", "size", "tagsCode", "batchNum")


@pytest.mark.parametrize("case", CLEAN)
def test_consumequeue_dump(case: str, golden: Unpacked) -> None:
    expected = [
        {
            "topic": row["cqTopic"],
            "queueId": row["cqQueueId"],
            "queueOffset": row["cqOffset"],
            "physicalOffset": row["cqPhysicalOffset"],
            "size": row["cqSize"],
            "tagsCode": row["cqTagsCode"],
            "batchNum": 1,
        }
        for row in goldens.messages(case)
    ]
    assert expected
    for form in ("ndjson", "json", "csv"):
        result = rmqtool("consumequeue", "dump", golden(case), "-o", form)
        assert (result.code, result.err) == (0, "")
        rows = rows_of(result, form)
        assert list(rows[0]) == list(QUEUE_ENTRY_FIELDS)
        if form == "csv":
            rows = [{name: v if name == "topic" else int(v) for name, v in row.items()} for row in rows]
        key = lambda row: (row["topic"], row["queueId"], row["queueOffset"])  # noqa: E731
        assert rows == sorted(expected, key=key)


@pytest.mark.parametrize("case", CLEAN)
def test_commitlog_dump(case: str, golden: Unpacked) -> None:
    result = rmqtool("commitlog", "dump", golden(case), "-o", "ndjson", "--body", "base64")
    assert (result.code, result.err) == (0, "")
    rows = {row["physicalOffset"]: row for row in rows_of(result, "ndjson")}
    assert list(rows) == sorted(rows)
    seen = 0
    for entry in goldens.messages(case):
        row = rows[entry["cqPhysicalOffset"]]
        assert tuple(row) == MESSAGE_FIELDS
        check_message(row, entry["message"])
        seen += 1
    assert seen > 0


@pytest.mark.parametrize("case", CLEAN)
def test_commitlog_dump_as_csv(case: str, golden: Unpacked) -> None:
    result = rmqtool("commitlog", "dump", golden(case), "-o", "csv", "--body", "base64")
    assert result.code == 0
    rows = {int(row["physicalOffset"]): row for row in rows_of(result, "csv")}
    for entry in goldens.messages(case):
        row: dict[str, Any] = {
            name: value if name in NOT_NUMBERS | {"bodyEncoding"} else int(value)
            for name, value in rows[entry["cqPhysicalOffset"]].items()
        }
        row["tags"] = row["tags"] or None
        row["keys"] = row["keys"].split()
        row["properties"] = json.loads(row["properties"])
        check_message(row, entry["message"])


@pytest.mark.parametrize("case", CLEAN)
def test_query_offset_reads_every_queue_from_end_to_end(case: str, golden: Unpacked) -> None:
    queues: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for entry in goldens.messages(case):
        queues[entry["cqTopic"], entry["cqQueueId"]].append(entry)
    for (topic, queue_id), entries in queues.items():
        at, end = 0, len(entries)
        first = entries[0]["cqOffset"]
        while at < end:
            result = rmqtool(
                "query-offset", golden(case), topic, queue_id, first + at,
                "--max-msgs", 32, "-o", "ndjson", "--body", "base64",
            )  # fmt: skip
            assert (result.code, result.err) == (0, "")
            rows = rows_of(result, "ndjson")
            assert 0 < len(rows) <= 32
            for row in rows:
                # a light queue's entries point to messages that say another queue's name
                check_message(row, entries[at]["message"])
                at += 1
        over = rmqtool("query-offset", golden(case), topic, queue_id, first + end, "-o", "ndjson")
        assert (over.code, over.out) == (1, "")
        assert over.err.startswith("OFFSET_OVERFLOW_ONE")
        assert over.err.count("\n") == 1


@pytest.mark.parametrize("case", CLEAN)
def test_query_key(case: str, golden: Unpacked) -> None:
    for query in goldens.queries(case):
        for more in ((), ("--scan",)):
            result = rmqtool("query-key", golden(case), query["topic"], query["key"], "-o", "ndjson", *more)
            assert [row["physicalOffset"] for row in rows_of(result, "ndjson")] == query["physicalOffsets"]
            assert result.code == (0 if query["physicalOffsets"] else 1)
            assert result.err.count("\n") == (0 if query["physicalOffsets"] else 1)


@pytest.mark.parametrize("case", CLEAN)
def test_query_id_by_either_id(case: str, golden: Unpacked) -> None:
    for entry in list(goldens.messages(case))[::11]:
        message = entry["message"]
        by_offset = rmqtool("query-id", golden(case), message["offsetMsgId"], "-o", "ndjson", "--body", "base64")
        assert by_offset.code == 0
        [row] = rows_of(by_offset, "ndjson")
        check_message(row, message)
        if unique := message["properties"].get("UNIQ_KEY"):
            by_unique = rmqtool("query-id", golden(case), unique, "-o", "json")
            offsets = [row["physicalOffset"] for row in rows_of(by_unique, "json")]
            assert message["physicalOffset"] in offsets
            assert offsets == sorted(offsets)


@pytest.mark.parametrize("case", TIMED)
def test_query_time(case: str, golden: Unpacked) -> None:
    rows = list(goldens.offsets_by_time(case))
    for row in rows[:: 1 + len(rows) // 100]:
        result = rmqtool("query-time", golden(case), row["topic"], row["queueId"], row["timestamp"], "-o", "ndjson")
        assert (result.code, result.err) == (0, "")
        [got] = rows_of(result, "ndjson")
        assert {name: got[name] for name in row} == row


@pytest.mark.parametrize("case", TIMED)
def test_query_offset_status(case: str, golden: Unpacked) -> None:
    rows = list(goldens.get_messages(case))
    assert any(row["offset"] < 0 for row in rows)
    for row in rows[:: 1 + len(rows) // 180]:
        result = rmqtool(
            "query-offset", golden(case), row["topic"], row["queueId"], row["offset"],
            "--status", "--max-msgs", row["maxMsgNums"], "-o", "ndjson",
        )  # fmt: skip
        assert rows_of(result, "ndjson") == [row]
        assert result.code == (0 if row["count"] else 1)


@pytest.mark.parametrize(
    "args",
    [["-1"], ["--", "-1"], ["--max-msgs", "3", "-1"], ["--status", "-1"], ["-1", "--status"], ["-1", "-o", "csv"]],
)
def test_a_negative_offset_is_an_offset(args: list[str], golden: Unpacked) -> None:
    result = rmqtool("query-offset", golden("clean"), "TopicA", 0, *args)
    assert result.code == 1
    assert result.err.startswith("OFFSET_TOO_SMALL: offset -1")


def test_a_negative_time_is_a_time_from_now(golden: Unpacked) -> None:
    result = rmqtool("query-time", golden("clean"), "TopicA", 0, "-3650d", "-o", "ndjson")
    assert (result.code, json.loads(result.out)["offset"]) == (0, 0)


@pytest.mark.parametrize("args", [["-1", "0"], ["0", "-1x"], ["0", "-x"], ["0", "--max-msgs", "-1", "5"]])
def test_what_is_no_negative_offset_stays_a_usage_error(args: list[str], golden: Unpacked) -> None:
    result = rmqtool("query-offset", golden("clean"), "TopicA", *args)
    assert (result.code, result.out) == (2, "")


def test_as_processes(golden: Unpacked) -> None:
    store = golden("broker")
    query = next(q for q in goldens.queries("broker") if len(q["physicalOffsets"]) > 1)
    for arguments in (
        ("query-key", store, query["topic"], query["key"], "-o", "ndjson"),
        ("query-offset", store, "Orders", 0, -1),
        ("consumequeue", "dump", store, "--topic", "Orders", "-o", "csv"),
        ("commitlog", "dump", store, "--body", "json", "-o", "json"),
        ("info", store, "-o", "json"),
    ):
        assert process(*arguments) == rmqtool(*arguments), arguments


def test_a_clean_store_needs_no_recovery_and_a_crashed_one_does(golden: Unpacked, golden_copy: Unpacked) -> None:
    clean = rmqtool("recover", golden("clean"), "--dry-run", "-o", "json")
    assert (clean.code, json.loads(clean.out)["actions"]) == (0, [])
    assert rmqtool("recover", golden("clean"), "--yes").code == 0
    crash = golden_copy("crash")
    assert rmqtool("recover", crash, "--dry-run").code == 1
    unconfirmed = rmqtool("recover", crash)
    assert (unconfirmed.code, unconfirmed.out) == (4, "")
    result = rmqtool("recover", crash, "--yes", "-o", "json")
    assert (result.code, json.loads(result.out)["applied"]) == (0, True)
    again = rmqtool("recover", crash, "--yes", "-o", "json")
    assert (again.code, json.loads(again.out)["actions"]) == (0, [])
