"""Python types for JSON values: the built-in ones, and classes for distinctions that those do not make."""

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import TypeAlias, Union

MAX_NUMBER = 600
"""Maximum characters of a number. Python can be set to reject integers of more than 640 digits; a long has 20."""

Key: TypeAlias = "str | int | ObjectKey"
"""Key of an object: ``int`` if unquoted in the text, ``str`` if quoted or an identifier."""

Value: TypeAlias = Union[bool, int, float, str, "list[Value]", "dict[Key, Value]", None]
"""Any JSON value. Lists written on one line are `Inline`; numbers with a decimal point or exponent are `Real`."""


class Inline(list[Value]):
    """A list written on one line: a Java array of primitives, an array of strings, or a set."""


class ObjectKey(tuple[tuple[str, Value], ...]):
    """An object used as a key, as its members in order."""

    __slots__ = ()


class Numbers(Mapping[int, int]):
    """An object of integers with unquoted integer keys, kept as its text.

    A table of offsets has a tenth of the size of a dict as its text, and there may be a million of them. Looking up a
    key keeps the dict; going through the items does not.

    Args:
        text: the members, ``key:value`` each, separated by commas.
    """

    __slots__ = ("_table", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._table: dict[int, int] | None = None

    def _read(self) -> dict[int, int]:
        if self._table is not None:
            return self._table
        numbers = self._text.replace(":", ",").split(",")
        each = map(int, numbers)
        table = dict(zip(each, each, strict=True))
        if 2 * len(table) < len(numbers):  # a duplicate key takes its new position, as elsewhere
            table = {}
            each = map(int, numbers)
            for key, value in zip(each, each, strict=True):
                table.pop(key, None)
                table[key] = value
        return table

    def __getitem__(self, key: int) -> int:
        self._table = self._read()
        return self._table[key]

    def __iter__(self) -> Iterator[int]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def keys(self) -> KeysView[int]:
        return self._read().keys()

    def values(self) -> ValuesView[int]:
        return self._read().values()

    def items(self) -> ItemsView[int, int]:
        return self._read().items()

    def __repr__(self) -> str:
        return repr(self._read())


class Real(float):
    """A number with a decimal point or exponent, together with its original text.

    It behaves as the nearest double; it is written with its original characters.
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> "Real":
        self = super().__new__(cls, text)
        self.text = text
        return self

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override]  # float's own has a float
        return (self.text,)
