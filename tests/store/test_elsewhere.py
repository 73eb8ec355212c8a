"""Commands and calls that return messages report those elsewhere: a missing log, a missing folder, a tier."""

import re
import shutil
import warnings
from pathlib import Path

import pytest

from rmqtool.analytics.dump.dump import dump_to_parquet
from rmqtool.analytics.dump.report import DumpOptions
from rmqtool.analytics.source.plan import request_of
from rmqtool.analytics.source.read import plan_pieces
from rmqtool.analytics.source.tables_source import Reader, RocketMQSource
from rmqtool.errors import CorruptFile
from rmqtool.services.open_store.store import Store
from tests import roles
from tests.cli.running import rmqtool
from tests.roles import DLEDGER, MULTI_PATH, TIERED, Node

NOT_READ = r"a DLedger log whose entries are not here \(storePathDLedgerCommitLog\)"
# commands that answer with messages
MESSAGES = [
    ("commitlog", "dump", "STORE"),
    ("query-key", "STORE", "Events", "k"),
    ("query-id", "STORE", "0" * 32),
    ("query-offset", "STORE", "Events", "0", "0"),
    ("query-time", "STORE", "Events", "0", "2026-11-27"),
    ("topic", "latest", "STORE", "Events"),
    ("trace", "STORE", "k"),
    ("retry", "list", "STORE", "billing"),
    ("dlq", "list", "STORE", "billing"),
    ("delay", "list", "STORE"),
    ("transaction", "list", "STORE"),
    ("dump-to-parquet", "STORE", "OUT", "--runner", "local"),
    ("report", "traffic", "STORE", "--runner", "local"),
    ("report", "unconsumed", "STORE", "--runner", "local"),
]
# commands that answer with sums and offsets, in which messages are missing
SUMS = [
    ("topic", "list", "STORE"),
    ("group", "lag", "STORE", "billing"),
    ("consumequeue", "dump", "STORE"),
    ("report", "lag", "STORE", "--runner", "local"),
]


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A DLedger member whose log folder is missing."""
    node = roles.unpack(DLEDGER, "n0", tmp_path_factory.mktemp("member"))
    shutil.rmtree(node.store / "dledger-n0" / "data")
    return node


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with half of its commit log in a missing folder, without settings that name it."""
    node = roles.unpack(MULTI_PATH, "a", tmp_path_factory.mktemp("half"))
    shutil.move(node.store.parent / "disk1" / "log", node.store / "commitlog")
    return node.store


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """The local part of a tiered store."""
    return roles.unpack(TIERED, "a", tmp_path_factory.mktemp("tiered"))


def typed(args: tuple[str, ...], store: Path, out: Path) -> list[object]:
    return [{"STORE": store, "OUT": out}.get(word, word) for word in args]


@pytest.mark.parametrize("args", MESSAGES, ids=" ".join)
def test_messages_of_a_dledger_log_are_no_empty_answer(args: tuple[str, ...], member: Node, tmp_path: Path) -> None:
    result = rmqtool(*typed(args, member.store, tmp_path / "out"), *member.options())
    assert (result.code, result.out) == (5, "")
    assert re.search(f"dledger-n0: {NOT_READ}", result.err)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("args", SUMS, ids=" ".join)
def test_sums_of_a_dledger_member_say_what_they_lack(args: tuple[str, ...], member: Node, tmp_path: Path) -> None:
    result = rmqtool(*typed(args, member.store, tmp_path / "out"), *member.options())
    assert result.code in (0, 1)
    assert len(re.findall(f"dledger-n0: {NOT_READ}", result.err)) == 1


@pytest.mark.parametrize("args", [*MESSAGES, *SUMS], ids=" ".join)
def test_half_a_log_is_not_taken_for_the_whole(args: tuple[str, ...], half: Path, tmp_path: Path) -> None:
    result = rmqtool(*typed(args, half, tmp_path / "out"))
    assert result.code in (0, 1), result.err
    assert result.err.count("has every second file only (storePathCommitLog names the other folder)") == 1


def test_a_folder_that_the_settings_name_and_that_is_not_there_is_named(tmp_path: Path) -> None:
    node = roles.unpack(MULTI_PATH, "a", tmp_path)
    shutil.rmtree(tmp_path / "disk2" / "log")
    result = rmqtool("commitlog", "dump", node.store, *node.options())
    assert f"{tmp_path / 'disk2' / 'log'} is not there: messages in that directory are not shown" in result.err


