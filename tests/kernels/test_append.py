"""Records written in bulk equal those of compose and pack, in either code; and batches are split."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import BadLength
from formats.layouts.codes import BORN_V6, STORE_V6
from formats.message.bodies import BatchItem, build_batch
from formats.message.build import BLANK_SIZE, compose, pack
from rmqtool.kernels.append import BatchReader, Encoder, text_table
from rmqtool.kernels.load.library import Implementation
from rmqtool.kernels.load.memory import address_of
from rmqtool.kernels.tables.messages import MessageColumns
from tests.kernels.codes import both

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
HOST = st.tuples(st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), INT)
MESSAGE = st.fixed_dictionaries(
    {
        "topic": st.binary(min_size=1, max_size=5) | st.binary(min_size=126, max_size=130),
        "queue_id": st.integers(0, 3),
        "flag": INT,
        "sys_flag": st.integers(0, 0x7FF).map(lambda flag: flag & ~(BORN_V6 | STORE_V6)),
        "born_timestamp": LONG,
        "store_timestamp": LONG,
        "born": HOST,
        "store": HOST,
        "reconsume_times": INT,
        "prepared_transaction_offset": LONG,
        "body": st.binary(max_size=100),
        "properties": st.binary(max_size=60),
    }
)


@both
@given(st.lists(MESSAGE, min_size=1, max_size=12), st.integers(0, 2**40), st.integers(0, 9))
def test_what_is_written_is_what_pack_makes(
    code: Implementation,
    messages: list[dict],  # type: ignore[type-arg]
    physical: int,
    first_offset: int,
) -> None:
    topics = list(dict.fromkeys(m["topic"] for m in messages))
    hosts = list(dict.fromkeys(h for m in messages for h in (m["born"], m["store"])))
    queues = list(dict.fromkeys((m["topic"], m["queue_id"]) for m in messages))
    records, at, following = [], physical, dict.fromkeys(queues, first_offset)
    for m in messages:
        queued = m["sys_flag"] & 0xC in (0, 8)
        record = compose(
            topic=m["topic"],
            queue_id=m["queue_id"],
            queue_offset=following[m["topic"], m["queue_id"]] if queued else 0,
            physical_offset=at,
            body=m["body"],
            properties=m["properties"],
            flag=m["flag"],
            sys_flag=m["sys_flag"],
            born_timestamp=m["born_timestamp"],
            born_address=m["born"][0],
            born_port=m["born"][1],
            store_timestamp=m["store_timestamp"],
            store_address=m["store"][0],
            store_port=m["store"][1],
            reconsume_times=m["reconsume_times"],
            prepared_transaction_offset=m["prepared_transaction_offset"],
            version=1 if len(m["topic"]) <= 127 else 2,
        )
        following[m["topic"], m["queue_id"]] += queued
        records.append(pack(record))
        at += len(records[-1])
    texts = [m["topic"] for m in messages]
    bodies, properties = b"".join(m["body"] for m in messages), b"".join(m["properties"] for m in messages)
    body_lengths = np.array([len(m["body"]) for m in messages])
    property_lengths = np.array([len(m["properties"]) for m in messages])
    body_base, property_base = (np.frombuffer(data or b"\0", np.uint8).ctypes.data for data in (bodies, properties))
    wide = [
        m["sys_flag"] | BORN_V6 * (len(m["born"][0]) == 16) | STORE_V6 * (len(m["store"][0]) == 16) for m in messages
    ]

    def column(name: str) -> "np.ndarray[Any, np.dtype[np.int64]]":
        return np.array([m[name] for m in messages], np.int64)

    columns = MessageColumns(
        topic=np.array([topics.index(text) for text in texts]),
        queue=np.array([queues.index((m["topic"], m["queue_id"])) for m in messages]),
        queue_id=column("queue_id"),
        flag=column("flag"),
        sys_flag=np.array(wide),
        born_timestamp=column("born_timestamp"),
        store_timestamp=column("store_timestamp"),
        born_host=np.array([hosts.index(m["born"]) for m in messages]),
        store_host=np.array([hosts.index(m["store"]) for m in messages]),
        reconsume_times=column("reconsume_times"),
        prepared_transaction_offset=column("prepared_transaction_offset"),
        body_at=body_base + np.cumsum(body_lengths) - body_lengths,
        body_length=body_lengths,
        properties_at=property_base + np.cumsum(property_lengths) - property_lengths,
        properties_length=property_lengths,
    )
    topic_table, _topics = text_table(topics)
    host_table, _hosts = text_table([address for address, _port in hosts], [port for _address, port in hosts])
    numbers = np.full(len(queues), first_offset, np.int64)
    encoder = Encoder(np.stack(columns), topic_table, host_table, numbers, code=code)
    whole = b"".join(records)
    # a file that is one byte too short for the last record, then the rest of them in the next one
    room = len(whole) + BLANK_SIZE - 1
    out = bytearray(len(whole) + 100)
    row, size = encoder.encode(out, room, physical, 0)
    assert (row, bytes(out[:size])) == (len(messages) - 1, b"".join(records[:-1]))
    assert not any(out[size:])
    row, more = encoder.encode(out, 1 << 30, physical + size, row)
    assert (row, bytes(out[:more])) == (len(messages), records[-1])
    assert numbers.tolist() == [following[queue] for queue in queues]
    assert encoder.answer[1].tolist() == [len(record) for record in records]
    assert encoder.answer[0].tolist() == [physical + sum(map(len, records[:i])) for i in range(len(records))]


NAMED = [b"INNER_BASE\x015", b"INNER_\x01", b"INNER_", b"INNE\x01", b"a\x01INNER_"]
ITEM = st.builds(
    BatchItem,
    INT,
    st.binary(max_size=40),
    st.binary(max_size=30)
    | st.lists(st.sampled_from([b"INNER_BASE\x015", b"INNER_\x01", b"INNER_", b"INNE\x01", b"a\x01INNER_"])).map(
        b"\x02".join
    )
    | st.just(b"a\x01b\x02"),
)
TEXT_ROWS = [
    MessageColumns._fields.index(name) for name in ("body_at", "body_length", "properties_at", "properties_length")
]


@both
@given(st.lists(ITEM, max_size=8), st.sampled_from([b"", b"z\x01w"]))
def test_a_batch_is_taken_apart(code: Implementation, items: list[BatchItem], more: bytes) -> None:
    body = build_batch(items)
    table = np.full((len(MessageColumns._fields), 8), -1, np.int64)
    batch = BatchReader(table, code=code).read(body, len(more))
    assert batch is not None
    assert batch.rows == len(items)
    assert batch.longest == max((len(item.properties) for item in items), default=0)
    names = [name for item in items for name in item.properties.split(b"\x02")]
    assert batch.inner == sum(name.startswith(b"INNER_") for name in names)
    expected, start = 0, address_of(body)[0]
    for row, item in enumerate(items):
        body_at, body_length, at, length = (table[TEXT_ROWS, row] - [start, 0, start, 0]).tolist()
        assert table[MessageColumns._fields.index("flag"), row] == item.flag
        assert body[body_at : body_at + body_length] == item.body
        assert body[at : at + length] == item.properties
        apart = more and item.properties and not item.properties.endswith(b"\x02")
        expected += len(item.body) + len(item.properties) + len(more) + bool(apart)
    assert batch.stored == expected
    assert (table[:, len(items) :] == -1).all()


@both
def test_properties_are_put_behind_each_messages_own(code: Implementation) -> None:
    items = [BatchItem(n, b"body", own) for n, own in enumerate((b"", b"a\x01b", b"a\x01b\x02"))]
    table = np.zeros((len(MessageColumns._fields), 3), np.int64)
    body = build_batch(items)
    BatchReader(table, code=code).read(body, 3)
    topics, _topics = text_table([b"T"])
    hosts, _hosts = text_table([bytes(4)], [10911])
    following = np.array([7], np.int64)
    out = bytearray(1000)
    encoder = Encoder(table, topics, hosts, following, code=code)
    assert encoder.encode(out, 1 << 30, 0, 0, b"z\x01w", 2)[0] == 2  # not the last one
    assert encoder.encode(out, 1 << 30, 0, 0, b"z\x01w")[0] == len(items)
    at = 0
    for size, own in zip(
        encoder.answer[1].tolist(), (b"z\x01w", b"a\x01b\x02z\x01w", b"a\x01b\x02z\x01w"), strict=True
    ):
        assert out[at : at + size].endswith(len(own).to_bytes(2, "big") + own)
        at += size
    assert encoder.answer[2].tolist() == [9, 10, 11]
    assert following.tolist() == [12]


@both
def test_a_table_too_short_for_a_batch_is_told(code: Implementation) -> None:
    body = build_batch([BatchItem(0, b"x", b"")] * 5)
    table = np.zeros((len(MessageColumns._fields), 4), np.int64)
    reader = BatchReader(table, code=code)
    assert reader.read(body) is None
    batch = reader.read(body[: len(body) * 4 // 5])
    assert batch is not None
    assert batch.rows == 4


@both
@given(st.data())
def test_no_batch_is_told_where_it_ends_to_be_one(code: Implementation, data: st.DataObject) -> None:
    good = build_batch([BatchItem(1, b"body", b"a\x01b"), BatchItem(2, b"", b"c\x01d")])
    at = data.draw(st.integers(0, len(good) - 1))
    spoilt = bytearray(good)
    spoilt[at] ^= data.draw(st.integers(1, 255))
    for raw in (good[:at], bytes(spoilt)):
        table = np.zeros((len(MessageColumns._fields), 4), np.int64)
        told: list[object] = []
        for each in (code, Implementation.PLAIN):
            try:
                told.append(BatchReader(table, code=each).read(raw))
            except BadLength as err:
                told.append(err.at)
        assert told[0] == told[1]


@both
def test_only_whole_tables_are_taken(code: Implementation) -> None:
    table = np.zeros((len(MessageColumns._fields), 4), np.int64)
    texts, _keep = text_table([b"T"])
    odd: list[Any] = [table[:, ::2], table.astype(np.int32)]
    for wrong in odd:
        with pytest.raises(ValueError, match="one behind the other"):
            Encoder(wrong, texts, texts, np.zeros(1, np.int64), code=code)
        with pytest.raises(ValueError, match="one behind the other"):
            BatchReader(wrong, code=code)
