"""The worked examples of the format reference, every byte, in both directions."""

from typing import Any

import pytest

from formats import index
from formats.endings import Ending
from formats.message import bodies, properties
from formats.message import build as message_build
from formats.message import read as message
from formats.message.ids import UniqueId, offset_id, parse_offset_id, parse_unique_id
from formats.primitives import crc31, host_text, java_hash
from formats.queues import batch as batch_consume_queue
from formats.queues import consume as consume_queue
from formats.variants import timer
from tests.formats.strategies import a_record

RECORD = bytes.fromhex(
    """
    00 00 00 b0 da a3 20 a7 15 9f 43 8c 00 00 00 03
    00 00 00 00 00 00 00 00 00 00 00 29 00 00 00 00
    40 00 10 00 00 00 00 00 00 00 01 8b cf e5 68 00
    c0 00 02 0a 00 00 c8 22 00 00 01 8b cf e5 68 7b
    c6 33 64 07 00 00 2a 9f 00 00 00 00 00 00 00 00
    00 00 00 00 00 00 00 08 7b 22 69 64 22 3a 38 7d
    0b 4f 72 64 65 72 45 76 65 6e 74 73 00 42 4b 45
    59 53 01 6f 72 64 65 72 2d 37 02 54 41 47 53 01
    72 65 66 75 6e 64 02 55 4e 49 51 5f 4b 45 59 01
    43 30 30 30 30 32 30 41 31 41 32 42 31 38 42 34
    41 41 43 32 34 37 42 37 36 30 30 30 30 30 30 31
    """
)
UNIQUE = "C000020A1A2B18B4AAC247B760000001"
CQ_ENTRY = bytes.fromhex("0000000040001000 000000b0 ffffffffc847df78")
BATCH_ENTRY = bytes.fromhex(
    "0000000040001000 000000b0 ffffffffc847df78 0000018bcfe5687b 0000000000000029 0003 ffffffff 00000000"
)
TIMER_UNIT = bytes.fromhex(
    "00000034 ffffffffffffffff 00000001 0000018bcfe56800 00007530 0000000040001000 000000b0 acccc9e7 0000000000000000"
)
HEADER = bytes.fromhex("0000018bcfe5687b 0000018bcfe5687b 0000000040001000 0000000040001000 00000002 00000003")
KEYS = [  # key, java hash, key hash, slot, slot's byte, entry number, entry's byte
    (UNIQUE, 1826514807, 0x6CDE6777, 1514807, 6059268, 1, 20000060),
    ("order-7", -1853225252, 0x6E75F924, 3225252, 12901048, 2, 20000080),
]


def the_record() -> message.Record:
    record = message.read(RECORD, 0, len(RECORD))
    assert isinstance(record, message.Record)
    return record


def test_record_is_176_bytes_of_the_stated_fields() -> None:
    record = the_record()

    assert record == a_record()
    assert record.total_size == len(RECORD) == 91 + 8 + 11 + 66
    assert record.version == 1
    assert record.body_crc == 0x159F438C == 362759052
    assert host_text(record.born_address, record.born_port) == "192.0.2.10:51234"
    assert host_text(record.store_address, record.store_port) == "198.51.100.7:10911"
    assert properties.parse(record.properties) == {"KEYS": "order-7", "TAGS": "refund", "UNIQ_KEY": UNIQUE}


def test_record_builds_from_its_fields() -> None:
    assert message_build.pack(a_record()) == RECORD


def test_offset_id() -> None:
    record = the_record()
    text = offset_id(record.store_address, record.store_port, record.physical_offset)

    assert text == "C633640700002A9F0000000040001000"
    assert parse_offset_id(text) == ("198.51.100.7", 10911, 0x40001000)


def test_unique_id() -> None:
    assert parse_unique_id(UNIQUE, near=1700000000000) == UniqueId(
        kind="classic",
        address="192.0.2.10",
        process_id=6699,
        loader_hash=0x18B4AAC2,
        millis_of_month=1203200000,
        timestamp=1700000000000,
        counter=1,
    )


def test_the_form_of_5_2_with_a_separator_at_the_end() -> None:
    record = the_record()
    later = message_build.pack(a_record(properties=record.properties + b"\x02"))

    assert later[:4] == bytes.fromhex("000000b1")
    assert later[4:108] == RECORD[4:108]
    assert later[108:110] == b"\x00\x43"
    assert later[110:] == RECORD[110:] + b"\x02"


@pytest.mark.parametrize("ending", [b"", b"\x02"])
def test_the_form_of_5_2_with_the_whole_record_crc(ending: bytes) -> None:
    record = the_record()
    summed = message_build.append_crc(message_build.pack(a_record(properties=record.properties + ending)))

    assert len(summed) == 197
    assert summed[:4] == bytes.fromhex("000000c5")
    assert summed[108:110] == b"\x00\x57"
    assert crc31(summed[:177]) == 734022627
    assert summed[-20:] == bytes.fromhex("5f5f4352433332230137323632323034333730 02")
    assert message_build.verify_crc(summed) is True
    assert message_build.verify_crc(RECORD) is None


