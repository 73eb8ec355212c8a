"""What a real broker removes by its own rules is what ``retention`` says, and so is what its group then lacks.

Only with ``RMQTOOL_TESTS=all``: brokers clean up after a minute.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.amounts import only_in_all
from tests.cli.running import rmqtool
from tests.interop import broker as brokers
from tests.interop.broker import Broker
from tests.interop.engine import NEWEST
from tests.interop.mqadmin import CONFIG

pytestmark = [pytest.mark.interop, only_in_all]
MIN_OFFSET = 31  # code of the request
SETTINGS = {
    **CONFIG, "mappedFileSizeCommitLog": "65536", "fileReservedTime": "2", "diskMaxUsedSpaceRatio": "95",
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)), "mappedFileSizeConsumeQueue": "1200",
}  # fmt: skip
FIRST_CLEANING = 62  # s from the start of a broker; then every 10 s
GROUP, TOPIC = "reader", "Orders"
READ = {0: 3, 1: 10}  # offsets of the group


def foretold(store: Path, conf: Path) -> tuple[list[str], int]:
    """Names of the files that go by now, and messages that the group has not read of all files but the last."""
    result = rmqtool("retention", store, "--broker-conf", conf, "--output", "json")
    assert result.code in (0, 1), result.err  # 1: messages will be lost unread
    answer: dict[str, Any] = json.loads(result.out)
    soon = (time.time() + 60) * 1000
    going = [row["file"] for row in answer["files"] if row["deleteTimestamp"] and row["deleteTimestamp"] <= soon]
    unread = sum(row["messages"] for row in answer["unread"] if (row["group"], row["topic"]) == (GROUP, TOPIC))
    return [os.path.basename(name) for name in going], unread


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3", NEWEST])
def test_a_broker_removes_what_is_foretold(version: str, tmp_path: Path) -> None:
    if reason := brokers.available(version):
        pytest.skip(reason)
    store, conf = tmp_path / "store", tmp_path / "broker.conf"
    store.mkdir()
    conf.write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()))
    first = dict.fromkeys(READ, 0)
    with Broker(version) as judge:
        judge.boot(store, SETTINGS)
        judge.ask("topic", topic=TOPIC)
        for number in range(400):
            judge.ask("send", topic=TOPIC, keys=f"key{number}", queueId=number % 2, tag="a", body="x" * 900)
        for queue_id, offset in READ.items():
            judge.ask("setOffset", group=GROUP, topic=TOPIC, queueId=queue_id, offset=offset)
        time.sleep(2)
        judge.stop()
        for old in (3, -1):  # files that are old
            files = sorted((store / "commitlog").iterdir())
            written = [path for path in files if path.read_bytes()[4:8] != bytes(4)] if old < 0 else files
            for path in written[:old]:
                os.utime(path, (time.time() - 3 * 3600,) * 2)
            going, unread = foretold(store, conf)
            assert going == [path.name for path in written[:old]]
            begin = time.monotonic()
            judge.boot(store, SETTINGS)
            for _ in range(60):
                if time.monotonic() > begin + FIRST_CLEANING and not set(going) & set(os.listdir(store / "commitlog")):
                    break
                time.sleep(1)
            time.sleep(12)  # nothing more goes
            left = sorted(os.listdir(store / "commitlog"))
            assert left[: len(files) - len(going)] == [path.name for path in files if path.name not in going]
            before = dict(first)
            for queue_id in READ:
                place = {"topic": TOPIC, "queueId": str(queue_id)}
                first[queue_id] = int(judge.ask("request", code=MIN_OFFSET, fields=place)["fields"]["offset"])
            judge.stop()
        # what the first round removed does not count any more
        lost = sum(first[queue_id] - max(offset, before[queue_id]) for queue_id, offset in READ.items())
        assert unread == lost > 100
