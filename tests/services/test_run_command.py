"""The command run: once, until a signal, and again after a kill."""

import json
import os
import signal
import stat
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.amounts import by_turns
from tests.cli.running import RMQTOOL, rmqtool
from tests.services.live import SIZES
from tests.services.run_samples import bodies, errors, waiting_store


def test_once(tmp_path: Path) -> None:
    store = waiting_store(tmp_path)
    args = ("run", store, "--once", "--broker-conf", tmp_path / "broker.conf", "-o", "json")
    result = rmqtool(*args)
    [report] = json.loads(result.out)
    assert (result.code, result.err, report["delivered"], report["checked"]) == (0, "", 10, 0)
    assert report["nextTimestamp"] > report["endTimestamp"]
    assert bodies(store) == [str(n) for n in range(10)]
    script = tmp_path / "decide.py"
    script.write_text(
        "#!/usr/bin/env python3\nimport json, sys\nrow = json.load(sys.stdin)\n"
        "assert row['topic'] == 'T' and row['producerGroup'] == 'G' and row['checkTimes'] == 1, row\n"
        "assert row['properties']['PGROUP'] == 'G' and row['msgId'] == row['body'], row\n"
        "print({'yes': 'commit', 'no': 'rollback'}.get(row['body'], 'perhaps'))\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    result = rmqtool(*args, "--transactions", f"exec {script}")
    [report] = json.loads(result.out)
    assert (report["committed"], report["rolledBack"], report["unknown"]) == (1, 1, 1)
    assert "said 'perhaps'" in result.err
    assert bodies(store)[10:] == ["yes"]
    result = rmqtool(*args, "--transactions", "exec /nonexistent/program")
    assert (result.code, result.out) == (2, "")
    assert "no such command" in result.err
    assert json.loads(rmqtool(*args, "--transactions", "rollback").out)[0]["rolledBack"] == 1
    assert rmqtool("transaction", "list", store, "--state", "pending", "-o", "ndjson").out == ""


@pytest.mark.parametrize(
    "args", [["--transactions", "perhaps"], ["--transactions", "exec"], ["--transactions", "exec 'x"],
              ["--until", "soon"], ["--once", "--until", "0"], ["--transactions", "commit x"]],
)  # fmt: skip
def test_usage(args: list[str], tmp_path: Path) -> None:
    assert rmqtool("run", tmp_path, *args).code == 2


def delivered(store: Path) -> None:
    """Wait until a process has delivered the due messages."""
    for _ in range(2400):
        if len(bodies(store)) == 10:
            break
        time.sleep(0.05)


@by_turns(2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_cleanly(number: int, tmp_path: Path) -> None:
    store = waiting_store(tmp_path)
    args = [*RMQTOOL, "run", str(store), "--broker-conf", str(tmp_path / "broker.conf"), "-o", "json"]
    process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    delivered(store)
    assert (store / "abort").exists()
    assert rmqtool("run", store, "--once").code == 4  # it is held
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert err == f"stopped: what still waits is delivered by the next run (rmqtool delay list {store})\n"
    assert json.loads(out)[0]["delivered"] == 10
    assert not (store / "abort").exists()
    assert "1:10" in (store / "config" / "delayOffset.json").read_text()
    assert errors(store, SIZES) == []


def test_killed_it_goes_on(tmp_path: Path) -> None:
    store = waiting_store(tmp_path)
    args = [*RMQTOOL, "run", str(store), "--broker-conf", str(tmp_path / "broker.conf")]
    process = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    delivered(store)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert (store / "abort").exists()
    result = rmqtool("run", store, "--once", "--broker-conf", tmp_path / "broker.conf")
    assert result.code == 0
    assert "recovered first" in result.err
    assert set(bodies(store)) == {str(n) for n in range(10)}
    assert max(Counter(bodies(store)).values()) <= 2
    assert not (store / "abort").exists()
