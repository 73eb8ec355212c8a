"""Decoding of message bodies by a Protobuf or Avro schema in a file.

The libraries are an extra of the installation, ``rmqtool[schemas]``: fastavro, and grpcio-tools with protobuf.
"""

import os
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any, Protocol

from rmqtool.errors import BadValue, MissingRuntime, UnreadableStore
from rmqtool.services.bodies import containers
from rmqtool.store.disk.directories import read_small

_CONFLUENT = 5  # bytes before a body that a schema registry's client wrote: 0, and the id of the schema
_OBJECT = b"\xc3\x01"  # Avro's single-object encoding: these, and the schema's fingerprint
_OBJECT_HEAD = 10


class UndecodableBody(Exception):
    """A body is not of the schema; the text says why."""


class BodySchema(Protocol):
    """The schema of bodies.

    Attributes:
        kind: ``protobuf`` or ``avro``.
        name: the full name of the type of a body.
        text: the schema for other readers: a serialized ``FileDescriptorSet``, or Avro's JSON.
    """

    kind: str
    name: str
    text: bytes

    def decode(self, body: bytes) -> Any:
        """A body, already decompressed, as values of JSON.

        Raises:
            UndecodableBody: it is not of the schema.
        """

    def decode_numbers(self, body: bytes) -> Any:
        """As :meth:`decode`, but every integer is a number.

        Raises:
            UndecodableBody: it is not of the schema.
        """


def load_schema(place: str) -> BodySchema:
    """The schema in a file: ``.avsc`` is Avro, ``.proto`` a Protobuf source, anything else a Protobuf descriptor set.

    Args:
        place: a path, or ``PATH:TYPE`` if the file has several types.

    Raises:
        BadValue: the file has no such type, or is no schema.
        UnreadableStore: the file cannot be read.
        MissingRuntime: the library for it is not installed.
    """
    path, colon, name = place, "", ""
    if not os.path.exists(place):
        path, colon, name = place.rpartition(":")
        if not colon:
            path = place
    data = read_small(path)
    if data is None:
        raise UnreadableStore(f"{path}: no such file")
    if path.endswith(".avsc"):
        return AvroSchema(path, data, name)
    return ProtobufSchema(path, _compile(path) if path.endswith(".proto") else data, name)


# -- Protobuf ----------------------------------------------------------------------------------------------------------


def _compile(path: str) -> bytes:
    """The descriptor set of a ``.proto`` file; what it imports is looked for in its directory and those above."""
    import subprocess
    import sys
    from importlib.util import find_spec

    if find_spec("grpc_tools") is None:
        raise MissingRuntime("a .proto file needs grpcio-tools: pip install 'rmqtool[schemas]'")
    bundled = os.path.join(os.path.dirname(find_spec("grpc_tools").origin or ""), "_proto")  # type: ignore[union-attr]
    path = os.path.abspath(path)
    root, reason = os.path.dirname(path), ""
    while True:
        run = subprocess.run(
            [
                sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", f"-I{bundled}", "--include_imports",
                "--descriptor_set_out=/dev/stdout", path,
            ],
            capture_output=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if run.returncode == 0:
            return run.stdout
        text = run.stderr.decode("utf-8", "replace").strip()
        reason = reason or (text.splitlines() or ["protoc failed"])[0]
        above = os.path.dirname(root)
        if "File not found" not in text or above == root:
            raise BadValue(f"--body-schema {path}: {reason}")
        root = above


class ProtobufSchema:
    """A message type of a descriptor set.

    Args:
        path: for errors.
        data: a serialized ``FileDescriptorSet``.
        name: a message type, with or without its package; empty if there is one top-level type only.

    Raises:
        BadValue: there is no such type, or it is no descriptor set.
        MissingRuntime: protobuf is not installed.
    """

    kind = "protobuf"

    def __init__(self, path: str, data: bytes, name: str) -> None:
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message, message_factory
        except ImportError:
            raise MissingRuntime("Protobuf needs protobuf: pip install 'rmqtool[schemas]'") from None
        self.text = data
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(data).file
        except message.DecodeError:
            files = ()
        if not files:
            raise BadValue(
                f"--body-schema {path}: neither .avsc, .proto nor a descriptor set (protoc --descriptor_set_out)"
            )
        self._pool = descriptor_pool.DescriptorPool()
        try:
            _add_files(self._pool, {file.name: file for file in files})
            last = files[-1]  # what the others are imported by
            tops = [f"{last.package}.{kind.name}".lstrip(".") for kind in last.message_type]
            self.name = _chosen(path, name, _names(files), tops)
            kind = self._pool.FindMessageTypeByName(self.name)
        except (KeyError, TypeError) as err:
            raise BadValue(f"--body-schema {path}: {str(err).splitlines()[0]}") from None
        self._class = message_factory.GetMessageClass(kind)
        self._to_dict, self._failures = json_format.MessageToDict, (message.DecodeError, json_format.Error)

    @property
    def descriptor(self) -> Any:
        """Describes the type."""
        return self._class.DESCRIPTOR

    def read(self, body: bytes) -> Any:
        """A body as a message.

        Raises:
            UndecodableBody: it is not of the type.
        """
        try:
            value = self._class.FromString(_without_registry(body))
        except (*self._failures, TypeError, ValueError) as err:
            raise UndecodableBody(f"not a {self.name}: {err}") from None
        if body and not value.ListFields():
            raise UndecodableBody(f"has no field of {self.name}")
        return value

    def decode(self, body: bytes) -> Any:
        """Protobuf's own JSON form, with the names of the schema; 64-bit integers are texts there.

        Raises:
            UndecodableBody: it is not of the schema.
        """
        try:
            return self._to_dict(
                self.read(body),
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=self._pool,
            )
        except (*self._failures, TypeError, ValueError) as err:
            raise UndecodableBody(f"not a {self.name}: {err}") from None

    def decode_numbers(self, body: bytes) -> Any:
        """As :meth:`decode`, but 64-bit integers are numbers.

        Raises:
            UndecodableBody: it is not of the schema.
        """
        return _with_numbers(self.decode(body), self.descriptor)


def _with_numbers(value: Any, descriptor: Any) -> Any:
    """A message in Protobuf's JSON form with its 64-bit integers as numbers."""
    if not isinstance(value, dict):  # a type with a form of its own, such as Timestamp
        return value
    fields = descriptor.fields_by_name
    return {
        name: _field_with_numbers(inner, fields[name]) if name in fields else inner for name, inner in value.items()
    }


def _field_with_numbers(value: Any, field: Any) -> Any:
    if isinstance(value, list):
        return [_field_with_numbers(inner, field) for inner in value]
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry and isinstance(value, dict):
        inner_field = kind.fields_by_name["value"]
        return {key: _field_with_numbers(inner, inner_field) for key, inner in value.items()}
    if kind is not None:
        return _with_numbers(value, kind)
    long = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64)
    return int(value) if long and isinstance(value, str) else value


