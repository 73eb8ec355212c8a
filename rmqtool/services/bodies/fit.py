"""JSON values by a JSON Schema: whether they fit, and as what. Pure.

Of JSON Schema, what describes columns is understood: ``type``, ``properties``, ``additionalProperties`` (for a map) and
``items``, and references inside of the document. A schema without a type takes any value, as its JSON text.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from rmqtool.errors import BadValue
from rmqtool.services.bodies.schemas import UndecodableBody

Fit: TypeAlias = Callable[[Any], Any]
_LONG = 1 << 63
_DEEP = 64  # levels of a schema
TYPES = ("object", "array", "string", "integer", "number", "boolean")


def parse_json(body: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        UndecodableBody: it is none.
    """
    try:
        return json.loads(body, parse_constant=_no_number)
    except RecursionError:
        raise UndecodableBody("not JSON that can be read: it is nested too deeply") from None
    except ValueError as err:  # also bytes that are not UTF-8
        raise UndecodableBody(f"not JSON: {err}") from None


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def type_of(schema: Any, whole: Any = None, depth: int = 0) -> tuple[str | None, Mapping[str, Any]]:
    """Return (one of :data:`TYPES`, or None for any value; the schema, after following references).

    Args:
        whole: the document, for references.

    Raises:
        BadValue: the schema is not valid, or has what describes no column.
    """
    for _reference in range(_DEEP):
        if not (isinstance(schema, Mapping) and "$ref" in schema):
            break
        schema = _referred(whole, schema["$ref"])
    if depth > _DEEP:
        raise BadValue("the JSON Schema contains itself, or is nested too deeply")
    if schema is True:
        schema = {}
    if not isinstance(schema, Mapping) or "$ref" in schema:
        raise BadValue(f"not a JSON Schema: {json.dumps(schema)[:100]}")
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        if set(kinds) == {"integer", "number"}:
            kinds = ["number"]
        if len(kinds) != 1:
            return None, {}
        (kind,) = kinds
    if kind is None and "properties" in schema:
        kind = "object"
    if kind is None:
        return None, {}
    if kind not in TYPES:
        raise BadValue(f"not a JSON Schema: type {json.dumps(kind)[:100]} is none of {', '.join(TYPES)}")
    return kind, schema


def _referred(whole: Any, reference: Any) -> Any:
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise BadValue(f"the JSON Schema refers to {reference!r}, which is not in its file")
    at = whole
    for part in filter(None, reference[1:].split("/")):
        try:
            at = at[part.replace("~1", "/").replace("~0", "~")]
        except (KeyError, TypeError):
            raise BadValue(f"the JSON Schema has nothing at {reference}") from None
    return at


def fields_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schemas of an object's properties; empty for a map.

    Raises:
        BadValue: they are not valid, or two have names that differ only in case, which Spark does not tell apart.
    """
    fields = schema.get("properties", {})
    if not isinstance(fields, Mapping):
        raise BadValue(f"not a JSON Schema: properties {json.dumps(fields)[:100]}")
    names = [name.lower() for name in fields]
    if len(set(names)) < len(names):
        twice = sorted({name for name in fields if names.count(name.lower()) > 1})
        raise BadValue(f"the JSON Schema has properties that differ only in case: {', '.join(twice)}")
    return dict(fields)


def fitting(schema: Any, whole: Any = None, depth: int = 0) -> Fit:
    """Return what converts a JSON value to that of a schema. Properties that the schema does not have are left out.

    Raises:
        BadValue: as :func:`type_of`.
    """
    whole = schema if whole is None else whole
    kind, schema = type_of(schema, whole, depth)
    if kind is None:
        return _text_of_any
    if kind == "object":
        fields = {name: fitting(field, whole, depth + 1) for name, field in fields_of(schema).items()}
        if fields:
            return lambda value: _object(value, fields)
        return _map(fitting(schema.get("additionalProperties", True) or True, whole, depth + 1))
    if kind == "array":
        return _array(fitting(schema.get("items", True), whole, depth + 1))
    return _SCALARS[kind]


def _object(value: Any, fields: Mapping[str, Fit]) -> Any:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise UndecodableBody(f"{_short(value)} is not an object")
    fitted = {}
    for name, fit in fields.items():
        try:
            fitted[name] = fit(value.get(name))
        except UndecodableBody as err:
            raise UndecodableBody(f"{name}: {err}") from None
    return fitted


def _map(fit: Fit) -> Fit:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise UndecodableBody(f"{_short(value)} is not an object")
        return {_string(name): fit(inner) for name, inner in value.items()}

    return convert


def _array(fit: Fit) -> Fit:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            raise UndecodableBody(f"{_short(value)} is not an array")
        return [fit(inner) for inner in value]

    return convert


def _text_of_any(value: Any) -> str | None:
    if value is None:
        return None
    try:
        return _string(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    except RecursionError:
        raise UndecodableBody("nested too deeply") from None


def _string(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise UndecodableBody(f"{_short(value)} is not a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UndecodableBody(f"{_short(value)} has half of a surrogate pair") from None
    return value


def _integer(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UndecodableBody(f"{_short(value)} is not an integer")
    if not -_LONG <= value < _LONG:
        raise UndecodableBody(f"{_short(value)} has more than 64 bits")
    return value


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UndecodableBody(f"{_short(value)} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise UndecodableBody(f"{_short(value)} is too large") from None


def _boolean(value: Any) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise UndecodableBody(f"{_short(value)} is neither true nor false")
    return value


def _short(value: Any) -> str:
    try:
        text = json.dumps(value)
    except RecursionError:
        return "a value"
    return text if len(text) <= 40 else text[:37] + "..."


_SCALARS: dict[str, Fit] = {"string": _string, "integer": _integer, "number": _number, "boolean": _boolean}
