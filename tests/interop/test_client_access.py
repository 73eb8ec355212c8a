"""Signing commands and consumers with real brokers that require it: ACL 1.0 of 4.9, ACL 2.0 of 5.3."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from formats.remoting.frame import Command
from rmqtool.client import (
    ClientOptions,
    Cluster,
    Credentials,
    From,
    Later,
    LitePullConsumer,
    Message,
    PollOptions,
    PushConsumer,
    PushOptions,
    Received,
    State,
    TransactionProducer,
)
from rmqtool.rules.releases import RELEASES
from tests.amounts import by_turns
from tests.cli.running import Result, rmqtool
from tests.interop.broker import SMALL_FILES, Broker
from tests.interop.signing import demand_signatures
from tests.interop.test_consuming import PATIENT, until

pytestmark = pytest.mark.interop
_CONF = {
    **SMALL_FILES,
    "messageDelayLevel": "1s 1s 1s 1s",
    "transactionCheckInterval": 1000,
    "transactionTimeOut": 1000,
}
_ADMIN = ("the-admin", "admin-secret")
_ACCOUNTS = """
accounts:
- {accessKey: the-admin, secretKey: admin-secret, admin: true}
- {accessKey: the-writer, secretKey: writer-secret, topicPerms: [Orders=PUB, Others=DENY]}
- {accessKey: the-reader, secretKey: reader-secret, topicPerms: [Orders=SUB], groupPerms: [TOOLS_CONSUMER=SUB]}
- {accessKey: the-copier, secretKey: copier-secret, topicPerms: [Orders=PUB|SUB], groupPerms: [TOOLS_CONSUMER=SUB]}
- accessKey: the-consumer
  secretKey: consumer-secret
  topicPerms: [Orders=SUB]
  groupPerms: [pushed=SUB, pushed-in-order=SUB, polled=SUB]
"""
_USERS = {
    "the-writer": [("Topic:Orders", ["Pub"])],
    "the-reader": [("Topic:Orders", ["Sub", "Get"]), ("Group:TOOLS_CONSUMER", ["Sub", "Get"])],
    "the-copier": [("Topic:Orders", ["Pub", "Sub", "Get"]), ("Group:TOOLS_CONSUMER", ["Sub", "Get"])],
    "the-consumer": [
        ("Topic:Orders", ["Sub"]),
        *((f"Group:{group}", ["Sub"]) for group in ("pushed", "pushed-in-order", "polled")),
    ],
}


@pytest.fixture
def broker(own_broker: Broker) -> Broker:
    return own_broker


async def _make_users(broker: Broker) -> None:
    """Create users and ACLs like mqadmin's createUser and createAcl."""
    address = broker.ask("addresses")["broker"]

    async def ask(code: int, fields: dict[str, str], body: dict[str, Any]) -> None:
        request = Command(code, fields=fields, body=json.dumps(body).encode(), version=479)
        await cluster.ask(address, request, 20)

    options = ClientOptions(namesrv=broker.namesrv, credentials=Credentials(*_ADMIN))
    async with Cluster(options) as cluster:
        for name, allowed in _USERS.items():
            secret = name.replace("the-", "") + "-secret"
            user = {"username": name, "password": secret, "userType": "Normal", "userStatus": "enable"}
            await ask(3001, {"username": name}, user)
            entries = [{"resource": what, "actions": may, "decision": "Allow"} for what, may in allowed]
            policies = [{"policyType": "Custom", "entries": entries}]
            await ask(3006, {"subject": f"User:{name}"}, {"subject": f"User:{name}", "policies": policies})


