"""``tier list`` and ``tier check`` on tiers that real brokers wrote, and on damage of every kind in them."""

import json
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats.config.tiered import DELETED, TieredMetadata, TieredSegment
from formats.layouts.derived import (
    CQ_ENTRY,
    TIERED_INDEX_HEAD,
    TIERED_INDEX_ITEM,
    TIERED_INDEX_SLOT,
    TIERED_LOCAL_INDEX_ITEM,
)
from formats.message.read import Record, read
from formats.versions import V5_3
from rmqtool.store.layout.tier_signs import LOCAL_INDEX, METADATA
from tests import roles
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.roles import NEW_TIERED, TIERED, Node

CASES = (TIERED, NEW_TIERED)
SLOTS, ITEMS = 60, 150  # of the index, by the brokers' settings


def rows(*args: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rmqtool(*args, "-o", "ndjson").out.splitlines()]


def checked(node: Node, command: tuple[str, ...] = ("tier", "check")) -> list[dict[str, Any]]:
    """Findings about the tier, but for messages that a healthy tier lacks, too."""
    listed = rows(*command, node.store, *node.options())
    return [row for row in listed if row["code"].startswith("tiered-") and row["code"] not in LACKS]


LACKS = ("tiered-lost", "tiered-undelivered")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return roles.unpack(TIERED, "a", tmp_path_factory.mktemp("tiered"))


@pytest.fixture
def node(whole: Node, tmp_path: Path) -> Node:
    return roles.copy(whole, tmp_path)


def segment(node: Node, queue: str, kind: str, number: int) -> Path:
    """The n-th segment of a queue; -1 is the last one."""
    (folder,) = (node.store / "tiered").glob(f"*/store-1/{queue}/{kind}")
    return sorted(folder.iterdir(), key=lambda path: path.name[8:])[number]


def name_of(node: Node, path: Path) -> str:
    return str(path.relative_to(node.store))


def patch(path: Path, at: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(content)


# -- what is where ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_list_is_what_the_broker_had_in_tier_and_log(case: str, tmp_path: Path) -> None:
    node = roles.unpack(case, "a", tmp_path)
    both: Counter[tuple[str, int]] = Counter()
    tier_alone, log_alone = both.copy(), both.copy()
    for row in roles.served(case):
        where = both if row["tier"] and row["local"] else tier_alone if row["tier"] else log_alone
        where[row["cqTopic"], row["cqQueueId"]] += 1
    listed = rows("tier", "list", node.store, *node.options())
    for name, truth in (("inBoth", both), ("inTierAlone", tier_alone), ("inLogAlone", log_alone)):
        assert {(row["topic"], row["queueId"]): row[name] for row in listed if row[name]} == dict(truth)
    lost = {(row["topic"], row["queueId"]): row["lostRanges"] for row in listed if row["lost"]}
    assert lost == {
        ("RMQ_SYS_TRANS_HALF_TOPIC", 0): ["0:9"],
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0): ["0:1"],
        ("SCHEDULE_TOPIC_XXXX", 0): ["0:4"],
        ("SCHEDULE_TOPIC_XXXX", 1): ["0:2"],
        ("SCHEDULE_TOPIC_XXXX", 2): ["0:1"],
        ("SCHEDULE_TOPIC_XXXX", 16): ["0:2"],
        ("rmq_sys_wheel_timer", 0): ["0:6"],
    }
    assert [(row["queueId"], row["waiting"]) for row in listed if row["waiting"]] == [(16, 2)]


@pytest.mark.parametrize("case", CASES)
def test_a_tier_as_the_broker_left_it_has_no_fault(case: str, tmp_path: Path) -> None:
    """Every message, index item and length is as it should be; what the tier lacks is reported."""
    node = roles.unpack(case, "a", tmp_path)
    before = roles.prints(node.store)
    assert checked(node) == []
    listed = rows("tier", "check", node.store, *node.options())
    assert {row["code"] for row in listed} == {*LACKS}
    counts = Counter[str]()
    for row in listed:
        counts[row["code"]] += row["count"]
    assert counts == {"tiered-lost": 23, "tiered-undelivered": 2}
    assert rmqtool("tier", "check", node.store, *node.options()).code == 1
    assert roles.prints(node.store) == before


