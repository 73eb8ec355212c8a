"""Serving a store from a disk that fills up: sends are refused, consumers continue, and everything recovers."""

import asyncio
import logging
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.errors import NoRoom
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from rmqtool.server.serve import Served, ServeOptions
from rmqtool.services.open_store.store import Store
from rmqtool.store.append.outgoing import NewMessage
from tests.amounts import by_turns
from tests.server.serving import CONF, address, commit_offset, pull, records, send

QUEUES = 4


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system with space for some messages."""
    place = tmp_path / "small"
    place.mkdir()
    if (
        shutil.which("mount") is None
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=16m", "none", place], check=False, capture_output=True
        ).returncode
    ):
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


class Client:
    """Sends to a topic and consumes from it."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self.number = connection, 0
        self.acknowledged: list[bytes] = []
        self.got: list[bytes] = []
        self._next = [0] * QUEUES

    async def send(self) -> Command:
        self.number += 1
        body = b"%d-" % self.number + b"x" * 3000
        fields = send(queue_id=self.number % QUEUES, properties=f"KEYS\x01k{self.number}")
        answer = await self._connection.call(Command(C.SEND_MESSAGE_V2, fields=fields, body=body), 30)
        if answer.code == ResponseCode.SUCCESS:
            self.acknowledged.append(body)
        return answer

    async def drain(self, before: int = 0) -> None:
        """Consume everything: at least the first ``count`` acknowledged messages, by default all."""
        for queue_id in range(QUEUES):
            while True:
                fields = pull(self._next[queue_id], queue_id=queue_id)
                answer = await self._connection.call(Command(C.PULL_MESSAGE, fields=fields), 30)
                if answer.code != ResponseCode.SUCCESS:
                    break
                self.got += [bytes(record.body) for record in records(answer.body)]
                assert answer.fields is not None
                self._next[queue_id] = int(answer.fields["nextBeginOffset"])
        assert len(self.got) == len(set(self.got))
        assert set(self.acknowledged[: before or None]) <= set(self.got) <= set(self.acknowledged)


def fill(place: Path) -> None:
    with place.open("wb", buffering=0) as file:
        for size in (65536, 512, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue


def test_a_store_that_was_killed_is_served_for_reading_while_the_disk_is_full(
    small: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no room for what a recovery writes, nor for the offsets of groups."""
    caplog.set_level(logging.INFO)
    options = ServeOptions(broker_conf=CONF, listen=("127.0.0.1", 0), namesrv_listen=("127.0.0.1", 0), name="lab-a")
    store = small / "store"
    with Store.create(store, broker_conf=CONF) as made:
        made.append_many([NewMessage(topic="Orders", queue_id=0, body=b"x") for _ in range(5)])
    (store / "abort").touch()
    fill(small / "filler")

    async def run(options: ServeOptions) -> None:
        async with (
            Served(str(store), options) as served, open_connection(*address(served.broker_address)) as connection,
        ):  # fmt: skip
            answer = await connection.call(Command(C.PULL_MESSAGE, fields=pull(0)), 30)
            assert len(records(answer.body)) == 5
            await commit_offset(connection, 3)
            async with asyncio.timeout(20):
                while not any(record.levelno >= logging.ERROR for record in caplog.records):
                    await asyncio.sleep(0.1)
            (small / "filler").unlink()

    with pytest.raises(NoRoom, match=f"meanwhile rmqtool serve {store} --read-only serves what is there"):
        asyncio.run(run(options))
    asyncio.run(run(replace(options, read_only=True)))
    errors = {record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR}
    assert errors == {f"[Errno 28] No space left on device: '{store}.served-offsets.csv'"}


@by_turns(13)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_sends_are_refused_and_reads_go_on_until_there_is_room_again(
    flush: str, small: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    conf = {**CONF, "flushDiskType": flush}
    options = ServeOptions(
        broker_conf=conf, listen=("127.0.0.1", 0), namesrv_listen=("127.0.0.1", 0), name="lab-a", create=True
    )
    store, filler = small / "store", small / "filler"

    async def run() -> list[bytes]:
        async with (
            asyncio.timeout(60),
            Served(str(store), options) as served,
            open_connection(*address(served.broker_address)) as connection,
        ):
            client = Client(connection)
            for turn in range(3):
                for _ in range(100):
                    assert (await client.send()).code == ResponseCode.SUCCESS
                await client.drain()
                before = len(client.acknowledged)
                fill(filler)
                answers = [await client.send() for _ in range(100)]
                refused = [answer for answer in answers if answer.code]
                assert refused
                assert {answer.code for answer in refused} == {ResponseCode.SERVICE_NOT_AVAILABLE}
                assert "the broker's disk is full [CL:" in (refused[0].remark or "")
                assert str(small) not in (refused[0].remark or "")
                await client.drain(before)
                if turn:
                    await asyncio.sleep(1.5)  # offsets and checkpoint cannot be written either
                    assert (await client.send()).code
                    await client.drain(before)
                filler.unlink()
                async with asyncio.timeout(10):
                    while (await client.send()).code:
                        await asyncio.sleep(0.1)
                await asyncio.sleep(1.2)
                await client.drain()
                assert served.broker is not None
                assert served.broker.failure is None
            return client.acknowledged

    acknowledged = asyncio.run(run())
    assert not (store / "abort").exists()
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == len(set(errors)), "one reason is told once"
    with Store(store, write=True, broker_conf=conf) as again:
        assert [bytes(located.record.body) for located in again.messages()] == acknowledged
        assert len(again.query_key("Orders", "k50")) == 1
