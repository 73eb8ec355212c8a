"""``group lag --watch`` and ``--prometheus``: rounds of a store and of a live cluster, whatever brokers do."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from formats.remoting.codes import RequestCode as C
from formats.remoting.frame import Command
from rmqtool.admin.live import groups, questions
from rmqtool.remoting.client import open_connection
from rmqtool.store.disk.durable import replace_file
from tests.admin.test_failures import namesrv_of
from tests.admin.test_several_brokers import namesrv_of as brokers_of
from tests.cli.running import RMQTOOL, ROOT, process, rmqtool
from tests.cli.terminal import at_terminal
from tests.client.peers import peer, serving
from tests.interop.serving import CLUSTER, Serving

GROUP = "lab-consumer"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watch") / "store"
    shutil.copytree(ROOT / "examples" / "store", folder)
    offsets = folder / "config" / "consumerOffset.json"
    text = offsets.read_text()
    assert text.count("1:106") == 1
    offsets.write_text(text.replace("1:106", "1:100"))
    return folder


@pytest.fixture(scope="module")
def served(store: Path) -> Iterator[Serving]:
    with Serving(store, "--read-only") as running:
        yield running


@pytest.fixture
def target(served: Serving) -> str:
    return f"rocketmq://{served.namesrv}/{CLUSTER}"


def test_rounds_for_programs(target: str, tmp_path: Path) -> None:
    page = tmp_path / "lag.prom"
    args = ("group", "lag", target, "-g", GROUP, "--watch", "200ms", "--rounds", "2", "--prometheus", page)
    done = rmqtool(*args, "--topic", "Orders", "-o", "ndjson")
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row["queueId"] for row in rows] == [0, 1, 2, 3] * 2
    assert [row["inRate"] for row in rows] == [None] * 4 + [0.0] * 4
    late = rows[5]
    assert (late["diff"], late["change"], late["drainSeconds"]) == (6, 0, None)
    message = json.loads(rmqtool("query-offset", target, "Orders", "1", "100", "-o", "ndjson").out.splitlines()[0])
    assert late["oldestTimestamp"] == message["storeTimestamp"]
    assert rows[0]["oldestTimestamp"] is None
    lines = page.read_text().splitlines()
    (behind,) = [line for line in lines if line.startswith("rocketmq_consumer_lag_messages{") and 'queue="1"' in line]
    assert behind.endswith("} 6.0")
    for label in ('consumer_group="lab-consumer"', 'topic="Orders"', f'cluster="{CLUSTER}"', 'is_retry="false"'):
        assert label in behind
    (age,) = [line for line in lines if line.startswith("rocketmq_consumer_lag_latency{") and 'queue="1"' in line]
    assert 0 <= time.time() * 1000 - message["storeTimestamp"] - float(age.split()[-1]) < 60_000
    done = rmqtool("group", "lag", target, "--watch", "1s", "-o", "json")
    assert (done.code, "ndjson" in done.err) == (2, True)
    assert rmqtool("group", "lag", target, "--watch", "often").code == 2
    assert rmqtool("group", "lag", target, "--rounds", "2").code == 2


def test_rounds_of_a_store_are_the_same(target: str, store: Path, tmp_path: Path) -> None:
    result = []
    target = target.removesuffix(f"/{CLUSTER}")
    for number, where in enumerate((target, store)):
        args = ("group", "lag", where, "-g", GROUP, "--by", "topic", "--prometheus", tmp_path / str(number))
        rows = [json.loads(line) for line in rmqtool(*args, "-o", "ndjson").out.splitlines()]
        result.append([{name: value for name, value in row.items() if name != "time"} for row in rows])
    assert result[0] == result[1]
    assert result[0]
    labels = [f'cluster="{name}",' in (tmp_path / number).read_text() for number, name in (("0", CLUSTER), ("1", ""))]
    assert labels == [True, True], "brokers know their cluster; a store without the broker's settings has none"


def test_a_terminal_is_repainted(target: str) -> None:
    _code, shown = at_terminal("group", "lag", target, "--watch", "200ms", "--rounds", "3", "--by", "topic")
    assert shown.count("\x1b[H") == 3
    assert "Orders" in shown


def test_a_signal_ends_it(target: str) -> None:
    args = [*RMQTOOL, "group", "lag", target, "--watch", "1h", "-o", "ndjson"]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), "a round is shown at once"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, 1)


def test_a_round_that_fails_is_not_the_last(served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "TIMEOUT", 1.0)
    with serving(namesrv_of(served.broker, "silent")) as namesrv:
        started = time.monotonic()
        args = ("group", "lag", f"rocketmq://{namesrv}", "--watch", "100ms", "--rounds", "2", "-o", "ndjson")
        done = rmqtool(*args)
        assert time.monotonic() - started < 20
    assert done.code == 1
    assert {json.loads(line)["brokerName"] for line in done.out.splitlines()} == {"lab-a"}
    gone = rmqtool("group", "lag", "rocketmq://127.0.0.1:1", "--watch", "100ms", "--rounds", "2", "-o", "ndjson")
    assert (gone.code, gone.out) == (3, "")
    assert gone.err.count("127.0.0.1:1") == 2


def test_a_round_ends_whatever_brokers_do(served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that answers each question just in time."""
    monkeypatch.setattr(groups, "ROUND", 2.0)

    async def answer(request: Command) -> Command:
        await asyncio.sleep(1.5)
        host, _, port = served.broker.rpartition(":")
        async with open_connection(host, int(port)) as upstream:
            return replace(await upstream.call(request, 10), opaque=request.opaque)

    @asynccontextmanager
    async def slow() -> AsyncIterator[str]:
        async with peer() as made:
            made.replies = dict.fromkeys(C, answer)
            async with brokers_of({"lab-a": {0: served.broker}, "lab-b": {0: made.address}}) as namesrv:
                yield namesrv

    with serving(slow()) as namesrv:
        args = ("group", "lag", f"rocketmq://{namesrv}", "--watch", "100ms", "--rounds", "2", "-o", "ndjson")
        started = time.monotonic()
        done = rmqtool(*args)
        took = time.monotonic() - started
    assert {json.loads(line)["brokerName"] for line in done.out.splitlines()} == {"lab-a"}
    assert (done.code, "no answer in the 2 s for all questions" in done.err) == (1, True), done.err
    assert took < 30, "four times two seconds, and what a busy machine adds"


