"""Explained buffers: every byte named once, the right names on healthy files, and termination on any bytes."""

import re
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats import index
from formats.explain.hexdump import label
from formats.explain.kinds import KINDS, Span, explain, hexdump
from formats.explain.spans import utc_text
from formats.message.build import build_blank, pack
from tests import goldens
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.formats.samples import FILES
from tests.formats.strategies import a_record, many_examples
from tests.formats.test_hostile_bytes import MAGICS, overwritten

each = pytest.mark.parametrize("kind", KINDS)
FOLDERS = {"commitlog": "commitlog", "consumequeue": "consumequeue", "consumequeue_ext": "consumequeue_ext"}
LINE = re.compile(r"([0-9a-f]{8,})  (.{47})  \|(.{16})\|(  .*)?$")


def spans_of(kind: str, raw: bytes, base: int = 0) -> list[Span]:
    """The spans, after checking that they cover the buffer without gaps or overlaps."""
    spans = list(explain(kind, raw, base))
    at = 0
    for span in spans:
        assert span.start == at
        assert span.end > span.start
        assert span.path
        at = span.end
    assert at == len(raw)
    return spans


def undump(lines: list[str], base: int) -> bytes:
    """The bytes shown by dump lines, including repeated rows."""
    out, row, starred = bytearray(), b"", False
    for line in lines:
        if line == "*":
            starred = True
            continue
        match = LINE.match(line.ljust(77))
        offset = int(match[1] if match else line, 16)
        while starred and base + len(out) < offset:
            out += row
        starred = False
        if match:
            assert offset % 16 == 0
            row = bytes.fromhex(match[2])
            out += row
    return bytes(out)


def check(kind: str, raw: bytes, base: int = 0) -> list[Span]:
    spans = spans_of(kind, raw, base)
    lines = list(hexdump(raw, iter(spans), base))
    assert undump(lines, base) == raw
    assert all(line.isprintable() for line in lines)
    return spans


def units(spans: list[Span]) -> Counter[str]:
    """Number of units by name."""
    return Counter(re.sub(r"\[.*", "", unit) for unit in {span.path.partition(".")[0] for span in spans})


def value(spans: list[Span], path: str) -> Span:
    (result,) = [span for span in spans if span.path == path]
    return result


# --- real files ---


@by_turns(3)
@pytest.mark.parametrize("case", goldens.cases())
def test_every_file_of_a_real_store(golden: Unpacked, case: str) -> None:
    kinds = FOLDERS | {"index": "index"}
    for kind, folder in kinds.items():
        paths = [path for path in sorted((golden(case) / folder).rglob("*")) if path.is_file()]
        for path in paths if case in ("clean", "queue-ext") else paths[-1:]:
            base = int(path.name) if kind != "index" else 0
            spans = check(kind, path.read_bytes(), base)
            if case in ("clean", "queue-ext"):
                assert not [span for span in spans if re.match("damaged|cut|.*lies at", f"{span.path} {span.note}")]


def test_a_clean_commit_log_has_only_records_a_blank_and_zeros(golden: Unpacked) -> None:
    records = 0
    for path in sorted((golden("clean") / "commitlog").iterdir()):
        units_read = units(spans_of("commitlog", path.read_bytes(), int(path.name)))
        records += units_read.pop("record")
        assert set(units_read) <= {"blank", "unwritten"}
    assert records == sum(1 for _ in goldens.messages("clean"))


def test_a_clean_index_file(golden: Unpacked) -> None:
    path = min((golden("clean") / "index").iterdir())
    raw = path.read_bytes()
    spans = spans_of("index", raw)

    assert units(spans) == {"header": 1, "slot": index.read_header(raw).hash_slot_count, "entry": 710, "unwritten": 1}
    assert value(spans, "entry[1].physical_offset").value == value(spans, "header.begin_physical_offset").value
    assert spans_of("index", raw) == list(explain("index", raw, slots=112))


