"""replay to real brokers, with kills, and mirror from them."""

import json
import subprocess
import time
from pathlib import Path

import pytest

from tests.amounts import by_turns
from tests.cli.running import RMQTOOL, ROOT, rmqtool
from tests.client.test_replay import bodies, made, messages
from tests.interop.broker import SMALL_FILES, Broker
from tests.interop.test_serve import make

pytestmark = pytest.mark.interop
_CONF = {**SMALL_FILES, "brokerFastFailureEnable": "false"}


@by_turns(23)
def test_a_replay_that_is_killed_doubles_and_loses_nothing(broker: Broker, tmp_path: Path) -> None:
    source = made(tmp_path / "origin", "Copied", 2000)
    target = tmp_path / "target"
    broker.boot(target, _CONF)
    make(broker, "Copied")
    args = ["replay", str(source), "--namesrv", broker.namesrv, "--engine", broker.engine, "--batch", "4"]
    for pause in (0.1, 0.3):
        with subprocess.Popen(
            [*RMQTOOL, *args, "--rate", "1500"], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as running:
            journal, until = tmp_path / "origin.replay", time.monotonic() + 60
            while (not journal.exists() or b"begin" not in journal.read_bytes()) and time.monotonic() < until:
                time.sleep(0.02)
            time.sleep(pause)
            running.kill()
    result = rmqtool(*args, "-o", "ndjson")
    assert result.code == 0, result.err
    assert {(row["queueId"], row["toQueueId"]) for row in map(json.loads, result.out.splitlines())} <= {
        (number, number) for number in range(4)
    }
    copy, conf = tmp_path / "copy", tmp_path / "conf"
    conf.write_text("mappedFileSizeCommitLog=8388608\nmappedFileSizeConsumeQueue=60000\n")
    mirror = ["mirror", "--namesrv", broker.namesrv, "Copied", copy, "--broker-conf", conf]
    for more in (["--limit", 700], []):
        result = rmqtool(*mirror, *more)
        assert result.code == 0, result.err
    broker.stop()
    assert bodies(messages(str(copy), "Copied")) == bodies(messages(str(source), "Copied"))
    assert rmqtool("check", copy, "--broker-conf", conf).code == 0
    assert bodies(messages(str(target), "Copied")) == bodies(messages(str(source), "Copied"))
