"""The offset file of a broadcasting client: ``<base>/<clientId>/<group>/offsets.json``.

fastjson writes a map whose keys are objects, which standard JSON parsers reject::

    {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:12}}

Source: client.consumer.store.LocalFileOffsetStore, OffsetSerializeWrapper; message-services 13.3.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from formats.errors import BadText
from formats.fastjson.read import loads
from formats.fastjson.values import Value
from formats.fastjson.write import dumps

# possessive quantifiers: a match never backtracks, so reading is linear in the input
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}:]', re.DOTALL)
_TABLE = "offsetTable"


class QueueName(NamedTuple):
    """A queue as named by a client (``MessageQueue``); sorts as in Java."""

    topic: str
    broker_name: str
    queue_id: int


def parse(data: bytes) -> dict[QueueName, int]:
    """Return the next offset to consume for each queue, in file order.

    Raises:
        BadText: the file has another form.
    """
    value = loads(_as_lists(data), cycles=False)
    table = value.get(_TABLE, []) if isinstance(value, dict) else None
    if not isinstance(table, list):
        raise BadText(0, "not the offsets of a broadcasting client: no offsetTable of queues")
    if len(table) % 2:
        raise BadText(0, f"{_TABLE}: a queue without an offset")
    return dict(_entry(key, offset) for key, offset in zip(table[::2], table[1::2], strict=True))


def _entry(key: Value, offset: Value) -> tuple[QueueName, int]:
    if isinstance(key, dict):
        topic, broker, queue_id = (key.get(name) for name in ("topic", "brokerName", "queueId"))
        if (
            isinstance(topic, str)
            and isinstance(broker, str)
            and type(queue_id) is int
            and type(offset) is int
            and -(2**63) <= offset < 2**63
        ):
            return QueueName(topic, broker, queue_id), offset
    raise BadText(0, f"{_TABLE}: an entry that is not a queue (topic, brokerName, queueId) and its offset")


def _as_lists(data: bytes) -> bytes:
    """Rewrite the table as a list of alternating keys and values, without changing any byte offset."""
    out = bytearray(data)
    depth, table_at, after_key = 0, -1, False
    name = b""
    for match in _TOKEN.finditer(data):
        token, at = match.group(), match.start()
        if token == b"{":
            depth += 1
            if depth == 2 and name == b'"offsetTable"':
                out[at : at + 1], table_at = b"[", depth
        elif token == b"}":
            if depth == table_at:
                out[at : at + 1], table_at = b"]", -1
            after_key = depth == table_at + 1 and table_at > 0
            depth -= 1
        elif token == b":":
            if after_key:
                out[at : at + 1] = b","
            after_key = False
        elif depth == 1:
            name = token
    return bytes(out)


def build(offsets: Mapping[QueueName, int]) -> bytes:
    """Return the file as a 4.9 client writes it, except that queues are in the given order."""
    if not offsets:
        return b'{\n\t"offsetTable":{}\n}'
    entries = b",".join(_build_key(queue) + b":" + str(offset).encode() for queue, offset in offsets.items())
    return b'{\n\t"offsetTable":{' + entries + b"\n\t}\n}"


def _build_key(queue: QueueName) -> bytes:
    """Return a key: an object on lines of its own, indented by two levels."""
    lines = dumps({"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}).split(b"\n")
    return b"\n\t\t".join(lines)


def brokers(offsets: Mapping[QueueName, int]) -> Iterator[str]:
    """Return the names of all brokers that the client has offsets for, sorted."""
    return iter(sorted({queue.broker_name for queue in offsets}))
