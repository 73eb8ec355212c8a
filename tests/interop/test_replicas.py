"""After our commands, a real replica follows its real master, and their logs are equal.

Compared is every byte from the later beginning to the earlier end, after the replica has caught up, and again after
further sends. The same runs without our commands differ in the same places.
"""

import os
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests import roles
from tests.amounts import by_turns, every
from tests.cli.running import rmqtool
from tests.interop import broker as brokers
from tests.interop.broker import Broker
from tests.interop.replicas import Difference, booted, differences, make_killed
from tests.roles import CONTROLLER, NEW_SLAVE, SLAVE, Node

pytestmark = pytest.mark.interop
Words = Sequence[str]
Pair = tuple[Node, Node]

RECOVER = ("recover", "STORE", "--yes")
EVERYTHING = (
    RECOVER,
    ("rebuild", "STORE", "consumequeue", "index", "checkpoint", "--yes"),
    ("rebuild", "STORE", "config", "--yes"),
    ("rebuild", "STORE", "files", "--yes"),
    ("dispatch", "STORE"),
    ("group", "reset", "STORE", "billing", "--to-earliest", "--yes"),
)
CLEAN = ("clean", "STORE", "--hours", "0", "--yes", "--accept-loss")

# The golden slave has the beginning of a record, up to the middle of its properties. A broker takes that for the whole
# record, and asks its master for what follows (replicas-and-tiered 7).
TORN = [Difference(180_819, 180_854)]
TORN_RECORD = "180398"
FURTHER_BACK = "163840"


def unpack(folder: Path) -> Pair:
    return roles.unpack(SLAVE, "master", folder), roles.unpack(SLAVE, "slave", folder)


def carry_out(node: Node, commands: Sequence[Words]) -> None:
    for args in commands:
        result = rmqtool(*(node.store if word == "STORE" else word for word in args), *node.options())
        nothing = args[0] == "group" and "nothing of group" in result.err
        assert result.code == 0 or nothing, (args, result.err)


def compare(master: Broker, replica: Broker, nodes: Pair, count: int = 40, **more: str) -> list[Difference]:
    """Start both, let the replica follow, send, let it follow again, stop both; returns where the logs differ."""
    with booted(master, replica, nodes, **more) as pair:
        pair.follow()
        pair.send("Events", "new-", count)
        pair.follow()
        ends = pair.ends()
    return differences(nodes[0].store, nodes[1].store, min(ends))


# -- a slave that was killed within a record --------------------------------------------------------------------------

ON_THE_SLAVE = {
    "nothing": ((), TORN),
    "recover": ((RECOVER,), TORN),
    "everything": ((*EVERYTHING, CLEAN), TORN),
    "cut before the torn record": ((RECOVER, ("truncate", "STORE", TORN_RECORD, "--yes")), []),
    "cut further back": ((RECOVER, ("truncate", "STORE", FURTHER_BACK, "--yes")), []),
}


@by_turns(23)
@pytest.mark.xdist_group("broker-4.9.8")
@pytest.mark.parametrize("name", every(2, list(ON_THE_SLAVE)))
def test_a_slave_of_4_9_follows_its_master(name: str, broker_4: Broker, clients_4: Broker, tmp_path: Path) -> None:
    commands, expected = ON_THE_SLAVE[name]
    nodes = unpack(tmp_path)
    carry_out(nodes[1], commands)
    assert compare(broker_4, clients_4, nodes) == expected


@by_turns(23)
@pytest.mark.xdist_group("broker-4.9.8")
def test_a_master_of_4_9_is_followed(broker_4: Broker, clients_4: Broker, tmp_path: Path) -> None:
    nodes = unpack(tmp_path)
    carry_out(nodes[0], EVERYTHING)
    assert compare(broker_4, clients_4, nodes) == TORN


@by_turns(23)
@pytest.mark.xdist_group("broker-4.9.8")
def test_a_master_that_is_cut_alone_spoils_its_slave(broker_4: Broker, clients_4: Broker, tmp_path: Path) -> None:
    """The warning in the table of roles is right, and its remedy works."""
    cut = ("truncate", "STORE", FURTHER_BACK, "--yes")
    for both in (False, True):
        nodes = unpack(tmp_path / str(both))
        carry_out(nodes[0], (RECOVER, cut))
        if both:
            carry_out(nodes[1], (RECOVER, cut))
        with booted(broker_4, clients_4, nodes) as pair:
            pair.send("Events", "new-", 200)
            pair.follow()
            ends = pair.ends()
        assert (differences(nodes[0].store, nodes[1].store, min(ends)) == []) is both


@by_turns(23)
@pytest.mark.parametrize("name", every(3, ["everything", "recover", "on the master"]))
def test_a_slave_of_5_5_follows_its_master(name: str, brokers_5_5: tuple[Broker, Broker], tmp_path: Path) -> None:
    """Its last record is torn in the body, so it is cut and sent again, by a start as by our commands."""
    nodes = roles.unpack(NEW_SLAVE, "master", tmp_path), roles.unpack(NEW_SLAVE, "slave", tmp_path)
    master, slave = {"recover": ((), (RECOVER,)), "everything": ((), EVERYTHING)}.get(name, (EVERYTHING, ()))
    carry_out(nodes[0], master)
    carry_out(nodes[1], slave)
    assert compare(*brokers_5_5, nodes) == []


