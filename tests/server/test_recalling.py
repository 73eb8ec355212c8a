"""Recalling messages over our own connections: handles and refusals."""

import time
from pathlib import Path

import pytest

from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import from_fields, to_fields
from formats.remoting.frame import Command
from formats.variants.recall_handle import RecallHandle
from rmqtool.remoting.connection import Connection
from rmqtool.rules.releases import RELEASES, V5_3
from tests.server.serving import digest, send, serving
from tests.server.test_popping import CONF

_ON = CONF | {"recallMessageEnable": "true"}


def later(topic: str = "Orders", ms: int = 3_600_000, **more: str) -> Command:
    named = {"TIMER_DELAY_MS": str(ms), "UNIQ_KEY": "A", **more}
    properties = "".join(f"{name}\x01{value}\x02" for name, value in named.items())
    return Command(C.SEND_MESSAGE_V2, fields=send(topic=topic, properties=properties), body=b"x")


def recall(handle: str, topic: str = "Orders") -> Command:
    return Command(C.RECALL_MESSAGE, fields=to_fields(h.Recall(topic=topic, recall_handle=handle, producer_group="p")))


async def handle_of(client: Connection, request: Command) -> str | None:
    answer = await client.call(request, 30)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return from_fields(h.Sent, answer.fields).recall_handle


def test_who_waits_for_a_time_gets_a_handle(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        before = time.time_ns() // 1_000_000
        handle = RecallHandle.parse(await handle_of(client, later()) or "")
        assert (handle.topic, handle.broker_name, handle.message_id) == ("Orders", "lab-a", "A")
        assert before + 3_598_000 < handle.deliver_ms < before + 3_660_000
        assert await handle_of(client, later(ms=0)) is None  # it does not wait
        assert await handle_of(client, Command(C.SEND_MESSAGE_V2, fields=send(), body=b"x")) is None
        level = Command(C.SEND_MESSAGE_V2, fields=send(properties="DELAY\x013\x02"), body=b"x")
        assert await handle_of(client, level) is None
        answer = await client.call(recall(handle.text), 30)
        assert (answer.code, from_fields(h.Recalled, answer.fields).msg_id) == (0, "A")

    serving(tmp_path / "store", test, create=True, release=V5_3, broker_conf=_ON)


def test_a_key_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        await handle_of(client, later())
        at = time.time_ns() // 1_000_000 + 60_000
        for key in ("a\x02b", "x" * 40_000):
            handle = RecallHandle(topic="Orders", broker_name="lab-a", deliver_ms=at, message_id=key)
            assert (await client.call(recall(handle.text), 30)).code == ResponseCode.SYSTEM_ERROR
        assert await handle_of(client, later())  # it goes on

    serving(tmp_path / "store", test, create=True, release=V5_3, broker_conf=_ON)


def test_nothing_is_called_back_from_a_store_that_is_only_read(tmp_path: Path) -> None:
    store = tmp_path / "store"
    handles: list[str | None] = []

    async def put(client: Connection) -> None:
        handles.append(await handle_of(client, later()))

    async def refused(client: Connection) -> None:
        answer = await client.call(recall(handles[0] or ""), 30)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE

    serving(store, put, create=True, release=V5_3, broker_conf=_ON)
    before = digest(store)
    serving(store, refused, read_only=True, broker_conf=_ON)
    assert digest(store) == before


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
def test_a_broker_of_4_9_knows_no_such_request(tmp_path: Path, engine: str) -> None:
    async def test(client: Connection) -> None:
        answer = await client.call(recall("?"), 30)
        unknown, off = ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.NO_PERMISSION
        assert answer.code == (unknown if engine == "4.9" else off)

    serving(tmp_path / "store", test, create=True, release=RELEASES[engine])
