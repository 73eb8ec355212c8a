"""Compare these codecs field by field with what RocketMQ 4.9.8 reported for stores it closed cleanly."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from formats import index
from formats.message.bodies import decompress
from formats.message.ids import offset_id
from formats.message.properties import KEYS, UNIQ_KEY, parse, split_keys
from formats.message.read import Record, read
from formats.primitives import host_text, java_hash
from formats.queues import consume as consume_queue
from formats.queues import extension as consume_queue_ext
from tests import goldens
from tests.conftest import Unpacked

CLEAN = ["broker", "clean", "delay", "ipv6", "large-bodies", "lmq", "queue-ext"]


def as_the_engine_says(record: Record) -> dict[str, Any]:
    properties = parse(record.properties)
    body = decompress(record.body, record.sys_flag)
    position = offset_id(record.store_address, record.store_port, record.physical_offset)
    return {
        "topic": record.topic.decode(),
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "storeSize": record.total_size,
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "bodyCrc": record.body_crc,
        "bornTimestamp": record.born_timestamp,
        "storeTimestamp": record.store_timestamp,
        "bornHost": host_text(record.born_address, record.born_port),
        "storeHost": host_text(record.store_address, record.store_port),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "offsetMsgId": position,
        "msgId": position,
        "properties": properties,
        "bodyLength": len(body),
        "bodySha256": hashlib.sha256(body).hexdigest(),
    }


def record_at(files: list[tuple[int, bytes]], physical_offset: int) -> Record:
    base, raw = next((base, raw) for base, raw in reversed(files) if base <= physical_offset)
    record = read(raw, physical_offset - base, len(raw))
    assert isinstance(record, Record)
    return record


def segments(folder: Path) -> list[tuple[int, bytes]]:
    return [(int(path.name), path.read_bytes()) for path in sorted(folder.iterdir())]


@pytest.mark.parametrize("case", CLEAN)
def test_every_message_of_every_queue(golden: Unpacked, case: str) -> None:
    files = segments(golden(case) / "commitlog")
    for row in goldens.messages(case):
        record = record_at(files, row["cqPhysicalOffset"])
        assert row["cqSize"] == record.total_size
        assert as_the_engine_says(record) == row["message"]


@pytest.mark.parametrize("case", CLEAN)
def test_every_queue_entry(golden: Unpacked, case: str) -> None:
    queues: dict[tuple[str, int], list[Any]] = {}
    for row in goldens.messages(case):
        queues.setdefault((row["cqTopic"], row["cqQueueId"]), []).append(row)
    for (topic, queue_id), rows in queues.items():
        raw = b"".join(raw for _, raw in segments(golden(case) / "consumequeue" / topic / str(queue_id)))
        array = consume_queue.as_array(raw)

        assert consume_queue.valid_prefix(array) == len(rows)
        assert [row["cqOffset"] for row in rows] == list(range(len(rows)))
        for row in rows:
            entry = consume_queue.read(raw, row["cqOffset"] * consume_queue.SIZE)
            assert tuple(entry) == array[row["cqOffset"]].item()
            assert entry == (row["cqPhysicalOffset"], row["cqSize"], row["cqTagsCode"])


def test_every_extension_unit_is_where_its_entry_points(golden: Unpacked) -> None:
    count = 0
    for row in goldens.messages("queue-ext"):
        path = golden("queue-ext") / "consumequeue_ext" / row["cqTopic"] / str(row["cqQueueId"]) / f"{0:020d}"
        raw = path.read_bytes()
        unit = consume_queue_ext.read(raw, consume_queue.real_offset(row["cqTagsCode"]), len(raw))

        assert isinstance(unit, consume_queue_ext.ExtensionUnit)
        assert unit.tags_code == java_hash(row["message"]["properties"].get("TAGS", ""))
        assert unit.store_timestamp == row["message"]["storeTimestamp"]
        count += 1
    assert count > 100


@pytest.mark.parametrize("case", CLEAN)
def test_every_key_query(golden: Unpacked, case: str) -> None:
    files = [path.read_bytes() for path in sorted((golden(case) / "index").iterdir(), reverse=True)]
    slots = goldens.about(case)["config"]["maxHashSlotNum"]
    count = 0
    for row in goldens.queries(case):
        key_hash = index.key_hash(row["topic"], row["key"])
        result = [
            entry.physical_offset
            for raw in files
            for _, entry in index.chain(raw, slots, key_hash)
            if entry.key_hash == key_hash
        ]
        assert sorted(result[:64]) == sorted(row["physicalOffsets"]), row
        count += bool(result)
    assert count > 10


@pytest.mark.parametrize("case", CLEAN)
def test_every_unique_key_and_key_is_in_the_index(golden: Unpacked, case: str) -> None:
    files = segments(golden(case) / "commitlog")
    indexes = [path.read_bytes() for path in sorted((golden(case) / "index").iterdir())]
    slots = goldens.about(case)["config"]["maxHashSlotNum"]
    entries = {
        (entry.key_hash, entry.physical_offset)
        for raw in indexes
        for entry in (index.read_entry(raw, slots, n) for n in range(1, index.read_header(raw).next_number))
    }
    for row in goldens.messages(case):
        record = record_at(files, row["cqPhysicalOffset"])
        properties = parse(record.properties)
        for key in [*filter(None, [properties.get(UNIQ_KEY)]), *split_keys(properties.get(KEYS, ""))]:
            assert (index.key_hash(record.topic.decode(), key), record.physical_offset) in entries
