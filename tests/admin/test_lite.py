"""Lite topics of a live cluster: topics, progress of groups, clients, and handing out again."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from formats.remoting import lite as lt
from rmqtool.admin.live import lite
from rmqtool.remoting.client import open_connection
from rmqtool.rules.releases import V5_4
from rmqtool.testing import TestBroker, broker
from tests.cli.running import rmqtool
from tests.server.serving import address as split
from tests.server.test_lite import CONF, change, make, pop, put


async def prepare(address: str) -> None:
    """One message of three popped, in one lite topic; another one has a message and no reader."""
    async with open_connection(*split(address)) as client:
        await make(client, "readers")
        await put(client, "one", b"a", b"b", b"c")
        await put(client, "two", b"x")
        first = lt.OffsetOption(type=lt.OFFSET, value=0)
        assert await change(client, lt.ADD_SOME, "one", group="readers", offset_option=first) == 0
        assert await change(client, lt.ADD_SOME, "none", group="readers", who="c2") == 0
        assert (await pop(client, group="readers", max_msg_num=1)).code == 0


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with broker(settings=CONF, name="lab-a") as running:
        asyncio.run(prepare(running.address))
        yield running


def rows(served: TestBroker, line: str, code: int = 0) -> Any:
    done = rmqtool(*line.replace("TARGET", f"rocketmq://{served.namesrv}").split(), "-o", "json")
    assert done.code == code, (line, done.err)
    return json.loads(done.out)


def test_what_brokers_have(served: TestBroker) -> None:
    (row,) = rows(served, "lite brokers TARGET")
    assert (row["brokerName"], row["currentLmqNum"], row["liteSubscriptionCount"]) == ("lab-a", 2, 2)
    (parent,) = rows(served, "lite list TARGET")
    assert parent == {
        "topic": "Parent", "brokerName": "lab-a", "ttl": 30, "liteTopicCount": 2, "lmqNum": 2, "groups": ["readers"],
    }  # fmt: skip
    assert rows(served, "lite list TARGET --topic Other*", 1) == []


def test_one_lite_topic(served: TestBroker) -> None:
    (row,) = rows(served, "lite show TARGET Parent one")
    assert (row["minOffset"], row["maxOffset"], row["subscribers"]) == (0, 3, ["c1@readers"])
    assert row["lastUpdateTimestamp"] > 0
    (row,) = rows(served, "lite show TARGET Parent none")  # no message yet
    assert (row["maxOffset"], row["lastUpdateTimestamp"], row["subscribers"]) == (0, None, ["c2@readers"])
    assert rows(served, "lite show TARGET Parent nothing", 1) == []
    assert rows(served, "lite show TARGET Other one", 1) == []


def test_progress_of_a_group(served: TestBroker) -> None:
    (row,) = rows(served, "lite lag TARGET readers")
    assert (row["liteTopic"], row["lag"], row["brokerOffset"]) == ("one", 3, None)
    assert row["earliestUnconsumedTimestamp"] > 0
    (row,) = rows(served, "lite lag TARGET readers --lite-topic one")
    assert (row["lag"], row["brokerOffset"], row["consumerOffset"], row["lastTimestamp"]) == (3, 3, 0, None)
    assert rows(served, "lite lag TARGET readers --lite-topic nothing", 1) == []
    none = rmqtool("lite", "lag", f"rocketmq://{served.namesrv}", "nobody")
    assert (none.code, "no broker that answers has a group nobody" in none.err) == (1, True), none.err


def test_clients(served: TestBroker) -> None:
    (row,) = rows(served, "lite client TARGET readers c1")
    assert (row["liteTopicCount"], row["liteTopics"]) == (1, ["one"])
    assert rows(served, "lite client TARGET readers nobody", 1) == []


def test_messages_are_handed_out_again(served: TestBroker) -> None:
    (row,) = rows(served, "lite dispatch TARGET readers --dry-run", 1)
    assert (row["state"], row["lag"], row["clientId"]) == ("planned", 3, None)
    (row,) = rows(served, "lite dispatch TARGET readers --client c1 --yes")
    assert (row["state"], row["clientId"], row["reason"]) == ("dispatched", "c1", None)
    assert rows(served, "lite dispatch TARGET readers --broker other --yes", 1) == []
    assert rows(served, "lite dispatch TARGET nobody --yes", 1) == []


def test_what_is_left_out_is_said(served: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def subscribe() -> None:
        async with open_connection(*split(served.address)) as client:
            first = lt.OffsetOption(type=lt.OFFSET, value=0)
            assert await change(client, lt.ADD_SOME, "two", group="readers", who="c3", offset_option=first) == 0
            assert (await pop(client, group="readers", who="c3", max_msg_num=1)).code == 0

    asyncio.run(subscribe())
    monkeypatch.setattr(lite, "TOP", 1)
    done = rmqtool("lite", "lag", f"rocketmq://{served.namesrv}", "readers")
    assert "the group has 1 message left in lite topics that are not listed" in done.err


def test_older_brokers_have_none() -> None:
    with broker(release=V5_4) as running:
        done = rmqtool("lite", "brokers", f"rocketmq://{running.namesrv}")
    assert (done.code, "REQUEST_CODE_NOT_SUPPORTED" in done.err) == (3, True), done.err
