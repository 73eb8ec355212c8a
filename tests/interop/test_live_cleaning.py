"""What real brokers remove by ``cluster clean`` is what the plan says; a cluster's master removes files after a minute.

Only with ``RMQTOOL_TESTS=all``.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.read import loads
from tests.amounts import only_in_all
from tests.cli.running import Result, rmqtool
from tests.interop import broker as brokers
from tests.interop.broker import Broker
from tests.interop.engine import NEWEST
from tests.interop.mqadmin import CONFIG
from tests.interop.serving import CLUSTER

pytestmark = [pytest.mark.interop, only_in_all]
FILE = 65536
SETTINGS = {
    **CONFIG, "mappedFileSizeCommitLog": str(FILE), "fileReservedTime": "0", "flushConsumerOffsetInterval": "1000",
}  # fmt: skip
FIRST_CLEANING = 62  # s from the start of a broker


def rows(done: Result) -> list[dict[str, Any]]:
    changes: list[dict[str, Any]] = json.loads(done.out)["changes"]
    return changes


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3", NEWEST])
def test_cleaning(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := brokers.available(version):
        pytest.skip(reason)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store = tmp_path / "store"
    store.mkdir()

    def clean(what: str, *args: str) -> Result:
        return rmqtool("cluster", "clean", f"rocketmq://{judge.namesrv}/{CLUSTER}", what, *args, "-o", "json")

    with Broker(version) as judge:
        judge.boot(store, SETTINGS)
        begin = time.monotonic()
        for name in ("Old", "Orders"):
            fields = {
                "topic": name, "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
            }  # fmt: skip
            assert judge.ask("request", code=17, fields=fields)["code"] == 0
        for name, count in (("Old", 20), ("Orders", 300)):
            for number in range(count):
                judge.ask("send", topic=name, keys=f"key{number}", queueId=number % 2, tag="a", body="x" * 900)
        judge.ask("setOffset", group="reader", topic="Old", queueId=0, offset=3)
        time.sleep(2)

        (planned,) = rows(clean("log", "--dry-run"))
        assert planned["after"] >= 4 * FILE
        for what in ("queues", "unused"):
            assert (clean(what, "--dry-run").code, rows(clean(what, "--dry-run"))) == (0, [])
        refused = clean("log", "--yes")
        assert (refused.code, "7 messages of Old that group reader has not consumed" in refused.err) == (4, True)
        time.sleep(max(FIRST_CLEANING - (time.monotonic() - begin), 0))
        done = clean("log", "--yes", "--accept-loss")
        assert (done.code, rows(done)[0]["state"]) == (0, "done"), done.err
        assert min(map(int, os.listdir(store / "commitlog"))) == planned["after"]

        done = clean("queues", "--yes")
        assert {(row["name"], row["before"], row["state"]) for row in rows(done)} == {
            ("Old 0", 10, "done"), ("Old 1", 10, "done"),
        }  # fmt: skip
        assert sorted(os.listdir(store / "consumequeue" / "Orders")) == ["0", "1"]

        for number in range(4):
            judge.ask("send", topic="Old", keys=f"key{number}", queueId=number % 2, tag="a")
        time.sleep(2)
        judge.stop()
        file = store / "config" / "topics.json"
        table: Any = loads(file.read_bytes())
        del table["topicConfigTable"]["Old"]
        file.write_text(json.dumps(table))
        judge.boot(store, SETTINGS)
        time.sleep(1)
        assert clean("unused", "--yes").code == 4
        done = clean("unused", "--yes", "--accept-loss")
        assert [(row["name"], row["before"], row["state"]) for row in rows(done)] == [("Old", 4, "done")]
        folder = store / "consumequeue"
        assert [name for name in os.listdir(folder) if os.listdir(folder / name)] == ["Orders"]
        judge.stop()
