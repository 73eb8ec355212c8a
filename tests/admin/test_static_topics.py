"""Static topics of a live cluster: made, given more queues, moved, interrupted and gone on with, shown, undone."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from formats.config.files_of_5 import LogicQueueMapping, TopicQueueMapping
from formats.fastjson.declare import body_of
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from rmqtool.admin.changes import run
from rmqtool.admin.changes.change import ValueChange
from rmqtool.admin.changes.static_topics import StaticTopicParts
from rmqtool.admin.live.questions import Node, Questions, ask
from rmqtool.admin.target import parse_target
from rmqtool.rules.static_topics import chains_of, check_ranges, round_up, share_out
from tests.cli.running import Result, rmqtool
from tests.interop.serving import CLUSTER, Serving
from tests.server.serving import send


@dataclass
class Lab:
    """Two brokers of 5.3, lab-a and lab-b."""

    target: str
    folder: Path

    def rows(self, topic: str) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for line in rmqtool("static-topic", "show", self.target, topic, "-o", "ndjson").out.splitlines()
        ]

    def leaders(self, topic: str) -> dict[int, str]:
        return {row["queueId"]: row["brokerName"] for row in self.rows(topic) if row["leads"]}

    def ask(self, broker: str, code: int, header: Any, body: bytes = b"") -> Command:
        return self.call(broker, Command(code, fields=to_fields(header), body=body))

    def call(self, broker: str, request: Command) -> Command:
        async def work(questions: Questions) -> Command:
            [address] = [node.address for node in await questions.nodes() if node.name == broker]
            return await questions.cluster.call(address, request)

        return ask(parse_target(self.target), pytest.fail, work)

    def send(self, broker: str, topic: str, queue_id: int) -> h.Sent:
        answer = self.call(broker, Command(C.SEND_MESSAGE_V2, fields=send(topic, queue_id), body=b"x"))
        assert answer.code == 0, answer.remark
        fields = answer.fields or {}
        return h.Sent(msg_id="", queue_id=int(fields["queueId"]), queue_offset=int(fields["queueOffset"]))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("static")
    with ExitStack() as stack:
        first = stack.enter_context(Serving(folder / "a", "--engine", "5.3", "--create"))
        command = [sys.executable, "-m", "rmqtool.main", "serve", str(folder / "b"), "--output", "json", "--create"]
        command += ["--name", "lab-b", "--cluster", CLUSTER, "--listen", "127.0.0.1:0", "--namesrv", first.namesrv]
        second = stack.enter_context(
            subprocess.Popen([*command, "--engine", "5.3"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        )
        stack.callback(second.kill)
        assert second.stdout is not None
        assert second.stdout.readline()
        yield Lab(f"rocketmq://{first.namesrv}/{CLUSTER}", folder)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(run, "PATIENCE", 1.0)


def changed(*args: str) -> Result:
    done = rmqtool(*args, "--yes")
    assert done.code == 0, (done.out, done.err)
    return done


def test_it_is_made_given_queues_moved_and_shown(lab: Lab) -> None:
    create = "static-topic", "create", lab.target, "Ledger"
    planned = rmqtool(*create, "--queues", "4", "--dry-run")
    assert planned.code == 1
    assert lab.rows("Ledger") == []
    changed(*create, "--queues", "4")
    assert rmqtool(*create, "--queues", "4", "--dry-run").code == 0
    assert sorted(lab.leaders("Ledger").values()) == ["lab-a", "lab-a", "lab-b", "lab-b"]
    refused = rmqtool(*create, "--queues", "3", "--yes")
    assert (refused.code, "never loses one" in refused.err) == (4, True)
    changed(*create, "--queues", "6", "--broker", "lab-b")
    assert list(lab.leaders("Ledger").values()).count("lab-b") == 4
    before = lab.leaders("Ledger")
    sent = [lab.send(before[queue], "Ledger", queue) for queue in range(6)]
    assert [(each.queue_id, each.queue_offset) for each in sent] == [(queue, 0) for queue in range(6)]

    done = changed("static-topic", "remap", lab.target, "Ledger", "--broker", "lab-a")
    assert "4 queues move" in done.err
    assert "undo" not in done.err
    assert set(lab.leaders("Ledger").values()) == {"lab-a"}
    for queue in range(6):
        offset = lab.send("lab-a", "Ledger", queue).queue_offset
        assert offset == (1 if before[queue] == "lab-a" else 10_000)
    changed("static-topic", "remap", lab.target, "Ledger")
    assert sorted(lab.leaders("Ledger").values()).count("lab-b") == 3
    assert rmqtool("static-topic", "remap", lab.target, "Ledger", "--dry-run").code == 0
    for queue, ranges in chains(lab, "Ledger").items():
        check_ranges(ranges)
        for item in ranges:
            assert item.logic_offset >= 0, queue

    listed = [json.loads(line) for line in rmqtool("static-topic", "list", lab.target, "-o", "ndjson").out.splitlines()]
    [row] = [row for row in listed if row["topic"] == "Ledger"]
    assert (row["totalQueues"], row["queues"], row["leaders"]) == (6, 6, "lab-a:3,lab-b:3")
    stored = [
        json.loads(line)
        for line in rmqtool("static-topic", "show", str(lab.folder / "a"), "Ledger", "-o", "ndjson").out.splitlines()
    ]
    ours = [each for each in stored if each["brokerName"] == "lab-a" and each["leads"]]
    assert len(ours) == 3
    assert rmqtool("static-topic", "show", str(lab.folder / "a"), "NoSuch").code == 1


def examine(lab: Lab, topic: str) -> list[str]:
    """The codes that doctor finds for a topic."""
    rows = json.loads(rmqtool("doctor", lab.target, "-o", "json").out)
    return [row["code"] for row in rows if row["topic"] == topic]


def chains(lab: Lab, topic: str) -> dict[int, tuple[LogicQueueMapping, ...]]:
    async def work(questions: Questions) -> list[TopicQueueMapping]:
        from rmqtool.admin.live.static_topics import fetch_part

        parts = [await fetch_part(questions, node, topic) for node in await questions.nodes()]
        return [part.mapping_detail for part in parts if part is not None and part.mapping_detail is not None]

    return chains_of(ask(parse_target(lab.target), pytest.fail, work))


def test_undo_deletes_a_new_topic_and_says_that_a_move_stays(lab: Lab) -> None:
    changed("static-topic", "create", lab.target, "Short", "--queues", "2")
    changed("undo", lab.target)
    assert lab.rows("Short") == []
    routes = rmqtool("topic", "show", lab.target, "Short")
    assert routes.code == 1
    changed("static-topic", "create", lab.target, "Short", "--queues", "2")
    changed("static-topic", "remap", lab.target, "Short", "--broker", "lab-b")
    refused = rmqtool("undo", lab.target, "--yes")
    assert refused.code == 4
    assert "cannot be taken back, as consumers have their offsets; rmqtool static-topic remap moves them" in refused.err


def test_an_ordinary_topic_is_not_taken_for_one(lab: Lab) -> None:
    changed("topic", "create", lab.target, "Plain", "--queues", "2")
    for words in (("create", "--queues", "4"), ("remap",)):
        refused = rmqtool("static-topic", words[0], lab.target, "Plain", *words[1:], "--yes")
        assert (refused.code, "is an ordinary topic on lab-a, lab-b" in refused.err) == (4, True)
    refused = rmqtool("static-topic", "remap", lab.target, "NoSuch", "--yes")
    assert (refused.code, "static-topic create makes it" in refused.err) == (4, True)


@pytest.mark.parametrize("told", [False, True])
def test_a_move_that_was_interrupted_is_finished(told: bool, lab: Lab) -> None:
    """The old leader has let go; the new one knows nothing, or not where its range begins, as after mqadmin."""
    topic = f"Half-{told}"
    changed("static-topic", "create", lab.target, topic, "--queues", "1", "--broker", "lab-a")
    lab.send("lab-a", topic, 0)
    [(_queue, [first])] = chains(lab, topic).items()
    pending = (first, LogicQueueMapping(gen=1, queue_id=0, broker_name="lab-b", logic_offset=-1))
    epoch = 4_000_000_000_000
    for broker in ("lab-a", "lab-b")[: 1 + told]:
        put(lab, broker, 1, pending, topic=topic, epoch=epoch)
    [row] = [row for row in lab.rows(topic) if row["leads"]]
    assert (row["brokerName"], row["logicOffset"]) == ("lab-b", None)
    assert {"static-unfinished"} <= {*examine(lab, topic)} <= {"static-unfinished", "static-differs"}
    changed("static-topic", "remap", lab.target, topic, "--broker", "lab-b")
    assert lab.send("lab-b", topic, 0).queue_offset == 10_000
    assert rmqtool("static-topic", "remap", lab.target, topic, "--broker", "lab-b", "--dry-run").code == 0


def test_a_queue_that_grows_past_the_plan_is_not_moved(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two messages would get one offset. The same command goes on."""
    changed("static-topic", "create", lab.target, "Busy", "--queues", "1", "--broker", "lab-a")
    for _ in range(3):
        lab.send("lab-a", "Busy", 0)
    from rmqtool.admin.changes import static_topic_plans

    with monkeypatch.context() as patched:
        patched.setattr(static_topic_plans, "round_up", lambda _offset, _block: 2)
        refused = rmqtool("static-topic", "remap", lab.target, "Busy", "--broker", "lab-b", "--yes")
    assert refused.code == 1
    assert "queue 0 has grown to 3 meanwhile: run the same again" in refused.out + refused.err
    changed("static-topic", "remap", lab.target, "Busy", "--broker", "lab-b")
    assert lab.send("lab-b", "Busy", 0).queue_offset == 10_000


