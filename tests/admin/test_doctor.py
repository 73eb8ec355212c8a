"""``doctor``: each of its findings on a cluster that has just that fault, and none on one that has none."""

import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats.config.files_of_5 import LogicQueueMapping, TopicQueueMapping
from formats.fastjson.declare import body_of
from formats.remoting.bodies import ClusterInfo, KVTable
from formats.remoting.codes import RequestCode as C
from formats.remoting.shapes import BrokerData
from rmqtool.admin.doctor import run
from rmqtool.admin.doctor.codes import CODES
from rmqtool.admin.doctor.static_topics import judge
from rmqtool.admin.live import questions
from tests.admin.conftest import two_stores
from tests.cli.running import RMQTOOL, ROOT, rmqtool
from tests.client.peers import peer, serving
from tests.interop.serving import Serving

GROUP = "lab-consumer"
Brokers = Mapping[str, Mapping[int, str]]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Two brokers: of one nothing is wrong."""
    sound, ill = two_stores(tmp_path_factory.mktemp("doctor"), 3)
    offsets = ill / "config" / "consumerOffset.json"
    offsets.write_text(offsets.read_text().replace("{0:20", "{0:3"))
    conf = sound.parent / "broker.conf"  # the disk of this machine is no matter of these tests
    conf.write_text("diskMaxUsedSpaceRatio=200\ndiskSpaceWarningLevelRatio=200\n")
    served = "--read-only", "--broker-conf", str(conf)
    with Serving(sound, *served) as well, Serving(ill, *served) as other:
        yield {"well": well.broker, "ill": other.broker}


@asynccontextmanager
async def namesrv_of(brokers: Brokers) -> AsyncIterator[str]:
    async with peer() as namesrv:
        info = ClusterInfo({name: BrokerData("C", name, dict(ids)) for name, ids in brokers.items()}, {"C": [*brokers]})
        namesrv.replies[C.GET_BROKER_CLUSTER_INFO] = lambda request: request.response(body=body_of(info))
        yield namesrv.address


@asynccontextmanager
async def broker_with(runtime: Mapping[str, str], settings: str = "brokerName=b\n") -> AsyncIterator[str]:
    """A broker that tells its state and its settings, and nothing else."""
    async with peer() as made:
        made.replies[C.GET_BROKER_RUNTIME_INFO] = lambda request: request.response(body=body_of(KVTable(dict(runtime))))
        made.replies[C.GET_BROKER_CONFIG] = lambda request: request.response(body=settings.encode())
        yield made.address


def examine(target: str, code: int | None = None) -> list[dict[str, Any]]:
    done = rmqtool("doctor", target, "-o", "json")
    assert code in (None, done.code), (done.out, done.err)
    assert "Traceback" not in done.err
    shown: list[dict[str, Any]] = json.loads(done.out)
    for row in shown:
        assert row["fix"]
        assert not {"TOPIC", "GROUP"} & {*row["fix"].split()} or row["topic"] is None or row["group"] is None
    return shown


def codes(rows: list[dict[str, Any]]) -> list[str]:
    return [row["code"] for row in rows]


def test_nothing_is_wrong(stores: dict[str, str]) -> None:
    with serving(namesrv_of({"well": {0: stores["well"]}})) as namesrv:
        assert examine(f"rocketmq://{namesrv}", 0) == []
        done = rmqtool("doctor", f"rocketmq://{namesrv}")
        assert "nothing was found" in done.err
    assert rmqtool("doctor", str(ROOT / "examples" / "store")).code == 2


def test_topics_and_groups(stores: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_MANY_RETRIES", 10)
    monkeypatch.setattr(run, "_RECENT", 1 << 60)
    monkeypatch.setattr(run, "_ENOUGH", 20)
    monkeypatch.setattr(run, "_UNEVEN", 5)
    with serving(namesrv_of({name: {0: address} for name, address in stores.items()})) as namesrv:
        rows = {(row["code"], row["topic"]): row for row in examine(f"rocketmq://{namesrv}", 1)}
    (reads,) = [row for (code, topic), row in rows.items() if code == "topic-reads-less"]
    assert (reads["server"], reads["topic"]) == ("ill", "Orders")
    assert reads["fix"].startswith("rmqtool topic update TARGET Orders --read-queues 4")
    assert rows["topic-differs", "Orders"]["actual"] == "perm: ill R, well RW"
    assert rows["group-offline", None]["group"] == GROUP
    assert rows["retries-many", f"%RETRY%{GROUP}"]["actual"] == "17 messages wait"
    assert rows["dead-letters-grow", f"%DLQ%{GROUP}"]["group"] == GROUP
    assert rows["queues-uneven", "Batched"]["actual"].startswith("queue 0 has 20 of 40")
    severities = [row["severity"] for row in rows.values()]
    assert severities == sorted(severities, key=("error", "warning", "info").index)


def runtime(**more: str) -> dict[str, str]:
    now = int(time.time() * 1000)
    return {
        "runtime": "[ 0 days, 1 hours, 0 minutes, 0 seconds ]", "bootTimestamp": str(now - 3_600_000),
        "commitLogMaxOffset": "1000", "brokerVersionDesc": "V4_9_8", **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("code", "table", "settings"),
    [
        ("clock-skew", {"bootTimestamp": "1795000000000"}, ""),
        ("slave-behind", {"commitLogMaxOffset": str(-(1 << 30))}, ""),
        ("disk-full", {"commitLogDiskRatio": "0.95"}, ""),
        ("disk-full", {"commitLogDiskRatio_/data": "0.81"}, "diskSpaceWarningLevelRatio=80\n"),
        ("disk-filling", {"commitLogDiskRatio": "0.80"}, ""),
        ("setting-unknown", {}, "mapedFileSizeCommitLog=1024\n"),
        (None, {}, "isEnableBatchPush=false\n"),
        (None, {"commitLogDiskRatio": "0.10"}, "mappedFileSizeCommitLog=1024\n"),
    ],
)
def test_what_a_broker_tells(code: str | None, table: dict[str, str], settings: str, stores: dict[str, str]) -> None:
    with ExitStack() as stack:
        address = stack.enter_context(serving(broker_with(runtime(**table), "brokerName=well\n" + settings)))
        namesrv = stack.enter_context(serving(namesrv_of({"well": {0: stores["well"], 1: address}})))
        rows = examine(f"rocketmq://{namesrv}", 0 if code is None else 1)
    assert codes(rows) == ([code] if code is not None else [])
    assert not rows or rows[0]["server"] == "well"


def test_servers(stores: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "TIMEOUT", 2.0)
    monkeypatch.setattr(run, "TIMEOUT", 2.0)
    well = {"well": {0: stores["well"]}}
    with ExitStack() as stack:
        first = stack.enter_context(serving(namesrv_of({**well, "gone": {0: "127.0.0.1:1"}})))
        second = stack.enter_context(serving(namesrv_of({**well, "slave": {1: stores["ill"]}})))
        rows = examine(f"rocketmq://{first},{second},127.0.0.1:2", 1)
        assert {row["server"] for row in rows if row["code"] == "namesrv-differ"} == {first, second}
        assert [row["server"] for row in rows if row["code"] == "namesrv-silent"] == ["127.0.0.1:2"]
        for target in (f"rocketmq://{first}", f"rocketmq://{second}"):
            rows = examine(target)
            servers = {row["code"]: row["server"] for row in rows}
            if target.endswith(first):
                assert servers["broker-silent"] == "gone"
            else:
                assert servers["broker-no-master"] == "slave"


A, B = (LogicQueueMapping(gen=gen, broker_name=f"lab-{name}", logic_offset=gen) for gen, name in enumerate("ab"))
OPEN = replace(B, logic_offset=-1)


@pytest.mark.parametrize(
    ("lab_a", "lab_b", "masters", "expected"),
    [
        ({0: (A, B)}, {0: (A, B)}, "ab", {}),
        ({0: (A,)}, {}, "ab", {}),
        ({}, {}, "ab", {"static-incomplete": "queue 0 of 1: on no broker"}),
        ({0: (A, B)}, None, "a", {"static-broker-away": "leads queue 0"}),
        ({0: (A, B)}, {0: (A, B)}, "b", {"static-broker-away": "holds earlier messages of queue 0"}),
        ({0: (A, B)}, {}, "ab", {"static-unfinished": "queue 0 moves to it"}),
        ({0: (A, OPEN)}, {0: (A, OPEN)}, "ab", {"static-unfinished": "queue 0 moves to it"}),
        ({0: (A,)}, {1: (B,)}, "ab", {"static-differs": "queues: lab-a 1, lab-b 2"}),
    ],
)
def test_static_topics(
    lab_a: Mapping[int, Any], lab_b: Mapping[int, Any] | None, masters: str, expected: Mapping[str, str]
) -> None:
    """Brokers that do not answer are no proof that a queue is nowhere."""
    parts = {
        name: TopicQueueMapping(topic="T", total_queues=2 if 1 in hosted else 1, broker_name=name, hosted_queues=hosted)
        for name, hosted in (("lab-a", lab_a), ("lab-b", lab_b))
        if hosted is not None
    }
    findings = judge(parts, (), [f"lab-{name}" for name in masters], complete=True)
    assert [(finding.code, finding.actual) for finding in findings] == [*expected.items()]
    unknown = judge(parts, (), [f"lab-{name}" for name in masters], complete=False)
    assert [finding.code for finding in unknown] == [code for code in expected if code != "static-incomplete"]


def test_versions_of_a_static_topic() -> None:
    parts = {
        name: TopicQueueMapping(topic="T", total_queues=1, broker_name=name, epoch=epoch, hosted_queues={0: (A,)})
        for name, epoch in (("lab-a", 1), ("lab-b", 2))
    }
    findings = judge(parts, ["lab-c"], ["lab-a", "lab-b", "lab-c"], complete=True)
    assert [(finding.actual, finding.broker) for finding in findings] == [
        ("epoch: lab-a 1, lab-b 2", None), ("it is an ordinary topic there", "lab-c")
    ]  # fmt: skip


def wait_for(enough: Callable[[], bool]) -> None:
    for _ in range(200):
        if enough():
            return
        time.sleep(0.2)
    assert enough()


def test_clients_that_want_different_things(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "store", tmp_path / "store")
    with ExitStack() as stack:
        served = stack.enter_context(Serving(tmp_path / "store"))
        target = f"rocketmq://{served.namesrv}"
        args = [*RMQTOOL, "consume", "--namesrv", served.namesrv, "Orders", "--group", "two", "--ack", "--follow"]
        for tag in ("paid", "created"):
            process = stack.enter_context(
                subprocess.Popen([*args, "--tag", tag], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            stack.callback(process.kill)
        wait_for(lambda: len(json.loads(rmqtool("client", "list", target, "-o", "json", "-g", "two").out)) == 2)
        assert rmqtool("topic", "update", target, "Orders", "--read-queues", "1", "--write-queues", "1", "-y").code == 0
        wait_for(lambda: any(row["code"] == "clients-idle" for row in examine(target)))  # both have shared them again
        rows = {row["code"]: row for row in examine(target) if row["group"] == "two"}
        assert "paid" in rows["group-differs"]["actual"]
        assert "created" in rows["group-differs"]["actual"]
        assert rows["clients-idle"]["actual"] == "2 clients, 1 queue"


def test_every_code_is_provoked_here() -> None:
    text = Path(__file__).read_text()
    assert [code for code in CODES if f'"{code}"' not in text] == []