@by_turns(11)
def test_commands_sign_what_they_ask(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, home = tmp_path / "store", tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf/plain_acl.yml").write_text(_ACCOUNTS)
    access = {"aclEnable": "true", "rocketmqHome": home} if broker.engine == "4.9" else demand_signatures(*_ADMIN)
    broker.boot(store, {**_CONF, **access})
    if broker.engine != "4.9":
        asyncio.run(_make_users(broker))
    given = tmp_path / "lines"
    given.write_text("one\ntwo\n")

    def keys(name: str, secret: str) -> Path:
        file = tmp_path / f"{name}-{secret}.yml"
        file.write_text(f"# of mqadmin\naccessKey: {name}\nsecretKey: {secret}\n")
        return file

    def send(*args: object, topic: str = "Orders") -> Result:
        basic = ("send", "--namesrv", broker.namesrv, topic, given, "--lines", "-o", "ndjson")
        return rmqtool(*basic, "--engine", broker.engine, *args)

    def refused(done: Result) -> None:
        assert done.code == 1, done.err
        assert {json.loads(line)["status"] for line in done.out.splitlines()} == {"NOT_SENT"}
        assert "secret" not in done.out + done.err
        assert "Traceback" not in done.err

    sent = send("--acl", keys("the-writer", "writer-secret"))
    assert sent.code == 0, sent.err
    assert [json.loads(line)["status"] for line in sent.out.splitlines()] == ["SEND_OK"] * 2
    refused(send())
    refused(send("--acl", keys("the-writer", "another-secret")))
    refused(send("--acl", keys("the-reader", "reader-secret")))
    refused(send("--acl", keys("the-writer", "writer-secret"), topic="Others"))
    args = ("consume", "--namesrv", broker.namesrv, "Orders", "-o", "ndjson")
    reader = {"RMQTOOL_ACCESS_KEY": "the-reader", "RMQTOOL_SECRET_KEY": "reader-secret"}
    with monkeypatch.context() as patch:
        for name, value in reader.items():
            patch.setenv(name, value)
        seen = rmqtool(*args)
        refused(send())
    assert seen.code == 0, seen.err
    assert sorted(json.loads(line)["body"] for line in seen.out.splitlines()) == ["one", "two"]
    for more in ([], ["--acl", keys("the-reader", "no-secret")]):
        done = rmqtool(*args, *more)
        assert (done.code, done.out) == (3, ""), done.err
        assert "no-secret" not in done.err
    asyncio.run(_consume(broker))
    copy = tmp_path / "copy"
    mirror = ("mirror", "--namesrv", broker.namesrv, "Orders", copy)
    assert rmqtool(*mirror).code == 3
    done = rmqtool(*mirror, "--acl", keys("the-reader", "reader-secret"))
    assert done.code == 0, done.err
    replay = ("replay", copy, "--namesrv", broker.namesrv, "--engine", broker.engine, "--limit", 2)
    done = rmqtool(*replay, "--acl", keys("the-copier", "copier-secret"))
    assert done.code == 0, done.err
    broker.stop()


async def _consume(broker: Broker) -> None:
    """Run consumers of each kind, and a transaction that the broker has to check."""

    def options(name: str, secret: str) -> ClientOptions:
        return ClientOptions(
            namesrv=broker.namesrv, release=RELEASES[broker.engine], credentials=Credentials(name, secret)
        )

    consumer = options("the-consumer", "consumer-secret")
    got: dict[str, list[tuple[bytes, int]]] = {"pushed": [], "pushed-in-order": [], "strangers": []}

    def listener(group: str) -> Any:
        async def listen(messages: Sequence[Received]) -> Later | None:
            (message,) = messages
            got[group].append((message.body, message.reconsume_times))
            return Later() if (group, message.body, message.reconsume_times) == ("pushed", b"two", 0) else None

        return listen

    async with asyncio.timeout(60), AsyncExitStack() as stack:
        writer = options("the-writer", "writer-secret")
        producer = TransactionProducer(writer, "payers", lambda _: State.COMMIT, PATIENT)
        await stack.enter_async_context(producer)
        await producer.send_in_transaction(Message("Orders", b"paid"), lambda *_: State.UNKNOWN)
        wanted = {b"one", b"two", b"paid"}
        for group, who in (("pushed", consumer), ("pushed-in-order", consumer), ("strangers", consumer)):
            push = PushOptions(start=From.FIRST, orderly=group != "pushed", persist_interval=0.3, rebalance_interval=1)
            await stack.enter_async_context(PushConsumer(who, group, {"Orders": "*"}, listener(group), push))
        polls = await stack.enter_async_context(LitePullConsumer(consumer, "polled", PollOptions(start=From.FIRST)))
        await polls.subscribe("Orders")
        polled: set[bytes] = set()
        async for message in polls:
            polled.add(message.body)
            if polled == wanted:
                break
        await polls.commit()
        await until(lambda: {body for body, _times in got["pushed-in-order"]} == wanted)
        await until(lambda: {(body, 0) for body in wanted} | {(b"two", 1)} == set(got["pushed"]))
        assert got["strangers"] == []
    async with LitePullConsumer(consumer, "pushed-in-order") as looks:
        queues = await looks.queues("Orders")
        committed = [await looks.committed(queue) or 0 for queue in queues]
        assert sum(committed) == 3
