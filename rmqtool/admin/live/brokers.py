"""The brokers of a cluster: their state, their settings, and their clients."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from formats.remoting import headers as h
from formats.remoting.bodies import ConsumerConnection, KVTable
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from rmqtool.admin.live.questions import Node, Questions, Warn, ask, body, read_settings
from rmqtool.admin.live.tables import fetch_groups, fetch_offsets
from rmqtool.admin.target import Target
from rmqtool.contract import PlainRow

_NUMBER = re.compile(r"-?[0-9]{1,18}")
_REAL = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,20})?(E-?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus(PlainRow):
    """One broker, with the names of its runtime table. What it does not report is None.

    Rates are per second, over the last ten seconds; times are ms.
    """

    cluster: str
    brokerName: str
    brokerId: int
    role: str  # master or slave
    address: str
    version: str | None
    active: bool | None  # since 5.0; a slave that acts as master is
    putTps: float | None
    getTransferredTps: float | None
    sendThreadPoolQueueSize: int | None
    sendThreadPoolQueueHeadWaitTimeMills: int | None
    pullThreadPoolQueueSize: int | None
    pullThreadPoolQueueHeadWaitTimeMills: int | None
    pageCacheLockTimeMills: int | None
    commitLogMinOffset: int | None
    commitLogMaxOffset: int | None
    behindMaster: int | None  # bytes of the log that a slave lacks; None for a master
    earliestMessageTimestamp: int | None
    bootTimestamp: int | None
    commitLogDiskRatio: float | None  # the fullest of its disks
    dispatchBehindBytes: int | None
    timerReadBehind: int | None  # s; this and the following fields since 5.0
    timerOffsetBehind: int | None
    timerCongestNum: int | None
    msgPutTotalTodayNow: int | None
    msgGetTotalTodayNow: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSetting(PlainRow):
    """One setting of one broker."""

    cluster: str
    brokerName: str
    brokerId: int
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupClient:
    """An online consumer of a group."""

    group: str
    clientId: str
    clientAddr: str  # as one of the brokers sees it
    language: str
    version: int  # number of org.apache.rocketmq.common.MQVersion
    consumeType: str | None
    messageModel: str | None
    consumeFromWhere: str | None
    brokers: list[str]  # brokers that it is connected to
    subscriptions: dict[str, str]  # topic → expression of the group, as its clients registered it

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return asdict(self)


class LiveBrokers:
    """The brokers of a cluster.

    Args:
        warn: called with each reason why an answer is incomplete.
    """

    def __init__(self, target: Target, warn: Warn) -> None:
        self._target, self._warn = target, warn

    def statuses(self) -> list[BrokerStatus]:
        """Every broker, by cluster, name and id; for one that does not answer, only what name servers report."""
        return ask(self._target, self._warn, self.gather_statuses)

    def settings(self, broker: str | None = None) -> list[BrokerSetting]:
        """The settings of every broker, or of those with a name or an address, by broker and name."""
        return ask(self._target, self._warn, lambda questions: self._settings(questions, broker))

    def clients(self, wanted: Callable[[str], bool]) -> list[GroupClient]:
        """The online clients of groups, by group and client id."""
        return ask(self._target, self._warn, lambda questions: self._clients(questions, wanted))

    async def gather_statuses(self, questions: Questions) -> list[BrokerStatus]:
        nodes = await questions.nodes()
        tables = await questions.collect(nodes, lambda node: fetch_runtime(questions, node))
        ends = {
            (node.cluster, node.name): _whole(table.get("commitLogMaxOffset"))
            for node, table in tables.items()
            if node.is_master
        }
        return [_status(node, tables.get(node, {}), ends.get((node.cluster, node.name))) for node in nodes]

    async def _settings(self, questions: Questions, broker: str | None) -> list[BrokerSetting]:
        nodes = [node for node in await questions.nodes() if broker in (None, node.name, node.address)]
        tables = await questions.collect(nodes, lambda node: fetch_settings(questions, node))
        return [
            BrokerSetting(cluster=node.cluster, brokerName=node.name, brokerId=node.broker_id, name=name, value=value)
            for node, table in tables.items()
            for name, value in sorted(table.items())
        ]

    async def _clients(self, questions: Questions, wanted: Callable[[str], bool]) -> list[GroupClient]:
        nodes = await questions.masters()
        configured, offsets = await fetch_groups(questions, nodes), await fetch_offsets(questions, nodes)
        groups = {group for table in configured.values() for group in table}
        groups |= {entry.group for entries in offsets.values() for entry in entries}
        pairs = [(group, node) for group in sorted(filter(wanted, groups)) for node in nodes]

        answers_by_group: dict[str, list[tuple[Node, ConsumerConnection]]] = defaultdict(list)
        for (group, node), answer in (await fetch_connections(questions, pairs)).items():
            if answer is not None:
                answers_by_group[group].append((node, answer))
        return [client for group, answers in answers_by_group.items() for client in _clients_of(group, answers)]


async def fetch_connections(
    questions: Questions, pairs: Iterable[tuple[str, Node]]
) -> Mapping[tuple[str, Node], ConsumerConnection | None]:
    """The clients of groups by group and broker: None if there are none, left out if the broker does not answer."""

    async def fetch(pair: tuple[str, Node]) -> ConsumerConnection | None:
        group, node = pair
        return await questions.fetch(
            node, C.GET_CONSUMER_CONNECTION_LIST, body(ConsumerConnection), h.ConsumerGroup(consumer_group=group),
            what="clients of groups are", absent=(ResponseCode.CONSUMER_NOT_ONLINE,),
        )  # fmt: skip

    return await questions.collect(pairs, fetch)


async def fetch_settings(questions: Questions, node: Node) -> Mapping[str, str]:
    """The settings that a broker runs with.

    Raises:
        Unanswered: it does not answer.
    """
    return await questions.fetch(node, C.GET_BROKER_CONFIG, read_settings("brokerName"), what="its settings are") or {}


async def fetch_runtime(questions: Questions, node: Node) -> Mapping[str, str]:
    """What a broker reports of its own state.

    Raises:
        Unanswered: it does not answer.
    """
    runtime = await questions.fetch(node, C.GET_BROKER_RUNTIME_INFO, body(KVTable), what="its state is")
    return {} if runtime is None else runtime.table


def _status(node: Node, table: Mapping[str, str], end: int | None) -> BrokerStatus:
    mine = _whole(table.get("commitLogMaxOffset"))
    active = table.get("brokerActive")
    transferred = table.get("getTransferredTps", table.get("getTransferedTps"))
    ratios = [
        ratio for name in table if name.startswith("commitLogDiskRatio") if (ratio := _real(table[name])) is not None
    ]
    wholes = {
        name: _whole(table.get(name))
        for name in (
            "sendThreadPoolQueueSize", "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueSize",
            "pullThreadPoolQueueHeadWaitTimeMills", "pageCacheLockTimeMills", "commitLogMinOffset",
            "commitLogMaxOffset", "bootTimestamp", "dispatchBehindBytes", "timerReadBehind", "timerOffsetBehind",
            "timerCongestNum", "msgPutTotalTodayNow", "msgGetTotalTodayNow",
        )
    }  # fmt: skip
    earliest = _whole(table.get("earliestMessageTimeStamp"))
    return BrokerStatus(
        cluster=node.cluster,
        brokerName=node.name,
        brokerId=node.broker_id,
        role="master" if node.is_master else "slave",
        address=node.address,
        version=table.get("brokerVersionDesc"),
        active=None if active is None else active.lower() == "true",
        putTps=_first(table.get("putTps")),
        getTransferredTps=_first(transferred),
        behindMaster=None if node.is_master or end is None or mine is None else end - mine,
        earliestMessageTimestamp=earliest if earliest is not None and earliest > 0 else None,
        commitLogDiskRatio=max((ratio for ratio in ratios if ratio is not None), default=None),
        **wholes,
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def _real(text: str | None) -> float | None:
    """The used fraction of a disk; -1, for a disk that the broker cannot read, becomes None."""
    number = float(text) if text is not None and _REAL.fullmatch(text) else None
    return number if number is not None and number >= 0 else None


def _first(text: str | None) -> float | None:
    """The first of three averages, over ten seconds."""
    return _real(next(iter((text or "").split()), None))


def _clients_of(group: str, answers: Iterable[tuple[Node, ConsumerConnection]]) -> list[GroupClient]:
    clients: dict[str, GroupClient] = {}
    for node, answer in answers:
        for connection in answer.connection_set:
            client = clients.setdefault(
                connection.client_id,
                GroupClient(
                    group=group,
                    clientId=connection.client_id,
                    clientAddr=connection.client_addr,
                    language=connection.language,
                    version=connection.version,
                    consumeType=answer.consume_type,
                    messageModel=answer.message_model,
                    consumeFromWhere=answer.consume_from_where,
                    brokers=[],
                    subscriptions={topic: want.sub_string for topic, want in sorted(answer.subscription_table.items())},
                ),
            )
            client.brokers.append(node.name)
    return [clients[client_id] for client_id in sorted(clients)]
