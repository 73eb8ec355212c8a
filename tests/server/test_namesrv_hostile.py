"""Any input to a name server: one clear answer, and no growth."""

import asyncio
import gc
import logging
import random
import tracemalloc
import zlib

import pytest

from formats.fastjson.declare import body_of
from formats.remoting import frame, registration
from formats.remoting.codes import CommandFlag, ResponseCode
from formats.remoting.frame import Command
from rmqtool.server.namesrv import key_values
from rmqtool.server.namesrv.requests import REQUESTS
from rmqtool.server.namesrv.server import NameServer
from tests.server.name_servers import (
    BROKER,
    Peer,
    command,
    version,
)
from tests.server.name_servers import (
    registration as who,
)
from tests.server.namesrv_asked import OK, C, asked, body, register


@pytest.mark.parametrize("code", [0, -1, 10, 310, 99_999, *sorted(C)])
def test_every_code_has_one_answer_whatever_is_with_it(code: int) -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        for data in (b"", b"{", b"[]", b"null", b"\x00" * 40, b'{"topicConfigSerializeWrapper":7}'):
            for fields in (None, {}, {"brokerId": "x"}, {"topic": "\n"}):
                answer = await peer.ask(Command(code, 77, 0, fields, data))
                assert answer.opaque == 77
                assert answer.is_response
        if code not in REQUESTS:
            assert (answer.code, answer.remark) == (
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f" request type {code} not supported",
            )
        routes = server.requests.routes
        assert (routes.brokers.named, routes.brokers.live, routes.topics.queues) == ({}, {}, {})
        await peer.send(frame.build(Command(code, 5, CommandFlag.ONEWAY, None, b"{")))
        assert (await peer.ask(command(C.GET_BROKER_CLUSTER_INFO))).opaque == 1  # nothing came before it

    asked(test)


GOOD = body_of(body("Orders"))
PACKED = registration.build(body("Orders"), mappings=True)
BOMB = zlib.compress(b"\x00" * (registration.MAX_INFLATED + 1))
LOOSE = zlib.decompress(PACKED)


@pytest.mark.parametrize(
    ("data", "packed"),
    [
        (GOOD[:-1], False),
        (GOOD + b"}", False),
        (b"[" * 5000, False),
        (b'{"filterServerList":[7]}', False),
        (b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"readQueueNums":99999999999}}}}', False),
        (PACKED[:-5], True),
        (GOOD, True),
        (BOMB, True),
        (zlib.compress(LOOSE[:-1]), True),
        (zlib.compress(LOOSE[:4]), True),
        (zlib.compress(b"\x7f\xff\xff\xff" + LOOSE[4:]), True),
        (zlib.compress(b"\xff\xff\xff\xff" + LOOSE[4:]), True),
        (zlib.compress(LOOSE.replace(b"Orders 4 4 6", b"Orders 4 4 x")), True),
        (zlib.compress(LOOSE.replace(b"Orders 4 4 6 S", b"Orders 4 4  6S")), True),
    ],
)
def test_broken_registrations_have_one_clear_answer(data: bytes, packed: bool) -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        fields = who(compressed=str(packed).lower())
        answer = await peer.ask(Command(C.REGISTER_BROKER, 9, 0, fields, data))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark
        assert "\n" not in answer.remark
        assert not server.requests.routes.brokers.named
        assert (await peer.ask(register("Orders"))).code == OK  # the connection stays

    asked(test)


def test_large_bodies_of_small_requests_are_refused() -> None:
    async def test(server: NameServer, peer: Peer) -> None:
        for code in (C.QUERY_DATA_VERSION, C.UPDATE_NAMESRV_CONFIG, C.GET_CLIENT_CONFIG, C.REGISTER_TOPIC_IN_NAMESRV):
            answer = await peer.ask(command(code, b" " * 2_000_000, topic="T", **who()))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "2000000 bytes" in (answer.remark or "")

    asked(test)


def test_key_values_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_values, "MOST_TEXT", 10_000)

    async def test(server: NameServer, peer: Peer) -> None:
        async def put(namespace: str, key: str, text: str) -> int:
            return (await peer.ask(command(C.PUT_KV_CONFIG, namespace=namespace, key=key, value=text))).code

        assert await put("n", "k", "x" * 20_000) == ResponseCode.SYSTEM_ERROR
        assert not server.requests.key_values.table
        answers = []
        for n in range(200):  # namespaces stay, also without entries
            answers.append(await put(f"n{n}", "k", ""))
            await peer.ask(command(C.DELETE_KV_CONFIG, namespace=f"n{n}", key="k"))
        assert answers[0] == OK
        assert answers[-1] == ResponseCode.SYSTEM_ERROR
        assert len(server.requests.key_values.table) < 100
        for _ in range(200):  # what is replaced makes room
            assert await put("n0", "k", "x" * 10) in (OK, ResponseCode.SYSTEM_ERROR)

    asked(test)


def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Messages logged from now on, at least warnings, as text: pytest's records would keep objects alive."""
    texts: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(f"{record.levelname} {self.format(record)}")

    for logger in map(logging.getLogger, ("rmqtool", "asyncio")):
        monkeypatch.setattr(logger, "handlers", [Keeper(logging.WARNING)])
        monkeypatch.setattr(logger, "propagate", False)
    return texts


def test_mutated_requests_neither_grow_the_server_nor_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = logged(monkeypatch)
    asks = [
        register("Orders"), Command(C.REGISTER_BROKER, 1, 0, who(compressed="true"), PACKED),
        command(C.GET_ROUTEINFO_BY_TOPIC, topic="Orders"), command(C.PUT_KV_CONFIG, namespace="n", key="k", value="v"),
        command(C.QUERY_DATA_VERSION, body_of(version()), **who()), command(C.UNREGISTER_BROKER, **who()),
        command(C.WIPE_WRITE_PERM_OF_BROKER, brokerName=BROKER), command(C.GET_NAMESRV_CONFIG),
    ]  # fmt: skip
    raw = [frame.build(request) for request in asks]
    chance = random.Random(17)

    def mutated() -> bytes:
        data = bytearray(chance.choice(raw))
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(data[: chance.randint(1, len(data))] if chance.random() < 0.3 else data)

    async def test(server: NameServer, peer: Peer) -> None:
        async def batch(count: int) -> None:
            for _ in range(count):
                value = await Peer.to(server)
                for _ in range(5):
                    value.writer.write(mutated())
                value.writer.write_eof()
                try:
                    while await value.reader.read(1 << 16):
                        pass
                except ConnectionError:
                    pass
                value.writer.close()
            assert (await peer.ask(register("Still", name="lab-z", address="192.0.2.8:1"))).code == OK

        await batch(100)
        gc.collect()
        tracemalloc.start()
        await batch(50)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        await batch(400)
        while len(server.requests.routes.brokers.named) > 1:  # all others have gone with their connections
            await asyncio.sleep(0.01)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert grown < 500_000

    asked(test)
    assert answer
    assert not [text for text in answer if not text.startswith("WARNING ") or "\n" in text]
