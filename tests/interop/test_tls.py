"""TLS with Java: its clients with our broker, and our client with a real broker and name server."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtool.client import ClientOptions, Message, NotSent, Producer, client_tls
from rmqtool.rules.releases import RELEASES
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.interop import broker as brokers
from tests.interop.broker import VERSIONS, Broker
from tests.interop.serving import Serving
from tests.interop.test_consuming import PATIENT
from tests.remoting.certificates import Certificates

pytestmark = pytest.mark.interop
_SERVER = {"tls_server_mode": "enforcing"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=[pytest.param(v, marks=pytest.mark.xdist_group(f"tls-{v}")) for v in VERSIONS])
def java(request: pytest.FixtureRequest, made: Certificates) -> Iterator[Broker]:
    """A JVM that speaks only TLS, and verifies servers."""
    if reason := brokers.available(request.param):
        pytest.skip(reason)
    config = made.client(tls_server_certPath="@server", tls_server_keyPath="@server.key")
    options = ("-Dtls.enable=true", "-Dtls.server.mode=enforcing", f"-Dtls.config.file={config}")
    with Broker(request.param, *options) as started:
        yield started


@by_turns(23)
def test_both_ways(java: Broker, made: Certificates, tmp_path: Path) -> None:
    wanted = [f"k{number}" for number in range(5)]
    options = ("--create", "--engine", java.engine, "--tls-config", made.server(**_SERVER))
    with Serving(tmp_path / "ours", *options) as serving:
        java.connect(serving.namesrv, serving.broker)
        for key in wanted:
            assert java.ask("send", topic="Secret", keys=key, queueId=0)["status"] == "SEND_OK"
        pulled = java.ask("pull", group="g", topic="Secret", queueId=0, offset=0, count=5)
        assert [row["keys"] for row in pulled["messages"]] == wanted
        java.stop()
        code, stderr = serving.end()
    assert code == 0
    assert "Traceback" not in stderr, stderr

    (tmp_path / "real").mkdir()
    java.boot(tmp_path / "real", {})
    tls = client_tls(made.client())

    async def send(options: ClientOptions) -> None:
        async with Producer(options, "ours", PATIENT) as producer:
            for number in range(3):
                await producer.send(Message("Secret", b"%d" % number))

    asyncio.run(send(ClientOptions(namesrv=java.namesrv, release=RELEASES[java.engine], tls=tls)))
    with pytest.raises(NotSent, match="no name server answers"):
        asyncio.run(send(ClientOptions(namesrv=java.namesrv, timeout=1)))
    args = ("consume", "--namesrv", java.namesrv, "Secret", "-o", "ndjson", "--tls-config", made.client())
    for _ in range(60):  # until the broker has told its name server of the topic that it has made
        result = rmqtool(*args)
        if "no name server knows the topic" not in result.err:
            break
        time.sleep(0.5)
    assert sorted(json.loads(line)["body"] for line in result.out.splitlines()) == ["0", "1", "2"], result.err
    java.stop()
