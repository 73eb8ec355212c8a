"""Any bytes give values, an ending, or a FormatError: cut at each byte, with flipped bits, and random."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.endings import Ending
from formats.errors import FormatError
from formats.message import build as message_build
from formats.message import read as message
from formats.queues import batch as batch_consume_queue
from formats.queues import extension as consume_queue_ext
from formats.variants import dledger, timer
from tests.formats.building import dledger_entry
from tests.formats.samples import FILES, OTHERS
from tests.formats.strategies import a_record, many_examples

ALL = FILES | OTHERS
each = pytest.mark.parametrize("name", ALL)
MAGICS = [
    b"\xda\xa3\x20\xa7",
    b"\xda\xa3\x20\xab",
    b"\xcb\xd4\x31\x94",
    b"\x00\x00\x00\x34",
    b"\x7f\xff\xff\xff",
    b"\xff" * 4,
]


def reads_or_refuses(name: str, raw: bytes) -> None:
    """Read or refuse; any other exception is an error."""
    _, reader = ALL[name]
    with suppress(FormatError):
        reader(raw)


@each
def test_the_sample_itself_is_healthy(name: str) -> None:
    raw, reader = ALL[name]
    reader(raw)


@each
def test_cut_at_every_byte(name: str) -> None:
    raw, _ = ALL[name]
    for size in range(len(raw)):
        reads_or_refuses(name, raw[:size])


@each
def test_every_byte_flipped(name: str) -> None:
    raw, _ = ALL[name]
    for at in range(len(raw)):
        for mask in (0xFF, 0x80, 0x01):
            reads_or_refuses(name, raw[:at] + bytes([raw[at] ^ mask]) + raw[at + 1 :])


@each
def test_trailing_bytes(name: str) -> None:
    raw, _ = ALL[name]
    for more in (b"\0", b"\xff", bytes(64), b"\xff" * 64, raw):
        reads_or_refuses(name, raw + more)


@each
@many_examples
@given(raw=st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(MAGICS)), max_size=8).map(b"".join))
def test_made_up_bytes(name: str, raw: bytes) -> None:
    reads_or_refuses(name, raw)


@each
@many_examples
@given(data=st.data())
def test_overwritten_bytes(name: str, data: st.DataObject) -> None:
    reads_or_refuses(name, overwritten(data, ALL[name][0]))


def overwritten(data: st.DataObject, raw: bytes) -> bytes:
    """Some bytes with one to four pieces in other places than they belong."""
    changed = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        piece = data.draw(st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from(MAGICS)))
        changed[at : at + len(piece)] = piece
    return bytes(changed)


@each
@pytest.mark.parametrize("unit", [b"\0", b"\x01", b"\xff", *MAGICS], ids=bytes.hex)
def test_a_large_file_of_one_pattern_ends_in_time(name: str, unit: bytes) -> None:
    started = time.process_time()
    reads_or_refuses(name, unit * (200_000 // len(unit)))

    assert time.process_time() - started < 10  # far more than it takes, far less than a quadratic way would


UNITS: dict[str, tuple[Callable[[bytes, int, int], Any], bytes]] = {
    "record": (message.read, message_build.pack(a_record())),
    "extension unit": (consume_queue_ext.read, consume_queue_ext.build_unit(1, 2, b"map")),
    "batch entry": (
        batch_consume_queue.read,
        batch_consume_queue.build([batch_consume_queue.BatchEntry(0, 9, 7, 8, 41, 3)]),
    ),
    "timer unit": (timer.read_unit, timer.build_unit(timer.LogUnit(52, -1, 1, 8, 9, 7, 176, 99))),
    "dledger entry": (dledger.read_entry, dledger_entry(b"body", index=1, term=2, position=3)),
}


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("view", [bytes, memoryview])
def test_a_unit_is_read_where_it_lies_and_never_beyond_the_limit(name: str, view: Callable[[bytes], bytes]) -> None:
    read, unit = UNITS[name]
    raw, end = view(b"\xee" * 100 + unit * 2), 100 + len(unit)

    assert read(raw, 100, end) == read(raw, end, end + len(unit)) == read(unit, 0, len(unit))
    for limit in range(100, end):
        record = read(raw, 100, limit)
        if raw[100:limit] == bytes(limit - 100) and limit > 100:
            assert record.ending is Ending.UNWRITTEN  # the first bytes of a small size
        else:
            assert (record.ending, record.at) == (Ending.CLEAN if limit == 100 else Ending.CUT, 100)
    assert read(raw, 101, 100).ending is Ending.CLEAN


def test_errors_travel_between_processes() -> None:
    import pickle

    for kind in FormatError.__subclasses__():
        error = pickle.loads(pickle.dumps(kind(7, "reason")))
        assert type(error) is kind
        assert (error.at, error.reason, str(error)) == (7, "reason", "reason at byte 7")
