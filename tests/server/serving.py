"""A served store and requests to it, for the tests of this folder."""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from formats.fastjson.declare import read_body
from formats.message.read import Record, read
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from rmqtool.server.serve import Served, ServeOptions
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from tests.store.helpers import digest as digest_of_file

CONF = {"mappedFileSizeCommitLog": "4194304", "mappedFileSizeConsumeQueue": "60000"}


Test = Callable[[Connection], Awaitable[None]]


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def serving(store: Path, test: Test, **options: Any) -> None:
    """Run a test against a served store."""

    async def run() -> None:
        given = {"listen": ("127.0.0.1", 0), "namesrv_listen": ("127.0.0.1", 0), "broker_conf": CONF, "name": "lab-a"}
        async with (
            asyncio.timeout(60),
            Served(str(store), ServeOptions(**{**given, **options})) as served,
            open_connection(*address(served.broker_address)) as client,
        ):
            await test(client)

    asyncio.run(run())


def send(topic: str = "Orders", queue_id: int = 0, properties: str = "", **more: Any) -> dict[str, str]:
    header = h.Send(
        producer_group="p", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=queue_id,
        sys_flag=0, born_timestamp=1_795_000_000_000, flag=0, properties=properties, **more,
    )  # fmt: skip
    return to_fields(header)


def pull(offset: int, topic: str = "Orders", queue_id: int = 0, **more: Any) -> dict[str, str]:
    given: dict[str, Any] = {
        "consumer_group": "g", "max_msg_nums": 32, "sys_flag": 4, "commit_offset": 0, "suspend_timeout_millis": 0,
        "sub_version": 0, "subscription": "*",
    }  # fmt: skip
    return to_fields(h.Pull(topic=topic, queue_id=queue_id, queue_offset=offset, **{**given, **more}))


def records(body: bytes) -> list[Record]:
    collected, at = [], 0
    while at < len(body):
        record = read(body, at, len(body))
        assert isinstance(record, Record)
        collected.append(record)
        at += record.total_size
    return collected


def digest(root: Path) -> str:
    """Checksum of a directory's names, times, modes and contents."""
    made = hashlib.sha256()
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            about = path.stat()
            made.update(f"{path} {about.st_size} {about.st_mtime_ns} {about.st_mode}".encode())
            made.update(digest_of_file(path).encode())
        made.update(" ".join(folders).encode())
    return made.hexdigest()


def read_at(store: Path, physical_offset: int) -> Record:
    located = CommitLog(StoreLayout(str(store))).read(physical_offset)
    assert located is not None
    return located.record


async def commit_offset(client: Connection, offset: int) -> None:
    commit = h.Commit(consumer_group="g", topic="Orders", queue_id=0, commit_offset=offset)
    done = await client.call(Command(C.UPDATE_CONSUMER_OFFSET, fields=to_fields(commit)))
    assert done.code == ResponseCode.SUCCESS, done.remark


async def positions(client: Connection) -> tuple[int, int, int | None]:
    """(end of the first queue, the group's offset, offset up to which messages were delivered)."""
    asked = h.ConsumerGroup(consumer_group="g", topic="Orders")
    answer = await client.call(Command(C.GET_CONSUME_STATS, fields=to_fields(asked)))
    table = read_body(b.ConsumeStats, answer.body).offset_table
    first = {queue.queue_id: wrapper for queue, wrapper in table.items()}[0]
    return first.broker_offset, first.consumer_offset, first.pull_offset
