"""``dump-to-parquet`` of a live cluster: each message once, whatever happens between two runs, and within one."""

import json
import random
import signal
import subprocess
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from rmqtool import NewMessage, Store, read_arrow
from rmqtool.admin.target import parse_target
from rmqtool.analytics.dump import live, tasks
from rmqtool.analytics.dump.live import dump_cluster_to_parquet
from rmqtool.analytics.dump.live_task import LiveTask
from rmqtool.analytics.dump.report import DumpOptions, DumpReport
from rmqtool.analytics.live import queues
from rmqtool.analytics.table.schema import MESSAGE_TABLE
from rmqtool.cli.tables.dump import _reading
from rmqtool.client import Message
from rmqtool.client.cluster import attempts
from rmqtool.client.sync import Producer
from rmqtool.errors import BadValue, Refused, RmqError
from rmqtool.testing import TestBroker, broker
from tests.amounts import by_turns, some
from tests.cli.running import RMQTOOL, ROOT, rmqtool
from tests.client.test_made_again import CONF, TOPIC, another_store, fill
from tests.model.neighbours import Neighbour

OF_FILES = ("sourceFile", "fileOffset", "broker")


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    """A broker with the topics Orders (200 messages in four queues) and Other."""
    with broker() as running, Producer(running.namesrv) as producer:
        queues = producer.queues("Orders")
        for number in range(200):
            producer.send(Message("Orders", b"%d" % number, tags="t", keys=[f"k{number}"]), queue=queues[number % 4])
            if number == 100:
                time.sleep(0.05)
        producer.send(Message("Other", b"long " * 5000))
        yield running


@pytest.fixture
def neighbour(tmp_path: Path) -> Iterator[Neighbour]:
    """A broker on a store with the messages 0 to 39 in four queues."""
    fill(tmp_path / "store", 0, 40)
    with Neighbour(tmp_path / "store", {**CONF, "brokerName": "a"}) as running:
        yield running


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "PAUSES", (0.05,) * 30)


def dump(namesrv: str, out: Path, **options: Any) -> DumpReport:
    """Dump in this process; with ``since_last`` unless told otherwise."""
    given = {"since_last": True, "runner": "local", **options}
    return dump_cluster_to_parquet(parse_target(f"rocketmq://{namesrv}"), str(out), DumpOptions(**given))


def rows(out: Path) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = table(out).to_pylist()
    return files


def table(out: Path) -> pa.Table:
    return ds.dataset(out, format="parquet", partitioning="hive").to_table()


def numbers(out: Path) -> list[int]:
    return sorted(int(row["body"]) for row in rows(out))


# -- rows --------------------------------------------------------------------------------------------------------------


def test_rows_are_those_of_the_store(served: TestBroker, tmp_path: Path) -> None:
    report = dump(served.namesrv, tmp_path / "out", since_last=False)
    assert (report.rows, report.records, report.lost, report.position) == (201, 201, (), None)
    written = table(tmp_path / "out")
    assert written.schema.equals(MESSAGE_TABLE)
    stored = read_arrow(served.store, topic=["Orders", "Other"]).read_all().to_pylist()
    rows_read = written.to_pylist()
    assert {row["broker"] for row in rows_read} == {"broker-a"}
    for each in (rows_read, stored):
        each.sort(key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))
        for row in each:
            for name in OF_FILES:
                row.pop(name, None)
    assert rows_read == stored


@pytest.mark.parametrize(
    ("topics", "expected"),
    [(("Orders",), {"Orders"}), (("Ord*", "nothing"), {"Orders"}), (("Ot[h]er", "Orders"), {"Orders", "Other"})],
)
def test_topics_and_partitions(topics: tuple[str, ...], expected: set[str], served: TestBroker, tmp_path: Path) -> None:
    report = dump(served.namesrv, tmp_path / "out", topics=topics, partition_by=("topic",), codec="snappy")
    result = [path.name for path in (tmp_path / "out").iterdir() if path.is_dir()]
    assert {name.partition("=")[2] for name in result} == expected
    assert report.rows == sum({"Orders": 200, "Other": 1}[topic] for topic in expected)


def test_times(served: TestBroker, tmp_path: Path) -> None:
    stored = read_arrow(served.store, topic=["Orders"]).read_all().to_pylist()
    times = sorted(int(row["storeTimestamp"].timestamp() * 1000) for row in stored)
    since, until = times[50], times[150]
    dump(served.namesrv, tmp_path / "out", since_last=False, topics=("Orders",), since=since, until=until)
    assert len(rows(tmp_path / "out")) == sum(since <= at < until for at in times)


