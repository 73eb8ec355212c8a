"""``dump`` to Delta Lake and Iceberg: each message once, as others read the tables, whatever is killed when."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from rmqtool import read_arrow
from rmqtool.admin.target import parse_target
from rmqtool.analytics.dump.lock import LocalLock
from rmqtool.analytics.dump.report import DumpOptions, DumpReport
from rmqtool.analytics.lake.delta import DeltaLakeTable
from rmqtool.analytics.lake.dump import dump_to_table
from rmqtool.analytics.lake.iceberg import IcebergTable
from rmqtool.analytics.lake.output import DataFile, partition_of
from rmqtool.analytics.remote.files import Folder
from rmqtool.errors import BadValue, Refused
from rmqtool.store.layout.paths import StoreLayout
from tests.amounts import by_turns
from tests.analytics.helpers import log_of, plain, store_of
from tests.analytics.test_dump_again import Broker, a_store, offsets_of
from tests.client.test_made_again import CONF, TOPIC, another_store, fill
from tests.conftest import Unpacked
from tests.model.neighbours import Neighbour


class Lake:
    """A table of one format, and how others read it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.name = str(folder / "table") if kind == "delta" else "lab.mq.messages"

    def dump(self, source: Any, **options: Any) -> DumpReport:
        source_name = options.pop("source_name", None)
        given = DumpOptions(**{"runner": "local", "since_last": True, **options})
        return dump_to_table(source, self.kind, self.name, given, source_name=source_name)

    def read(self) -> pa.Table:
        if self.kind == "delta":
            return DeltaTable(self.name).to_pyarrow_table()
        return load_catalog("lab").load_table("mq.messages").scan().to_arrow()

    def offsets(self) -> list[int]:
        return sorted(self.read()["physicalOffset"].to_pylist())

    def commits(self) -> int:
        if self.kind == "delta":
            return DeltaTable(self.name).version() + 1
        return len(load_catalog("lab").load_table("mq.messages").snapshots())

    def properties(self) -> dict[str, str]:
        """Those of the newest commit."""
        if self.kind == "delta":
            return DeltaTable(self.name).history()[0]
        summary = load_catalog("lab").load_table("mq.messages").current_snapshot().summary
        return dict(summary.additional_properties)


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    (tmp_path / "warehouse").mkdir()
    for name, value in {"TYPE": "sql", "URI": f"sqlite:///{tmp_path}/catalog.db"}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAB__{name}", value)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAB__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # which was read when it was imported
    return Lake(request.param, tmp_path)


# -- rows --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["broker", "clean"])
def test_rows_are_those_of_the_store(case: str, lake: Lake, golden: Unpacked) -> None:
    store = golden(case)
    report = lake.dump(store)
    found = {row["physicalOffset"]: plain(row) for row in lake.read().to_pylist()}
    stored = {row["physicalOffset"]: plain(row) for row in read_arrow(str(store)).read_all().to_pylist()}
    assert len(found) == report.rows == len(stored) > 0
    for offset, row in stored.items():
        row.pop("broker")
        assert {name: found[offset][name] for name in row} == row
    properties = lake.properties()
    assert (properties["rmqtool.source"], properties["rmqtool.rows"]) == (str(store), str(report.rows))
    assert properties["rmqtool.range"].startswith("physical offsets 0 to ")
    assert properties["rmqtool.release"] in ("4.9", "5.3")


def test_partitions_are_days_and_topics(lake: Lake, golden: Unpacked) -> None:
    lake.dump(golden("broker"))
    whole = lake.read()
    if lake.kind == "delta":
        table = DeltaTable(lake.name)
        assert table.metadata().partition_columns == ["day", "topic"]
        for topic in set(whole["topic"].to_pylist()):
            part = table.to_pyarrow_table(filters=[("topic", "=", topic)])
            assert part.num_rows == whole["topic"].to_pylist().count(topic)
        days = {time.date() for time in whole["storeTimestamp"].to_pylist()}
        assert {row["day"] for row in table.partitions()} == {day.isoformat() for day in days}
        assert sum(pa.table(table.get_add_actions(flatten=True))["num_records"].to_pylist()) == whole.num_rows
    else:
        table = load_catalog("lab").load_table("mq.messages")
        assert [str(field.transform) for field in table.spec().fields] == ["day", "identity"]
        for topic in set(whole["topic"].to_pylist()):
            scan = table.scan(row_filter=f"topic == '{topic}'")
            assert scan.to_arrow().num_rows == whole["topic"].to_pylist().count(topic)
            assert {task.file.partition[1] for task in scan.plan_files()} == {topic}


@pytest.mark.parametrize("partition_by", [("hour",), ("topic",), ("bucket", "day")])
def test_other_partitions(partition_by: tuple[str, ...], lake: Lake, golden: Unpacked) -> None:
    store = golden("broker")
    if lake.kind == "iceberg" and "bucket" in partition_by:
        with pytest.raises(BadValue, match="no partition bucket"):
            lake.dump(store, partition_by=partition_by)
        return
    lake.dump(store, partition_by=partition_by)
    assert lake.offsets() == offsets_of(StoreLayout(str(store)))
    with pytest.raises(Refused, match="is partitioned by"):
        lake.dump(store, partition_by=("day",))
    lake.dump(store)  # as the table is
    assert lake.offsets() == offsets_of(StoreLayout(str(store)))


