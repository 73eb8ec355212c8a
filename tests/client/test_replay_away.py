"""The command replay while its broker is away: missing routes and answers of slaves prove nothing about a queue."""

import json
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from formats.remoting.codes import RequestCode as C
from formats.remoting.frame import Command
from rmqtool.client.copying import replay as replaying
from rmqtool.remoting.connection import Answer
from rmqtool.testing import TestBroker, broker
from tests.amounts import by_turns
from tests.cli.running import RMQTOOL, ROOT, Result, rmqtool
from tests.client.peers import Reply, peer, route, serving, tells
from tests.client.test_replay import bodies, made, messages

TOPIC = "Away"


@dataclass
class KnownRoutes:
    """Changing answers of a name server.

    Attributes:
        routes: topic → addresses of its brokers by broker id; other topics have no route.
    """

    routes: dict[str, dict[int, str]] = field(default_factory=dict)
    queues: int = 4

    def answer(self, request: Command) -> Answer:
        result = {}
        for topic, addresses in self.routes.items():
            data = result[topic] = route(("broker-a", addresses[min(addresses)]), queues=self.queues)
            data.broker_datas[0].broker_addrs = dict(addresses)
        return tells(result)(request)


@contextmanager
def name_server(known: KnownRoutes) -> Iterator[str]:
    """The address of a name server with these answers."""

    @asynccontextmanager
    async def one() -> AsyncIterator[str]:
        async with peer() as namesrv:
            namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = known.answer
            yield namesrv.address

    with serving(one()) as address:
        yield address


@pytest.fixture
def served() -> Iterator[TestBroker]:
    with broker() as running:
        yield running


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "_PAUSES", (0.05, 0.05))
    monkeypatch.setitem(replaying.ReplayOptions.__init__.__kwdefaults__ or {}, "settle", 0.2)


def killed_within_a_round(source: Path, namesrv: str, store: str) -> int:
    """Number of messages stored when it is killed."""
    args = [*RMQTOOL, "replay", str(source), "--namesrv", namesrv, "--batch", "4", "--rate", "400"]
    with subprocess.Popen(args, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        until = time.monotonic() + 60
        while len(messages(store, TOPIC)) < 40 and time.monotonic() < until:
            time.sleep(0.05)
        running.send_signal(signal.SIGKILL)
    time.sleep(0.5)  # until what was under way is stored
    return len(messages(store, TOPIC))


def again(source: Path, namesrv: str) -> Result:
    return rmqtool("replay", source, "--namesrv", namesrv, "-o", "ndjson")


@by_turns(3)
@pytest.mark.parametrize("gone", ["all routes", "the broker", "its master"])
def test_a_broker_that_is_away_proves_nothing(served: TestBroker, tmp_path: Path, gone: str) -> None:
    source, known = made(tmp_path / "origin", TOPIC, 600), KnownRoutes()
    there = {TOPIC: {0: served.address}, "TBW102": {0: served.address}}
    with name_server(known) as namesrv, broker(name="broker-a") as slave:
        known.routes = there
        stored = killed_within_a_round(source, namesrv, served.store)
        assert 40 <= stored < 600
        before = (tmp_path / "origin.replay").read_text()
        known.routes = {
            "all routes": {},
            "the broker": {"TBW102": {0: "127.0.0.1:1"}},  # the name server does not know yet
            "its master": {TOPIC: {1: slave.address}, "TBW102": {1: slave.address}},  # and a slave has nothing yet
        }[gone]
        done = again(source, namesrv)
        assert done.code == 3, done
        assert "the same command continues from there" in done.err
        assert (tmp_path / "origin.replay").read_text() == before
        assert len(messages(served.store, TOPIC)) == stored
        known.routes = there
        done = again(source, namesrv)
        assert done.code == 0, done.err
        assert bodies(messages(served.store, TOPIC)) == bodies(messages(str(source), TOPIC))


def begun(journal: Path, floor: int) -> None:
    """The state after a kill during the first round."""
    lines = journal.read_text().splitlines()
    listed = next(json.loads(line) for line in lines if '"begin"' in line)
    listed["floors"] = [[*queue, floor] for *queue, _offset in listed["floors"]]
    kept = [line for line in lines if '"journal"' in line or '"aim"' in line]
    journal.write_text("\n".join([*kept, json.dumps(listed)]) + "\n")


def replay_elsewhere(tmp_path: Path, at: int) -> Path:
    """A store of 40 messages that another broker has got, with a journal of a round that began at ``at`` there."""
    source = made(tmp_path / "origin", TOPIC, 40)
    with broker() as other:
        assert again(source, other.namesrv).code == 0
    begun(tmp_path / "origin.replay", at)
    return source


def test_a_topic_that_was_never_made_is_made_by_the_first_message(served: TestBroker, tmp_path: Path) -> None:
    """The broker itself says that it does not have it."""
    source = replay_elsewhere(tmp_path, 0)
    done = again(source, served.namesrv)
    assert done.code == 0, done.err
    assert bodies(messages(served.store, TOPIC)) == bodies(messages(str(source), TOPIC))


def test_a_queue_that_ends_before_the_round_began_is_another(served: TestBroker, tmp_path: Path) -> None:
    source = replay_elsewhere(tmp_path, 500)
    done = again(source, served.namesrv)
    assert done.code == 3
    assert "ends at offset 0 by now" in done.err
    assert "another --journal" in done.err
    assert messages(served.store, TOPIC) == []


@by_turns(2)
@pytest.mark.parametrize("code", [0, 1, 19, 20, 21], ids=["found", "an error", "not found", "no match", "moved"])
def test_an_answer_without_messages_proves_nothing(served: TestBroker, tmp_path: Path, code: int) -> None:
    """A broker that skips all messages of a queue without returning any."""
    source = made(tmp_path / "origin", TOPIC, 40)

    def pulled(request: Command) -> Command:
        told = {"suggestWhichBrokerId": "0", "nextBeginOffset": "10", "minOffset": "0", "maxOffset": "10"}
        return request.response(code, fields=told)

    assert again(source, served.namesrv).code == 0
    begun(tmp_path / "origin.replay", 0)
    known = KnownRoutes()
    with name_server(known) as namesrv, lying_broker(pulled) as address:
        known.routes = {TOPIC: {0: address}}
        done = again(source, namesrv)
    assert done.code == 3, done
    assert "the same command continues from there" in done.err
    assert again(source, served.namesrv).code == 0
    assert len(messages(served.store, TOPIC)) == 40


@contextmanager
def lying_broker(pulled: Reply) -> Iterator[str]:
    @asynccontextmanager
    async def one() -> AsyncIterator[str]:
        async with peer() as made_:
            made_.replies[C.PULL_MESSAGE] = pulled
            made_.replies[C.GET_MIN_OFFSET] = lambda request: request.response(fields={"offset": "0"})
            made_.replies[C.GET_MAX_OFFSET] = lambda request: request.response(fields={"offset": "10"})
            yield made_.address

    with serving(one()) as address:
        yield address
