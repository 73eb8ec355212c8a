"""The examples run, as their own README says."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args], cwd=EXAMPLES.parent, capture_output=True, text=True, check=False, timeout=300
    )


def test_find_message() -> None:
    done = run("examples/find_message.py", "examples/store", "Orders", "order-10")
    assert (done.returncode, done.stderr) == (0, "")
    assert "queue  3 offset 2: listed" in done.stdout
    assert "group  lab-consumer: consumed" in done.stdout
    missing = run("examples/find_message.py", "examples/store", "Orders", "nothing")
    assert missing.returncode == 1
    assert "never stored" in missing.stdout


def test_traffic() -> None:
    done = run("examples/traffic.py", "examples/store")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].split() == ["Orders", "420", "messages", "105676", "bytes"]


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_quickstart() -> None:
    done = run("examples/quickstart.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Nothing to do: the store is in order." in done.stdout
    assert '"order-10' in done.stdout or "order-10 user-10" in done.stdout
    # one of the 589 records was torn
    assert "messages: 588 messages" in done.stdout