def test_queue_entry() -> None:
    assert java_hash("refund") == -934813832
    assert consume_queue.read(bytes(820) + CQ_ENTRY, 41 * consume_queue.SIZE) == (0x40001000, 176, -934813832)
    assert consume_queue.build([(0x40001000, 176, -934813832)]) == CQ_ENTRY


@pytest.mark.parametrize(("key", "text_hash", "key_hash", "slot", "slot_at", "number", "entry_at"), KEYS)
def test_index_keys(
    key: str, text_hash: int, key_hash: int, slot: int, slot_at: int, number: int, entry_at: int
) -> None:
    assert java_hash(f"OrderEvents#{key}") == text_hash
    assert index.key_hash("OrderEvents", key) == key_hash
    assert key_hash % index.DEFAULT_SLOTS == slot
    assert index.slot_at(slot) == slot_at
    assert index.entry_at(index.DEFAULT_SLOTS, number) == entry_at


def test_index_file() -> None:
    header = index.Header._make((1700000000123, 1700000000123, 0x40001000, 0x40001000, 2, 3))
    slots = [0] * index.DEFAULT_SLOTS
    for _, _, _, slot, _, number, _ in KEYS:
        slots[slot] = number
    rows = [index.IndexEntry(key_hash, 0x40001000, 0, 0) for _, _, key_hash, *_ in KEYS]
    # of 20,000,000 entries only the first are ever read: a file with room for them has the same bytes so far
    raw = index.build(header, slots, rows)

    assert raw[:40] == HEADER
    assert raw[6059268:6059272] == bytes.fromhex("00000001")
    assert raw[12901048:12901052] == bytes.fromhex("00000002")
    assert raw[20000040:20000060] == bytes(20)
    assert raw[20000060:20000080] == bytes.fromhex("6cde6777 0000000040001000 00000000 00000000")
    assert raw[20000080:20000100] == bytes.fromhex("6e75f924 0000000040001000 00000000 00000000")
    assert len(raw) - raw.count(0) == len(HEADER) - HEADER.count(0) + 2 + 2 * 6  # nothing else is in the file
    for _, _, key_hash, _, _, number, _ in KEYS:
        assert list(index.chain(raw, index.DEFAULT_SLOTS, key_hash)) == [(number, rows[number - 1])]


def test_default_index_file_size() -> None:
    assert index.file_size(index.DEFAULT_SLOTS, index.DEFAULT_ENTRIES) == 420_000_040


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("订单", 1129459),
        ("\U0001f600", 1772899),
        ("polygenelubricants", -2147483648),
    ],
)
def test_java_hash(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_key_hash_without_a_positive_counterpart_is_zero() -> None:
    assert java_hash("TopicA#arrfujvk") == -(2**31)
    assert index.key_hash("TopicA", "arrfujvk") == 0


def test_crc31() -> None:
    assert crc31(b"123456789") == 0x4BF43926


def test_blank_with_300_bytes_left() -> None:
    blank = bytes.fromhex("0000012ccbd43194")

    assert message_build.build_blank(300) == blank
    record = message.read(blank + b"anything", 0, 16)
    assert isinstance(record, message.End)
    assert (record.ending, record.size) == (Ending.FILLER, 0)


def test_filler_entry() -> None:
    raw = bytes.fromhex("00000000000000007fffffff0000000000000000")

    assert consume_queue.build([consume_queue.FILLER]) == raw
    assert consume_queue.read(raw) == consume_queue.FILLER


def test_extension_address_of_1234() -> None:
    address = int.from_bytes(bytes.fromhex("80000000000004d2"), "big", signed=True)

    assert consume_queue.ext_address(1234) == address
    assert consume_queue.real_offset(address) == 1234
    assert consume_queue.is_ext_address(address)


def test_batch_item_on_the_wire() -> None:
    raw = bytes.fromhex("0000001b 00000000 00000000 00000000 00000002 6869 0003 4b0176")
    item: Any = bodies.BatchItem(0, b"hi", b"K\x01v")

    assert list(bodies.batch_items(raw)) == [item]
    assert bodies.build_batch([item]) == raw


def test_batch_queue_entry() -> None:
    entry = batch_consume_queue.BatchEntry(0x40001000, 176, -934813832, 1700000000123, 41, 3)

    assert batch_consume_queue.read(BATCH_ENTRY, 0, len(BATCH_ENTRY)) == entry
    assert batch_consume_queue.build([entry]) == BATCH_ENTRY
    assert entry.next_queue_offset == 44


def test_timer_log_unit() -> None:
    unit = timer.LogUnit(
        size=52,
        previous_position=timer.NOWHERE,
        magic=timer.MAGIC_DEFAULT,
        write_time=1700000000000,
        delay=30000,
        physical_offset=0x40001000,
        message_size=176,
        topic_hash=java_hash("OrderEvents"),
    )

    assert timer.read_unit(TIMER_UNIT, 0, len(TIMER_UNIT)) == unit
    assert timer.build_unit(unit) == TIMER_UNIT
    assert unit.deliver_time == 1700000030000
