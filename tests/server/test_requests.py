"""The tables of requests: they are complete, and no request is misread."""

import asyncio
import importlib
import json
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import rmqtool.server
from formats.errors import FormatError
from formats.fastjson.declare import members_of
from formats.message.read import Record, read
from formats.model.topics import TopicConfig
from formats.remoting import fields
from formats.remoting import headers as h
from formats.remoting.codes import PullFlag, ResponseCode
from formats.remoting.codes import RequestCode as C
from formats.remoting.frame import Command
from formats.topics import OFFSET_MOVED
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.connection import Connection
from rmqtool.rules.releases import V4_9, V5_3, V5_5, Release
from rmqtool.server.broker.requests.pulling import Pulling
from rmqtool.server.broker.table import REQUESTS
from rmqtool.server.dispatch import table
from rmqtool.server.namesrv.requests import REQUESTS as OF_NAME_SERVERS
from rmqtool.server.serve import Served, ServeOptions
from tests import readme

TO_CLIENTS = {
    C.CHECK_TRANSACTION_STATE, C.NOTIFY_CONSUMER_IDS_CHANGED, C.RESET_CONSUMER_CLIENT_OFFSET,
    C.GET_CONSUMER_STATUS_FROM_CLIENT, C.PUSH_REPLY_MESSAGE_TO_CLIENT, C.NOTIFY_UNSUBSCRIBE_LITE,
}  # fmt: skip
NOT_SUPPORTED = {C.QUERY_BROKER_OFFSET, C.QUERY_CORRECTION_OFFSET, C.RESUME_CHECK_HALF_MESSAGE}
CONF = {"mappedFileSizeCommitLog": "4194304", "mappedFileSizeConsumeQueue": "60000"}
ROOT = readme.ROOT


def test_each_code_has_a_handler_or_is_known_to_have_none() -> None:
    handled = {*REQUESTS, *OF_NAME_SERVERS}
    assert not handled & (TO_CLIENTS | NOT_SUPPORTED)
    assert handled | TO_CLIENTS | NOT_SUPPORTED == set(C)


def test_each_handler_is_in_a_table() -> None:
    for module in pkgutil.walk_packages(rmqtool.server.__path__, "rmqtool.server."):
        importlib.import_module(module.name)
    handlers = {row.handler for row in (*REQUESTS.values(), *OF_NAME_SERVERS.values())}
    assert handlers == set(table.ROWS)


def test_two_handlers_for_one_request_are_an_error() -> None:
    class Other:
        @table.handles(C.PULL_MESSAGE)
        def pull(self, call: table.Call[h.Pull, None]) -> Command:
            return call.answer()

    try:
        with pytest.raises(TypeError, match="two handlers for one request"):
            table.collect(Pulling, Other)
    finally:
        del table.ROWS[Other.pull]


def options(release: Release = V5_3) -> ServeOptions:
    """Options for a broker with its own store and name server."""
    return ServeOptions(
        create=True, release=release, broker_conf=CONF, name="lab-a", listen=("127.0.0.1", 0),
        namesrv_listen=("127.0.0.1", 0),
    )  # fmt: skip


@asynccontextmanager
async def served(folder: Path, release: Release) -> AsyncIterator[Connection]:
    """A connection to a broker with a store of its own."""
    async with (
        asyncio.timeout(60),
        Served(str(folder / "store"), options(release)) as broker,
        open_connection(*place(broker.broker_address)) as client,
    ):
        yield client


