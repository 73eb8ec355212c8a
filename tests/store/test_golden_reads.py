"""For stores closed cleanly by a real broker, the reader returns what that broker returned."""

import hashlib

import pytest

from formats.layouts.derived import HEAD_V4_V4
from formats.message.bodies import decompress
from rmqtool.contract import message_row
from rmqtool.services.lookup.get_message import get_message
from rmqtool.services.lookup.query import Search, query_id, query_key
from rmqtool.services.lookup.query_time import offset_by_time_v4
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log import commit_log
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.queues.reader import queues_of
from tests import goldens
from tests.conftest import Unpacked

CLEAN = [case for case in goldens.cases() if not goldens.has(case, "recovered.json")]


def fail(text: str) -> None:
    pytest.fail(f"unexpected warning: {text}")


def test_the_clean_cases_are_those_that_are_expected() -> None:
    assert set(CLEAN) >= {"clean", "broker", "delay", "ipv6", "large-bodies", "lmq", "queue-ext"}


@pytest.mark.parametrize("case", CLEAN)
def test_every_queue_entry_and_every_field_of_its_message(case: str, golden: Unpacked) -> None:
    layout = StoreLayout(str(golden(case)))
    log = CommitLog(layout)
    mine = {
        (q.topic, q.queue_id, e.queue_offset): e
        for q in queues_of(layout)
        for e in q.entries(q.min_offset(log.min_offset))
    }
    seen = 0
    for row in goldens.messages(case):
        entry = mine[row["cqTopic"], row["cqQueueId"], row["cqOffset"]]
        assert (entry.physical_offset, entry.size, entry.tags_code) == (
            row["cqPhysicalOffset"],
            row["cqSize"],
            row["cqTagsCode"],
        )
        located = log.read(entry.physical_offset)
        assert located is not None
        expected = row["message"]
        got = message_row(located.record, located.physical_offset, "none")
        body = decompress(located.record.body, located.record.sys_flag)
        assert hashlib.sha256(body).hexdigest() == expected.pop("bodySha256")
        # the broker itself calls the offset id msgId; clients, and so this project, mean the unique id
        assert got["offsetMsgId"] == expected.pop("msgId")
        assert got["msgId"] == got["properties"].get("UNIQ_KEY", got["offsetMsgId"])
        assert {name: got[name] for name in expected} == expected
        seen += 1
    assert seen == len(mine) > 0


@pytest.mark.parametrize("case", CLEAN)
def test_key_queries(case: str, golden: Unpacked) -> None:
    layout = StoreLayout(str(golden(case)))
    for query in goldens.queries(case):
        hits = query_key(layout, query["topic"], query["key"], Search(), fail)
        assert [m.physical_offset for m in hits] == query["physicalOffsets"], query
        scanned = query_key(StoreLayout(layout.root), query["topic"], query["key"], Search(scan=True), fail)
        assert [m.physical_offset for m in scanned] == query["physicalOffsets"], query


@pytest.mark.parametrize("case", [case for case in CLEAN if goldens.has(case, "offset-by-time.ndjson")])
def test_offsets_by_time(case: str, golden: Unpacked) -> None:
    layout = StoreLayout(str(golden(case)))
    log = CommitLog(layout)
    queues = {(q.topic, q.queue_id): q for q in queues_of(layout)}
    for row in goldens.offsets_by_time(case):
        queue = queues[row["topic"], row["queueId"]]
        assert offset_by_time_v4(log, queue, row["timestamp"]) == row["offset"], row


@pytest.mark.parametrize("case", [case for case in CLEAN if goldens.has(case, "get-message.ndjson")])
def test_pulls(case: str, golden: Unpacked) -> None:
    layout = StoreLayout(str(golden(case)))
    log = CommitLog(layout)
    queues = {(q.topic, q.queue_id): q for q in queues_of(layout)}
    for row in goldens.get_messages(case):
        got = get_message(log, queues.get((row["topic"], row["queueId"])), row["offset"], row["maxMsgNums"])
        expected = (row["status"], row["nextBeginOffset"], row["minOffset"], row["maxOffset"], row["count"])
        assert (*got[:4], len(got.messages)) == expected, row


