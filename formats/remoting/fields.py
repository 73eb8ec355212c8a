"""Conversion between header fields ("extFields"), which are text, and the dataclasses that declare them."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from formats.errors import BadText
from formats.fastjson.declare import (
    NEWEST,
    Declared,
    Flag,
    Fraction,
    Kind,
    T,
    Text,
    Unfit,
    Whole,
    members_of,
    to_camel_case,
)
from formats.fastjson.dialects import BODY
from formats.fastjson.write import dumps

_REAL = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?|NaN")


def from_fields(declared: type[T], texts: Mapping[str, str] | None, strict: bool = False) -> T:
    """Create a ``declared`` object from the text fields of a header.

    Raises:
        BadText: a required field is missing, or a text does not fit the field's type; with ``strict`` also if there are
            undeclared fields.
    """
    texts = texts or {}
    members, required = _text_members(declared)
    if strict and (unknown := [key for key in texts if key not in members]):
        raise BadText(0, f"{declared.__name__} with fields that are not declared: {', '.join(unknown)}")
    values: dict[str, Any] = {}
    name = ""
    try:
        for name, text in texts.items():
            if text is not None and (member := members.get(name)) is not None:
                attribute, digits, of_text = member
                if digits and len(text) <= digits and text.isdecimal() and text.isascii():
                    values[attribute] = int(text)
                else:
                    values[attribute] = text if of_text is None else of_text(text)
    except Unfit as err:
        raise BadText(0, err.within(name).at(declared.__name__)) from None
    try:
        return declared(**values)
    except TypeError:
        lacking = required - values.keys()
        if not lacking:
            raise
    missing = next(name for name, (attribute, *_) in members.items() if attribute in lacking)
    raise BadText(0, f"{declared.__name__} without {missing}")


@cache
def _text_members(declared: type) -> tuple[dict[str, tuple[str, int, Callable[[str], Any] | None]], frozenset[str]]:
    """Return ({name: (attribute, digits, reader)} of all fields, required attributes).

    A text of at most so many digits is a number that fits; 0 for what is no number. A reader of None keeps the text as
    it is. Cached per class, because every request needs it.
    """
    members = members_of(declared)
    readers = {
        name: (member.attribute, _digits_of(member.kind), _text_reader(member.kind)) for name, member in members.items()
    }
    return readers, frozenset(member.attribute for member in members.values() if member.required)


def _digits_of(kind: Kind) -> int:
    return (9 if kind.bits == 32 else 18) if isinstance(kind, Whole) else 0


def _text_reader(kind: Kind) -> Callable[[str], Any] | None:
    if isinstance(kind, Text):
        return None
    if isinstance(kind, Flag):
        return lambda text: text.lower() == "true"  # Boolean.parseBoolean
    read = kind.read
    if isinstance(kind, Fraction):
        return lambda text: float(text) if _REAL.fullmatch(text) else read(text, BODY)
    return lambda text: read(text, BODY)


def to_fields(item: Declared) -> dict[str, str]:
    """Return the text fields of an object. Their order has no meaning; Java's is that of a HashMap."""
    texts = {}
    for name, member in members_of(type(item)).items():
        value = getattr(item, member.attribute)
        kind = type(value)
        if kind is str:
            texts[name] = value
        elif kind is int:
            texts[name] = str(value)
        elif kind is bool:
            texts[name] = "true" if value else "false"
        elif value is not None:
            written = member.kind.write(value, BODY, NEWEST)
            texts[name] = written if isinstance(written, str) else dumps(written, BODY).decode()
    return texts


def short_names(declared: type) -> dict[str, str]:
    """Return a declaration's names on the wire, keyed by the attribute names in camel case."""
    return {to_camel_case(member.attribute): member.name for member in members_of(declared).values()}
