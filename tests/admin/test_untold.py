"""What a broker does not tell is no fact: rows and plans that depend on it have null, or are left out, or refused."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from formats.remoting.codes import RequestCode as C
from tests.admin.relaying import Refuses, about, about_queues_of, pulls_of, relay
from tests.cli.running import ROOT, Result, rmqtool
from tests.client.peers import serving
from tests.conftest import Unpacked
from tests.interop.serving import Serving

HALF, OP, SCHEDULE = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """With transactions of each state, retries, delayed messages and dead letters."""
    folder = tmp_path_factory.mktemp("untold") / "store"
    shutil.copytree(ROOT / "examples" / "store", folder)
    with Serving(folder, "--read-only", "--engine", "5.3") as served:
        yield served.broker


def asked(broker: str, refuses: Refuses, *args: str, at: int = 2) -> tuple[Result, list[dict[str, Any]]]:
    with serving(relay(broker, refuses)) as namesrv:
        result = rmqtool(*args[:at], f"rocketmq://{namesrv}", *args[at:], "-o", "ndjson")
    return result, [json.loads(line) for line in result.out.splitlines()]


def states(rows: list[dict[str, Any]]) -> dict[str, str | None]:
    return {row["msgId"]: row["state"] for row in rows}


def nothing(_request: object) -> bool:
    return False


@pytest.fixture(scope="module")
def broker_5_3(golden: Unpacked, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store of 5.3.3, whose topics include those that end transactions."""
    folder = tmp_path_factory.mktemp("untold") / "store"
    shutil.copytree(golden("broker-5.3.3"), folder)
    with Serving(folder, "--read-only") as served:
        yield served.broker


@pytest.mark.parametrize(
    ("refuses", "unknown"),
    [
        (about(C.QUERY_MESSAGE), {"committed", "rolled-back", "pending", "passed"}),
        (about(C.GET_BROKER_CONFIG), {"committed", "rolled-back", "pending", "passed"}),
        (about_queues_of(OP), {"rolled-back", "pending", "passed"}),
        (pulls_of(OP), {"rolled-back", "pending", "passed"}),
        (about_queues_of("TRANS_CHECK_MAX_TIME_TOPIC"), {"given-up", "pending", "passed"}),
    ],
)
def test_transactions(refuses: Refuses, unknown: set[str], broker_5_3: str) -> None:
    _result, rows = asked(broker_5_3, nothing, "transaction", "list")
    true = states(rows)
    assert {"committed", "rolled-back"} <= set(true.values())
    result, rows = asked(broker_5_3, refuses, "transaction", "list")
    assert result.code == 1
    assert "missing" in result.err
    assert len(rows) == len(true)
    assert states(rows) == {name: None if state in unknown else state for name, state in true.items()}


def test_retries_whose_offsets_are_unknown(broker: str) -> None:
    _result, rows = asked(broker, nothing, "retry", "list")
    assert {row["state"] for row in rows} == {"retried", "dead"}
    with serving(relay(broker, about(C.GET_ALL_DELAY_OFFSET))) as namesrv:
        result = rmqtool("retry", "list", f"rocketmq://{namesrv}", "--state", "scheduled")
    assert (result.code, result.out) == (1, ""), result.err
    assert "offsets of delay levels are missing" in result.err
    with serving(relay(broker, about(C.GET_ALL_CONSUMER_OFFSET), beside=True)) as namesrv:
        result = rmqtool("retry", "list", f"rocketmq://{namesrv}", "-o", "ndjson")
    assert result.code == 1
    of_broker: dict[str, set[str | None]] = {"lab-a": set(), "lab-b": set()}
    for row in map(json.loads, result.out.splitlines()):
        of_broker[row["brokerName"]].add(row["state"])
    assert of_broker == {"lab-a": {None}, "lab-b": {"retried", "dead"}}


def test_delayed_messages_whose_offsets_are_unknown(broker: str) -> None:
    result, rows = asked(broker, about(C.GET_ALL_DELAY_OFFSET), "delay", "due", "--all")
    assert (result.code, rows) == (1, [])
    result, rows = asked(broker, about_queues_of(SCHEDULE), "delay", "list")
    assert result.code == 1
    assert [row["level"] for row in rows] == list(range(1, 19))
    names = ("minOffset", "maxOffset", "pending", "due", "delivered")
    assert {row[name] for row in rows for name in names} == {None}


def test_dead_letters_that_are_not_reported_are_not_absent(broker: str) -> None:
    result, rows = asked(broker, about_queues_of("%DLQ%lab-consumer"), "dlq", "requeue", "lab-consumer", "--yes")
    assert (result.code, rows) == (3, [])
    assert "not every dead letter is known: nothing is given back" in result.err


def test_queues_that_are_not_told_may_have_messages(broker: str) -> None:
    args = ("topic", "update", "Orders", "--queues", "1", "--dry-run")
    assert "in queues that consumers do not read" in asked(broker, nothing, *args)[0].err
    result, _rows = asked(broker, about_queues_of("Orders"), *args)
    assert result.code == 3
    assert "nothing was changed" in result.err
