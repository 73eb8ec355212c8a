"""A served store over our own connections: answers, persisted state, and what is never written."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.declare import read_body
from formats.message.fingerprint import fingerprint
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import from_fields, to_fields
from formats.remoting.frame import Command
from rmqtool import NewMessage
from rmqtool.errors import Refused
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from rmqtool.rules.releases import RELEASES, V5_3
from rmqtool.server.serve import Served, ServeOptions
from rmqtool.services.open_store.store import Store
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.reader import open_queue
from rmqtool.testing import broker
from tests.conftest import Unpacked
from tests.server.serving import CONF, address, digest, pull, read_at, records, send, serving


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
def test_what_is_acknowledged_is_there_when_the_store_is_opened_again(tmp_path: Path, engine: str) -> None:
    acknowledged: list[tuple[int, int, bytes]] = []

    async def test(client: Connection) -> None:
        async def one(number: int) -> None:
            body = b"%d" % number
            answer = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(queue_id=number % 4), body=body), 30)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            sent = from_fields(h.Sent, answer.fields)
            acknowledged.append((sent.queue_id, sent.queue_offset, body))

        for start in range(0, 600, 100):
            await asyncio.gather(*(one(number) for number in range(start, start + 100)))

    serving(tmp_path / "store", test, create=True, release=RELEASES[engine])
    with Store(tmp_path / "store", broker_conf=CONF) as store:
        for queue_id, queue_offset, body in acknowledged:
            got = store.get("Orders", queue_id, queue_offset, 1)
            assert [message.record.body for message in got.messages] == [body]
    assert len(acknowledged) == 600


@pytest.mark.parametrize("name", ["broker", "broker-5.3.3", "broker-crash"])
def test_a_store_that_is_served_read_only_is_not_touched(golden_copy: Unpacked, tmp_path: Path, name: str) -> None:
    store = golden_copy(name)
    before = digest(store)
    offsets = tmp_path / "offsets.csv"
    queue = open_queue(StoreLayout(str(store)), "Orders", 1)
    assert queue is not None
    messages = [entry.physical_offset for entry in queue.entries()]

    async def test(client: Connection) -> None:
        refused = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"x"))
        assert refused.code == ResponseCode.NO_PERMISSION
        got, at = [], 0
        while True:
            answer = await client.call(Command(C.PULL_MESSAGE, fields=pull(at, queue_id=1, sys_flag=5)))
            if answer.code:
                break
            got += records(answer.body)
            at = from_fields(h.PullResponse, answer.fields).next_begin_offset
        assert len(got) == at
        assert [record.physical_offset for record in got] == messages
        fields = to_fields(h.Commit(consumer_group="g", topic="Orders", queue_id=1, commit_offset=at))
        assert not (await client.call(Command(C.UPDATE_CONSUMER_OFFSET, fields=fields))).code

    serving(store, test, broker_conf=None, read_only=True, offsets=str(offsets))
    assert digest(store) == before
    last = fingerprint(read_at(store, messages[-1]))
    assert offsets.read_text() == f"group,topic,queueId,consumerOffset,lastMessage\ng,Orders,1,{len(messages)},{last}\n"

    async def again(client: Connection) -> None:
        fields = to_fields(h.GroupQueue(consumer_group="g", topic="Orders", queue_id=1))
        answer = await client.call(Command(C.QUERY_CONSUMER_OFFSET, fields=fields))
        assert from_fields(h.Offset, answer.fields).offset == len(messages)

    serving(store, again, broker_conf=None, read_only=True, offsets=str(offsets))
    for count, reason in ((len(messages) + 5, "has another message before that now"), (len(messages) - 1, "ends at")):
        shutil.rmtree(tmp_path / "another", ignore_errors=True)
        with Store.create(tmp_path / "another") as another:
            another.append_many([NewMessage(topic="Orders", queue_id=1, body=b"new") for _ in range(count)])
        with pytest.raises(Refused, match=f"{reason}.*offsets of another store"):
            serving(tmp_path / "another", again, broker_conf=None, read_only=True, offsets=str(offsets))


def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    async def test(_client: Connection) -> None:
        with pytest.raises(Refused):
            Store(tmp_path / "store", write=True)
        with pytest.raises(Refused):
            async with Served(str(tmp_path / "store"), ServeOptions(listen=("127.0.0.1", 0), namesrv=("127.0.0.1:1",))):
                pass

    serving(tmp_path / "store", test, create=True)


def test_every_code_with_broken_fields_and_bodies_is_answered(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        wrong: list[tuple[dict[str, str] | None, bytes]] = [
            (None, b""), ({}, b"{"), ({"topic": "Orders"}, b"[]"), ({"queueId": "x", "topic": "\0"}, b"\xff"),
            ({"topic": "../../x", "queueId": "-1", "consumerGroup": "g@h", "group": "x/y"}, b'{"clientID":1}'),
            (pull(-(1 << 63), topic="..", queue_id=0), b""), (send("a/b"), b""), (send("x" * 300), b"y"),
            (send(properties="\x01\x02" * 50), b"y"), (send(properties="DELAY\x01" + "9" * 400), b"y"),
        ]  # fmt: skip
        for code in [*C, -1, 0, 32767]:
            if code == C.END_TRANSACTION:
                continue  # one whose end is unknown gets no answer
            for fields, body in wrong:
                await client.call(Command(int(code), fields=fields, body=body), 20)
        answer = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"x"))
        assert answer.code == ResponseCode.SUCCESS

    serving(tmp_path / "store", test, create=True, release=V5_3)


@pytest.fixture
def served() -> Iterator[Any]:
    with broker() as running:
        yield running


def test_a_broker_for_tests(served: Any) -> None:
    async def talk() -> None:
        async with (
            open_connection(*address(served.namesrv)) as names,
            open_connection(*address(served.address)) as client,
        ):
            answer = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"x"))
            assert answer.code == ResponseCode.SUCCESS
            fields = to_fields(h.Topic(topic="Orders"))
            for _ in range(100):
                route = await names.call(Command(C.GET_ROUTEINFO_BY_TOPIC, fields=fields))
                if not route.code:
                    break
                await asyncio.sleep(0.05)
            body = read_body(b.TopicRouteData, route.body)
            assert [data.broker_addrs for data in body.broker_datas] == [{0: served.address}]

    asyncio.run(talk())
    assert Path(served.store, "commitlog").is_dir()


def test_what_a_broker_for_tests_cannot_do_is_raised(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no directory")
    with pytest.raises((Refused, OSError, Exception), match="store"), broker(tmp_path / "store"):
        pass
    with broker() as running, pytest.raises(Refused), broker(running.store):
        pass
    assert not Path(running.store).exists()


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
def test_a_query_by_key_is_answered_with_64_messages(engine: str, tmp_path: Path) -> None:
    """``maxMsgsNumBatch``, whatever is requested."""

    async def test(client: Connection) -> None:
        for n in range(99):
            await client.call(Command(C.SEND_MESSAGE_V2, fields=send(properties="KEYS\x01k\x02"), body=b"%d" % n))
        asked = h.Query(topic="Orders", key="k", max_num=99, begin_timestamp=0, end_timestamp=2**62)
        result = await client.call(Command(C.QUERY_MESSAGE, fields=to_fields(asked)))
        # the newest, oldest first, as a broker takes them from its index
        assert [record.body for record in records(result.body)] == [b"%d" % n for n in range(99 - 64, 99)]

    serving(tmp_path / "store", test, create=True, release=RELEASES[engine])


@pytest.mark.parametrize("engine", ["4.9", "5.3", "5.5"])
def test_the_timer_cannot_be_switched(engine: str, tmp_path: Path) -> None:
    """As answered by a real broker of each release; 5.5.0 is the first to know the request."""

    async def test(client: Connection) -> None:
        answers = [
            await client.call(Command(C.SWITCH_TIMER_ENGINE, fields=fields))
            for fields in (None, {"E_T": ""}, {"E_T": "R"}, {"E_T": "F"})
        ]
        expected = [3, 3, 3, 3] if engine != "5.5" else [29, 29, 29, 0]
        assert [answer.code for answer in answers] == expected

    serving(tmp_path / "store", test, create=True, release=RELEASES[engine])
