"""Offsets of a group whose consumers are at work: what is set lasts, or it is said that it does not."""

import asyncio
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool.admin.changes import offsets, run
from rmqtool.admin.changes.change import Place, ValueChange
from rmqtool.admin.changes.tables import Offsets
from rmqtool.admin.live.questions import Node
from rmqtool.client.cluster.errors import ClientError
from tests.amounts import by_turns
from tests.cli.running import RMQTOOL, ROOT, rmqtool
from tests.interop.serving import CLUSTER, Serving

GROUP, TOPIC, MESSAGES = "at-work", "Orders", 420


class Consumer:
    """A process that consumes in a group; counts what it has got."""

    def __init__(self, namesrv: str) -> None:
        args = ["consume", "--namesrv", namesrv, TOPIC, "--group", GROUP, "--ack", "--follow", "--from", "earliest"]
        self.process = subprocess.Popen([*RMQTOOL, *args, "-o", "ndjson", "--body", "none"], stdout=subprocess.PIPE)
        self.count = 0
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for _line in self.process.stdout:
            self.count += 1


def wait_for(enough: Callable[[], bool], seconds: float = 60) -> None:
    for _ in range(int(seconds / 0.2)):
        if enough():
            return
        time.sleep(0.2)
    assert enough()


@pytest.fixture(scope="module", params=["4.9", "5.3"])
def release(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="module")
def served(release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("online") / "store"
    shutil.copytree(ROOT / "examples" / "store", folder)
    with Serving(folder, "--engine", release) as running:
        yield running


@pytest.fixture(scope="module")
def consumer(served: Serving) -> Iterator[Consumer]:
    following = Consumer(served.namesrv)
    try:
        wait_for(lambda: following.count >= MESSAGES)
        yield following
    finally:
        following.process.kill()
        following.reader.join(60)
        with following.process:  # closes its pipe
            pass


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(run, "PATIENCE", 0.5)
    monkeypatch.setattr(offsets, "SETTLE", 6.0)


def reset(served: Serving, *args: str) -> tuple[int, dict[str, Any], str]:
    target = f"rocketmq://{served.namesrv}/{CLUSTER}"
    done = rmqtool("group", "reset", target, GROUP, "--topic", TOPIC, *args, "--yes", "-o", "json")
    return done.code, json.loads(done.out or "{}"), done.err


def stored(served: Serving) -> list[dict[str, Any]]:
    """The offsets that the broker has of the group."""
    args = ("group", "offsets", f"rocketmq://{served.namesrv}", "--group", GROUP, "--topic", TOPIC, "-o", "json")
    shown: list[dict[str, Any]] = json.loads(rmqtool(*args).out)
    return shown


def test_a_request_that_is_refused_fails_for_each_queue() -> None:
    """One request resets all queues of a topic through the clients of 4.9."""
    sent = []

    class Refusing:
        async def send(self, *args: object) -> None:
            sent.append(args)
            raise ClientError("refused")

    async def write() -> list[BaseException | None]:
        kind, node = Offsets(), Node("C", "a", 0, "127.0.0.1:1")
        kind._sets[node] = False
        places = [Place(kind="offset", cluster="C", server="a", name=("g", "T", str(queue))) for queue in range(4)]
        changes = [ValueChange(place=place, before=5, after=0, since=0) for place in places]
        writes = (kind.write(Refusing(), node, change) for change in changes)  # type: ignore[arg-type]
        return await asyncio.gather(*writes, return_exceptions=True)

    assert [type(error) for error in asyncio.run(write())] == [ClientError] * 4
    assert len(sent) == 1


@by_turns(3)
def test_a_group_that_is_online_consumes_again(served: Serving, consumer: Consumer) -> None:
    wait_for(lambda: len(stored(served)) == 4)  # brokers of 4.9 refuse it before
    before = consumer.count
    code, plan, err = reset(served, "--to-earliest")
    wait_for(lambda: consumer.count >= before + MESSAGES)
    assert "the group is online with 1 client" in err
    assert plan["applied"]
    if code:  # it was fast, and is where it was
        assert "have consumed everything again" in err
    time.sleep(1)
    assert consumer.count == before + MESSAGES, "each message once more"


@by_turns(7)
def test_single_offsets_of_a_group_that_is_online(release: str, served: Serving, consumer: Consumer) -> None:
    before = consumer.count
    code, _plan, err = reset(served, "--to-offset", "100", "--queue", "1")
    if release == "4.9":
        assert code == 4
        assert "is online, and its consumers would write their own offsets over these: stop them first" in err
        time.sleep(1)
        assert consumer.count == before
    else:
        wait_for(lambda: consumer.count >= before + 6)
        time.sleep(1)
        assert consumer.count == before + 6, "of 106"


def test_a_group_that_is_online_is_not_deleted(served: Serving, consumer: Consumer) -> None:
    assert consumer.process.poll() is None
    done = rmqtool("group", "delete", f"rocketmq://{served.namesrv}", GROUP, "--yes")
    assert (done.code, "is online on lab-a" in done.err) == (4, True)
