"""The fields of machine output, by RocketMQ's own names. JSON, NDJSON, CSV and Parquet may grow, never change.

Names follow org.apache.rocketmq.common.message.MessageExt; times are ms since the epoch.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from formats.errors import FormatError
from formats.message.ids import offset_id
from formats.message.properties import KEYS, TAGS, UNIQ_KEY, parse, split_keys
from formats.message.read import Record
from formats.primitives import COMPRESSED, COMPRESSION_MASK, host_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

BodyForm = str | Callable[[bytes], Mapping[str, Any]]
"""The name of a form of bodies (:func:`render_body`), or what makes the keys ``body``, ``bodyEncoding`` and others."""

MESSAGE_FIELDS = (
    "topic",
    "queueId",
    "queueOffset",
    "physicalOffset",
    "storeSize",
    "sysFlag",
    "flag",
    "bodyCrc",
    "bornTimestamp",
    "storeTimestamp",
    "bornHost",
    "storeHost",
    "reconsumeTimes",
    "preparedTransactionOffset",
    "offsetMsgId",
    "msgId",
    "tags",
    "keys",
    "properties",
    "bodyLength",
    "body",
    "bodyEncoding",
)
GREP_FIELDS = (*MESSAGE_FIELDS, "matchedIn", "match", "neighbourOf")
QUEUE_ENTRY_FIELDS = ("topic", "queueId", "queueOffset", "physicalOffset", "size", "tagsCode", "batchNum")
PUT_FIELDS = (
    "line",
    "status",
    "topic",
    "queueId",
    "queueOffset",
    "physicalOffset",
    "storeSize",
    "storeTimestamp",
    "offsetMsgId",
    "reason",
)
SEND_FIELDS = (
    "line",
    "status",
    "topic",
    "brokerName",
    "queueId",
    "queueOffset",
    "msgId",
    "offsetMsgId",
    "reason",
    "maybeStored",
)
REPLAY_FIELDS = ("topic", "queueId", "status", "messages", "toTopic", "brokerName", "toQueueId", "reason")
MIRROR_FIELDS = ("topic", "brokerName", "queueId", "firstOffset", "nextOffset", "messages", "expired")


_ROWS = 1 << 12  # rows at a time
_LEVELS_AROUND = 64  # of objects around a body, and of calls around what writes them


def row_dict(row: Any) -> dict[str, Any]:
    """A row that is a dataclass of plain values as a dict; ``asdict`` copies each value, at ten times the cost."""
    kind: type[DataclassInstance] = type(row)
    names, values_of = _fields_of(kind)
    return dict(zip(names, values_of(row), strict=True))


@cache
def _fields_of(kind: "type[DataclassInstance]") -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """The names of a dataclass's fields, and what gets all their values from a row; there may be millions of rows."""
    names = tuple(kind.__dataclass_fields__)
    return names, PlainRow.values_of(names)


