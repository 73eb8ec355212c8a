"""One declaration, three derived forms: construct, struct and NumPy agree on every layout."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from construct import Int32ub, Struct
from hypothesis import given
from hypothesis import strategies as st

from formats.layouts import derive, derived, marks, message, queues
from formats.layouts.codes import BORN_V6, MAGIC_V1, MAGIC_V2, STORE_V6
from tests.formats.strategies import FLATS, a_record, examples

ROOT = Path(__file__).parents[2]
SIZES = {  # as the reference has them
    "HEAD_V4_V4": 88,
    "HEAD_V6_V4": 100,
    "HEAD_V4_V6": 100,
    "HEAD_V6_V6": 112,
    "BLANK": 8,
    "BATCH_ITEM_HEAD": 20,
    "CQ_ENTRY": 20,
    "CQ_EXT_HEAD": 20,
    "BATCH_CQ_ENTRY": 46,
    "ROCKS_TOPIC_HEAD": 5,
    "ROCKS_UNIT_KEY_TAIL": 14,
    "ROCKS_UNIT": 28,
    "ROCKS_OFFSET_KEY_TAIL": 9,
    "ROCKS_OFFSET": 16,
    "ROCKS_BUILT": 8,
    "POP_KEY_HEAD": 8,
    "POP_KEY_TAIL": 14,
    "CONFIG_HEAD": 4,
    "CONFIG_NAME": 2,
    "CONFIG_QUEUE": 5,
    "CONFIG_OFFSET": 8,
    "CONFIG_VERSION": 24,
    "TIMELINE_KEY_HEAD": 8,
    "TIMELINE_VALUE": 12,
    "HALF_KEY_HEAD": 8,
    "HALF_VALUE": 8,
    "KEY_HOUR": 8,
    "KEY_TAIL": 8,
    "POSITION": 8,
    "INDEX_HEADER": 40,
    "INDEX_SLOT": 4,
    "INDEX_ENTRY": 20,
    "CHECKPOINT_HEAD": 48,
    "TIMER_SLOT": 32,
    "TIMER_LOG_UNIT": 52,
    "TIMER_LOG_BLANK": 16,
    "TIMER_CHECKPOINT": 56,
    "DLEDGER_ENTRY_HEAD": 48,
    "DLEDGER_BLANK": 8,
    "DLEDGER_INDEX_UNIT": 32,
    "TIERED_INDEX_HEAD": 28,
    "TIERED_INDEX_SLOT": 8,
    "TIERED_INDEX_ITEM": 28,
    "TIERED_LOCAL_INDEX_ITEM": 32,
    "FRAME_HEAD": 8,
    "REMOTING_HEAD": 13,
}


def test_the_committed_module_is_what_the_declarations_give() -> None:
    assert Path(derived.__file__).read_text() == derive.source()


def test_the_derive_command_writes_that_module() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "formats.layouts.derive"], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert run.stdout == derive.source()


def test_every_layout_has_a_derived_form() -> None:
    assert set(FLATS) == set(derive.LAYOUTS) == set(SIZES)


@pytest.mark.parametrize("variable", SIZES)
def test_sizes_are_those_of_the_reference(variable: str) -> None:
    flat, (name, layout) = FLATS[variable], derive.LAYOUTS[variable]

    assert flat.name == name
    assert flat.size == layout.sizeof() == flat.dtype.itemsize == SIZES[variable]


@pytest.mark.parametrize("variable", SIZES)
def test_field_offsets_agree(variable: str) -> None:
    flat, (_, layout) = FLATS[variable], derive.LAYOUTS[variable]
    at = 0
    for named in layout.subcons:
        assert flat.offsets[named.name] == flat.dtype.fields[named.name][1] == at
        at += named.sizeof()
    assert list(flat.offsets) == list(flat.dtype.names) == [named.name for named in layout.subcons]


@pytest.mark.parametrize("variable", SIZES)
@examples
@given(data=st.data())
def test_all_three_read_the_same_from_any_bytes(variable: str, data: st.DataObject) -> None:
    flat, (_, layout) = FLATS[variable], derive.LAYOUTS[variable]
    raw = data.draw(st.binary(min_size=flat.size, max_size=flat.size))
    parsed = layout.parse(raw)
    row = np.frombuffer(raw, flat.dtype)[0]

    for name, value in flat.as_dict(raw).items():
        from_numpy = row[name].tobytes() if isinstance(value, bytes) else int(row[name])
        assert value == parsed[name] == from_numpy, name
    assert layout.build(parsed) == flat.pack(*flat.unpack_from(raw, 0)) == raw


@pytest.mark.parametrize("variable", SIZES)
@examples
@given(data=st.data())
def test_some_fields_alone_are_read_as_with_all_others(variable: str, data: st.DataObject) -> None:
    flat = FLATS[variable]
    chosen = [name for name in flat.names if data.draw(st.booleans())]
    raw = data.draw(st.binary(min_size=flat.size + 3, max_size=flat.size + 3))
    whole = flat.as_dict(raw, 3)

    assert flat.field(*chosen).unpack_from(raw, 3) == tuple(whole[name] for name in chosen)
    assert all(flat.field(name).unpack_from(raw, 3) == (whole[name],) for name in chosen)


def test_fields_in_another_order_than_that_of_the_layout_are_not_read() -> None:
    with pytest.raises(ValueError, match="magic comes before"):
        FLATS["HEAD_V4_V4"].field("body_crc", "magic")


def test_derive_refuses_what_has_no_fixed_width() -> None:
    with pytest.raises(TypeError):
        derive.flat_fields(queues.EXT_UNIT)


def test_derive_refuses_unsigned_fields() -> None:
    with pytest.raises(TypeError):
        derive.flat_fields(Struct("x" / Int32ub))


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("flags", [0, BORN_V6, STORE_V6, BORN_V6 | STORE_V6])
def test_the_record_declaration_works_out_the_size_of_what_it_reads(flags: int, magic: int) -> None:
    record = a_record(
        born_address=bytes(16 if flags & BORN_V6 else 4),
        store_address=bytes(16 if flags & STORE_V6 else 4),
        version=1 if magic == MAGIC_V1 else 2,
    )
    layout = message.record(flags, magic)
    raw = layout.build({**record._asdict(), "topic_length": 11, "properties_length": 66})

    assert len(raw) == layout.parse(raw).computed_size == record.total_size


def test_the_checkpoint_declaration_is_a_page() -> None:
    assert marks.CHECKPOINT.sizeof() == 4096