def test_queues_are_shared_with_few_moves() -> None:
    assert share_out(7, {"a": 5, "b": 2}, ["a", "b"]) == {"a": 4, "b": 3}
    assert share_out(7, {"a": 7}, ["a", "b", "c"]) == {"a": 3, "b": 2, "c": 2}
    assert [round_up(offset, 10) for offset in (0, 4, 5, 10, 14, 15)] == [10, 10, 20, 20, 20, 30]


def test_our_client_reads_and_sends_through_moves(lab: Lab) -> None:
    """Each message once, in order, with the offsets of the topic's queue; the group's offset moves along."""
    topic, namesrv = "Moved", lab.target.removeprefix("rocketmq://").partition("/")[0]
    changed("static-topic", "create", lab.target, topic, "--queues", "2", "--broker", "lab-a")

    def consume(*more: str) -> Result:
        return rmqtool("consume", "--namesrv", namesrv, topic, *more, "-o", "ndjson")

    rows = lab.folder / "rows.ndjson"
    for number, broker in enumerate(("lab-a", "lab-b", "lab-a")):
        if number:
            changed("static-topic", "remap", lab.target, topic, "--broker", broker)
        rows.write_text("".join(json.dumps({"body": f"{number}-{n}"}) + "\n" for n in range(4)))
        sent = rmqtool("send", topic, str(rows), "--namesrv", namesrv)
        assert sent.code == 0, sent.err
        if number == 1:
            first = consume("--group", "g", "--ack", "--from", "earliest")
            assert first.code == 0, first.err
            got = [json.loads(line) for line in first.out.splitlines()]
            assert sorted(row["body"] for row in got) == [f"{a}-{b}" for a in range(2) for b in range(4)]
            assert {row["queueOffset"] for row in got} == {0, 1, 10_000, 10_001}
    again = consume("--group", "g", "--ack")
    assert sorted(json.loads(line)["body"] for line in again.out.splitlines()) == [f"2-{n}" for n in range(4)]
    whole = consume("--from", "earliest")
    assert len(whole.out.splitlines()) == 12