def test_long_queues_are_divided(served: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_MOST_RECORDS", 7)
    assert dump(served.namesrv, tmp_path / "out", topics=("Orders",)).splits == 32
    assert numbers(tmp_path / "out") == list(range(200))


def test_nothing_to_write_is_one_file_without_rows(served: TestBroker, tmp_path: Path) -> None:
    dump(served.namesrv, tmp_path / "out", topics=("Orders",), since_last=False, until=1000)
    assert table(tmp_path / "out").num_rows == 0
    assert table(tmp_path / "out").schema.equals(MESSAGE_TABLE)


@pytest.mark.parametrize("options", [{"where": "true", "runner": "spark"}, {"start_offset": 5}, {"stop_offset": 5}])
def test_options_of_a_log(options: dict[str, Any], served: TestBroker, tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="is for the log of a store, not for a live cluster"):
        dump(served.namesrv, tmp_path / "out", since_last=False, **options)
    assert not (tmp_path / "out").exists()


# -- what follows ------------------------------------------------------------------------------------------------------


def test_each_run_adds_what_is_new(neighbour: Neighbour, tmp_path: Path) -> None:
    out, store = tmp_path / "out", tmp_path / "store"
    assert [dump(neighbour.namesrv, out).rows for _ in range(2)] == [40, 0]
    neighbour.end(signal.SIGTERM)
    fill(store, 40, 17)
    neighbour.start()
    report = dump(neighbour.namesrv, out)
    assert (report.rows, report.lost) == (17, ())
    assert numbers(out) == list(range(57))


def test_other_options_than_before(served: TestBroker, tmp_path: Path) -> None:
    dump(served.namesrv, tmp_path / "out", topics=("Orders",))
    with pytest.raises(Refused, match="was begun with topics"):
        dump(served.namesrv, tmp_path / "out", topics=("Other",))


def test_outputs_of_stores_and_clusters_are_apart(served: TestBroker, tmp_path: Path) -> None:
    assert rmqtool("dump-to-parquet", served.store, tmp_path / "one", "--runner", "local", "--since-last").code == 0
    with pytest.raises(Refused, match="was written from a store, not from a live cluster"):
        dump(served.namesrv, tmp_path / "one")
    dump(served.namesrv, tmp_path / "two")
    result = rmqtool("dump-to-parquet", served.store, tmp_path / "two", "--runner", "local", "--since-last")
    assert (result.code, "has no position to continue from" in result.err) == (4, True)


@pytest.mark.parametrize("offsets", [{"Orders": 5}, {"Orders": {"broker-a": {"0": {"offset": -1}}}}])
def test_positions_that_are_none(offsets: Any, served: TestBroker, tmp_path: Path) -> None:
    dump(served.namesrv, tmp_path / "out")
    (manifest,) = (path for path in (tmp_path / "out").iterdir() if path.suffix == ".json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"offsets": offsets}))
    with pytest.raises(Refused, match="has no positions of queues"):
        dump(served.namesrv, tmp_path / "out")


@pytest.mark.parametrize("count", [20, 40, 400], ids=["shorter", "as long", "longer"])
def test_a_topic_that_was_made_again(count: int, neighbour: Neighbour, tmp_path: Path) -> None:
    """Nothing of the new queues is taken for what follows in the old ones."""
    dump(neighbour.namesrv, tmp_path / "out")
    another_store(neighbour, tmp_path / "store", count)
    for _ in range(2):
        with pytest.raises(Refused, match=r"Again queue \d of a: .*dump the cluster to another directory"):
            dump(neighbour.namesrv, tmp_path / "out")
    assert numbers(tmp_path / "out") == list(range(40))
    dump(neighbour.namesrv, tmp_path / "new")
    assert numbers(tmp_path / "new") == list(range(1000, 1000 + count))


def test_messages_that_expired_between_runs(neighbour: Neighbour, tmp_path: Path) -> None:
    """They are named, and the next run does not name them again."""
    store = tmp_path / "store"
    dump(neighbour.namesrv, tmp_path / "out")
    neighbour.end(signal.SIGTERM)
    with Store(store, write=True, broker_conf=CONF) as opened:
        opened.append_many([NewMessage(topic=TOPIC, queue_id=n % 4, body=b"%-400d" % n) for n in range(40, 20_040)])
    for folder in (store / "commitlog", *(store / "consumequeue" / TOPIC).iterdir()):
        min(folder.iterdir()).unlink()
    neighbour.start()
    args = ["dump-to-parquet", f"rocketmq://{neighbour.namesrv}", tmp_path / "out", "--runner", "local"]
    result = rmqtool(*args, "--since-last", "-o", "json")
    report = json.loads(result.out)
    assert (result.code, len(report["lost"])) == (1, 4)
    assert result.err.count("messages have expired") == 4
    assert "failOnDataLoss" not in result.err
    written = numbers(tmp_path / "out")
    assert written == [*range(40), *range(written[40], 20_040)]
    again = rmqtool(*args, "--since-last", "-o", "json")
    assert (again.code, json.loads(again.out)["rows"]) == (0, 0)


def test_a_broker_that_is_away(neighbour: Neighbour, tmp_path: Path) -> None:
    """That no route names its queues proves nothing: they keep their place."""
    dump(neighbour.namesrv, tmp_path / "out")
    neighbour.end(signal.SIGKILL)
    with pytest.raises(RmqError):
        dump(neighbour.namesrv, tmp_path / "out")
    fill(tmp_path / "store", 40, 10)
    neighbour.start()
    assert dump(neighbour.namesrv, tmp_path / "out").rows == 10
    assert numbers(tmp_path / "out") == list(range(50))


# -- kills -------------------------------------------------------------------------------------------------------------


@by_turns(3)
@pytest.mark.parametrize("seed", range(some(1, 12)))
def test_killed_at_any_time(seed: int, tmp_path: Path) -> None:
    """Dumps are killed while messages arrive; in the end the output has each of them once."""
    rng = random.Random(seed)
    sent, over = Counter[int](), Event()
    out = tmp_path / "out"
    with broker() as running:

        def send() -> None:
            with Producer(running.namesrv) as producer:
                while not over.is_set():
                    number = len(sent)
                    producer.send(Message("Orders", b"%d" % number))
                    sent[number] += 1

        sender = Thread(target=send)
        sender.start()
        args = ["dump-to-parquet", f"rocketmq://{running.namesrv}", str(out), "--runner", "local", "--since-last"]
        try:
            for _ in range(8):
                with subprocess.Popen([*RMQTOOL, *args], cwd=ROOT, stderr=subprocess.PIPE) as process:
                    try:
                        process.communicate(timeout=rng.uniform(0.3, 1.5))
                    except subprocess.TimeoutExpired:
                        process.send_signal(rng.choice((signal.SIGKILL, signal.SIGTERM)))
        finally:
            over.set()
            sender.join()
        for _ in range(2):  # the first may continue a killed run, which ends where the queues ended when it began
            dump(running.namesrv, out)
    assert Counter(numbers(out)) == sent


def test_what_is_waited_for_is_a_note(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Orders queue 1 of a: its broker is away; it is tried again for 55 more seconds"
    with _reading(None):
        monkeypatch.setattr(warnings, "filters", [])
        queues.warn(text)
        monkeypatch.undo()
    assert capsys.readouterr().err == f"{text}\n"


def kill_in_task(monkeypatch: pytest.MonkeyPatch, number: int) -> list[int]:
    """Have the run interrupted by the task of a number; returns the list of tasks that begin."""
    begun: list[int] = []
    true = tasks.run_live

    def run(job: tasks.Job, task: LiveTask) -> tasks.Done | tasks.SplitFailure:
        begun.append(task.number)
        if task.number == number and begun.count(number) == 1:
            raise KeyboardInterrupt
        return true(job, task)

    monkeypatch.setattr(tasks, "run_live", run)
    return begun


@pytest.mark.parametrize("since_last", [True, False])
def test_a_killed_run_is_continued(
    since_last: bool, neighbour: Neighbour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, options = tmp_path / "out", {"topics": (TOPIC,), "since_last": since_last}
    begun = kill_in_task(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        dump(neighbour.namesrv, out, **options)
    with Producer(neighbour.namesrv) as producer:
        for number in range(40, 50):
            producer.send(Message(TOPIC, b"%d" % number))
    report = dump(neighbour.namesrv, out, **options)
    assert (report.resumed, begun) == (2, [0, 1, 2, 2, 3])
    assert numbers(out) == list(range(40))
    if since_last:
        assert dump(neighbour.namesrv, out, **options).rows == 10
        assert numbers(out) == list(range(50))


def test_a_killed_run_of_other_options_is_not(
    neighbour: Neighbour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    begun = kill_in_task(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        dump(neighbour.namesrv, out, topics=(TOPIC,))
    assert dump(neighbour.namesrv, out, topics=(TOPIC,), codec="none").resumed == 0
    assert (begun, numbers(out)) == ([0, 1, 2, 0, 1, 2, 3], list(range(40)))


def test_a_topic_made_again_after_a_kill(neighbour: Neighbour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the killed run had planned is not there any more: it fails, and the next run begins with the new topic."""
    out = tmp_path / "out"
    kill_in_task(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        dump(neighbour.namesrv, out, topics=(TOPIC,))
    another_store(neighbour, tmp_path / "store", 40)
    with pytest.raises(RmqError, match=TOPIC):
        dump(neighbour.namesrv, out, topics=(TOPIC,))
    assert dump(neighbour.namesrv, out, topics=(TOPIC,)).resumed == 0
    assert numbers(out) == list(range(1000, 1040))


# -- Spark -------------------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_through_spark(served: TestBroker, tmp_path: Path) -> None:
    report = dump(served.namesrv, tmp_path / "out", runner="spark", partition_by=("topic", "day"))
    assert report.spark is not None
    assert report.rows == 201
    assert dump(served.namesrv, tmp_path / "out", partition_by=("topic", "day")).rows == 0
    assert Counter(row["topic"] for row in rows(tmp_path / "out")) == {"Orders": 200, "Other": 1}
