"""What a consumer's pull accepts as a record: only bytes with the right position and length."""

import struct

import pytest

from formats.layouts.codes import BORN_V6, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, STORE_V6
from formats.message.build import pack
from formats.message.read import HEADS
from rmqtool.services.open_store.reading import record_in
from tests.formats.strategies import a_record

_BASE, _AT = 1 << 30, 40


def _file(raw: bytes, after: int = 100) -> memoryview:
    return memoryview(bytes(_AT) + raw + bytes(after))


def _raw(**changes: object) -> bytes:
    return pack(a_record(physical_offset=_BASE + _AT, **changes))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("flags", [0, BORN_V6, STORE_V6, BORN_V6 | STORE_V6])
def test_a_record_of_any_form_is_taken_whole(flags: int, version: int) -> None:
    raw = _raw(
        born_address=bytes(16 if flags & BORN_V6 else 4),
        store_address=bytes(16 if flags & STORE_V6 else 4),
        version=version,
    )

    for size in (None, len(raw)):
        for file in (_file(raw), _file(raw, after=0)):
            record = record_in(file, _BASE, _AT, size)
            assert record is not None
            assert bytes(record) == raw


@pytest.mark.parametrize("size", [0, 90, -1, 1 << 30])
def test_a_size_that_cannot_be_is_not_taken(size: int) -> None:
    raw = struct.pack(">i", size) + _raw()[4:]

    assert record_in(_file(raw), _BASE, _AT) is None
    assert record_in(_file(raw), _BASE, _AT, size) is None


def test_what_is_another_record_than_the_entry_says_is_not_taken() -> None:
    raw = _raw()
    at = HEADS[0].offsets["physical_offset"]

    assert record_in(_file(raw), _BASE, _AT, len(raw) - 1) is None
    assert record_in(_file(raw), _BASE, _AT + 1) is None
    assert record_in(_file(raw), _BASE + 1, _AT) is None
    for other in (_BASE, 0, -1):
        assert record_in(_file(raw[:at] + struct.pack(">q", other) + raw[at + 8 :]), _BASE, _AT) is None


@pytest.mark.parametrize("magic", [0, MAGIC_BLANK, MAGIC_V1 + 1, MAGIC_V2 + 1, -1])
def test_what_has_not_the_mark_of_a_record_is_not_taken(magic: int) -> None:
    raw = _raw()

    assert record_in(_file(raw[:4] + struct.pack(">i", magic) + raw[8:]), _BASE, _AT) is None


def test_a_file_that_ends_too_early_has_no_record() -> None:
    raw = _raw()

    for length in range(len(raw)):
        assert record_in(memoryview(bytes(_AT) + raw[:length]), _BASE, _AT) is None
    assert record_in(_file(raw), _BASE, len(_file(raw))) is None