def page_of(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("metrics at "):
            return line.split()[-1]
    raise AssertionError("no page")


def read_page(url: str, wanted: Callable[[str], bool]) -> str:
    for _ in range(100):
        with urllib.request.urlopen(url, timeout=10) as answer:
            text: str = answer.read().decode()
        if wanted(text):
            return text
        time.sleep(0.1)
    raise AssertionError(text)


def test_a_page(served: Serving, target: str) -> None:
    args = [*RMQTOOL, "group", "lag", target, "-g", GROUP, "--watch", "200ms", "--prometheus", "127.0.0.1:0"]
    with subprocess.Popen(
        [*args, "-o", "ndjson"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        url = page_of(process)
        text = read_page(url, lambda text: "rocketmq_consumer_lag_messages{" in text)
        lines = [line for line in text.splitlines() if line.startswith("rocketmq_consumer_lag_messages{")]
        assert any('topic="Orders"' in line and 'queue="1"' in line and 'node_id="lab-a"' in line for line in lines)
        beside = rmqtool("group", "lag", target, "--watch", "1s", "--prometheus", url.split("/")[2], "--rounds", "1")
        assert (beside.code, "in use" in beside.err) == (4, True), beside.err
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    done = rmqtool("group", "lag", target, "--prometheus", "127.0.0.1:0")
    assert (done.code, "goes with --watch" in done.err) == (2, True)
    assert rmqtool("group", "lag", target, "--watch", "1s", "--prometheus", ":70000").code == 2


def test_a_page_while_rounds_fail(tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(ROOT / "examples" / "store", store)
    with Serving(store, "--read-only") as other:
        args = [*RMQTOOL, "group", "lag", f"rocketmq://{other.namesrv}", "--watch", "100ms", "--prometheus"]
        process = subprocess.Popen(
            [*args, "127.0.0.1:0", "-o", "ndjson"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        with process:
            url = page_of(process)
            read_page(url, lambda text: "rocketmq_consumer_lag_messages{" in text)
            other.process.kill()
            other.process.wait()
            drain = threading.Thread(target=process.stderr.read if process.stderr else None)
            drain.start()
            read_page(url, lambda text: "rocketmq_consumer_lag_messages{" not in text)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 3, "the code of the last round"
            drain.join()


def test_what_is_no_file_stays(target: str, tmp_path: Path) -> None:
    """As /dev/stdout, a link to what this process has open."""
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    (tmp_path / "link").symlink_to("page")
    for name in ("stdout", "link"):
        done = process("group", "lag", target, "-g", GROUP, "-o", "json", "--prometheus", tmp_path / name)
        assert done.code in (0, 1), done.err
        assert (tmp_path / name).is_symlink()
        text = done.out if name == "stdout" else (tmp_path / "page").read_text()
        assert "rocketmq_consumer_lag_messages{" in text
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="Invalid argument"):
        replace_file(str(tmp_path / "pipe"), b"x", keep=False)


def test_a_file_that_cannot_be_written(target: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    done = rmqtool("group", "lag", target, "--prometheus", tmp_path / "folder")
    assert done.code not in (0, 1)
    assert "Traceback" not in done.err
    assert os.listdir(tmp_path) == ["folder"]
