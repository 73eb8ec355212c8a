"""Topics deleted by a real broker: check names them, and advises nothing that brings them back."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.interop import broker as brokers
from tests.interop.broker import SMALL_FILES, Broker
from tests.interop.engine import NEWEST
from tests.interop.serving import CLUSTER

pytestmark = pytest.mark.interop
CONFIG = {
    **SMALL_FILES, "brokerFastFailureEnable": "false",
    "timerWheelEnable": "true", "maxHashSlotNum": "200", "maxIndexNum": "800",
}  # fmt: skip


@pytest.fixture(
    params=[pytest.param(v, marks=pytest.mark.xdist_group(f"broker-{v}")) for v in (*brokers.VERSIONS, NEWEST)]
)
def each_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of every release."""
    if request.param != NEWEST:
        yield request.getfixturevalue(f"broker_{request.param[0]}")
        return
    if reason := brokers.available(NEWEST):
        pytest.skip(reason)
    with Broker(NEWEST) as running:
        yield running


@by_turns(23)
def test_a_topic_that_a_broker_has_deleted(each_broker: Broker, tmp_path: Path) -> None:
    store = tmp_path / "store"
    each_broker.boot(store, CONFIG)
    for topic in ("Kept", "Gone"):
        each_broker.ask("topic", topic=topic)
    for n in range(12):
        for topic in ("Kept", "Gone"):
            each_broker.ask("send", topic=topic, keys=f"k{n}", queueId=n % 4)
    answer = each_broker.ask("admin", arguments=["deleteTopic", "-c", CLUSTER, "-t", "Gone"], seconds=60)["said"]
    assert "success" in answer
    each_broker.ask("send", topic="Kept", keys="last", queueId=0)  # a start of 4.9 queues again what is behind it
    time.sleep(2)  # a 5.5 that stops before all is dispatched leaves a checkpoint of zeros
    for again in (True, False):
        each_broker.stop()
        result = rmqtool("check", store, "-o", "ndjson")
        told = {row["code"]: row for row in map(json.loads, result.out.splitlines())}
        assert result.code == 0, result.out
        assert (told["topic-deleted"]["topic"], told["topic-deleted"]["count"]) == ("Gone", 12)
        report = rmqtool("check", store)
        assert (report.code, "rebuild" in report.out) == (0, False), report.out
        if again:  # it stays deleted
            each_broker.boot(store, CONFIG)


def make_topic_again(broker: Broker) -> None:
    """Send 24 messages to each of two topics, delete one, make it again with 3 messages, and stop the broker."""
    for topic in ("Kept", "Gone"):
        broker.ask("topic", topic=topic)
        for n in range(24):
            broker.ask("send", topic=topic, keys=f"k{n}", queueId=n % 4)
    broker.ask("admin", arguments=["deleteTopic", "-c", CLUSTER, "-t", "Gone"], seconds=60)
    broker.ask("topic", topic="Gone")
    for n in range(3):
        broker.ask("send", topic="Gone", keys=f"new{n}", queueId=n % 2)
    time.sleep(2)  # as above
    broker.stop()


@by_turns(23)
def test_a_topic_that_a_broker_has_deleted_and_made_again(each_broker: Broker, tmp_path: Path) -> None:
    """Its messages from before are nowhere; after a crash that loses its queues a broker serves what came since."""
    store = tmp_path / "store"
    each_broker.boot(store, CONFIG)
    make_topic_again(each_broker)
    result = rmqtool("check", store, "-o", "ndjson")
    told = {row["code"]: row for row in map(json.loads, result.out.splitlines())}
    assert result.code == 0, result.out
    assert (told["topic-remade"]["topic"], told["topic-remade"]["count"]) == ("Gone", 24)
    shutil.rmtree(store / "consumequeue" / "Gone")
    (store / "checkpoint").unlink()
    (store / "abort").touch()
    result = rmqtool("recover", store, "--yes", "--accept-loss")
    assert result.code == 0, result.out + result.err
    each_broker.boot(store, CONFIG)
    pulls = [each_broker.ask("pull", group="g", topic="Gone", queueId=n, offset=0, count=32) for n in range(4)]
    assert [[message["keys"] for message in pull["messages"]] for pull in pulls] == [["new0", "new2"], ["new1"], [], []]
    each_broker.stop()
    assert rmqtool("check", store).code == 0


@by_turns(23)
def test_a_topic_made_again_with_queues_in_rocksdb(broker_5: Broker, tmp_path: Path) -> None:
    """A broker serves what came since, and check names what came before."""
    store = tmp_path / "store"
    # the checkpoint gets its times at such a flush only
    config = {**CONFIG, "storeType": "defaultRocksDB", "flushPhysicQueueThoroughInterval": "500"}
    broker_5.boot(store, config)
    make_topic_again(broker_5)
    for again in (True, False):
        result = rmqtool("check", store, "-o", "ndjson")
        told = {row["code"]: row for row in map(json.loads, result.out.splitlines())}
        assert result.code == 0, result.out
        assert (told["topic-remade"]["topic"], told["topic-remade"]["count"]) == ("Gone", 24)
        if again:
            broker_5.boot(store, config)
            pulls = [broker_5.ask("pull", group="g", topic="Gone", queueId=n, offset=0, count=32) for n in range(4)]
            keys = [[message["keys"] for message in pull["messages"]] for pull in pulls]
            assert keys == [["new0", "new2"], ["new1"], [], []]
            broker_5.stop()
