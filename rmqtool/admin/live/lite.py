"""Lite topics of a live cluster (5.5): topics that have some, progress of groups and clients, and handing out again."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from formats.fastjson.declare import Declared
from formats.remoting import lite as lt
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from rmqtool.admin.live.questions import Node, Questions, Unanswered, Warn, ask, body
from rmqtool.admin.target import Target
from rmqtool.contract import PlainRow
from rmqtool.rules.kinds import lite_names
from rmqtool.words import counted

D = TypeVar("D", bound=Declared)
TOP = 1000
"""Lite topics of a group in one answer of a broker, which keeps as many places for them, unless told otherwise."""
_MOST = 10_000  # lite topics of a client that brokers put into one answer
_GONE = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
PLANNED, DISPATCHED, FAILED = "planned", "dispatched", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteBroker(PlainRow):
    """The lite topics of one broker."""

    brokerName: str
    storeType: str
    currentLmqNum: int
    maxLmqNum: int
    liteSubscriptionCount: int
    orderInfoCount: int
    cqTableSize: int
    offsetTableSize: int
    eventMapSize: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteParent(PlainRow):
    """A topic that has lite topics, on one broker."""

    topic: str
    brokerName: str
    ttl: int | None  # minutes after its last message until a lite topic is removed; None: never
    liteTopicCount: int
    lmqNum: int  # light queues of the broker, of all topics
    groups: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteTopicRow(PlainRow):
    """One lite topic on one broker. A client is ``*`` where those of a group share all lite topics."""

    topic: str
    liteTopic: str
    brokerName: str
    minOffset: int
    maxOffset: int
    lastUpdateTimestamp: int | None  # ms; None without a message
    shardingToBroker: bool  # clients find it on this broker
    subscriberCount: int
    subscribers: Sequence[str]  # client@group


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteLagRow(PlainRow):
    """The lag of a group in one lite topic on one broker."""

    group: str
    topic: str
    liteTopic: str
    brokerName: str
    brokerOffset: int | None  # None where the broker lists lags alone
    consumerOffset: int | None
    lag: int | None  # None: by age, where a broker does not tell the number
    earliestUnconsumedTimestamp: int | None  # ms
    lastTimestamp: int | None  # store time of the newest consumed message, ms


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteClientRow(PlainRow):
    """What a client subscribes to on one broker."""

    group: str
    topic: str
    clientId: str
    brokerName: str
    liteTopicCount: int
    lastAccessTimestamp: int | None  # ms
    lastConsumeTimestamp: int | None  # ms
    liteTopics: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteDispatch(PlainRow):
    """Handing out again on one broker."""

    group: str
    topic: str
    clientId: str | None  # None: all clients of the group
    brokerName: str
    lag: int | None  # messages that the group has left there
    state: str
    reason: str | None = None


def list_lite_brokers(target: Target, warn: Warn) -> list[LiteBroker]:
    """What each broker has of lite topics.

    Raises:
        ClientError, RemotingError: no broker answers.
    """

    async def work(questions: Questions) -> list[LiteBroker]:
        return [
            LiteBroker(
                brokerName=node.name,
                storeType=info.store_type,
                currentLmqNum=info.current_lmq_num,
                maxLmqNum=info.max_lmq_num,
                liteSubscriptionCount=info.lite_subscription_count,
                orderInfoCount=info.order_info_count,
                cqTableSize=info.cq_table_size,
                offsetTableSize=info.offset_table_size,
                eventMapSize=info.event_map_size,
            )
            for node, info in sorted((await _describe_brokers(questions)).items())
        ]

    return ask(target, warn, work)


def list_lite_parents(target: Target, warn: Warn, wanted: Callable[[str], bool]) -> list[LiteParent]:
    """The topics that have lite topics; by name and broker.

    Raises:
        ClientError, RemotingError: no broker answers.
    """

    async def work(questions: Questions) -> list[LiteParent]:
        infos = await _describe_brokers(questions)
        places = [(node, topic) for node, info in infos.items() for topic in info.topic_meta if wanted(topic)]

        async def fetch(place: tuple[Node, str]) -> lt.ParentTopicInfo | None:
            node, topic = place
            header = lt.GetParentTopic(topic=topic)
            return await _fetch(questions, node, C.GET_PARENT_TOPIC_INFO, lt.ParentTopicInfo, header)

        answers = await questions.collect(places, fetch)
        rows = [
            LiteParent(
                topic=topic,
                brokerName=node.name,
                ttl=info.ttl if info.ttl >= 0 else None,
                liteTopicCount=info.lite_topic_count,
                lmqNum=info.lmq_num,
                groups=sorted(info.groups or ()),
            )
            for (node, topic), info in answers.items()
            if info is not None
        ]
        return sorted(rows, key=lambda row: (row.topic, row.brokerName))

    return ask(target, warn, work)


def describe_lite_topic(target: Target, warn: Warn, topic: str, lite_topic: str) -> list[LiteTopicRow]:
    """One lite topic on every broker that has its messages or subscribers.

    Raises:
        ClientError, RemotingError: no broker answers.
    """

    async def work(questions: Questions) -> list[LiteTopicRow]:
        infos = await _describe_brokers(questions)

        async def fetch(node: Node) -> lt.LiteTopicInfo | None:
            header = lt.GetLiteTopic(parent_topic=topic, lite_topic=lite_topic)
            return await _fetch(questions, node, C.GET_LITE_TOPIC_INFO, lt.LiteTopicInfo, header)

        answers = await questions.collect([node for node, info in infos.items() if topic in info.topic_meta], fetch)
        return [
            LiteTopicRow(
                topic=topic,
                liteTopic=lite_topic,
                brokerName=node.name,
                minOffset=info.topic_offset.min_offset,
                maxOffset=info.topic_offset.max_offset,
                lastUpdateTimestamp=_time(info.topic_offset.last_update_timestamp),
                shardingToBroker=info.sharding_to_broker,
                subscriberCount=len(info.subscriber),
                subscribers=sorted(f"{client.client_id}@{client.group}" for client in info.subscriber),
            )
            for node, info in sorted(answers.items())
            if info is not None and (info.topic_offset.max_offset > 0 or info.subscriber)
        ]

    return ask(target, warn, work)


def list_lite_lags(
    target: Target, warn: Warn, say: Warn, group: str, lite_topic: str | None, top: int
) -> list[LiteLagRow]:
    """The lite topics in which a group has messages left, by lag; or its progress in one.

    Args:
        say: called with what brokers have left out.
        top: as many lite topics of each broker.

    Raises:
        ClientError, RemotingError: no broker answers.
    """

    async def work(questions: Questions) -> list[LiteLagRow]:
        async def fetch(node: Node) -> lt.LiteGroupInfo | None:
            return await _fetch_group(questions, node, group, lite_topic, top)

        parents = await _find_parents(questions, group)
        if not parents:
            warn(f"no broker that answers has a group {group} that reads lite topics")
        answers = await questions.collect(parents, fetch)
        rows: list[LiteLagRow] = []
        for node, info in sorted(answers.items()):
            if info is None:
                continue
            if lite_topic is not None:
                rows += _progress(node, info, lite_topic)
                continue
            lags = _lags(node, info)
            shown = sum(row.lag or 0 for row in lags)
            if shown < info.total_lag_count:
                left = counted(info.total_lag_count - shown, "message")
                say(f"broker {node.name}: the group has {left} left in lite topics that are not listed: --limit")
            rows += lags
        return sorted(rows, key=lambda row: (-(row.lag or 0), row.liteTopic, row.brokerName))

    return ask(target, warn, work)


def describe_lite_client(target: Target, warn: Warn, say: Warn, group: str, client: str) -> list[LiteClientRow]:
    """What a client subscribes to, on every broker that knows it.

    Args:
        say: called with what brokers have left out.

    Raises:
        ClientError, RemotingError: no broker answers.
    """

    async def work(questions: Questions) -> list[LiteClientRow]:
        parents = await _find_parents(questions, group)

        async def fetch(node: Node) -> lt.LiteClientInfo | None:
            header = lt.GetLiteClient(parent_topic=parents[node], group=group, client_id=client, max_count=_MOST)
            return await _fetch(questions, node, C.GET_LITE_CLIENT_INFO, lt.LiteClientInfo, header)

        rows: list[LiteClientRow] = []
        for node, info in sorted((await questions.collect(parents, fetch)).items()):
            if info is None or info.lite_topic_count < 0:
                continue
            names = [pair[1] if (pair := lite_names(queue)) else queue for queue in info.lite_topic_set or ()]
            if len(names) < info.lite_topic_count:
                say(f"broker {node.name}: {len(names)} of {info.lite_topic_count} lite topics are listed")
            rows.append(
                LiteClientRow(
                    group=group,
                    topic=parents[node],
                    clientId=client,
                    brokerName=node.name,
                    liteTopicCount=info.lite_topic_count,
                    lastAccessTimestamp=_time(info.last_access_time),
                    lastConsumeTimestamp=_time(info.last_consume_time),
                    liteTopics=sorted(names),
                )
            )
        return rows

    return ask(target, warn, work)


def plan_dispatch(
    target: Target, warn: Warn, group: str, client: str | None, brokers: Sequence[str]
) -> list[LiteDispatch]:
    """The brokers on which a group reads lite topics, and what it has left on each.

    Args:
        client: only for this one.
        brokers: names of brokers; all if empty.

    Raises:
        ClientError, RemotingError: no broker answers.
    """

    async def work(questions: Questions) -> list[LiteDispatch]:
        async def fetch(node: Node) -> lt.LiteGroupInfo | None:
            return await _fetch_group(questions, node, group, None, 1)  # brokers fail at 0

        answers = await questions.collect(await _find_parents(questions, group, brokers), fetch)
        return [
            LiteDispatch(
                group=group,
                topic=info.parent_topic,
                clientId=client,
                brokerName=node.name,
                lag=max(info.total_lag_count, 0),
                state=PLANNED,
            )
            for node, info in sorted(answers.items())
            if info is not None
        ]

    return ask(target, warn, work)


def dispatch(target: Target, warn: Warn, plan: Sequence[LiteDispatch]) -> list[LiteDispatch]:
    """Have brokers note for their clients which lite topics have messages left.

    Raises:
        ClientError, RemotingError: no broker answers.
    """

    async def work(questions: Questions) -> list[LiteDispatch]:
        nodes = {node.name: node for node in await questions.masters()}

        async def send(row: LiteDispatch) -> LiteDispatch:
            node = nodes.get(row.brokerName)
            if node is None:
                return replace(row, state=FAILED, reason="no longer registered")
            header = lt.TriggerLiteDispatch(group=row.group, client_id=row.clientId)

            async def trigger() -> None:
                await questions.send(node, C.TRIGGER_LITE_DISPATCH, header)

            try:
                await questions.attempt(node, "its lite topics are", trigger)
            except Unanswered as err:
                return replace(row, state=FAILED, reason=str(err.__cause__))
            return replace(row, state=DISPATCHED)

        return [await send(row) for row in plan]

    return ask(target, warn, work)


# -- parts ------------------------------------------------------------------------------------------------------------


async def _describe_brokers(questions: Questions) -> dict[Node, lt.BrokerLiteInfo]:
    async def fetch(node: Node) -> lt.BrokerLiteInfo | None:
        return await questions.fetch(node, C.GET_BROKER_LITE_INFO, body(lt.BrokerLiteInfo), what="its lite topics are")

    answers = await questions.tables(await questions.masters(), fetch)
    return {node: info for node, info in answers.items() if info is not None}


async def _find_parents(questions: Questions, group: str, brokers: Sequence[str] = ()) -> dict[Node, str]:
    """The topic whose lite topics a group reads, on each broker where it does."""
    return {
        node: topic
        for node, info in (await _describe_brokers(questions)).items()
        for topic, groups in info.group_meta.items()
        if group in groups and (not brokers or node.name in brokers)
    }


async def _fetch_group(
    questions: Questions, node: Node, group: str, lite_topic: str | None, top: int
) -> lt.LiteGroupInfo | None:
    header = lt.GetLiteGroup(group=group, lite_topic=lite_topic, top_k=top)
    return await _fetch(questions, node, C.GET_LITE_GROUP_INFO, lt.LiteGroupInfo, header)


async def _fetch(questions: Questions, node: Node, code: C, declared: type[D], header: Declared) -> D | None:
    return await questions.fetch(node, code, body(declared), header, what="its lite topics are", absent=_GONE)


def _progress(node: Node, info: lt.LiteGroupInfo, lite_topic: str) -> Iterable[LiteLagRow]:
    """A row for a group in one lite topic; none where the broker has no message of it."""
    offsets = info.lite_topic_offset_wrapper
    if info.total_lag_count < 0 and offsets is None:
        return
    yield LiteLagRow(
        group=info.group,
        topic=info.parent_topic,
        liteTopic=lite_topic,
        brokerName=node.name,
        brokerOffset=offsets.broker_offset if offsets is not None else None,
        consumerOffset=offsets.consumer_offset if offsets is not None else None,
        lag=info.total_lag_count,
        earliestUnconsumedTimestamp=_time(info.earliest_unconsumed_timestamp),
        lastTimestamp=_time(offsets.last_timestamp) if offsets is not None else None,
    )


def _lags(node: Node, info: lt.LiteGroupInfo) -> list[LiteLagRow]:
    """The lite topics that lag most, and those that have lagged longest."""
    lags = {lag.lite_topic: lag for lag in (*(info.lag_timestamp_top_k or ()), *(info.lag_count_top_k or ()))}
    counts = {lag.lite_topic for lag in info.lag_count_top_k or ()}
    return [
        LiteLagRow(
            group=info.group,
            topic=info.parent_topic,
            liteTopic=name,
            brokerName=node.name,
            brokerOffset=None,
            consumerOffset=None,
            lag=lag.lag_count if name in counts or lag.lag_count > 0 else None,
            earliestUnconsumedTimestamp=_time(lag.earliest_unconsumed_timestamp),
            lastTimestamp=None,
        )
        for name, lag in lags.items()
    ]


def _time(value: int) -> int | None:
    return value if value > 0 else None
