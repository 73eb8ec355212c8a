"""Name servers, routes, heartbeats and connections of a client, with correct and misbehaving peers."""

import asyncio
from functools import partial

import pytest

from formats.fastjson.declare import body_of, read_body
from formats.remoting.bodies import HeartbeatData, TopicList, TopicRouteData
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.remoting.shapes import ConsumerData, MessageQueue, QueueData
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import BadAnswer, BrokerError, NoRoute
from rmqtool.client.cluster.routes import Route
from rmqtool.remoting.errors import NotReached, RemotingError
from tests.client.peers import Peer, lose_connection, ok, peer, raw_peer, route, run, tells


def options(*addresses: str, **more: float) -> ClientOptions:
    return ClientOptions(namesrv=";".join(addresses), **more)  # type: ignore[arg-type]


async def until(peer: Peer, code: C, times: int = 1) -> list[Command]:
    while len(peer.of(code)) < times:
        await asyncio.sleep(0.005)
    return peer.of(code)


def test_a_route_is_asked_for_once_and_shared() -> None:
    async def test() -> None:
        async with peer() as namesrv, Cluster(options(namesrv.address)) as cluster:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"Orders": route(("a", "127.0.0.1:1"), queues=2)})
            routes = await asyncio.gather(*[cluster.route("Orders") for _ in range(5)])
            assert set(routes[0].writable) == {MessageQueue("Orders", "a", 0), MessageQueue("Orders", "a", 1)}
            assert await cluster.route("Orders") is routes[0]
            assert cluster.address("a") == "127.0.0.1:1"
            assert len(namesrv.got) == 1
            with pytest.raises(NoRoute, match="Payments"):
                await cluster.route("Payments")
            with pytest.raises(NoRoute, match="slave 1"):
                cluster.address("a", 1)

    run(test)


def test_the_next_name_server_answers_when_one_ends() -> None:
    async def test() -> None:
        async with peer() as broker, peer() as other, Cluster(options(broker.address, other.address)) as cluster:
            for server in (broker, other):
                server.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"Orders": route(("a", "127.0.0.1:1"))})
            await cluster.fetch_route("Orders")
            first, second = (broker, other) if broker.got else (other, broker)
            # it answers no more: its connections end with each request
            first.replies[C.GET_ROUTEINFO_BY_TOPIC] = lambda _: first.connections[-1].abort()
            await cluster.fetch_route("Orders")
            await cluster.fetch_route("Orders")
            assert (len(first.got), len(second.got)) == (2, 2)

    run(test)


def test_what_one_name_server_does_not_know_is_asked_of_the_others() -> None:
    """One that has just been started lacks what has not registered with it yet."""

    async def test() -> None:
        async with peer() as fresh, peer() as other:
            fresh.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({})
            other.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"Orders": route(("a", "127.0.0.1:1"))})
            for server, known in ((fresh, ["TBW102"]), (other, ["Orders", "TBW102"])):
                body = body_of(TopicList(known, None))
                server.replies[C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = partial(Command.response, body=body)
            for _ in range(4):  # in random order
                async with Cluster(options(fresh.address, other.address)) as cluster:
                    assert (await cluster.route("Orders")).brokers == {"a": {0: "127.0.0.1:1"}}
                    assert set(await cluster.topics()) == {"Orders", "TBW102"}
                    with pytest.raises(NoRoute):
                        await cluster.route("Payments")
            async with Cluster(options(fresh.address, "127.0.0.1:1")) as cluster:
                with pytest.raises(NoRoute):
                    await cluster.route("Orders")

    run(test)


def test_no_name_server_is_one_clear_error() -> None:
    async def test() -> None:
        async with Cluster(options("127.0.0.1:1", "nonsense")) as cluster:
            with pytest.raises(NotReached, match=r"no name server answers: (?=.*127.0.0.1:1)(?=.*nonsense)"):
                await cluster.route("Orders")
        with pytest.raises(NotReached, match="no address"):
            Cluster(options(""))

    run(test)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        (1 << 30).to_bytes(4, "big") + b"\0" * 64,  # a frame of 1 GB
        b"\xff\xff\xff\xff",
        (8).to_bytes(4, "big") + (900).to_bytes(4, "big") + b"{}{}",  # a header longer than its frame
        (8).to_bytes(4, "big") + (4).to_bytes(4, "big") + b"nope",
        (6).to_bytes(4, "big") + (2).to_bytes(4, "big") + b"{}",  # an answer to nothing, or a success without a route
    ],
)
def test_bytes_that_are_no_answer_are_one_clear_error(answer: bytes) -> None:
    async def test() -> None:
        async with raw_peer(answer) as address, Cluster(options(address, timeout=0.5)) as cluster:
            with pytest.raises(RemotingError, match=address):
                await cluster.route("Orders")

    run(test)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"brokerDatas":7}', b"\xff", b'{"brokerDatas":[{"brokerAddrs":{}}]}', b"{" * 100_000]
)
def test_a_body_that_is_no_route_is_one_clear_error(body: bytes) -> None:
    async def test() -> None:
        async with peer() as namesrv, Cluster(options(namesrv.address)) as cluster:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = lambda request: request.response(body=body)
            with pytest.raises(BadAnswer, match="not an answer"):
                await cluster.route("Orders")

    run(test)


