"""Stores at URIs, on an S3 server: same rows as local stores, and how much is fetched for them."""

import gc
import json
import logging
import os
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest
from pyarrow import fs

from formats import checkpoint
from formats.checkpoint import Checkpoint
from formats.config.tiered import TieredMetadata
from rmqtool.analytics.remote.mirror import Mirror
from rmqtool.analytics.remote.stores import attach_store, keep_apart, open_log
from rmqtool.analytics.source.filter import Condition
from rmqtool.analytics.source.plan import request_of, stores_of
from rmqtool.analytics.source.read import Counters, plan_pieces, read_piece, sum_counters
from rmqtool.analytics.source.tables import SCHEMAS, TABLES
from rmqtool.analytics.source.tables_source import RocketMQSource
from rmqtool.errors import BadValue, Refused, UnreadableStore
from rmqtool.store.disk.remote import show_uri
from rmqtool.store.dispatch import batch as dispatch
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests import roles
from tests.amounts import by_turns, every, some
from tests.analytics.helpers import TIME, log_of, rows_of, store_of
from tests.analytics.reading import moment
from tests.analytics.stores import CONF, DAY, day_store, time_of, topic_of
from tests.cli.running import RMQTOOL, ROOT, rmqtool
from tests.cli.test_bad_input import COMMANDS
from tests.conftest import Unpacked

pytestmark = by_turns(3)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET = "stores"
DAMAGED = ["body-bit-flip-last-file", "torn-last-record", "short-last-file", "extra-zero-file", "head-file-deleted"]


class Server:
    """The server.

    Attributes:
        options: options of every URI.
    """

    def __init__(self, port: int) -> None:
        self.options = f"?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1&allow_bucket_creation=true"
        self.fs, _path = fs.FileSystem.from_uri(self.uri(""))
        self.fs.create_dir(BUCKET)

    def uri(self, name: str) -> str:
        # Spark's workers have the environment of whichever test started Spark: credentials are in the URI
        return f"s3://tester:secret@{BUCKET}/{name}{self.options}"

    def put(self, name: str, root: Path) -> str:
        """Upload a store; returns its URI."""
        with ThreadPoolExecutor(8) as pool:
            for path in root.rglob("*"):
                if path.is_file():
                    pool.submit(self.write, f"{name}/{path.relative_to(root)}", path.read_bytes())
        return self.uri(name)

    def write(self, name: str, data: bytes) -> None:
        with self.fs.open_output_stream(f"{BUCKET}/{name}") as stream:
            stream.write(data)

    def delete(self, name: str) -> None:
        self.fs.delete_file(f"{BUCKET}/{name}")

    def listing(self, name: str) -> list[tuple[str, int, int]]:
        """(path, bytes, time of change) of all files."""
        infos = self.fs.get_file_info(fs.FileSelector(f"{BUCKET}/{name}", recursive=True))
        return sorted((i.path, i.size, i.mtime_ns) for i in infos if i.type == fs.FileType.File)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    port = running.get_host_and_port()[1]
    try:
        # all servers of a process share what they hold, and tests of other modules may come in between
        urlopen(Request(f"http://127.0.0.1:{port}/moto-api/reset", method="POST")).close()
        yield Server(port)
    finally:
        running.stop()


def read(
    path: object, conditions: Iterable[Condition] = (), columns: list[str] | None = None, **options: str
) -> tuple[list[dict[str, Any]], Counters]:
    """Rows of a table, and their cost."""
    request = request_of({"path": str(path), **options})
    parts, counters = plan_pieces(request, request.wanted.narrow(conditions))
    names = columns or SCHEMAS[request.table].names
    rows = [row for piece in parts for batch in read_piece(piece, names, counters) for row in batch.to_pylist()]
    return rows, counters


