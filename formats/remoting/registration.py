"""The compressed form of a broker's registration (body.RegisterBrokerBody, common.TopicConfig).

Inflated, it consists of the data version (JSON), the topics (lines of text), the filter servers (JSON) and, since 5.0,
the static topic mappings (JSON). Items are preceded by their length, lists by their count, as 32-bit big-endian ints.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from formats.errors import BadLength, BadText, FormatError, Truncated
from formats.fastjson.declare import from_json, to_json
from formats.fastjson.dialects import BODY
from formats.fastjson.read import loads
from formats.fastjson.values import Key, Value
from formats.fastjson.write import dumps
from formats.message.bodies import decompress
from formats.model.topics import DataVersion, TopicConfig
from formats.primitives import COMPRESSED
from formats.remoting.bodies import RegisterBrokerBody, TopicTable
from formats.remoting.codes import MAX_FRAME
from formats.remoting.shapes import MappingInfo

MAX_INFLATED = MAX_FRAME
"""Maximum inflated size of a registration: the same as for an uncompressed one."""

_INT = struct.Struct(">i")
_FIELDS = 5  # of a topic, before its attributes


def read(body: bytes, *, mappings: bool) -> RegisterBrokerBody:
    """Decode a compressed registration.

    Args:
        mappings: whether the sender is 5.0 or later.

    Raises:
        FormatError: the input is malformed or inflates to more than `MAX_INFLATED` bytes. ``at`` counts inflated bytes.
    """
    data = decompress(body, COMPRESSED, limit=MAX_INFLATED)
    reader = _Reader(data)
    version = from_json(DataVersion, reader.json())
    topics = {topic.topic_name or "": topic for topic in reader.items(reader.topic)}
    filters = reader.json()
    if not isinstance(filters, list | None) or any(not isinstance(item, str) for item in filters or ()):
        raise BadText(reader.at, "filter servers that are not a list of texts")
    infos = None
    if mappings:
        mappings_read = [from_json(MappingInfo, value) for value in reader.items(reader.json)]
        infos = {info.topic or "": info for info in mappings_read}
    table = TopicTable(topics, version, topic_queue_mapping_info_map=infos)
    return RegisterBrokerBody(table, [str(item) for item in filters or ()])


def build(body: RegisterBrokerBody, *, mappings: bool) -> bytes:
    """Return a registration in compressed form; fields that this form does not have are dropped.

    Args:
        mappings: whether to write it as a broker of 5.0 or later.
    """
    table = body.topic_config_serialize_wrapper
    out = bytearray(_item(dumps(to_json(table.data_version), BODY)))
    out += _INT.pack(len(table.topic_config_table))
    for topic in table.topic_config_table.values():
        out += _item(_line(topic, attributes=mappings).encode())
    filters: list[Value] = list(body.filter_server_list)
    out += _item(dumps(filters, BODY))
    if mappings:
        infos = table.topic_queue_mapping_info_map or {}
        out += _INT.pack(len(infos))
        for info in infos.values():
            out += _item(dumps(to_json(info), BODY))
    return zlib.compress(bytes(out))


def _item(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _line(topic: TopicConfig, *, attributes: bool) -> str:
    numbers = f"{topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} {topic.topic_filter_type}"
    texts = dict[Key, Value](list(topic.attributes.items()))
    return f"{topic.topic_name} {numbers}" + (f" {dumps(texts, BODY).decode()}" if attributes else "")


class _Reader:
    """Sequential reader of the inflated form."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self) -> int:
        if self.at + _INT.size > len(self.data):
            raise Truncated(self.at, "a registration that ends too early")
        (number,) = _INT.unpack_from(self.data, self.at)
        self.at += _INT.size
        return int(number)

    def text(self) -> bytes:
        length = self.number()
        if not 0 <= length <= len(self.data) - self.at:
            raise BadLength(self.at - _INT.size, f"a text of {length} bytes where {len(self.data) - self.at} follow")
        self.at += length
        return self.data[self.at - length : self.at]

    def items(self, read: Callable[[], Any]) -> Iterator[Any]:
        count = self.number()
        if not 0 <= count <= (len(self.data) - self.at) // _INT.size:
            raise BadLength(self.at - _INT.size, f"{count} entries where {len(self.data) - self.at} bytes follow")
        for _ in range(count):
            yield read()

    def json(self) -> Value:
        start = self.at + _INT.size
        try:
            return loads(self.text(), BODY)
        except BadText as err:
            raise BadText(start + err.at, err.reason) from None

    def topic(self) -> TopicConfig:
        start = self.at
        try:
            parts = self.text().decode().split(" ")
            if len(parts) < _FIELDS or not parts[0]:
                raise BadText(start, f"a topic of {len(parts)} words")
            reads, writes, perm = map(_number, parts[1:4])
        except FormatError:
            raise
        except ValueError:
            raise BadText(start, "a topic whose numbers cannot be read") from None
        texts: Mapping[str, str] = {}
        # blanks inside the attributes are part of them
        if attributes := " ".join(parts[_FIELDS:]).strip():
            value: dict[Key, Value] = {"topicName": parts[0], "attributes": loads(attributes.encode(), BODY)}
            texts = from_json(TopicConfig, value).attributes
        return TopicConfig(
            topic_name=parts[0],
            read_queue_nums=reads,
            write_queue_nums=writes,
            perm=perm,
            topic_filter_type=parts[4],
            attributes=texts,
        )


def _number(text: str) -> int:
    number = int(text) if len(text) <= 11 and text.isascii() and "_" not in text else None
    if number is None or not -(1 << 31) <= number < 1 << 31:
        raise ValueError(text)
    return number
