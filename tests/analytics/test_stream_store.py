"""``writeStream`` into a store: each batch is in it once, whatever is killed when, and whoever appends in between."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rmqtool import NewMessage, Store, read_arrow
from rmqtool.analytics.source import write
from rmqtool.analytics.source.tables_source import RocketMQSource
from rmqtool.analytics.source.write import StoreWriter
from rmqtool.errors import BadValue, CorruptFile, Refused
from rmqtool.services.sending.importer import Importer
from rmqtool.store.check.run import check_store
from tests.amounts import by_turns
from tests.analytics import stream_sink
from tests.analytics.stream_sink import CALLS, KILLS, ROWS, bodies, commit, kill_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCRIPT = Path(stream_sink.__file__)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store for each of KILLS."""
    folder = tmp_path_factory.mktemp("killed")
    call = [sys.executable, "-m", "tests.analytics.stream_sink", str(folder)]
    subprocess.run(call, cwd=SCRIPT.parents[2], check=True)
    return folder


def stored(store: Path) -> list[bytes]:
    table = read_arrow(str(store), columns=["body", "msgId"]).read_all()
    ids = [row["msgId"] for row in table.to_pylist() if row["body"].startswith(b"batch")]
    assert len(set(ids)) == len(ids)
    return [row["body"] for row in table.to_pylist()]


def append(store: Path, body: bytes) -> None:
    with Store(store, write=True, mend=True, broker_conf=store.with_name("broker.conf")) as opened:
        opened.append(NewMessage(topic="Sink", body=body))


@by_turns(3)
@pytest.mark.parametrize(("call", "number"), KILLS)
@pytest.mark.parametrize("others", [False, True])
def test_a_batch_is_appended_once(killed: Path, call: str, number: int, others: bool) -> None:
    store = copied(killed / f"{call}-{number}")
    expected = bodies(0) + bodies(1)
    if others:  # a broker has the store in between
        append(store, b"between")
        expected.append(b"between")
    for again in (3, 4):  # the rows come in other orders; the second time the batch is complete
        commit(str(store), 1, again)
        assert sorted(stored(store)) == sorted(expected)
    commit(str(store), 2, 5)
    assert sorted(stored(store)) == sorted(expected + bodies(2))
    assert not list(store.parent.glob("store.parts-*"))
    # no topic was configured
    assert {
        finding.code for finding in check_store(Store(store, broker_conf=store.with_name("broker.conf")).layout)
    } == {"topics-missing"}


def copied(killed: Path) -> Path:
    """The store, at the path that its files name."""
    before = killed.with_suffix(".kept")
    if not before.exists():
        shutil.copytree(killed, before)
    shutil.rmtree(killed, ignore_errors=True)
    shutil.copytree(before, killed)
    return killed / "store"


def test_the_files_of_a_batch_are_gone(killed: Path) -> None:
    """The rows come again in another order: which of them are in the log is not known."""
    store = copied(killed / "append-6")
    remove_parts(store)
    before = sorted(stored(store))
    with pytest.raises(Refused, match="batch 1 of stream a-query was begun, and the file with its rows is gone"):
        commit(str(store), 1, 3)
    assert sorted(stored(store)) == before
    store = copied(killed / "append-1")  # nothing of it was appended
    remove_parts(store)
    commit(str(store), 1, 3)
    assert sorted(stored(store)) == sorted(bodies(0) + bodies(1))


def remove_parts(store: Path) -> None:
    """Remove the files with the rows of a batch that was begun."""
    (parts,) = store.parent.glob("store.parts-*")
    for part in parts.iterdir():
        part.unlink()


def test_killed_again_after_others_have_appended(killed: Path) -> None:
    store = copied(killed / "append-2")
    append(store, b"between")
    call = [sys.executable, "-m", "tests.analytics.stream_sink", str(store), "append", "3"]
    assert subprocess.run(call, cwd=SCRIPT.parents[2], check=False).returncode == -signal.SIGKILL
    assert len(stored(store)) > stored(store).index(b"between") + 1
    append(store, b"between")
    commit(str(store), 1, 4)
    assert sorted(stored(store)) == sorted([*bodies(0), *bodies(1), b"between", b"between"])


def test_another_log_is_refused(killed: Path, tmp_path: Path) -> None:
    store, other = copied(killed / "append-2"), tmp_path / "other"
    state = (store / "config" / "rmqtoolStreams.json").read_bytes()
    commit(str(other), 7, 1)
    append(other, b"x" * 9000)
    (other / "config" / "rmqtoolStreams.json").write_bytes(state)
    with pytest.raises(Refused, match="its log is not the one to which batch 1 of stream a-query was being appended"):
        commit(str(other), 1, 3)
    assert len(stored(other)) == ROWS + 1


