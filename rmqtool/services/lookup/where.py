"""Conditions on the fields of messages, in the SQL92 dialect of RocketMQ's subscriptions (``formats.sql92``).

A name is a field of machine output (``rmqtool.contract``) or, if there is no such field, a property: ``queueId = 3 AND
bodyLength > 1024 AND region IN ('eu', 'us')``. ``body.PATH`` is a field inside of the body, which is JSON or of a
schema: ``body.order.total > 100 AND body.items.0.sku = 'A1'``.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from formats.errors import FormatError
from formats.message.bodies import decompress
from formats.message.properties import parse
from formats.message.read import Record
from formats.sql92.filter import compile_filter
from formats.sql92.values import Long, Value
from rmqtool.contract import MESSAGE_FIELDS, message_row
from rmqtool.services.bodies.fit import parse_json
from rmqtool.services.bodies.schemas import UndecodableBody
from rmqtool.services.bodies.view import PREFIX, pick

_OF_RECORD = {
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "storeSize": "total_size",
    "sysFlag": "sys_flag",
    "flag": "flag",
    "bodyCrc": "body_crc",
    "bornTimestamp": "born_timestamp",
    "storeTimestamp": "store_timestamp",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_transaction_offset",
}
"""Fields taken from a record unchanged."""
_FIELDS = frozenset(MESSAGE_FIELDS) - {"properties"}
ReadBody = Callable[[bytes], Any]
"""Decodes a body, already decompressed; raises :class:`UndecodableBody`."""


class FieldCondition:
    """A condition on fields.

    Args:
        text: an expression such as ``a > 1 AND b = 'x'``.
        read_body: decodes bodies for ``body.PATH``.

    Raises:
        BadFilter: not an expression.

    Attributes:
        text: the expression.
        read_body: as given.
        met: names that at least one message has had so far.
    """

    def __init__(self, text: str, read_body: ReadBody = parse_json) -> None:
        self.text, self.read_body = text, read_body
        self._matches = compile_filter(text, local=True)
        self.met: set[str] = set()
        self._asked: set[str] = set()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldCondition) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def has(self, fields: Mapping[str, Value]) -> bool:
        """Whether the condition is true for these fields; false if unknown."""
        return self._matches(_Watched(fields, self._asked, self.met))

    @property
    def unmet(self) -> list[str]:
        """Names that no message had, possibly misspelt."""
        return sorted(self._asked - self.met)


class _Watched(Mapping[str, Value]):
    """Fields of a message; records which names it had."""

    def __init__(self, fields: Mapping[str, Value], asked: set[str], met: set[str]) -> None:
        self._fields, self._asked, self._met = fields, asked, met

    def get(self, name: str, default: Any = None) -> Any:
        value = self._fields.get(name)
        (self._asked if value is None else self._met).add(name)
        return default if value is None else value

    def __getitem__(self, name: str) -> Value:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


class RecordFields(Mapping[str, Value]):
    """The fields of a stored message, computed on demand. ``keys`` is text, separated by spaces.

    Args:
        physical_offset: the actual position of the record.
        read_body: decodes bodies for ``body.PATH``.
    """

    def __init__(self, record: Record, physical_offset: int, read_body: ReadBody = parse_json) -> None:
        self._record, self._physical_offset, self._read_body = record, physical_offset, read_body

    @cached_property
    def _properties(self) -> dict[str, str]:
        return parse(self._record.properties)

    @cached_property
    def _row(self) -> dict[str, Any]:
        row = message_row(self._record, self._physical_offset, "utf8")
        return {**row, "keys": " ".join(row["keys"]) or None}

    @cached_property
    def _inside(self) -> Any:
        try:
            return self._read_body(decompress(self._record.body, self._record.sys_flag))
        except (UndecodableBody, FormatError):
            return None

    def __getitem__(self, name: str) -> Value:
        value: Value
        if (attribute := _OF_RECORD.get(name)) is not None:
            value = getattr(self._record, attribute)
        elif name in _FIELDS:
            value = self._row[name]
        elif name.startswith(PREFIX):
            value = _value_at(self._inside, name)
        else:
            value = self._properties[name]
        return value

    def __iter__(self) -> Iterator[str]:
        return iter((*_FIELDS, *self._properties.keys() - _FIELDS))

    def __len__(self) -> int:
        return len(_FIELDS | self._properties.keys())


class RowFields(Mapping[str, Value]):
    """The fields of a row of machine output.

    Args:
        read_body: decodes bodies for ``body.PATH`` that the row does not show decoded.
    """

    def __init__(self, row: Mapping[str, Any], read_body: ReadBody = parse_json) -> None:
        properties = row.get("properties")
        fields = {**(properties if isinstance(properties, Mapping) else {})}
        fields |= {name: row[name] for name in row if name in _FIELDS or name.startswith(PREFIX)}
        if isinstance(fields.get("keys"), list):
            fields["keys"] = " ".join(map(str, fields["keys"])) or None
        self._fields = {name: value for name, value in fields.items() if isinstance(value, str | int | float)}
        self._row, self._read_body = row, read_body

    @cached_property
    def _inside(self) -> Any:
        body = self._row.get("body")
        if not isinstance(body, str):
            return body
        try:
            if self._row.get("bodyEncoding") == "base64":
                return self._read_body(base64.b64decode(body))
            return self._read_body(body.encode())
        except (UndecodableBody, ValueError):
            return None

    def __getitem__(self, name: str) -> Value:
        if name.startswith(PREFIX) and name not in self._fields:
            return _value_at(self._inside, name)
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def _value_at(inside: Any, name: str) -> Value:
    """The value of ``body.PATH``; what is no single value is its JSON text."""
    value = pick(inside, name.removeprefix(PREFIX).split("."))
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return Long(value) if type(value) is int else value
