"""Stores that ``convert``, ``split``, ``consolidate`` and ``salvage`` made, on real brokers: alone, and as a group.

In a group the new store is the master's, and an empty replica follows: it serves every message, and the logs are equal.
"""

import shutil
from pathlib import Path

import pytest

from formats.variants.epoch import build, parse
from rmqtool.services.comparison.replicas import rank_copies
from rmqtool.store.convert.convert import convert, split_topics, spread_log
from rmqtool.store.convert.report import ConversionReport, StoreForm
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.salvage.carve import Salvage
from tests import roles
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.interop.broker import Broker
from tests.interop.replicas import Difference, booted, differences
from tests.interop.test_merged import bodies_of, plain, serves
from tests.interop.test_replicas import unpack_controller
from tests.roles import Node

pytestmark = pytest.mark.interop


def layout_of(node: Node) -> StoreLayout:
    return StoreLayout(str(node.store), load(str(node.conf)))


def settings_of(report: ConversionReport, node: Node) -> dict[str, str]:
    """The source's settings, changed as the report says."""
    settings = node.settings
    for change in report.settings:
        if change.value is None:
            settings.pop(change.name, None)
        else:
            settings[change.name] = change.value
    return settings


# -- alone ------------------------------------------------------------------------------------------------------------


@by_turns(23)
@pytest.mark.xdist_group("broker-5.3.3")
def test_a_broker_serves_one_log_directory_and_several(broker_5: Broker, tmp_path: Path) -> None:
    node = roles.unpack(roles.MULTI_PATH, "a", tmp_path)
    wanted = bodies_of(layout_of(node))
    one = spread_log(layout_of(node), str(tmp_path / "one"), [])
    serves(broker_5, tmp_path / "one", settings_of(one, node), wanted)
    again = StoreLayout(str(tmp_path / "one"))
    several = spread_log(again, str(tmp_path / "several"), [str(tmp_path / "disks" / name) for name in ("x", "y", "z")])
    paths = {change.name: change.value or "" for change in several.settings}
    serves(broker_5, tmp_path / "several", node.settings, wanted, **paths)
    folders = [sorted(int(path.name) // 32768 for path in Path(folder).iterdir()) for folder in several.folders]
    # its own new files are where it expects them: each number in one directory alone
    assert sorted(number for numbers in folders for number in numbers) == [*range(sum(map(len, folders)))]
    assert all(number % 3 == place for place, numbers in enumerate(folders) for number in numbers)


@by_turns(23)
@pytest.mark.parametrize(
    ("case", "name"),
    [
        pytest.param(roles.DLEDGER, "n0", marks=pytest.mark.xdist_group("broker-5.3.3")),
        pytest.param(roles.OLD_DLEDGER, "n0", marks=pytest.mark.xdist_group("broker-4.9.8")),
    ],
)
def test_a_broker_serves_what_a_dledger_member_had(
    case: str, name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    node = roles.unpack(case, name, tmp_path)
    report = convert(layout_of(node), str(tmp_path / "new"), StoreForm.STORE)
    wanted = bodies_of(layout_of(node))
    assert sum(map(len, wanted.values())) > 200
    serves(request.getfixturevalue(f"broker_{case[-5]}"), tmp_path / "new", settings_of(report, node), wanted)


@by_turns(23)
@pytest.mark.xdist_group("broker-4.9.8")
def test_a_broker_serves_topics_of_their_own(broker_4: Broker, tmp_path: Path) -> None:
    node = roles.unpack(roles.SLAVE, "master", tmp_path)
    split_topics(layout_of(node), str(tmp_path / "new"), ["Events", "%RETRY%*"])
    every = bodies_of(layout_of(node))
    chosen = {key: found for key, found in every.items() if key[0].startswith(("Events", "%RETRY%"))}
    assert {topic for topic, _queue in chosen} >= {"Events", "%RETRY%billing"}
    serves(broker_4, tmp_path / "new", node.settings, chosen)


@by_turns(23)
@pytest.mark.parametrize("name", ["master", "slave"])
def test_the_newest_broker_serves_a_store_of_4_9(name: str, brokers_5_5: tuple[Broker, Broker], tmp_path: Path) -> None:
    node = roles.unpack(roles.SLAVE, name, tmp_path)
    convert(layout_of(node), str(tmp_path / "new"), StoreForm.NEWEST)
    kept = {path.name: path.read_bytes() for path in (tmp_path / "new" / "commitlog").iterdir()}
    wanted = bodies_of(StoreLayout(str(tmp_path / "new")))
    serves(brokers_5_5[0], tmp_path / "new", node.settings, wanted)
    for path, data in kept.items():  # it goes on behind them
        assert (tmp_path / "new" / "commitlog" / path).read_bytes().startswith(data.rstrip(b"\0"))


# -- as a group -------------------------------------------------------------------------------------------------------


def empty_replica(folder: Path, settings: dict[str, str]) -> Node:
    (folder / "empty").mkdir()
    return with_settings(folder / "empty", settings)


def with_settings(store: Path, settings: dict[str, str]) -> Node:
    conf = store.with_name(f"{store.name}-new.conf")
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return Node(store, conf)


def follow(master: Broker, replica: Broker, nodes: tuple[Node, Node], **more: str) -> list[Difference]:
    """Let a replica follow its master; send, let it follow again, stop both; returns where their logs differ."""
    with booted(master, replica, nodes, **more) as pair:
        pair.follow()
        pair.send("Events", "new-", 40)
        pair.follow()
        ends = pair.ends()
    assert ends[0] == ends[1]
    return differences(nodes[0].store, nodes[1].store, ends[0])


@by_turns(23)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.xdist_group(f"broker-{case[-5:]}"))
        for case in (roles.SLAVE, roles.OLD_DLEDGER, roles.DLEDGER)
    ],
)
def test_slaves_follow_what_was_merged(case: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """One begins with a copy that ends earlier, another one is empty: brokers send it the last file of the log."""
    nodes = roles.unpack_all(case, tmp_path)
    ranked = rank_copies([layout_of(node) for node in nodes], lambda _text: None)
    Salvage(ranked[0], str(tmp_path / "new"), others=ranked[1:]).run()
    settings = plain(nodes[0].settings)
    mine = with_settings(tmp_path / "new", {**settings, "brokerRole": "ASYNC_MASTER", "brokerId": "0"})
    of_slaves = {**settings, "brokerRole": "SLAVE", "brokerId": "1"}
    shutil.copytree(tmp_path / "new", tmp_path / "behind")
    behind = with_settings(tmp_path / "behind", of_slaves)
    items = [item for item in CommitLog(layout_of(mine)).walk() if isinstance(item, LocatedRecord)]
    cut = items[len(items) // 2].physical_offset
    assert rmqtool("truncate", behind.store, cut, "--yes", *behind.options()).code == 0
    wanted = bodies_of(layout_of(mine))
    master, replica = (request.getfixturevalue(f"{name}_{case[-5]}") for name in ("broker", "clients"))
    assert follow(master, replica, (mine, behind)) == []
    found = bodies_of(layout_of(behind))
    assert {key: {at: found[key].get(at) for at in offsets} for key, offsets in wanted.items()} == wanted
    assert follow(master, replica, (mine, empty_replica(tmp_path, of_slaves))) == []


@by_turns(23)
@pytest.mark.xdist_group("broker-5.3.3")
@pytest.mark.parametrize(
    ("case", "name"), [(roles.DLEDGER, "n0"), (roles.SLAVE, "master"), ("without its first files", "master")]
)
def test_a_new_group_with_a_controller(
    case: str, name: str, broker_5: Broker, clients_5: Broker, controlling: Broker, tmp_path: Path
) -> None:
    """A new controller makes the converted store's broker the master, and an empty replica copies all of its log."""
    node = roles.unpack(roles.SLAVE if case.startswith("without") else case, name, tmp_path)
    if case.startswith("without"):
        for path in sorted((node.store / "commitlog").iterdir())[:2]:
            path.unlink()
    assert rmqtool("convert", node.store, tmp_path / "new", "--to", "controller", *node.options()).code == 0
    settings = plain(node.settings) | {"enableControllerMode": "true"}
    nodes = with_settings(tmp_path / "new", settings), empty_replica(tmp_path, settings)
    wanted = bodies_of(layout_of(nodes[0]))
    address = controlling.ask("controller", store=str(tmp_path / "controller"), fileSize=65_536)["address"]
    assert follow(broker_5, clients_5, nodes, controllerAddr=address) == []
    found = bodies_of(layout_of(nodes[1]))
    assert {key: {at: found[key].get(at) for at in offsets} for key, offsets in wanted.items()} == wanted
    first = {int(min(path.name for path in (each.store / "commitlog").iterdir())) for each in nodes}
    assert len(first) == 1


@by_turns(23)
@pytest.mark.xdist_group("broker-5.3.3")
def test_a_replica_without_its_stale_tail_follows(
    broker_5: Broker, clients_5: Broker, controlling: Broker, tmp_path: Path
) -> None:
    """As check and replicas advise."""
    nodes = roles.unpack(roles.CONTROLLER, "a", tmp_path), roles.unpack(roles.CONTROLLER, "b", tmp_path)
    unpack_controller(tmp_path)
    at = roles.make_stale_tail(nodes[1])
    for words in (("recover", nodes[1].store, "--yes"), ("truncate", nodes[1].store, at, "--yes")):
        assert rmqtool(*words, *nodes[1].options()).code == 0
    address = controlling.ask("controller", store=str(tmp_path / "controller"), fileSize=65_536)["address"]
    assert follow(broker_5, clients_5, nodes, controllerAddr=address) == []


@by_turns(23)
@pytest.mark.xdist_group("broker-5.3.3")
@pytest.mark.parametrize("epoch", ["the same", "newer"])
def test_whether_a_stale_tail_stays(
    epoch: str, broker_5: Broker, clients_5: Broker, controlling: Broker, tmp_path: Path
) -> None:
    """A master that comes back in the epoch that it had begins it at the end of its log, so its replica is truncated to
    where its own begins. Under a master of a newer epoch the replica goes on behind its stale tail.
    """
    nodes = roles.unpack(roles.CONTROLLER, "a", tmp_path), roles.unpack(roles.CONTROLLER, "b", tmp_path)
    unpack_controller(tmp_path)
    at = roles.make_stale_tail(nodes[1])
    if epoch == "newer":  # the controller elects the master in epoch 3
        for path in (path for node in nodes for path in node.store.glob("epochFileCheckpoint*")):
            path.write_bytes(build(parse(path.read_bytes())[:2]))
    address = controlling.ask("controller", store=str(tmp_path / "controller"), fileSize=65_536)["address"]
    with booted(broker_5, clients_5, nodes, controllerAddr=address) as pair:
        pair.follow()
        end, _end = pair.ends()
    found = differences(nodes[0].store, nodes[1].store, end)
    assert (min((each.start for each in found), default=0) >= at) is (epoch == "newer")
