"""What bodies hold, as columns: JSON, Avro and Protobuf; no row is lost because its body is something else."""

import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyiceberg.utils.config import Config

from rmqtool import NewMessage, Store, dump_to_parquet, read_arrow
from rmqtool.admin.target import parse_target
from rmqtool.analytics.bodies.columns import decode_column
from rmqtool.analytics.bodies.schema import TableSchema
from rmqtool.analytics.dump.live import dump_cluster_to_parquet
from rmqtool.analytics.dump.report import DumpOptions
from rmqtool.analytics.lake.dump import dump_to_table
from rmqtool.client import Message as Sent
from rmqtool.client.sync import Producer
from rmqtool.errors import BadValue, Refused, UnreadableStore
from rmqtool.testing import broker
from tests.amounts import by_turns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORE = str(Path(__file__).parents[2] / "examples/store")
ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "by": {"$ref": "#/$defs/person"},
        "more": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "any": {},
    },
    "$defs": {"person": {"type": "object", "properties": {"name": {"type": "string"}}}},
}
FITS = {"id": 1, "price": 2, "tags": ["a", "b"], "by": {"name": "杭"}, "more": {"x": True}, "any": [1], "unknown": 5}
AVRO = {
    "type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "items", "type": {"type": "array", "items": {
            "type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}}},
        {"name": "first", "type": ["null", "Item"], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    ],
}  # fmt: skip


def decoded(schema: TableSchema, *bodies: bytes) -> tuple[list[Any], list[str | None]]:
    """Values and errors of bodies, by a schema that has been sent to another machine."""
    schema = TableSchema.from_text(schema.to_text())
    values, errors = decode_column(
        pa.array(bodies, pa.binary()), pa.nulls(len(bodies), pa.string()), schema.decoder(), schema.type
    )
    assert values.type == schema.type
    return values.to_pylist(), errors.to_pylist()


def sampled(bodies: list[bytes]) -> TableSchema:
    return TableSchema.of_sample([pa.record_batch({"body": pa.array(bodies, pa.binary())})])


def saved(path: Path, schema: object) -> TableSchema:
    path.write_text(json.dumps(schema))
    return TableSchema.load(str(path))


# -- JSON --------------------------------------------------------------------------------------------------------------


def test_json_of_a_given_schema(tmp_path: Path) -> None:
    schema = saved(tmp_path / "order.json", ORDER)
    values, errors = decoded(
        schema, json.dumps(FITS).encode(), b'{"id": 7}', b'{"id": 7.0, "price": null}', b"null", b'{"id": "7"}',
        b'{"tags": [1]}', b'{"more": {"x": 1}}', b"[]", b"\xff", b"", b'{"id": 9223372036854775808}', b'{"price": NaN}',
        b'{"by": {"name": "\\ud800"}}', b"[" * 100_000, b'{"id": true}', b'{"price": 1e999}',
    )  # fmt: skip
    assert values[0] == {
        "id": 1, "price": 2.0, "tags": ["a", "b"], "by": {"name": "杭"}, "more": [("x", True)], "any": "[1]",
    }  # fmt: skip
    assert [value and value["id"] for value in values] == [1, 7, 7, *[None] * 12, None]
    assert errors[:4] == [None] * 4
    assert errors[4] == 'id: "7" is not an integer'
    assert errors[5] == "tags: 1 is not a string"
    assert all(errors[4:15])
    assert not any(values[3:15])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "date"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}},
        {"type": "object", "properties": {"a": {"$ref": "other.json#/a"}}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"type": "object", "properties": {"a": {}, "A": {}}},
        {"type": "array", "items": 5},
        [1],
    ],
)
def test_a_schema_without_columns_is_named(tmp_path: Path, schema: object) -> None:
    with pytest.raises(BadValue, match=r"bad\.json|schema"):
        saved(tmp_path / "bad.json", schema)


def test_files_that_are_no_schema(tmp_path: Path) -> None:
    with pytest.raises(UnreadableStore, match="no such file"):
        TableSchema.load(str(tmp_path / "none.json"))
    (tmp_path / "cut.json").write_text("{")
    with pytest.raises(BadValue, match=r"cut\.json"):
        TableSchema.load(str(tmp_path / "cut.json"))


