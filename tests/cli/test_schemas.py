"""Bodies by a schema, and by their fields: what the libraries of Protobuf and Avro wrote is shown by every command."""

import json
import struct
import subprocess
import sys
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
import zstandard

from rmqtool import NewMessage, Store
from rmqtool.client import Message
from rmqtool.client.sync import Producer
from rmqtool.errors import BadValue
from rmqtool.services.bodies.containers import HEADER, MOST
from rmqtool.services.bodies.schemas import UndecodableBody, load_schema
from rmqtool.services.bodies.view import BodyView
from rmqtool.services.lookup.where import FieldCondition, RowFields
from rmqtool.testing import broker
from tests.cli.running import rmqtool

PROTO = """
syntax = "proto3";
package shop;
import "money/money.proto";
import "google/protobuf/timestamp.proto";
message Order {
  message Item { string sku = 1; int32 count = 2; }
  int64 id = 1;
  repeated Item items = 2;
  money.Price price = 3;
  google.protobuf.Timestamp at = 4;
  map<string, bytes> extra = 5;
}
message Refund { int64 id = 1; }
"""
MONEY = 'syntax = "proto3"; package money; message Price { string currency = 1; int64 cents = 2; }'
AVSC: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
        {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
            {"name": "sku", "type": "string"}, {"name": "price", "type": {
                "type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}]}}},
    ],
}  # fmt: skip
AVRO_ORDER = {
    "id": 2**53 + 1, "note": None, "at": 1795206884370, "raw": b"\xff\0",
    "items": [{"sku": "a", "price": Decimal(12)}],
}  # fmt: skip
AVRO_SHOWN = {
    "id": 2**53 + 1,
    "note": None,
    "at": "2026-11-20T20:34:44.370000+00:00",
    "raw": "/wA=",
    "items": [{"sku": "a", "price": "12.00"}],
}
PROTO_SHOWN = {
    "id": "7",
    "items": [{"sku": "a", "count": 2}, {"sku": "b", "count": 0}],
    "price": {"currency": "EUR", "cents": "995"},
    "at": "2026-11-20T20:34:44Z",
    "extra": {"k": "/w=="},
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The schemas: shop/order.proto, which imports money/money.proto, both as order.desc, and order.avsc."""
    root = tmp_path_factory.mktemp("schemas")
    for name, text in (("shop/order.proto", PROTO), ("money/money.proto", MONEY)):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    (root / "order.avsc").write_text(json.dumps(AVSC))
    for name, more in (("order.desc", ("--include_imports",)), ("alone.desc", ())):
        subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", f"--descriptor_set_out={root / name}", *more,
             "shop/order.proto"], check=True, cwd=root,
        )  # fmt: skip
    return root


def proto_order() -> bytes:
    """An order in Protobuf, written field by field."""

    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    items = field(2, field(1, b"a") + b"\x10\x02") + field(2, field(1, b"b"))
    price = field(3, field(1, b"EUR") + b"\x10\xe3\x07")
    seconds, rest = 1795206884, b""
    while seconds:
        rest, seconds = rest + bytes([seconds & 0x7F | (0x80 if seconds > 0x7F else 0)]), seconds >> 7
    return b"\x08\x07" + items + price + field(4, b"\x08" + rest) + field(5, field(1, b"k") + field(2, b"\xff"))


def avro_order() -> bytes:
    """An order in Avro."""
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVSC), AVRO_ORDER)
    return out.getvalue()


def container() -> bytes:
    """A container file with one order."""
    out = BytesIO()
    fastavro.writer(out, fastavro.parse_schema(AVSC), [AVRO_ORDER])
    return out.getvalue()


REGISTRY = b"\0" + struct.pack(">i", 4711)  # what clients of a schema registry write before a body


@pytest.mark.parametrize("name", ["shop/order.proto:shop.Order", "shop/order.proto:Order", "order.desc:shop.Order"])
@pytest.mark.parametrize("head", [b"", REGISTRY + b"\0", REGISTRY + b"\2\0"], ids=["plain", "first", "path"])
def test_protobuf(sources: Path, name: str, head: bytes) -> None:
    assert load_schema(f"{sources}/{name}").decode(head + proto_order()) == PROTO_SHOWN


@pytest.mark.parametrize(
    "body", [avro_order(), REGISTRY + avro_order(), b"\xc3\x01" + bytes(8) + avro_order(), container()],
    ids=["plain", "registry", "single object", "container"],
)  # fmt: skip
def test_avro(sources: Path, body: bytes) -> None:
    assert load_schema(f"{sources}/order.avsc").decode(body) == AVRO_SHOWN


def test_a_type_inside_an_avro_schema(sources: Path) -> None:
    out = BytesIO()
    fastavro.schemaless_writer(
        out, fastavro.parse_schema(AVSC["fields"][4]["type"]["items"]), {"sku": "x", "price": Decimal(1)}
    )
    assert load_schema(f"{sources}/order.avsc:Item").decode(out.getvalue()) == {"sku": "x", "price": "1.00"}


@pytest.mark.parametrize("body", [b"", b"\xff", b"\0", b'{"id":7}', bytes(range(256)), avro_order()[:-1], b"Obj\x01"])
def test_other_bodies_are_told(sources: Path, body: bytes) -> None:
    with pytest.raises(UndecodableBody):
        load_schema(f"{sources}/order.avsc").decode(body)
    if body:
        with pytest.raises(UndecodableBody):
            load_schema(f"{sources}/order.desc:Order").decode(body)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("shop/order.proto", "has several types"),
        ("shop/order.proto:Nothing", "has no type Nothing"),
        ("alone.desc:Order", "imports money/money.proto"),
        ("order.avsc:Nothing", "has no type Nothing"),
        ("broken.proto", "broken.proto"),
        ("broken.avsc", "not an Avro schema"),
        ("broken.desc", "neither .avsc, .proto nor a descriptor set"),
        ("empty.desc", "neither .avsc, .proto nor a descriptor set"),
    ],
)
def test_bad_schemas_are_one_line(sources: Path, name: str, reason: str) -> None:
    for suffix in ("proto", "avsc", "desc"):
        (sources / f"broken.{suffix}").write_text("neither this nor that {")
    (sources / "empty.desc").write_bytes(b"")
    with pytest.raises(BadValue, match=reason) as raised:
        load_schema(f"{sources}/{name}")
    assert "\n" not in str(raised.value)


def test_fields() -> None:
    view = BodyView("json", ("order.id", "items.1.sku", "items.7.sku", "none.of.it"))
    shown = view(b'{"order": {"id": 7}, "items": [{"sku": "a"}, {"sku": "b"}]}')
    assert shown == {
        "body": None, "bodyEncoding": "json", "body.order.id": 7, "body.items.1.sku": "b", "body.items.7.sku": None,
        "body.none.of.it": None,
    }  # fmt: skip
    assert view(b"order.id")["bodyEncoding"] == "utf8"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with an order in Protobuf, one in Avro, and one in JSON, with keys p, a and j."""
    path = tmp_path_factory.mktemp("store") / "s"
    with Store.create(path) as made:
        for key, body in (("p", proto_order()), ("a", avro_order()), ("j", b'{"id": 7, "items": []}')):
            made.append(NewMessage(topic="Orders", queue_id=0, body=body, keys=key))
    return path


COMMANDS = {
    "commitlog dump": (), "grep": ("",), "query-key": ("Orders", "p"), "query-offset": ("Orders", 0, 0),
    "query-time": ("Orders", 0, 0),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_show_them(store: Path, sources: Path, command: str) -> None:
    call = (*command.split(), store, *COMMANDS[command], "--body-schema", f"{sources}/order.desc:Order")
    row = json.loads(rmqtool(*call, "--output", "ndjson").out.splitlines()[0])
    assert (row["body"], row["bodyEncoding"]) == (PROTO_SHOWN, "protobuf")
    row = json.loads(rmqtool(*call, "--output", "ndjson", "--field", "items.0.sku").out.splitlines()[0])
    assert (row["body"], row["body.items.0.sku"]) == (None, "a")
    lines = rmqtool(*call, "--output", "csv", "--field", "id", "--columns", "topic,body.id").out.splitlines()
    assert lines[:2] == ["topic,body.id", "Orders,7"]
    assert "body.id" in rmqtool(*call, "--field", "id", "--output", "table").out


def test_bodies_of_another_kind_stay_as_they_are(store: Path, sources: Path) -> None:
    result = rmqtool("commitlog", "dump", store, "--body-schema", f"{sources}/order.avsc", "--output", "ndjson")
    rows: list[dict[str, Any]] = [json.loads(line) for line in result.out.splitlines()]
    assert [row["bodyEncoding"] for row in rows] == ["base64", "avro", "utf8"]
    assert [("bodyError" in row) for row in rows] == [True, False, True]


@pytest.mark.parametrize("shown", ["--field=id", "--body-schema={}/order.desc:Order"])
def test_decoded_bodies_are_not_imported(store: Path, sources: Path, shown: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.ndjson"
    rows.write_text(rmqtool("query-key", store, "Orders", "p", shown.format(sources), "--output", "ndjson").out)
    result = rmqtool("import", tmp_path / "new", rows)
    assert result.code == 1
    assert "body" in result.out + result.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("items", ["null", {"type": "record", "name": "E", "fields": []}], ids=["null", "record"])
def test_an_array_of_nothing_is_no_schema(items: Any, tmp_path: Path) -> None:
    first = {"name": "first", "type": items}
    again = items if isinstance(items, str) else items["name"]  # by its name
    fields = [first, {"name": "a", "type": {"type": "array", "items": again}}]
    (tmp_path / "n.avsc").write_text(json.dumps({"type": "record", "name": "R", "fields": fields}))
    with pytest.raises(BadValue, match="an array of items that take no bytes"):
        load_schema(str(tmp_path / "n.avsc"))


def test_a_container_costs_what_its_length_allows(tmp_path: Path) -> None:
    (tmp_path / "s.avsc").write_text('"string"')
    schema = load_schema(str(tmp_path / "s.avsc"))
    nothing: Any = {"type": "array", "items": "null"}
    file = BytesIO()
    fastavro.writer(file, nothing, [[None]])
    with pytest.raises(UndecodableBody, match="whose values take no bytes"):
        schema.decode(file.getvalue())


CODECS = ("null", "deflate", "bzip2", "xz", "zstandard")


def compress_blocks(container: bytes) -> bytes:
    """A container with its blocks in Zstandard, which fastavro writes with a further library alone."""
    read: Any = fastavro.schemaless_reader
    write: Any = fastavro.schemaless_writer
    file = BytesIO(container)
    out = BytesIO()
    header = read(file, HEADER)
    write(out, HEADER, {**header, "meta": {**header["meta"], "avro.codec": b"zstandard"}})
    while file.tell() < len(container):
        write(out, "long", read(file, "long"))
        write(out, "bytes", zstandard.compress(read(file, "bytes")))
        out.write(file.read(16))
    return out.getvalue()


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_containers_within_a_limit(codec: str, tmp_path: Path) -> None:
    """Also a limit that only all blocks together exceed."""
    (tmp_path / "s.avsc").write_text('"string"')
    schema = load_schema(str(tmp_path / "s.avsc"))

    def container_of(values: list[str]) -> bytes:
        file = BytesIO()
        fastavro.writer(
            file, "string", values, codec="null" if codec == "zstandard" else codec, sync_interval=100_000,
        )  # fmt: skip
        return compress_blocks(file.getvalue()) if codec == "zstandard" else file.getvalue()

    assert schema.decode(container_of(["x"])) == "x"
    values = [letter * 100_000 for letter in "abc"]
    whole = container_of(values)
    assert schema.decode(whole) == values
    if codec == "null":
        return
    for large in (["x" * MOST], ["x" * (MOST // 3)] * 4):
        with pytest.raises(UndecodableBody, match="more than 4194304 bytes"):
            schema.decode(container_of(large))
    with pytest.raises(UndecodableBody):
        schema.decode(whole[:-30])


def test_a_codec_that_is_not_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.avsc").write_text('"string"')
    file = BytesIO()
    fastavro.writer(file, "string", ["x"], codec="deflate")
    with pytest.raises(UndecodableBody, match="compressed with snapped, which is not read; deflate, bzip2, xz"):
        load_schema(str(tmp_path / "s.avsc")).decode(file.getvalue().replace(b"\x0edeflate", b"\x0esnapped"))


# -- conditions on fields inside of bodies ----------------------------------------------------------------------------

CONDITIONS = {  # on the order in JSON, in Protobuf and in Avro
    "body.id = 7": ("j", "p", None),
    "body.id > 6 AND body.id < 8": ("j", "p", None),
    "body.id > 9007199254740992": (None, None, "a"),
    "body.items.0.sku = 'a'": (None, "p", "a"),
    "body.items.1.count = 0 AND body.price.cents BETWEEN 995 AND 995": (None, "p", None),
    "body.items IS NOT NULL": ("j", "p", "a"),
    "body.note IS NULL AND body.raw STARTSWITH '/w'": (None, None, "a"),
    "body.id = 8 OR body.nothing = 1": (None, None, None),
}


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("command", ["commitlog dump", "grep"])
def test_conditions_on_fields_of_bodies(store: Path, sources: Path, command: str, condition: str) -> None:
    """64-bit integers of Protobuf are numbers there, though its JSON form shows them as text."""
    schemas: tuple[tuple[str, ...], ...] = (
        (), ("--body-schema", f"{sources}/order.desc:Order"), ("--body-schema", f"{sources}/order.avsc"),
    )  # fmt: skip
    call = (*command.split(), store, *(("",) if command == "grep" else ()), "--output", "ndjson")
    for schema, expected in zip(schemas, CONDITIONS[condition], strict=True):
        result = rmqtool(*call, *schema, "--where", condition)
        keys = [json.loads(line)["keys"] for line in result.out.splitlines()]
        assert keys == ([[expected]] if expected else []), (schema, result.err)
        assert result.code == (0 if expected else 1)


def test_a_condition_that_no_body_meets_names_its_field(store: Path) -> None:
    result = rmqtool("commitlog", "dump", store, "--where", "body.ordr = 7")
    assert result.code == 1
    assert "no message that was looked at has body.ordr" in result.err


def test_rows_are_selected_by_fields_of_bodies(store: Path, sources: Path) -> None:
    """As ``replay`` reads rows of machine output: whole bodies, decoded ones, or single fields."""
    for condition, shown in (
        ("body.id = 7", ()), ("body.id = 7", ("--body", "json")), ("body.id = 7", ("--body", "base64")),
        ("body.id = 7", ("--field", "id")), ("body.id = 7 AND body.items = '[]'", ()),
    ):  # fmt: skip
        result = rmqtool("query-key", store, "Orders", "j", *shown, "--output", "ndjson")
        assert FieldCondition(condition).has(RowFields(json.loads(result.out))), shown
    assert not FieldCondition("body.id = 7").has(RowFields({"topic": "T", "body": None, "bodyEncoding": "none"}))


def test_consumers_and_dead_letters_by_a_schema(sources: Path) -> None:
    """Both show bodies by a schema, and select by fields of them."""
    schema = f"{sources}/order.desc:Order"
    with broker() as running, Producer(running.namesrv) as producer:
        for key, body in (("p", proto_order()), ("j", b"{}")):
            producer.send(Message("Orders", body, keys=[key]))
            producer.send(Message("%DLQ%billing", body, keys=[key]))
        calls = (
            ("consume", "--namesrv", running.namesrv, "Orders"),
            ("dlq", "export", f"rocketmq://{running.namesrv}"),
        )
        for call in calls:
            words = (*call, "--body-schema", schema, "--output", "ndjson")
            shown = {row["keys"][0]: row for row in map(json.loads, rmqtool(*words).out.splitlines())}
            assert {key: row["bodyEncoding"] for key, row in shown.items()} == {"p": "protobuf", "j": "utf8"}, call
            assert shown["p"]["body"] == PROTO_SHOWN
            picked = rmqtool(*words, "--field", "items.1.sku", "--where", "body.price.cents > 990")
            assert [json.loads(line)["body.items.1.sku"] for line in picked.out.splitlines()] == ["b"], picked.err