@pytest.mark.parametrize(
    ("case", "field"),
    [("body-bit-flip-last-file", "body"), ("magic-broken-last-file", "total_size"), ("torn-last-record", "total_size")],
)
def test_damage_is_named_and_what_follows_it_is_read(golden: Unpacked, case: str, field: str) -> None:
    noted = []
    for path in sorted((golden(case) / "commitlog").iterdir()):
        spans = check("commitlog", path.read_bytes(), int(path.name))
        noted += [span for span in spans if "damaged" in span.note or "its CRC is" in span.note]
        whole = [span for span in spans if span.path.endswith(".magic") and "version 1" in span.note]
        assert len(whole) > 10 or spans[0].path == "unwritten"  # the next file, made in advance

    assert [span.path.rpartition(".")[2] for span in noted][:1] == [field]


# --- single fields ---


def test_every_field_of_the_worked_example() -> None:
    record = a_record(sys_flag=0x188, properties=b"U\x01first\x02KEYS\x01\xe9\x02U\x01x\x01y\x02no\x02")
    raw = pack(record) + build_blank(24) + bytes(16)
    spans = check("commitlog", raw, 0x40001000)
    told = {span.path.removeprefix("record[0]."): (span.value, span.note) for span in spans}

    assert told["total_size"] == (record.total_size, "")
    assert told["magic"] == (-626843481, "0xDAA320A7 version 1")
    assert told["body_crc"] == (362759052, "0x159F438C")
    assert told["physical_offset"] == (0x40001000, "")
    assert told["sys_flag"] == (0x188, "0x188 commit inner-batch")
    assert told["born_timestamp"] == (1700000000000, "2023-11-14T22:13:20.000Z")
    assert told["store_timestamp"] == (1700000000123, "2023-11-14T22:13:20.123Z")
    assert told["born_address"] == (bytes([192, 0, 2, 10]), "192.0.2.10")
    assert told["born_port"] == (51234, "")
    assert told["body"] == (b'{"id":8}', "8 bytes, CRC agrees")
    assert told["topic"] == (b"OrderEvents", "OrderEvents")
    assert told["properties.KEYS"] == (b"KEYS\x01\xe9", "�")
    assert told["properties.no"] == (b"no", "ignored: no name or no value")
    both = [span.note for span in spans if span.path == "record[0].properties.U"]
    assert both == ["first (a later one of this name counts)", "x\x01y"]
    assert told["blank.magic"] == (-875286124, "0xCBD43194 end-of-file blank")
    assert spans[-1] == Span(len(raw) - 16, len(raw), "unwritten", None, "zero bytes")


def test_a_record_that_lies_elsewhere_says_so() -> None:
    spans = check("commitlog", pack(a_record()), 7)

    assert value(spans, "record[0].physical_offset").note == "it lies at 7"


def test_a_compressed_body_names_its_kind() -> None:
    spans = check("commitlog", pack(a_record(sys_flag=0x201, body=b"anything")))

    assert value(spans, "record[0].body").note == "8 bytes, zstd, CRC agrees"


def test_bytes_behind_the_blank_are_not_read() -> None:
    stale = pack(a_record())
    spans = check("commitlog", build_blank(8 + len(stale)) + stale)

    assert units(spans) == {"blank": 1, "after_blank": 1}


def test_a_hole_between_records() -> None:
    raw = pack(a_record())
    spans = check("commitlog", raw + bytes(100) + raw + b"junk" * 9 + raw)

    assert [span.path for span in spans if "." not in span.path] == ["unwritten", "damaged"]
    assert units(spans)["record"] == 3
    assert value(spans, "unwritten")[:2] == (176, 276)
    assert value(spans, "damaged").end - value(spans, "damaged").start == 36