# -- a pair that is made here -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """Killed master and slave of a version, read-only."""
    known: dict[str, Pair] = {}

    def get(version: str) -> Pair:
        if version not in known:
            if reason := brokers.available(version):
                pytest.skip(reason)
            known[version] = make_killed(version, tmp_path_factory.mktemp("killed"))
        return known[version]

    return get


@pytest.fixture(scope="module")
def alone() -> dict[str, list[Difference]]:
    """Differences between the logs of such a pair without our commands, by version."""
    return {}


def copied(pair: Pair, folder: Path) -> Pair:
    folder.mkdir(exist_ok=True)
    for node in pair:
        shutil.copytree(node.store, folder / node.store.name)
        shutil.copy(node.conf, folder)
    mine, its = (Node(folder / node.store.name, folder / node.conf.name) for node in pair)
    return mine, its


@by_turns(23)
@pytest.mark.parametrize("name", every(4, ["everything", "recover", "on the master", "nothing"]))
def test_a_slave_follows_its_master(
    name: str,
    broker: Broker,
    clients: Broker,
    killed: Callable[[str], Pair],
    alone: dict[str, list[Difference]],
    tmp_path: Path,
) -> None:
    """As without our commands: a 4.9 slave killed within a record keeps its part of it."""
    version = {"4.9": "4.9.8", "5.3": "5.3.3"}[broker.engine]
    nodes = copied(killed(version), tmp_path)
    mine, its = nodes
    commands = {"recover": (RECOVER,), "everything": (*EVERYTHING, CLEAN)}
    carry_out(its, commands.get(name, ()))
    if name == "on the master":
        carry_out(mine, EVERYTHING)
    outcome = compare(broker, clients, nodes)
    if version not in alone:
        alone[version] = (
            outcome if name == "nothing" else compare(broker, clients, copied(killed(version), tmp_path / "alone"))
        )
    assert outcome == alone[version]
    assert len(outcome) <= (version == "4.9.8")


# -- controller mode --------------------------------------------------------------------------------------------------


def unpack_controller(folder: Path) -> None:
    """The controller's directory; its index, mostly unwritten, is sparse."""
    with tarfile.open(roles.PLACE / CONTROLLER / "controller.tar.xz") as packed:
        for member in packed:
            if member.size <= 1 << 20:
                packed.extract(member, folder, filter="data")
                continue
            head = packed.extractfile(member)
            assert head is not None
            (folder / member.name).write_bytes(head.read(4096))
            os.truncate(folder / member.name, member.size)


IN_CONTROLLER_MODE = {
    "nothing": ((), ()),
    "recover both": ((RECOVER,), (RECOVER,)),
    "everything on the one that is behind": ((), EVERYTHING),
    "everything on the one that leads": (EVERYTHING, ()),
    "cut the one that is behind": ((), (RECOVER, ("truncate", "STORE", "114688", "--yes"))),
}


@by_turns(23)
@pytest.mark.xdist_group("broker-5.3.3")
@pytest.mark.parametrize("name", every(2, list(IN_CONTROLLER_MODE)))
def test_a_replica_follows_in_controller_mode(
    name: str, broker_5: Broker, clients_5: Broker, controlling: Broker, tmp_path: Path
) -> None:
    nodes = roles.unpack(CONTROLLER, "a", tmp_path), roles.unpack(CONTROLLER, "b", tmp_path)
    unpack_controller(tmp_path)
    for node, commands in zip(nodes, IN_CONTROLLER_MODE[name], strict=True):
        carry_out(node, commands)
    address = controlling.ask("controller", store=str(tmp_path / "controller"), fileSize=65_536)["address"]
    assert compare(broker_5, clients_5, nodes, controllerAddr=address) == []


@by_turns(23)
@pytest.mark.xdist_group("broker-5.3.3")
def test_why_a_replica_in_controller_mode_is_not_cleaned(
    broker_5: Broker, clients_5: Broker, controlling: Broker, tmp_path: Path
) -> None:
    """Its epochs agree with the master's up to a position that its log would no longer have: it is cut there, continues
    in a different file than its master, and never catches up.
    """
    nodes = roles.unpack(CONTROLLER, "a", tmp_path), roles.unpack(CONTROLLER, "b", tmp_path)
    unpack_controller(tmp_path)
    carry_out(nodes[1], (RECOVER,))
    refused = rmqtool(*(nodes[1].store if word == "STORE" else word for word in CLEAN), *nodes[1].options())
    assert refused.code == 4, refused.err
    for path in (nodes[1].store / "commitlog").iterdir():  # as clean would leave it
        if int(path.name) < 114_688:
            path.unlink()
    address = controlling.ask("controller", store=str(tmp_path / "controller"), fileSize=65_536)["address"]
    with booted(broker_5, clients_5, nodes, controllerAddr=address) as pair:
        with pytest.raises(AssertionError, match="log ends at"):
            pair.follow()
        master, replica = pair.ends()
    assert replica < master
