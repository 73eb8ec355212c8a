"""DLedger data, index and property files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.endings import Ending, UnitEnd
from formats.errors import BadLength, BadText
from formats.layouts import dledger as layouts
from formats.message.build import build_blank, pack
from formats.message.read import Record, read
from formats.variants import dledger
from tests.formats.building import dledger_entry
from tests.formats.strategies import a_record, examples, signed

BODY = pack(a_record(physical_offset=4096 + 48))
ENTRY = dledger_entry(BODY, index=7, term=2, position=4096)


def put(raw: bytes, at: int, value: int) -> bytes:
    return raw[:at] + value.to_bytes(4, "big", signed=True) + raw[at + 4 :]


def test_an_entry_holds_a_record_that_says_where_it_lies() -> None:
    entry = dledger.read_entry(ENTRY, 0, len(ENTRY))

    assert entry == (1, 48 + len(BODY), 7, 2, 4096, 0, 0, 0, len(BODY))
    record = read(ENTRY, dledger.HEAD_SIZE, len(ENTRY))
    assert isinstance(record, Record)
    assert record.physical_offset == 4096 + dledger.HEAD_SIZE


@examples
@given(body=st.binary(max_size=50), index=signed(64), term=signed(64), position=signed(64), channel=signed(32))
def test_an_entry_reads_as_it_was_built(body: bytes, index: int, term: int, position: int, channel: int) -> None:
    raw = dledger_entry(body, index=index, term=term, position=position, channel=channel)
    entry = dledger.read_entry(raw + b"more", 0, len(raw) + 4)

    assert entry == (1, len(raw), index, term, position, channel, 0, 0, len(body))
    parsed = layouts.ENTRY_HEAD.parse(raw)
    assert tuple(parsed[name] for name in dledger.DLedgerEntry._fields) == entry
    assert layouts.ENTRY_HEAD.build(parsed) + body == raw


@pytest.mark.parametrize(
    ("raw", "ending"),
    [
        (b"", Ending.CLEAN),
        (bytes(7), Ending.UNWRITTEN),
        (bytes(60), Ending.UNWRITTEN),
        (ENTRY[:7], Ending.CUT),
        (bytes(4) + ENTRY[4:], Ending.DAMAGED),
        (dledger.build_blank(8), Ending.FILLER),
        (ENTRY[:-1], Ending.CUT),
        (dledger.build_blank(50) + bytes(42), Ending.FILLER),
        (put(ENTRY, 0, 2), Ending.DAMAGED),
        (put(ENTRY, 4, 47), Ending.DAMAGED),
        (put(ENTRY, 4, -1), Ending.DAMAGED),
        (put(ENTRY, 4, 2**31 - 1), Ending.CUT),
        (put(ENTRY, 44, len(BODY) - 1), Ending.DAMAGED),
        (BODY, Ending.DAMAGED),
    ],
)
def test_what_is_no_entry_is_named(raw: bytes, ending: Ending) -> None:
    end = dledger.read_entry(raw, 0, len(raw))

    assert isinstance(end, UnitEnd)
    assert (end.ending, end.at) == (ending, 0)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (ENTRY, "entry"),
        (BODY, "record"),
        (put(BODY, 0, 1), "record"),
        (build_blank(100), "record-blank"),
        (dledger.build_blank(100), "blank"),
        (bytes(8), "unwritten"),
        (b"", "unwritten"),
        (b"\x01", "unknown"),
        (put(ENTRY, 0, 3), "unknown"),
        (put(ENTRY, 0, 0), "unknown"),
        (dledger.build_blank(8)[:7], "unknown"),
    ],
)
def test_entries_and_plain_records_are_told_apart(raw: bytes, kind: str) -> None:
    assert dledger.kind_at(raw, 0, len(raw)) == kind


def test_a_blank_needs_8_bytes() -> None:
    assert dledger.build_blank(8) == b"\xff\xff\xff\xff\x00\x00\x00\x08"
    with pytest.raises(BadLength):
        dledger.build_blank(7)


def test_property_files() -> None:
    assert dledger.parse_checkpoint(b"endIndex=12\ncommittedIndex=-1\n") == (12, -1)
    assert dledger.parse_checkpoint(b"#a=b\r\n endIndex = 3 \r\n") == (3, -1)
    assert dledger.parse_checkpoint(b"!committedIndex=5\n#endIndex=6\nendIndex=-9223372036854775808") == (-(2**63), -1)
    assert dledger.parse_current_term(b"currTerm=5\nvoteLeader=n0\n") == (5, "n0")
    assert dledger.parse_current_term(b"") == (-1, "")


@pytest.mark.parametrize("data", [b"endIndex=\xff", b"endIndex=x", b"endIndex=" + b"9" * 5000, "endIndex=²".encode()])
def test_bad_property_files(data: bytes) -> None:
    with pytest.raises(BadText):
        dledger.parse_checkpoint(data)
