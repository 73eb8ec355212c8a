"""Recall of timer messages by unmodified 5.3.3 clients: the same on a real broker and on ours, in turn on one store,
and by our own client.
"""

import base64
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from formats.message.properties import parse
from rmqtool.services.timers.timers import Timers
from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.paths import StoreLayout
from tests.amounts import by_turns
from tests.interop.broker import Broker
from tests.interop.pairs import SETTINGS, Pair, Pairs
from tests.interop.serving import Serving
from tests.interop.sides import records
from tests.interop.test_client_duties import calls_back
from tests.interop.test_serve import make
from tests.services.build import log_of, never
from tests.store.findings import check_store

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("broker-5.3.3")]
_TIMER = "timerWheelEnable=true\nrecallMessageEnable=true\nmappedFileSizeTimerLog=52000\n"
_TOO_FAR = 4 * 86_400_000  # ms


def _send(broker: Broker, key: str, at: int) -> dict[str, Any]:
    named = {"TIMER_DELIVER_MS": str(at)}
    sent: dict[str, Any] = broker.ask("send", topic="Later", keys=key, queueId=0, properties=named)
    return sent


def _words(handle: str) -> list[str]:
    return base64.urlsafe_b64decode(handle).decode().split(" ")


def _handle(*args: str) -> str:
    return base64.urlsafe_b64encode(" ".join(args).encode()).decode()


def recalls(broker: Broker) -> Any:
    make(broker, "Later")
    at = int(time.time() * 1000) // 1000 * 1000 + 9_000
    sent = [_send(broker, f"k{number}", at + number) for number in range(6)]
    told = []
    for row in sent:
        version, topic, name, out, key = _words(row["handle"])
        told.append((version, topic, name, int(out) - at, key == row["msgId"]))
    assert broker.ask("recall", topic="Later", handle=sent[2]["handle"])["id"] == sent[2]["msgId"]
    assert broker.ask("recall", topic="Later", handle=sent[4]["handle"])["id"] == sent[4]["msgId"]
    asked = [
        ("Later", "?"),
        ("Later", _handle("v2", "Later", "lab-a", str(at), "X")),
        ("Later", _handle("v1", "Later", "lab-a", str(at))),
        ("Later", _handle("v1", "Other", "lab-a", str(at), "X")),
        ("Other", _handle("v1", "Other", "lab-a", str(at), "X")),
        ("Later", _handle("v1", "Later", "lab-b", str(at), "X")),
        ("Later", _handle("v1", "Later", "lab-a", "soon", "X")),
        ("Later", _handle("v1", "Later", "lab-a", str(at - 60_000), "X")),
        ("Later", _handle("v1", "Later", "lab-a", str(at + _TOO_FAR), "X")),
        ("Later", _handle("v1", "Later", "lab-a", str(at), "unknown")),
        ("Later", _handle("v1", "Later", "lab-a", str(at), "unknown", "more").rstrip("=")),
    ]
    answers = []
    for topic, handle in asked:
        fields = {"topic": topic, "recallHandle": handle, "producerGroup": "g"}
        answer = broker.ask("request", code=370, fields=fields)
        remark = answer.get("remark") if answer["code"] else None  # a broker's says there that it has set no code
        answers.append((answer["code"], remark, sorted(answer["fields"].items())))
    broker.ask("consume", group="late", topic="Later", failures=0, most=1, level=0)
    seen = broker.wait_for(lambda rows: len(rows) >= 4, 60)
    at_once = broker.ask("send", topic="Later", keys="now", queueId=0)
    return told, answers, sorted(row["keys"] for row in seen), at_once.get("handle")


def _marks(store: Path) -> list[Any]:
    """Stored records of recalls, without fields that depend on the clock and the sender's ids."""
    result = []
    for record in records(store):
        named = parse(record.properties)
        if named.get("TAGS") == "_RECALL_TAG_":
            deliver, out, key = int(named.pop("TIMER_DELIVER_MS")), int(named.pop("TIMER_OUT_MS")), named["UNIQ_KEY"]
            known = key == "unknown" or (named["TIMER_DEL_UNIQKEY"] == f"Later+{key}" and deliver == out + 1)
            for name in ("UNIQ_KEY", "TIMER_DEL_UNIQKEY", "BORN_TIMESTAMP"):
                named.pop(name)
            result.append((record.topic, record.queue_id, record.body, record.flag, record.sys_flag, known, named))
    return result


@by_turns(23)
def test_the_same_recalls_have_the_same_results(broker_5: Broker, clients_5: Broker, tmp_path: Path) -> None:
    with closing(Pair(broker_5, clients_5, tmp_path, SETTINGS + _TIMER)) as pair:
        wanted, got = pair.run(recalls)
    assert [pair for pair in zip(got[1], wanted[1], strict=True) if pair[0] != pair[1]] == []
    assert got == wanted
    assert wanted[2] == ["k0", "k1", "k3", "k5"]
    assert _marks(tmp_path / "ours") == _marks(tmp_path / "real")
    assert len(_marks(tmp_path / "ours")) == 4


def test_without_the_setting_nothing_is_called_back(broker_5: Broker, clients_5: Broker, pairs: Pairs) -> None:
    def refused(broker: Broker) -> Any:
        fields = {"topic": "Later", "recallHandle": "?", "producerGroup": "g"}
        answer = broker.ask("request", code=370, fields=fields)
        return answer["code"], answer["remark"]

    wanted, got = pairs.run(broker_5, clients_5, refused)
    assert got == wanted == (16, "recall failed, operation is forbidden")


@by_turns(23)
def test_what_was_called_back_here_is_not_delivered_there(broker_5: Broker, tmp_path: Path) -> None:
    """Ours stores the messages and a recall, a real broker delivers; our own client recalls from ours, too."""
    store, conf = tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text(SETTINGS + _TIMER)
    with Serving(store, "--create", "--engine", "5.3", "--broker-conf", str(conf)) as serving:
        broker_5.connect(serving.namesrv, serving.broker)
        make(broker_5, "Waiting")
        calls_back(serving.namesrv)
        make(broker_5, "Later")
        at = int(time.time() * 1000) + 10_000
        sent = [_send(broker_5, f"k{number}", at) for number in range(3)]
        broker_5.ask("recall", topic="Later", handle=sent[1]["handle"])
        broker_5.stop()
        assert serving.end()[0] == 0
    waiting = {row.keys: row.recalled for row in Timers(log_of(store), at - 5_000, never).pending()}
    assert waiting == {"k0": False, "k1": True, "k2": False}
    assert [finding for finding in check_store(StoreLayout(str(store))) if is_problem(finding)] == []
    broker_5.boot(store, dict(line.split("=") for line in conf.read_text().split()))
    broker_5.ask("consume", group="late", topic="Later", failures=0, most=1, level=0)
    seen = broker_5.wait_for(lambda rows: len(rows) >= 2, 60)
    broker_5.stop()
    assert sorted(row["keys"] for row in seen) == ["k0", "k2"]
