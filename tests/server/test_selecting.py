"""Pulls with SQL92 filters at a served store."""

import asyncio
from pathlib import Path

import pytest

from formats.fastjson.declare import body_of
from formats.remoting import bodies as b
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.remoting.shapes import SubscriptionData
from rmqtool.client import ClientOptions, Message, Producer, PullConsumer
from rmqtool.client.cluster.errors import BrokerError
from rmqtool.remoting.client import open_connection
from rmqtool.rules.releases import RELEASES
from rmqtool.server.serve import Served, ServeOptions
from tests.server.serving import address

CONF = {"enablePropertyFilter": "true"}


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
def test_only_what_is_selected_comes(engine: str, tmp_path: Path) -> None:
    async def run() -> list[str]:
        options = ServeOptions(
            listen=("127.0.0.1", 0),
            namesrv_listen=("127.0.0.1", 0),
            create=True,
            release=RELEASES[engine],
            broker_conf=CONF,
        )
        async with asyncio.timeout(60), Served(str(tmp_path / "store"), options) as served:
            client = ClientOptions(namesrv=served.name_servers[0], release=RELEASES[engine])
            async with Producer(client) as producer:
                for n in range(40):
                    await producer.send(Message("Orders", b"x", keys=[f"k{n}"], properties={"amount": str(n)}))
            async with PullConsumer(client, sql="amount >= 35 OR KEYS = 'k7'") as consumer:
                await consumer.assign(await consumer.queues("Orders"))
                result: list[str] = []
                while len(result) < 6:
                    result += [key for message in await consumer.poll() for key in message.keys]
                async with Producer(client) as producer:
                    for n in (3, 99):  # to pulls that wait
                        await producer.send(Message("Orders", b"x", keys=[f"k{n}"], properties={"amount": str(n)}))
                while len(result) < 7:
                    result += [key for message in await consumer.poll() for key in message.keys]
            return sorted(result)

    assert asyncio.run(run()) == ["k35", "k36", "k37", "k38", "k39", "k7", "k99"]


def test_what_a_broker_refuses(tmp_path: Path) -> None:
    async def asked(served: Served, expression: str, kind: str = "SQL92") -> int:
        async with open_connection(*address(served.broker_address)) as client:
            body = body_of(b.CheckClient("c", "g", SubscriptionData("T", expression, expression_type=kind)))
            return (await client.call(Command(C.CHECK_CLIENT_CONFIG, body=body))).code

    async def run(conf: dict[str, str]) -> list[int]:
        options = ServeOptions(listen=("127.0.0.1", 0), namesrv_listen=("127.0.0.1", 0), create=True, broker_conf=conf)
        async with asyncio.timeout(60), Served(str(tmp_path / f"store{len(conf)}"), options) as served:
            codes = [await asked(served, "a > 1"), await asked(served, "a >"), await asked(served, "a", "CLASS")]
            if not conf:
                client = ClientOptions(namesrv=served.name_servers[0])
                async with Producer(client) as producer:
                    await producer.send(Message("T", b"x"))
                async with PullConsumer(client, sql="a > 1") as consumer:
                    queues = await consumer.queues("T")
                    await consumer.assign(queues)
                    with pytest.raises(BrokerError, match="does not support"):
                        await consumer.poll()
            return codes

    parse, system = ResponseCode.SUBSCRIPTION_PARSE_FAILED, ResponseCode.SYSTEM_ERROR
    assert asyncio.run(run(CONF)) == [0, parse, parse]
    assert asyncio.run(run({})) == [system] * 3
