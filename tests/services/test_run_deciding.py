"""The command that decides transactions: its answers, and what happens if it hangs."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from formats.message.read import Record, read
from formats.topics import HALF
from rmqtool import Store
from rmqtool.cli.write.run_decide import DecidingCommand
from rmqtool.services.transactions.rules import CheckRequest, Decision
from tests.cli.running import RMQTOOL, rmqtool
from tests.services.build import Builder
from tests.services.live import SIZES
from tests.services.run_samples import errors, waiting_store


def script_of(folder: Path, text: str) -> Path:
    path = folder / "decide"
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_signal_does_not_wait_for_a_command_that_hangs(tmp_path: Path) -> None:
    store = waiting_store(tmp_path)
    child = "import subprocess, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    child += "p = subprocess.Popen(['sleep', '1000']); signal.signal(signal.SIGTERM, signal.SIG_DFL)"
    script = script_of(tmp_path, f"{child}; open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid) + ' '); p.wait()")
    args = [*RMQTOOL, "run", str(store), "--broker-conf", str(tmp_path / "broker.conf"), "-o", "json"]
    process = subprocess.Popen(
        [*args, "--transactions", f"exec {script}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().endswith(" "):
        time.sleep(0.02)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 20  # and not a minute
    assert process.returncode == 0
    assert "was ended" in err
    assert json.loads(out)[0]["unknown"] == 1
    assert not (store / "abort").exists()
    sleeper = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    for _ in range(200):  # whoever inherits it has to take note of its end
        if not sleeper.exists() or sleeper.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("what the command has started goes on")
    assert errors(store, SIZES) == []


def request_of(body: bytes = b"x" * 100_000) -> CheckRequest:
    builder = Builder()
    builder.put("T", body=body)
    record = read(bytes(builder.log), 0, len(builder.log))
    assert isinstance(record, Record)
    return CheckRequest(record, {"UNIQ_KEY": "u"}, "G", "u", 1)


def ask(args: list[str]) -> Decision:
    reader, _writer = os.pipe()
    try:
        command = DecidingCommand(args, reader, lambda: False)
        command.begin()
        return command(request_of())
    finally:
        os.close(reader)
        os.close(_writer)


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ("import sys; sys.stdin.read(); print('commit')", Decision.COMMIT),
        ("print('  rollback  ')", Decision.ROLLBACK),  # it does not read the message
        ("import sys; sys.stdin.close(); print('commit')", Decision.COMMIT),
        ("import sys; sys.stdout.write('commit ' * 20_000_000)", Decision.UNKNOWN),  # 140 MB
        ("print('commit'); import sys; sys.exit(1)", Decision.UNKNOWN),
        ("import os, sys\nif os.fork() == 0: os.execvp('sleep', ['sleep', '5'])\nprint('commit')", Decision.COMMIT),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", Decision.UNKNOWN),
        ("pass", Decision.UNKNOWN),
    ],
)
def test_what_a_command_says(text: str, decision: Decision, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert ask([str(script_of(tmp_path, text))]) is decision
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB


def test_a_command_that_cannot_be_run_is_an_error_and_no_answer(tmp_path: Path) -> None:
    store = waiting_store(tmp_path)
    args = ("run", store, "--once", "--broker-conf", tmp_path / "broker.conf", "--transactions")
    plain = tmp_path / "plain"
    plain.write_text("echo commit")
    for command, text in ((plain, "not executable"), (tmp_path, "not executable"), ("no-such-word", "no such command")):
        result = rmqtool(*args, f"exec {command}")
        assert (result.code, text in result.err) == (2, True), result.err
    strange = tmp_path / "strange"  # found, and not to be started
    strange.write_bytes(b"#!/nonexistent/interpreter\n")
    strange.chmod(0o755)
    for _ in range(20):  # more than checks are made
        result = rmqtool(*args, f"exec {strange}")
        assert (result.code, "cannot be started" in result.err) == (4, True), result.err
        assert not (store / "abort").exists()
    with Store(store, broker_conf=SIZES) as opened:
        halves = [item for item in opened.messages() if item.topic == HALF]
    assert len(halves) == 3  # none was checked
    assert rmqtool(*args, "exec sh -c no-such-word").code == 4