def put(lab: Lab, broker: str, total: int, *chains: tuple[LogicQueueMapping, ...], topic: str, epoch: int = 1) -> None:
    part = TopicQueueMapping(
        topic=topic, total_queues=total, broker_name=broker, epoch=epoch, hosted_queues=dict(enumerate(chains))
    )
    header = h.CreateTopic(
        topic=topic, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6,
        topic_filter_type="SINGLE_TAG", topic_sys_flag=0,
    )  # fmt: skip
    answer = lab.ask(broker, C.UPDATE_AND_CREATE_STATIC_TOPIC, header, body_of(part))
    assert answer.code == 0, answer.remark


@pytest.mark.parametrize("known", [False, True])
def test_a_broker_that_is_away_keeps_its_queues(known: bool, lab: Lab) -> None:
    """Whether another knows that it leads them or not: with a second leader, offsets would be given twice."""
    topic = f"Away-{known}"
    gone = LogicQueueMapping(gen=1, queue_id=0, broker_name="gone", logic_offset=-1)
    first = LogicQueueMapping(gen=0, queue_id=0, broker_name="lab-a", logic_offset=0)
    put(lab, "lab-a", 1, *[(first, gone)] * known, topic=topic)
    for words in (("create", "--queues", "2"), ("create", "--queues", "1"), ("remap",)):
        refused = rmqtool("static-topic", words[0], lab.target, topic, *words[1:], "--yes")
        assert refused.code == 4, (refused.out, refused.err)
        expected = "gone leads queues of it, and is away" if known else "1 queue is on no broker that is there"
        assert expected in refused.err
    assert examine(lab, topic) == ["static-broker-away" if known else "static-incomplete"]


