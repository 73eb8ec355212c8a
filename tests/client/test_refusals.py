"""Every refusal of a broker is shown with code and remark, and every signal gives its exit code."""

import asyncio
import logging
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.client import From, Message, NotSent, Producer, PullConsumer, PushConsumer, PushOptions
from rmqtool.client.cluster import attempts
from rmqtool.client.cluster.errors import BrokerError
from rmqtool.client.copying import replay
from rmqtool.remoting.connection import Connection
from rmqtool.testing import TestBroker, broker
from tests.amounts import by_turns
from tests.cli.running import RMQTOOL, ROOT, Result, process, rmqtool
from tests.client.lying import lied_about
from tests.client.peers import Peer, peer, route, run, serving, tells
from tests.client.test_consuming import fill
from tests.client.test_replay import made

WORDS = "NO_PERMISSION (16): not on a Sunday"
FOLLOW = ("--follow", "--exit-idle", "3", "--from", "earliest")
COMMANDS = {
    "send": ["send", "T", "LINES", "--lines", "--batch", "2"],
    "transaction": ["send", "T", "LINES", "--lines", "--transaction", "commit"],
    "consume": ["consume", "T", "--from", "-1h"],
    "group": ["consume", "T", "--group", "GROUP"],
    "sql": ["consume", "T", "--sql", "a IS NULL"],
    "follow": ["consume", "T", *FOLLOW],
    "ack": ["consume", "T", "--group", "GROUP", "--ack", *FOLLOW],
    "orderly": ["consume", "T", "--group", "GROUP", "--ack", "--orderly", *FOLLOW],
    "replay": ["replay", "ORIGIN"],
    "mirror": ["mirror", "T", "COPY"],
}
_LEAVES = {C.HEART_BEAT: 0, C.UNREGISTER_CLIENT: 0}  # a client goes on, and says so
_READS = {C.GET_MIN_OFFSET: 3, C.GET_MAX_OFFSET: 3, C.PULL_MESSAGE: 3}
# what each asks a broker, and its exit code where that is refused; with --follow it goes on asking until it is idle,
# and then fails if the broker has messages that it did not give
_MEMBER = {
    C.GET_MAX_OFFSET: 3, C.GET_CONSUMER_LIST_BY_GROUP: 0, C.QUERY_CONSUMER_OFFSET: 0, C.PULL_MESSAGE: 3,
    C.UPDATE_CONSUMER_OFFSET: 0, **_LEAVES,
}  # fmt: skip
ASKED: dict[str, dict[C, int]] = {
    "send": {C.SEND_MESSAGE_V2: 1, C.SEND_BATCH_MESSAGE: 1, **_LEAVES},
    "transaction": {C.SEND_MESSAGE_V2: 1, C.END_TRANSACTION: 1, **_LEAVES},
    "consume": {C.SEARCH_OFFSET_BY_TIMESTAMP: 3, **_READS},
    "group": {C.QUERY_CONSUMER_OFFSET: 3, **_READS},
    "sql": {C.CHECK_CLIENT_CONFIG: 3, **_READS},
    "follow": _READS,
    "ack": _MEMBER,
    "orderly": {C.LOCK_BATCH_MQ: 0, C.UNLOCK_BATCH_MQ: 0, **_MEMBER},
    "replay": {C.SEND_MESSAGE_V2: 3, **_READS, **_LEAVES},
    "mirror": _READS,
}


@dataclass
class Refuser:
    """A proxy in front of a broker that refuses one kind of request.

    Attributes:
        asked: codes of received requests.
    """

    refused: int | None = None
    asked: set[int] = field(default_factory=set)

    async def answer(self, upstream: Connection, _connection: Connection, request: Command) -> Command:
        self.asked.add(request.code)
        if request.code == self.refused:
            return request.response(ResponseCode.NO_PERMISSION, "not on\na Sunday")
        return replace(await upstream.call(request, 40), opaque=request.opaque)


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    hurried = {"transactionCheckInterval": "500", "transactionTimeOut": "500"}  # ms
    with broker(settings={"enablePropertyFilter": "true", **hurried}) as running:
        fill(running, "T", 16)
        yield running


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "PAUSES", (0.01, 0.01))
    monkeypatch.setattr(replay, "_PAUSES", (0.01, 0.01, 0.01, 0.01))


def words_of(args: Sequence[str], folder: Path) -> list[str]:
    """The arguments of a command, with files in a folder; its group has the folder's name, so that no two share it."""
    lines = folder / "lines"
    lines.write_text("1\n2\n3\n")
    origin, copy = str(made(folder / "origin", "T", 2)), str(folder / "copy")
    given = {"LINES": str(lines), "ORIGIN": origin, "COPY": copy, "GROUP": group_of(folder)}
    return [given.get(word, word) for word in args]


