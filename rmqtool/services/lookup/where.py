"""Conditions on the fields of messages, in the SQL92 dialect of RocketMQ's subscriptions (``formats.sql92``).

A name is a field of machine output (``rmqtool.contract``) or, if there is no such field, a property: ``queueId = 3 AND
bodyLength > 1024 AND region IN ('eu', 'us')``.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from formats.message.properties import parse
from formats.message.read import Record
from formats.sql92.filter import compile_filter
from formats.sql92.values import Value
from rmqtool.contract import MESSAGE_FIELDS, message_row

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


class FieldCondition:
    """A condition on fields.

    Args:
        text: an expression such as ``a > 1 AND b = 'x'``.

    Raises:
        BadFilter: not an expression.

    Attributes:
        text: the expression.
        met: names that at least one message has had so far.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._matches = compile_filter(text)
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
    """

    def __init__(self, record: Record, physical_offset: int) -> None:
        self._record, self._physical_offset = record, physical_offset

    @cached_property
    def _properties(self) -> dict[str, str]:
        return parse(self._record.properties)

    @cached_property
    def _row(self) -> dict[str, Any]:
        row = message_row(self._record, self._physical_offset, "utf8")
        return {**row, "keys": " ".join(row["keys"]) or None}

    def __getitem__(self, name: str) -> Value:
        value: Value
        if (attribute := _OF_RECORD.get(name)) is not None:
            value = getattr(self._record, attribute)
        elif name in _FIELDS:
            value = self._row[name]
        else:
            value = self._properties[name]
        return value

    def __iter__(self) -> Iterator[str]:
        return iter((*_FIELDS, *self._properties.keys() - _FIELDS))

    def __len__(self) -> int:
        return len(_FIELDS | self._properties.keys())


def fields_of_row(row: Mapping[str, Any]) -> dict[str, Value]:
    """The fields of a row of machine output."""
    properties = row.get("properties")
    fields = {**(properties if isinstance(properties, Mapping) else {})}
    fields |= {name: row[name] for name in _FIELDS & row.keys()}
    if isinstance(fields.get("keys"), list):
        fields["keys"] = " ".join(map(str, fields["keys"])) or None
    return {name: value for name, value in fields.items() if isinstance(value, str | int | float)}
