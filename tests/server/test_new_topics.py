"""Topics created by messages: written together, before any of their messages is acknowledged."""

import asyncio
import errno
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.declare import body_of, read_body
from formats.message.bodies import BatchItem, build_batch
from formats.remoting import headers as h
from formats.remoting.bodies import HeartbeatData, RegisterBrokerBody
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from formats.remoting.shapes import ConsumerData
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from rmqtool.rules.releases import V5_3
from rmqtool.server.broker import registration
from rmqtool.server.serve import Served, ServeOptions
from rmqtool.services.open_store import broker_state
from tests.client.peers import Peer, ok, peer
from tests.server.serving import address, send, serving


def known(store: Path) -> set[str]:
    """The topics found by a broker after a kill."""
    path = store / "config/topics.json"
    return set(json.loads(path.read_text())["topicConfigTable"]) if path.exists() else set()


def batch(topic: str) -> Command:
    body = build_batch([BatchItem(0, b"one", b"k\x01v\x02"), BatchItem(0, b"two", b"k\x01v\x02")])
    return Command(C.SEND_BATCH_MESSAGE, fields=send(topic, batch=True), body=body)


def single(topic: str, properties: str = "") -> Command:
    return Command(C.SEND_MESSAGE_V2, fields=send(topic, properties=properties), body=b"x")


@asynccontextmanager
async def serving_new_store(folder: Path, namesrv: Peer) -> AsyncIterator[Connection]:
    """A connection to a broker on a new store, which registers with this name server."""
    options = ServeOptions(listen=("127.0.0.1", 0), namesrv=(namesrv.address,), create=True)
    async with (
        Served(str(folder / "store"), options) as served,
        open_connection(*address(served.broker_address)) as client,
    ):
        yield client


def test_topics_of_one_moment_are_written_together_and_before_the_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, writes, real = tmp_path / "store", [], broker_state.replace_file

    def replace(path: str, data: bytes, **more: Any) -> None:
        writes.append(path)
        real(path, data, **more)

    async def test(client: Connection) -> None:
        async def ask(command: Command, topic: str) -> None:
            assert (await client.call(command, 30)).code == ResponseCode.SUCCESS
            assert topic in known(store)

        half = single("Half", "TRAN_MSG\x01true\x02PGROUP\x01p\x02")
        others = [ask(batch("Batch"), "Batch"), ask(half, "Half")]
        await asyncio.gather(*(ask(single(f"New{n}"), f"New{n}") for n in range(20)), *others)

    monkeypatch.setattr(broker_state, "replace_file", replace)
    serving(store, test, create=True, release=V5_3)
    assert known(store) >= {f"New{n}" for n in range(20)}
    # 22 topics; how many come in one turn of the loop is a matter of the machine
    assert 1 <= len([path for path in writes if path.endswith("topics.json")]) < 20


def test_topics_that_cannot_be_written_keep_no_other_message_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"

    def full(*_args: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def test(client: Connection) -> None:
        async def code(command: Command) -> int:
            return (await client.call(command, 30)).code

        assert await code(single("Known")) == ResponseCode.SUCCESS
        with monkeypatch.context() as patched:
            patched.setattr(broker_state, "replace_file", full)
            asked = [single("New"), single("Known"), single("Other"), batch("Batch"), batch("Known"), single("Known")]
            refused, done = ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SUCCESS
            assert await asyncio.gather(*map(code, asked)) == [refused, done, refused, refused, done, done]
        assert await code(single("New")) == ResponseCode.SUCCESS
        assert {"New", "Known"} <= known(store)
        assert "Other" not in known(store)

    serving(store, test, create=True, release=V5_3)


def test_a_name_server_gets_all_topics_only_at_times(tmp_path: Path) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), peer() as namesrv:
            times: list[float] = []
            told: asyncio.Queue[set[str]] = asyncio.Queue()

            async def slow(request: Command) -> Command:
                times.append(asyncio.get_running_loop().time())
                body = read_body(RegisterBrokerBody, request.body)
                told.put_nowait(set(body.topic_config_serialize_wrapper.topic_config_table))
                await asyncio.sleep(0.1)
                return request.response()

            namesrv.replies |= {C.REGISTER_BROKER: slow, C.UNREGISTER_BROKER: ok}
            async with serving_new_store(tmp_path, namesrv) as client:
                number = 0
                while len(times) < 5:
                    number += 1
                    assert (await client.call(single(f"New{number}"), 30)).code == ResponseCode.SUCCESS
                while f"New{number}" not in await told.get():
                    pass
            gaps = [after - before for before, after in pairwise(times[1:])]  # the first is that of the start
            assert min(gaps) >= 0.4, gaps

    asyncio.run(run())


