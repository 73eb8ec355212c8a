"""Conversions between the values of a configuration file and those of its model.

They follow what a broker's fastjson accepts for the Java type of a member: a number given as a string, ``1.0`` for an
integer, ``"true"`` and 1 for a boolean. Where fastjson makes up a value (1.7 becomes 1, true becomes 1, an object its
own text), these refuse: such a file is damaged.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from formats.fastjson.values import Inline, Key, Real, Value
from formats.versions import Version


class Unfit(Exception):
    """A value that its member cannot take. Containers put their key in front of ``path`` on the way out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[Key] = []

    def within(self, key: Key) -> "Unfit":
        self.path.insert(0, key)
        return self


class Kind(ABC):
    """How the values of a member are read and written."""

    @abstractmethod
    def read(self, raw: Value) -> Any:
        """The model's value. Raises `Unfit`, also for None; a bean leaves null members out before."""

    @abstractmethod
    def write(self, value: Any, version: Version) -> Value:
        """The JSON value, made anew: what two objects of a model share must not become a reference in the file.

        fastjson 1.2.83 writes one for a shared ``attributes`` map, but reads it back as an attribute named ``$ref``.
        """


class Whole(Kind):
    """``int`` (32 bits) or ``long`` (64 bits)."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.least = -(1 << bits - 1)

    def read(self, raw: Value | Key) -> int:
        number = raw
        if isinstance(raw, str):
            number = int(raw) if re.fullmatch(r"-?[0-9]{1,40}", raw) else None
        elif isinstance(raw, float):
            number = int(raw) if raw.is_integer() else None
        if not isinstance(number, int) or isinstance(number, bool):
            raise Unfit(f"{describe(raw)} where an integer must be")
        if not self.least <= number < -self.least:
            raise Unfit(f"an integer that does not fit into {self.bits} bits")
        return number

    def write(self, value: int, version: Version) -> Value:
        return value


class Flag(Kind):
    """``boolean``."""

    def read(self, raw: Value) -> bool:
        word = raw.lower() if isinstance(raw, str) else raw
        if word in ("true", 1):  # True is 1
            return True
        if word in ("false", 0):
            return False
        raise Unfit(f"{describe(raw)} where true or false must be")

    def write(self, value: bool, version: Version) -> Value:
        return value


class Text(Kind):
    """``String``, or the name of an enum constant, which is kept as it is even if no broker knows it."""

    def read(self, raw: Value) -> str:
        if isinstance(raw, str):
            return raw
        if isinstance(raw, bool):
            return "true" if raw else "false"
        if isinstance(raw, int | Real):
            return raw.text if isinstance(raw, Real) else str(raw)
        raise Unfit(f"{describe(raw)} where text must be")

    def write(self, value: str, version: Version) -> Value:
        return value


class Items(Kind):
    """A Java ``List`` (one item per line) or, with ``inline``, an array or ``Set`` (all on one line); a tuple here."""

    def __init__(self, item: Kind, *, inline: bool = False) -> None:
        self.item = item
        self.inline = inline

    def read(self, raw: Value) -> tuple[Any, ...]:
        if not isinstance(raw, list):
            raise Unfit(f"{describe(raw)} where a list must be")
        items = []
        for index, item in enumerate(raw):
            try:
                items.append(self.item.read(item))
            except Unfit as err:
                raise err.within(index) from None
        return tuple(items)

    def write(self, value: tuple[Any, ...], version: Version) -> Value:
        items = [self.item.write(item, version) for item in value]
        return Inline(items) if self.inline else items


class Table(Kind):
    """A Java ``Map`` from text to anything; a dict here, in the order of the file.

    It is the very dict of the JSON value where nothing in it has another form: with hundreds of thousands of groups two
    would not fit into memory.
    """

    def __init__(self, item: Kind) -> None:
        self.item = item

    def read(self, raw: Value) -> dict[Any, Any]:
        if not isinstance(raw, dict):
            raise Unfit(f"{describe(raw)} where an object must be")
        table: dict[Any, Any] = {}
        same = True
        for key, item in raw.items():
            try:
                name, value = self.key(key), self.item.read(item)
            except Unfit as err:
                raise err.within(key) from None
            table[name] = value
            same = same and name is key and value is item
        return raw if same else table

    def key(self, key: Key) -> Key:
        if isinstance(key, int):  # "illegal identifier" to fastjson
            raise Unfit("its key is a bare number where text must be")
        return key

    def write(self, value: Mapping[Any, Any], version: Version) -> Value:
        return {key: self.item.write(item, version) for key, item in value.items()}


class Numbered(Table):
    """A Java ``Map`` from ``Integer`` (or ``Long``, with 64 bits); keys are written bare, read bare or quoted."""

    def __init__(self, item: Kind, bits: int = 32) -> None:
        super().__init__(item)
        self.number = Whole(bits)

    def read(self, raw: Value) -> dict[Any, Any]:
        if not isinstance(raw, dict) or not isinstance(self.item, Whole):
            return super().read(raw)
        low, least = self.number.least, self.item.least
        for key, item in raw.items():
            if not (type(key) is type(item) is int and low <= key < -low and least <= item < -least):
                return super().read(raw)
        return raw

    def key(self, key: Key) -> Key:
        try:
            return self.number.read(key)
        except Unfit:
            raise Unfit(f"its key is not an integer of {self.number.bits} bits") from None


INT, LONG, FLAG, TEXT = Whole(32), Whole(64), Flag(), Text()


def describe(raw: Value | Key) -> str:
    """What a value is, for a message."""
    if raw is None:
        return "null"
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, dict | list):
        return "an object" if isinstance(raw, dict) else "a list"
    if isinstance(raw, str):
        return "text" if raw else "empty text"
    return raw.text[:20] if isinstance(raw, Real) else "a number"
