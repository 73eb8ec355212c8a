"""Records: what is read, what is refused under which name; writing gives the same bytes."""

import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.endings import Ending
from formats.errors import BadLength, FormatError
from formats.layouts import derived
from formats.layouts import message as layouts
from formats.layouts.codes import MAGIC_BLANK, MAGIC_V1
from formats.message import build as message_build
from formats.message import properties
from formats.message import read as message
from formats.message.build import append_crc, build_blank, pack, verify_crc
from formats.message.read import End, Record, read
from tests import goldens
from tests.conftest import Unpacked
from tests.formats.strategies import a_record, examples, many_examples, records

CLEAN = ["broker", "clean", "delay", "ipv6", "large-bodies", "lmq", "queue-ext"]


def commit_log(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir()) if (store / "commitlog").is_dir() else []


def put(raw: bytes, at: int, value: int, size: int = 4) -> bytes:
    return raw[:at] + value.to_bytes(size, "big", signed=True) + raw[at + size :]


# --- real files ---


@pytest.mark.parametrize("case", goldens.cases())
def test_a_commit_log_splits_into_records_blank_and_tail_and_joins_again(golden: Unpacked, case: str) -> None:
    for path in commit_log(golden(case)):
        raw, at, parts = path.read_bytes(), 0, []
        while isinstance(record := read(raw, at, len(raw)), Record):
            parts.append(pack(record))
            at += record.total_size
        if record.ending is Ending.FILLER:
            parts.append(build_blank(len(raw) - at))
        tail = raw[sum(map(len, parts)) :]

        assert b"".join(parts) + tail == raw
        if case in CLEAN:  # nothing hides behind the end
            assert record.ending in (Ending.FILLER, Ending.UNWRITTEN, Ending.CLEAN)
            assert not any(tail)


@pytest.mark.parametrize("case", CLEAN)
def test_reading_agrees_with_the_declaration_and_the_declaration_builds_the_same(golden: Unpacked, case: str) -> None:
    count = 0
    for path in commit_log(golden(case)):
        raw, at = path.read_bytes(), 0
        while isinstance(record := read(raw, at, len(raw)), Record):
            stored = raw[at : at + record.total_size]
            layout = layouts.record(record.sys_flag, record.magic)
            parsed = layout.parse(stored)
            assert {name: parsed[name] for name in Record._fields} == record._asdict()
            assert parsed.computed_size == record.total_size
            assert record.physical_offset == int(path.name) + at
            assert layout.build(parsed) == stored
            at += record.total_size
            count += 1
    rows = [row for row in goldens.messages(case) if not row["cqTopic"].startswith("%LMQ%")]
    assert count >= len(rows) >= 40


@pytest.mark.parametrize(
    ("case", "ending"),
    [
        ("body-bit-flip-last-file", Ending.DAMAGED),
        ("magic-broken-last-file", Ending.DAMAGED),
        ("size-field-negative", Ending.DAMAGED),
        ("torn-header", Ending.DAMAGED),
        ("torn-last-record", Ending.DAMAGED),
        ("crash", Ending.UNWRITTEN),
    ],
)
def test_a_damaged_log_ends_where_the_engine_ended_it(golden: Unpacked, case: str, ending: Ending) -> None:
    for path in commit_log(golden(case)):
        raw, at = path.read_bytes(), 0
        while isinstance(record := read(raw, at, len(raw)), Record):
            at += record.total_size
        if record.ending is not Ending.FILLER:
            break

    assert record.ending is ending
    assert int(path.name) + at == goldens.recovered(case)["afterLoad"]["maxPhyOffset"]


# --- the rules of the broker's check ---

RAW = pack(a_record())
SIZE = len(RAW)


