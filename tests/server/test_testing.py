"""The broker for users' tests, in a project with only our package installed."""

import subprocess
import sys
from pathlib import Path

_TESTS = """
from rmqtool.client import From, Message, PushOptions
from rmqtool.client.sync import Producer, PushConsumer
from rmqtool.testing import TestBroker, broker, rocketmq

import threading


def test_what_is_sent_is_consumed(rocketmq: TestBroker) -> None:
    came = threading.Event()
    with Producer(rocketmq.namesrv) as producer:
        assert producer.send(Message("Orders", b"hello")).status == "SEND_OK"
    options = PushOptions(start=From.FIRST)
    with PushConsumer(rocketmq.namesrv, "shop", {"Orders": "*"}, lambda messages: came.set(), options):
        assert came.wait(60)


def test_each_test_has_its_own(rocketmq: TestBroker) -> None:
    with Producer(rocketmq.namesrv) as producer:
        assert producer.send(Message("Orders", b"first")).queue_offset == 0


def test_one_that_stays(tmp_path) -> None:
    for offset in range(2):
        with broker(tmp_path / "store", settings={"defaultTopicQueueNums": "1"}) as served:
            with Producer(served.namesrv) as producer:
                assert producer.send(Message("Orders", b"x")).queue_offset == offset
"""


def test_a_project_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_theirs.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 passed" in result.stdout
