"""Map fields of foreign rows and tables to fields of a message.

Machine output and dumps have their own names (:mod:`rmqtool.contract`). For other tables the user gives a mapping;
Kafka's layout (``topic, partition, offset, key, value, timestamp``) is recognised. Ignored fields are reported, and
rows whose body would be lost are refused.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmqtool.contract import MESSAGE_FIELDS
from rmqtool.errors import BadValue

Row = Mapping[str, Any]

# fields that make up a message, or order messages
TAKEN = (
    "topic",
    "queueId",
    "queueOffset",
    "physicalOffset",
    "sysFlag",
    "flag",
    "reconsumeTimes",
    "preparedTransactionOffset",
    "bornTimestamp",
    "storeTimestamp",
    "bornHost",
    "storeHost",
    "tags",
    "keys",
    "properties",
    "body",
    "bodyEncoding",
    "bodyLength",
    "bodyError",
)
MAPPABLE = tuple(name for name in TAKEN if name not in ("bodyLength", "bodyError"))
# further fields of rmqtool's own output, which follow from the others
_WORKED_OUT = {
    *MESSAGE_FIELDS, "sourceFile", "fileOffset", "broker", "group", "originTopic", "originMsgId", "retryTimestamps",
    "producerGroup", "checkTimes",
}  # fmt: skip
_KAFKA = ("topic", "partition", "offset", "value")  # columns that identify Kafka's layout
KAFKA = {
    "queueId": "partition",
    "queueOffset": "offset",
    "keys": "key",
    "body": "value",
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
}
_BODIES = ("body", "value", "payload", "message", "content", "data", "msg")  # usual names of the body
_MOST_SHAPES = 1000  # sets of field names to cache
_MOST_NAMED = 100  # ignored fields to report


def parse_map(texts: Sequence[str], fields: Collection[str] = MAPPABLE) -> dict[str, str]:
    """Parse a mapping from message fields to input fields: ``["value=body,key=keys"]`` gives ``{"body": "value",
    ...}``.

    ``=body`` means that there is no body.

    Args:
        fields: those that a message has.

    Raises:
        BadValue: not a mapping, or its right side is not a field of a message.
    """
    names: dict[str, str] = {}
    for pair in ",".join(texts).split(","):
        theirs, equals, ours = pair.rpartition("=")
        theirs, ours = theirs.strip(), ours.strip()
        if not equals or not ours:
            raise BadValue(f"map {pair}: give COLUMN=FIELD, as in value=body")
        if ours not in fields:
            raise BadValue(f"map {pair}: {ours} is no field of a message; there are {', '.join(fields)}")
        if ours in names:
            raise BadValue(f"map {pair}: {ours} is given twice")
        names[ours] = theirs
    return names


@dataclass(frozen=True)
class Shape:
    """The mapped fields of one table or row.

    Attributes:
        names: message field → name in the table.
        ignored: names in the table, whose content is not available otherwise.
        kafka: whether it has Kafka's layout.
    """

    names: dict[str, str]
    ignored: tuple[str, ...]
    kafka: bool

    @property
    def same(self) -> bool:
        """Whether no field is renamed and none is ignored."""
        return not self.ignored and all(ours == theirs for ours, theirs in self.names.items())

    @property
    def no_body(self) -> str | None:
        """Why messages would lose their bodies, or None."""
        if "body" in self.names or not self.ignored:
            return None
        folded = {name.casefold(): name for name in reversed(self.ignored)}
        likely = next((folded[name] for name in _BODIES if name in folded), "COLUMN")
        return (
            f"no field body, and {', '.join(self.ignored[:20])} not taken: map {likely}=body takes one, map =body none"
        )


def shape_of(columns: Collection[str], given: Mapping[str, str]) -> Shape:
    """Map the names in a table.

    Args:
        columns: the names in the table.
        given: the user's mapping, see :func:`parse_map`.
    """
    names = {name: name for name in TAKEN if name in columns}
    kafka = all(name in columns for name in _KAFKA) and not {"queueId", "body"} & names.keys()
    if kafka:
        used = set(given.values())
        names |= {ours: theirs for ours, theirs in KAFKA.items() if theirs in columns and theirs not in used}
    for ours, theirs in given.items():
        names.pop(ours, None)
        if theirs in columns:
            names[ours] = theirs
    read = set(names.values())
    nothing = {ours for ours, theirs in given.items() if not theirs}
    ignored = tuple(name for name in columns if name not in read and name not in _WORKED_OUT - set(TAKEN) | nothing)
    if "body" in nothing:
        names["body"] = ""
    return Shape(names, ignored, kafka)


class Fields:
    """Maps the fields of one input.

    Args:
        given: the user's mapping.
        tell: called once for each set of ignored fields.
    """

    def __init__(self, given: Mapping[str, str] | None = None, tell: Callable[[str], None] | None = None) -> None:
        self._given, self._tell = given or {}, tell or (lambda _words: None)
        self._shapes: dict[tuple[str, ...], Shape] = {}
        self._named: set[str] = set()
        self._noted: set[str] = set()

    def table(self, path: str, columns: Sequence[str]) -> dict[str, str]:
        """Message field → column name.

        Raises:
            BadValue: there is no topic, a column of the user's mapping is missing, or bodies would be lost.
        """
        shape = shape_of(columns, self._given)
        for ours, theirs in self._given.items():
            if theirs and theirs not in columns:
                raise BadValue(f"map {theirs}={ours}: {path} has no column {theirs}: it has {', '.join(columns)}")
        if "topic" not in shape.names:
            return {}
        if shape.no_body:
            raise BadValue(f"{path}: {shape.no_body}")
        self._say(path, shape, "columns")
        if "body" not in shape.names:
            self._once(f"{path}: no column body: messages have no bodies")
        return {ours: theirs for ours, theirs in shape.names.items() if theirs}

    def row(self, name: str, row: Row) -> Row:
        """A row with its fields renamed to those of a message.

        Args:
            name: name of the input.

        Raises:
            ValueError: its body would be lost.
        """
        key = tuple(row)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            shape = self._shapes[key] = shape_of(key, self._given)
            if not shape.no_body:
                self._say(name, shape, "fields")
        if shape.same:
            return row
        if shape.no_body:
            raise ValueError(shape.no_body)
        mapped = {ours: row[theirs] for ours, theirs in shape.names.items() if theirs}
        return {**{name: row[name] for name in row if name in _WORKED_OUT and name not in TAKEN}, **mapped}

    def _say(self, name: str, shape: Shape, fields: str) -> None:
        if shape.kafka:
            pairs = ", ".join(f"{theirs}={ours}" for ours, theirs in shape.names.items() if theirs not in ("", ours))
            self._once(f"{name}: in Kafka's shape: taken as {pairs}")
        new = [name for name in shape.ignored if name not in self._named][: _MOST_NAMED - len(self._named)]
        if new:
            self._named.update(new)
            self._tell(f"{name}: {fields} that are not taken: {', '.join(new)} (map NAME=FIELD takes one)")

    def _once(self, text: str) -> None:
        if text not in self._noted and len(self._noted) < _MOST_NAMED:
            self._noted.add(text)
            self._tell(text)