def test_check_has_the_same_findings(node: Node) -> None:
    flip_body(node)
    segment(node, "Invoices/1", "CONSUME_QUEUE", 1).unlink()
    alone, in_check = checked(node), checked(node, ("check",))
    assert {row["code"] for row in alone} >= {"tiered-message", "tiered-missing"}

    def key(row: dict[str, Any]) -> str:
        return json.dumps({name: row[name] for name in ("code", "file", "offset", "queueOffset", "count", "actual")})

    assert sorted(map(key, alone)) == sorted(map(key, in_check))


def test_segments_beside_their_metadata(node: Node) -> None:
    listed = rows("tier", "list", node.store, "--segments", *node.options())
    assert len(listed) == 49
    assert all(row["size"] == row["metadataSize"] for row in listed)
    segment(node, "History/0", "COMMIT_LOG", 0).unlink()
    (gone,) = [row for row in rows("tier", "list", node.store, "--segments", *node.options()) if row["size"] is None]
    assert (gone["path"], gone["type"], gone["metadataSize"]) == ("store-1/History/0", "COMMIT_LOG", 6159)


def test_without_a_tier(golden: Callable[[str], Path]) -> None:
    for command in ("list", "check"):
        result = rmqtool("tier", command, golden("broker"))
        assert (result.code, result.out, "has no tiered storage" in result.err) == (1, "", True)


# -- damage -----------------------------------------------------------------------------------------------------------


