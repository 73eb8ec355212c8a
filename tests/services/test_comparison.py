"""Two stores compared: each change is found, and nothing else."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from formats.layouts.derived import HEAD_V4_V4
from formats.message.read import Record
from rmqtool.services.comparison.stores import Difference, StoreComparison, compare_stores
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.broker_conf import BrokerConf, load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log import comparison as logs
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.log.comparison import compare_logs
from rmqtool.store.log.scan import FileRows, scan_file
from rmqtool.store.salvage.carve import Salvage
from tests import roles
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.services.build import Builder, log_of, never

STORES = ("broker", "ipv6", "broker-5.3.3", "broker-5.5.0", "queue-ext", "large-bodies")


def compare(first: Path, second: Path) -> StoreComparison:
    return compare_stores(StoreLayout(str(first), BrokerConf()), StoreLayout(str(second), BrokerConf()), never)


def parts_of(comparison: StoreComparison) -> Counter[str]:
    return Counter(row.part for row in comparison.differences)


def located(store: Path, number: int) -> LocatedRecord:
    items = [item for item in log_of(store).walk() if isinstance(item, LocatedRecord)]
    return items[number]


def change_byte(item: LocatedRecord, at: int, root: Path) -> None:
    """Flip a bit of a record's byte."""
    path = root / "commitlog" / Path(item.file.path).name
    data = bytearray(path.read_bytes())
    data[item.at + at] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("case", STORES)
def test_a_copy_is_equal(case: str, golden: Unpacked, tmp_path: Path) -> None:
    store = golden(case)
    shutil.copytree(store, tmp_path / "copy", symlinks=True)
    comparison = compare(store, tmp_path / "copy")
    assert comparison.equal
    log = log_of(store)
    assert (comparison.commonFrom, comparison.commonTo) == (log.min_offset, log.written_end)


def parted_histories() -> tuple[Builder, Builder, int]:
    """Two logs with messages of their own under the same queue offsets, and where they part."""
    first, second = builder_of(range(10)), builder_of(range(10))
    at = len(first.log)
    for number in range(4):
        first.put("Orders", number % 2, body=b"of the old master %d" % number)
        second.put("Orders", number % 2, body=b"of the new %d" % number)
    second.put("Orders", 0, body=b"and one more")
    return first, second, at


def test_changed_records_are_named_by_what_changed(golden: Unpacked, golden_copy: Unpacked) -> None:
    first, second = golden("broker"), golden_copy("broker")
    items = [located(second, number) for number in (3, 50, 51)]
    for item, name in zip(items, ("body_crc", "store_timestamp", "flag"), strict=True):
        change_byte(item, HEAD_V4_V4.offsets[name] + 3, second)
    comparison = compare(first, second)
    assert [(row.part, row.what, row.fromOffset) for row in comparison.differences] == [
        ("record", name, item.physical_offset)
        for item, name in zip(items, ("body_crc", "store_timestamp", "flag"), strict=True)
    ]
    assert (comparison.records, comparison.onlyFirst, comparison.onlySecond, comparison.different) == (3, 0, 0, 0)
    assert comparison.partedAt is None


def test_what_follows_a_differing_record_is_compared_too(golden: Unpacked, golden_copy: Unpacked) -> None:
    first, second = golden("broker"), golden_copy("broker")
    last = located(second, -1)
    for item in (located(second, 0), last):
        change_byte(item, last.record.total_size - 1 if item is last else HEAD_V4_V4.offsets["flag"], second)
    rows = compare(first, second).differences
    assert [row.what for row in rows if row.part == "record"] == ["flag", "properties"]


def builder_of(numbers: range, topic: str = "Orders", **fields: Any) -> Builder:
    builder = Builder()
    for number in numbers:
        builder.put(topic, number % 2, body=b"message %d" % number, **fields)
    return builder


