"""What ``serve`` removes when it is told to (requests 306, 316 and 329), and what it keeps.

``tests/interop/test_live_cleaning.py`` has what real brokers remove.
"""

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import from_fields, to_fields
from formats.remoting.frame import Command
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from rmqtool.rules.releases import V4_9, V5_3, Release
from rmqtool.server.serve import Served, ServeOptions
from tests.cli.running import rmqtool
from tests.server.serving import address, pull, records, send

FILE = 65536
CONF = {"mappedFileSizeCommitLog": str(FILE), "mappedFileSizeConsumeQueue": "2000", "fileReservedTime": "0"}
Run = Callable[[Connection], Awaitable[None]]


def serve(store: Path, run: Run, release: Release = V5_3, **more: Any) -> None:
    async def work() -> None:
        options = ServeOptions(
            listen=("127.0.0.1", 0), namesrv_listen=("127.0.0.1", 0), broker_conf=CONF, name="lab-a",
            create=not store.exists(), release=release, **more,
        )  # fmt: skip
        async with (
            asyncio.timeout(60), Served(str(store), options) as served,
            open_connection(*address(served.broker_address)) as client,
        ):  # fmt: skip
            await run(client)

    asyncio.run(work())


async def ask(client: Connection, code: int, header: Any = None, **fields: Any) -> Command:
    given = to_fields(header) if header is not None else {name: str(value) for name, value in fields.items()}
    return await client.call(Command(code, fields=given))


async def fill(client: Connection, topic: str, count: int) -> None:
    sent = (Command(C.SEND_MESSAGE_V2, fields=send(topic, 0), body=b"%05d" % n * 200) for n in range(count))
    for answer in await asyncio.gather(*map(client.call, sent)):
        assert answer.code == 0, answer.remark


async def offsets(client: Connection, topic: str, group: str = "g") -> tuple[int, int, int]:
    """(first offset of queue 0, its end, the group's offset)."""
    queue = h.Queue(topic=topic, queue_id=0)
    low, high = [
        from_fields(h.Offset, (await ask(client, code, queue)).fields).offset
        for code in (C.GET_MIN_OFFSET, C.GET_MAX_OFFSET)
    ]
    header = h.GroupQueue(consumer_group=group, topic=topic, queue_id=0)
    own = await ask(client, C.QUERY_CONSUMER_OFFSET, header)
    return low, high, -1 if own.code else from_fields(h.Offset, own.fields).offset


@pytest.mark.parametrize("release", [V4_9, V5_3])
def test_what_has_expired_goes_and_nothing_else(release: Release, tmp_path: Path) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"

    async def run(client: Connection) -> None:
        await fill(client, "Old", 10)
        commit = h.Commit(consumer_group="g", topic="Old", queue_id=0, commit_offset=10)
        group = Command(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"g"}')
        assert not (await client.call(group)).code
        assert not (await ask(client, C.UPDATE_CONSUMER_OFFSET, commit)).code
        await fill(client, "Orders", 300)
        first = (await offsets(client, "Orders"))[1]
        assert not (await ask(client, C.CLEAN_EXPIRED_CONSUMEQUEUE)).code
        assert await offsets(client, "Old") == (0, 10, 10), "its messages are in the log"

        assert not (await ask(client, C.DELETE_EXPIRED_COMMITLOG)).code
        assert len(os.listdir(store / "commitlog")) <= 2
        low, high, _own = await offsets(client, "Orders")
        assert (high, low > 200) == (first, True)
        assert os.listdir(store / "consumequeue" / "Orders" / "0") == ["00000000000000004000"]
        answer = await ask(client, C.PULL_MESSAGE, **pull(low, "Orders"))
        assert [record.queue_offset for record in records(answer.body)][:2] == [low, low + 1]
        moved = await ask(client, C.PULL_MESSAGE, **pull(0, "Orders"))
        assert from_fields(h.PullResponse, moved.fields).next_begin_offset == low

        assert not (await ask(client, C.CLEAN_EXPIRED_CONSUMEQUEUE)).code
        assert not (store / "consumequeue" / "Old").exists()
        assert await offsets(client, "Old") == (0, 0, 0), "messages that come now are not passed over"
        await fill(client, "Old", 3)
        assert await offsets(client, "Old") == (0, 3, 0)
        await fill(client, "Orders", 1)
        assert (await offsets(client, "Orders"))[1] == first + 1
        shutil.copytree(store, copy)  # as after a kill

    serve(store, run, release)
    for place in (store, copy):
        if place is copy:
            done = rmqtool("recover", str(place), "--yes")
            assert done.code == 0, (done.out, done.err)
        assert rmqtool("check", str(place)).code == 0

        async def again(client: Connection) -> None:
            assert await offsets(client, "Old") == (0, 3, 0)
            answer = await ask(client, C.PULL_MESSAGE, **pull(0, "Old"))
            assert [record.queue_offset for record in records(answer.body)] == [0, 1, 2]

        serve(place, again, release)


