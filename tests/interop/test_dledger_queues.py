"""A real 5.3.3 broker in DLedger mode, alone on a member's directory: queues that its start cuts, and rebuilt ones."""

import json
import shutil
import socket
import time
from collections import Counter
from pathlib import Path

import pytest

from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests import roles
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.interop.broker import Broker

MAX_OFFSET, MIN_OFFSET = 30, 31  # codes of requests
_DISPATCHED = 3  # s, in which a new leader has committed its log and put it into queues

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("broker-5.3.3")]
_OF_BROKERS = ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_", "rmq_sys_", "%DLQ%")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def served_by(broker: Broker, node: roles.Node) -> dict[tuple[str, int], int]:
    """How many messages the broker serves of every queue that the log has messages of."""
    broker.boot(node.store, node.settings | {"dLegerPeers": f"n0-127.0.0.1:{free_port()}", "preferredLeaderId": ""})
    try:
        time.sleep(_DISPATCHED)
        served = {}
        for topic, queue_id in in_log(node):
            place = {"topic": topic, "queueId": str(queue_id)}
            low, end = (
                int(broker.ask("request", code=code, fields=place)["fields"]["offset"])
                for code in (MIN_OFFSET, MAX_OFFSET)
            )
            served[topic, queue_id] = end - low
        return served
    finally:
        broker.stop()


def in_log(node: roles.Node) -> Counter[tuple[str, int]]:
    """Number of messages of each queue in the log; their queue offsets begin at 0."""
    items = CommitLog(StoreLayout(str(node.store), load(str(node.conf)))).walk()
    keys = [(item.record.topic.decode(), item.record.queue_id) for item in items if isinstance(item, LocatedRecord)]
    return Counter(key for key in keys if not key[0].startswith(_OF_BROKERS))


@by_turns(23)
@pytest.mark.parametrize(
    "queues", ["as they are", "committed before", "committed behind", "rebuilt", "lost", "damaged"]
)
def test_a_start_after_a_kill(queues: str, broker_5: Broker, tmp_path: Path) -> None:
    """It cuts what the plan says, and nothing of queues that rebuild made; it makes few of lost queues again."""
    node = roles.unpack(roles.DLEDGER, "n0", tmp_path)
    logged = in_log(node)
    if queues.startswith("committed"):  # a start goes on there, and makes later entries again
        index = 320 if queues.endswith("before") else 326
        (node.store / "dledger-n0" / "checkpoint").write_text(f"committedIndex={index}\nendIndex=328\n")
    elif queues == "damaged":
        roles.damage_last_file(node)
    elif queues != "as they are":
        shutil.rmtree(node.store / "consumequeue")
    if queues == "rebuilt":
        result = rmqtool("rebuild", node.store, "consumequeue", "--yes", *node.options())
        assert result.code == 0, result.err
    plan = json.loads(rmqtool("recover", node.store, "--dry-run", *node.options(), "--output", "json").out)
    unserved = {(row["topic"], row["queueId"]): row["messages"] for row in plan["dledger"]["unserved"]}
    served = served_by(broker_5, node)
    delivered = in_log(node) - logged  # delayed messages that are due by now
    for key, messages in logged.items():
        assert 0 <= served[key] - (messages - unserved.get(key, 0)) <= delivered[key], key
    expected = {"as they are": 5, "committed behind": 3, "lost": 187, "damaged": 46}
    assert sum(unserved.values()) == expected.get(queues, 0)