def test_json_of_a_sample() -> None:
    schema = sampled(
        [
            b"17", b"no JSON", b'{"id": 1, "n": 1, "mixed": 1, "l": [], "deep": {"a": null}, "k": {"x": 1, "X": 2}}',
            b'{"id": 2, "n": 1.5, "mixed": "a", "l": [{"s": 1}], "deep": {"a": "t", "b": true}}', b"[1]",
        ]
    )  # fmt: skip
    assert str(schema.type) == (
        "struct<id: int64, n: double, mixed: string, l: list<element: struct<s: int64>>, "
        "deep: struct<a: string, b: bool>, k: string>"
    )
    values, errors = decoded(schema, b'{"id": 3, "mixed": {"a": 1}, "k": {"x": 5}}', b"17")
    assert values == [{"id": 3, "n": None, "mixed": '{"a": 1}', "l": None, "deep": None, "k": '{"x": 5}'}, None]
    assert errors == [None, "17 is not an object"]
    assert sampled([b"[1, 2]", b"[]"]).type == pa.list_(pa.field("element", pa.int64()))
    with pytest.raises(BadValue, match="none of the first 2 bodies is JSON"):
        sampled([b"a", b"b"])
    with pytest.raises(BadValue, match="there are no messages"):
        sampled([])


# -- Avro and Protobuf -------------------------------------------------------------------------------------------------


def test_avro(tmp_path: Path) -> None:
    import fastavro

    schema = saved(tmp_path / "order.avsc", AVRO)
    at = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
    order = {
        "id": 5, "city": None, "at": at, "price": Decimal("1.25"), "counts": {"a": 1}, "items": [{"sku": "x"}],
        "first": {"sku": "y"}, "kind": "B",
    }  # fmt: skip
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), order)
    values, errors = decoded(schema, stream.getvalue(), b"\x02", stream.getvalue() + b"x", b"")
    assert values == [{**order, "counts": [("a", 1)]}, None, None, None]
    assert [error is None for error in errors] == [True, False, False, False]
    for broken in ({"type": "nothing"}, {**AVRO, "fields": [{"name": "a", "type": ["int", "string"]}]}):
        with pytest.raises(BadValue):
            saved(tmp_path / "bad.avsc", broken)
    with pytest.raises(BadValue, match="contains itself"):
        saved(tmp_path / "list.avsc", {**AVRO, "fields": [{"name": "next", "type": ["null", "Order"]}]})


def test_protobuf(tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="big", number=2, type=kinds.TYPE_UINT64, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="raw", number=3, type=kinds.TYPE_BYTES, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="names", number=4, type=kinds.TYPE_STRING, label=kinds.LABEL_REPEATED)
    order.field.add(name="kind", number=5, type=kinds.TYPE_ENUM, type_name=".shop.Kind", label=kinds.LABEL_OPTIONAL)
    order.field.add(name="item", number=6, type=kinds.TYPE_MESSAGE, type_name=".shop.Item", label=kinds.LABEL_OPTIONAL)
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="PAID", number=1)
    file.message_type.add(name="Item").field.add(
        name="sku", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL
    )
    path = tmp_path / "orders.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    schema = TableSchema.load(f"{path}:Order")
    body = b"\x08\x05\x10" + b"\xff" * 9 + b"\x01" + b"\x1a\x02\x00\xff\x22\x01a\x22\x01b\x28\x01"
    values, errors = decoded(schema, body, body + b"\x32\x03\x0a\x01s", b"\x28\x07", b"\x08")
    assert values[0] == {
        "id": 5, "big": Decimal((1 << 64) - 1), "raw": b"\x00\xff", "names": ["a", "b"], "kind": "PAID", "item": None,
    }  # fmt: skip
    assert values[1]["item"] == {"sku": "s"}
    assert values[2]["kind"] == "7"
    assert values[3] is None
    assert [error is None for error in errors] == [True, True, True, False]
    with pytest.raises(BadValue, match="Order"):
        TableSchema.load(f"{path}:Nothing")


# -- wherever messages are read ----------------------------------------------------------------------------------------


def expected(store: str) -> dict[int, Any]:
    """What the bodies of a store hold, by physical offset."""
    rows = read_arrow(store, columns=["physicalOffset", "body"]).read_all().to_pylist()
    values = {}
    for row in rows:
        try:
            value = json.loads(row["body"])
        except ValueError:
            value = None
        values[row["physicalOffset"]] = value if isinstance(value, dict) else None
    assert 0 < sum(value is not None for value in values.values()) < len(values)
    return values