@pytest.mark.parametrize(
    ("raw", "ending", "size"),
    [
        (b"", Ending.CLEAN, -1),
        (bytes(7), Ending.UNWRITTEN, -1),
        (bytes(64), Ending.UNWRITTEN, -1),
        (RAW[:7], Ending.CUT, -1),
        (build_blank(8), Ending.FILLER, 0),
        (put(build_blank(8), 0, 0), Ending.FILLER, 0),
        (put(build_blank(8), 0, 2**31 - 1), Ending.FILLER, 0),
        (put(RAW, 4, 0x12345678), Ending.DAMAGED, -1),
        (RAW[:-1], Ending.CUT, -1),
        (put(RAW, 0, SIZE - 1), Ending.DAMAGED, SIZE - 1),
        (put(RAW, 0, SIZE + 1) + bytes(99), Ending.DAMAGED, SIZE + 1),
        (put(RAW, 0, 0), Ending.DAMAGED, -1),
        (put(RAW, 0, 10), Ending.DAMAGED, -1),
        (put(RAW, 0, -1), Ending.DAMAGED, -1),
        (put(RAW, 0, -(2**31)), Ending.DAMAGED, -1),
        (put(RAW, 8, 1), Ending.DAMAGED, -1),  # body CRC
        (put(RAW, 84, SIZE), Ending.DAMAGED, -1),  # body beyond the record
        (put(RAW, 84, 2**31 - 1), Ending.DAMAGED, -1),
        (put(RAW, 96, -1, 1), Ending.DAMAGED, -1),  # topic length
        (put(RAW, 36, 0x10), Ending.DAMAGED, -1),  # hosts longer than they are
    ],
)
def test_what_is_no_record_is_named(raw: bytes, ending: Ending, size: int) -> None:
    record = read(raw, 0, len(raw))

    assert isinstance(record, End)
    assert (record.ending, record.size, record.at) == (ending, size, 0)
    assert record.reason


def test_a_body_is_checked_only_on_request() -> None:
    raw = put(RAW, 8, 1)

    assert isinstance(read(raw, 0, SIZE), End)
    assert isinstance(read(raw, 0, SIZE, crc=False), Record)


def test_an_empty_body_has_no_checksum() -> None:
    raw = put(pack(a_record(body=b"")), 8, 77)

    assert isinstance(read(raw, 0, len(raw)), Record)


@pytest.mark.parametrize(("at", "size"), [(84, 4), (97, 2)])
def test_lengths_below_zero_count_as_none(at: int, size: int) -> None:
    raw = pack(a_record(body=b"", properties=b"", topic=b"TopicTest"))
    at = at if at == 84 else 88 + 1 + 9
    record = read(put(raw, at, -1, size), 0, len(raw))

    assert isinstance(record, Record)
    assert (record.body, record.properties) == (b"", b"")


@pytest.mark.parametrize(("level", "accepted"), [(b"3", True), (b"+3", True), (b"x", False), (b"2147483648", False)])
def test_the_delay_topic_needs_a_numeric_level(level: bytes, accepted: bool) -> None:
    raw = pack(a_record(topic=message.SCHEDULE_TOPIC, properties=b"DELAY\x01" + level))
    other = pack(a_record(topic=b"Other", properties=b"DELAY\x01" + level))

    assert isinstance(read(raw, 0, len(raw)), Record) is accepted
    assert isinstance(read(other, 0, len(other)), Record)


def test_reading_stays_inside_its_part_of_the_buffer() -> None:
    both = RAW + RAW

    assert isinstance(read(both, SIZE, 2 * SIZE), Record)
    cut = read(both, 0, SIZE - 1)
    assert isinstance(cut, End)
    assert cut.ending is Ending.CUT


# --- writing ---


@many_examples
@given(record=records())
def test_a_record_reads_as_it_was_written(record: Record) -> None:
    raw = pack(record)

    assert len(raw) == record.total_size
    assert read(raw, 0, len(raw)) == record
    assert read(memoryview(b"\xff" + raw), 1, 1 + len(raw)) == record


@examples
@given(record=records())
def test_packing_is_what_the_declaration_builds(record: Record) -> None:
    fields = record._asdict() | {"topic_length": len(record.topic), "properties_length": len(record.properties)}

    assert layouts.record(record.sys_flag, record.magic).build(fields) == pack(record)


def test_a_wrong_checksum_is_told_in_fields_too() -> None:
    answer = derived.HEAD_V4_V4.field("body_crc").unpack_from(RAW)[0]
    assert answer == zlib.crc32(a_record().body) & 0x7FFFFFFF
    end = read(put(RAW, derived.HEAD_V4_V4.offsets["body_crc"], answer ^ 1), 0, SIZE)
    assert isinstance(end, End)
    assert (end.expected, end.actual) == (f"0x{answer ^ 1:08X}", f"0x{answer:08X}")
    assert end.reason == f"body CRC is {end.actual}, the record says {end.expected}"
    other = read(put(RAW, 0, SIZE + 1), 0, SIZE)
    assert isinstance(other, End)
    assert other.expected is other.actual is None