def flip_body(node: Node) -> dict[str, Any]:
    path = segment(node, "Invoices/0", "COMMIT_LOG", 1)
    content = path.read_bytes()
    first = read(memoryview(content), 0, len(content))
    assert isinstance(first, Record)
    second = read(memoryview(content), first.total_size, len(content))
    assert isinstance(second, Record)
    at = content.index(bytes(second.body), first.total_size)
    patch(path, at, bytes([content[at] ^ 1]))
    units = segment(node, "Invoices/0", "CONSUME_QUEUE", second.queue_offset // 30)
    return {
        "code": "tiered-message", "file": name_of(node, units), "queueOffset": second.queue_offset,
        "offset": second.queue_offset % 30 * CQ_ENTRY.size,
    }  # fmt: skip


def move_entry(node: Node) -> dict[str, Any]:
    path = segment(node, "Events/1", "CONSUME_QUEUE", 0)
    position, size, tags = CQ_ENTRY.unpack_from(path.read_bytes(), 40)
    patch(path, 40, CQ_ENTRY.pack(position + 1, size, tags))
    return {"code": "tiered-message", "file": name_of(node, path), "offset": 40, "queueOffset": 2}


def swap_entries(node: Node) -> dict[str, Any]:
    path = segment(node, "Events/1", "CONSUME_QUEUE", 0)
    content = path.read_bytes()
    patch(path, 0, content[20:40] + content[:20])
    return {"code": "tiered-message", "file": name_of(node, path), "offset": 0, "queueOffset": 0}


def tear_entry(node: Node) -> dict[str, Any]:
    path = segment(node, "Events/1", "CONSUME_QUEUE", -1)
    path.write_bytes(path.read_bytes()[:-7])
    return {"code": "tiered-message", "file": name_of(node, path), "offset": 160, "queueOffset": 38}


def change_flag(node: Node) -> dict[str, Any]:
    """No checksum covers the flag of a message; only the local log shows what it was."""
    path = segment(node, "Invoices/0", "COMMIT_LOG", -1)
    content = path.read_bytes()
    patch(path, 16, struct.pack(">i", 7))
    record = read(memoryview(content), 0, len(content))
    assert isinstance(record, Record)
    units = segment(node, "Invoices/0", "CONSUME_QUEUE", record.queue_offset // 30)
    return {"code": "tiered-differs", "file": name_of(node, units), "queueOffset": record.queue_offset}


def cut_log(node: Node) -> dict[str, Any]:
    path = segment(node, "Invoices/2", "COMMIT_LOG", 1)
    path.write_bytes(path.read_bytes()[:-1])
    return {"code": "tiered-short", "file": name_of(node, path), "expected": "9929 bytes", "actual": "9928 bytes"}


def lengthen_log(node: Node) -> dict[str, Any]:
    path = segment(node, "Invoices/2", "COMMIT_LOG", 1)
    path.write_bytes(path.read_bytes() + b"more")
    return {"code": "tiered-long", "severity": "warning", "file": name_of(node, path), "actual": "9933 bytes"}


def lengthen_last(node: Node) -> dict[str, Any]:
    path = segment(node, "Invoices/2", "COMMIT_LOG", -1)
    path.write_bytes(path.read_bytes() + b"more")
    return {"code": "tiered-long", "severity": "info", "file": name_of(node, path)}


def remove_log(node: Node) -> dict[str, Any]:
    segment(node, "Invoices/2", "COMMIT_LOG", 1).unlink()
    return {"code": "tiered-missing", "expected": "9929 bytes"}


def gap_without_metadata(node: Node) -> dict[str, Any]:
    for path in (node.store / "config").glob(METADATA + "*"):
        path.unlink()
    segment(node, "Invoices/2", "CONSUME_QUEUE", 1).unlink()
    return {"code": "tiered-gap", "expected": "store-1/Invoices/2: a segment of type 1 at 600", "actual": "1200"}


def overlap_without_metadata(node: Node) -> dict[str, Any]:
    for path in (node.store / "config").glob(METADATA + "*"):
        path.unlink()
    path = segment(node, "Invoices/2", "CONSUME_QUEUE", 1)
    path.write_bytes(path.read_bytes() + bytes(20))
    return {"code": "tiered-gap", "expected": "store-1/Invoices/2: a segment of type 1 at 1220", "actual": "1200"}


def lose_entries(node: Node) -> dict[str, Any]:
    """As a kill leaves it between the log and the queue."""
    path = segment(node, "Invoices/0", "CONSUME_QUEUE", -1)
    path.write_bytes(path.read_bytes()[:-60])
    log = segment(node, "Invoices/0", "COMMIT_LOG", -1)
    return {"code": "tiered-unlisted", "severity": "info", "file": name_of(node, log), "count": 3}


def index_segment(node: Node) -> tuple[Path, int]:
    """The first uploaded segment of the index, and where its items begin."""
    return segment(node, "rmq_sys_INDEX/0", "INDEX", 0), TIERED_INDEX_HEAD.size + TIERED_INDEX_SLOT.size * SLOTS


def change_index(shift: int) -> Callable[[Node], dict[str, Any]]:
    def change(node: Node) -> dict[str, Any]:
        path, first = index_segment(node)
        at = first + 5 * TIERED_INDEX_ITEM.size
        patch(path, at + shift, bytes([path.read_bytes()[at + shift] ^ 1]))
        return {"code": "tiered-index", "file": name_of(node, path), "offset": at}

    return change


def change_slot(node: Node) -> dict[str, Any]:
    path, _first = index_segment(node)
    at = TIERED_INDEX_HEAD.size + 3 * TIERED_INDEX_SLOT.size
    patch(path, at, b"\x7f")
    return {"code": "tiered-index", "file": name_of(node, path), "offset": at}


def change_magic(node: Node) -> dict[str, Any]:
    path, _first = index_segment(node)
    patch(path, 0, b"\0")
    return {"code": "tiered-index", "file": name_of(node, path), "offset": 0}


def local_index(node: Node) -> tuple[Path, int]:
    (path,) = [path for path in (node.store / LOCAL_INDEX).iterdir() if path.is_file()]
    return path, TIERED_INDEX_HEAD.size + TIERED_INDEX_SLOT.size * SLOTS


def change_local_item(node: Node) -> dict[str, Any]:
    path, first = local_index(node)
    at = first + 7 * TIERED_LOCAL_INDEX_ITEM.size
    patch(path, at + 19, bytes([path.read_bytes()[at + 19] ^ 1]))  # the position
    return {"code": "tiered-index", "file": name_of(node, path), "offset": at}


def change_local_chain(node: Node) -> dict[str, Any]:
    path, first = local_index(node)
    at = first + 7 * TIERED_LOCAL_INDEX_ITEM.size
    patch(path, at + 28, b"\0\0\0\x09")
    return {"code": "tiered-index", "file": name_of(node, path), "offset": at, "actual": "item 7: after item 9"}


DAMAGES: dict[str, Callable[[Node], dict[str, Any]]] = {
    "a bit of a body": flip_body,
    "an entry that points elsewhere": move_entry,
    "two entries exchanged": swap_entries,
    "a torn entry": tear_entry,
    "a flag that the log has differently": change_flag,
    "a segment cut short": cut_log,
    "a segment that is longer": lengthen_log,
    "the last segment that is longer": lengthen_last,
    "a missing segment": remove_log,
    "a gap without metadata": gap_without_metadata,
    "an overlap without metadata": overlap_without_metadata,
    "records without an entry": lose_entries,
    "a hash in the index": change_index(3),
    "a topic id in the index": change_index(7),
    "a position in the index": change_index(19),
    "a time in the index": change_index(27),
    "a slot of the index": change_slot,
    "the magic code of the index": change_magic,
    "an item of the local index": change_local_item,
    "a chain of the local index": change_local_chain,
}


@by_turns(3)
@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_is_named_in_its_place(damage: str, node: Node) -> None:
    expected = DAMAGES[damage](node)
    result = checked(node)
    assert [row for row in result if all(row[name] == value for name, value in expected.items())], result
    assert rmqtool("tier", "check", node.store, *node.options()).code == 1  # also for what the tier lacks


def test_a_bit_of_a_body_is_one_finding(node: Node) -> None:
    flip_body(node)
    assert len(checked(node)) == 1


def test_what_is_between_tier_and_log_is_lost(node: Node) -> None:
    """The queue's tier ends at 30, its log begins at 34; a broker would delete the tier."""
    for number in (2, 1):
        segment(node, "Invoices/0", "CONSUME_QUEUE", number).unlink()
    listed = rows("tier", "check", node.store, *node.options())
    assert (listed[0]["code"], listed[0]["topic"], listed[0]["count"]) == ("tiered-deleted", "Invoices", 30)
    (lost,) = [row for row in listed if row["code"] == "tiered-lost" and row["topic"] == "Invoices"]
    assert (lost["queueOffset"], lost["count"], lost["actual"]) == (30, 4, "queue offsets 30 to 33")


def test_segments_of_another_broker_are_not_its_own(node: Node) -> None:
    (cluster,) = (node.store / "tiered").iterdir()
    shutil.copytree(cluster / "store-1", cluster / "store-2")
    damaged = next((cluster / "store-2" / "Invoices" / "0" / "COMMIT_LOG").iterdir())
    damaged.write_bytes(bytes(damaged.stat().st_size))
    assert {row["code"] for row in checked(node)} == {"tiered-unknown"}


def test_deleted_segments_are_no_gap(node: Node) -> None:
    """The broker marks expired segments before it removes their files."""
    path = node.store / "config" / METADATA
    metadata = TieredMetadata.parse(path.read_bytes())

    def expire(tables: Mapping[str, Mapping[int, TieredSegment]]) -> Mapping[str, Mapping[int, TieredSegment]]:
        queue = tables["store-1/Invoices/0"]
        return {**tables, "store-1/Invoices/0": {**queue, 0: replace(queue[0], status=DELETED)}}

    expired = replace(
        metadata, commit_logs=expire(metadata.commit_logs), consume_queues=expire(metadata.consume_queues)
    )
    path.write_bytes(expired.build(V5_3))
    for kind in ("COMMIT_LOG", "CONSUME_QUEUE"):
        segment(node, "Invoices/0", kind, 0).unlink()
    assert checked(node) == []
    (row,) = [row for row in rows("tier", "list", node.store) if (row["topic"], row["queueId"]) == ("Invoices", 0)]
    assert (row["tierMinOffset"], row["lostRanges"]) == (30, ["0:30"])
