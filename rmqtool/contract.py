"""The fields of machine output, by RocketMQ's own names. JSON, NDJSON, CSV and Parquet may grow, never change.

Names follow org.apache.rocketmq.common.message.MessageExt; times are ms since the epoch.
"""

from collections.abc import Callable
from typing import Any

from formats.errors import FormatError
from formats.ids import offset_id
from formats.message import Record
from formats.primitives import COMPRESSED, host_text
from formats.properties import KEYS, TAGS, UNIQ_KEY, parse, split_keys

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
QUEUE_ENTRY_FIELDS = ("topic", "queueId", "queueOffset", "physicalOffset", "size", "tagsCode")


def message_row(record: Record, physical_offset: int, body_mode: str = "auto") -> dict[str, Any]:
    """One message as machine output has it.

    ``msgId`` is the client's unique id where there is one, else the offset id. ``bodyLength`` and ``body`` are after
    decompression; a body that does not inflate is given as stored, and ``bodyError`` says why.

    Args:
        physical_offset: where the record really lies.
        body_mode: see :func:`render_body`.
    """
    properties = parse(record.properties)
    message_id = offset_id(record.store_address, record.store_port, physical_offset)
    body, error = record.body, None
    if record.sys_flag & COMPRESSED:
        from formats.bodies import decompress

        try:
            body = decompress(body, record.sys_flag)
        except FormatError as err:
            error = str(err)
    rendered, encoding = render_body(body, body_mode)
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
        "body": rendered,
        "bodyEncoding": encoding,
    }
    if error:
        row["bodyError"] = error
    return row


def _utf8(body: bytes) -> tuple[Any, str]:
    return body.decode("utf-8", "replace"), "utf8"


def _json(body: bytes) -> tuple[Any, str]:
    import json

    try:
        return json.loads(body), "json"
    except (ValueError, RecursionError):
        return _auto(body)


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
