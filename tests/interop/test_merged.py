"""Stores that salvage made of several copies, or of a damaged log and its tier, on real brokers; and copies that are
served as one to a real consumer.
"""

import hashlib
import re
import subprocess
from pathlib import Path
from random import Random

import pytest

from formats.message.bodies import decompress
from rmqtool.services.comparison.replicas import rank_copies
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.salvage.carve import Salvage
from tests import copies, roles
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.interop import broker as brokers
from tests.interop import engine
from tests.interop.broker import Broker
from tests.interop.serving import Serving
from tests.interop.test_roles import MAX_OFFSET, pull_all
from tests.readme import MANUAL

pytestmark = pytest.mark.interop
_OF_BROKERS = ("SCHEDULE", "RMQ_SYS", "rmq_sys")
_FORM = (
    "messageStorePlugIn", "tiered", "enableDLeger", "dLeger", "preferredLeaderId", "brokerRole", "brokerId",
    "enableControllerMode", "controllerAddr", "haListenPort", "haMasterAddress", "inSync", "allAck", "storePath",
)  # fmt: skip
Bodies = dict[tuple[str, int], dict[int, str]]  # of a queue: offset to digest of the body


def plain(settings: dict[str, str]) -> dict[str, str]:
    """The settings of a broker that do not depend on the form of its store."""
    return {name: value for name, value in settings.items() if not name.startswith(_FORM)}


def bodies_of(layout: StoreLayout) -> Bodies:
    """Every message that consumers can get from a log."""
    result: Bodies = {}
    for item in CommitLog(layout).walk():
        if isinstance(item, LocatedRecord) and not item.record.sys_flag & 4:
            record = item.record
            topic = record.topic.decode()
            if not topic.startswith(_OF_BROKERS):
                digest = hashlib.sha256(decompress(record.body, record.sys_flag)).hexdigest()
                result.setdefault((topic, record.queue_id), {})[record.queue_offset] = digest
    return result


def serves(broker: Broker, store: Path, settings: dict[str, str], wanted: Bodies, **more: str) -> None:
    """Boot a broker on a store, and compare what it serves, message by message.

    Args:
        more: settings in addition to those that do not depend on the form of the store.
    """
    broker.boot(store, plain(settings) | more)
    try:
        for (topic, queue_id), messages in sorted(wanted.items()):
            records = pull_all(broker, topic, queue_id, max(messages) + 1)
            served = {
                offset: hashlib.sha256(decompress(record.body, record.sys_flag)).hexdigest()
                for offset, record in records.items()
            }
            # delayed messages that are due by now may follow
            assert {offset: served.get(offset) for offset in messages} == messages, (topic, queue_id)
            place = {"topic": topic, "queueId": str(queue_id)}
            end = broker.ask("request", code=MAX_OFFSET, fields=place)["fields"]["offset"]
            assert int(end) > max(messages)
    finally:
        broker.stop()


CASES = {
    "dledger-5.3.3": roles.DLEDGER, "controller-5.3.3": roles.CONTROLLER, "slave-4.9.8": roles.SLAVE,
    "dledger-4.9.8": roles.OLD_DLEDGER,
}  # fmt: skip


@by_turns(4)
@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("case", [pytest.param(c, marks=pytest.mark.xdist_group(f"broker-{c[-5:]}")) for c in CASES])
def test_a_broker_serves_what_was_merged(
    case: str, damaged: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """All copies, whole or each damaged in other places, as one store on the broker that wrote them."""
    nodes = roles.unpack_all(case, tmp_path)
    if damaged:
        rng = Random(case)
        for node in nodes:
            log = CommitLog(StoreLayout(str(node.store), load(str(node.conf))))
            pieces = [
                copies.Piece(
                    Path(item.file.path).relative_to(node.store), item.at,
                    bytes(item.file.map()[item.at : item.at + item.record.total_size]), item.record,
                )
                for item in log.walk()
                if isinstance(item, LocatedRecord)
            ]  # fmt: skip
            copies.garble(rng, node.store, pieces)
            copies.zero(rng, node.store, pieces)
    layouts = [StoreLayout(str(node.store), load(str(node.conf))) for node in nodes]
    ranked = rank_copies(layouts, lambda _text: None)
    report = Salvage(ranked[0], str(tmp_path / "new"), others=ranked[1:]).run()
    wanted = bodies_of(StoreLayout(str(tmp_path / "new")))
    assert report.messages > 300
    whole = [bodies_of(layout) for layout in layouts]
    assert {digest for queue in wanted.values() for digest in queue.values()} >= {
        digest for bodies in whole for queue in bodies.values() for digest in queue.values()
    }
    broker = request.getfixturevalue(f"broker_{case.rpartition('-')[2][0]}")
    serves(broker, tmp_path / "new", nodes[0].settings, wanted)


@by_turns(4)
@pytest.mark.xdist_group("broker-5.3.3")
def test_a_broker_serves_what_came_from_a_tier(broker_5: Broker, tmp_path: Path) -> None:
    """The newest file of the log is lost, and a record in another one rotten."""
    node = roles.unpack(roles.TIERED, "a", tmp_path)
    files = sorted((node.store / "commitlog").iterdir())
    files[-1].unlink()
    data = bytearray(files[0].read_bytes())
    data[2000:2400] = bytes(400)
    files[0].write_bytes(data)
    report = Salvage(StoreLayout(str(node.store), load(str(node.conf))), str(tmp_path / "new")).run()
    assert report.takenFromTier > 229
    serves(broker_5, tmp_path / "new", node.settings, bodies_of(StoreLayout(str(tmp_path / "new"))))


@by_turns(11)
@pytest.mark.xdist_group("broker-5.3.3")
def test_a_java_consumer_drains_copies_served_as_one(tmp_path: Path) -> None:
    """Each copy lacks a file that another one has; the page's program gets every message once."""
    if reason := brokers.available("5.3.3"):
        pytest.skip(reason)
    page = (MANUAL / "emergencies.md").read_text(encoding="utf-8")
    program = re.findall(r"^```java\n(.*?)^```$", page, re.M | re.S)[0]
    (tmp_path / "Drain.java").write_text(program)
    nodes = roles.unpack_all(roles.NEW_SLAVE, tmp_path)
    wanted = bodies_of(StoreLayout(str(nodes[0].store), load(str(nodes[0].conf))))
    for number, node in enumerate(nodes):
        sorted((node.store / "commitlog").iterdir())[number].unlink()
    for node in nodes:
        assert rmqtool("check", node.store, *node.options()).code == 1
    topic = "Invoices"
    command = [engine._java_tool("java"), f"-Duser.home={tmp_path}", "-cp", brokers._classpath("5.3.3"), "Drain.java"]
    with Serving(nodes[0].store, str(nodes[1].store), "--read-only") as serving:
        for _start in range(3):
            result = subprocess.run(
                [*command, serving.namesrv, topic], cwd=tmp_path, capture_output=True, text=True, timeout=300,
                check=False,
            )  # fmt: skip
            # on a busy machine, Java's client closes its own connection to the name server between two requests
            if result.stdout or "RemotingSendRequestException" not in result.stderr:
                break
        assert result.returncode == 0, result.stderr
        assert serving.end()[0] == 0
    lines = [line.split()[1:3] for line in result.stdout.splitlines() if line.startswith(f"{topic} ")]
    places = sorted((int(queue), int(offset)) for queue, offset in lines)
    assert places == sorted(
        (queue, offset) for (name, queue), outcome in wanted.items() if name == topic for offset in outcome
    )
