"""What each name server holds by itself: keys and values, routes, the permission to write to a broker."""

from collections.abc import Mapping, Sequence

from formats.remoting import headers as h
from formats.remoting import namesrv as n
from formats.remoting.bodies import TopicList, TopicRouteData
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.topics import Perm
from rmqtool.admin.changes.change import Name, Value, ValueChange, ValueKind
from rmqtool.admin.live.questions import Node, Questions, body

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
"""Namespace of ordered topics: which queues they have on which broker."""
_NO_TOPIC = (ResponseCode.TOPIC_NOT_EXIST,)


class KeyValues(ValueKind):
    """Entries of the KV configuration; the name is namespace and key."""

    name = "kv"

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        async def fetch(name: Name) -> str | None:
            answer = await questions.fetch_header_if_any(
                node, C.GET_KV_CONFIG, n.KVValue, n.KeyValue(namespace=name[0], key=name[1]),
                what="its values are", absent=(ResponseCode.QUERY_NOT_FOUND,),
            )  # fmt: skip
            return None if answer is None else answer.value

        values = await questions.need(questions.collect(names, fetch), names)
        return {name: value for name, value in values.items() if value is not None}

    async def write(self, questions: Questions, node: Node, change: ValueChange) -> None:
        namespace, key = change.place.name
        code = C.DELETE_KV_CONFIG if change.after is None else C.PUT_KV_CONFIG
        await questions.send(node, code, n.KeyValue(namespace=namespace, key=key, value=change.after))


class Routes(ValueKind):
    """The brokers that a name server has for a topic; the name is the topic's. Topics can be removed here but not
    added: brokers register their topics themselves.
    """

    name, undone = "route", False

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        async def fetch(name: Name) -> list[str] | None:
            route = await fetch_route(questions, node, name[0])
            return None if route is None else sorted({data.broker_name for data in route.queue_datas})

        routes = await questions.need(questions.collect(names, fetch), names)
        return {name: brokers for name, brokers in routes.items() if brokers}

    async def write(self, questions: Questions, node: Node, change: ValueChange) -> None:
        await questions.send(node, C.DELETE_TOPIC_IN_NAMESRV, h.Topic(topic=change.place.name[0]))

    @classmethod
    def show(cls, value: Value) -> Value:
        return None if value is None else ", ".join(value)


async def fetch_route(questions: Questions, node: Node, topic: str) -> TopicRouteData | None:
    """The route that one name server has.

    Raises:
        Unanswered: it gave no answer.
    """
    header = h.Topic(topic=topic, accept_standard_json_only=True)
    return await questions.fetch(
        node, C.GET_ROUTEINFO_BY_TOPIC, body(TopicRouteData), header, what="routes are", absent=_NO_TOPIC
    )


class WritePermissions(ValueKind):
    """What a name server lets clients do with the topics of a broker (permission by topic); the name is the broker's.

    A name server revokes or grants write permission for all topics at once, and what it grants is read and write,
    whatever the permission was before. It lasts until the broker registers a change of its own.
    """

    name = "write-perm"

    async def read(self, questions: Questions, node: Node, names: Sequence[Name]) -> Mapping[Name, Value]:
        topics = await questions.fetch(
            node, C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, body(TopicList), what="its topics are"
        )
        wanted = [] if topics is None else sorted({*topics.topic_list})

        async def fetch(topic: str) -> TopicRouteData | None:
            return await fetch_route(questions, node, topic)

        routes = await questions.need(questions.collect(wanted, fetch), wanted)
        tables: dict[Name, dict[str, int]] = {name: {} for name in names}
        for topic, route in routes.items():
            for data in () if route is None else route.queue_datas:
                if (data.broker_name,) in tables:
                    tables[data.broker_name,][topic] = data.perm & (Perm.READ | Perm.WRITE)
        return {name: table for name, table in tables.items() if table}

    async def write(self, questions: Questions, node: Node, change: ValueChange) -> None:
        wipes = not any(perm & Perm.WRITE for perm in change.after.values())
        code = C.WIPE_WRITE_PERM_OF_BROKER if wipes else C.ADD_WRITE_PERM_OF_BROKER
        await questions.send(node, code, n.BrokerName(broker_name=change.place.name[0]))

    @classmethod
    def show(cls, value: Value) -> Value:
        if value is None:
            return None
        writable = sum(bool(perm & Perm.WRITE) for perm in value.values())
        return f"{writable} of {len(value)} topics"

    @classmethod
    def tell_apart(cls, now: Value, wanted: Value) -> str:
        now, wanted = now or {}, wanted or {}
        names = [topic for topic in sorted({*now, *wanted}) if now.get(topic) != wanted.get(topic)]
        few = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        return f"a name server gives all topics the same permission, and that of {few} was another"
