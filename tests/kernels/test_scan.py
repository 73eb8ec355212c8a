"""Scans by either code give the same records, fields and checksums as the reference reader."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.layouts.codes import MAGIC_V1, MAGIC_V2
from formats.message.build import build_blank, pack
from formats.message.read import HEADS, SCHEDULE_TOPIC, Record, read
from rmqtool.kernels.load.library import Implementation
from rmqtool.kernels.plain.scan import Row
from rmqtool.kernels.scan import Rows, Walker, space_rows
from rmqtool.store.log.records import next_record
from tests import goldens
from tests.conftest import Unpacked
from tests.formats.strategies import a_record, examples, many_examples, records
from tests.kernels.codes import both

HOSTS = [(4, 4), (16, 4), (4, 16), (16, 16)]
SAME_NAMES = [name for name in Rows._fields if name in Record._fields and name != "body_length"]
LEVELS = [b"3", b"-1", b"+18", b"0", b"2147483647", b"2147483648", b"-2147483648", b"-2147483649", b"", b"x", b"1 "]
LEVELS += [b"-", b"+", b"1" * 63, b"0" * 62 + b"5", b"0" * 63 + b"5", b"\x015"]


def plain(raw: bytes, limit: int, *, crc: bool, at: int = 0) -> tuple[list[tuple[int, Record]], int]:
    """The reference reader's result: (position, record) of each, and where it stops."""
    result = []
    while isinstance(record := read(raw, at, limit, crc=crc), Record):
        result.append((at, record))
        at += record.total_size
    return result, at


def agree(
    raw: bytes, limit: int, code: Implementation, *, crc: bool = True, capacity: int = 64, tables: bool = False
) -> int:
    """Compare with the reference from byte 0 on; returns the number of records."""
    expected, stop = plain(raw, limit, crc=crc)
    walker = Walker(raw, capacity, crc=crc, tables=tables, code=code)
    at, count = 0, 0
    while True:
        rows, following = walker.walk(at, limit)
        for i in range(rows.records):
            where, record = expected[count]
            assert rows.at[i] == where
            for name in SAME_NAMES:
                assert getattr(rows, name)[i] == getattr(record, name), name
            for name in ("body", "topic", "properties"):
                start = getattr(rows, f"{name}_at")[i]
                assert raw[start : start + getattr(rows, f"{name}_length")[i]] == getattr(record, name), name
            count += 1
        if not rows.records:
            assert following == at == stop
            assert count == len(expected)
            return count
        at = following


def variants() -> list[bytes]:
    """Packed records of every layout, and with special lengths."""
    made = []
    for version in (1, 2):
        for born, store in HOSTS:
            made.append(pack(a_record(version=version, born_address=bytes(born), store_address=bytes(store))))
        made.append(pack(a_record(version=version, body=b"", properties=b"")))
        made.append(pack(a_record(version=version, topic=b"t" * 127, body=b"b")))
    made.append(pack(a_record(version=2, topic=b"t" * 255)))
    for level in LEVELS:
        made.append(pack(a_record(topic=SCHEDULE_TOPIC, properties=b"A\x01b\x02DELAY\x01" + level)))
        made.append(pack(a_record(topic=SCHEDULE_TOPIC, properties=b"DELAY\x01" + level + b"\x02DELAY\x017\x02")))
    # lengths that a signed field reads as negative, in records that would add up otherwise
    made += [long_topic(a_record(), size) for size in (127, 128, 255)]
    made += [long_topic(a_record(version=2), size) for size in (0x7FFF, 0x8000)]
    made.append(odd_lengths(a_record(), body_length=-5))
    made.append(odd_lengths(a_record(version=2), body_length=-5, properties_length=-1))
    made.append(odd_lengths(a_record(topic=b"t"), topic=b""))
    return made


def long_topic(record: Record, size: int) -> bytes:
    """A record with a topic of the maximum length of its field, or longer."""
    raw = pack(record)
    field = -len(record.topic) - len(record.properties) - 2
    start = len(raw) + field - record.version
    length = size.to_bytes(record.version, "big")
    longer = raw[:start] + length + b"t" * size + raw[len(raw) + field + len(record.topic) :]
    return len(longer).to_bytes(4, "big") + longer[4:]


def odd_lengths(
    record: Record, *, body_length: int = 0, topic: bytes | None = None, properties_length: int = 0
) -> bytes:
    """A record without body and properties, with unusual lengths."""
    topic = record.topic if topic is None else topic
    size = HEADS[record.sys_flag & 0x30].size + record.version + len(topic) + 2
    changed = record._replace(total_size=size, body_length=body_length, body=b"", topic=topic, properties=b"")
    return pack(changed)[:-2] + properties_length.to_bytes(2, "big", signed=True)


@both
@pytest.mark.parametrize("case", goldens.cases())
def test_golden_logs_read_the_same(code: Implementation, golden: Unpacked, case: str) -> None:
    folder = golden(case) / "commitlog"
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        raw = path.read_bytes()
        agree(raw, len(raw), code, crc=True, capacity=1000)


