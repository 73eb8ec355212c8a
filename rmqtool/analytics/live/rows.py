"""Rows of a data frame as messages to send. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from formats.errors import FormatError
from formats.message.properties import UNIQ_KEY, build
from rmqtool.analytics.bodies.columns import ADDED
from rmqtool.analytics.table.schema import MESSAGE_TABLE
from rmqtool.client.producing.message import Message
from rmqtool.errors import BadValue
from rmqtool.rules.ids import stable_id
from rmqtool.rules.resending import own_properties
from rmqtool.rules.sending import check_message

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMNS = {
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>", "array<struct<key:string,value:binary>>"),  # the latter are Kafka's headers
    "body": ("binary", "string"),
    "shardingKey": ("string",),
    "delay": ("int", "bigint", "smallint", "tinyint"),
    "deliverTime": ("timestamp", "bigint"),
}
"""The columns of messages to send, and the types that each may have."""
BODY_ERROR = "bodyError"  # why the body of a message that was read is as stored
SHARDING_KEY = "__SHARDINGKEY"  # MessageConst.PROPERTY_SHARDING_KEY
_OF_BROKERS = {name.casefold() for name in (*MESSAGE_TABLE.names, *ADDED)} - {name.casefold() for name in COLUMNS}


def columns_of(schema: "StructType", topic: str | None, names: Mapping[str, str]) -> dict[str, int]:
    """Return at which position a data frame has which field of the messages to send.

    Columns of messages that were read, which brokers set themselves, are left out.

    Args:
        topic: of rows that have none.
        names: names of columns that are called differently, see :func:`rmqtool.services.sending.fields.parse_map`.

    Raises:
        BadValue: a column is unknown or has another type, or topic or body is missing.
    """
    at = {name.casefold(): position for position, name in enumerate(schema.fieldNames())}
    for theirs in names.values():
        if theirs.casefold() not in at:
            raise BadValue(f"option map: the frame has no column {theirs or '(of no name)'}")
    mapped = {ours: at[theirs.casefold()] for ours, theirs in names.items()}
    own = {ours: at[ours.casefold()] for ours in (*COLUMNS, BODY_ERROR) if ours.casefold() in at and ours not in mapped}
    used = {*mapped.values(), *own.values()}
    for name, position in at.items():
        if position not in used and name not in _OF_BROKERS:
            raise BadValue(
                f"column {schema.fieldNames()[position]} is none of a message to send: there are {', '.join(COLUMNS)} "
                "(the option map names others, as in value=body,key=keys)"
            )
    result = own | mapped
    for ours, position in result.items():
        field = schema[position]
        kind = field.dataType.simpleString()
        if kind not in (*COLUMNS.get(ours, ("string",)), "void"):
            raise BadValue(f"column {field.name} is {kind}, not {' or '.join(COLUMNS[ours])}")
    if "body" not in result:
        raise BadValue("a message to send has a column body (the option map names another one, as in value=body)")
    if "topic" not in result and not topic:
        raise BadValue("give the messages a column topic, or all of them the option topic")
    return result


@dataclass(frozen=True)
class TaskMessages:
    """The messages of one task, and ids that are the same however often it runs.

    Attributes:
        seed: what is unique to the task's rows.
        millis_of_month: time in the ids, see :func:`rmqtool.rules.ids.stable_id`.
        topic: of rows that have none.
    """

    seed: str
    millis_of_month: int = 0
    topic: str | None = None

    def message(self, row: Mapping[str, Any], number: int) -> "KeyedMessage":
        """Return the message of a row.

        Args:
            number: of the row in the task, from 0.

        Raises:
            BadValue: it has no topic or no body, or brokers would refuse it.
        """
        try:
            return self._message(row, number)
        except (ValueError, FormatError) as err:
            raise BadValue(f"row {number} of a task cannot be sent: {err}") from None

    def _message(self, row: Mapping[str, Any], number: int) -> "KeyedMessage":
        topic, body = row.get("topic") or self.topic or "", row.get("body")
        if error := row.get(BODY_ERROR):
            raise ValueError(f"its body is as stored: {error}")
        properties = own_properties(_properties(row.get("properties") or ()))
        properties.setdefault(UNIQ_KEY, stable_id(self.seed, number, self.millis_of_month))
        sharding = row.get("shardingKey") or properties.get(SHARDING_KEY)
        if sharding:
            properties[SHARDING_KEY] = sharding
        message = Message(
            topic,
            body.encode() if isinstance(body, str) else body or b"",
            tags=row.get("tags"),
            keys=_keys(row.get("keys")),
            properties=properties,
            delay_level=row.get("delay") or 0,
            deliver_at=_millis(row.get("deliverTime")),
        )
        check_message(topic, message.body)
        build(message.all_properties())
        return KeyedMessage(message, sharding or None)


def _properties(pairs: Sequence[tuple[str, str] | Mapping[str, Any]]) -> dict[str, str]:
    """The properties of a map, or of Kafka's headers.

    Raises:
        ValueError: a header is there twice, has no value, or one that is not text.
    """
    properties: dict[str, str] = {}
    for pair in pairs:
        name, value = (pair["key"], pair["value"]) if isinstance(pair, Mapping) else pair
        if isinstance(pair, Mapping) and (name in properties or value is None):
            raise ValueError(f"header {name} {'has no value' if value is None else 'is there twice'}")
        try:
            properties[name] = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            raise ValueError(f"header {name} is not text") from None
    return properties


def _keys(value: str | Sequence[str] | None) -> Sequence[str]:
    return tuple(value.split()) if isinstance(value, str) else tuple(value or ())


def _millis(value: datetime | int | None) -> int | None:
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value


@dataclass(frozen=True)
class KeyedMessage:
    """A message, and the key of which all messages go to one queue in their order."""

    message: Message
    sharding_key: str | None

    @property
    def waits(self) -> bool:
        """Whether it is delivered later, and so goes into no batch."""
        return bool(self.message.delay_level) or self.message.deliver_at is not None


def bundles(messages: Sequence[KeyedMessage], most: int) -> list[list[KeyedMessage]]:
    """Divide messages into what is sent by one request each.

    Messages of one sharding key stay in order and come into as few bundles as possible, which must be sent one after
    the other; all others may be sent at the same time.
    """
    by_key: dict[tuple[str, str | None], list[list[KeyedMessage]]] = {}
    alone = []
    for each in messages:
        if each.waits:
            alone.append([each])
            continue
        parts = by_key.setdefault((each.message.topic, each.sharding_key), [[]])
        if len(parts[-1]) == most:
            parts.append([])
        parts[-1].append(each)
    return [part for parts in by_key.values() for part in parts] + alone
