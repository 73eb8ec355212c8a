"""Dead letters of a live cluster are given back once: run twice, killed anywhere, with brokers that do not answer."""

import asyncio
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.declare import body_of
from formats.message.properties import UNIQ_KEY, build
from formats.message.read import Record
from formats.remoting import headers as h
from formats.remoting.bodies import LockRequest
from formats.remoting.codes import RequestCode as C
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue
from rmqtool.admin.live import questions, requeue, requeue_lock
from rmqtool.admin.live.questions import Session
from rmqtool.admin.live.queues import LiveQueue, LiveQueues
from rmqtool.admin.target import parse_target
from rmqtool.client.cluster.answers import header_from
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.remoting.errors import NoAnswer
from tests.admin.test_failures import namesrv_of
from tests.admin.test_several_brokers import namesrv_of as namesrv_with
from tests.amounts import by_turns
from tests.cli.running import RMQTOOL, ROOT, Result, rmqtool
from tests.client.peers import serving
from tests.interop.serving import CLUSTER, NAME, Serving

GROUP, RETRY = "lab-consumer", "%RETRY%lab-consumer"
COUNT = 16  # dead letters of the example


@pytest.fixture(params=["4.9", "5.3"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Serving]:
    shutil.copytree(ROOT / "examples" / "store", tmp_path / "store")
    with Serving(tmp_path / "store", "--engine", request.param) as running:
        yield running


def target_of(served: Serving) -> str:
    return f"rocketmq://{served.namesrv}/{CLUSTER}"


def give_back(target: str, *args: str) -> tuple[Result, list[dict[str, Any]]]:
    done = rmqtool("dlq", "requeue", target, GROUP, *args, "-o", "ndjson")
    return done, [json.loads(line) for line in done.out.splitlines()]


def messages(target: str, topic: str) -> int:
    done = rmqtool("topic", "list", target, topic, "--system", "-o", "json")
    return int(json.loads(done.out)[0]["messages"])


def test_each_is_given_back_once(served: Serving) -> None:
    target = target_of(served)
    before = messages(target, RETRY)
    done, rows = give_back(target, "--dry-run")
    assert (done.code, {row["state"] for row in rows}, len(rows)) == (1, {"to-do"}, COUNT)
    assert give_back(target)[0].code == 4, "without a terminal and --yes"
    assert messages(target, RETRY) == before
    done, (row,) = give_back(target, "--yes", "--id", rows[3]["msgId"])
    assert (done.code, row["state"], row["targetTopic"]) == (0, "done", RETRY)
    done, rows = give_back(target, "--yes")
    assert done.code == 0, done.err
    assert [row["state"] for row in rows].count("done") == COUNT - 1
    assert messages(target, RETRY) == before + COUNT
    for args in (("--yes",), ("--yes", "--to", "origin"), ("--dry-run",)):
        done, rows = give_back(target, *args)
        assert (done.code, {row["state"] for row in rows}) == (0, {"before"}), "nor to both"
    assert messages(target, RETRY) == before + COUNT


def test_what_is_given_back(served: Serving) -> None:
    target = target_of(served)
    letter = json.loads(rmqtool("dlq", "export", target, "--limit", "1", "--body", "base64").out.splitlines()[0])
    done, (row,) = give_back(target, "--yes", "--to", "origin", "--id", letter["msgId"])
    assert done.code == 0, done.err
    place = (row["targetTopic"], str(row["targetQueueId"]), str(row["targetQueueOffset"]))
    assert place[0] == letter["originTopic"]
    (sent,) = [
        json.loads(line)
        for line in rmqtool(
            "query-offset", target, *place, "--max-msgs", "1", "-o", "ndjson", "--body", "base64"
        ).out.splitlines()
    ]
    for name in ("msgId", "keys", "tags", "body", "bornTimestamp", "flag"):
        assert sent[name] == letter[name], name
    assert sent["reconsumeTimes"] == 0
    assert sent["properties"]["REQUEUED_FROM"] == row["deadLetterId"]
    assert not {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DELAY", "REAL_TOPIC"} & sent["properties"].keys()


class Killed(BaseException):
    """The end of a process."""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_and_run_again(moment: str, served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    target, send = target_of(served), requeue.LiveRequeue._send
    before, count = messages(target, RETRY), 0

    async def killed(self: Any, *args: Any) -> Any:
        nonlocal count
        count += 1
        if count == 5 and moment == "before":
            raise Killed
        sent = await send(self, *args)
        if count == 5:
            raise Killed
        return sent

    with monkeypatch.context() as patch:
        patch.setattr(requeue.LiveRequeue, "_send", killed)
        with pytest.raises(Killed):
            give_back(target, "--yes")
    assert give_back(target, "--yes")[0].code == 0
    assert messages(target, RETRY) == before + COUNT


def test_an_answer_that_is_lost(served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker has stored it, and nobody knows."""
    target, call = target_of(served), Cluster.call
    before, lost = messages(target, RETRY), list[Command]()

    async def lose(self: Cluster, address: str, request: Command, *more: Any) -> Command:
        answer = await call(self, address, request, *more)
        if request.code == C.SEND_MESSAGE_V2 and not lost:
            lost.append(answer)
            raise NoAnswer(f"{address}: no answer")
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(Cluster, "call", lose)
        done, rows = give_back(target, "--yes")
    assert done.code == 1
    assert [row["state"] for row in rows].count("unknown") == 1
    done, rows = give_back(target, "--yes")
    assert (done.code, {row["state"] for row in rows}) == (0, {"before"})
    assert messages(target, RETRY) == before + COUNT


@by_turns(3)
@pytest.mark.parametrize("failing", ["gone", "silent", "refusing", "wrong"])
def test_nothing_is_sent_where_a_broker_does_not_answer(
    failing: str, served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "TIMEOUT", 2.0)
    target = target_of(served)
    before = messages(target, RETRY)
    with serving(namesrv_of(served.broker, failing)) as namesrv:
        done, _rows = give_back(f"rocketmq://{namesrv}", "--yes")
    assert done.code == 3, done.err
    assert "nothing is given back" in done.err
    assert messages(target, RETRY) == before


@pytest.fixture
def two(served: Serving, tmp_path: Path) -> Iterator[tuple[dict[str, str], str]]:
    """The addresses of two brokers, and a dead letter of the first whose original message the second has."""
    made = rmqtool("init", str(tmp_path / "other"), "--engine", "4.9")
    assert made.code == 0, made.err
    with Serving(tmp_path / "other", "--engine", "4.9") as other:
        addresses = {"lab-a": served.broker, "lab-b": other.broker}
        letter = asyncio.run(_dead_letter(addresses))
        yield addresses, letter


async def _dead_letter(addresses: dict[str, str]) -> str:
    """Send a message to the second broker, and its dead letter to the first; returns the id."""
    async with Cluster(ClientOptions(namesrv=addresses["lab-a"])) as cluster:

        async def send(address: str, topic: str, properties: dict[str, str]) -> h.Sent:
            header = h.Send(
                producer_group="p", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=0,
                sys_flag=0, born_timestamp=1, flag=0, properties=build(properties).decode(), reconsume_times=0,
                unit_mode=False, batch=False,
            )  # fmt: skip
            answer = await cluster.call(address, cluster.request(C.SEND_MESSAGE_V2, header, b"body"), 10)
            assert answer.code == 0, answer.remark
            return header_from(h.Sent, answer, address)

        unique = "0A000001000018B4AAC21ED0C8640000"
        sent = await send(addresses["lab-b"], "Orders", {UNIQ_KEY: unique})
        origin = {"RETRY_TOPIC": "Orders", "ORIGIN_MESSAGE_ID": sent.msg_id, UNIQ_KEY: unique}
        await send(addresses["lab-a"], f"%DLQ%{GROUP}", origin)
        return unique


@by_turns(3)
@pytest.mark.parametrize("then", ["origin", "retry"])
def test_a_broker_that_is_away_may_have_what_was_given_back(then: str, two: tuple[dict[str, str], str]) -> None:
    addresses, letter = two
    everyone, first = ({name: {0: addresses[name]} for name in names} for names in (addresses, ["lab-a"]))
    with serving(namesrv_with(everyone)) as namesrv:
        done, (row,) = give_back(f"rocketmq://{namesrv}", "--yes", "--to", "origin", "--id", letter)
        assert (row["state"], row["targetBrokerName"]) == ("done", "lab-b"), done.err
    with serving(namesrv_with(first)) as namesrv:
        for args in (("--dry-run",), ("--yes",)):
            done, (row,) = give_back(f"rocketmq://{namesrv}", *args, "--to", then, "--id", letter)
            assert (done.code, row["state"]) == (1, "refused"), done.err
            assert addresses["lab-b"] in row["reason"]
        named = ("--dry-run", "--to", then, "--id", letter, "--gone", addresses["lab-b"])
        assert give_back(f"rocketmq://{namesrv}", *named)[1][0]["state"] == "to-do"
    with serving(namesrv_with(everyone)) as namesrv:
        done, (row,) = give_back(f"rocketmq://{namesrv}", "--yes", "--to", then, "--id", letter)
        assert (done.code, row["state"]) == (0, "before")


def test_a_name_server_that_was_just_started_does_not_hide_a_broker(two: tuple[dict[str, str], str]) -> None:
    addresses, letter = two
    brokers = {name: {0: address} for name, address in addresses.items()}
    with serving(namesrv_with(brokers)) as whole, serving(namesrv_with({"lab-a": brokers["lab-a"]})) as new:
        targets = [f"rocketmq://{whole},{new}", f"rocketmq://{new},{whole}"]
        for number in range(8):  # clients begin with any of them
            _done, (row,) = give_back(targets[number % 2], "--yes", "--to", "origin", "--id", letter)
            assert (row["state"], row.get("targetBrokerName") or "lab-b") == ("before" if number else "done", "lab-b")


def test_two_runs_at_the_same_time(served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is stopped in the middle while the second begins."""
    target, send = target_of(served), requeue.LiveRequeue._send
    before, begun, go_on = messages(target, RETRY), threading.Event(), threading.Event()

    async def slow(self: Any, *args: Any) -> Any:
        if not begun.is_set():
            begun.set()
            await asyncio.to_thread(go_on.wait, 30)
        return await send(self, *args)

    monkeypatch.setattr(requeue.LiveRequeue, "_send", slow)
    command = [*RMQTOOL, "dlq", "requeue", target, GROUP, "--yes", "-o", "ndjson"]
    with ThreadPoolExecutor() as pool:
        first = pool.submit(give_back, target, "--yes")
        assert begun.wait(30)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as second:
            assert second.stderr is not None
            assert any("waiting for its lock" in line for line in second.stderr)
            assert messages(target, RETRY) == before
            go_on.set()
            rows = [json.loads(line) for line in second.communicate(timeout=90)[0].splitlines()]
        assert first.result()[0].code == 0
    assert (second.returncode, {row["state"] for row in rows}) == (0, {"before"})
    assert messages(target, RETRY) == before + COUNT


def test_a_lock_that_stays(served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody renews it, and it is not waited for any longer than such a lock lasts."""
    monkeypatch.setattr(requeue_lock, "_LIFE", 1.0)
    target = target_of(served)
    before = messages(target, RETRY)
    queue = MessageQueue(f"%DLQ%{GROUP}", NAME, 0)

    async def take() -> None:
        async with Cluster(ClientOptions(namesrv=served.namesrv)) as cluster:
            body = body_of(LockRequest("rmqtool-requeue", "another", [queue]))
            await cluster.ask(served.broker, cluster.request(C.LOCK_BATCH_MQ, h.Empty(), body))

    asyncio.run(take())
    done, rows = give_back(target, "--yes")
    assert (done.code, rows) == (3, [])
    assert "another run gives dead letters of lab-consumer back" in done.err
    assert messages(target, RETRY) == before


def test_queues_are_looked_through_together(served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pull waits until those of all four queues are in flight."""
    pull, waiting, together = LiveQueues._pull, set[int](), asyncio.Event()

    async def wait(self: LiveQueues, queue: LiveQueue, offsets: range) -> list[Record]:
        waiting.add(queue.queue_id)
        if len(waiting) == 4:
            together.set()
        async with asyncio.timeout(20):
            await together.wait()
        return await pull(self, queue, offsets)

    monkeypatch.setattr(LiveQueues, "_pull", wait)
    with Session(parse_target(target_of(served)), pytest.fail) as session:
        queues = LiveQueues(session, pytest.fail)
        records = list(queues.records_from(0, queues.queues_of("Orders")))
        assert queues.whole
    assert len({record.physical_offset for record in records}) == 420
