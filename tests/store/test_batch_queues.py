"""Batch queues of a real 5.3.3 broker are read as by the engine."""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from formats.message.bodies import BatchItem, batch_items, build_batch
from formats.message.inner import messages_in
from formats.message.properties import UNIQ_KEY, parse
from formats.message.read import Record
from formats.primitives import COMPRESSED, INNER_BATCH, NEED_UNWRAP, crc31
from formats.queues.batch import BatchEntry, build
from rmqtool.services.lookup.get_message import first_messages, get_message
from rmqtool.services.lookup.query import Search, query_id, query_key
from rmqtool.services.lookup.query_time import offset_by_time_batches
from rmqtool.services.lookup.topics import StoreTopics
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.batch import BatchQueue, batch_queues_of, open_any_queue
from rmqtool.store.queues.reader import queues_of
from tests import goldens
from tests.cli.running import rmqtool
from tests.conftest import Unpacked

CASES = ["broker-5.3.3", "broker-5.3.3-crash"]
SAID = list(goldens.messages("broker-5.3.3"))
UNITS = [row for row in SAID if row["cqType"] == "BatchCQ"]
UNIT = 46


def fail(text: str) -> None:
    pytest.fail(f"unexpected warning: {text}")


def rows(*args: object) -> list[dict[str, Any]]:
    result = rmqtool(*args, "-o", "ndjson")
    assert (result.code, result.err) == (0, "")
    return [json.loads(line) for line in result.out.splitlines()]


def test_there_are_batches_and_single_messages() -> None:
    assert sorted(row["batchNum"] for row in UNITS) == [1, 1, 1, 1, 1, 1, 1, 3, 7, 11, 15]
    assert {bool(row["message"]["sysFlag"] & INNER_BATCH) for row in UNITS} == {False, True}


@pytest.mark.parametrize("case", CASES)
def test_every_unit_of_every_queue(case: str, golden: Unpacked) -> None:
    assert goldens.sorted_units(rows("consumequeue", "dump", golden(case))) == goldens.units(SAID)


@pytest.mark.parametrize("case", CASES)
def test_records_are_as_the_engine_says_them(case: str, golden: Unpacked) -> None:
    dumped = rows("commitlog", "dump", golden(case), "--topic", "BatchQueue", "--records", "--body", "hex")
    expected = {row["cqPhysicalOffset"]: row["message"] for row in UNITS}
    assert len(dumped) == len(expected)
    for row in dumped:
        message = dict(expected[row["physicalOffset"]])
        assert hashlib.sha256(bytes.fromhex(row["body"])).hexdigest() == message.pop("bodySha256")
        del message["msgId"]  # the offset id, in the engine's words
        assert {name: row[name] for name in message} == message


@pytest.mark.parametrize("case", CASES)
def test_messages_of_batches(case: str, golden: Unpacked) -> None:
    """The scenario sent ``bq-R-I`` in batches and ``bq-one-N`` alone."""
    root = golden(case)
    records = {row["physicalOffset"]: row for row in rows("commitlog", "dump", root, "--records", "--body", "hex")}
    dumped = rows("commitlog", "dump", root, "--body", "hex")
    inner = [row for row in dumped if row["topic"] == "BatchQueue"]
    assert [row for row in dumped if row not in inner] == [r for r in records.values() if r["topic"] != "BatchQueue"]
    counts = {0: 3, 1: 7, 2: 11, 3: 15}
    batched = {f"bq-{batch}-{n}": f"inner {batch} {n}" for batch, count in counts.items() for n in range(count)}
    alone = {f"bq-one-{n}": f"single {n}" for n in range(7)}
    assert {row["keys"][0]: bytes.fromhex(row["body"]).decode() for row in inner} == batched | alone
    assert {row["keys"][0]: row["tags"] for row in inner} == dict.fromkeys(batched, "bq") | dict.fromkeys(alone, "one")
    assert len({row["msgId"] for row in inner}) == len(inner) == 43
    for unit in UNITS:
        of_unit = [row for row in inner if row["physicalOffset"] == unit["cqPhysicalOffset"]]
        first, record = unit["cqOffset"], records[unit["cqPhysicalOffset"]]
        assert [row["queueOffset"] for row in of_unit] == list(range(first, first + unit["batchNum"]))
        for row in of_unit:
            same = (
                "queueId",
                "physicalOffset",
                "storeSize",
                "bornTimestamp",
                "storeTimestamp",
                "bornHost",
                "storeHost",
            )
            assert [row[name] for name in same] == [record[name] for name in same]
            assert row["bodyCrc"] == crc31(bytes.fromhex(row["body"]))
            assert not row["sysFlag"] & (INNER_BATCH | NEED_UNWRAP)