def _without_registry(body: bytes) -> bytes:
    """A body without what a schema registry's client writes before it; no Protobuf message begins with 0."""
    if len(body) <= _CONFLUENT or body[0]:
        return body
    # the path to the type, as zigzag varints: their number, and so many; 0 stands for the first type
    number, at = _varint(body, _CONFLUENT)
    for _index in range(number):
        _value, at = _varint(body, at)
    return body[at:]


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(body) or shift > 28:
            raise UndecodableBody("begins with 0, which neither a message nor a registry's header does")
        value |= (body[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not body[at - 1] & 0x80:
            return value >> 1, at


def _add_files(pool: Any, files: Mapping[str, Any]) -> None:
    """Add files to a pool, each after what it imports; Google's own are added where they are left out."""
    from google.protobuf import descriptor_pool

    added: set[str] = set()

    def add(name: str) -> None:
        if name in added:
            return
        added.add(name)
        if name in files:
            for imported in files[name].dependency:
                add(imported)
            pool.AddSerializedFile(files[name].SerializeToString())
        elif name.startswith("google/protobuf/"):
            import importlib

            importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
            own = descriptor_pool.Default().FindFileByName(name)
            for imported in own.dependencies:
                add(imported.name)
            pool.AddSerializedFile(own.serialized_pb)
        else:
            raise KeyError(f"imports {name}, which is not in it: make it with protoc --include_imports")

    for name in files:
        add(name)


def _names(files: Any) -> list[str]:
    """The full names of all message types."""
    names = []
    pending = [(file.package, kind) for file in files for kind in file.message_type]
    while pending:
        outer, kind = pending.pop()
        names.append(full := f"{outer}.{kind.name}".lstrip("."))
        pending += [(full, inner) for inner in kind.nested_type if not inner.options.map_entry]
    return names


def _chosen(path: str, name: str, names: list[str], tops: list[str]) -> str:
    """The full name of the type that is meant.

    Args:
        tops: those that count if no name is given.

    Raises:
        BadValue: none or several are.
    """
    fits = tops if not name else [full for full in names if full == name] or [
        full for full in names if full.endswith(f".{name}")
    ]  # fmt: skip
    if len(fits) == 1:
        return fits[0]
    what = f"has no type {name}" if name and not fits else "has several types" if fits else "has no type"
    listed = ", ".join(sorted(fits or names)[:10])
    raise BadValue(f"--body-schema {path}: {what}" + (f"; give {path}:TYPE, with one of {listed}" if listed else ""))


# -- Avro --------------------------------------------------------------------------------------------------------------


class AvroSchema:
    """A schema of Avro. Bodies may be plain values, single objects, container files, or a schema registry's.

    Args:
        path: for errors.
        data: the schema in JSON.
        name: a named type in it; empty for the schema itself.

    Raises:
        BadValue: it is no schema, or has no such type.
        MissingRuntime: fastavro is not installed.
    """

    kind = "avro"

    def __init__(self, path: str, data: bytes, name: str) -> None:
        import json

        try:
            import fastavro
        except ImportError:
            raise MissingRuntime("Avro needs fastavro: pip install 'rmqtool[schemas]'") from None
        self.text = data
        try:
            named: dict[str, Any] = {}
            schema = fastavro.parse_schema(json.loads(data), named_schemas=named)
            if name:
                full = _chosen(path, name, list(named), [])
                schema = fastavro.parse_schema(_with_names(named[full], named, set()))
        except (ValueError, TypeError, AttributeError, KeyError, fastavro.schema.SchemaParseException) as err:
            raise BadValue(f"--body-schema {path}: not an Avro schema: {err}") from None
        if _takes_no_bytes(schema, items=True):
            raise BadValue(
                f"--body-schema {path}: an array of items that take no bytes: a few bytes could hold billions"
            )
        self._library, self._schema = fastavro, schema
        self.name = schema.get("name", "") if isinstance(schema, dict) else ""

    def decode(self, body: bytes) -> Any:
        """A body as values of JSON: bytes are base64, times ISO 8601, decimals texts.

        Raises:
            UndecodableBody: it is not of the schema.
        """
        return _plain(self.read(body))

    decode_numbers = decode

    def read(self, body: bytes) -> Any:
        """A body as the values of fastavro.

        Raises:
            UndecodableBody: it is not of the schema.
        """
        try:
            if body.startswith(containers.MAGIC):
                reader = self._library.reader(BytesIO(containers.plain_container(body, self._library)))
                # what one body may cost is bounded by its length
                if any(_takes_no_bytes(reader.writer_schema, items=each) for each in (False, True)):
                    raise ValueError("a container whose values take no bytes")
                values = list(reader)
                return values[0] if len(values) == 1 else values
            heads = [_OBJECT_HEAD] if body.startswith(_OBJECT) else [0]
            return self._after(body, [*heads, _CONFLUENT] if body[:1] == b"\0" else heads)
        except Exception as err:  # the library raises what its parts do, on bytes that are something else
            raise UndecodableBody(f"not Avro of {self.name or 'this schema'}: {err or type(err).__name__}") from None

    def _after(self, body: bytes, heads: list[int]) -> Any:
        """The value behind the first of some heads that leaves a whole value and nothing more."""
        for head in heads:
            file = BytesIO(body[head:])
            try:
                value = self._library.schemaless_reader(file, self._schema)
            except Exception:
                if head == heads[-1]:
                    raise
                continue
            if file.tell() == len(body) - head:
                return value
        raise ValueError("bytes are left")


def _with_names(schema: Any, named: Mapping[str, Any], known: set[str]) -> Any:
    """A schema of fastavro with the definition of each named type where it is first used."""
    if isinstance(schema, str):
        return _with_names(named[schema], named, known) if schema in named and schema not in known else schema
    if isinstance(schema, list):
        return [_with_names(inner, named, known) for inner in schema]
    if schema.get("name") in known:
        return schema["name"]
    if "name" in schema:
        known.add(schema["name"])
    whole = {key: value for key, value in schema.items() if not key.startswith("__")}
    for key in {"type", "items", "values"} & whole.keys():
        whole[key] = _with_names(whole[key], named, known)
    if "fields" in whole:
        whole["fields"] = [{**field, "type": _with_names(field["type"], named, known)} for field in whole["fields"]]
    return whole


def _plain(value: Any) -> Any:
    """A value of fastavro as JSON has it."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _inner(schema: Any) -> list[Any]:
    """The schemas directly inside of an Avro schema."""
    if isinstance(schema, list):
        return schema
    if not isinstance(schema, dict):
        return []
    fields = [field["type"] for field in schema.get("fields", ())]
    return [*fields, *(schema[part] for part in ("items", "values", "type") if part in schema)]


def _every(schema: Any) -> Iterator[Any]:
    yield schema
    for inner in _inner(schema):
        yield from _every(inner)


def _least_size(schema: Any, named: Mapping[str, Any], within: frozenset[str] = frozenset()) -> int:
    """A lower bound for the bytes of a value of an Avro schema; 0 only if there are values without bytes.

    Args:
        named: the types that have names.
        within: those around it; what contains itself ends elsewhere.
    """
    if isinstance(schema, str) and schema in named:
        return 0 if schema in within else _least_size(named[schema], named, within)
    if not isinstance(schema, dict):
        return int(schema != "null")
    if schema["type"] in ("record", "error"):
        around = within | {str(schema.get("name"))}
        return sum(_least_size(field["type"], named, around) for field in schema["fields"])
    if schema["type"] == "fixed":
        return int(schema["size"])
    return _least_size(schema["type"], named, within)


def _takes_no_bytes(schema: Any, *, items: bool) -> bool:
    """Whether values of an Avro schema may take no bytes, or with ``items`` those of an array in it."""
    named = {part["name"]: part for part in _every(schema) if isinstance(part, dict) and "name" in part}
    if not items:
        return not _least_size(schema, named)
    arrays = [part["items"] for part in _every(schema) if isinstance(part, dict) and part.get("type") == "array"]
    return any(not _least_size(part, named) for part in arrays)
