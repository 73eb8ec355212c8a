"""What bodies hold, as a column of a table: its Arrow type, and the values of bodies for it."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

import pyarrow as pa

from rmqtool.analytics.bodies import kinds
from rmqtool.errors import BadValue, UnreadableStore
from rmqtool.services.bodies.fit import fitting, parse_json
from rmqtool.services.bodies.infer import SAMPLE, infer_schema
from rmqtool.services.bodies.schemas import AvroSchema, ProtobufSchema, load_schema
from rmqtool.store.disk.directories import read_small

INFERRED = "json"
"""Instead of a file: JSON, with a schema from a sample."""
Decode: TypeAlias = Callable[[bytes], Any]
"""Returns the value of a body; raises UndecodableBody."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The schema of bodies, with the content of its file, for tasks on other machines.

    Attributes:
        kind: ``json``, ``avro`` or ``protobuf``.
        definition: a JSON Schema, Avro's JSON, or a ``FileDescriptorSet`` in base64.
        name: the type of a body, for Protobuf.
    """

    kind: str
    definition: str
    name: str = ""

    @classmethod
    def load(cls, place: str) -> "TableSchema":
        """Read the schema in a file.

        Args:
            place: ``.json`` is a JSON Schema; else see :func:`rmqtool.services.bodies.schemas.load_schema`.

        Raises:
            BadValue: the file has no schema, or one for which there is no column.
            UnreadableStore: the file cannot be read.
            MissingRuntime: the library for it is not installed.
        """
        if place.endswith(".json"):
            schema = _json_schema(place)
        else:
            loaded = load_schema(place)
            schema = cls(loaded.kind, kinds.text_of(loaded.text, loaded.kind), loaded.name)
        schema.type  # noqa: B018 - it raises if there is no column for it
        return schema

    @classmethod
    def of_sample(cls, batches: Iterable[pa.RecordBatch]) -> "TableSchema":
        """Return the schema of JSON bodies.

        Args:
            batches: with the column ``body``; no more of them is read than a sample has.

        Raises:
            BadValue: none of them is JSON.
        """
        bodies = (body for batch in batches for body in batch.column("body").to_pylist())
        return cls("json", json.dumps(infer_schema(islice(bodies, SAMPLE))))

    @classmethod
    def from_text(cls, text: str) -> "TableSchema":
        """Create from the result of :meth:`to_text`.

        Raises:
            BadValue: it is none.
        """
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            raise BadValue(f"{text[:100]!r} is not the schema of bodies") from None

    def to_text(self) -> str:
        """Return it as one text."""
        return json.dumps(asdict(self))

    @property
    def type(self) -> pa.DataType:
        """The type of the column.

        Raises:
            BadValue: there is none for such a schema.
        """
        if self.kind == "json":
            return kinds.of_json(json.loads(self.definition))
        if self.kind == "avro":
            return kinds.of_avro(json.loads(self.definition), self.name)
        return kinds.of_protobuf(self._protobuf().descriptor)

    def decoder(self) -> Decode:
        """Return what decodes a body to a value of the type."""
        if self.kind == "json":
            fit = fitting(json.loads(self.definition))
            return lambda body: fit(parse_json(body))
        if self.kind == "avro":
            return AvroSchema("", self.definition.encode(), self.name).read
        return partial(_read_message, self._protobuf())

    def _protobuf(self) -> ProtobufSchema:
        return ProtobufSchema("", kinds.bytes_of(self.definition), self.name)


def body_schema_of(place: str | None, sample: Callable[[], TableSchema]) -> TableSchema | None:
    """Return the schema that an option names; None without one.

    Args:
        sample: takes it from messages.

    Raises:
        BadValue, UnreadableStore, MissingRuntime: as :meth:`TableSchema.load`.
    """
    if place is None:
        return None
    return sample() if place == INFERRED else TableSchema.load(place)


def _json_schema(path: str) -> TableSchema:
    data = read_small(path)
    if data is None:
        raise UnreadableStore(f"{path}: no such file")
    try:
        definition = json.loads(data)
        fitting(definition)
    except (ValueError, RecursionError, BadValue) as err:
        raise BadValue(f"{path}: not a JSON Schema: {err}") from None
    return TableSchema("json", json.dumps(definition))


def _read_message(schema: ProtobufSchema, body: bytes) -> Any:
    return kinds.plain_message(schema.read(body))
