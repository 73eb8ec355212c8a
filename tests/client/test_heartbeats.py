"""Heartbeats: those of 5.x that omit what a broker knows (heartbeat v2), and those that come again at once."""

from formats.fastjson.declare import read_body
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from formats.remoting.shapes import ConsumerData, SubscriptionData
from rmqtool.client import ClientOptions, Cluster
from rmqtool.rules.releases import V4_9
from tests.client.peers import lose_connection, peer, route, run, tells
from tests.client.test_consuming import until


def wants(group: str, *topics: str, version: int = 1) -> ConsumerData:
    subscriptions = [SubscriptionData(topic, sub_version=version) for topic in topics]
    return ConsumerData(group, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", subscriptions)


def test_what_was_told_is_left_out_until_something_changes() -> None:
    async def test() -> None:
        async with peer() as broker, peer() as namesrv:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"T": route(("a", broker.address))})
            knows = changed = False

            def answer(request: Command) -> Command:
                answer = h.HeartbeatAnswer(is_support_heart_beat_v2=knows or None, is_sub_change=changed)
                return request.response(fields=to_fields(answer))

            broker.replies[C.HEART_BEAT] = answer
            broker.replies[C.GET_MAX_OFFSET] = lambda request: request.response()
            version = 1
            client = ClientOptions(namesrv=namesrv.address, heartbeat_v2=True)
            async with Cluster(client) as cluster:

                async def beat() -> list[tuple[bool, int]]:
                    """Whether each heartbeat was short, and its number of topics."""
                    before = len(broker.of(C.HEART_BEAT))
                    await cluster.heartbeat()
                    answer = [read_body(b.HeartbeatData, request.body) for request in broker.of(C.HEART_BEAT)[before:]]
                    assert all(data.heartbeat_fingerprint for data in answer)
                    assert all([group.group_name for group in data.consumer_data_set] for data in answer)
                    return [
                        (bool(data.without_sub), sum(len(g.subscription_data_set) for g in data.consumer_data_set))
                        for data in answer
                    ]

                def short(at: int) -> bool:
                    return bool(read_body(b.HeartbeatData, broker.of(C.HEART_BEAT)[at].body).without_sub)

                await cluster.route("T")
                cluster.groups.add_consumer("g", lambda: wants("g", "T", "%RETRY%g", version=version))
                await until(lambda: len(broker.of(C.HEART_BEAT)) >= 1)
                await cluster.heartbeat()
                assert await beat() == [(False, 2)]  # the broker does not say that it knows
                knows = True
                assert await beat() == [(False, 2)]
                version = 2  # which is not what is wanted
                assert await beat() == [(True, 0)]
                changed = True
                assert await beat() == [(True, 0), (False, 2)]  # all of it at once
                assert await beat() == [(False, 2)]
                changed = False
                assert await beat() == [(False, 2)]
                assert await beat() == [(True, 0)]
                await lose_connection(broker, cluster)
                await until(lambda: not short(-1))  # a broker forgets a client with its connection
                assert await beat() == [(True, 0)]
                cluster.groups.add_consumer("more", lambda: wants("more", "U"))
                await until(
                    lambda: len(read_body(b.HeartbeatData, broker.of(C.HEART_BEAT)[-1].body).consumer_data_set) == 2
                )
                await cluster.heartbeat()
                assert await beat() == [(True, 0)]

    run(test)


def test_a_broker_of_4_9_is_told_everything() -> None:
    async def test() -> None:
        async with peer() as broker, peer() as namesrv:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"T": route(("a", broker.address))})
            client = ClientOptions(namesrv=namesrv.address, heartbeat_v2=True, release=V4_9)
            async with Cluster(client) as cluster:
                await cluster.route("T")
                cluster.groups.add_consumer("g", lambda: wants("g", "T"))
                for _ in range(3):
                    await cluster.heartbeat()
            for request in broker.of(C.HEART_BEAT):
                data = read_body(b.HeartbeatData, request.body)
                assert (data.heartbeat_fingerprint, data.without_sub) == (None, None)
                assert data.consumer_data_set == [wants("g", "T")]

    run(test)


def test_a_heartbeat_that_a_starting_broker_refuses_comes_again_soon() -> None:
    """Not only with the next interval: until then the broker gives the group nothing."""

    async def test() -> None:
        async with peer() as broker, peer() as namesrv:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"T": route(("a", broker.address))})
            codes = [ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SERVICE_NOT_AVAILABLE]
            broker.replies[C.HEART_BEAT] = lambda request: request.response(codes.pop() if codes else 0)
            async with Cluster(ClientOptions(namesrv=namesrv.address)) as cluster:
                await cluster.route("T")
                cluster.groups.add_consumer("g", lambda: wants("g", "T"))
                await until(lambda: len(broker.of(C.HEART_BEAT)) >= 3)
                await until(lambda: not cluster.groups._again)
                number = len(broker.of(C.HEART_BEAT))
                assert number == 3

    run(test)


def test_a_broker_that_does_not_know_the_group_gets_a_heartbeat_at_once() -> None:
    async def test() -> None:
        async with peer() as broker, peer() as namesrv:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"T": route(("a", broker.address))})
            broker.replies[C.HEART_BEAT] = lambda request: request.response()
            unknown = ResponseCode.SUBSCRIPTION_NOT_EXIST
            broker.replies[C.PULL_MESSAGE] = lambda request: request.response(unknown, "the group info not exist")
            async with Cluster(ClientOptions(namesrv=namesrv.address)) as cluster:
                await cluster.route("T")
                cluster.groups.add_consumer("g", lambda: wants("g", "T"))
                await until(lambda: len(broker.of(C.HEART_BEAT)) >= 1)
                before = len(broker.of(C.HEART_BEAT))
                for _ in range(5):
                    await cluster.call(broker.address, cluster.request(C.PULL_MESSAGE))
                await until(lambda: len(broker.of(C.HEART_BEAT)) > before)
                assert len(broker.of(C.HEART_BEAT)) <= before + 2  # not for each refusal

    run(test)