def values_of(table: pa.Table) -> dict[int, Any]:
    rows = table.select(["physicalOffset", "decoded", "decodeError"]).to_pylist()
    assert all((row["decoded"] is None) == (row["decodeError"] is not None) for row in rows)
    return {row["physicalOffset"]: row["decoded"] for row in rows}


def test_a_store_keeps_all_rows(tmp_path: Path) -> None:
    store, out = STORE, str(tmp_path / "out")
    values = expected(store)
    assert values_of(read_arrow(store, body_schema="json").read_all()) == values
    assert (
        values_of(
            read_arrow(store, columns=["decodeError", "physicalOffset", "decoded"], body_schema="json").read_all()
        )
        == values
    )
    orders = read_arrow(store, topic="Orders", body_schema="json").read_all()
    assert orders.schema.field("decoded").type == pa.struct([("id", pa.int64()), ("城市", pa.string())])
    for name, options in {
        "plain": DumpOptions(runner="local", body_schema="json"),
        "parted": DumpOptions(
            runner="local", body_schema="json", partition_by=("topic",), split_bytes=20_000, row_group_bytes=30_000
        ),
    }.items():
        dump_to_parquet(store, f"{out}/{name}", options)
        assert values_of(ds.dataset(f"{out}/{name}", format="parquet").to_table()) == values, name
    with pytest.raises(BadValue, match="only messages"):
        read_arrow(store, "queues", body_schema="json")


def test_an_output_keeps_its_schema(tmp_path: Path) -> None:
    out, store = str(tmp_path / "out"), str(tmp_path / "store")
    Store.create(store).close()
    append(store, b'{"id": 1}')
    options = DumpOptions(runner="local", since_last=True, body_schema="json")
    dump_to_parquet(store, out, options)
    append(store, b'{"id": 2, "new": "x"}', b'{"id": "three"}')
    assert dump_to_parquet(store, out, options).rows == 2
    table = ds.dataset(out, format="parquet").to_table()
    assert [row["decoded"] for row in table.to_pylist()] == [{"id": 1}, {"id": 2}, None]
    with pytest.raises(Refused, match="was begun with another body schema"):
        dump_to_parquet(store, out, DumpOptions(runner="local", since_last=True))
    assert saved(tmp_path / "s.json", {"type": "object", "properties": {"id": {"type": "number"}}})
    with pytest.raises(Refused, match="was begun with another body schema"):
        dump_to_parquet(store, out, DumpOptions(runner="local", since_last=True, body_schema=str(tmp_path / "s.json")))


def append(store: str, *bodies: bytes) -> None:
    with Store(store, write=True) as opened:
        for body in bodies:
            opened.append(NewMessage(topic="Bodies", body=body))


