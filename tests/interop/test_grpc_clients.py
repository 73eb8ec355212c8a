"""gRPC clients talk to our broker through the real proxy of 5.5.0."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from rmqtool import Store
from rmqtool.remoting.client import open_connection
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.interop import engine, grpc_clients
from tests.interop.grpc_clients import Proxy
from tests.interop.serving import Serving
from tests.server.serving import address

pytestmark = [pytest.mark.interop, by_turns(17)]
COUNT = 30
KINDS = {"Plain": "NORMAL", "Fifo": "FIFO", "Late": "DELAY", "Tx": "TRANSACTION"}


async def bind(broker: str, group: str, topic: str) -> None:
    """Make a group for the lite topics of a topic."""
    body = json.dumps({"groupName": group, "attributes": {"+lite.bind.topic": topic}}).encode()
    async with open_connection(*address(broker)) as client:
        answer = await client.call(Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body), 30)
    assert answer.code == 0, answer.remark


@pytest.fixture
def need(request: pytest.FixtureRequest) -> None:
    """Skip if the proxy or the client is not to be had."""
    try:
        grpc_clients.need(request.getfixturevalue("language"))
    except engine.Unavailable as err:
        pytest.skip(str(err))


@pytest.mark.usefixtures("need")
@pytest.mark.parametrize("language", ["python", "node", "java", "go"])
def test_a_client_sends_and_receives(language: str, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("transactionTimeOut=2000\ntransactionCheckInterval=1000\nrecallMessageEnable=true\n")
    store = tmp_path / "store"
    options = ("--create", "--engine", "5.5", "--broker-conf", str(conf))
    with Serving(store, *options) as served, Proxy(tmp_path / "proxy", served.namesrv) as proxy:
        target = f"rocketmq://{served.namesrv}"
        for topic, kind in KINDS.items():
            args = ["--queues", "4", "--attribute", f"message.type={kind}", "--yes"]
            assert rmqtool("topic", "create", target, topic, *args).code == 0
        if language == "python":
            result = grpc_clients.run(language, "send", proxy.endpoint, str(COUNT))
            (late,) = result.pop("late")
            assert 0 <= late <= 60  # s; a busy machine is late
            assert result == {
                "plain": True, "fifo": True, "fifoCount": COUNT,
                "tx": ["committed", "undecided"], "asked": ["undecided"],
            }  # fmt: skip
        elif language == "java":
            result = grpc_clients.run(language, "send", proxy.endpoint, str(COUNT))
            (late,) = result.pop("late")
            assert 0 <= late <= 90  # it asks for one topic after the other, and a busy machine is late
            assert sorted(map(int, result.pop("plain"))) == list(range(COUNT))
            assert result == {
                "fifo": True, "fifoCount": COUNT, "lateBodies": ["late"], "tx": ["committed", "undecided"],
                "asked": ["undecided"], "pushed": COUNT, "pushedAgain": 2,
            }  # fmt: skip
        else:
            assert grpc_clients.run(language, proxy.endpoint, str(COUNT)) == {"sent": COUNT, "received": COUNT}
        served.end()
    assert rmqtool("check", store, "--broker-conf", conf).code == 0
    with Store(store) as opened:
        bodies = [message.body.decode() for message in opened.messages(topic="Plain")]
    assert sorted(map(int, bodies)) == list(range(COUNT))


@pytest.mark.usefixtures("need")
@pytest.mark.parametrize("language", ["java"])
def test_a_client_of_lite_topics(language: str, tmp_path: Path) -> None:
    """A message given back comes again; an unsubscribed lite topic keeps what comes later.

    A lite topic delivers nothing while a message of its last pop is invisible. With the proxy's minute, this takes two
    and a half minutes with our broker, as with a real one of 5.5.0.
    """
    conf, store = tmp_path / "broker.conf", tmp_path / "store"
    conf.write_text("enableLmq=true\nenableMultiDispatch=true\n")
    options = ("--create", "--engine", "5.5", "--broker-conf", str(conf))
    with (
        Serving(store, *options) as served,
        Proxy(tmp_path / "proxy", served.namesrv, defaultInvisibleTimeMills=5_000) as proxy,
    ):
        target = f"rocketmq://{served.namesrv}"
        attributes = ("--attribute", "message.type=LITE", "--attribute", "lite.topic.expiration=30")
        assert rmqtool("topic", "create", target, "Parent", "--queues", "4", *attributes, "--yes").code == 0
        asyncio.run(bind(served.broker, "lite-group", "Parent"))
        result = grpc_clients.run(language, "lite", proxy.endpoint, str(COUNT))
        served.end()
    assert (result.pop("before"), result.pop("names")) == (0, ["one", "three"])
    expected = {name: [f"{name}{number}" for number in range(COUNT)] for name in ("one", "two", "three")}
    assert {name: sorted(set(bodies)) for name, bodies in result.items()} == {n: sorted(b) for n, b in expected.items()}
    assert all(bodies.count(bodies[0]) >= 2 for bodies in result.values())
    assert rmqtool("check", store, "--broker-conf", conf).code == 0
    with Store(store) as opened:
        kept = [message.body.decode() for message in opened.queue_messages("%LMQ%$Parent$two", 0)]
    assert kept == [*expected["two"], "unread"]


@pytest.mark.usefixtures("need")
@pytest.mark.parametrize("language", ["python", "java", "go"])
def test_a_client_drains_a_rescued_store(language: str, golden: Unpacked, tmp_path: Path) -> None:
    """Of 4.9, too: its messages are there for clients that only speak gRPC."""
    rescued = tmp_path / "rescued"
    assert rmqtool("salvage", golden("broker"), rescued).code <= 1
    with Store(rescued) as store:
        expected = sorted(message.message_id for message in store.messages(topic="Orders"))
    assert len(expected) > 100
    # nothing is written to it: what is not acked yet is in memory
    options = ("--read-only", "--offsets", str(tmp_path / "offsets.csv")) if language == "java" else ()
    with Serving(rescued, "--engine", "5.5", *options) as served, Proxy(tmp_path / "proxy", served.namesrv) as proxy:
        drained = grpc_clients.run(language, "drain", proxy.endpoint, "new-group", "Orders", str(len(expected)))
        served.end()
    assert sorted(drained) == expected
    assert rmqtool("check", rescued).code == 0
    shutil.rmtree(rescued)