def group_of(folder: Path) -> str:
    return re.sub("[^A-Za-z0-9_-]", "-", folder.name)


def run_command(served: TestBroker, refuser: Refuser, name: str, folder: Path) -> Result:
    args = words_of(COMMANDS[name], folder)
    with serving(lied_about(served.address, refuser, "T", f"%RETRY%{group_of(folder)}")) as namesrv:
        return rmqtool(*args, "--namesrv", namesrv, "-o", "ndjson")


@by_turns(7)
@pytest.mark.parametrize("name", COMMANDS)
def test_every_request_of_a_command_is_looked_at(name: str, served: TestBroker, tmp_path: Path) -> None:
    refuser = Refuser()
    done = run_command(served, refuser, name, tmp_path)
    assert done.code == 0, done.err
    assert refuser.asked == ASKED[name].keys()


@by_turns(13)
@pytest.mark.parametrize(
    ("name", "code", "exit_code"), [(name, code, end) for name, codes in ASKED.items() for code, end in codes.items()]
)
def test_what_a_broker_refuses_is_told(
    name: str, code: C, exit_code: int, served: TestBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):  # what is logged so goes to stderr by itself; see the next test
        done = run_command(served, Refuser(code), name, tmp_path)
    assert WORDS in done.err + caplog.text
    assert done.code == exit_code, done.err


def test_a_warning_of_a_client_reaches_stderr(served: TestBroker, tmp_path: Path) -> None:
    refuser, retries = Refuser(C.PULL_MESSAGE), f"%RETRY%{group_of(tmp_path)}"
    with serving(lied_about(served.address, refuser, "T", retries)) as namesrv:
        result = process(*words_of(COMMANDS["ack"], tmp_path), "--namesrv", namesrv)
    assert WORDS in result.err
    assert result.out == ""


@pytest.mark.parametrize("code", [C.QUERY_CONSUMER_OFFSET, C.PULL_MESSAGE])
def test_a_pull_consumer_raises_it(code: C, served: TestBroker) -> None:
    async def test() -> None:
        async def poll(consumer: PullConsumer) -> None:
            await consumer.assign(await consumer.queues("T"))
            await consumer.poll()

        async with lied_about(served.address, Refuser(code), "T") as namesrv, PullConsumer(namesrv, "api") as consumer:
            with pytest.raises(BrokerError) as raised:
                await poll(consumer)
        assert raised.value.code == ResponseCode.NO_PERMISSION
        assert WORDS in str(raised.value)

    run(test)


def test_a_producer_raises_it(served: TestBroker) -> None:
    async def test() -> None:
        refusing = Refuser(C.SEND_MESSAGE_V2)
        async with lied_about(served.address, refusing, "T") as namesrv, Producer(namesrv, "api") as producer:
            with pytest.raises(NotSent, match="not on a Sunday"):
                await producer.send(Message("T", b"x"))

    run(test)


@pytest.mark.parametrize("code", [code for code in _MEMBER if code != C.GET_MAX_OFFSET])
def test_a_push_consumer_logs_it(code: C, served: TestBroker, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        options = PushOptions(start=From.FIRST, persist_interval=0.1, rebalance_interval=0.2, error_pause=0.1)
        async with (
            lied_about(served.address, Refuser(code), "T", "%RETRY%api") as namesrv,
            PushConsumer(namesrv, "api", {"T": "*"}, lambda _messages: None, options),
        ):
            while code != C.UNREGISTER_CLIENT and WORDS not in caplog.text:
                await asyncio.sleep(0.05)

    with caplog.at_level(logging.WARNING):
        run(test)
    assert WORDS in caplog.text


# -- signals ----------------------------------------------------------------------------------------------------------


WAITING = {
    "consume": ["consume", "T"],
    "ack": ["consume", "T", "--group", "GROUP", "--ack"],
    "replay": COMMANDS["replay"],
    "mirror": COMMANDS["mirror"],
}


@asynccontextmanager
async def silent_cluster(brokers: list[Peer]) -> AsyncIterator[str]:
    """A name server with a topic whose broker never answers."""
    async with peer() as namesrv, peer() as fake_broker:
        brokers.append(fake_broker)
        namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"T": route(("a", fake_broker.address), queues=1)})
        fake_broker.replies.update({code: lambda _request: None for code in C})
        yield namesrv.address


@by_turns(13)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("name", WAITING)
def test_a_signal_is_told_by_the_exit_code(name: str, number: signal.Signals, tmp_path: Path) -> None:
    brokers: list[Peer] = []
    with serving(silent_cluster(brokers)) as namesrv:
        command = [*RMQTOOL, *words_of(WAITING[name], tmp_path), "--namesrv", namesrv]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as running:
            while not brokers[0].got:
                time.sleep(0.01)
            running.send_signal(number)
            _out, stderr = running.communicate(timeout=60)
    assert running.returncode == 128 + number, stderr
