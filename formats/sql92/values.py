"""Values in SQL92 filters and their comparison in Java (filter.expression.ComparisonExpression.__compare)."""

import re
from typing import TypeAlias

Value: TypeAlias = "str | bool | int | float | None"
INT = 1 << 31
LONG = 1 << 63
_DOUBLE = re.compile(
    r"[\x00-\x20]*[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)[\x00-\x20]*", re.ASCII
)
_HEX = re.compile(
    r"[\x00-\x20]*([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?[\x00-\x20]*"
)


class NotComparable(Exception):
    """Java throws an exception during evaluation: the message does not match."""


class Long(int):
    """An integer that Java keeps in 64 bits; plain ``int`` stands for 32 bits."""


def compare(left: Value, right: Value) -> int:
    """Compare like ``ComparisonExpression.__compare``; text is converted to the type of the other side.

    Returns a number below, equal to or above 0.

    Raises:
        NotComparable: Java throws an exception.
    """
    if isinstance(left, bool) or isinstance(right, bool):
        if isinstance(left, bool) and isinstance(right, bool):
            return left - right
        if isinstance(left, str):
            return (left.lower() == "true") - bool(right)
        if isinstance(right, str):
            raise NotComparable  # Java casts the wrong operand
        return -1
    if isinstance(left, str):
        if isinstance(right, str):
            return (left > right) - (left < right)
        left = _number(left, right)
    elif isinstance(right, str):
        right = _number(right, left)
    if left is None or right is None:
        raise NotComparable
    if isinstance(left, float) or isinstance(right, float):
        return _order(float(left), float(right))
    return (left > right) - (left < right)


def _number(text: str, like: Value) -> int | float:
    """Convert a text to a number of the other side's type."""
    if isinstance(like, float):
        return double(text)
    limit = LONG if isinstance(like, Long) else INT
    if not re.fullmatch(r"[+-]?\d{1,600}", text) or not -limit <= int(text) < limit:
        raise NotComparable
    return int(text)


def double(text: str) -> float:
    """Parse a text like ``Double.valueOf``.

    Raises:
        NotComparable: the text is not a number.
    """
    if (match := _HEX.fullmatch(text)) is not None:
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return float("-inf" if match[1].startswith("-") else "inf")
    if len(text) > 1000 or not _DOUBLE.fullmatch(text):
        raise NotComparable
    return float(text.strip("".join(map(chr, range(33)))).rstrip("fFdD"))


def _order(left: float, right: float) -> int:
    """Compare like ``Double.compareTo``: NaN is above everything, -0.0 below 0.0."""
    if left != left or right != right:
        return (left != left) - (right != right)
    if left == right == 0:
        return str(right).startswith("-") - str(left).startswith("-")
    return (left > right) - (left < right)
