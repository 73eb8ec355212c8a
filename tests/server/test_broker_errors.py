"""Errors in a served store: a failing task does not affect others, and a failing disk ends the server."""

import asyncio
import errno
from pathlib import Path

import pytest

from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.errors import CorruptFile
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from rmqtool.server.serve import Served, ServeOptions
from rmqtool.services.open_store import broker_state
from rmqtool.services.open_store.store import Store
from rmqtool.services.serving.run_loop import RunLoop
from rmqtool.store.append.flushing import Unsynced
from rmqtool.store.disk.files import File
from rmqtool.store.disk.lock import Disturbed
from tests.server.serving import CONF, address, send, serving


async def stored(client: Connection, body: bytes) -> int:
    return (await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=body), 30)).code


@pytest.mark.parametrize("error", [CorruptFile("delayOffset.json", 0, "torn"), ValueError("not thought of")])
def test_what_is_stored_becomes_durable_whatever_cannot_be_delivered(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = asyncio.Event()
    real = Unsynced.sync

    def step(*_args: object) -> None:
        raise error

    async def test(client: Connection) -> None:
        loop = asyncio.get_running_loop()

        def flush(what: Unsynced) -> None:
            real(what)
            loop.call_soon_threadsafe(flushed.set)

        monkeypatch.setattr(Unsynced, "sync", flush)
        assert await stored(client, b"one") == ResponseCode.SUCCESS
        await asyncio.wait_for(flushed.wait(), 30)
        flushed.clear()
        assert await stored(client, b"two") == ResponseCode.SUCCESS
        await asyncio.wait_for(flushed.wait(), 30)

    monkeypatch.setattr(RunLoop, "step", step)
    serving(tmp_path / "store", test, create=True)


def test_a_topic_that_cannot_be_written_down_takes_no_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a kill would leave acknowledged messages in an unknown topic."""

    def full(*_args: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def test(client: Connection) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(broker_state, "replace_file", full)
            assert await stored(client, b"one") != ResponseCode.SUCCESS
            assert await stored(client, b"two") != ResponseCode.SUCCESS
        assert await stored(client, b"three") == ResponseCode.SUCCESS
        assert "Orders" in (tmp_path / "store/config/topics.json").read_text()

    serving(tmp_path / "store", test, create=True)


def test_a_disk_that_fails_ends_it_and_the_next_start_has_what_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel marks pages of a failed sync as clean: a second sync would succeed and prove nothing."""
    store = tmp_path / "store"
    options = ServeOptions(
        broker_conf=CONF, listen=("127.0.0.1", 0), namesrv_listen=("127.0.0.1", 0), name="lab-a", create=True
    )
    syncs = []

    def sync(_file: File) -> None:
        syncs.append(1)
        raise OSError(errno.EIO, "Input/output error")

    async def fail() -> None:
        async with (
            asyncio.timeout(60),
            Served(str(store), options) as served,
            open_connection(*address(served.broker_address)) as client,
        ):
            with monkeypatch.context() as patched:
                patched.setattr(File, "sync", sync)
                assert await stored(client, b"kept") == ResponseCode.SUCCESS
                with pytest.raises(OSError, match="Input/output error"):
                    await served.wait()
            before.append((store / "checkpoint").read_bytes())
            assert await stored(client, b"refused") != ResponseCode.SUCCESS

    before: list[bytes] = []
    asyncio.run(fail())
    assert (store / "abort").exists()
    assert (store / "checkpoint").read_bytes() == before[0]
    assert len(syncs) == 1
    with Store(store, write=True, broker_conf=CONF, mend=True) as again:
        assert [bytes(located.record.body) for located in again.messages()] == [b"kept"]


def test_whichever_part_sees_a_broker_first_the_end_says_that_nothing_more_is_taken_and_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first failing write may be that of a table, or of the log in a client's request."""
    options = ServeOptions(
        broker_conf=CONF, listen=("127.0.0.1", 0), namesrv_listen=("127.0.0.1", 0), name="lab-a", create=True
    )

    def step(*_args: object) -> None:
        raise Disturbed("lock: a broker was started")

    async def come() -> None:
        async with (
            asyncio.timeout(60),
            Served(str(tmp_path / "store"), options) as served,
            open_connection(*address(served.broker_address)) as client,
        ):
            assert await stored(client, b"kept") == ResponseCode.SUCCESS
            monkeypatch.setattr(RunLoop, "step", step)
            with pytest.raises(Disturbed, match=r"a broker was started. Nothing more is taken; every .* recover"):
                await served.wait()
            assert await stored(client, b"refused") != ResponseCode.SUCCESS

    asyncio.run(come())
    with Store(tmp_path / "store", write=True, broker_conf=CONF, mend=True) as again:
        assert [bytes(located.record.body) for located in again.messages()] == [b"kept"]
