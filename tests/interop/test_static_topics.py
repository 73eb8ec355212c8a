"""A static topic on a real broker and ours: made and moved by ``mqadmin`` and by us, read by Java's consumer."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.fields import from_fields, to_fields
from formats.remoting.frame import Command
from rmqtool.admin.live.questions import Questions, ask
from rmqtool.admin.target import parse_target
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.interop import broker as brokers
from tests.interop.broker import SMALL_FILES, Broker
from tests.interop.engine import NEWEST
from tests.server.serving import pull, records, send

pytestmark = pytest.mark.interop
TOPIC, CLUSTER = "Ledger", "LabCluster"
CONFIG = {
    "brokerName": "lab-a", "brokerClusterName": CLUSTER, **SMALL_FILES,
    "brokerFastFailureEnable": "false",
}  # fmt: skip


class Both:
    """The real broker lab-a, ours lab-b, and the real name server."""

    def __init__(self, judge: Broker) -> None:
        self.judge, self.target = judge, f"rocketmq://{judge.namesrv}/{CLUSTER}"

    def call(self, broker: str, request: Command) -> Command:
        """The answer of a broker; a real one asks only now and then where the others are."""
        for _ in range(30):
            answer = self._call(broker, request)
            if "cannot find addr" not in (answer.remark or ""):
                break
            time.sleep(1)
        return answer

    def _call(self, broker: str, request: Command) -> Command:
        async def work(questions: Questions) -> Command:
            [address] = [node.address for node in await questions.nodes() if node.name == broker]
            return await questions.cluster.call(address, request)

        return ask(parse_target(self.target), pytest.fail, work)

    def send(self, broker: str, *bodies: str) -> int:
        """Send to queue 0; returns the offset of the last message in the topic's queue."""
        sent = None
        for body in bodies:
            answer = self.call(broker, Command(C.SEND_MESSAGE_V2, fields=send(TOPIC, 0), body=body.encode()))
            assert answer.code == 0, answer.remark
            sent = from_fields(h.Sent, answer.fields)
            assert sent.queue_id == 0
        assert sent is not None
        return sent.queue_offset

    def read(self, broker: str) -> list[tuple[str, int]]:
        """(body, offset in the topic's queue) of each message of queue 0, through its leader."""
        result, offset, codes = [], 0, {0, 20}
        while True:
            answer = self.call(broker, Command(C.PULL_MESSAGE, fields=pull(offset, TOPIC, 0)))
            if answer.code not in codes:
                assert answer.code == 19, answer.remark
                return result
            pulled = from_fields(h.PullResponse, answer.fields)
            delta = pulled.offset_delta or 0
            result += [(record.body.decode(), record.queue_offset + delta) for record in records(answer.body)]
            assert pulled.next_begin_offset > offset
            offset = pulled.next_begin_offset

    def offset_of(self, broker: str, code: int, header: Any) -> int:
        answer = self.call(broker, Command(code, fields=to_fields(header)))
        assert answer.code == 0, answer.remark
        return from_fields(h.Offset, answer.fields).offset

    def admin(self, *words: str) -> None:
        said = self.judge.ask("admin", arguments=[*words, "-n", self.judge.namesrv], seconds=60)["said"]
        assert "Exception" not in said, said


@pytest.fixture(params=["5.3.3", NEWEST])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Both]:
    if reason := brokers.available(request.param):
        pytest.skip(reason)
    (tmp_path / "a").mkdir()
    with Broker(request.param) as judge:
        judge.boot(tmp_path / "a", CONFIG)
        command = [sys.executable, "-m", "rmqtool.main", "serve", str(tmp_path / "b"), "--output", "json", "--create"]
        command += ["--name", "lab-b", "--cluster", CLUSTER, "--listen", "127.0.0.1:0", "--namesrv", judge.namesrv]
        with subprocess.Popen([*command, "--engine", judge.engine], stdout=subprocess.PIPE) as ours:
            try:
                assert ours.stdout is not None
                assert json.loads(ours.stdout.readline())["broker"]
                yield Both(judge)
            finally:
                ours.terminate()
        judge.stop()


@by_turns(11)
def test_queues_move_between_a_real_broker_and_ours(both: Both) -> None:
    both.admin("updateStaticTopic", "-t", TOPIC, "-qn", "1", "-b", "lab-a")
    assert both.send("lab-a", "one", "two") == 1
    both.admin("remappingStaticTopic", "-t", TOPIC, "-b", "lab-b")
    assert both.send("lab-b", "three") == 10_000
    expected = [("one", 0), ("two", 1), ("three", 10_000)]
    assert both.read("lab-b") == expected  # ours asks the real one

    moved = rmqtool("static-topic", "remap", both.target, TOPIC, "--broker", "lab-a", "--yes")
    assert moved.code == 0, moved.err
    assert both.send("lab-a", "four") == 20_000
    expected.append(("four", 20_000))
    assert both.read("lab-a") == expected  # the real one asks ours
    queue = h.Queue(topic=TOPIC, queue_id=0)
    assert both.offset_of("lab-a", C.GET_MIN_OFFSET, queue) == 0
    assert both.offset_of("lab-a", C.GET_MAX_OFFSET, queue) == 20_001

    group = {"consumer_group": "g", "topic": TOPIC, "queue_id": 0}
    for offset in (1, 10_000, 20_001):  # on the real one, on ours, on the real one
        committed = both.call(
            "lab-a", Command(C.UPDATE_CONSUMER_OFFSET, fields=to_fields(h.Commit(**group, commit_offset=offset)))
        )
        assert committed.code == 0, committed.remark
        assert both.offset_of("lab-a", C.QUERY_CONSUMER_OFFSET, h.GroupQueue(**group)) == offset

    both.admin("remappingStaticTopic", "-t", TOPIC, "-b", "lab-b")
    assert both.send("lab-b", "five") == 30_000
    expected.append(("five", 30_000))
    assert both.read("lab-b") == expected
    assert both.offset_of("lab-b", C.QUERY_CONSUMER_OFFSET, h.GroupQueue(**group)) == 20_001
    both.judge.ask("consume", group="readers", topic=TOPIC, failures=0, most=1, level=0)
    seen = both.judge.wait_for(lambda rows: len(rows) >= 5, 90)
    assert sorted(row["body"] for row in seen) == sorted(body for body, _offset in expected)  # in several threads
    both.admin("topicStatus", "-t", TOPIC)
    both.admin("consumerProgress", "-g", "readers")