@pytest.mark.parametrize("to", ["delta", "iceberg"])
def test_tables_of_a_lakehouse(tmp_path: Path, to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__BODIES__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__BODIES__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # which was read when it was imported
    store = STORE
    table = str(tmp_path / "table") if to == "delta" else "bodies.lab.messages"
    dump_to_table(store, to, table, DumpOptions(runner="local", topics=("Orders",)), source_name="first")
    with_bodies = DumpOptions(runner="local", topics=("Orders",), body_schema="json")
    assert dump_to_table(str(tmp_copy(tmp_path)), to, table, with_bodies, source_name="second").rows > 0
    decoded = [row["decoded"] for row in rows_of(to, table)]
    orders = values_of(read_arrow(store, topic="Orders", body_schema="json").read_all())
    assert len(decoded) == 2 * len(orders)
    assert sum(map(bool, decoded)) == sum(map(bool, orders.values()))
    assert {"id": 10, "城市": "杭州"} in decoded


@pytest.mark.parametrize("to", ["delta", "iceberg"])
def test_a_table_takes_a_body_schema_with_more_fields(tmp_path: Path, to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schema evolution: earlier rows have nothing in the new columns and fields; what it has been given stays."""
    monkeypatch.setenv("PYICEBERG_CATALOG__BODIES__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__BODIES__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # which was read when it was imported
    table, store = str(tmp_path / "table") if to == "delta" else "bodies.lab.messages", str(tmp_path / "store")
    Store.create(store).close()
    options = DumpOptions(runner="local", since_last=True)
    line = {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}}
    wider: Any = {"lines": {"type": "array", "items": line}, "id": {"type": "integer"}, "user": {"type": "string"}}
    files = [str(tmp_path / f"{number}.json") for number in range(3)]
    assert saved(tmp_path / "0.json", {"type": "object", "properties": wider})
    line["properties"] = {**line["properties"], "price": {"type": "number"}}
    assert saved(tmp_path / "1.json", {"type": "object", "properties": wider})
    assert saved(tmp_path / "2.json", {"type": "object", "properties": {**wider, "id": {"type": "string"}}})
    body = b'{"id": %d, "user": "u", "lines": [{"sku": "s", "n": 1, "price": 2.5}]}'
    for number, schema in enumerate((None, "json", "json", files[0], files[1], files[1])):
        append(store, body % number if number > 2 else b'{"id": %d}' % number)
        assert dump_to_table(store, to, table, replace(options, body_schema=schema)).rows == 1
    rows = sorted(rows_of(to, table), key=lambda row: row["physicalOffset"])
    item, user = {"sku": "s", "n": 1, "price": None}, {"user": "u"}
    assert [row["decoded"] for row in rows] == [
        None,
        *({"id": number, "user": None, "lines": None} for number in (1, 2)),
        {"id": 3, **user, "lines": [item]},
        *({"id": number, **user, "lines": [{**item, "price": 2.5}]} for number in (4, 5)),
    ]
    append(store, b"{}")
    for schema in (None, files[0], files[2]):
        with pytest.raises(Refused, match="another body schema; it takes a schema that has all of its fields, and m"):
            dump_to_table(store, to, table, replace(options, body_schema=schema))


def rows_of(to: str, table: str) -> list[dict[str, Any]]:
    if to == "delta":
        from deltalake import DeltaTable

        return list(DeltaTable(table).to_pyarrow_table().to_pylist())
    from pyiceberg.catalog import load_catalog

    return list(load_catalog("bodies").load_table("lab.messages").scan().to_arrow().to_pylist())


def tmp_copy(folder: Path) -> Path:
    """Another store: one message more, so that its log is not that of the first."""
    store = folder / "copy"
    Store.create(str(store)).close()
    append(str(store), b"no order")
    with Store(str(store), write=True) as opened:
        for row in read_arrow(STORE, topic="Orders", columns=["body"]).read_all().to_pylist():
            opened.append(NewMessage(topic="Orders", body=row["body"]))
    return store


def test_a_live_cluster(tmp_path: Path) -> None:
    with broker() as served, Producer(served.namesrv, "bodies") as producer:
        for number in range(5):
            producer.send(Sent("Live", b'{"n": %d}' % number if number % 2 else b"text"))
        dump_cluster_to_parquet(
            parse_target(f"rocketmq://{served.namesrv}"), str(tmp_path / "out"),
            DumpOptions(runner="local", topics=("Live",), body_schema="json"),
        )  # fmt: skip
    table = pq.read_table(str(tmp_path / "out"))
    assert sorted((row["body"], row["decoded"] and row["decoded"]["n"]) for row in table.to_pylist()) == sorted(
        (b'{"n": %d}' % number, number) if number % 2 else (b"text", None) for number in range(5)
    )


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@by_turns(11)
@pytest.mark.parametrize("planned", [False, True])
def test_spark(spark: "SparkSession", planned: bool) -> None:
    from rmqtool.analytics.source.tables_source import register

    if planned:
        register(spark)
    source = spark if planned else spark.newSession()
    frame = source.read.format("rocketmq").option("bodySchema", "json").load(STORE)
    values = expected(STORE)
    fits = [value for value in values.values() if value is not None]
    assert frame.selectExpr("decoded.id").where("decodeError IS NULL").agg({"id": "sum"}).first()[0] == sum(
        value["id"] for value in fits
    )
    assert frame.where("decoded.id = 10").selectExpr("decoded.`城市`").distinct().count() == 1
    assert frame.where("decodeError IS NOT NULL").count() == len(values) - len(fits)
    assert frame.count() == len(values)
