"""``compare``: a store directory beside the broker that serves it, or another one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.admin.live import questions
from rmqtool.testing import TestBroker, rocketmq  # noqa: F401 (a fixture)
from tests.admin.relaying import about_queues_of, relay
from tests.admin.test_failures import namesrv_of
from tests.amounts import by_turns
from tests.cli.running import ROOT, rmqtool
from tests.client.peers import serving
from tests.interop.serving import CLUSTER, Serving


@pytest.fixture
def target(example_broker: Serving) -> str:
    return f"rocketmq://{example_broker.namesrv}/{CLUSTER}"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples" / "store", tmp_path / "store")
    return tmp_path / "store"


def differences(store: Path, target: str, *args: str, code: int = 1) -> list[dict[str, Any]]:
    done = rmqtool("compare", store, target, *args, "-o", "ndjson")
    assert done.code == code, (done.out, done.err)
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_copy_is_no_different(store: Path, target: str) -> None:
    assert differences(store, target, code=0) == []
    done = rmqtool("compare", store, target)
    assert "messages compared; no difference" in done.err
    assert rmqtool("compare", store, target, "--broker", "lab-x").code == 2
    assert rmqtool("compare", store, store).code == 2


def test_a_file_that_is_not_written_yet_is_no_difference(
    rocketmq: TestBroker,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker without delayed messages has a table of them without entries, and no file."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store, target = Path(rocketmq.store), f"rocketmq://{rocketmq.namesrv}"
    for kind in ("topic", "group"):  # the first change writes the table
        assert rmqtool(kind, "create", target, "some", "--yes").code == 0
    assert not (store / "config" / "delayOffset.json").exists()
    assert differences(store, target, code=0) == []


def test_messages_that_one_side_has(store: Path, target: str) -> None:
    assert rmqtool("truncate", store, "149899", "--yes").code == 0
    rows = differences(store, target)
    missing = [row for row in rows if row["what"] == "onlySecond"]
    assert missing
    assert all(row["messages"] == row["toOffset"] - row["fromOffset"] for row in missing)
    assert not any(row["what"] == "onlyFirst" for row in rows)
    lines = store.parent / "more.ndjson"
    lines.write_text("".join(json.dumps({"topic": "Sequenced", "queueId": 1, "body": "x"}) + "\n" for _ in range(2)))
    assert rmqtool("append", store, lines).code == 0
    (row,) = [row for row in differences(store, target) if row["what"] == "onlyFirst"]
    assert (row["topic"], row["queueId"], row["messages"]) == ("Sequenced", 1, 2)


def set_offset(store: Path) -> None:
    file = store / "config" / "consumerOffset.json"
    file.write_text(file.read_text().replace("1:106", "1:100"))


def set_topic(store: Path) -> None:
    file = store / "config" / "topics.json"
    table = json.loads(file.read_text())
    table["topicConfigTable"]["Orders"]["perm"] = 4
    del table["topicConfigTable"]["Batched"]
    file.write_text(json.dumps(table))


@pytest.mark.parametrize(
    ("change", "part", "what", "about"),
    [
        (set_offset, "offset", "offset", {"group": "lab-consumer", "topic": "Orders", "first": "100", "second": "106"}),
        (set_topic, "config", "topics.json", {"name": "topicConfigTable.Orders.perm", "first": "4", "second": "6"}),
    ],
)
def test_settings_and_offsets(
    change: Callable[[Path], None], part: str, what: str, about: dict[str, Any], store: Path, target: str
) -> None:
    change(store)
    rows = [row for row in differences(store, target) if row["part"] == part]
    (row,) = [row for row in rows if about.items() <= row.items()]
    assert row["what"] == what
    if change is set_topic:
        assert any(row["name"] == "topicConfigTable.Batched" and row["first"] is None for row in rows)


def test_another_message_at_the_same_place(store: Path, tmp_path: Path, target: str) -> None:
    """A store with the same queues and another history."""
    rows = [json.loads(line) for line in rmqtool("commitlog", "dump", store, "-o", "ndjson").out.splitlines()]
    first = next(row for row in rows if row["topic"] == "Orders" and row["queueOffset"] == 0)
    other = tmp_path / "other"
    assert rmqtool("init", other).code == 0
    lines = tmp_path / "messages.ndjson"
    lines.write_text(json.dumps({"topic": "Orders", "queueId": first["queueId"], "body": "another"}) + "\n")
    assert rmqtool("append", other, lines).code == 0
    (row,) = [row for row in differences(other, target) if row["part"] == "record"]
    assert (row["topic"], row["queueId"], row["fromOffset"]) == ("Orders", first["queueId"], 0)
    assert "body_crc" in row["what"]
    assert json.loads(row["second"])["body_crc"] == first["bodyCrc"]
    assert not [row for row in differences(other, target, "--sample", "0") if row["part"] == "record"]


@by_turns(3)
@pytest.mark.parametrize("failing", ["gone", "silent", "refusing", "wrong"])
def test_a_broker_that_fails(
    failing: str, store: Path, example_broker: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "TIMEOUT", 2.0)
    with serving(namesrv_of(example_broker.broker, failing)) as namesrv:
        done = rmqtool("compare", store, f"rocketmq://{namesrv}", "--broker", "lab-b")
        assert done.code == 3
        assert "broker lab-b does not answer" in done.err
        done = rmqtool("compare", store, f"rocketmq://{namesrv}", "--broker", "lab-a")
        assert done.code == 1
        assert "missing" in done.err
        assert "no difference" in done.err
    assert rmqtool("compare", store, "rocketmq://127.0.0.1:1").code == 3


def test_queues_that_a_broker_does_not_tell_are_not_compared(store: Path, example_broker: Serving) -> None:
    with serving(relay(example_broker.broker, about_queues_of("Orders"))) as namesrv:
        done = rmqtool("compare", store, f"rocketmq://{namesrv}", "-o", "ndjson")
    assert (done.code, done.out) == (1, ""), done.err
    assert "not now" in done.err


def test_the_broker_of_the_store_is_not_there(store: Path, tmp_path: Path, target: str) -> None:
    conf = tmp_path / "broker.conf"
    sizes = {"CommitLog": 262144, "ConsumeQueue": 4000}
    conf.write_text("brokerName=lab-z\n" + "".join(f"mappedFileSize{key}={value}\n" for key, value in sizes.items()))
    done = rmqtool("compare", store, target, "--broker-conf", conf)
    assert done.code == 2
    assert "no broker lab-z is registered" in done.err