def test_a_store_in_use_and_a_broken_state(tmp_path: Path) -> None:
    store = tmp_path / "store"
    commit(str(store), 0, 1)
    with Store(store, write=True, broker_conf=tmp_path / "broker.conf"), pytest.raises(Refused):
        commit(str(store), 1, 2)
    commit(str(store), 1, 2)
    assert json.loads((store / "config" / "rmqtoolStreams.json").read_bytes())["a-query"]["batch"] == 1
    for broken in (
        "{",
        "[]",
        '{"a-query": 5}',
        '{"a-query": {"batch": "1"}}',
        '{"a-query": {"batch": 1, "begun": {}}}',
    ):
        (store / "config" / "rmqtoolStreams.json").write_text(broken)
        with pytest.raises(CorruptFile, match="not the state of streams"):
            commit(str(store), 2, 3)
    assert len(stored(store)) == 2 * ROWS


def test_what_cannot_be_written(tmp_path: Path) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    schema = StructType([StructField("topic", StringType()), StructField("body", StringType())])
    with pytest.raises(BadValue, match="a store is not overwritten"):
        RocketMQSource({"path": str(tmp_path / "store")}).streamWriter(schema, overwrite=True)
    (tmp_path / "file").write_text("x")
    with pytest.raises(Refused):
        RocketMQSource({"path": str(tmp_path / "file")}).streamWriter(schema, overwrite=False)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@by_turns(3)
def test_a_stream_from_store_to_store(spark: "SparkSession", tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    commit(str(source), 0, 1)

    def follow() -> None:
        frame = spark.readStream.format("rocketmq").option("maxRecordsPerTrigger", "15").load(str(source))
        query = frame.writeStream.format("rocketmq").option("checkpointLocation", str(tmp_path / "state"))
        query.trigger(availableNow=True).start(str(target)).awaitTermination()

    follow()
    assert sorted(stored(target)) == sorted(bodies(0))
    commit(str(source), 1, 2)
    follow()
    follow()
    assert sorted(stored(target)) == sorted(bodies(0) + bodies(1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker.conf", "source", "state", "target"]


# -- a frame that is written once -------------------------------------------------------------------------------------


def write_frame(store: Path, version: int, seed: int, application: str = "an-import") -> None:
    """As ``commit`` of the sink, by the writer of frames."""
    order = bodies(version)
    random.Random(seed).shuffle(order)
    options = {"path": str(store), "brokerConf": str(store.with_name("broker.conf"))}
    once = {"txnAppId": application, "txnVersion": str(version)}
    writer = StoreWriter({**options, **once}, ["topic", "body"], overwrite=False)
    rows = pa.record_batch({"topic": ["Sink"] * len(order), "body": pa.array(order, pa.binary())})
    try:
        writer.commit([writer.write(iter([rows]))])
    except Exception:
        writer.abort([])
        raise


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A store with batch 0, and small files."""
    commit(str(tmp_path / "store"), 0, 1)
    return tmp_path / "store"


@pytest.mark.parametrize(("call", "number"), KILLS)
def test_a_frame_is_written_once(call: str, number: int, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed, and repeated with its rows in another order; the second time it is complete."""
    monkeypatch.setattr(write, "_ROWS", 7)
    if not (child := os.fork()):
        kill_at(*CALLS[call], number)
        write_frame(small, 1, 2)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    for again in (3, 4):
        write_frame(small, 1, again)
        assert sorted(stored(small)) == sorted(bodies(0) + bodies(1))
    write_frame(small, 2, 5)
    assert sorted(stored(small)) == sorted(bodies(0) + bodies(1) + bodies(2))
    assert not list(small.parent.glob("store.parts-*")) or call == "save"


def test_a_frame_that_was_begun_comes_before_the_next(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "_ROWS", 7)
    take, calls = Importer.take, iter(range(100))

    def fail(importer: Importer, rows: Any) -> Any:
        if next(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return take(importer, rows)

    monkeypatch.setattr(Importer, "take", fail)
    with pytest.raises(OSError, match="No space"):
        write_frame(small, 1, 2)
    with pytest.raises(Refused, match="batch 1 of stream an-import was begun, and is not complete: write it again bef"):
        write_frame(small, 2, 3)
    write_frame(small, 2, 3, "another")
    write_frame(small, 1, 4)
    write_frame(small, 2, 5)
    assert sorted(stored(small)) == sorted([*bodies(0), *bodies(1), *bodies(2), *bodies(2)])


@pytest.mark.parametrize("options", [{"txnAppId": "a"}, {"txnVersion": "1"}, {"txnAppId": "a", "txnVersion": "-1"}])
def test_half_of_an_identity_is_refused(options: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="txnAppId and txnVersion: give both, the version as a number"):
        StoreWriter({"path": str(tmp_path / "new"), **options}, ["topic", "body"], overwrite=False)
