"""The role of a directory in its cluster, and what each writing command may do to it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.errors import Refused
from rmqtool.services.open_store.store import Store
from rmqtool.store.layout.broker_conf import BrokerConf, load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.roles.table import COMMANDS, NAMES, TABLE, Role, Verdict, heed, roles_of, rule_of, says_role
from tests import roles
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.roles import (
    CONTROLLER,
    DLEDGER,
    MULTI_PATH,
    NEW_SLAVE,
    NEW_TIERED,
    OLD_DLEDGER,
    SLAVE,
    TIERED,
    Node,
    prints,
)

# directory: (case, node, its own role, further ones)
DIRECTORIES = {
    "master": (SLAVE, "master", Role.MASTER, ()),
    "slave": (SLAVE, "slave", Role.SLAVE, ()),
    "slave of 5.5": (NEW_SLAVE, "slave", Role.SLAVE, ()),
    "dledger": (DLEDGER, "n0", Role.DLEDGER, ()),
    "dledger that was alone": (DLEDGER, "n2", Role.DLEDGER, ()),
    "dledger of 4.9": (OLD_DLEDGER, "n0", Role.DLEDGER, ()),
    "controller": (CONTROLLER, "a", Role.CONTROLLER, ()),
    "controller that is behind": (CONTROLLER, "b", Role.CONTROLLER, ()),
    "tiered": (TIERED, "a", Role.MASTER, (Role.TIERED,)),
    "tiered of 5.5": (NEW_TIERED, "a", Role.MASTER, (Role.TIERED,)),
    "multi-path": (MULTI_PATH, "a", Role.MASTER, (Role.MULTI_PATH,)),
}
Get = Callable[[str], Node]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Get:
    """Name → original directory of a broker, read-only."""
    known: dict[str, Node] = {}

    def get(name: str) -> Node:
        if name not in known:
            case, node, _own, _further = DIRECTORIES[name]
            known[name] = roles.unpack(case, node, tmp_path_factory.mktemp(name))
        return known[name]

    return get


@pytest.fixture(scope="module")
def mended(fresh: Get, tmp_path_factory: pytest.TempPathFactory) -> Get:
    """The same after ``recover``, if the table allows it; read-only."""
    known: dict[str, Node] = {}

    def get(name: str) -> Node:
        if name not in known:
            known[name] = node = copied(fresh(name), tmp_path_factory.mktemp(f"{name}-mended"))
            result = rmqtool("recover", node.store, "--yes", *node.options())
            assert result.code == (4 if name.startswith("dledger") else 0), result.err
        return known[name]

    return get


def copied(node: Node, folder: Path) -> Node:
    """Copy a node and its siblings, with settings for the new place."""
    shutil.copytree(node.store.parent, folder, dirs_exist_ok=True)
    conf = folder / node.conf.name
    conf.write_text(conf.read_text().replace(str(node.store.parent), str(folder)))
    return Node(folder / node.store.name, conf)


# -- one answer --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_directory_is_known_with_its_settings(name: str, fresh: Get) -> None:
    node, (_case, _node, own, further) = fresh(name), DIRECTORIES[name]
    facts = roles_of(StoreLayout(str(node.store), load(str(node.conf))))
    assert [fact.role for fact in facts] == [own, *further]
    assert all(fact.reason for fact in facts)


@pytest.mark.parametrize("name", DIRECTORIES)
def test_and_without_them_as_far_as_it_shows(name: str, fresh: Get) -> None:
    _case, _node, own, further = DIRECTORIES[name]
    layout = StoreLayout(str(fresh(name).store))
    shown = {Role.SLAVE: Role.MASTER}.get(own, own)  # nothing in a slave's directory tells
    assert [fact.role for fact in roles_of(layout)] == [shown, *(role for role in further if role is Role.TIERED)]
    assert says_role(layout) is (own in (Role.DLEDGER, Role.CONTROLLER))


@pytest.mark.parametrize(
    ("settings", "role"),
    [
        ({"brokerRole": "SLAVE"}, Role.SLAVE),
        ({"brokerRole": "slave"}, Role.SLAVE),
        ({"brokerId": "2"}, Role.SLAVE),
        ({"brokerId": "0"}, Role.MASTER),
        ({"brokerRole": "SYNC_MASTER"}, Role.MASTER),
        ({"enableControllerMode": "true", "brokerId": "-1"}, Role.CONTROLLER),
        ({"enableDLegerCommitLog": "true"}, Role.DLEDGER),
        ({"messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore"}, Role.TIERED),
        ({"messageStorePlugIn": "com.example.Other"}, Role.MASTER),
        ({"storeType": "defaultRocksDB"}, Role.ROCKSDB),
    ],
)
def test_settings_tell_a_role(settings: dict[str, str], role: Role, golden: Unpacked) -> None:
    layout = StoreLayout(str(golden("clean")), BrokerConf(settings))
    assert role in {fact.role for fact in roles_of(layout)}


def test_one_folder_of_two_is_known_by_its_gaps(fresh: Get, tmp_path: Path) -> None:
    node = copied(fresh("multi-path"), tmp_path)
    shutil.move(node.store.parent / "disk1" / "log", node.store / "commitlog")
    assert [fact.role for fact in roles_of(StoreLayout(str(node.store)))] == [Role.MASTER, Role.PART_MISSING]


def test_a_folder_that_is_not_mounted_is_missing(fresh: Get, tmp_path: Path) -> None:
    node = copied(fresh("multi-path"), tmp_path)
    shutil.rmtree(tmp_path / "disk2" / "log")
    before = prints(tmp_path)
    result = rmqtool("recover", node.store, "--yes", "--accept-loss", *node.options())
    assert (result.code, result.err.count("\n")) == (4, 1)
    assert str(tmp_path / "disk2" / "log") in result.err
    assert "Mount the directory" in result.err
    assert prints(tmp_path) == before


# -- the table ---------------------------------------------------------------------------------------------------------


def test_the_table_is_whole() -> None:
    assert set(TABLE) == set(Role) == set(NAMES)
    for role, row in TABLE.items():
        assert set(row) == set(COMMANDS), role
        for command, rule in row.items():
            if rule.verdict is Verdict.REFUSED:
                assert rule.words, (role, command)
                assert rule.way_out, (role, command)
            if rule.verdict is Verdict.WARNED:
                assert rule.words, (role, command)


def run(command: str, node: Node, folder: Path) -> tuple[int, str]:
    """Run a command as typed; returns (exit code, output)."""
    store, args, lines = str(node.store), command.split(), folder / "lines"
    if command == "mirror":  # which would look for a cluster first
        try:
            with Store(store, write=True, broker_conf=str(node.conf), command="mirror") as opened:
                return 0, "\n".join(opened.warnings)
        except Refused as err:
            return 4, str(err)
    typed: dict[str, tuple[object, ...]] = {
        "truncate": ("truncate", store, log_end(node), "--yes"),
        "append": ("append", store, lines),
        "apply": ("apply", store, lines, "--yes"),
        "dispatch": ("dispatch", store),
        "dlq requeue": ("dlq", "requeue", store, "billing", "--yes"),
        "run": ("run", store, "--once"),
        "serve": (
            *("serve", store, "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0"),
            *("--until", "2020-01-01T00:00:00Z"),
        ),
        "group reset": ("group", "reset", store, "billing", "--to-latest", "--yes"),
        "group clone": ("group", "clone", store, "billing", "other", "--yes"),
        "salvage": ("salvage", store, folder / "new"),
        "redact": ("redact", store, "--where", "queueId = 0", "--yes"),
        "export": ("export", store, folder / "new"),
        "convert": ("convert", store, folder / "new"),
        "undo --force": ("undo", store, "--force", "--yes"),
    }
    line = typed.get(command, (args[0], store, *args[1:], "--yes"))
    lines.write_text('{"topic": "Events", "body": "one"}\n' if command != "apply" else "topics: {Fresh: {}}\n")
    result = rmqtool(*line, *node.options())
    lines.unlink()
    return result.code, result.out + result.err


def log_end(node: Node) -> int:
    """The end of a recovered store's log: cutting there cuts nothing."""
    from rmqtool.services.lookup.info import store_info

    return store_info(StoreLayout(str(node.store), load(str(node.conf)))).maxPhyOffset


