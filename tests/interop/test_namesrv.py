"""Our name server with real brokers and real clients, each in a separate process, and the real admin tool."""

import asyncio
import json
import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.dialects import BODY
from formats.fastjson.read import loads
from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.errors import RemotingError
from tests.amounts import by_turns
from tests.cli.running import RMQTOOL, ROOT
from tests.interop import broker as brokers
from tests.interop import engine
from tests.interop.broker import Broker

pytestmark = [pytest.mark.interop, pytest.mark.slow]

BROKER, CLUSTER = "lab-a", "LabCluster"
RELEASE = {"4.9.8": "V4_9_8", "5.3.3": "V5_3_3"}  # the name that a broker with these libraries gives itself
_PAUSE = 0.2  # s


class Java:
    """Starts programs of a release."""

    def __init__(self, release: str, home: Path) -> None:
        self.home = home
        (home / "conf").mkdir(parents=True)
        for name in ("logback_broker.xml", "logback_tools.xml", "rmq.broker.logback.xml", "rmq.tools.logback.xml"):
            (home / "conf" / name).write_text('<configuration><root level="OFF"/></configuration>')
        self._command = [
            engine._java_tool("java"), *engine._JVM_OPTIONS, "-Xmx512m", f"-Duser.home={home}",
            "-Drocketmq.client.logUseSlf4j=false", f"-Drocketmq.client.logRoot={home}/logs",
            "-cp", brokers._classpath(release),
        ]  # fmt: skip

    def start(self, name: str, *args: str, **options: Any) -> "subprocess.Popen[str]":
        with open(self.home / "said", "a") as output:
            return subprocess.Popen(
                [*self._command, name, *args],
                **{
                    "stdout": output,
                    "stderr": output,
                    "stdin": subprocess.DEVNULL,
                    "text": True,
                    "cwd": self.home,
                    **options,
                },
                env={**os.environ, "ROCKETMQ_HOME": str(self.home), "NAMESRV_ADDR": ""},
            )

    def output(self, name: str, *args: str) -> str:
        process = self.start(name, *args, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=150)
        finally:
            process.kill()
            process.communicate()
        assert out, err
        return str(out)

    def shuttle(self, names: str, topic: str, count: int) -> None:
        """Send with a producer, and check that a consumer gets each message from its queue."""
        sent, seen = json.loads(self.output("judge.Shuttle", names, topic, str(count)).splitlines()[-1])
        assert len(sent) == count
        assert seen == sent


@contextmanager
def name_server(port: int = 0) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The running command, and its address."""
    process = subprocess.Popen(
        [*RMQTOOL, "namesrv", "--listen", f"127.0.0.1:{port}", "--output", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["namesrv"]
    finally:
        process.kill()
        process.communicate()


@contextmanager
def broker(java: Java, names: str, config: dict[str, Any]) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A broker started like by its own script, and its address."""
    port = free_port()
    settings = {
        "brokerClusterName": CLUSTER, "brokerName": BROKER, "brokerId": 0, "brokerIP1": "127.0.0.1",
        "namesrvAddr": names, "listenPort": port, "haListenPort": port + 1, "registerNameServerPeriod": 10_000,
        "storePathRootDir": java.home / "store", "storePathCommitLog": java.home / "store/commitlog",
        "mappedFileSizeCommitLog": 1 << 24, "mappedFileSizeConsumeQueue": 600_000, "maxIndexNum": 4000,
        "maxHashSlotNum": 1000, "mappedFileSizeTimerLog": 1 << 20, "brokerFastFailureEnable": "false", **config,
    }  # fmt: skip
    conf = java.home / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    process = java.start("org.apache.rocketmq.broker.BrokerStartup", "-c", str(conf))
    try:
        yield process, f"127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port for a broker, which also listens two below and one above; outside the system's ephemeral range."""
    while True:
        port = random.randint(12_000, 32_000)
        with suppress(OSError), ExitStack() as held:
            for each in (port - 2, port, port + 1):
                held.enter_context(socket.create_server(("127.0.0.1", each)))
            return port


def ask(names: str, code: RequestCode, **fields: str) -> Any:
    """A name server's answer; None if there is none, or it is unreachable."""

    async def once() -> Command:
        host, _, port = names.rpartition(":")
        async with open_connection(host, int(port)) as connection:
            return await connection.call(Command(code, fields=fields), 30)

    try:
        answer = asyncio.run(once())
    except RemotingError:
        return None
    return loads(answer.body, BODY) if answer.code == 0 and answer.body else None


def addresses(names: str) -> Any:
    """Addresses of the brokers by name and id."""
    info = ask(names, RequestCode.GET_BROKER_CLUSTER_INFO)
    return info and {name: data["brokerAddrs"] for name, data in info["brokerAddrTable"].items()}