def place(text: str) -> tuple[str, int]:
    """Split HOST:PORT."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def why_unread(client: Connection, command: Command) -> str | None:
    """Why a request cannot be parsed, or None."""
    try:
        REQUESTS[command.code].read(client, command)
    except FormatError as err:
        return str(err)
    return None


def test_headers_that_do_not_read_so_are_refused_by_name(tmp_path: Path) -> None:
    """Missing fields, text instead of numbers, and numbers too long: one answer each, and the connection stays open."""

    async def ask(client: Connection, code: int, fields: dict[str, str] | None, body: bytes) -> None:
        command = Command(code, fields=fields, body=body)
        if (reason := why_unread(client, command)) is not None:
            answer = await client.call(command)
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, reason), code
            refused.add(code)

    async def test() -> None:
        async with served(tmp_path, V5_5) as client:
            for code, row in REQUESTS.items():
                names = members_of(row.header) if row.header else {}
                for text in ("x", "9" * 5000, "-", ""):
                    for given in (None, {}, dict.fromkeys(names, text)):
                        for body in (b"", b"{", b"[]", b"\xff"):
                            await ask(client, code, given, body)
            assert (await client.call(Command(C.GET_BROKER_RUNTIME_INFO))).code == ResponseCode.SUCCESS

    refused: set[int] = set()
    asyncio.run(test())
    declared = {code for code, row in REQUESTS.items() if row.header or row.body not in (None, bytes)}
    declared.remove(C.GET_LITE_TOPIC_INFO)  # it has texts that may lack, and nothing else
    assert declared == refused


@pytest.mark.parametrize("release", [V4_9, V5_3], ids=str)
def test_a_broker_answers_the_requests_of_its_release(tmp_path: Path, release: Release) -> None:
    async def test() -> None:
        async with served(tmp_path, release) as client:
            for code, row in REQUESTS.items():
                answer = await client.call(Command(code))
                unknown = answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                assert unknown == (row.since.version > release.version), code

    asyncio.run(test())


@pytest.mark.parametrize(("group", "topic"), [("g", "Orders"), ('组"\\ \u2028', '主题"{}\n'), ("'", '",":')])
def test_an_offset_that_moved_is_stored_as_json_whatever_the_names_are(tmp_path: Path, group: str, topic: str) -> None:
    async def test() -> bytes:
        async with (
            asyncio.timeout(60),
            Served(str(tmp_path / "store"), options()) as served,
            open_connection(*place(served.broker_address)) as client,
        ):
            assert served.broker is not None
            context = served.broker.context
            context.state.suppose_topic(TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1, perm=6))
            header = h.Pull(
                consumer_group=group, topic=topic, queue_id=0, queue_offset=7, max_msg_nums=1,
                sys_flag=PullFlag.SUBSCRIPTION, commit_offset=0, suspend_timeout_millis=0, sub_version=0,
            )  # fmt: skip
            answer = await client.call(Command(C.PULL_MESSAGE, fields=fields.to_fields(header)))
            assert answer.code == ResponseCode.PULL_OFFSET_MOVED
            (stored,) = context.reading.pull(OFFSET_MOVED, 0, 0, 32).messages
            record = read(stored, 0, len(stored))
            assert isinstance(record, Record)
            return bytes(record.body)

    body = asyncio.run(test())
    queue = {"brokerName": "lab-a", "queueId": 0, "topic": topic}
    moved = {"consumerGroup": group, "messageQueue": queue, "offsetNew": 0, "offsetRequest": 7}
    assert json.loads(body) == moved
    if group == "g":  # as fastjson writes it
        assert body == json.dumps(moved, separators=(",", ":")).encode()


_ASKED = """
import asyncio, sys
from formats.remoting.codes import RequestCode as C
from formats.remoting.frame import Command
from rmqtool.remoting.client import open_connection
from rmqtool.rules.releases import V4_9, V5_3
from rmqtool.server.broker.requests.pulling import Pulling
from rmqtool.server.broker.table import REQUESTS
from rmqtool.server.serve import Served, ServeOptions

async def ask(release, fields):
    here = ("127.0.0.1", 0)
    options = ServeOptions(create=True, release=release, listen=here, namesrv_listen=here)
    async with Served(f"{sys.argv[1]}/{release}", options) as served:
        host, _, port = served.broker_address.rpartition(":")
        async with open_connection(host, int(port)) as client:
            answer = await client.call(Command(C.COUNT_TOPICS, fields=fields))
            print(int(answer.code), answer.remark)

assert REQUESTS[C.COUNT_TOPICS].right is not None
asyncio.run(ask(V5_3, {"consumerGroup": "g"}))
asyncio.run(ask(V5_3, {}))
asyncio.run(ask(V4_9, {"consumerGroup": "g"}))
"""


def test_a_request_is_added_in_the_two_files_that_the_manual_says(tmp_path: Path) -> None:
    section = readme.PAGES["developing"].read_text(encoding="utf-8").partition("## How to add a request\n")[2]
    number, handler = re.findall(r"^```py\n(.*?)^```$", section.partition("\n## ")[0], re.MULTILINE | re.DOTALL)
    for package in ("formats", "rmqtool"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "*.md"))
    codes = tmp_path / "formats" / "remoting" / "codes.py"
    text = codes.read_text()
    last = "    BATCH_ACK_MESSAGE = 200151\n"
    assert text.count(last) == 1
    codes.write_text(text.replace(last, last + number))
    status = tmp_path / "rmqtool" / "server" / "broker" / "admin" / "status.py"
    text = status.read_text()
    first = "    @handles(C.GET_TOPIC_STATS_INFO"
    assert text.count(first) == 1
    status.write_text(text.replace(first, f"{handler}\n{first}"))
    run = subprocess.run(
        [sys.executable, "-c", _ASKED, str(tmp_path)],
        cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert run.stdout.splitlines() == [
        "0 0",
        "1 ConsumerGroup without consumerGroup at byte 0",
        "3  request type 4711 not supported",
    ], run.stderr