def test_a_route_of_too_many_queues_is_refused() -> None:
    async def test() -> None:
        async with peer() as namesrv, Cluster(options(namesrv.address)) as cluster:
            many = route(("a", "127.0.0.1:1"), queues=2**31 - 1)
            ordered = route(("a", "127.0.0.1:1"))
            ordered.order_topic_conf = "a:999999999"
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"Many": many, "Ordered": ordered})
            for topic in ("Many", "Ordered"):
                with pytest.raises(BadAnswer, match="queues; 65536 are allowed"):
                    await cluster.route(topic)

    run(test)


def test_a_new_topic_is_where_the_template_is_until_it_is_known() -> None:
    async def test() -> None:
        async with peer() as namesrv, Cluster(options(namesrv.address)) as cluster:
            known = {"TBW102": route(("a", "127.0.0.1:1"), queues=8, perm=7)}
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells(known)
            routes = await cluster.publish_route("New")
            assert routes.assumed
            assert len(routes.writable) == 4
            known["New"] = route(("a", "127.0.0.1:1"), queues=2)
            assert await cluster.publish_route("New") is routes
            await cluster.refresh_routes()
            assert len((await cluster.publish_route("New")).writable) == 2
            known.clear()
            await cluster.refresh_routes()  # what was known stays
            assert len((await cluster.publish_route("New")).writable) == 2
            with pytest.raises(NoRoute, match="no broker makes new ones"):
                await cluster.publish_route("Other")

    run(test)


def test_queues_are_written_where_there_is_a_master_that_may_be_written_to() -> None:
    data = route(("b", "h:1"), ("a", "h:2"), ("c", "h:3"), queues=1)
    data.broker_datas[2].broker_addrs = {1: "h:3"}
    data.queue_datas = [QueueData("b", 2, 1, 6), QueueData("a", 1, 1, 4), QueueData("c", 1, 1, 6)]
    topic_route = Route.of("T", data)
    assert [(q.broker_name, q.queue_id) for q in topic_route.writable] == [("b", 0)]
    assert [(q.broker_name, q.queue_id) for q in topic_route.readable] == [("a", 0), ("b", 0), ("b", 1), ("c", 0)]
    data.order_topic_conf = "c:1;a:2"
    ordered = Route.of("T", data)
    assert [(q.broker_name, q.queue_id) for q in ordered.writable] == [("c", 0), ("a", 0), ("a", 1)]
    assert ordered.ordered


def test_groups_are_told_to_brokers_again_when_their_connection_ended_and_left_at_the_end() -> None:
    async def test() -> None:
        async with peer() as broker, peer() as namesrv:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"Orders": route(("a", broker.address))})
            broker.replies[C.GET_MAX_OFFSET] = ok
            async with Cluster(options(namesrv.address)) as cluster:
                await cluster.route("Orders")
                assert broker.got == []  # who is in no group keeps quiet
                cluster.groups.add_producer("senders")
                cluster.groups.add_consumer("readers", lambda: ConsumerData("readers", "P", "C", "F"))
                beats = await until(broker, C.HEART_BEAT)
                while len(broker.of(C.HEART_BEAT)) < 2:
                    await cluster.heartbeat()
                sent = read_body(HeartbeatData, beats[-1].body)
                assert sent.client_id == cluster.client_id
                assert [item.group_name for item in sent.producer_data_set] == ["senders"]
                assert [item.group_name for item in sent.consumer_data_set] == ["readers"]
                before = len(broker.of(C.HEART_BEAT))
                await lose_connection(broker, cluster)
                await until(broker, C.HEART_BEAT, before + 1)
            left = [request.fields for request in broker.of(C.UNREGISTER_CLIENT)]
            assert left == [
                {"clientID": cluster.client_id, "producerGroup": "senders"},
                {"clientID": cluster.client_id, "consumerGroup": "readers"},
            ]

    run(test)


def test_heartbeats_and_routes_are_repeated() -> None:
    async def test() -> None:
        async with peer() as broker, peer() as namesrv:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"Orders": route(("a", broker.address))})
            async with Cluster(options(namesrv.address, route_interval=0.02, heartbeat_interval=0.02)) as cluster:
                seen: list[Route] = []
                cluster.on_route(seen.append)
                cluster.groups.add_producer("senders")
                await cluster.route("Orders")
                await until(broker, C.HEART_BEAT, 3)
                await until(namesrv, C.GET_ROUTEINFO_BY_TOPIC, 3)
                assert len(seen) == 1  # it has not changed

    run(test)