@many_examples
@given(record=records())
def test_a_whole_record_crc_verifies_and_one_flipped_bit_does_not(record: Record) -> None:
    summed = append_crc(pack(record))
    unit = read(summed, 0, len(summed))

    assert isinstance(unit, Record)
    assert unit.properties.endswith(properties.crc_property(0)[-1:])
    assert verify_crc(summed) is True
    # queue id, in the head of every layout: lengths and the body's own checksum do not notice
    assert verify_crc(summed[:15] + bytes([summed[15] ^ 1]) + summed[16:]) is False


def test_a_whole_record_crc_that_is_glued_to_a_value_is_found_by_position() -> None:
    summed = append_crc(pack(a_record(properties=b"K\x01v")))
    separator = summed.index(b"K\x01v\x02") + 3
    glued = put(summed[:separator] + summed[separator + 1 :], 0, len(summed) - 1)
    glued = put(glued, 88 + 8 + 1 + 11, 3 + 20, 2)

    assert verify_crc(glued) is False  # the sum is over other bytes now, but it is found
    fixed = glued[:-20] + properties.crc_property(message_build.crc31(glued[:-20]))
    assert verify_crc(fixed) is True
    assert properties.CRC32_NAME not in properties.parse_raw(b"K\x01v" + fixed[-20:])


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": b""},
        {"topic": b"t" * 128},
        {"topic": b"t" * 256, "version": 2},
        {"version": 3},
        {"properties": b"p" * 32768},
        {"body": b"b" * 101, "max_message_size": 100},
        {"born_address": b"123"},
        {"store_address": bytes(17)},
    ],
)
def test_the_brokers_limits_are_errors(changes: dict[str, object]) -> None:
    with pytest.raises(BadLength):
        pack(a_record(**changes))


@pytest.mark.parametrize(("version", "topic"), [(1, 127), (2, 255)])
def test_the_largest_record(version: int, topic: int) -> None:
    size = 4 * 1024 * 1024
    record = a_record(body=bytes(size), properties=b"p" * 32767, topic=b"t" * topic, version=version)

    assert record.total_size == 90 + version + size + 32767 + topic
    assert record.total_size < size + 64 * 1024
    assert read(pack(record), 0, record.total_size) == record
    with pytest.raises(BadLength):
        a_record(body=bytes(size + 1))


def test_the_longest_properties_that_take_a_checksum() -> None:
    longest = b"p" * (32767 - 20 - 1) + b"\x02"

    assert verify_crc(append_crc(pack(a_record(properties=longest)))) is True
    with pytest.raises(BadLength):
        append_crc(pack(a_record(properties=b"p" + longest)))


@pytest.mark.parametrize("digits", [b"1" * 10, b"1" * 5000, b"-1", b"x"])
def test_a_named_checksum_that_is_wrong(digits: bytes) -> None:
    assert verify_crc(pack(a_record(properties=b"__CRC32#\x01" + digits))) is False


@pytest.mark.parametrize(
    ("field", "value"), [("queue_id", 2**31), ("physical_offset", 2**63), ("total_size", -(2**31) - 1), ("body", b"")]
)
def test_fields_out_of_range_are_errors(field: str, value: object) -> None:
    with pytest.raises(BadLength):
        pack(a_record()._replace(**{field: value}))


def test_checksum_functions_refuse_what_is_no_whole_record() -> None:
    for raw in (RAW[:-1], RAW + b"\0", bytes(200)):
        with pytest.raises(FormatError):
            append_crc(raw)
        with pytest.raises(FormatError):
            verify_crc(raw)


@given(room=st.integers(8, 2**31 - 1))
def test_a_blank_says_the_room_it_ends(room: int) -> None:
    assert build_blank(room) == layouts.BLANK.build({"total_size": room, "magic": MAGIC_BLANK})


@pytest.mark.parametrize("room", [-1, 0, 7, 2**31])
def test_no_blank_fits_less_than_8_bytes(room: int) -> None:
    with pytest.raises(BadLength):
        build_blank(room)


@pytest.mark.parametrize(("room", "there"), [(SIZE + 7, False), (SIZE + 8, True)])
def test_a_record_leaves_room_for_the_blank(room: int, there: bool) -> None:
    assert message_build.fits(SIZE, room) is there


def test_version_and_magic_go_together() -> None:
    assert a_record().magic == MAGIC_V1
    assert [a_record(version=v).version for v in (1, 2)] == [1, 2]
