"""Rows and tables that others have written: which of their fields are those of a message.

Machine output and dumps have names of their own (:mod:`rmqtool.contract`). Other tables have other names: the user maps
them, and tables in the shape that Kafka's readers give (``topic, partition, offset, key, value, timestamp``) are known.
What is not taken is named, and a body that would be lost is refused.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmqtool.contract import MESSAGE_FIELDS
from rmqtool.errors import BadValue

Row = Mapping[str, Any]

# what a message is made of, or ordered by
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
# what our own outputs say of a message besides, and what follows from the rest
_WORKED_OUT = {
    *MESSAGE_FIELDS, "sourceFile", "fileOffset", "broker", "group", "originTopic", "originMsgId", "retryTimestamps",
    "producerGroup", "checkTimes",
}  # fmt: skip
_KAFKA = ("topic", "partition", "offset", "value")  # that a table has at least to be in Kafka's shape
KAFKA = {
    "queueId": "partition",
    "queueOffset": "offset",
    "keys": "key",
    "body": "value",
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
}
_BODIES = ("body", "value", "payload", "message", "content", "data", "msg")  # as others call it
_MOST_SHAPES = 1000  # of rows that are remembered
_MOST_NAMED = 100  # fields


def parse_map(texts: Sequence[str]) -> dict[str, str]:
    """What fields of messages are called in an input: ``["value=body,key=keys"]`` is ``{"body": "value", ...}``.

    ``=body`` says that nothing is the body.

    Raises:
        BadValue: that is no mapping, or its right side no field of a message.
    """
    names: dict[str, str] = {}
    for pair in ",".join(texts).split(","):
        theirs, equals, ours = pair.rpartition("=")
        theirs, ours = theirs.strip(), ours.strip()
        if not equals or not ours:
            raise BadValue(f"map {pair}: give COLUMN=FIELD, as in value=body")
        if ours not in MAPPABLE:
            raise BadValue(f"map {pair}: {ours} is no field of a message; there are {', '.join(MAPPABLE)}")
        if ours in names:
            raise BadValue(f"map {pair}: {ours} is given twice")
        names[ours] = theirs
    return names


@dataclass(frozen=True)
class Shape:
    """The fields of one table, or of one row.

    Attributes:
        names: name of a message's field -> name in the table.
        left: names in the table that are not taken, and that nothing else makes up for.
        kafka: whether it is known by its shape.
    """

    names: dict[str, str]
    left: tuple[str, ...]
    kafka: bool

    @property
    def same(self) -> bool:
        """Whether nothing has another name, and all is taken."""
        return not self.left and all(ours == theirs for ours, theirs in self.names.items())

    @property
    def no_body(self) -> str | None:
        """Why messages would lose their bodies, or None."""
        if "body" in self.names or not self.left:
            return None
        folded = {name.casefold(): name for name in reversed(self.left)}
        likely = next((folded[name] for name in _BODIES if name in folded), "COLUMN")
        return f"no field body, and {', '.join(self.left[:20])} not taken: map {likely}=body takes one, map =body none"


def shape_of(there: Collection[str], given: Mapping[str, str]) -> Shape:
    """Which of the names there are taken for what.

    Args:
        given: what the user says, see :func:`parse_map`.
    """
    names = {name: name for name in TAKEN if name in there}
    kafka = all(name in there for name in _KAFKA) and not {"queueId", "body"} & names.keys()
    if kafka:
        used = set(given.values())
        names |= {ours: theirs for ours, theirs in KAFKA.items() if theirs in there and theirs not in used}
    for ours, theirs in given.items():
        names.pop(ours, None)
        if theirs in there:
            names[ours] = theirs
    read = set(names.values())
    nothing = {ours for ours, theirs in given.items() if not theirs}
    left = tuple(name for name in there if name not in read and name not in _WORKED_OUT - set(TAKEN) | nothing)
    if "body" in nothing:
        names["body"] = ""
    return Shape(names, left, kafka)


class Fields:
    """The fields of one input, as the fields of messages.

    Args:
        given: what the user says of their names.
        tell: gets, once each, what is not taken.
    """

    def __init__(self, given: Mapping[str, str] | None = None, tell: Callable[[str], None] | None = None) -> None:
        self._given, self._tell = given or {}, tell or (lambda _words: None)
        self._shapes: dict[tuple[str, ...], Shape] = {}
        self._named: set[str] = set()
        self._told: set[str] = set()

    def table(self, path: str, there: Sequence[str]) -> dict[str, str]:
        """Name of a message's field -> name of a column; without a topic they are no messages.

        Raises:
            BadValue: a column that the user names is not there, or bodies would be lost.
        """
        shape = shape_of(there, self._given)
        for ours, theirs in self._given.items():
            if theirs and theirs not in there:
                raise BadValue(f"map {theirs}={ours}: {path} has no column {theirs}: it has {', '.join(there)}")
        if "topic" not in shape.names:
            return {}
        if shape.no_body:
            raise BadValue(f"{path}: {shape.no_body}")
        self._say(path, shape, "columns")
        if "body" not in shape.names:
            self._once(f"{path}: no column body: messages have no bodies")
        return {ours: theirs for ours, theirs in shape.names.items() if theirs}

    def row(self, name: str, row: Row) -> Row:
        """A row with the names of a message's fields.

        Args:
            name: of the input.

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
        kept = {ours: row[theirs] for ours, theirs in shape.names.items() if theirs}
        return {**{left: row[left] for left in row if left in _WORKED_OUT and left not in TAKEN}, **kept}

    def _say(self, name: str, shape: Shape, fields: str) -> None:
        if shape.kafka:
            pairs = ", ".join(f"{theirs}={ours}" for ours, theirs in shape.names.items() if theirs not in ("", ours))
            self._once(f"{name}: in Kafka's shape: taken as {pairs}")
        new = [left for left in shape.left if left not in self._named][: _MOST_NAMED - len(self._named)]
        if new:
            self._named.update(new)
            self._tell(f"{name}: {fields} that are not taken: {', '.join(new)} (map NAME=FIELD takes one)")

    def _once(self, words: str) -> None:
        if words not in self._told and len(self._told) < _MOST_NAMED:
            self._told.add(words)
            self._tell(words)
