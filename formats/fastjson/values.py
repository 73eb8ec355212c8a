"""What JSON text is in memory: Python's own types, and four for what they do not tell apart."""

from typing import TypeAlias, Union

MAX_NUMBER = 600
"""Characters of a number. Python may be set to refuse integers of more than 640 digits; a long has 20."""

Key: TypeAlias = "str | int | ObjectKey"
"""Key of an object: ``int`` when it stands bare in the text, ``str`` when it is quoted or an identifier."""

Value: TypeAlias = Union[bool, int, float, str, "list[Value]", "dict[Key, Value]", None]
"""What a text can hold. Lists that were written on one line are `Inline`, numbers with a point or exponent `Real`."""


class Inline(list[Value]):
    """A list that is written on one line: a Java array of primitives, an array of strings, or a set."""


class ObjectKey(tuple[tuple[str, Value], ...]):
    """The members of an object that is a key, in their order."""

    __slots__ = ()


class Real(float):
    """A number with a point or an exponent, together with the characters it was written with.

    It compares and computes as the nearest double; writing it gives the same characters again.
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> "Real":
        self = super().__new__(cls, text)
        self.text = text
        return self

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override]  # float's own has a float
        return (self.text,)
