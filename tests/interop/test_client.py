"""Our client with real brokers, and Java consumers of its messages."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.dialects import BODY
from formats.fastjson.read import loads
from rmqtool.client import (
    ClientOptions,
    From,
    LitePullConsumer,
    Message,
    PollOptions,
    Producer,
    PullConsumer,
    SendResult,
    Sql,
    State,
    TransactionProducer,
)
from rmqtool.rules.releases import RELEASES
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.interop.broker import SMALL_FILES, Broker
from tests.interop.test_consuming import PATIENT
from tests.interop.test_serve import make

pytestmark = pytest.mark.interop
_CONF = {
    "transactionCheckInterval": 1000,
    "transactionTimeOut": 1000,
    **SMALL_FILES,
    "brokerFastFailureEnable": "false",
    "enablePropertyFilter": "true",
}


@by_turns(23)
def test_what_we_send_reaches_java_consumers(broker: Broker, tmp_path: Path) -> None:
    broker.boot(tmp_path / "store", _CONF)
    namesrv = broker.namesrv
    make(broker, "Ours")

    async def send() -> list[SendResult]:
        options = ClientOptions(namesrv=namesrv, release=RELEASES[broker.engine])
        async with Producer(options, "ours", PATIENT) as producer:
            sent = [await producer.send(Message("Ours", b"%d" % n, "t", [f"s{n}"])) for n in range(8)]
            sent.append(await producer.send(Message("Ours", b"z" * 9000, keys=["large"])))
            sent += await producer.send_batch([Message("Ours", b"b", keys=[f"b{n}"]) for n in range(5)])
            sent.append(await producer.send(Message("Ours", b"d", keys=["delayed"], delay_level=1)))
            await producer.send_oneway(Message("Ours", b"o", keys=["oneway"]))
            new = await producer.send(Message("New", b"n", keys=["new"]))
            assert new.queue_offset == 0
            return sent

    sent = asyncio.run(send())
    assert {result.status for result in sent} == {"SEND_OK"}
    assert {result.queue.queue_id for result in sent[:8]} == {0, 1, 2, 3}
    assert len({result.message_id for result in sent}) == len(sent)
    file = tmp_path / "messages"
    file.write_text("".join(json.dumps({"body": "c", "keys": [f"c{n}"]}) + "\n" for n in range(4)))
    done = rmqtool("send", "--namesrv", namesrv, "--engine", broker.engine, "Ours", file, "--batch", 2, "-o", "ndjson")
    assert done.code == 0, done.err
    wanted = {*(f"s{n}" for n in range(8)), *(f"b{n}" for n in range(5)), *(f"c{n}" for n in range(4))}
    wanted |= {"large", "delayed", "oneway"}
    broker.ask("consume", group="java", topic="Ours", failures=0, most=16, level=0)
    seen = broker.wait_for(lambda rows: {row["keys"] for row in rows} >= wanted)
    assert sorted(row["keys"] for row in seen) == sorted(wanted)
    by_key: dict[str, Any] = {row["keys"]: row for row in seen}
    assert by_key["delayed"]["reconsumeTimes"] == 0
    consumed_as_dumped(broker, namesrv, tmp_path / "store", 21)
    asyncio.run(transactions(broker, namesrv))
    broker.stop()


def test_the_broker_picks_by_sql(broker: Broker, tmp_path: Path) -> None:
    broker.boot(tmp_path / "store", {**_CONF, "enablePropertyFilter": "true"})
    make(broker, "Picked")
    file = tmp_path / "messages"
    file.write_text("".join(json.dumps({"body": str(n), "properties": {"n": str(n)}}) + "\n" for n in range(20)))
    assert rmqtool("send", "--namesrv", broker.namesrv, "Picked", file).code == 0
    for sql, wanted in (("n > 16", {"17", "18", "19"}), ("n BETWEEN 3 AND 4 OR n = '9'", {"3", "4", "9"})):
        result = rmqtool("consume", "--namesrv", broker.namesrv, "Picked", "--sql", sql, "-o", "ndjson")
        assert result.code == 0, result.err
        assert {json.loads(line)["body"] for line in result.out.splitlines()} == wanted
    result = rmqtool("consume", "--namesrv", broker.namesrv, "Picked", "--sql", "n >", "-o", "ndjson")
    assert (result.code, result.out) == (3, "")
    assert "Traceback" not in result.err
    broker.stop()


async def transactions(broker: Broker, namesrv: str) -> None:
    """The broker checks the transaction whose outcome it did not receive."""
    options = ClientOptions(namesrv=namesrv, release=RELEASES[broker.engine])
    async with (
        asyncio.timeout(120),
        TransactionProducer(options, "payers", lambda _: State.COMMIT, PATIENT) as producer,
        PullConsumer(producer.cluster) as consumer,
    ):
        for state in State:
            await producer.send_in_transaction(Message("Ours", state.name.encode()), lambda *_, end=state: end)
        queues = await consumer.queues("Ours")
        ends = {queue: (await consumer.offsets(queue))[1] for queue in queues}
        await consumer.assign({queue: max(end - 2, 0) for queue, end in ends.items()})
        result: set[bytes] = set()
        async for message in consumer:
            result.add(message.body)
            if {b"COMMIT", b"UNKNOWN"} <= result:
                break
        assert b"ROLLBACK" not in result


def consumed_as_dumped(broker: Broker, namesrv: str, store: Path, count: int) -> None:
    """consume shows what is in the log and what a Java producer sends, and leaves no trace at the broker."""
    broker.ask("send", topic="Ours", keys="java", queueId=1, body="from Java")
    args = ("consume", "--namesrv", namesrv, "Ours", "-o", "ndjson")
    chosen = rmqtool(*args, "--sql", "KEYS IN ('large', 'oneway') OR KEYS ENDSWITH '7'" if broker.engine != "4.9"
                     else "KEYS IN ('large', 'oneway', 's7')")  # fmt: skip
    assert sorted(json.loads(line)["keys"] for line in chosen.out.splitlines()) == [["large"], ["oneway"], ["s7"]]
    result = rmqtool(*args)
    assert result.code == 0, result.err
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert len(rows) == count
    assert "from Java" in {row["body"] for row in rows}
    dumped = rmqtool("commitlog", "dump", store, "-o", "ndjson").out.splitlines()
    by_id = {row["offsetMsgId"]: row for row in map(json.loads, dumped)}
    assert all(by_id[row["offsetMsgId"]] == row for row in rows)

    async def pull() -> None:
        async with PullConsumer(
            ClientOptions(namesrv=namesrv, release=RELEASES[broker.engine]), "ours-pull"
        ) as consumer:
            queues = await consumer.queues("Ours")
            await consumer.assign(dict.fromkeys(queues, 0))
            result: list[str] = []
            while len(result) < count:
                result += [message.message_id for message in await consumer.poll()]
            assert sorted(result) == sorted(row["msgId"] for row in rows)
            await consumer.commit()
            ends = [(await consumer.offsets(queue))[1] for queue in queues]
            assert [await consumer.committed(queue) for queue in queues] == ends

    async def poll() -> None:
        options = ClientOptions(namesrv=namesrv, release=RELEASES[broker.engine])
        async with LitePullConsumer(options, "ours-poll", PollOptions(start=From.FIRST, batch=4)) as consumer:
            await consumer.subscribe("Ours")
            result: list[str] = []
            async for message in consumer:
                result.append(message.message_id)
                if len(result) == count:
                    break
            assert sorted(result) == sorted(row["msgId"] for row in rows)
            queues = consumer.assignment()
            assert len(queues) == 4
            await consumer.commit()
            ends = {queue: consumer.position(queue) for queue in queues}
            assert {queue: await consumer.committed(queue) for queue in queues} == ends
            consumer.pause(queues)
            await consumer.seek_to_begin(queues[0])
            assert await consumer.poll(0.3) == []
            consumer.resume(queues[:1])
            again: list[int] = []
            while len(again) < ends[queues[0]]:
                again += [message.queue_offset for message in await consumer.poll()]
            assert again == list(range(ends[queues[0]]))
        async with LitePullConsumer(options, "ours-poll-sql", PollOptions(start=From.FIRST)) as consumer:
            await consumer.subscribe("Ours", Sql("KEYS IN ('large', 's7')"))
            keys: list[str] = []
            while len(keys) < 2:
                keys += [message.keys[0] for message in await consumer.poll()]
            assert sorted(keys) == ["large", "s7"]

    asyncio.run(pull())
    asyncio.run(poll())
    consumed_and_acknowledged(broker, args, rows)


def consumed_and_acknowledged(broker: Broker, args: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """consume as a member of a group: written messages are committed at a real broker, and not delivered again."""
    for order in ((), ("--orderly",)):
        group = ("--group", "ours-acked" + "".join(order), "--ack", *order)
        first = rmqtool(*args, *group, "--limit", 5)
        rest = rmqtool(*args, *group)
        assert (first.code, rest.code) == (0, 0), first.err + rest.err
        got = [[json.loads(line) for line in done.out.splitlines()] for done in (first, rest)]
        assert len(got[0]) == 5
        assert sorted(row["msgId"] for part in got for row in part) == sorted(row["msgId"] for row in rows)
        stats: Any = loads(
            broker.ask("request", code=208, fields={"consumerGroup": group[1], "topic": "Ours"})["body"].encode(), BODY
        )
        where = list(stats["offsetTable"].values())
        assert [row["consumerOffset"] for row in where] == [row["brokerOffset"] for row in where]
        assert sum(row["consumerOffset"] for row in where) == len(rows)
        assert rmqtool(*args, *group).code == 1  # nothing is left