# -- the same rows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", some(["crash"], ["broker", "crash", "torn-header"]))
def test_every_table_is_that_of_the_store_on_a_path(case: str, server: Server, golden: Unpacked) -> None:
    uri = server.put(f"{case}/store", golden(case))
    before = server.listing(case)
    for table in TABLES:
        rows, _counters = read(uri, table=table)
        assert rows == read(golden(case), table=table)[0], table
        assert rows or table in ("findings", "offsets", "compacted")
    assert server.listing(case) == before


@by_turns(4)
@pytest.mark.parametrize(("case", "compiled"), every(3, list(product(["large-bodies", *DAMAGED], [False, True]))))
def test_messages_of_damaged_logs(
    case: str, compiled: bool, server: Server, golden: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "BULK_BYTES", 64 if compiled else 1 << 40)
    uri = server.put(f"{case}/store", golden(case))
    rows, counters = read(uri, splitBytes="20000")
    expected, local = read(golden(case), splitBytes="20000")
    assert rows == expected
    assert (counters.damaged, counters.damagedBytes) == (local.damaged, local.damagedBytes)
    assert local.bytesFetched == 0 < counters.bytesFetched


def test_records_larger_than_what_is_fetched_at_once(server: Server, tmp_path: Path) -> None:
    """And their space on disk: nothing is kept that the reader has passed."""
    bodies = [3 << 20, 100, 9 << 20, 20 << 20] + [1 << 20] * 20
    data = b"".join(_bodies(bodies))
    layout = store_of(tmp_path, data)
    uri = server.put("bulk/store", Path(layout.root))
    request = request_of({"path": uri})
    (piece,) = plan_pieces(request, request.wanted)[0]
    most, earlier = 0, mirrors()
    sizes = []
    for batch in read_piece(piece, ["bodyLength", "topic"], Counters()):
        sizes += batch.column("bodyLength").to_pylist()
        most = max(most, room_of_mirrors(earlier))
    assert sizes == bodies
    assert 0 < most <= 24 << 20 < len(data)
    assert room_of_mirrors(earlier) == 0


def _bodies(sizes: list[int]) -> Iterator[bytes]:
    at = 0
    for size in sizes:
        made = log_of([f"T{size}"], base=at, body=os.urandom(size), max_message_size=size)
        yield made
        at += len(made)


def mirrors() -> list[Mirror]:
    """Mirror files, including those of other tests until garbage collection."""
    return [each for each in gc.get_objects() if type(each) is Mirror]  # others may be proxies of what is gone


def room_of_mirrors(earlier: list[Mirror]) -> int:
    """Bytes of fetched data on disk, except from before."""
    ours = [each for each in mirrors() if not any(each is other for other in earlier)]
    return sum(os.fstat(mirror._fd).st_blocks * 512 for mirror in ours)


def test_a_walk_over_a_file_in_parts_finds_what_is_there(server: Server, golden: Unpacked) -> None:
    uri = server.put("walk/store", golden("body-bit-flip-last-file"))
    here, there = (
        [(item.physical_offset, isinstance(item, LocatedRecord), getattr(item, "reason", "")) for item in log.walk()]
        for log in (
            CommitLog(StoreLayout(str(golden("body-bit-flip-last-file")))),
            CommitLog(StoreLayout(attach_store(uri))),
        )
    )
    assert here == there


# -- how little is fetched --------------------------------------------------------------------------------------------

SOME = 5000  # messages of the day