def test_a_longer_log_has_messages_alone(tmp_path: Path) -> None:
    short = builder_of(range(10)).write(tmp_path / "short")
    long = builder_of(range(17)).write(tmp_path / "long")
    comparison = compare(short, long)
    alone = [
        (row.what, row.queueId, row.fromOffset, row.toOffset)
        for row in comparison.differences
        if row.part == "messages"
    ]
    assert alone == [("onlySecond", 0, 5, 9), ("onlySecond", 1, 5, 8)]
    assert (comparison.onlySecond, comparison.onlyFirst, comparison.partedAt) == (7, 0, None)
    ends = {row.queueId: (row.first, row.second) for row in comparison.differences if row.what == "maxOffset"}
    assert ends == {0: ("5", "9"), 1: ("5", "8")}
    back = compare(long, short)
    assert (back.onlySecond, back.onlyFirst) == (0, 7)


def test_logs_part_where_their_histories_do(tmp_path: Path) -> None:
    first, second, at = parted_histories()
    comparison = compare(first.write(tmp_path / "one"), second.write(tmp_path / "other"))
    assert (comparison.partedAt, comparison.commonTo) == (at, at)
    assert (comparison.different, comparison.onlySecond, comparison.onlyFirst) == (4, 1, 0)


def test_more_differing_records_than_are_listed_count_as_parted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_DIFFERING", 3)
    first, second = builder_of(range(10)), builder_of(range(10), flag=7)
    comparison = compare(first.write(tmp_path / "one"), second.write(tmp_path / "other"))
    assert (comparison.records, comparison.different) == (3, 7)


def test_a_salvaged_store_has_the_same_messages_elsewhere(golden: Unpacked, tmp_path: Path) -> None:
    store = golden("broker")
    Salvage(StoreLayout(str(store), BrokerConf()), str(tmp_path / "new")).run()
    # messages of another topic in front: no record of one log lies where the other has one
    comparison = compare(store, tmp_path / "new")
    assert (comparison.onlyFirst, comparison.onlySecond, comparison.different) == (0, 0, 0)


def test_messages_are_matched_wherever_they_lie(tmp_path: Path) -> None:
    first, second = builder_of(range(20)), Builder()
    second.put("Another", 0)
    for number in (*range(1, 20, 2), *range(0, 20, 2)):  # queue by queue
        second.put("Orders", number % 2, body=b"message %d" % number, born_timestamp=1_700_000_000_001 + number)
    comparison = compare(first.write(tmp_path / "one"), second.write(tmp_path / "other"))
    assert comparison.commonFrom is None
    assert [(row.what, row.topic, row.messages) for row in comparison.differences if row.part == "messages"] == [
        ("onlySecond", "Another", 1)
    ]


@pytest.mark.parametrize(("case", "torn"), [(roles.SLAVE, 1), (roles.NEW_SLAVE, 0)])
def test_a_slave_that_was_killed_lacks_messages_of_its_master(case: str, torn: int, tmp_path: Path) -> None:
    """Killed inside a record: the one has lost its properties, the other is no record at all."""
    master, slave = (roles.unpack(case, name, tmp_path) for name in ("master", "slave"))
    layouts = [StoreLayout(str(node.store), load(str(node.conf))) for node in (master, slave)]
    comparison = compare_stores(layouts[0], layouts[1], never)
    assert (comparison.onlySecond, comparison.different, comparison.damagedFirst) == (0, 0, 0)
    assert [row.what for row in comparison.differences if row.part == "record"] == ["properties"] * torn
    walked = [[item for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord)] for layout in layouts]
    stored = [{record_id(item) for item in items} for items in walked]
    assert comparison.onlyFirst == len(stored[0] - stored[1]) > 0
    [parted] = (row for row in comparison.differences if row.what == "partedAt")
    assert str(parted.first).startswith("record of ")
    assert str(parted.second).startswith("no record: ")


def record_id(item: LocatedRecord) -> tuple[object, ...]:
    return item.record.topic, item.record.queue_id, item.record.queue_offset


def test_a_queue_entry_that_leads_elsewhere(golden: Unpacked, golden_copy: Unpacked) -> None:
    first, second = golden("broker"), golden_copy("broker")
    [path] = (second / "consumequeue" / "Orders" / "1").iterdir()
    data = bytearray(path.read_bytes())
    data[20 * 7 + 7] ^= 4
    path.write_bytes(bytes(data))
    [row] = compare(first, second).differences
    assert (row.part, row.what, row.topic, row.queueId, row.fromOffset) == ("queue", "entry", "Orders", 1, 7)
    assert row.first != row.second