def test_queues_of_a_deleted_topic(tmp_path: Path) -> None:
    """As long as its messages are in the log, they stay: after a kill they would be taken for the new ones."""
    store = tmp_path / "store"

    async def run(client: Connection) -> None:
        await fill(client, "Gone", 5)
        assert not (await ask(client, C.DELETE_TOPIC_IN_BROKER, h.Topic(topic="Gone"))).code
        refused = await ask(client, C.CLEAN_UNUSED_TOPIC)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert str(refused.remark).startswith("1 queue of Gone stay")
        assert (store / "consumequeue" / "Gone" / "0").is_dir()
        await fill(client, "Orders", 100)
        assert not (await ask(client, C.DELETE_EXPIRED_COMMITLOG)).code
        assert not (await ask(client, C.CLEAN_UNUSED_TOPIC)).code
        assert os.listdir(store / "consumequeue") == ["Orders"]
        await fill(client, "Gone", 2)
        assert await offsets(client, "Gone") == (0, 2, 0)

    serve(store, run)
    assert rmqtool("check", str(store)).code == 0


def test_a_store_that_is_only_read_is_not_cleaned(tmp_path: Path) -> None:
    store = tmp_path / "store"

    async def begin(client: Connection) -> None:
        await fill(client, "Orders", 100)

    async def run(client: Connection) -> None:
        for code in (C.DELETE_EXPIRED_COMMITLOG, C.CLEAN_EXPIRED_CONSUMEQUEUE, C.CLEAN_UNUSED_TOPIC):
            assert (await ask(client, code)).code == ResponseCode.NO_PERMISSION

    serve(store, begin)
    before = sorted(os.listdir(store / "commitlog"))
    serve(store, run, read_only=True)
    assert sorted(os.listdir(store / "commitlog")) == before


def test_cluster_clean_of_a_served_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command shows what goes, and reads back that it is gone."""
    from tests.interop.serving import CLUSTER, Serving

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store, conf = tmp_path / "store", tmp_path / "broker.conf"

    async def begin(client: Connection) -> None:
        later = Command(C.SEND_MESSAGE_V2, fields=send("Later", 0, "DELAY\x0118\x02"), body=b"in two hours")
        assert not (await client.call(later)).code
        await fill(client, "Old", 10)
        await fill(client, "Orders", 200)

    serve(store, begin)
    conf.write_text("".join(f"{name}={value}\n" for name, value in CONF.items()))
    with Serving(store, "--broker-conf", str(conf)) as served:
        target = f"rocketmq://{served.namesrv}/{CLUSTER}"
        refused = rmqtool("cluster", "clean", target, "log", "--yes")
        assert refused.code == 4
        assert "1 delayed message that waits would go, and nobody gets them; --accept-loss removes them" in refused.err
        for what, names in (("log", ["commitlog"]), ("queues", ["Old 0"])):
            accepted = ["--accept-loss"] if what == "log" else []
            done = rmqtool("cluster", "clean", target, what, "--yes", "-o", "json", *accepted)
            assert done.code == 0, done.err
            assert [(row["name"], row["state"]) for row in json.loads(done.out)["changes"]] == [(names[0], "done")]
