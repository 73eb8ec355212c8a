"""What commands say of brokers that leave a route while it is read."""

import pytest

from formats.remoting.codes import RequestCode as C
from rmqtool.cli.live.common import find_readable, note_lost_brokers
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from tests.client.peers import peer, route, run, tells


def test_brokers_that_leave_a_route_and_come_back(capsys: pytest.CaptureFixture[str]) -> None:
    a, b, c = (("a", "127.0.0.1:1"), ("b", "127.0.0.1:2"), ("c", "127.0.0.1:3"))
    gone, back = "broker b is no longer in the route of Orders", "broker b is in the route of Orders again"

    async def test() -> None:
        async with peer() as namesrv:
            routes = {"Orders": route(a, b), "Payments": route(a, b)}
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells(routes)
            async with Cluster(ClientOptions(namesrv=namesrv.address)) as cluster:
                note_lost_brokers(cluster)
                for topic in routes:
                    await find_readable(cluster, topic)
                for brokers, said in (
                    ((a, b), None), ((a,), gone), ((a,), None), ((a, c), None), ((a, b, c), back), ((c, b), "broker a"),
                ):  # fmt: skip
                    routes |= {topic: route(*brokers) for topic in routes}
                    await cluster.refresh_routes()
                    lines = capsys.readouterr().err.splitlines()
                    assert len(lines) == (said is not None), lines
                    assert said is None or lines[0].startswith(said)

    run(test)