@by_turns(13)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", DIRECTORIES)
def test_every_command_does_what_the_table_says(name: str, command: str, mended: Get, tmp_path: Path) -> None:
    node = copied(mended(name), tmp_path / "node")
    layout = StoreLayout(str(node.store), load(str(node.conf)))
    rules = [(fact, rule_of(fact.role, command)) for fact in roles_of(layout)]
    before = prints(tmp_path)
    code, told = run(command, node, tmp_path)
    if (
        refusal := next((role_rule for role_rule in rules if role_rule[1].verdict is Verdict.REFUSED), None)
    ) is not None:
        fact, rule = refusal
        assert code == 4, told
        assert f"{NAMES[fact.role]} ({fact.reason})" in told
        assert rule.way_out.partition(".")[0].partition("{")[0] in told
        assert prints(tmp_path) == before
        return
    if command == "export" and name == "slave":
        assert code == 5, told  # the torn message
        return
    if command == "rebuild tiered-metadata" and "it has no tiered storage" in told:
        assert code == 2
        return
    if command == "rebuild timer" and "rmq_sys_wheel_timer" in told:
        return  # a store of 4.9 has none
    assert code in (0, 1), told
    for fact, rule in rules:
        warned = f"{NAMES[fact.role]} ({fact.reason}): {rule.words}"
        assert (warned in " ".join(told.split())) is (rule.verdict is Verdict.WARNED), told
    if command not in ("salvage", "export", "convert"):
        assert rmqtool("check", node.store, *node.options()).code in (0, 1)


@pytest.mark.parametrize("command", COMMANDS)
def test_of_a_store_in_rocksdb_too(command: str, golden: Unpacked) -> None:
    layout = StoreLayout(str(golden("rocksdb-5.3.3")))
    if rule_of(Role.ROCKSDB, command).verdict is Verdict.REFUSED:
        with pytest.raises(Refused, match="RocksDB"):
            heed(layout, command)
    elif command in ("truncate", "undo --force"):
        assert "slave" in "".join(heed(layout, command))  # which go on behind the end of their master
    elif command == "redact":
        assert "slaves of this master keep their copies" in "".join(heed(layout, command))
    else:
        assert heed(layout, command) == []


def test_who_stores_without_settings_is_told_that_nothing_says_the_role(mended: Get, tmp_path: Path) -> None:
    node = copied(mended("slave"), tmp_path)
    (tmp_path / "lines").write_text('{"topic": "Events", "body": "one"}\n')
    result = rmqtool("append", node.store, tmp_path / "lines")
    assert result.code == 0
    assert "it is unknown whether this is a master's directory" in result.err