def test_a_name_server_is_told_of_what_is_new_and_of_everything_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it refused, or may have forgotten with a connection, is registered again with everything else."""
    monkeypatch.setattr(registration, "_REST", 0.0)
    monkeypatch.setattr(registration, "_PAUSE", 0.1)

    async def run() -> None:
        async with asyncio.timeout(60), peer() as namesrv:
            told: asyncio.Queue[set[str]] = asyncio.Queue()
            refuse = False

            async def take(request: Command) -> Command:
                body = read_body(RegisterBrokerBody, request.body)
                told.put_nowait(set(body.topic_config_serialize_wrapper.topic_config_table))
                return request.response(ResponseCode.SYSTEM_ERROR if refuse else ResponseCode.SUCCESS)

            async def send_to(topic: str) -> set[str]:
                assert (await client.call(single(topic), 30)).code == ResponseCode.SUCCESS
                return await told.get()

            namesrv.replies |= {C.REGISTER_BROKER: take, C.UNREGISTER_BROKER: ok}
            async with serving_new_store(tmp_path, namesrv) as client:
                assert "TBW102" in await told.get()
                assert await send_to("One") == {"One"}
                refuse = True
                assert await send_to("Two") == {"Two"}
                refuse = False
                assert {"TBW102", "One", "Two", "Three"} <= await send_to("Three")
                assert await send_to("Four") == {"Four"}

    asyncio.run(run())


def create(topic: str) -> Command:
    header = h.CreateTopic(
        topic=topic, default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
        topic_filter_type="SINGLE_TAG",
    )  # fmt: skip
    return Command(C.UPDATE_AND_CREATE_TOPIC, fields=to_fields(header))


def heartbeat(group: str) -> Command:
    consumer = ConsumerData(
        consume_from_where="CONSUME_FROM_LAST_OFFSET", consume_type="CONSUME_PASSIVELY", group_name=group,
        message_model="CLUSTERING", subscription_data_set=[],
    )  # fmt: skip
    return Command(C.HEART_BEAT, body=body_of(HeartbeatData("client", consumer_data_set=[consumer])))


@pytest.mark.parametrize(
    ("request_", "topic"),
    [
        (single("New"), "New"),
        (batch("New"), "New"),
        (single("New", "TRAN_MSG\x01true\x02PGROUP\x01p\x02"), "New"),
        (create("New"), "New"),
        (heartbeat("g"), "%RETRY%g"),
    ],
    ids=["send", "batch", "half", "create", "heartbeat"],
)
def test_a_topic_has_its_route_before_its_first_answer(tmp_path: Path, request_: Command, topic: str) -> None:
    """As a real broker, which registers it first: a consumer that starts then would find no topic."""

    async def run() -> None:
        async with asyncio.timeout(60), peer() as namesrv:
            known_there: set[str] = set()

            async def slow(request: Command) -> Command:
                body = read_body(RegisterBrokerBody, request.body)
                await asyncio.sleep(0.2)
                known_there.update(body.topic_config_serialize_wrapper.topic_config_table)
                return request.response()

            namesrv.replies |= {C.REGISTER_BROKER: slow, C.UNREGISTER_BROKER: ok}
            async with serving_new_store(tmp_path, namesrv) as client:
                assert topic not in known_there
                assert (await client.call(request_, 30)).code == ResponseCode.SUCCESS
                assert topic in known_there

    asyncio.run(run())


def test_a_name_server_that_does_not_answer_delays_no_more_than_the_first_message(tmp_path: Path) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), peer() as namesrv:
            answers = True
            loop = asyncio.get_running_loop()

            async def take(request: Command) -> Command | None:
                return request.response() if answers else None

            namesrv.replies |= {C.REGISTER_BROKER: take, C.UNREGISTER_BROKER: ok}
            async with serving_new_store(tmp_path, namesrv) as client:
                assert (await client.call(single("Known"), 30)).code == ResponseCode.SUCCESS
                answers = False
                first = asyncio.create_task(client.call(single("New"), 30))
                begun = loop.time()
                assert (await client.call(single("Known"), 30)).code == ResponseCode.SUCCESS
                assert loop.time() - begun < registration._MOST_WAIT / 2
                assert (await first).code == ResponseCode.SUCCESS
                namesrv.connections[0].abort()  # without one that is connected nobody waits
                await namesrv.connections[0].lost.wait()
                answers = True

    asyncio.run(run())
