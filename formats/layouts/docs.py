"""The meaning of a field, attached to its declaration: ``"name" / Int64sb * "meaning"`` or ``* since("5.0.0", "...")``.

The manual page that lists all fields is generated from these (:mod:`formats.explain.page`).
"""

from typing import Any

from construct import Renamed


class Doc(str):
    """The meaning of a field, with the first RocketMQ version that writes the field."""

    since: str


def since(version: str, text: str) -> Doc:
    """Return the meaning of a field that older versions do not write."""
    doc = Doc(text)
    doc.since = version
    return doc


def leaf_of(named: Any) -> Any:
    """Return the type of a field without its name and documentation."""
    while isinstance(named, Renamed):
        named = named.subcon
    return named
