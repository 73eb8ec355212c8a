"""A cluster of several brokers: totals, rows per broker, disagreements, slaves."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from formats.fastjson.declare import body_of
from formats.remoting.bodies import ClusterInfo
from formats.remoting.codes import RequestCode as C
from formats.remoting.shapes import BrokerData
from tests.admin.conftest import two_stores
from tests.cli.running import rmqtool
from tests.client.peers import peer, route, serving, tells
from tests.interop.serving import Serving


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Two brokers with the same messages; in the second, the topic Orders is read-only."""
    writable, read_only = two_stores(tmp_path_factory.mktemp("several"), 6)
    with Serving(writable, "--read-only") as first, Serving(read_only, "--read-only") as other:
        yield {"lab-a": first.broker, "lab-b": other.broker}


@asynccontextmanager
async def namesrv_of(brokers: Mapping[str, Mapping[int, str]]) -> AsyncIterator[str]:
    async with peer() as namesrv:
        clusters = {"C": [*brokers], "Empty": list[str]()}
        info = ClusterInfo({name: BrokerData("C", name, dict(ids)) for name, ids in brokers.items()}, clusters)
        namesrv.replies[C.GET_BROKER_CLUSTER_INFO] = lambda request: request.response(body=body_of(info))
        masters = [(name, ids[0]) for name, ids in brokers.items() if 0 in ids]
        namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"Orders": route(*masters)})
        yield namesrv.address


@pytest.fixture
def target(brokers: dict[str, str]) -> Iterator[str]:
    with serving(namesrv_of({name: {0: address} for name, address in brokers.items()})) as namesrv:
        yield f"rocketmq://{namesrv}"


def rows(*args: str, code: int = 0) -> list[dict[str, Any]]:
    result = rmqtool(*args, "-o", "ndjson")
    assert result.code == code, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def test_numbers_of_a_topic_are_those_of_all(target: str) -> None:
    (orders,) = rows("topic", "list", target, "Orders")
    assert (orders["readQueueNums"], orders["writeQueueNums"], orders["queues"], orders["messages"]) == (10, 8, 8, 840)
    assert orders["perm"] is None
    stderr = rmqtool("topic", "list", target, "Orders").err
    assert "topic Orders: brokers differ in perm: lab-a RW, lab-b R" in stderr
    (batched,) = rows("topic", "list", target, "Batched")
    assert (batched["perm"], batched["messages"], batched["groups"]) == ("RW", 40, 1)


def test_rows_name_their_broker(target: str) -> None:
    lag = rows("group", "lag", target, "--group", "lab-consumer", "--topic", "Orders")
    assert [(row["brokerName"], row["queueId"]) for row in lag] == [(f"lab-{x}", n) for x in "ab" for n in range(4)]
    (total,) = rows("group", "lag", target, "--group", "lab-consumer", "--topic", "Orders", "--by", "topic")
    assert (total["queues"], total["diff"]) == (8, 0)
    table = json.loads(rmqtool("topic", "show", target, "Orders", "-o", "json").out)["queueTable"]
    assert {row["brokerName"] for row in table} == {"lab-a", "lab-b"}
    assert len(rows("query-key", target, "Orders", "order-65")) == 2


def test_a_queue_that_several_have(target: str) -> None:
    for arguments in (("query-offset", target, "Orders", "0", "3"), ("query-time", target, "Orders", "0", "0")):
        result = rmqtool(*arguments)
        assert result.code == 2
        assert "give --broker, one of lab-a, lab-b" in result.err
        assert rows(*arguments, "--broker", "lab-b")
        assert rmqtool(*arguments, "--broker", "lab-c").code == 1
    assert rmqtool("config", target, "topics.json").code == 2
    perm = json.loads(rmqtool("config", target, "topics.json", "--broker", "lab-b", "-o", "json").out)
    assert perm["topicConfigTable"]["Orders"]["perm"] == 4
    assert {row["brokerName"] for row in rows("broker-config", "show", target, "lab-b")} == {"lab-b"}


def test_one_cluster_of_the_name_server(target: str) -> None:
    assert len(rows("cluster", "list", f"{target}/C")) == 2
    assert rmqtool("cluster", "list", f"{target}/Empty").code == 3
    result = rmqtool("cluster", "list", f"{target}/Other")
    assert result.code == 3
    assert "knows no cluster Other; it knows C, Empty" in result.err


def test_slaves(brokers: dict[str, str]) -> None:
    ids = {"lab-a": {0: brokers["lab-a"], 1: brokers["lab-b"]}}
    with serving(namesrv_of(ids)) as namesrv:
        listed = rows("cluster", "list", f"rocketmq://{namesrv}")
        assert [(row["role"], row["behindMaster"]) for row in listed] == [("master", None), ("slave", 0)]
        (orders,) = rows("topic", "list", f"rocketmq://{namesrv}", "Orders")
        assert orders["messages"] == 420, "a slave has what its master has"
    with serving(namesrv_of({"lab-a": {1: brokers["lab-a"]}})) as namesrv:
        result = rmqtool("topic", "list", f"rocketmq://{namesrv}", "Orders", "-o", "ndjson")
        assert result.code == 1
        assert json.loads(result.out)["messages"] == 420
        assert "broker lab-a has no master" in result.err


def test_an_ordinary_topic_is_deleted_beside_a_broker_that_is_away(brokers: dict[str, str]) -> None:
    """Only of a static topic another broker may keep queues."""
    with serving(namesrv_of({"lab-a": {0: brokers["lab-a"]}, "gone": {0: "127.0.0.1:1"}})) as namesrv:
        plan = rmqtool("topic", "delete", f"rocketmq://{namesrv}", "Orders", "--broker", "lab-a", "-n", "-o", "json")
    assert plan.code == 1, plan.err
    assert ("topic", "lab-a") in {(row["kind"], row["server"]) for row in json.loads(plan.out)["changes"]}
