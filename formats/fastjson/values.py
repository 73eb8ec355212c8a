"""Python types for JSON values: the built-in ones, and classes for distinctions that those do not make."""

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
