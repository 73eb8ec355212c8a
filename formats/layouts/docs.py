"""What a field means, said beside its declaration: ``"name" / Int64sb * "meaning"``, or ``* since("5.0.0", "...")``.

The page of the manual that lists all fields is made of these (:mod:`formats.explain.page`).
"""

from typing import Any

from construct import Renamed


class Doc(str):
    """The meaning of a field, with the first version of RocketMQ that writes it."""

    since: str


def since(version: str, text: str) -> Doc:
    """The meaning of a field that older versions do not have."""
    doc = Doc(text)
    doc.since = version
    return doc


def leaf_of(named: Any) -> Any:
    """The type of a field, without the name and the meaning around it."""
    while isinstance(named, Renamed):
        named = named.subcon
    return named
