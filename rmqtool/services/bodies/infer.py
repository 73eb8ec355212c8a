"""A JSON Schema for a sample of bodies. Pure."""

from collections.abc import Iterable
from typing import Any

from rmqtool.errors import BadValue
from rmqtool.services.bodies.fit import parse_json
from rmqtool.services.bodies.schemas import UndecodableBody

SAMPLE = 1000
"""Number of bodies that a schema is taken from."""
_DEEP = 32  # levels; what is deeper stays JSON text
_MOST_FIELDS = 1000  # of an object; one with more has data in its names

_ANY: dict[str, Any] = {}
Kind = dict[str, Any] | None
"""A schema, or None while all values were null."""


def infer_schema(bodies: Iterable[bytes]) -> dict[str, Any]:
    """Return a JSON Schema that all bodies fit that are JSON objects; if none is, all that are JSON.

    A number is an integer if all of them are. A field with values of several types, or an object with names that Spark
    does not tell apart, takes any value, as its JSON text.

    Raises:
        BadValue: none of the bodies is JSON.
    """
    kind: Kind = None
    count = some = 0
    objects = False
    for body in bodies:
        count += 1
        try:
            value = parse_json(body)
        except UndecodableBody:
            continue
        some += 1
        if isinstance(value, dict) and not objects:
            objects, kind = True, None
        if isinstance(value, dict) or not objects:
            kind = _merge(kind, _kind_of(value, 0))
    if not some:
        what = "there are no messages" if not count else f"none of the first {count} bodies is JSON"
        raise BadValue(f"no schema can be taken from a sample: {what}; give it in a file (SCHEMA.json)")
    return _finished(kind)


def _kind_of(value: Any, depth: int) -> Kind:
    if value is None:
        return None
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int):
        return {"type": "integer"} if -(1 << 63) <= value < 1 << 63 else {"type": "number"}
    if isinstance(value, float):
        return {"type": "number"}
    if isinstance(value, str):
        return {"type": "string"}
    if depth >= _DEEP:
        return _ANY
    if isinstance(value, list):
        items: Kind = None
        for inner in value:
            items = _merge(items, _kind_of(inner, depth + 1))
        return {"type": "array", "items": items}
    return {"type": "object", "properties": {name: _kind_of(inner, depth + 1) for name, inner in value.items()}}


def _merge(one: Kind, other: Kind) -> Kind:
    if one is None or other is None:
        return other if one is None else one
    if one == other:
        return one
    kinds = {one.get("type"), other.get("type")}
    if kinds == {"integer", "number"}:
        return {"type": "number"}
    if kinds == {"array"}:
        return {"type": "array", "items": _merge(one["items"], other["items"])}
    if kinds == {"object"}:
        fields, more = one["properties"], other["properties"]
        names = dict.fromkeys((*fields, *more))
        return {"type": "object", "properties": {name: _merge(fields.get(name), more.get(name)) for name in names}}
    return _ANY


def _finished(kind: Kind) -> dict[str, Any]:
    if not kind:
        return _ANY
    if kind["type"] == "array":
        return {"type": "array", "items": _finished(kind["items"])}
    if kind["type"] != "object":
        return kind
    fields = kind["properties"]
    if not fields or len(fields) > _MOST_FIELDS or len({name.lower() for name in fields}) < len(fields):
        return _ANY
    if not all(map(_is_text, fields)):
        return _ANY
    return {"type": "object", "properties": {name: _finished(field) for name, field in fields.items()}}


def _is_text(name: str) -> bool:
    """Whether a name can be that of a column: it is not empty, and UTF-8 can hold it."""
    return bool(name) and name.encode("utf-8", "replace").decode() == name
