"""Controllers of brokers in controller mode (5.x), and the replicas that they know."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from formats.remoting import controller as c
from formats.remoting.codes import MASTER_ID, ResponseCode
from formats.remoting.codes import ControllerCode as K
from formats.remoting.codes import RequestCode as C
from rmqtool.admin.live.brokers import fetch_settings
from rmqtool.admin.live.questions import Node, Questions, Unanswered, Warn, ask, body, read_settings
from rmqtool.admin.target import Target
from rmqtool.client.cluster.errors import ClientError
from rmqtool.contract import PlainRow

T = TypeVar("T")
LEADER = "leading-controller"
"""Name of the controller that leads, as the server of a change: another one may lead later."""
_END = (1 << 63) - 1  # end of the epoch that is not over
_NO_EPOCHS = ("controllerMode", ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRow(PlainRow):
    """A controller, as it describes itself."""

    address: str
    isLeader: bool
    group: str | None
    leaderId: str | None
    leaderAddress: str | None
    peers: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSetting(PlainRow):
    """One setting of one controller."""

    name: str
    value: str
    server: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledReplica:
    """A replica of a broker. Offsets are bytes of the log.

    Attributes:
        brokerId: its id at the controller, which it keeps when it becomes the master.
        isMaster, inSync, alive: as the controller has it.
        maxOffset, epochs: as the replica itself reports; None where it does not answer. The last epoch has no end.
    """

    cluster: str
    brokerName: str
    brokerId: int
    address: str | None
    isMaster: bool
    inSync: bool
    alive: bool
    masterEpoch: int
    syncStateSetEpoch: int
    maxOffset: int | None
    epochs: list[dict[str, int | None]] | None

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return asdict(self)


async def find_controllers(questions: Questions) -> list[Node]:
    """The controllers that the brokers' settings name (``controllerAddr``), by address.

    Raises:
        ClientError: no broker names one, or none answers.
        RemotingError: no name server answers.
    """
    tables = await questions.tables(await questions.nodes(), lambda node: fetch_settings(questions, node))
    addresses = {
        address.strip()
        for table in tables.values()
        if table.get("enableControllerMode", "").strip() == "true"
        for address in table.get("controllerAddr", "").split(";")
        if address.strip()
    }
    if not addresses:
        raise questions.none_has("a controller (enableControllerMode)")
    return [Node("", address, MASTER_ID, address) for address in sorted(addresses)]


async def fetch_metadata(questions: Questions, node: Node) -> c.Metadata:
    """What a controller says of itself and its group.

    Raises:
        Unanswered: it does not answer.
    """
    return await questions.fetch_header(node, K.CONTROLLER_GET_METADATA_INFO, c.Metadata, what="its group is")


async def _collect(
    questions: Questions, controllers: Iterable[Node], fetch: Callable[[Questions, Node], Awaitable[T]]
) -> dict[Node, T]:
    """The answers of all controllers that give one.

    Raises:
        ClientError: none does.
    """
    answers = await questions.collect(controllers, lambda node: fetch(questions, node))
    if not answers:
        raise ClientError(f"no controller answers: {'; '.join(questions.reasons())}")
    return answers


async def find_leader(questions: Questions, controllers: Iterable[Node]) -> Node:
    """The controller that leads, under the name :data:`LEADER`.

    Raises:
        ClientError: no controller answers, or none leads.
    """
    answers = await _collect(questions, controllers, fetch_metadata)
    for node, metadata in answers.items():
        if metadata.is_leader:
            return Node("", LEADER, MASTER_ID, node.address)
    for metadata in answers.values():
        if metadata.controller_leader_address:
            return Node("", LEADER, MASTER_ID, metadata.controller_leader_address)
    raise ClientError(f"{', '.join(node.address for node in answers)}: no controller leads now")


async def fetch_replicas(questions: Questions, leader: Node, brokers: Iterable[str]) -> Mapping[str, c.ReplicasInfo]:
    """The replicas of brokers, by name; only those that the controller knows.

    Raises:
        Unanswered: it does not answer.
    """
    names = json.dumps(sorted(brokers)).encode()
    answer = await questions.fetch(
        leader, K.CONTROLLER_GET_SYNC_STATE_DATA, body(c.BrokerReplicas), what="replicas are", sent=names
    )
    return {} if answer is None else answer.replicas_info_table


async def fetch_controller_settings(questions: Questions, node: Node) -> Mapping[str, str]:
    """The settings of one controller.

    Raises:
        Unanswered: it does not answer.
    """
    read = read_settings("enableElectUncleanMaster")
    return await questions.fetch(node, K.GET_CONTROLLER_CONFIG, read, what="its settings are") or {}


def list_controllers(target: Target, warn: Warn) -> list[ControllerRow]:
    """The controllers of a cluster's brokers, by address.

    Raises:
        ClientError, RemotingError: none answers, or there is none.
    """

    async def work(questions: Questions) -> list[ControllerRow]:
        controllers = await find_controllers(questions)
        answers = await _collect(questions, controllers, fetch_metadata)
        return [
            ControllerRow(
                address=node.address, isLeader=metadata.is_leader, group=metadata.group,
                leaderId=metadata.controller_leader_id, leaderAddress=metadata.controller_leader_address,
                peers=metadata.peers,
            )
            for node, metadata in answers.items()
        ]  # fmt: skip

    return ask(target, warn, work)


def list_controller_settings(target: Target, warn: Warn) -> list[ControllerSetting]:
    """The settings of every controller, by name and controller.

    Raises:
        ClientError, RemotingError: none answers, or there is none.
    """

    async def work(questions: Questions) -> list[ControllerSetting]:
        controllers = await find_controllers(questions)
        tables = await _collect(questions, controllers, fetch_controller_settings)
        rows = [
            ControllerSetting(name=name, value=value, server=node.address)
            for node, table in tables.items()
            for name, value in table.items()
        ]
        return sorted(rows, key=lambda row: (row.name, row.server))

    return ask(target, warn, work)


def list_controlled_replicas(target: Target, broker: str | None, warn: Warn) -> list[ControlledReplica]:
    """The replicas of every broker that the controller knows, also of those that are down; by broker and id.

    Args:
        broker: only the replicas of the broker of this name, also of one that no name server knows.

    Raises:
        ClientError, RemotingError: no controller answers, or there is none.
    """

    async def work(questions: Questions) -> list[ControlledReplica]:
        nodes = await questions.nodes()
        clusters = {node.name: node.cluster for node in nodes}
        names = {broker} if broker is not None else clusters.keys()
        leader = await find_leader(questions, await find_controllers(questions))
        try:
            table = await fetch_replicas(questions, leader, names)
        except Unanswered:
            raise ClientError(f"{'; '.join(questions.reasons())}: no replicas can be shown") from None
        for name in sorted(names - table.keys()):
            warn(f"broker {name} has no replicas at the controller {leader.address}")
        replicas = [(name, info, *pair) for name, info in sorted(table.items()) for pair in _members(info)]
        asked = {
            identity.broker_address: Node(clusters.get(name, ""), name, identity.broker_id, identity.broker_address)
            for name, _info, identity, _in_sync in replicas
            if identity.alive and identity.broker_address
        }
        epochs = await questions.collect(asked.values(), lambda node: _fetch_epochs(questions, node))
        of_address = {node.address: answer for node, answer in epochs.items() if answer is not None}
        return [
            _row(clusters.get(name, ""), name, info, identity, in_sync, of_address.get(identity.broker_address or ""))
            for name, info, identity, in_sync in replicas
        ]

    return ask(target, warn, work)


def _members(info: c.ReplicasInfo) -> list[tuple[c.ReplicaIdentity, bool]]:
    """The replicas of a broker by id, and whether they are in sync."""
    pairs = [(identity, True) for identity in info.in_sync_replicas]
    pairs += [(identity, False) for identity in info.not_in_sync_replicas]
    return sorted(pairs, key=lambda pair: pair[0].broker_id)


async def _fetch_epochs(questions: Questions, node: Node) -> c.Epochs | None:
    return await questions.fetch(
        node, C.GET_BROKER_EPOCH_CACHE, body(c.Epochs), what="its epochs are", absent=_NO_EPOCHS
    )


def _row(
    cluster: str, name: str, info: c.ReplicasInfo, identity: c.ReplicaIdentity, in_sync: bool, own: c.Epochs | None
) -> ControlledReplica:
    return ControlledReplica(
        cluster=cluster,
        brokerName=name,
        brokerId=identity.broker_id,
        address=identity.broker_address,
        isMaster=identity.broker_id == info.master_broker_id,
        inSync=in_sync,
        alive=identity.alive,
        masterEpoch=info.master_epoch,
        syncStateSetEpoch=info.sync_state_set_epoch,
        maxOffset=None if own is None else own.max_offset,
        epochs=None if own is None else [_show_epoch(epoch) for epoch in own.epoch_list],
    )


def _show_epoch(epoch: c.EpochEntry) -> dict[str, int | None]:
    end = None if epoch.end_offset == _END else epoch.end_offset
    return {"epoch": epoch.epoch, "startOffset": epoch.start_offset, "endOffset": end}
