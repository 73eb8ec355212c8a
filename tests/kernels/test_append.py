"""Records that the kernel writes are those that compose and pack make."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from formats.kernel_append import Columns, Encoder, text_table
from formats.layouts.codes import BORN_V6, STORE_V6
from formats.message.build import BLANK_SIZE, compose, pack

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


@given(st.lists(MESSAGE, min_size=1, max_size=12), st.integers(0, 2**40), st.integers(0, 9))
def test_the_kernel_writes_what_pack_makes(messages: list[dict], physical: int, first_offset: int) -> None:  # type: ignore[type-arg]
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

    def column(name: str) -> np.ndarray:  # type: ignore[type-arg]
        return np.array([m[name] for m in messages], np.int64)

    columns = Columns(
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
    encoder = Encoder(np.stack(columns), topic_table, host_table, numbers)
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