class Day:
    """A cleanly closed store, local and remote."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.local = day_store(folder, messages=SOME, body=2000)
        self.conf = folder / "broker.conf"  # index files of no usual size tell theirs only as a whole
        self.conf.write_text("".join(f"{name}={size}\n" for name, size in CONF.values.items()))
        point = Checkpoint(time_of(SOME - 1), time_of(SOME - 1), time_of(SOME - 1))
        Path(self.local.path("checkpoint")).write_bytes(checkpoint.build(point))
        self.uri = server.put("day/store", Path(self.local.root))
        self.bytes = CommitLog(self.local).end()[0]

    def share(self, conditions: list[Condition], **options: str) -> float:
        """Fraction of the log fetched for the rows of some conditions; asserts that they equal the local ones."""
        rows, counters = read(self.uri, conditions, brokerConf=str(self.conf), **options)
        assert rows == read(self.local.root, conditions, **options)[0]
        assert rows
        return counters.bytesFetched / self.bytes


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Day:
    return Day(tmp_path_factory.mktemp("day"), server)


@by_turns(13)
def test_narrow_queries_fetch_little(day: Day) -> None:
    assert day.share([Condition("keys", "has", "k777")]) < 0.1
    assert day.share([Condition("msgId", "=", "U777")]) < 0.1
    assert day.share([Condition("topic", "=", "topic-07")]) < 0.15
    first = time_of(0) + DAY // 8
    minutes = [Condition("storeTimestamp", op, moment(at)) for op, at in ((">=", first), ("<", first + DAY // 96))]
    # of a quarter of the day, with what tells where they begin and end
    assert day.share(minutes, storeTimes="ordered") < 0.15
    assert day.share([Condition("physicalOffset", ">=", day.bytes - 50_000)]) < 0.05


@by_turns(13)
def test_tables_fetch_what_they_show(day: Day) -> None:
    """Index entries without slots, the used part of queues, and both ends of the log."""
    fetched = {}
    for table in ("index", "queues", "topics"):
        rows, counters = read(day.uri, table=table, brokerConf=str(day.conf))
        assert rows == read(day.local.root, table=table, brokerConf=str(day.conf))[0]
        fetched[table] = counters.bytesFetched
    assert fetched["index"] < 1.2 * 2 * SOME * 20
    assert fetched["queues"] <= 2 * 100 * 2000  # once for its end, once for its entries
    assert fetched["topics"] < 0.1 * day.bytes


def test_all_is_fetched_once(day: Day) -> None:
    rows, counters = read(day.uri, columns=["topic"], splitBytes=str(1 << 20))
    assert len(rows) == SOME
    assert 1 <= counters.bytesFetched / day.bytes < 1.1
    assert rows[7]["topic"] == topic_of(7)


ZEROS = 24 << 20


@pytest.mark.parametrize("ahead", [False, True], ids=["", "and a file made ahead"])
def test_zeros_behind_a_closed_log_are_not_fetched(ahead: bool, server: Server, tmp_path: Path) -> None:
    data = log_of(["A", "B", "C"] * 100)
    layout = store_of(tmp_path, data, *[b""] * ahead, size=ZEROS)
    (Path(layout.root) / "checkpoint").write_bytes(checkpoint.build(Checkpoint(TIME + 299_000)))
    uri = server.put(f"closed-{ahead}/store", Path(layout.root))
    for through in ("auto", "log"):
        rows, counters = read(uri, through=through, splitBytes=str(4 << 20))
        assert len(rows) == 300
        assert counters.bytesFetched < 1 << 20
    log = open_log(StoreLayout(attach_store(uri)))
    assert log.file_size == ZEROS
    assert [file.size for file in log.segments] == [len(data), 0][: 1 + ahead]


def test_zeros_may_hide_messages(server: Server, tmp_path: Path) -> None:
    """If the log was not closed, or the checkpoint has a later time, all of it is read."""
    data = bytearray(log_of(["A"] * 100, body=b"x" * 5000))
    data[100_000:350_000] = bytes(250_000)  # a hole that halving may fall into
    layout = store_of(tmp_path, bytes(data), size=2 << 20)
    expected, _counters = read(layout.root)
    for name, content in (("abort", b""), ("checkpoint", checkpoint.build(Checkpoint(TIME + 99_000)))):
        (Path(layout.root) / name).write_bytes(content)
        uri = server.put(f"hole-{name}/store", Path(layout.root))
        assert [row["physicalOffset"] for row in read(uri)[0]] == [row["physicalOffset"] for row in expected]
        (Path(layout.root) / name).unlink()
    assert 20 < len(expected) < 80


def test_a_last_message_without_its_head_is_damage(server: Server, tmp_path: Path) -> None:
    data = bytearray(log_of(["A"] * 10))
    behind = len(log_of(["A"] * 9))
    data[behind : behind + 16] = bytes(16)
    layout = store_of(tmp_path, bytes(data), size=1 << 20)
    (Path(layout.root) / "checkpoint").write_bytes(checkpoint.build(Checkpoint(TIME + 8000)))
    rows, counters = read(server.put("headless/store", Path(layout.root)), through="log")
    expected, local = read(layout.root, through="log")
    assert rows == expected
    assert (counters.damaged, counters.damagedBytes) == (local.damaged, local.damagedBytes)
    (end,) = (file.size for file in open_log(StoreLayout("s3://stores/headless/store")).segments)
    assert end == 1 << 20


# -- errors -----------------------------------------------------------------------------------------------------------


def test_places_that_are_none(server: Server) -> None:
    with socket.socket() as listening:  # nobody accepts
        listening.bind(("127.0.0.1", 0))
        nobody = f"?endpoint_override=127.0.0.1:{listening.getsockname()[1]}&scheme=http&region=us-east-1"
        with pytest.raises(UnreadableStore, match=r"^s3://bucket/store: ") as told:
            stores_of(f"s3://user:geheim@bucket/store{nobody}")
    assert "geheim" not in str(told.value)
    with pytest.raises(UnreadableStore, match=r"^s3://stores/nowhere: no such directory$"):
        stores_of(server.uri("nowhere"))
    with pytest.raises(UnreadableStore, match=r"^s3://stores/no\*: no such directory$"):
        stores_of(server.uri("no*"))
    with pytest.raises(UnreadableStore, match=r"^s3://no-bucket/store: "):
        stores_of(server.uri("store").replace(f"@{BUCKET}", "@no-bucket"))
    with pytest.raises(BadValue, match=r"^gopher://stores/store: "):
        stores_of("gopher://stores/store")
    server.write("other/file", b"no store")
    with pytest.raises(UnreadableStore, match=r"^s3://stores/other: not a store directory"):
        read(server.uri("other"))


def test_a_file_that_goes_or_shrinks(server: Server, golden: Unpacked) -> None:
    uri = server.put("gone/store", golden("clean"))
    request = request_of({"path": uri})
    parts, _counters = plan_pieces(request, request.wanted)
    names = [f"gone/store/commitlog/{os.path.basename(piece.splits[0].path)}" for piece in parts]
    server.delete(names[0])
    server.write(names[1], b"short")
    for piece, answer in zip(parts[:2], ("", "ends at byte 5, and was longer when it was listed"), strict=True):
        with pytest.raises(UnreadableStore, match=f"^s3://{piece.splits[0].path.removeprefix('s3://')}: .*{answer}"):
            list(read_piece(piece, ["topic"], Counters()))


def test_no_room_for_what_is_fetched(server: Server, golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = server.put("room/store", golden("clean"))
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    with pytest.raises(UnreadableStore, match=r"^/nowhere: No such file"):
        read(uri)


def test_what_is_said_of_a_uri() -> None:
    assert show_uri("s3://key:secret@bucket/a/store/?region=x&endpoint_override=h:1") == "s3://bucket/a/store"
    assert show_uri("abfss://container@account.host/store") == "abfss://container@account.host/store"
    assert show_uri("abfss://account:secret@host/store") == "abfss://account@host/store"
    assert show_uri("hdfs://host:8020/data/store") == "hdfs://host:8020/data/store"
    with pytest.raises(Refused, match="must not lie in the store"):
        keep_apart("s3://bucket/store/out?region=x", "s3://bucket/store")
    with pytest.raises(Refused, match="lies in it"):
        keep_apart("s3://bucket", "s3://bucket/store")
    keep_apart("s3://bucket/store-out", "s3://bucket/store")
    keep_apart("store/out", "s3://bucket/store")


def test_a_tier_in_a_bucket(server: Server, tmp_path: Path) -> None:
    """The same list and the same findings as on a path; nothing is written."""
    node = roles.unpack(roles.TIERED, "a", tmp_path)
    segment = next((node.store / "tiered").rglob("Invoices/0/CONSUME_QUEUE/cfcd2084*"))
    data = segment.read_bytes()
    segment.write_bytes(data[:20] + bytes(20) + data[40:])
    uri = server.put("tier/a", node.store)
    before = server.listing("tier")
    settings = tmp_path / "bare.conf"  # the tier is below the store, wherever that is
    settings.write_text("".join(
        line for line in node.conf.read_text().splitlines(True) if not line.startswith("tieredStoreFilePath")
    ))  # fmt: skip
    for args in (("list",), ("check",)):
        there = rmqtool("tier", *args, uri, "--broker-conf", settings, "-o", "ndjson")
        here = rmqtool("tier", *args, node.store, "--broker-conf", settings, "-o", "ndjson")
        assert (there.out.replace("s3://stores/tier/a", str(node.store)), there.code) == (here.out, here.code)
        assert len(here.out.splitlines()) > 7
    assert '"code":"tiered-message"' in there.out
    assert server.listing("tier") == before


def test_a_tier_in_a_bucket_of_a_store_that_is_here(server: Server, tmp_path: Path) -> None:
    """``tieredStoreFilePath`` is a URI: the same answers, and the same salvage, as of the files themselves."""
    node = roles.unpack(roles.TIERED, "a", tmp_path)
    log = sorted((node.store / "commitlog").iterdir())
    log[-1].unlink()
    damaged = bytearray(log[0].read_bytes())
    damaged[3000:3500] = bytes(500)
    log[0].write_bytes(damaged)
    settings = tmp_path / "away.conf"
    uri = server.put("cold/tiered", node.store / "tiered")
    lines = node.conf.read_text().splitlines()
    lines = [f"tieredStoreFilePath={uri}" if line.startswith("tieredStoreFilePath") else line for line in lines]
    settings.write_text("\n".join(lines) + "\n")
    before = server.listing("cold")
    commands: list[tuple[str, ...]] = [("tier", "list"), ("tier", "list", "--segments"), ("tier", "check"), ("check",)]
    here = [rmqtool(*words, node.store, *node.options(), "-o", "ndjson") for words in commands]
    salvaged = rmqtool("salvage", node.store, tmp_path / "here.ndjson", "--to", "ndjson", *node.options())
    assert "370 messages" in salvaged.err
    shutil.rmtree(node.store / "tiered")
    conf = ("--broker-conf", settings)
    for words, wanted in zip(commands, here, strict=True):
        there = rmqtool(*words, node.store, *conf, "-o", "ndjson")
        assert (there.out.replace("s3://stores/cold/tiered", str(node.store / "tiered")), there.code) == (
            wanted.out.replace(str(node.conf), str(settings)), wanted.code,
        ), words  # fmt: skip
    assert rmqtool("salvage", node.store, tmp_path / "there.ndjson", "--to", "ndjson", *conf).code == salvaged.code
    assert (tmp_path / "there.ndjson").read_text() == (tmp_path / "here.ndjson").read_text()
    assert rmqtool("salvage", node.store, tmp_path / "new", *conf).code == 1
    assert len(list(CommitLog(StoreLayout(str(tmp_path / "new"))).walk())) == 370
    metadata = node.store / "config" / "tieredStoreMetadata.json"
    was = metadata.read_bytes()
    metadata.unlink()
    metadata.with_name(f"{metadata.name}.bak").unlink()
    assert "Do not start a broker on this store." in rmqtool("check", node.store, *conf).out
    assert rmqtool("rebuild", node.store, "tiered-metadata", "--yes", *conf).code == 0
    made, known = (TieredMetadata.parse(data).segments() for data in (metadata.read_bytes(), was))
    assert {(s.path, s.type, s.base_offset, s.size) for s in made} == {
        (s.path, s.type, s.base_offset, s.size) for s in known
    }
    assert server.listing("cold") == before


@pytest.mark.parametrize("name", [*(name for name in COMMANDS if not name.startswith("tier ")), "init", "import"])
def test_other_commands_refuse_a_uri(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    args = {"init": ["init", "STORE"], "import": ["import", "STORE", "/dev/null"], **COMMANDS}[name]
    result = rmqtool(
        *[{"STORE": "s3://key:secret@bucket/store?region=x", "NEW": "new"}.get(word, word) for word in args]
    )
    assert result.out == ""
    assert result.err.startswith(
        "error: s3://bucket/store: a URI: only sql, report, dump-to-parquet and tier read a store there"
    )
    assert result.err.count("\n") == 1
    assert result.code == 2
    assert not list(tmp_path.iterdir())


def test_streams_refuse_a_uri(server: Server, golden: Unpacked) -> None:
    from pyspark.sql.datasource import CaseInsensitiveDict

    source = RocketMQSource(CaseInsensitiveDict({"path": server.put("stream/store", golden("clean"))}))
    with pytest.raises(BadValue, match=r"^s3://stores/stream/store: a store at a URI cannot be streamed"):
        source.streamReader(source.schema())


# -- names ------------------------------------------------------------------------------------------------------------


def test_several_stores(server: Server, golden: Unpacked) -> None:
    for name in ("broker-a", "broker-b"):
        server.put(f"many/{name}/store", golden("ipv6"))
    server.write("many/broker-c", b"a file")
    here = str(golden("ipv6"))
    stores = stores_of(server.uri("many/broker-*/store"))
    assert [(store.root, store.broker) for store in stores] == [
        ("s3://stores/many/broker-a/store", "broker-a"),
        ("s3://stores/many/broker-b/store", "broker-b"),
    ]
    rows, _counters = read(f"{server.uri('many/broker-[b]/store')},{here}", columns=["broker", "physicalOffset"])
    own = [row["physicalOffset"] for row in read(here)[0]]
    assert [row["physicalOffset"] for row in rows] == own * 2
    assert rows[0]["broker"] == "s3://stores/many/broker-b"
    assert [store.root for store in stores_of(f"file://{here}")] == [here]


# -- dumps ------------------------------------------------------------------------------------------------------------


def dumped(server: Server, store: object, out: object, *more: object) -> dict[str, Any]:
    result = rmqtool("dump-to-parquet", store, out, "-o", "json", *more)
    assert result.code in (0, 1), result
    report: dict[str, Any] = json.loads(result.out)
    return report


@pytest.mark.parametrize("case", ["broker", "torn-header"])
def test_a_dump(case: str, server: Server, golden: Unpacked, tmp_path: Path) -> None:
    uri = server.put(f"dump-{case}/store", golden(case))
    report = dumped(server, uri, tmp_path / "far", "--engine", "local")
    local = dumped(server, golden(case), tmp_path / "near", "--engine", "local")
    assert rows_of(tmp_path / "far") == rows_of(tmp_path / "near")
    for name in ("rows", "records", "damaged", "damagedBytes"):
        assert report[name] == local[name]
    assert [item["file"] for item in report["damage"]] == [
        item["file"].replace(str(golden(case)), f"s3://stores/dump-{case}/store") for item in local["damage"]
    ]
    manifest = (tmp_path / "far" / "_rmqtool.json").read_text()
    assert json.loads(manifest)["store"] == f"s3://stores/dump-{case}/store"
    assert "secret" not in manifest


def test_what_is_new_since_the_last_dump(server: Server, tmp_path: Path) -> None:
    data = log_of(["A"] * 40)
    sizes = [len(log_of(["A"] * count)) for count in (10, 25, 40)]
    out = tmp_path / "out"
    for count, size in zip((10, 25, 40), sizes, strict=True):
        layout = store_of(tmp_path / str(count), data[:size], size=100_000)
        uri = server.put("grows/store", Path(layout.root))
        assert dumped(server, uri, out, "--since-last", "--engine", "local")["position"] == size
        assert [row["queueOffset"] for row in rows_of(out)] == list(range(count))
    assert dumped(server, uri, out, "--since-last", "--engine", "local")["rows"] == 0
    server.put("grows/store", Path(store_of(tmp_path / "other", log_of(["B"] * 50), size=100_000).root))
    refused = rmqtool("dump-to-parquet", uri, out, "--since-last", "--engine", "local")
    assert (refused.code, refused.err.count("\n")) == (4, 1)
    assert "s3://stores/grows/store" in refused.err
    assert "secret" not in refused.err


def test_a_dump_beside_the_store(server: Server, golden: Unpacked, tmp_path: Path) -> None:
    uri = server.put("pair/store", golden("ipv6"))
    before = server.listing("pair/store")
    report = dumped(server, uri, server.uri("pair/out"), "--engine", "local")
    assert report["rows"] == len(read(golden("ipv6"))[0])
    refused = rmqtool("dump-to-parquet", uri, server.uri("pair/store/out"), "--engine", "local")
    assert (refused.code, refused.err) == (
        4, "error: s3://stores/pair/store/out: the output must not lie in the store (s3://stores/pair/store)\n",
    )  # fmt: skip
    assert server.listing("pair/store") == before


# -- Spark ------------------------------------------------------------------------------------------------------------


@by_turns(13)
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_in_spark(spark: "SparkSession", day: Day, server: Server, golden: Unpacked, tmp_path: Path) -> None:
    reader = spark.read.format("rocketmq").options(counters=str(tmp_path), brokerConf=str(day.conf), key="k777")
    row = reader.load(day.uri).select("msgId", "broker").collect()
    assert [tuple(each) for each in row] == [("U777", "store")]
    assert 0 < sum_counters(str(tmp_path)).bytesFetched / day.bytes < 0.10
    assert spark.read.format("rocketmq").load(day.uri).select("topic").count() == SOME

    uri = server.put("spark/store", golden("broker"))
    query = "SELECT topic, count(*) AS n FROM messages GROUP BY 1 ORDER BY n DESC LIMIT 2"
    told = rmqtool("sql", uri, query, "-o", "csv")
    assert told.out == rmqtool("sql", golden("broker"), query, "-o", "csv").out
    assert told.err.endswith(" fetched\n")
    lag = rmqtool("report", "lag", uri, "-o", "csv")
    assert lag.out == rmqtool("report", "lag", golden("broker"), "-o", "csv").out
    assert len(lag.out.splitlines()) > 1

    report = dumped(server, uri, tmp_path / "out", "--split-mb", "1")
    assert report["spark"] is not None
    local = dumped(server, golden("broker"), tmp_path / "near", "--engine", "local")
    assert report["rows"] == local["rows"]
    where = dumped(server, uri, tmp_path / "where", "--where", "topic = 'Orders'")
    assert 0 < where["rows"] < report["rows"]
    missing = rmqtool("sql", server.uri("nowhere"), query)
    assert (missing.code, missing.err) == (3, "error: s3://stores/nowhere: no such directory\n")


# -- tables --------------------------------------------------------------------------------------------------------


def test_a_delta_table_at_a_uri(server: Server, tmp_path: Path) -> None:
    """In processes of their own: delta-rs keeps Python from answering while it asks."""
    layout = store_of(tmp_path, log_of(["A", "B"] * 20))
    uri = server.uri("tables/messages")
    words = [*RMQTOOL, "dump", layout.root, "--to", "delta", uri, "--since-last", "-o", "json"]
    results = [subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT) for _ in range(2)]
    assert [(result.returncode, json.loads(result.stdout)["rows"]) for result in results] == [(0, 40), (0, 0)]
    assert "secret" not in results[0].stdout + results[0].stderr
    names = [path.split("/messages/")[1] for path, _size, _time in server.listing("tables/messages")]
    assert len([name for name in names if name.startswith("_delta_log/")]) == 1
    assert len([name for name in names if name.startswith("_rmqtool")]) == 1