def test_selection_is_by_the_messages_of_batches(golden: Unpacked) -> None:
    root = golden("broker-5.3.3")
    args = ("commitlog", "dump", root, "--topic", "BatchQueue")
    assert [row["keys"] for row in rows(*args, "--key", "bq-2-5")] == [["bq-2-5"]]
    assert [row["queueOffset"] for row in rows(*args, "--queue", "0", "--queue-offset", "5:9")] == [5, 6, 7, 8]
    assert len(rows(*args, "--tag", "bq")) == 36
    units = rows("consumequeue", "dump", root, "--topic", "Batch*", "--queue", "0", "--queue-offset", "6:8")
    assert [row["queueOffset"] for row in units] == [0, 7]
    assert rmqtool(*args, "-o", "csv", "--limit", "5").out.count("\n") == 6


@pytest.mark.parametrize("case", CASES)
def test_offsets(case: str, golden: Unpacked) -> None:
    log = CommitLog(StoreLayout(str(golden(case))))
    ranges = [
        (queue.queue_id, queue.min_offset(log.min_offset), queue.max_offset) for queue in batch_queues_of(log.layout)
    ]
    assert ranges == [(0, 0, 25), (1, 0, 18)]
    for queue in batch_queues_of(log.layout):
        units = [row for row in UNITS if row["cqQueueId"] == queue.queue_id]
        for unit in units:
            first = unit["cqOffset"]
            for offset in range(first, first + unit["batchNum"]):
                entry = queue.entry(offset)
                assert entry is not None
                assert entry[:2] == (first, unit["cqPhysicalOffset"])
        assert queue.entry(-1) is None
        assert queue.entry(queue.max_offset) is None
        assert queue.recovered == (UNIT * len(units), units[-1]["cqPhysicalOffset"])
    details = StoreTopics(log, fail).details("BatchQueue")
    assert details is not None
    assert (details.summary.messages, details.summary.queues) == (43, 2)


def test_messages_by_queue_offset(golden: Unpacked) -> None:
    log = CommitLog(StoreLayout(str(golden("broker-5.3.3"))))
    queue = open_any_queue(log.layout, "BatchQueue", 0)
    assert isinstance(queue, BatchQueue)

    def pull(offset: int, count: int) -> tuple[Any, ...]:
        result = get_message(log, queue, offset, count)
        offsets = [message.record.queue_offset for message in first_messages(result, queue, offset, count)]
        return result.status, result.next_begin_offset, len(result.messages), offsets

    assert pull(0, 1) == ("FOUND", 7, 7, [0])  # the first batch is given as a whole
    assert pull(3, 2) == ("FOUND", 7, 7, [3, 4])
    assert pull(6, 21) == ("FOUND", 7, 7, [6])
    assert pull(6, 22) == ("FOUND", 22, 22, list(range(6, 22)))
    assert pull(22, 2) == ("FOUND", 24, 2, [22, 23])
    assert pull(25, 1) == ("OFFSET_OVERFLOW_ONE", 25, 0, [])
    assert pull(26, 1) == ("OFFSET_OVERFLOW_BADLY", 25, 0, [])
    assert pull(-1, 1) == ("OFFSET_TOO_SMALL", 0, 0, [])


def test_queue_offsets_by_time(golden: Unpacked) -> None:
    for queue in batch_queues_of(StoreLayout(str(golden("broker-5.3.3")))):
        units = [row for row in UNITS if row["cqQueueId"] == queue.queue_id]
        times = [unit["message"]["storeTimestamp"] for unit in units]
        assert sorted(set(times)) == times
        for before, time, unit in zip([0, *times], times, units, strict=False):
            assert offset_by_time_batches(queue, time) == unit["cqOffset"]
            assert offset_by_time_batches(queue, before + 1) == unit["cqOffset"]
        assert offset_by_time_batches(queue, times[-1] + 1) == units[-1]["cqOffset"]


def test_messages_by_key_and_id(golden: Unpacked) -> None:
    layout = StoreLayout(str(golden("broker-5.3.3")))

    def offsets(located: list[LocatedRecord]) -> list[int]:
        return [message.record.queue_offset for message in located]

    for search in (Search(), Search(scan=True)):
        assert offsets(query_key(layout, "BatchQueue", "bq-3-14", search, fail)) == [21]
        assert offsets(query_key(layout, "BatchQueue", "bq-one-1", search, fail)) == [22]
        assert offsets(query_key(layout, "Orders", "bq-3-14", search, fail)) == []
    of_batch = next(row["message"] for row in UNITS if row["batchNum"] == 7)
    every = list(range(7))
    assert offsets(query_id(layout, of_batch["offsetMsgId"], Search(), fail)) == every
    assert offsets(query_id(layout, of_batch["properties"][UNIQ_KEY], Search(), fail)) == every
    (own,) = query_key(layout, "BatchQueue", "bq-1-4", Search(), fail)
    unique = parse(own.record.properties)[UNIQ_KEY]
    assert offsets(query_id(layout, unique, Search(), fail)) == [4]
    assert offsets(query_id(layout, unique, Search(scan=True), fail, ("Batch*",))) == [4]
    assert offsets(query_id(layout, unique, Search(scan=True), fail, ("Orders",))) == []
    gone = of_batch["storeTimestamp"] + 1
    assert offsets(query_key(layout, "BatchQueue", "bq-1-4", Search(begin=gone), fail)) == []