def test_records_are_numbered_also_behind_damage() -> None:
    raw = pack(a_record())
    broken = raw[:4] + bytes(4) + raw[8:]
    spans = check("commitlog", raw + broken + raw + raw[:-1] + b"!" + build_blank(8))
    numbers = [span.path for span in spans if span.path.endswith("total_size")]

    assert numbers == [f"record[{n}].total_size" for n in range(4)] + ["blank.total_size"]
    assert value(spans, "record[1].total_size").note == "damaged: magic 0x00000000 is not that of a record"
    assert value(spans, "record[1].magic").note == "0x00000000 unknown"
    assert value(spans, "record[3].total_size").note == ""


@pytest.mark.parametrize("gap", [1, 4, 7, 8, 9, 40])
def test_a_blank_behind_damage_is_found_where_it_says_the_rest(gap: int) -> None:
    blank = build_blank(30) + bytes(22)
    spans = check("commitlog", b"\x7f" * gap + blank)
    stray = check("commitlog", b"\x7f" * gap + build_blank(31) + bytes(22))

    assert [span.path for span in spans] == ["damaged", "blank.total_size", "blank.magic", "unwritten"]
    assert spans[0].end == gap
    assert units(stray) == {"damaged": 1, "unwritten": 1}


@pytest.mark.parametrize("size", [1, 7, 8, 39, 40, 47, 87, 88, 100, 175])
def test_a_cut_record_names_the_fields_that_are_there(size: int) -> None:
    spans = check("commitlog", pack(a_record())[:size])

    assert spans[-1].end == size
    if size >= 8:
        assert value(spans, "record[0].total_size").note == f"damaged: record of 176 bytes, {size} left"
        assert len([span for span in spans if span.path.startswith("record[0].")]) >= size // 8
    else:
        assert units(spans) == {"unwritten" if size < 4 else "cut": 1}


@pytest.mark.parametrize(("size", "shown"), [(4096, True), (4097, False)])
def test_long_fields_carry_no_value(size: int, shown: bool) -> None:
    result = value(check("commitlog", pack(a_record(body=bytes(size)))), "record[0].body")

    assert result.value == (bytes(size) if shown else None)
    assert result.note == f"{size} bytes, CRC agrees"


@pytest.mark.parametrize(("zeros", "own"), [(15, False), (16, True), (17, True)])
def test_zeros_before_and_behind_other_bytes(zeros: int, own: bool) -> None:
    # behind the two bytes of the end mark
    spans = check("consumequeue_ext", b"\xff\xff" + bytes(zeros) + b"\x01\x02" + bytes(zeros))

    expected = ["unwritten", "after_end_mark", "unwritten"] if own else ["after_end_mark"]
    assert [span.path for span in spans[1:]] == expected


def test_queue_entries_carry_their_queue_offsets_and_meaning() -> None:
    raw, _ = FILES["consumequeue"]
    spans = check("consumequeue", raw, 6_000_000)

    assert value(spans, "entry[300000].physical_offset").note == "filler before the queue's first entry"
    assert value(spans, "entry[300001].tags_code") == Span(32, 40, "entry[300001].tags_code", -9, "")
    assert value(spans, "entry[300002].tags_code").note == "extension byte 22"
    assert value(spans, "entry[300003].tags_code").note == "deliver time 2023-11-14T22:13:20.000Z"
    assert spans[-1] == Span(80, 120, "unwritten", None, "zero bytes, 2 units")


def test_a_region_may_begin_inside_a_unit() -> None:
    raw, _ = FILES["consumequeue"]
    spans = check("consumequeue", raw[7:], 27)

    assert spans[0][:3] == (0, 13, "entry[1]")
    assert spans[1].path == "entry[2].physical_offset"


def test_extension_units_carry_their_addresses() -> None:
    raw, _ = FILES["consumequeue_ext"]
    spans = check("consumequeue_ext", raw, 100)

    assert value(spans, "unit[1].unit_size").note == f"address {120 - 2**63}"
    assert value(spans, "unit[1].bit_map").value == b"\x01\x02\x04"
    assert value(spans, "end_mark").value == -1