@both
@pytest.mark.parametrize("crc", [True, False])
@pytest.mark.parametrize("raw", variants())
def test_each_layout_reads_the_same_whole_and_cut_at_every_byte(code: Implementation, raw: bytes, crc: bool) -> None:
    agree(raw, len(raw), code, crc=crc)
    for limit in range(0, len(raw), 1 if len(raw) < 1000 else 997):
        agree(raw, limit, code, crc=crc)
    twice = raw + raw
    for limit in range(len(raw), len(twice) + 1, 7 if len(raw) < 1000 else 997):
        agree(twice, limit, code, crc=crc, capacity=1)


@both
@pytest.mark.parametrize("raw", [pack(a_record(version=v, born_address=bytes(n))) for v in (1, 2) for n in (4, 16)])
def test_each_byte_damaged_reads_the_same(code: Implementation, raw: bytes) -> None:
    behind = pack(a_record())  # what damaged lengths may reach into
    for at in range(len(raw)):
        for value in {0, 0x7F, 0x80, 0xFF, raw[at] ^ 1, raw[at] ^ 0x10, raw[at] ^ 0x20}:
            damaged = raw[:at] + bytes([value]) + raw[at + 1 :] + behind
            for crc in (True, False):
                agree(damaged, len(damaged), code, crc=crc, capacity=2)


@both
@many_examples
@given(
    st.lists(st.one_of(records().map(pack), st.sampled_from(variants()), st.just(build_blank(9) + b"\0")), max_size=6),
    st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=3),
    st.integers(0, 2**16),
    st.booleans(),
    st.integers(1, 4),
)
def test_damaged_and_cut_logs_read_the_same(
    code: Implementation, parts: list[bytes], damage: list[tuple[int, int]], cut: int, crc: bool, capacity: int
) -> None:
    raw = bytearray(b"".join(parts))
    for at, value in damage:
        if raw:
            raw[at % len(raw)] = value
    limit = len(raw) - cut % (len(raw) + 1) if cut % 2 else len(raw)
    agree(bytes(raw), limit, code, crc=crc, capacity=capacity)


@both
@examples
@given(st.binary(max_size=200), st.sampled_from([MAGIC_V1, MAGIC_V2]), st.integers(-1, 300), st.booleans())
def test_arbitrary_bytes_behind_a_magic_read_the_same(
    code: Implementation, raw: bytes, magic: int, size: int, crc: bool
) -> None:
    forged = size.to_bytes(4, "big", signed=True) + magic.to_bytes(4, "big", signed=True) + raw
    agree(forged, len(forged), code, crc=crc)


@both
def test_a_walk_stops_where_it_is_told(code: Implementation) -> None:
    raw = pack(a_record())
    walker = Walker(raw * 5, 10, code=code)
    rows, at = walker.walk(0, len(raw) * 5, len(raw) * 2 + 1)
    assert (rows.records, at) == (3, 3 * len(raw))
    assert walker.walk(at, len(raw) * 4)[1] == 4 * len(raw)


@examples
@given(st.integers(0, 1 << 20))
def test_columns_of_a_table_keep_out_of_each_others_way(rows: int) -> None:
    """They are an odd number of cache lines apart."""
    assert max(rows - 15, 8) <= space_rows(rows) <= max(rows, 8)
    assert space_rows(rows) % 16 == 8


@both
def test_positions_outside_the_buffer_are_refused(code: Implementation) -> None:
    walker = Walker(bytes(100), 4, code=code)
    for at, limit in ((-1, 100), (0, 101)):
        with pytest.raises(ValueError, match="of a buffer of 100"):
            walker.walk(at, limit)
    assert Walker(b"", 4, code=code).walk(0, 0)[1] == 0


@both
def test_records_read_the_same_by_tables(code: Implementation) -> None:
    raw = b"".join(pack(a_record(body=bytes(range(n)))) for n in range(40))
    assert agree(raw, len(raw), code, crc=True, tables=True) == 40
    damaged = raw.replace(bytes(range(20)), bytes(range(19)) + b"\xff", 1)
    assert agree(damaged, len(raw), code, crc=True, tables=True) < 40


@both
@examples
@given(st.lists(records(), max_size=4), st.binary(max_size=60), st.integers(0, 400), st.integers(0, 400))
def test_what_says_its_own_position_is_sought_as_by_the_plain_reader(
    code: Implementation, made: list[Record], before: bytes, start: int, length: int
) -> None:
    raw = before
    for number, record in enumerate(made):
        claim = 1000 + len(raw) + number % 2  # every other one is wrong
        raw += pack(record._replace(physical_offset=claim)) + bytes(number)
    start = min(start, len(raw))
    stop = min(start + length, len(raw))
    assert Walker(raw, 1, code=code).seek(start, stop, 1000) == next_record(memoryview(raw), 1000, start, stop)


@both
def test_behind_many_zeros_nothing_is_sought(code: Implementation) -> None:
    record = pack(a_record(physical_offset=70_000))
    raw = bytes(70_000) + record
    assert Walker(raw, 1, code=code).seek(0, len(raw), 0) == len(raw)
    assert Walker(raw, 1, code=code).seek(10_000, len(raw), 0) == 70_000
    with pytest.raises(ValueError, match="of a buffer of 100"):
        Walker(bytes(100), 1, code=code).seek(0, 101, 0)


def test_a_row_has_the_fields_of_rows() -> None:
    assert Row._fields == Rows._fields