# -- again -------------------------------------------------------------------------------------------------------------


def test_each_message_once_while_a_broker_writes(lake: Lake, tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    for number in range(6):
        for _message in range(number * 2 % 5):
            broker.put()
        broker.put((0.5,))  # a record that is half there
        before = len(broker.offsets)
        lake.dump(broker.layout)
        assert (lake.offsets() if before else []) == broker.offsets
    assert lake.commits() < 7
    with pytest.raises(Refused, match="--since-last"):
        lake.dump(broker.layout, since_last=False)
    with pytest.raises(Refused, match="begun with topics"):
        lake.dump(broker.layout, topics=("T",))


def test_without_since_last_a_table_is_begun(lake: Lake, tmp_path: Path) -> None:
    layout = a_store(tmp_path)
    lake.dump(layout, since_last=False)
    assert lake.offsets() == offsets_of(layout)


def test_the_log_of_another_store_is_refused(lake: Lake, tmp_path: Path) -> None:
    layout = a_store(tmp_path)
    lake.dump(layout)
    shutil.rmtree(layout.root)
    other = a_store(tmp_path, 2)
    with pytest.raises(Refused, match=r"another store's, or was cut.*To go on"):
        lake.dump(other)


def test_a_store_that_was_moved_is_known(lake: Lake, tmp_path: Path) -> None:
    layout = a_store(tmp_path)
    lake.dump(layout)
    moved = StoreLayout(str(shutil.copytree(layout.root, tmp_path / "moved")))
    with pytest.raises(Refused, match=rf"already, as {layout.root}.*--source {layout.root}"):
        lake.dump(moved)
    lake.dump(moved, source_name=layout.root)
    assert lake.offsets() == offsets_of(layout)


def test_several_stores_at_once(lake: Lake, tmp_path: Path) -> None:
    layouts = []
    for number in range(5):
        (tmp_path / str(number)).mkdir()
        layouts.append(store_of(tmp_path / str(number), log_of([f"T{number}"] * (number + 1))))
    lake.dump(layouts[0])
    with ThreadPoolExecutor(4) as pool:
        assert sum(report.rows for report in pool.map(lake.dump, layouts)) == 2 + 3 + 4 + 5
    assert sorted(lake.read()["topic"].to_pylist()) == [f"T{n}" for n in range(5) for _ in range(n + 1)]
    with closing_lock(staging_of(lake, layouts[1].root)), pytest.raises(Refused, match="another dump"):
        lake.dump(layouts[1])


def test_a_commit_after_another_of_the_same_source_is_refused(lake: Lake, tmp_path: Path) -> None:
    layout = a_store(tmp_path)
    lake.dump(layout)
    rows, tables = lake.read().num_rows, []
    for _machine in range(2):  # which share no lock
        table = open_table(lake, layout.root)
        table.load()
        tables.append(table)
    written = next(Path(tables[0].location).rglob("*.parquet"))
    for number, table in enumerate(tables):
        path = written.with_name(f"again-{number}.parquet")
        shutil.copy(written, path)
        name, metadata = str(path.relative_to(table.location)), pq.read_metadata(path)
        file = DataFile(name, metadata.num_rows, path.stat().st_size, partition_of(name))
        state = {"id": number + 1, "source": layout.root, "manifest": {}}
        if number == 0:
            table.commit([file], state, {})
        else:
            with pytest.raises(Refused, match="run again"):
                table.commit([file], state, {})
    assert lake.read().num_rows == rows + pq.read_metadata(written).num_rows


@contextmanager
def closing_lock(path: str) -> Iterator[None]:
    lock = LocalLock(path)
    yield
    lock.release()


def open_table(lake: Lake, source: str) -> DeltaLakeTable | IcebergTable:
    """A table as a dump of a source opens it."""
    return DeltaLakeTable(lake.name, source) if lake.kind == "delta" else IcebergTable(lake.name, source, ())


def staging_of(lake: Lake, source: str) -> str:
    """The directory in which a dump of a source works, made as a dump makes it."""
    opened = open_table(lake, source)
    path = f"{opened.location}/_rmqtool-{opened.source_key}"
    os.mkdir(path)
    return path


# -- schemas and directories ------------------------------------------------------------------------------------------


def test_missing_columns_are_added(lake: Lake, tmp_path: Path) -> None:
    """A table of an earlier version, with a column that somebody else added."""
    layout = a_store(tmp_path)
    columns = [("topic", pa.string()), ("physicalOffset", pa.int64()), ("storeTimestamp", pa.timestamp("us", "UTC"))]
    schema = pa.schema([*columns, ("note", pa.string())])
    if lake.kind == "delta":
        DeltaTable.create(lake.name, pa.schema([*schema, ("day", pa.date32())]), partition_by=["day", "topic"])
    else:
        catalog = load_catalog("lab")
        catalog.create_namespace("mq")
        catalog.create_table("mq.messages", schema)
    lake.dump(layout)
    read = lake.read()
    assert sorted(read["physicalOffset"].to_pylist()) == offsets_of(layout)
    assert set(read["note"].to_pylist()) == {None}
    assert read["body"].null_count == 0


def test_a_column_of_another_type(lake: Lake, tmp_path: Path) -> None:
    layout, schema = a_store(tmp_path), pa.schema([("queueId", pa.string())])
    if lake.kind == "delta":
        DeltaTable.create(lake.name, schema)
    else:
        catalog = load_catalog("lab")
        catalog.create_namespace("mq")
        catalog.create_table("mq.messages", schema)
    with pytest.raises(Refused, match=r"column queueId is \w+, not int32"):
        lake.dump(layout)


def test_what_is_no_table(tmp_path: Path) -> None:
    layout = a_store(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("kept")
    for name in ("full", "full/file"):
        with pytest.raises(Refused, match=r"no Delta table|not a directory"):
            dump_to_table(layout, "delta", str(tmp_path / name), DumpOptions(runner="local", since_last=True))
    assert os.listdir(tmp_path / "full") == ["file"]
    for name in ("lab", "lab.table", "lab..table"):
        with pytest.raises(BadValue, match="CATALOG"):
            dump_to_table(layout, "iceberg", name, DumpOptions(runner="local", since_last=True))
    with pytest.raises(BadValue, match="hudi"):
        dump_to_table(layout, "hudi", "x")


def test_a_missing_state_is_an_error(tmp_path: Path) -> None:
    layout, table = a_store(tmp_path), tmp_path / "table"
    dump_to_table(layout, "delta", str(table))
    shutil.rmtree(table / "_rmqtool")
    with pytest.raises(Refused, match="is missing"):
        dump_to_table(layout, "delta", str(table))


# -- kills -------------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Raised to simulate a kill."""


_STEPS = ("make", "move", "delete", "delete_dir", "write", "write_new")


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The process in the ``with`` block ends before a step that changes something; after that it does nothing more."""
    taken: list[str] = []

    def guard(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            taken.append(name)
            if len(taken) > step:
                raise Killed
            return real(*args, **options)

        return run

    with monkeypatch.context() as patch:
        for name in _STEPS:
            patch.setattr(Folder, name, guard(name, getattr(Folder, name)))
        for kind in (DeltaLakeTable, IcebergTable):
            patch.setattr(kind, "commit", guard("commit", kind.commit))
            patch.setattr(kind, "create", guard("create", kind.create))
        yield taken


@by_turns(7)
@pytest.mark.slow
def test_killed_at_each_step(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(tmp_path)
    for _message in range(4):
        broker.put()
    lake.dump(broker.layout)
    step, kills = 0, 0
    while True:
        broker.put()
        expected = list(broker.offsets)
        with killed_at(step, monkeypatch) as taken:
            try:
                lake.dump(broker.layout)
            except Killed:
                kills += 1
        before = lake.offsets()
        assert before in (expected, expected[: len(before)])
        if len(taken) <= step:
            break
        lake.dump(broker.layout)
        assert lake.offsets() == expected, (step, taken)
        step += 1
    assert kills > 10
    if lake.kind == "delta":  # nothing is left lying about
        table = DeltaTable(lake.name)
        files = {os.path.relpath(path, lake.name) for path in Path(lake.name).rglob("*.parquet")}
        assert files == {uri.split(f"{lake.name}/", 1)[1] for uri in table.file_uris()}


# -- live clusters -----------------------------------------------------------------------------------------------------


@pytest.fixture
def neighbour(tmp_path: Path) -> Iterator[Neighbour]:
    """A broker on a store with the messages 0 to 39 in four queues."""
    fill(tmp_path / "store", 0, 40)
    with Neighbour(tmp_path / "store", {**CONF, "brokerName": "a"}) as one:
        yield one


def test_from_a_live_cluster(lake: Lake, neighbour: Neighbour, tmp_path: Path) -> None:
    target = parse_target(f"rocketmq://{neighbour.namesrv}")
    assert lake.dump(target).rows == 40
    ranges = json.loads(lake.properties()["rmqtool.range"])
    assert ranges == {f"{TOPIC}/a/{n}": [0, 10] for n in range(4)}
    store = tmp_path / "store"
    neighbour.end(signal.SIGTERM)
    fill(store, 40, 17)
    neighbour.start()
    assert [lake.dump(target).rows for _ in range(2)] == [17, 0]
    read = lake.read()
    assert sorted(map(int, read["body"].to_pylist())) == list(range(57))
    assert set(read["broker"].to_pylist()) == {"a"}
    another_store(neighbour, store, 60)
    with pytest.raises(Refused, match="dump the cluster to another"):
        lake.dump(target)
    assert lake.read().num_rows == 57