def test_timer_units() -> None:
    raw, _ = FILES["timerlog"]
    spans = check("timerlog", raw)

    assert value(spans, "unit[0].magic").note == "default"
    assert value(spans, "unit[1].magic").note == "roll"
    assert value(spans, "unit[0].delay").note == "delivers 2023-11-14T22:13:50.000Z"
    assert value(spans, "blank.total_size").value == 20


def test_entries_of_dledger_hold_records() -> None:
    raw, _ = FILES["dledger"]
    spans = check("dledger", raw)

    assert value(spans, "entry[0].position").note == ""
    assert value(spans, "entry[0].record.physical_offset").value == 48
    assert value(spans, "entry[0].record.physical_offset").note == ""
    assert value(spans, "blank.bytes_left").value == 20


def test_a_converted_dledger_folder_has_plain_records_too() -> None:
    raw = pack(a_record(physical_offset=1000))
    assert units(check("dledger", raw, 1000)) == {"record": 1}


def test_index_without_a_known_geometry() -> None:
    spans = check("index", index.build(index.Header(0, 0, 0, 0, 0, 1), [0] * 3, [], 5) + b"\0\0\0\x07")

    assert [span.path for span in spans[6:]] == ["unwritten", "slots_and_entries"]


def test_runs_of_an_index_file() -> None:
    spans = check("index", FILES["index"][0])

    assert value(spans, "empty_slots") == Span(44, 48, "empty_slots", None, "slots 1 to 1")
    assert [span.note for span in spans if span.path == "unwritten"] == ["entries 0 to 0", "entries 4 to 5"]
    assert value(spans, "entry[3].seconds").note == "2023-11-14T22:13:29.000Z"
    assert value(spans, "entry[2].key_hash").note == "slot 2"


def test_an_index_entry_that_is_not_counted() -> None:
    raw = bytearray(FILES["index"][0])
    raw[36:40] = (3).to_bytes(4, "big")
    spans = list(explain("index", bytes(raw), slots=3))

    assert value(spans, "entry[3].key_hash").note == "not counted by the header slot 0"
    assert value(spans, "slot[0].newest_entry").note == ""


def test_an_unknown_kind() -> None:
    with pytest.raises(KeyError):
        explain("nothing", b"")


@pytest.mark.parametrize("ms", [2**63 - 1, -(2**63), 2**80])
def test_times_that_no_calendar_holds_have_no_text(ms: int) -> None:
    assert utc_text(ms) == ""


# --- dump ---


def test_rows_and_labels() -> None:
    raw = bytes(range(40))
    spans = [Span(0, 3, "a.b", 5, ""), Span(3, 20, "a.c", b"\1\2", ""), Span(20, 40, "d", None, "tail\n")]

    assert list(hexdump(raw, spans, 0x1004)) == [
        "00001000              00 01 02 03 04 05 06 07 08 09 0a 0b  |    ............|  a.b=5; .c=0102",
        "00001010  0c 0d 0e 0f 10 11 12 13 14 15 16 17 18 19 1a 1b  |................|  d (tail\\n)",
        "00001020  1c 1d 1e 1f 20 21 22 23 24 25 26 27              |.... !\"#$%&'    |",
    ]


def test_equal_rows_are_one_star() -> None:
    raw = b"\xaa" * 16 + bytes(1 << 20) + b"\xbb" * 5
    spans = [
        Span(0, 16, "x", None, ""),
        Span(16, len(raw) - 5, "zeros", None, ""),
        Span(len(raw) - 5, len(raw), "y", None, ""),
    ]
    lines = list(hexdump(raw, spans))

    assert lines[2] == "*"
    assert len(lines) == 4
    assert undump(lines, 0) == raw


@pytest.mark.parametrize("before", [16, 1 << 16, 200_000, 200_016])
def test_a_different_row_in_a_long_run_is_shown(before: int) -> None:
    raw = bytes(before) + b"x" * 16 + bytes(1 << 17) + b"y"
    lines = list(hexdump(raw, [Span(0, len(raw), "body", None, "")]))

    assert undump(lines, 0) == raw
    assert len(lines) < 10