def test_requests_of_brokers_reach_their_handler_and_others_are_refused() -> None:
    async def test() -> None:
        async with peer() as broker, Cluster(options(broker.address)) as cluster:
            broker.replies[C.GET_MAX_OFFSET] = ok
            cluster.on(C.GET_CONSUMER_RUNNING_INFO, lambda _connection, request: request.response(body=b"here"))
            await cluster.ask(broker.address, cluster.request(C.GET_MAX_OFFSET))
            connection = broker.connections[0]
            assert (await connection.call(Command(C.GET_CONSUMER_RUNNING_INFO))).body == b"here"
            refused = await connection.call(Command(C.CONSUME_MESSAGE_DIRECTLY))
            assert refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    run(test)


def test_errors_of_brokers_have_their_words() -> None:
    async def test() -> None:
        async with peer() as broker, Cluster(options(broker.address)) as cluster:
            broker.replies[C.GET_MAX_OFFSET] = lambda request: request.response(9999, "no\nsuch \x1b thing")
            with pytest.raises(BrokerError, match=r"unknown code \(9999\)") as caught:
                await cluster.ask(broker.address, cluster.request(C.GET_MAX_OFFSET))
            assert caught.value.code == 9999
            assert "\n" not in str(caught.value)

    run(test)


def test_who_still_waits_when_the_client_is_closed_is_told() -> None:
    async def test() -> None:
        async with peer() as namesrv:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = lambda _: None
            cluster = Cluster(options(namesrv.address, timeout=30))
            async with cluster:
                waiting = asyncio.create_task(cluster.route("Orders"))
                await until(namesrv, C.GET_ROUTEINFO_BY_TOPIC)
            with pytest.raises(RemotingError):
                await waiting
            with pytest.raises(RemotingError, match="closed"):
                await cluster.call(namesrv.address, cluster.request(C.HEART_BEAT))

    run(test)


def test_it_closes_at_any_moment_of_a_look_at_the_routes() -> None:
    async def test() -> None:
        async with peer() as namesrv:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"Orders": route(("a", "127.0.0.1:1"))})
            for turns in range(40):
                cluster = Cluster(options(namesrv.address, route_interval=0, heartbeat_interval=0))
                async with cluster:
                    await cluster.route("Orders")
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    async with asyncio.timeout(5):
                        await cluster.close()

    run(test)


def test_an_empty_route_has_no_queues() -> None:
    async def test() -> None:
        async with peer() as namesrv, Cluster(options(namesrv.address)) as cluster:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"Orders": TopicRouteData()})
            assert (await cluster.route("Orders")).readable == ()
            with pytest.raises(NoRoute, match="no broker takes messages"):
                await cluster.publish_route("Orders")

    run(test)


def test_a_broker_that_has_left_all_routes_is_forgotten() -> None:
    async def test() -> None:
        async with peer() as namesrv, Cluster(options(namesrv.address)) as cluster:
            known = {"Orders": route(("a", "h:1"), ("b", "h:2")), "Payments": route(("b", "h:2"))}
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells(known)
            await cluster.route("Orders")
            await cluster.route("Payments")
            known["Orders"] = route(("a", "h:3"))
            await cluster.refresh_routes()
            assert sorted(cluster.addresses()) == ["h:2", "h:3"]
            cluster.forget_route("Payments")
            assert cluster.addresses() == ["h:3"]

    run(test)


def test_a_server_that_ends_is_asked_once_more_over_a_new_connection() -> None:
    async def test() -> None:
        async with peer() as broker, Cluster(options("127.0.0.1:1")) as cluster:
            first: list[object] = []

            async def slowly(request: Command) -> Command:
                await until(broker, C.GET_MAX_OFFSET)
                return request.response(ResponseCode.SUCCESS, "late")

            def going(request: Command) -> Command:
                first[:] = first or broker.connections
                if broker.connections == first:
                    return request.response(ResponseCode.GO_AWAY, "please go away")
                return request.response()

            broker.replies |= {C.GET_MAX_OFFSET: going, C.GET_MIN_OFFSET: slowly}
            late = asyncio.create_task(cluster.ask(broker.address, cluster.request(C.GET_MIN_OFFSET), 10))
            await until(broker, C.GET_MIN_OFFSET)
            answers = await asyncio.gather(
                *[cluster.ask(broker.address, cluster.request(C.GET_MAX_OFFSET)) for _ in range(3)]
            )
            assert {answer.code for answer in answers} == {0}
            assert (await late).remark == "late"  # over the old connection
            assert len(broker.connections) == 2
            await cluster.ask(broker.address, cluster.request(C.GET_MAX_OFFSET))
            assert len(broker.connections) == 2

            broker.replies[C.GET_MAX_OFFSET] = lambda request: request.response(ResponseCode.GO_AWAY, "for ever")
            before = len(broker.of(C.GET_MAX_OFFSET))
            with pytest.raises(BrokerError, match="for ever"):
                await cluster.ask(broker.address, cluster.request(C.GET_MAX_OFFSET))
            assert len(broker.of(C.GET_MAX_OFFSET)) == before + 2

    run(test)