def test_settings_and_offsets(golden: Unpacked, golden_copy: Unpacked) -> None:
    first, second = golden("broker"), golden_copy("broker")
    topics, offsets = second / "config" / "topics.json", second / "config" / "consumerOffset.json"
    topics.write_text(topics.read_text().replace('"readQueueNums":4', '"readQueueNums":8', 1))
    text = offsets.read_text()
    key = '"Orders@lab-consumer":{'
    assert key in text
    begin = text.index(key) + len(key)
    queue, _colon, rest = text[begin:].partition(":")
    number = rest.split(",")[0].rstrip("}")
    offsets.write_text(text[:begin] + queue + ":" + rest.replace(number, "1", 1))
    comparison = compare(first, second)
    assert parts_of(comparison) == {"offset": 1, "config": 1}
    [setting] = (row for row in comparison.differences if row.part == "config")
    assert (setting.what, setting.first, setting.second) == ("topics.json", "4", "8")
    assert setting.name is not None
    assert setting.name.startswith("topicConfigTable.")
    [offset] = (row for row in comparison.differences if row.part == "offset")
    assert (offset.group, offset.topic, offset.first, offset.second) == ("lab-consumer", "Orders", number, "1")


def test_what_is_missing_is_a_difference(golden: Unpacked, golden_copy: Unpacked) -> None:
    first, second = golden("broker"), golden_copy("broker")
    shutil.rmtree(second / "consumequeue" / "Orders" / "1")
    (second / "config" / "subscriptionGroup.json").unlink()
    (second / "config" / "subscriptionGroup.json.bak").unlink(missing_ok=True)
    rows = compare(first, second).differences
    assert {(row.part, row.what) for row in rows} == {
        ("queue", "minOffset"), ("queue", "maxOffset"), ("config", "subscriptionGroup.json"),
    }  # fmt: skip
    assert all(row.second is None for row in rows)


def test_damage_is_no_equality(golden: Unpacked, tmp_path: Path) -> None:
    store = golden("size-field-negative")
    shutil.copytree(store, tmp_path / "copy")
    log = compare_logs(log_of(store), log_of(tmp_path / "copy"))
    assert log.differing == [] == log.runs


def test_the_command(golden: Unpacked, golden_copy: Unpacked) -> None:
    first, second = golden("broker"), golden_copy("broker")
    result = rmqtool("diff", first, second)
    assert (result.code, result.out) == (0, "")
    assert result.err.endswith("the stores are equal\n")
    change_byte(located(second, 3), HEAD_V4_V4.offsets["flag"], second)
    result = rmqtool("diff", first, second, "--output", "csv")
    assert result.code == 1
    header, row = result.out.splitlines()
    assert header.split(",") == [*Difference.__slots__]
    assert row.startswith("record,flag,")
    assert rmqtool("diff", first, second, "--output", "json").code == 1
    assert rmqtool("diff", first, second.parent / "nowhere").code == 3
    assert "1 message not the same in that range" in rmqtool("diff", first, second).err
    assert Record._fields  # names of what differs


@pytest.mark.parametrize("length", [1, 7, 8, 9, 40, 43])
def test_the_first_differing_byte_is_found_anywhere(length: int) -> None:
    data = bytes(range(1, length + 1))
    assert logs._first_difference(memoryview(data), memoryview(bytes(data))) is None
    for at in range(length):
        other = bytearray(data)
        other[at:] = bytes(length - at)
        assert logs._first_difference(memoryview(data), memoryview(other)) == at


def test_what_follows_equal_bytes_is_not_scanned(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned = []

    def scanning(file: Segment, **more: bool) -> Iterator[FileRows | Damage]:
        if more.get("crc", True):
            scanned.append(file.path)
        return scan_file(file, **more)

    monkeypatch.setattr(logs, "scan_file", scanning)
    log = log_of(golden("broker"))
    assert log.written_end < log.segments.files[-1].end
    compared = compare_logs(log, log_of(golden("broker")))
    assert (compared.runs, compared.parted_at, scanned) == ([], None, [])