def test_a_field_that_begins_a_row_is_named_on_it() -> None:
    spans = [Span(0, 16, "a", None, ""), Span(16, 32, "b", None, ""), Span(32, 48, "c", None, "")]
    rows = list(hexdump(bytes(48), spans))

    assert [row.rpartition("|")[2].strip() for row in rows] == ["a", "b", "c"]


def test_long_labels_are_cut() -> None:
    assert label(Span(0, 1, "x", b"\xab" * 500, "")) == "x=" + "ab" * 40 + "..."
    assert label(Span(0, 1, "x", b"\xab" * 40, "")) == "x=" + "ab" * 40
    assert label(Span(0, 1, "x", None, "n" * 161)) == f"x ({'n' * 160}...)"
    assert label(Span(0, 1, "x", None, "n" * 160)) == f"x ({'n' * 160})"


def test_only_what_the_spans_cover_is_shown() -> None:
    assert list(hexdump(bytes(100), [Span(20, 24, "x", 1, "")])) == [
        "00000010              00 00 00 00                          |    ....        |  x=1"
    ]
    assert list(hexdump(b"", [])) == []


# --- any bytes ---


@each
def test_cut_at_every_byte(kind: str) -> None:
    raw, _ = FILES[kind]
    for size in range(len(raw) + 1):
        check(kind, raw[:size], size % 3 * 16)


@by_turns(3)
@each
def test_every_byte_flipped(kind: str) -> None:
    raw, _ = FILES[kind]
    for at in range(len(raw)):
        check(kind, raw[:at] + bytes([raw[at] ^ 0xFF]) + raw[at + 1 :])


@each
@many_examples
@given(
    raw=st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(MAGICS)), max_size=8).map(b"".join),
    base=st.integers(0, 2**40),
)
def test_made_up_bytes(kind: str, raw: bytes, base: int) -> None:
    check(kind, raw, base)


@each
@many_examples
@given(data=st.data())
def test_overwritten_bytes(kind: str, data: st.DataObject) -> None:
    check(kind, overwritten(data, FILES[kind][0]))


@each
@given(slots=st.integers(-5, 2**33))
def test_any_number_of_slots(kind: str, slots: int) -> None:
    raw, _ = FILES[kind]
    assert sum(span.end - span.start for span in explain(kind, raw, slots=slots)) == len(raw)


@by_turns(13)
@each
@pytest.mark.parametrize("unit", [b"\0", b"\xff", *MAGICS], ids=bytes.hex)
def test_a_large_file_of_one_pattern_ends_in_time(kind: str, unit: bytes) -> None:
    raw = unit * (100_000 // len(unit))
    started = time.perf_counter()
    check(kind, raw)

    assert time.perf_counter() - started < 10


def test_paths_are_not_confused_by_property_names(tmp_path: Path) -> None:
    spans = check("commitlog", pack(a_record(properties=b"a.b\nc\x01v\x02")))

    assert [label(span, "record[0]") for span in spans[-1:]] == [".properties.a.b\\nc (v)"]


def test_text_files_line_by_line() -> None:
    spans = spans_of("epochFileCheckpoint", b"1\n99\n3-4096\n")
    assert [(s.path, s.value) for s in spans] == [
        ("epochs.count", b"1\n"),
        ("epochs.crc", b"99\n"),
        ("epochs.epoch[0]", b"3-4096\n"),
    ]
    assert spans[0].note.startswith("CRC of the epochs is")
    assert spans_of("abort", b"") == []
    assert spans_of("abort", b"4711")[0].note == "process 4711"
    assert spans_of("abort", b"x")[0].note == "abort file is neither empty nor a process id"
    assert spans_of("lock", b"lock")[0].note == "a broker has started here once"
    assert spans_of("lock", b"luck")[0].note == "not what a broker writes"