def inner_record(body: bytes, sys_flag: int = INNER_BATCH | NEED_UNWRAP) -> Record:
    fields = {"queue_offset": 100, "sys_flag": sys_flag, "body": body, "body_length": len(body), "properties": b""}
    return Record._make(fields.get(name, b"" if name in ("topic", "born_address") else 0) for name in Record._fields)  # type: ignore[arg-type]


def test_what_is_no_batch_is_left_as_it_is() -> None:
    body = build_batch([BatchItem(1, b"a", b"KEYS\1k"), BatchItem(2, b"", b"")])
    assert [(m.queue_offset, m.flag, m.body, m.sys_flag) for m in messages_in(inner_record(body))] == [
        (100, 1, b"a", 0),
        (101, 2, b"", 0),
    ]
    for record in (
        inner_record(b""),
        inner_record(body, 0),
        inner_record(body, INNER_BATCH | COMPRESSED),
        inner_record(body + b"\0"),
        *(inner_record(body[:size]) for size in range(1, len(body)) if size != len(body) - 22),
        inner_record(struct.pack(">5ih", 22, 0, 0, 0, 0, -1)),
    ):
        assert list(messages_in(record)) == [record]
    assert next(iter(batch_items(body))).properties == b"KEYS\1k"


def units_at(folder: Path, *files: bytes, size: int) -> BatchQueue:
    """A store with one batch queue with these files."""
    directory = folder / "store" / "batchconsumequeue" / "B" / "0"
    directory.mkdir(parents=True)
    for number, data in enumerate(files):
        (directory / f"{number * size:020d}").write_bytes(data.ljust(size, b"\0"))
    queue = open_any_queue(StoreLayout(str(folder / "store")), "B", 0)
    assert isinstance(queue, BatchQueue)
    return queue


def units(*bases: int, count: int = 10) -> bytes:
    return build(BatchEntry(1000 * base, 100, 7, base, base, count) for base in bases)


def test_many_files(tmp_path: Path) -> None:
    size = 2 * UNIT
    queue = units_at(tmp_path, units(0, 10), units(20, 30), units(40, 50), units(60, 70), units(80), size=size)
    assert queue.recovered == (9 * UNIT, 80_000)
    assert (queue.min_offset(0), queue.max_offset) == (0, 90)
    assert queue.min_offset(1) == 10
    assert queue.min_offset(10_001) == 20  # no further than the first file
    assert [entry.queue_offset for entry in queue.entries(25, 61)] == [20, 30, 40, 50, 60]
    assert [entry.queue_offset for entry in map(queue.entry, range(90)) if entry] == [n // 10 * 10 for n in range(90)]
    assert [offset_by_time_batches(queue, time) for time in (-1, 0, 1, 11, 35, 60, 61, 81)] == [
        0,
        0,
        10,
        10,
        30,
        60,
        70,
        80,
    ]


def test_an_invalid_unit_is_the_end(tmp_path: Path) -> None:
    size = 3 * UNIT
    for number, bad in enumerate(
        (
            BatchEntry(-1, 1, 0, 0, 1, 1),
            BatchEntry(1, 0, 0, 0, 1, 1),
            BatchEntry(1, 1, 0, 0, -1, 1),
            BatchEntry(1, 1, 0, 0, 1, 0),
        )
    ):
        queue = units_at(tmp_path / str(number), units(0) + build([bad]) + units(20), size=size)
        assert (queue.recovered, queue.max_offset) == ((UNIT, 0), 10)
    empty = units_at(tmp_path / "empty", b"", size=size)
    assert (empty.recovered, empty.min_offset(0), empty.max_offset) == ((0, -1), 0, 0)
    assert list(empty.entries()) == []


def test_a_topic_has_queues_of_one_form(golden: Unpacked) -> None:
    layout = StoreLayout(str(golden("broker-5.3.3")))
    assert not {queue.topic for queue in queues_of(layout)} & {queue.topic for queue in batch_queues_of(layout)}
    assert open_any_queue(layout, "BatchQueue", 7) is None
    assert open_any_queue(layout, "..", 0) is None


def test_salvage_to_a_file_has_the_messages_of_batches(golden: Unpacked, tmp_path: Path) -> None:
    root, out = golden("broker-5.3.3"), tmp_path / "out.ndjson"
    dumped = rmqtool("commitlog", "dump", root, "-o", "ndjson").out
    assert rmqtool("salvage", root, out, "--to", "ndjson").code == 0
    assert out.read_text() == dumped
    assert rmqtool("salvage", root, "-", "--to", "ndjson").out == dumped
    assert dumped.count("\n") == 619