class PlainRow:
    """Base of rows that are dataclasses of plain values.

    Rows of which there may be millions are not frozen: that would make each three times as expensive.
    """

    __slots__ = ()

    @classmethod
    def values_of(cls, names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
        """What gets the values of some fields from a row."""
        return attrgetter(*names) if len(names) > 1 else lambda row: tuple(getattr(row, name) for name in names)

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return row_dict(self)


class PlainRows:
    """Rows of one kind as the tuples of their values: of millions, an object for each would cost more than the rest.

    Attributes:
        kind: the dataclass whose fields, in order, the values are.
        values: one tuple for each row.
    """

    __slots__ = ("kind", "values")

    def __init__(self, kind: type[PlainRow], values: list[tuple[Any, ...]]) -> None:
        self.kind, self.values = kind, values

    @classmethod
    def of(cls, kind: type[PlainRow], rows: "Iterable[PlainRow | PlainRows]") -> "Iterator[PlainRows]":
        """Rows given one by one or several at a time, a thousand or more at a time."""
        plain: Any = kind  # a dataclass, as all are
        values_of = _fields_of(plain)[1]
        values: list[tuple[Any, ...]] = []
        for row in rows:
            if isinstance(row, PlainRows):
                values += row.values
            else:
                values.append(values_of(row))
            if len(values) >= _ROWS:
                yield cls(kind, values)
                values = []
        if values:
            yield cls(kind, values)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values."""
        kind: Any = self.kind
        return _fields_of(kind)[0]

    def column(self, name: str) -> list[Any]:
        """The values of a field."""
        return [*map(itemgetter(self.names.index(name)), self.values)]

    def dicts(self) -> Iterator[dict[str, Any]]:
        """The rows as :meth:`PlainRow.to_dict` has them."""
        return (dict(zip(self.names, values, strict=True)) for values in self.values)

    def only(self, column: str, wanted: Callable[[Any], Any]) -> "PlainRows":
        """The rows in which a field has a wanted value."""
        at = self.names.index(column)
        return PlainRows(self.kind, [values for values in self.values if wanted(values[at])])


def message_row(record: Record, physical_offset: int, body_mode: BodyForm = "auto") -> dict[str, Any]:
    """One message as machine output has it.

    ``msgId`` is the client's unique id where there is one, else the offset id. ``bodyLength`` and ``body`` are after
    decompression; a body that does not inflate is given as stored, and ``bodyError`` says why.

    Args:
        physical_offset: where the record really lies.
        body_mode: how to show the body.
    """
    properties = parse(record.properties)
    message_id = offset_id(record.store_address, record.store_port, physical_offset)
    body, error = record.body, None
    if record.sys_flag & COMPRESSED:
        from formats.message.bodies import decompress

        try:
            body = decompress(body, record.sys_flag)
        except FormatError as err:
            error = str(err)
    if isinstance(body_mode, str):
        rendered, encoding = render_body(body, body_mode)
        shown: Mapping[str, Any] = {"body": rendered, "bodyEncoding": encoding}
    else:
        shown = body_mode(body)
    row: dict[str, Any] = {
        "topic": record.topic.decode("utf-8", "replace"),
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": physical_offset,
        "storeSize": record.total_size,
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "bodyCrc": record.body_crc,
        "bornTimestamp": record.born_timestamp,
        "storeTimestamp": record.store_timestamp,
        "bornHost": host_text(record.born_address, record.born_port),
        "storeHost": host_text(record.store_address, record.store_port),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "offsetMsgId": message_id,
        "msgId": properties.get(UNIQ_KEY, message_id),
        "tags": properties.get(TAGS),
        "keys": split_keys(properties.get(KEYS, "")),
        "properties": properties,
        "bodyLength": len(body),
        **shown,
    }
    if error:
        row["bodyError"] = error
    return row


def _utf8(body: bytes) -> tuple[Any, str]:
    return body.decode("utf-8", "replace"), "utf8"


def _json(body: bytes) -> tuple[Any, str]:
    import json
    from functools import reduce

    try:
        value = json.loads(body, parse_constant=_no_number, parse_float=_finite)
        # what only just could be read may be nested too deeply to be written, inside a row and by a deeper call
        json.dumps(reduce(lambda inner, _level: [inner], range(_LEVELS_AROUND), value))
    except (ValueError, RecursionError):
        return _auto(body)
    return value, "json"


def _no_number(word: str) -> Any:
    """Python reads NaN and Infinity, and would write them; no other reader of JSON takes them."""
    raise ValueError(f"{word} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    return value if abs(value) < float("inf") else _no_number(text)


def _hex(body: bytes) -> tuple[Any, str]:
    return body.hex(), "hex"


def _base64(body: bytes) -> tuple[Any, str]:
    import base64

    return base64.b64encode(body).decode(), "base64"


def _auto(body: bytes) -> tuple[Any, str]:
    try:
        return body.decode(), "utf8"
    except UnicodeDecodeError:
        return _base64(body)


_RENDER: dict[str, Callable[[bytes], tuple[Any, str]]] = {
    "auto": _auto,
    "utf8": _utf8,
    "json": _json,
    "hex": _hex,
    "base64": _base64,
    "none": lambda _body: (None, "none"),
}


def render_body(body: bytes, mode: str) -> tuple[Any, str]:
    """(value, encoding) of a body.

    ``auto`` is text when it is UTF-8, else base64; ``utf8`` replaces what is not; ``json`` embeds the parsed value
    where it is JSON, else as ``auto``.
    """
    return _RENDER[mode](body)


def message_fields(row: Mapping[str, Any], *, keep_times: bool = False) -> dict[str, Any]:
    """The other way round: what ``rmqtool.store.append.outgoing.Message`` takes, from a row of machine output.

    Where a message lay, and what is computed again when it is stored (sizes, CRC, offsets, ids), is not looked at. A
    body that was shown inflated is stored so. Of fields that are absent the defaults count; a topic there must be. A
    row that says where its message lay was stored once, and is not delayed again.

    Args:
        keep_times: keep the store timestamp, else the message is stored now.

    Raises:
        ValueError: a field is of another kind than machine output has.
    """
    fields: dict[str, Any] = {"topic": _value_of(row, "topic", str)}
    for name, field in _NUMBERS.items():
        if row.get(name) is not None:
            fields[field] = _value_of(row, name, int)
    if not keep_times:
        fields.pop("store_timestamp", None)
    for name, field in (("bornHost", "born_host"), ("storeHost", "store_host")):
        if row.get(name) is not None:
            fields[field] = _value_of(row, name, str)
    fields["was_stored"] = row.get("physicalOffset") is not None
    fields["body"] = _body_of(row)
    if fields.get("sys_flag", 0) & COMPRESSED and "bodyError" not in row:
        fields["sys_flag"] &= ~(COMPRESSED | COMPRESSION_MASK)
    properties = row.get("properties") or {}
    if not isinstance(properties, Mapping) or not all(isinstance(value, str) for value in properties.values()):
        raise ValueError("properties: not a map of texts")
    fields["properties"] = properties = dict(properties)
    if row.get("tags") is not None and TAGS not in properties:
        properties[TAGS] = _value_of(row, "tags", str)
    keys = row.get("keys")
    if keys and KEYS not in properties:
        if not isinstance(keys, str | list) or not all(isinstance(key, str) for key in keys):
            raise ValueError("keys: neither a text nor a list of texts")
        properties[KEYS] = keys if isinstance(keys, str) else " ".join(keys)
    return fields


_NUMBERS = {
    "queueId": "queue_id",
    "flag": "flag",
    "sysFlag": "sys_flag",
    "bornTimestamp": "born_timestamp",
    "storeTimestamp": "store_timestamp",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_transaction_offset",
}


def _value_of(row: Mapping[str, Any], name: str, kind: type) -> Any:
    value = row.get(name)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)  # of a number in JSON nobody knows whether it was a float
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name}: {'missing' if value is None else 'not a ' + _KINDS[kind]}")
    return value


_KINDS: dict[type, str] = {str: "text", int: "number"}


def _body_of(row: Mapping[str, Any]) -> bytes:
    body, encoding = row.get("body"), row.get("bodyEncoding")
    if body is None:
        if row.get("bodyLength"):
            raise ValueError("body: left out of this output (--body none)")
        return b""
    if isinstance(body, bytes):  # as tables have it
        return body
    if encoding == "json" or (encoding is None and not isinstance(body, str)):
        import json

        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    if not isinstance(body, str):
        raise ValueError("body: not a text")
    if encoding in (None, "utf8"):
        return body.encode()
    if encoding == "hex":
        return bytes.fromhex(body)
    if encoding == "base64":
        import base64

        return base64.b64decode(body, validate=True)
    raise ValueError(f"bodyEncoding: {encoding!r} is not known")
