"""What a live broker removes: shown first, with what groups have not read; read back; never undone."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.declare import body_of, read_body
from formats.remoting.bodies import KVTable, TopicStats
from formats.remoting.codes import RequestCode as C
from formats.remoting.frame import Command
from formats.remoting.shapes import TopicOffset
from rmqtool.admin.changes import cleaning_plans, run
from tests.admin.relaying import Changes, relay
from tests.cli.running import Result, rmqtool
from tests.client.peers import serving
from tests.conftest import Unpacked
from tests.interop.serving import Serving

CLEANING = C.CLEAN_EXPIRED_CONSUMEQUEUE, C.CLEAN_UNUSED_TOPIC, C.DELETE_EXPIRED_COMMITLOG
FILE = 49152  # bytes; there are four


@pytest.fixture(scope="module")
def store(golden: Unpacked, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files, which have all expired, and groups that have read a part."""
    store = tmp_path_factory.mktemp("cleaning") / "store"
    shutil.copytree(golden("clean"), store)
    offsets = {"TopicA@reader": {"0": 0, "1": 5}, "TopicB@done": {str(queue): 1000 for queue in range(4)}}
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return store


@pytest.fixture(scope="module")
def broker(store: Path) -> Iterator[str]:
    conf = store.parent / "broker.conf"
    conf.write_text("fileReservedTime=1\n")
    with Serving(store, "--broker-conf", str(conf)) as served:
        yield served.broker


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(run, "PATIENCE", 0.5)
    monkeypatch.setattr(cleaning_plans, "_ROUND", 0.5)


def clean(broker: str, changes: Changes | None, *args: str) -> Result:
    with serving(relay(broker, lambda _request: False, changes=changes, ignores=CLEANING)) as namesrv:
        return rmqtool("cluster", "clean", f"rocketmq://{namesrv}", *args)


class Removing:
    """A broker that does what it is told, at the first request of a kind."""

    def __init__(self, code: C, start: int = 0) -> None:
        self._code, self._start = code, start
        self.removed = 0

    def __call__(self, request: Command, answer: Command) -> Command:
        if request.code == self._code:
            self.removed += 1
        elif request.code == C.GET_BROKER_RUNTIME_INFO and self.removed:
            table = {**read_body(KVTable, answer.body).table, "commitLogMinOffset": str(self._start)}
            return replace(answer, body=body_of(KVTable(table)))
        elif request.code == C.GET_TOPIC_STATS_INFO and self._code == C.CLEAN_EXPIRED_CONSUMEQUEUE:
            ranges = read_body(TopicStats, answer.body).offset_table
            end = 0 if self.removed else 9
            changed = {
                queue: TopicOffset(0, end, -1) if (queue.topic, queue.queue_id) == ("TopicA", 1) else known
                for queue, known in ranges.items()
            }
            return replace(answer, body=body_of(TopicStats(changed)))
        return answer


def rows(result: Result) -> list[dict[str, Any]]:
    changes: list[dict[str, Any]] = json.loads(result.out)["changes"]
    return changes


def test_the_beginning_of_the_log(broker: str) -> None:
    planned = clean(broker, None, "log", "--dry-run", "-o", "json")
    assert planned.code == 1
    (row,) = rows(planned)
    assert (row["kind"], row["before"], row["after"], row["state"]) == ("log-start", 0, 3 * FILE, "pending")
    assert "lab-a: 3 files, 147456 bytes, with 414 messages of 3 topics" in planned.err
    assert "of TopicA that group reader has not consumed would go; --accept-loss removes them" in planned.err
    assert "group done" not in planned.err
    removing = Removing(C.DELETE_EXPIRED_COMMITLOG, 3 * FILE)
    refused = clean(broker, removing, "log", "--yes")
    assert (refused.code, removing.removed) == (4, 0), refused.err
    done = clean(broker, removing, "log", "--yes", "--accept-loss", "-o", "json")
    assert (done.code, removing.removed, rows(done)[0]["state"]) == (0, 1, "done"), done.err
    assert "undo" not in done.err


def test_a_broker_that_removes_less(broker: str) -> None:
    done = clean(broker, Removing(C.DELETE_EXPIRED_COMMITLOG, FILE), "log", "--yes", "--accept-loss", "-o", "json")
    assert (done.code, rows(done)[0]["state"]) == (1, "other")
    assert f"the log begins at {FILE}; brokers remove at most 10 files" in done.err
    done = clean(broker, None, "log", "--yes", "--accept-loss", "-o", "json")
    assert (done.code, rows(done)[0]["state"]) == (1, "not-done")


def test_queues_whose_messages_are_gone(broker: str) -> None:
    removing = Removing(C.CLEAN_EXPIRED_CONSUMEQUEUE)
    done = clean(broker, removing, "queues", "--yes", "-o", "json")
    assert (done.code, removing.removed) == (0, 1), done.err
    (row,) = rows(done)
    assert (row["name"], row["before"], row["after"], row["state"]) == ("TopicA 1", 9, None, "done")
    assert "begins at offset 0 again, and has offsets of reader" in done.err


def test_queues_of_topics_without_settings(broker: str) -> None:
    class Forgetful(Removing):
        """Without the settings of a topic, in which a group has offsets."""

        def __call__(self, request: Command, answer: Command) -> Command:
            if request.code == C.GET_ALL_TOPIC_CONFIG:
                table = json.loads(answer.body)
                del table["topicConfigTable"]["TopicA"]
                return replace(answer, body=json.dumps(table).encode())
            if request.code == C.QUERY_CONSUME_QUEUE and self.removed:
                return replace(answer, code=1, remark="0@TopicA is not exist!", body=b"")
            return super().__call__(request, answer)

    removing = Forgetful(C.CLEAN_UNUSED_TOPIC)
    planned = clean(broker, removing, "unused", "--dry-run", "-o", "json")
    (row,) = rows(planned)
    assert (planned.code, row["kind"], row["name"], row["after"]) == (1, "queues", "TopicA", None)
    assert row["before"] == 187, "also queues in which no group has an offset"
    assert "which brokers do not list" in planned.err
    assert clean(broker, removing, "unused", "--yes").code == 4
    done = clean(broker, removing, "unused", "--yes", "--accept-loss", "-o", "json")
    assert (done.code, removing.removed, rows(done)[0]["state"]) == (0, 1, "done"), done.err


def test_nothing_to_remove(broker: str) -> None:
    for what in ("queues", "unused"):
        done = clean(broker, None, what, "--yes")
        assert (done.code, "nothing to change" in done.err) == (0, True), done.err


def test_undo_goes_past_what_cannot_come_back(broker: str) -> None:
    with serving(relay(broker, lambda _request: False, ignores=CLEANING)) as namesrv:
        target = f"rocketmq://{namesrv}"
        assert rmqtool("group", "create", target, "fresh", "--yes").code == 0
        assert rmqtool("cluster", "clean", target, "log", "--yes", "--accept-loss").code == 1
        undone = rmqtool("undo", target, "--yes", "-o", "json")
    assert (undone.code, {row["name"] for row in rows(undone)}) == (0, {"fresh"}), undone.err
