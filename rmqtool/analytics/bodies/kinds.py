"""The Arrow types of schemas of bodies."""

import base64
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from rmqtool.errors import BadValue
from rmqtool.services.bodies.fit import fields_of, type_of
from rmqtool.services.bodies.schemas import UndecodableBody

_TIME = pa.timestamp("us", tz="UTC")
_DEEP = 64  # levels of a schema
_OF_JSON = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_OF_AVRO = {
    "null": pa.string(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(), "enum": pa.string(), "fixed": pa.binary(),
}  # fmt: skip
_AVRO_LOGICAL = {
    "date": pa.date32(), "timestamp-millis": _TIME, "timestamp-micros": _TIME,
    "local-timestamp-millis": pa.timestamp("us"), "local-timestamp-micros": pa.timestamp("us"), "uuid": pa.string(),
}  # fmt: skip
_MOST_DIGITS = 38


def text_of(definition: bytes, kind: str) -> str:
    """Return the content of a schema file as text."""
    return base64.b64encode(definition).decode() if kind == "protobuf" else definition.decode()


def bytes_of(text: str) -> bytes:
    """Return the descriptor set that :func:`text_of` made a text of."""
    return base64.b64decode(text)


def _list(items: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", items))  # the name that Spark gives it


def _struct(fields: Mapping[str, pa.DataType]) -> pa.DataType:
    if not fields:
        raise BadValue("there is no column for an object without fields")
    return pa.struct([pa.field(name, kind) for name, kind in fields.items()])


# -- JSON --------------------------------------------------------------------------------------------------------------


def of_json(schema: Any, whole: Any = None, depth: int = 0) -> pa.DataType:
    """Return the type for a JSON Schema. Text is what may be any value.

    Raises:
        BadValue: there is none.
    """
    whole = schema if whole is None else whole
    kind, schema = type_of(schema, whole, depth)
    if kind is None:
        return pa.string()
    if kind == "object":
        fields = fields_of(schema)
        if fields:
            return _struct({name: of_json(field, whole, depth + 1) for name, field in fields.items()})
        return pa.map_(pa.string(), of_json(schema.get("additionalProperties", True) or True, whole, depth + 1))
    if kind == "array":
        return _list(of_json(schema.get("items", True), whole, depth + 1))
    return _OF_JSON[kind]


# -- Avro --------------------------------------------------------------------------------------------------------------


def of_avro(schema: Any, name: str = "") -> pa.DataType:
    """Return the type for an Avro schema.

    Args:
        name: a named type in it; empty for the schema itself.

    Raises:
        BadValue: there is none: a union of several types, or a type that contains itself.
    """
    named: dict[str, Any] = {}
    _name_types(schema, "", named)
    return _of_avro(named.get(name, schema), "", named, ())


def _name_types(schema: Any, space: str, named: dict[str, Any]) -> None:
    if isinstance(schema, list):
        for each in schema:
            _name_types(each, space, named)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        if kind in ("record", "error", "enum", "fixed"):
            full = _full_name(schema, space)
            named[full], space = schema, full.rpartition(".")[0]
        elif isinstance(kind, dict | list):
            _name_types(kind, space, named)
        for inner in (schema.get("items"), schema.get("values"), *(each["type"] for each in schema.get("fields", ()))):
            _name_types(inner, space, named)


def _full_name(schema: Mapping[str, Any], space: str) -> str:
    name = str(schema["name"])
    space = schema.get("namespace", space) or ""
    return name if "." in name or not space else f"{space}.{name}"


def _of_avro(schema: Any, space: str, named: Mapping[str, Any], inside: tuple[str, ...]) -> pa.DataType:
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        if len(kinds) > 1:
            raise BadValue(f"there is no column for a union of {len(kinds)} types of Avro")
        return _of_avro(kinds[0] if kinds else "null", space, named, inside)
    if isinstance(schema, str):
        if schema in _OF_AVRO:
            return _OF_AVRO[schema]
        full = schema if "." in schema or f"{space}.{schema}" not in named else f"{space}.{schema}"
        if full in inside:
            raise BadValue(f"there is no column for {full}, which contains itself")
        definition = named[full]
        return _of_avro({"namespace": full.rpartition(".")[0], **definition}, space, named, inside)
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        if int(schema["precision"]) > _MOST_DIGITS:
            raise BadValue(f"there is no column for a decimal of {schema['precision']} digits")
        return pa.decimal128(int(schema["precision"]), int(schema.get("scale", 0)))
    if logical in _AVRO_LOGICAL:
        return _AVRO_LOGICAL[logical]
    if kind in ("record", "error"):
        full = _full_name(schema, space)
        if full in inside:
            raise BadValue(f"there is no column for {full}, which contains itself")
        space, inside = full.rpartition(".")[0], (*inside, full)
        return _struct({field["name"]: _of_avro(field["type"], space, named, inside) for field in schema["fields"]})
    if kind == "array":
        return _list(_of_avro(schema["items"], space, named, inside))
    if kind == "map":
        return pa.map_(pa.string(), _of_avro(schema["values"], space, named, inside))
    return _of_avro(kind, space, named, inside)


# -- Protobuf ----------------------------------------------------------------------------------------------------------

_TIMESTAMP = "google.protobuf.Timestamp"
_OF_CPP = {  # FieldDescriptor.CPPTYPE_*
    1: pa.int32(), 2: pa.int64(), 3: pa.int64(), 4: pa.decimal128(20, 0), 5: pa.float64(), 6: pa.float32(),
    7: pa.bool_(), 8: pa.string(),
}  # fmt: skip
_BYTES = 12  # FieldDescriptor.TYPE_BYTES


def of_protobuf(message: Any, inside: tuple[str, ...] = ()) -> pa.DataType:
    """Return the type for the descriptor of a Protobuf message. Enums are their names.

    Raises:
        BadValue: there is none: it contains itself, or has no fields.
    """
    if message.full_name == _TIMESTAMP:
        return _TIME
    if message.full_name in inside:
        raise BadValue(f"there is no column for {message.full_name}, which contains itself")
    inside = (*inside, message.full_name)
    return _struct({field.name: _of_field(field, inside) for field in message.fields})


def _of_field(field: Any, inside: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return pa.map_(_of_field(key, inside), _of_field(value, inside))
    if field.message_type is not None:
        kind = of_protobuf(field.message_type, inside)
    else:
        kind = pa.binary() if field.type == _BYTES else _OF_CPP.get(field.cpp_type, pa.string())
    return _list(kind) if field.is_repeated else kind


def _is_map(field: Any) -> bool:
    kind = field.message_type
    return bool(field.is_repeated and kind is not None and kind.GetOptions().map_entry)


def plain_message(message: Any) -> Any:
    """Return a Protobuf message as a dict by field name; None for fields that may be absent and are.

    Raises:
        UndecodableBody: a timestamp is out of range.
    """
    if message.DESCRIPTOR.full_name == _TIMESTAMP:
        from datetime import UTC

        try:
            return message.ToDatetime(tzinfo=UTC)
        except (ValueError, OverflowError) as err:
            raise UndecodableBody(f"{_TIMESTAMP}: {err}") from None
    value: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            value[field.name] = None
            continue
        given = getattr(message, field.name)
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            value[field.name] = [(key, _plain(inner, given[key])) for key in given]
        elif field.is_repeated:
            value[field.name] = [_plain(field, each) for each in given]
        else:
            value[field.name] = _plain(field, given)
    return value


def _plain(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return plain_message(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value