def test_a_creation_that_was_killed_is_finished_by_the_same_command(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its journal tells which brokers were to get a part: they are all there."""
    create = "static-topic", "create", lab.target, "Killed", "--queues", "2"
    assert examine(lab, "Killed") == []
    write = StaticTopicParts.write

    async def write_one(self: StaticTopicParts, questions: Questions, node: Node, change: ValueChange) -> None:
        if node.name == "lab-b":
            raise KeyboardInterrupt
        await write(self, questions, node, change)

    with monkeypatch.context() as patched:
        patched.setattr(StaticTopicParts, "write", write_one)
        rmqtool(*create, "--yes")
    assert set(lab.leaders("Killed").values()) == {"lab-a"}
    assert examine(lab, "Killed") == ["static-incomplete"]
    changed(*create)
    assert examine(lab, "Killed") == []
    assert sorted(lab.leaders("Killed").values()) == ["lab-a", "lab-b"]


def test_commands_for_ordinary_topics_keep_a_static_one_whole(lab: Lab) -> None:
    """Its queues are those of its mapping: no command changes their number, or leaves some of them behind."""
    topic = "Fixed"
    changed("static-topic", "create", lab.target, topic, "--queues", "3")
    declared = lab.folder / "topics.yaml"
    declared.write_text(f"topics:\n  {topic}: {{readQueueNums: 8}}\n")
    before = lab.rows(topic)
    for words in (
        ("topic", "update", lab.target, topic, "--queues", "8"),
        ("topic", "update", lab.target, topic, "--write-queues", "1", "--dry-run"),
        ("apply", lab.target, str(declared), "--dry-run"),
    ):
        refused = rmqtool(*words, *(() if "--dry-run" in words else ("--yes",)))
        assert refused.code == 4, (refused.out, refused.err)
        assert f"{topic} is a static topic: its mapping says how many queues it has" in refused.err
    changed("topic", "perm", lab.target, topic, "R")
    changed("topic", "perm", lab.target, topic, "RW")
    refused = rmqtool("topic", "delete", lab.target, topic, "--broker", "lab-a", "--yes")
    assert (refused.code, "has queues on lab-b: delete it there, too" in refused.err) == (4, True)
    assert lab.rows(topic) == before

    changed("topic", "delete", lab.target, topic)
    assert lab.rows(topic) == []
    changed("undo", lab.target)
    assert lab.rows(topic) == before
    assert [lab.send(broker, topic, queue).queue_id for queue, broker in lab.leaders(topic).items()] == [0, 1, 2]