def test_the_empty_file_of_a_killed_broker_is_removed_where_it_is(tmp_path: Path) -> None:
    """A broker makes the next file of the log in advance, here in a folder outside of the store."""
    node = roles.unpack(MULTI_PATH, "a", tmp_path)
    logs = [tmp_path / disk / "log" for disk in ("disk1", "disk2")]
    last = max((path for log in logs for path in log.iterdir()), key=lambda path: path.name)
    spare = logs[last.parent == logs[0]] / f"{int(last.name) + 32768:020d}"
    spare.write_bytes(bytes(32768))
    (node.store / "abort").touch()
    shown = rmqtool("recover", node.store, "--dry-run", *node.options())
    assert (shown.code, shown.err) == (1, "")
    assert f"remove ../{spare.relative_to(tmp_path)}" in shown.out
    assert rmqtool("recover", node.store, "--yes", *node.options()).code == 0
    assert not spare.exists()
    assert rmqtool("undo", node.store, "--yes", *node.options()).code == 0
    assert spare.read_bytes() == bytes(32768)


def test_an_old_log_beside_a_dledger_log_is_not_all(member: Node, tmp_path: Path) -> None:
    shutil.copytree(member.store, tmp_path / "n0")
    node = roles.unpack(roles.SLAVE, "master", tmp_path)
    shutil.copytree(node.store / "commitlog", tmp_path / "n0" / "commitlog")
    result = rmqtool("commitlog", "dump", tmp_path / "n0", "--limit", "1")
    assert result.out
    assert re.search(f"{NOT_READ}: messages are not shown", result.err)


# -- the Python API ---------------------------------------------------------------------------------------------------


def test_a_store_of_python_raises_for_a_dledger_log(member: Node) -> None:
    with Store(member.store) as store:
        assert store.topics()
        with pytest.raises(CorruptFile, match=NOT_READ):
            list(store.messages())
        with pytest.raises(CorruptFile, match=NOT_READ):
            store.query_key("Events", "k")
        with pytest.raises(CorruptFile, match=NOT_READ):
            store.get("Events", 0, 0)


def test_a_store_of_python_warns_once_of_what_is_in_the_tier(tiered: Node) -> None:
    with Store(tiered.store, broker_conf=str(tiered.conf)) as store:
        assert list(store.messages(on_damage=lambda _damage: None))
        assert store.query_id("0" * 32) == []
        assert [
            word for word in store.warnings if "229 messages of 11 queues are in the tier alone and read there" in word
        ] == store.warnings


def test_a_dump_of_python_warns_or_raises(member: Node, tiered: Node, tmp_path: Path) -> None:
    options = DumpOptions(runner="local")
    with pytest.raises(CorruptFile, match=NOT_READ):
        dump_to_parquet(str(member.store), str(tmp_path / "one"), options)
    with pytest.warns(UserWarning, match="229 messages of 11 queues are in the tier alone and read there"):
        dump_to_parquet(str(tiered.store), str(tmp_path / "two"), options)
    told: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dump_to_parquet(str(tiered.store), str(tmp_path / "three"), options, tell=told.append)
    assert len(told) == 1


# -- Spark's data source, without Spark -------------------------------------------------------------------------------


def test_the_data_source_raises_for_a_dledger_log(member: Node) -> None:
    request = request_of({"path": str(member.store)})
    with pytest.raises(CorruptFile, match=NOT_READ):
        plan_pieces(request, request.wanted)
    assert plan_pieces(request_of({"path": str(member.store), "table": "queues"}), request.wanted)[0]


def test_the_data_source_warns_of_the_tier(tiered: Node) -> None:
    source = RocketMQSource({"path": str(tiered.store)})
    reader = source.reader(source.schema())
    assert isinstance(reader, Reader)
    with pytest.warns(UserWarning, match="229 messages of 11 queues are in the tier alone and read there"):
        assert reader.partitions()


def test_so_does_a_stream(member: Node, tiered: Node) -> None:
    source = RocketMQSource({"path": str(tiered.store)})
    with pytest.warns(UserWarning, match="229 messages of 11 queues are in the tier alone and read there"):
        source.streamReader(source.schema())
    source = RocketMQSource({"path": str(member.store)})
    with pytest.raises(CorruptFile, match=NOT_READ):
        source.streamReader(source.schema())
