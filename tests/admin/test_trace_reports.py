"""What clients report of a message in the trace topic: parsed, and shown by ``trace`` of a cluster and of a store."""

import asyncio
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from formats.message.trace import Pub, SubAfter, SubBefore, TransactionEnd, parse_records
from rmqtool.client import From, Later, Message, Producer, ProducerOptions, PushConsumer, PushOptions, Received, Tracer
from tests.cli.running import ROOT, rmqtool
from tests.interop.serving import CLUSTER, Serving

PUB = Pub(
    time=1, region="DefaultRegion", group="g", topic="T", message_id="ID", tags="a", keys=None, store_host="h:1",
    body_length=3, took=7, kind=0, offset_message_id="OFFSET", success=True,
)  # fmt: skip
BEFORE = SubBefore(
    time=2, region=None, group="g", request_id="R", message_id="ID", retry_times=1, keys="k"
)  # fmt: skip
AFTER = SubAfter(request_id="R", message_id="ID", took=5, success=False, keys="k", outcome=4, time=3, group="g")
END = TransactionEnd(
    time=4, region="DefaultRegion", group="g", topic="T", message_id="ID", tags=None, keys=None, store_host="h:1",
    kind=2, transaction_id="X", state="COMMIT_MESSAGE", from_check=True,
)  # fmt: skip


def test_records_are_read_as_they_are_written() -> None:
    text = PUB.text() + BEFORE.text() + AFTER.text() + END.text()
    assert parse_records(text) == [PUB, BEFORE, AFTER, END]


def test_clients_of_5_add_a_host() -> None:
    assert parse_records(PUB.text().replace("\x02", "\x01client@host\x02")) == [PUB]
    assert parse_records(BEFORE.text().replace("\x02", "\x01client@host\x02")) == [BEFORE]


@pytest.mark.parametrize(
    "text",
    ["", "Pub", "Pub\x011\x02", PUB.text().replace("\x017\x01", "\x01seven\x01"), BEFORE.text()[:20], "Other\x01" * 20,
     END.text().replace("Transaction\x014", "Transaction\x01" + "9" * 40), "\x02\x02\x01"],
)  # fmt: skip
def test_what_is_no_record_is_left_out(text: str) -> None:
    assert parse_records(text) == []
    assert parse_records(text + "\x02" + AFTER.text())[-1:] == [AFTER]


async def consume_traced(namesrv: str) -> str:
    """Send a message, and consume it at the second attempt; returns its id."""
    seen = asyncio.Event()
    tries = 0

    async def listen(_messages: Sequence[Received]) -> Later | None:
        nonlocal tries
        tries += 1
        if tries == 1:
            return Later(level=1)
        seen.set()
        return None

    async with Tracer(namesrv) as tracer:
        options = PushOptions(start=From.FIRST, hooks=(tracer.consumes,))
        async with (
            PushConsumer(namesrv, "traced", {"Traced": "*"}, listen, options),
            Producer(namesrv, "makers", ProducerOptions(hooks=(tracer.sends,))) as producer,
        ):
            sent = await producer.send(Message("Traced", b"x", keys=("one",)))
            async with asyncio.timeout(60):
                await seen.wait()
    return sent.message_id


def reports(where: str | Path, message_id: str, *args: str) -> list[dict[str, Any]]:
    done = rmqtool("trace", where, message_id, *args, "-o", "json")
    assert done.code == 0, done.err
    shown: list[dict[str, Any]] = json.loads(done.out)["reports"]
    return shown


def test_what_clients_report_is_shown(tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(ROOT / "examples" / "store", store)
    with Serving(store, "--engine", "5.3") as served:
        target = f"rocketmq://{served.namesrv}/{CLUSTER}"
        for name in ("Traced", "RMQ_SYS_TRACE_TOPIC"):
            rmqtool("topic", "create", target, name, "--queues", "1", "--yes")
        message_id = asyncio.run(consume_traced(served.namesrv))
        for _ in range(50):
            reported = reports(target, message_id)
            if len(reported) == 5:
                break
            time.sleep(0.2)
        assert [(row["event"], row["group"]) for row in reported] == [
            ("sent", "makers"), ("received", "traced"), ("consumed", "traced"), ("received", "traced"),
            ("consumed", "traced"),
        ]  # fmt: skip
        assert [row["success"] for row in reported] == [True, None, False, None, True]
        assert [row["retryTimes"] for row in reported if row["event"] == "received"] == [0, 1]
        assert reported[1]["requestId"] == reported[2]["requestId"] != reported[3]["requestId"]
        assert (reported[0]["topic"], reported[4]["outcome"]) == ("Traced", "SUCCESS")
        shown = rmqtool("trace", target, message_id)
        assert "received" in shown.out
        assert reports(target, message_id, "--trace-topic", "Orders") == []
        assert reports(target, message_id, "--trace-topic", "Nowhere") == []
    assert reports(store, message_id) == reported, "a store has the same"
    csv = rmqtool("trace", store, message_id, "-o", "csv", "--table", "reports").out
    assert csv.count("\n") == 6
