"""Our client against real brokers, and Java consumers of what it sends."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.client import ClientOptions, Message, Producer, SendResult
from tests.cli.running import rmqtool
from tests.interop.broker import Broker
from tests.interop.test_serve import make

pytestmark = pytest.mark.interop
_CONF = {"mappedFileSizeCommitLog": 8388608, "mappedFileSizeConsumeQueue": 60000, "brokerFastFailureEnable": "false"}


def test_what_we_send_reaches_java_consumers(broker: Broker, tmp_path: Path) -> None:
    broker.boot(tmp_path / "store", _CONF)
    namesrv = broker.namesrv
    make(broker, "Ours")

    async def send() -> list[SendResult]:
        options = ClientOptions(namesrv=namesrv, engine=broker.engine)
        async with Producer(options, "ours") as producer:
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
    broker.stop()
