"""The examples run as described in their README."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.amounts import by_turns

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args], cwd=EXAMPLES.parent, capture_output=True, text=True, check=False, timeout=300
    )


def test_find_message() -> None:
    result = run("examples/find_message.py", "examples/store", "Orders", "order-10")
    assert (result.returncode, result.stderr) == (0, "")
    assert "queue  3 offset 2: listed" in result.stdout
    assert "group  lab-consumer: consumed" in result.stdout
    missing = run("examples/find_message.py", "examples/store", "Orders", "nothing")
    assert missing.returncode == 1
    assert "never stored" in missing.stdout


def test_write_store(tmp_path: Path) -> None:
    result = run("examples/write_store.py", str(tmp_path / "new"))
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("PUT_OK: offset 0, queue offset 0, id 7F000001")
    assert lines[1] == "a delayed message waits in SCHEDULE_TOPIC_XXXX queue 2"
    assert lines[2].startswith("1000 more; ")
    assert lines[3] == "MESSAGE_ILLEGAL: topic of 129 bytes, 1 to 127 are taken"
    assert lines[5] == (
        "Orders/0: 0 to 251, Orders/1: 0 to 250, Orders/2: 0 to 250, Orders/3: 0 to 250, SCHEDULE_TOPIC_XXXX/2: 0 to 1"
    )


def test_traffic() -> None:
    result = run("examples/traffic.py", "examples/store")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[0].split() == ["Orders", "420", "messages", "105676", "bytes"]


@by_turns(13)
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_quickstart() -> None:
    result = run("examples/quickstart.py")
    assert result.returncode == 0, result.stderr
    (stderr,) = result.stderr.splitlines()  # Spark's own noise is not shown
    assert stderr.startswith("608 messages by Spark")
    assert "Nothing to do: a broker's next start changes nothing." in result.stdout
    assert '"order-10' in result.stdout or "order-10 user-10" in result.stdout
    # one of the 609 records was torn
    assert "messages: 608 messages" in result.stdout


def run_on_spark(*words: object) -> str:
    """The output of an example that starts Spark."""
    from rmqtool.analytics.spark.java import find_java

    result = subprocess.run(
        [*map(str, words)],
        cwd=EXAMPLES.parent,
        env={**os.environ, "JAVA_HOME": find_java().home, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@by_turns(13)
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_spark_live(tmp_path: Path) -> None:
    from rmqtool.client import Message
    from rmqtool.client.sync import Producer
    from rmqtool.testing import broker

    notes = []
    with broker() as served, Producer(served.namesrv) as producer:
        for count in (30, 12):
            producer.send_batch([Message("Orders", b"%d" % number) for number in range(count)])
            notes.append(
                run_on_spark(sys.executable, "examples/spark_live.py", served.namesrv, "Orders", tmp_path / "out")
            )
    assert notes == ["30 messages\n", "12 messages\n"]


@by_turns(13)
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_spark_dump_under_spark_submit(tmp_path: Path) -> None:
    import json
    import sysconfig

    submit = Path(sysconfig.get_path("scripts")) / "spark-submit"
    output = run_on_spark(submit, "--master", "local[2]", "examples/spark_dump.py", "examples/store", tmp_path / "out")
    assert json.loads(output)["rows"] == 609
    assert (tmp_path / "out" / "_SUCCESS").exists()