@pytest.mark.parametrize("case", ["clean", "broker", "ipv6"])
def test_every_message_is_found_by_both_of_its_ids(case: str, golden: Unpacked) -> None:
    layout = StoreLayout(str(golden(case)))
    for row in list(goldens.messages(case))[::7]:
        message = row["message"]
        by_offset = query_id(layout, message["offsetMsgId"], Search(), fail)
        assert [m.physical_offset for m in by_offset] == [message["physicalOffset"]]
        unique = message["properties"].get("UNIQ_KEY")
        if unique is None:
            assert message["topic"] == "RMQ_SYS_TRANS_OP_HALF_TOPIC"  # the broker's own messages have none
            continue
        by_unique = query_id(layout, unique, Search(), fail)
        assert message["physicalOffset"] in [m.physical_offset for m in by_unique]


@pytest.mark.parametrize("case", CLEAN)
def test_a_walk_through_a_clean_log_meets_no_damage(case: str, golden: Unpacked) -> None:
    log = CommitLog(StoreLayout(str(golden(case))))
    items = list(log.walk())
    assert not [item for item in items if isinstance(item, Damage)]
    assert all(
        isinstance(item, LocatedRecord) and item.record.physical_offset == item.physical_offset for item in items
    )
    pointed_at = {row["cqPhysicalOffset"] for row in goldens.messages(case)}
    assert pointed_at <= {item.physical_offset for item in items if isinstance(item, LocatedRecord)}


def test_the_store_time_of_a_record_and_of_what_is_none(golden_copy: Unpacked) -> None:
    layout = StoreLayout(str(golden_copy("ipv6")))
    items = [item for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord)]
    moved, cut, *_others = items
    with open(moved.file.path, "r+b") as file:
        file.seek(moved.at + HEAD_V4_V4.offsets["physical_offset"])
        file.write((1 << 40).to_bytes(8, "big"))
        file.seek(cut.at)
        file.write((1 << 30).to_bytes(4, "big"))
    log = CommitLog(layout)
    times = [None if item is cut else item.record.store_timestamp for item in items]
    assert [log.store_time(item.physical_offset) for item in items] == times
    assert log.store_time(items[0].physical_offset + 1) is None
    assert log.store_time(items[-1].end) is None
    assert log.store_time(1 << 50) is None


@pytest.mark.parametrize("case", CLEAN)
def test_the_log_ends_where_it_does_from_any_hint(case: str, golden: Unpacked) -> None:
    log = CommitLog(StoreLayout(str(golden(case))))
    records = [item for item in log.walk() if isinstance(item, LocatedRecord)]
    end = records[-1].physical_offset + records[-1].record.total_size
    assert log.end() == (end, records[-1].record.store_timestamp)
    last = log.last(records[len(records) // 2].physical_offset)
    assert last is not None
    assert last.end == end
    assert log.last(end) is None


@pytest.mark.parametrize("case", [*goldens.cases(), "broker-5.3.3", "broker-5.5.0-crash"])
def test_the_last_record_is_found_in_bulk_as_one_by_one(
    case: str, golden: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the third file from the end, and from hints, up to the first damage."""
    log = CommitLog(StoreLayout(str(golden(case))))
    starts = [item.physical_offset for item in log.walk() if isinstance(item, LocatedRecord)]
    hints = [-1, *starts[:: max(len(starts) // 5, 1)]]
    found: dict[int, list[LocatedRecord | None]] = {}
    for few in (1, 3, 1 << 40):
        monkeypatch.setattr(commit_log, "_FEW", few)
        found[few] = [log.last(hint) for hint in hints]
    assert found[1] == found[3] == found[1 << 40]
    assert all(found[1]) or not starts
