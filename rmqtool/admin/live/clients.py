"""The clients of a cluster: producers, which consumer holds which queue, what it does, and one message for it alone."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from formats.fastjson.declare import read_body
from formats.message.ids import offset_id
from formats.remoting import admin as a
from formats.remoting import headers as h
from formats.remoting.bodies import ConsumerConnection, ConsumeStats
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.shapes import MessageQueue, OffsetWrapper
from rmqtool.admin.live.messages import find_by_id
from rmqtool.admin.live.questions import Node, Questions, Warn, ask, body
from rmqtool.admin.target import Target
from rmqtool.client.cluster.errors import ClientError
from rmqtool.contract import PlainRow
from rmqtool.remoting.errors import NoAnswer
from rmqtool.services.lookup.query import Search

_LONG = 60_000  # ms after which a client that does nothing stands still
_PATIENCE = 60.0  # s for a listener to consume one message
_FULL = 1000  # messages of a queue that a client holds at most (pullThresholdForQueue)

OK, NO_CLIENT, SHARED, UNKNOWN, DROPPED, UNLOCKED, FULL, BUSY, NOT_PULLED = (
    "ok", "no-client", "shared", "unknown", "dropped", "unlocked", "full", "busy", "not-pulled",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerClient(PlainRow):
    """A connected producer."""

    group: str
    clientId: str
    clientAddr: str  # as one of the brokers sees it
    language: str
    version: int  # number of org.apache.rocketmq.common.MQVersion
    lastUpdateTimestamp: int  # ms, of its newest heartbeat
    brokers: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldQueue(PlainRow):
    """A queue of a group, and a client that holds it.

    ``state`` says why it stands still, if it does: ``no-client``: none holds it; ``shared``: several do; ``dropped``:
    the client has given it up; ``unlocked``: an orderly consumer has no lock on it; ``full``: the client holds as many
    messages as it may; ``busy``: it holds messages and has finished none for a minute; ``not-pulled``: it has not
    pulled for two minutes; ``unknown``: the client does not report; ``ok``: none of these. Times are ms.
    """

    group: str
    topic: str
    brokerName: str
    queueId: int
    clientId: str | None
    consumerOffset: int | None
    brokerOffset: int | None
    diff: int | None
    cachedMsgCount: int | None
    cachedMsgSizeInMiB: int | None
    locked: bool | None
    lastPullTimestamp: int | None
    lastConsumeTimestamp: int | None
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientStack(PlainRow):
    """The threads of a client, as it reports them; None if it does not."""

    group: str
    clientId: str
    stack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectResult(PlainRow):
    """What a client made of one message."""

    group: str
    clientId: str
    msgId: str  # offset id
    topic: str
    brokerName: str
    consumeResult: str | None  # such as CR_SUCCESS, CR_LATER; None if it was not asked
    spentTimeMills: int | None
    remark: str | None


def list_producers(target: Target, warn: Warn, wanted: Callable[[str], bool]) -> list[ProducerClient]:
    """The connected producers, by group and client id.

    Raises:
        ClientError, RemotingError: no broker answers.
    """

    async def fetch(questions: Questions, node: Node) -> a.ProducerTable:
        table = await questions.fetch(node, C.GET_ALL_PRODUCER_INFO, body(a.ProducerTable), what="its producers are")
        return a.ProducerTable() if table is None else table

    async def work(questions: Questions) -> list[ProducerClient]:
        tables = await questions.tables(await questions.masters(), lambda node: fetch(questions, node))
        clients: dict[tuple[str, str], list[tuple[Node, a.ProducerInfo]]] = defaultdict(list)
        for node, table in tables.items():
            for group, infos in table.data.items():
                for info in infos:
                    clients[group, info.client_id].append((node, info))
        return [
            ProducerClient(
                group=group, clientId=client_id, clientAddr=seen[0][1].remote_ip, language=seen[0][1].language,
                version=seen[0][1].version, lastUpdateTimestamp=max(info.last_update_timestamp for _node, info in seen),
                brokers=sorted({node.name for node, _info in seen}),
            )
            for (group, client_id), seen in sorted(clients.items())
            if wanted(group)
        ]  # fmt: skip

    return ask(target, warn, work)


# -- queues of consumers ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Online:
    """The clients of a group: the broker that each is asked through, and how they read."""

    nodes: Mapping[str, Node]
    broadcasting: bool


async def _find_clients(questions: Questions, masters: Sequence[Node], group: str) -> _Online:
    async def fetch(node: Node) -> ConsumerConnection:
        answer = await questions.fetch(
            node, C.GET_CONSUMER_CONNECTION_LIST, body(ConsumerConnection), h.ConsumerGroup(consumer_group=group),
            what="clients of groups are", absent=(ResponseCode.CONSUMER_NOT_ONLINE,),
        )  # fmt: skip
        return ConsumerConnection() if answer is None else answer

    answers = await questions.tables(masters, fetch)
    nodes: dict[str, Node] = {}
    for node, answer in answers.items():
        for connection in answer.connection_set:
            nodes.setdefault(connection.client_id, node)
    return _Online(nodes, any(answer.message_model == "BROADCASTING" for answer in answers.values()))


async def _fetch_infos(
    questions: Questions, online: _Online, group: str, *, stacks: bool
) -> Mapping[str, a.ConsumerRunningInfo]:
    async def fetch(client_id: str) -> a.ConsumerRunningInfo:
        header = a.RunningInfo(consumer_group=group, client_id=client_id, jstack_enable=stacks)
        info = await questions.fetch(
            online.nodes[client_id], C.GET_CONSUMER_RUNNING_INFO, body(a.ConsumerRunningInfo), header,
            what=f"the state of client {client_id} is",
        )  # fmt: skip
        assert info is not None  # nothing is absent
        return info

    return await questions.collect(sorted(online.nodes), fetch)


def list_held_queues(target: Target, warn: Warn, group: str, now: int | None = None) -> list[HeldQueue]:
    """Every queue of a group and the clients that hold it, by topic, broker, queue and client.

    Args:
        now: ms.

    Raises:
        ClientError, RemotingError: no broker answers.
    """
    moment = int(time.time() * 1000) if now is None else now

    async def work(questions: Questions) -> list[HeldQueue]:
        masters = await questions.masters()
        online = await _find_clients(questions, masters, group)
        infos = await _fetch_infos(questions, online, group, stacks=False)
        offsets = await _fetch_progress(questions, masters, group)
        silent = online.nodes.keys() - infos.keys()
        holders: dict[MessageQueue, list[tuple[str, a.ConsumerRunningInfo]]] = defaultdict(list)
        for client_id, info in infos.items():
            for queue in {**info.mq_table, **(info.mq_pop_table or {})}:
                holders[queue].append((client_id, info))
        rows = []
        for queue in sorted({*offsets, *holders}):
            at = offsets.get(queue)
            clients: list[tuple[str | None, a.ConsumerRunningInfo | None]] = [*holders.get(queue, [])]
            # a client that does not report may hold it; one that pops through any queue holds none
            for holder, about in clients or [(None, None)]:
                shared = len(clients) > 1 and not online.broadcasting
                rows.append(
                    _describe_queue(group, queue, at, holder, about, moment, shared=shared, unreported=bool(silent))
                )
        return rows

    return ask(target, warn, work)


async def _fetch_progress(
    questions: Questions, masters: Sequence[Node], group: str
) -> dict[MessageQueue, OffsetWrapper]:
    async def fetch(node: Node) -> ConsumeStats:
        header = h.ConsumerGroup(consumer_group=group)
        stats = await questions.fetch(node, C.GET_CONSUME_STATS, body(ConsumeStats), header, what="offsets are")
        assert stats is not None  # nothing is absent
        return stats

    answers = await questions.collect(masters, fetch)
    return {queue: wrapper for stats in answers.values() for queue, wrapper in stats.offset_table.items()}


def _describe_queue(
    group: str,
    queue: MessageQueue,
    at: OffsetWrapper | None,
    client_id: str | None,
    info: a.ConsumerRunningInfo | None,
    now: int,
    *,
    shared: bool,
    unreported: bool,
) -> HeldQueue:
    state = info.mq_table.get(queue) if info is not None else None
    popped = (info.mq_pop_table or {}).get(queue) if info is not None and state is None else None
    lag = None if at is None else at.broker_offset - at.consumer_offset
    pulled = popped.last_pop_timestamp if popped is not None else state.last_pull_timestamp if state else None
    return HeldQueue(
        group=group,
        topic=queue.topic,
        brokerName=queue.broker_name,
        queueId=queue.queue_id,
        clientId=client_id,
        consumerOffset=None if at is None else at.consumer_offset,
        brokerOffset=None if at is None else at.broker_offset,
        diff=lag,
        cachedMsgCount=popped.wait_ack_count if popped is not None else state.cached_msg_count if state else None,
        cachedMsgSizeInMiB=state.cached_msg_size_in_mi_b if state is not None else None,
        locked=state.locked if state is not None else None,
        lastPullTimestamp=pulled or None,
        lastConsumeTimestamp=(state.last_consume_timestamp or None) if state is not None else None,
        state=SHARED if shared else _state(info, state, popped, lag, now, unreported=unreported),
    )


def _state(
    info: a.ConsumerRunningInfo | None,
    state: a.QueueState | None,
    popped: a.PopQueueState | None,
    lag: int | None,
    now: int,
    *,
    unreported: bool,
) -> str:
    if info is None:
        return UNKNOWN if unreported else NO_CLIENT
    if popped is not None:
        return DROPPED if popped.droped else OK
    assert state is not None
    if state.droped:
        return DROPPED
    if info.properties.get("PROP_CONSUMEORDERLY") == "true" and not state.locked:
        return UNLOCKED
    most = info.properties.get("pullThresholdForQueue", "")
    if state.cached_msg_count >= (int(most) if most.isascii() and most.isdigit() and len(most) < 10 else _FULL):
        return FULL
    if state.cached_msg_count and now - state.last_consume_timestamp > _LONG:
        return BUSY
    if lag and not state.cached_msg_count and now - state.last_pull_timestamp > 2 * _LONG:
        return NOT_PULLED
    return OK


def list_stacks(target: Target, warn: Warn, group: str, wanted: Callable[[str], bool]) -> list[ClientStack]:
    """The threads of the clients of a group, by client id.

    Raises:
        ClientError, RemotingError: no broker answers.
    """

    async def work(questions: Questions) -> list[ClientStack]:
        online = await _find_clients(questions, await questions.masters(), group)
        chosen = _Online({name: node for name, node in online.nodes.items() if wanted(name)}, online.broadcasting)
        infos = await _fetch_infos(questions, chosen, group, stacks=True)
        return [
            ClientStack(group=group, clientId=client_id, stack=info.jstack or None)
            for client_id, info in sorted(infos.items())
        ]

    return ask(target, warn, work)


# -- one message ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectPlan:
    """A message, and the client that is to consume it."""

    group: str
    client_id: str
    message_id: str  # offset id
    topic: str
    node: Node

    def result(self, outcome: a.ConsumedDirectly | None) -> DirectResult:
        """The row of it; without an outcome, of what is planned."""
        return DirectResult(
            group=self.group, clientId=self.client_id, msgId=self.message_id, topic=self.topic,
            brokerName=self.node.name, consumeResult=outcome.consume_result if outcome is not None else None,
            spentTimeMills=outcome.spent_time_mills if outcome is not None else None,
            remark=outcome.remark if outcome is not None else None,
        )  # fmt: skip


def plan_direct(target: Target, warn: Warn, message_id: str, group: str, client_id: str | None) -> DirectPlan:
    """Find a message and the client that is to consume it.

    Args:
        message_id: offset id or unique id.
        client_id: id or pattern of one client; None for the only one of the group.

    Raises:
        ClientError: there is no such message, several, or no such client.
        RemotingError: a broker does not answer.
    """

    async def work(questions: Questions) -> DirectPlan:
        copies = await find_by_id(questions, warn, message_id, (), Search())
        ids = {
            offset_id(copy.record.store_address, copy.record.store_port, copy.physical_offset): copy for copy in copies
        }
        if not ids:
            raise questions.none_has(f"message {message_id}")
        if len(ids) > 1:
            raise ClientError(f"{message_id}: several copies: give the offset id of one: {', '.join(sorted(ids))}")
        ((place, message),) = ids.items()
        assert message.node is not None
        names = sorted((await _find_clients(questions, [message.node], group)).nodes)
        chosen = [name for name in names if client_id in (None, name) or fnmatchcase(name, client_id or "")]
        if len(chosen) > 1:
            raise ClientError(f"group {group} has {len(chosen)} clients: give --client, one of {', '.join(chosen)}")
        if not chosen:
            online = f"it has {', '.join(names)}" if names else "no client of the group is there"
            wanted = f"has no client {client_id}" if client_id is not None else "is not online"
            raise ClientError(f"group {group} {wanted} at broker {message.node.name}: {online}")
        topic = message.record.topic.decode("utf-8", "surrogateescape")
        return DirectPlan(group=group, client_id=chosen[0], message_id=place, topic=topic, node=message.node)

    return ask(target, warn, work)


def carry_out_direct(target: Target, warn: Warn, plan: DirectPlan) -> DirectResult:
    """Have the client consume the message now. No offset changes.

    Raises:
        ClientError: it is refused, or there is no answer: the client may have consumed it.
    """

    async def work(questions: Questions) -> DirectResult:
        header = a.ConsumeDirectly(
            consumer_group=plan.group, client_id=plan.client_id, msg_id=plan.message_id, broker_name=plan.node.name,
            topic=plan.topic,
        )  # fmt: skip
        request = questions.cluster.request(C.CONSUME_MESSAGE_DIRECTLY, header)
        try:
            answer = await questions.cluster.ask(plan.node.address, request, _PATIENCE)
        except NoAnswer as err:
            raise ClientError(f"{err}: the client may have consumed the message") from err
        with questions.cluster.answers_of(plan.node.address):
            return plan.result(read_body(a.ConsumedDirectly, answer.body))

    return ask(target, warn, work)
