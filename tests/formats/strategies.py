"""Hypothesis strategies for the codecs, and small shared samples."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from formats.layouts import derived
from formats.layouts.flat import Flat
from formats.message.build import compose
from formats.message.read import Record
from tests.amounts import some

examples = settings(max_examples=some(12, 60))
many_examples = settings(max_examples=some(16, 80))

FLATS = {name: value for name, value in vars(derived).items() if isinstance(value, Flat)}
_RANGES = {"b": 8, "h": 16, "i": 32, "q": 64}


def signed(bits: int) -> st.SearchStrategy[int]:
    """Integers of a width, often edge values."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return st.one_of(st.integers(low, high), st.sampled_from([low, -1, 0, 1, high]))


def values_of(layout: Flat) -> st.SearchStrategy[tuple[Any, ...]]:
    """Field values of a flat layout."""
    fields = []
    for _, code in layout.fields:
        if code.endswith("s"):
            fields.append(st.binary(min_size=int(code[:-1]), max_size=int(code[:-1])))
        else:
            fields.append(signed(_RANGES[code]))
    return st.tuples(*fields)


addresses = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16))


@st.composite
def records(draw: st.DrawFn) -> Record:
    """A record that a broker could have stored, of any version and host width."""
    version = draw(st.sampled_from([1, 2]))
    return compose(
        topic=draw(st.binary(min_size=1, max_size=127 if version == 1 else 255)),
        queue_id=draw(signed(32)),
        queue_offset=draw(signed(64)),
        physical_offset=draw(signed(64)),
        body=draw(st.binary(max_size=60)),
        properties=draw(st.one_of(st.binary(max_size=60), st.just(b"DELAY\x013\x02KEYS\x01a b"))),
        flag=draw(signed(32)),
        sys_flag=draw(st.integers(0, 0x7FF)),
        born_timestamp=draw(signed(64)),
        born_address=draw(addresses),
        born_port=draw(signed(32)),
        store_timestamp=draw(signed(64)),
        store_address=draw(addresses),
        store_port=draw(signed(32)),
        reconsume_times=draw(signed(32)),
        prepared_transaction_offset=draw(signed(64)),
        version=version,
    )


def a_record(**changes: Any) -> Record:
    """The record of the reference's first worked example, optionally changed."""
    fields: dict[str, Any] = {
        "topic": b"OrderEvents",
        "queue_id": 3,
        "queue_offset": 41,
        "physical_offset": 0x40001000,
        "body": b'{"id":8}',
        "properties": b"KEYS\x01order-7\x02TAGS\x01refund\x02UNIQ_KEY\x01C000020A1A2B18B4AAC247B760000001",
        "born_timestamp": 1700000000000,
        "born_address": bytes([192, 0, 2, 10]),
        "born_port": 51234,
        "store_timestamp": 1700000000123,
        "store_address": bytes([198, 51, 100, 7]),
        "store_port": 10911,
    }
    return compose(**(fields | changes))
