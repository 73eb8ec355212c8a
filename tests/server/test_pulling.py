"""Pulls: held, answered late, and selected by tags."""

import asyncio
from pathlib import Path

import pytest

from formats.message.properties import parse
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import from_fields
from formats.remoting.frame import Command
from rmqtool.remoting.connection import Connection
from rmqtool.rules.releases import RELEASES, V4_9, V5_3
from tests.server.serving import CONF, pull, records, send, serving


def test_a_pull_is_held_until_a_message_comes_that_it_wants(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        async def put(tag: str) -> None:
            answer = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(properties=f"TAGS\x01{tag}"), body=b"x"))
            assert answer.code == ResponseCode.SUCCESS

        await put("other")
        fields = pull(1, sys_flag=6, suspend_timeout_millis=20_000, subscription="mine")
        held = asyncio.create_task(client.call(Command(C.PULL_MESSAGE, fields=fields), 30))
        await asyncio.sleep(0)  # it asks before the next message is sent
        await put("other")
        await asyncio.sleep(0.3)
        assert not held.done()
        await put("mine")
        answer = await held
        assert answer.code == ResponseCode.SUCCESS
        assert [record.queue_offset for record in records(answer.body)] == [2]
        assert from_fields(h.PullResponse, answer.fields).next_begin_offset == 3

    serving(tmp_path / "store", test, create=True, release=V5_3)


def test_a_pull_that_waits_in_vain_is_answered(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        assert not (await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"x"))).code
        fields = pull(1, sys_flag=6, suspend_timeout_millis=300)
        answer = await client.call(Command(C.PULL_MESSAGE, fields=fields), 30)
        assert answer.code == ResponseCode.PULL_NOT_FOUND

    serving(tmp_path / "store", test, create=True, release=V4_9)


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
def test_tags_with_an_extension_of_the_queue(engine: str, tmp_path: Path) -> None:
    """With ``enableConsumeQueueExt``, entries point to the tags code; held pulls use it too."""

    async def test(client: Connection) -> None:
        for n, tag in enumerate(("a", "b", "a", None)):
            properties = "" if tag is None else f"TAGS\x01{tag}\x02"
            await client.call(Command(C.SEND_MESSAGE_V2, fields=send(properties=properties), body=b"%d" % n))
        for expression, wanted in (("a", [b"0", b"2"]), ("b", [b"1"]), ("a || b", [b"0", b"1", b"2"]), ("c", [])):
            got = await client.call(Command(C.PULL_MESSAGE, fields=pull(0, subscription=expression)))
            assert [record.body for record in records(got.body)] == wanted, expression
        fields = pull(4, subscription="b", sys_flag=6, suspend_timeout_millis=20_000)
        waiting = asyncio.create_task(client.call(Command(C.PULL_MESSAGE, fields=fields), 30))
        await asyncio.sleep(0.2)
        for tag in ("a", "b"):
            await client.call(Command(C.SEND_MESSAGE_V2, fields=send(properties=f"TAGS\x01{tag}\x02"), body=b"late"))
        got = await asyncio.wait_for(waiting, 10)
        assert [parse(record.properties)["TAGS"] for record in records(got.body)] == ["b"]

    serving(
        tmp_path / "store",
        test,
        create=True,
        release=RELEASES[engine],
        broker_conf={**CONF, "enableConsumeQueueExt": "true"},
    )
    assert (tmp_path / "store" / "consumequeue_ext").exists()