def wait(what: str, so: Callable[[], bool], java: Java) -> None:
    """Wait for a condition; checks are counted, not time."""
    for _ in range(int(120 / _PAUSE)):
        if so():
            return
        time.sleep(_PAUSE)
    pytest.fail(f"{what}: {(java.home / 'said').read_text()[-2000:]}")


@by_turns(23)
def test_brokers_clients_and_mqadmin_use_our_name_servers(clients: Broker, tmp_path: Path) -> None:
    release = next(version for version in brokers.VERSIONS if version.startswith(clients.engine))
    java = Java(release, tmp_path / "home")
    with name_server() as (_, first), name_server() as (second_process, second):
        both = f"{first};{second}"
        with broker(java, both, {}) as (broker_process, address):
            there = {BROKER: {0: address}}
            wait("registration", lambda: addresses(first) == addresses(second) == there, java)

            java.shuttle(both, "Shuttle", 200)
            for names in (first, second):
                route = ask(names, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Shuttle")
                assert route["brokerDatas"][0]["brokerAddrs"] == {"0": address}
                queues = {"brokerName": BROKER, "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4}
                assert route["queueDatas"] == [queues]
            clients.connect(first, address)
            administer(java, clients, first, address, release)
            clients.stop()

            # the other one does not miss it
            second_process.kill()
            second_process.wait()
            java.shuttle(first, "Alone", 20)

            # one that starts again is told everything
            with name_server(int(second.rpartition(":")[2])) as (_, again):
                assert again == second
                wait("registration after a restart", lambda: addresses(again) == there, java)
                wait("topics", lambda: ask(again, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Alone") is not None, java)
                java.shuttle(again, "Again", 20)
                broker_process.send_signal(signal.SIGTERM)
                wait("leaving", lambda: addresses(first) == addresses(again) == {}, java)
        assert ask(first, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Shuttle") is None
        assert ask(first, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {"topicList": []}

        # a broker that dies goes with its connection; that it sends its topics compressed makes no difference
        config = {"compressedRegister": "true"} | ({"enableSlaveActingMaster": "true"} if release == "5.3.3" else {})
        with broker(java, first, config) as (broker_process, address):
            wait("compressed registration", lambda: addresses(first) == {BROKER: {0: address}}, java)
            route = ask(first, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Shuttle")
            assert (route["queueDatas"][0]["readQueueNums"], route["queueDatas"][0]["perm"]) == (4, 6)
            assert route["brokerDatas"][0].get("enableActingMaster") == (True if release == "5.3.3" else None)
            java.shuttle(first, "Packed", 10)
            broker_process.kill()
            wait("a killed broker", lambda: addresses(first) == {}, java)


def administer(java: Java, clients: Broker, names: str, address: str, release: str) -> None:
    """Run mqadmin with a name server."""

    def admin(*args: str) -> str:
        return str(clients.ask("admin", arguments=args, seconds=60)["said"])

    clusters = admin("clusterList")
    row = next(line for line in clusters.splitlines() if BROKER in line).split()
    assert row[:4] == [CLUSTER, BROKER, "0", address]
    assert row[4].startswith(RELEASE[release][:4])
    shown = admin("topicRoute", "-t", "Shuttle")
    route = loads(shown[shown.index("{") :].encode(), BODY)
    assert route == ask(names, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Shuttle") | {
        "brokerDatas": [{**data, "brokerAddrs": {0: address}} for data in route["brokerDatas"]]  # type: ignore[index]
    }
    assert {"Shuttle", "%RETRY%shuttle-Shuttle", BROKER, CLUSTER} <= set(admin("topicList").split())

    output = admin("updateTopic", "-c", CLUSTER, "-t", "Made", "-r", "2", "-w", "3")
    assert "success" in output
    wait("a new topic", lambda: ask(names, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Made") is not None, java)
    assert ask(names, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Made")["queueDatas"][0]["writeQueueNums"] == 3
    topics = len(ask(names, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"])
    for command, perm in (("wipeWritePerm", 4), ("addWritePerm", 6)):
        output = admin(command, "-b", BROKER)
        assert re.search(rf"write perm of broker\[{BROKER}\].* OK, {topics}", output), output
        assert ask(names, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Made")["queueDatas"][0]["perm"] == perm
    assert "success" in admin("deleteTopic", "-c", CLUSTER, "-t", "Made")
    assert ask(names, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Made") is None

    assert "success" in admin("updateKvConfig", "-s", "n", "-k", "k", "-v", "v")
    assert ask(names, RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n") == {"table": {"k": "v"}}
    assert "success" in admin("deleteKvConfig", "-s", "n", "-k", "k")
    assert ask(names, RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n") == {"table": {}}
    assert "success" in admin("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    settings = admin("getNamesrvConfig")
    assert re.search(r"orderMessageEnable\s*= *true", settings), settings
