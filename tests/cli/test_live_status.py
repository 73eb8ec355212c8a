"""serve on a terminal shows a status below the log, but not in a pipe."""

import os
import pty
import re
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from formats.remoting import headers as h
from formats.remoting.codes import RequestCode
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from rmqtool.cli.serve.live_status import _head
from rmqtool.client import Message
from rmqtool.client.sync import Producer
from tests.cli.running import RMQTOOL, ROOT
from tests.cli.test_namesrv import ask

pytestmark = pytest.mark.slow

_WORDS = ("--create", "--engine", "4.9", "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0")


def read_until(terminal: int, wanted: str, text: str) -> str:
    """Read from a terminal until a text appears."""
    end = time.monotonic() + 60
    while wanted not in text:
        ready, _, _ = select.select([terminal], [], [], 1)
        if ready:
            text += os.read(terminal, 1 << 16).decode()
        assert time.monotonic() < end, text
    return text


def serve_at_terminal(store: Path) -> tuple["subprocess.Popen[str]", int]:
    """A broker whose stderr is a terminal, and our end of the terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*RMQTOOL, "serve", store, *_WORDS], cwd=ROOT, stdout=subprocess.PIPE, stderr=theirs, text=True,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "150", "LINES": "30"},
    )  # fmt: skip
    os.close(theirs)
    return process, ours


def commit(group: str, queue_id: int, offset: int) -> Command:
    header = h.Commit(consumer_group=group, topic="Orders", queue_id=queue_id, commit_offset=offset)
    return Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields=to_fields(header))


def test_connections_rates_and_lag_are_shown_on_a_terminal(tmp_path: Path) -> None:
    process, ours = serve_at_terminal(tmp_path / "store")
    try:
        assert process.stdout is not None
        ready = dict(word.split("=") for word in process.stdout.readline().split()[1:])
        text = read_until(ours, "no group is behind", "")
        assert "connections " in text
        with Producer(ready["namesrv"], "shop") as producer:
            queue = producer.send(Message("Orders", b"0")).queue
            for _ in range(6):
                producer.send(Message("Orders", b"x"), queue=queue)
            # the client refuses such a name, and a broker takes it
            ask(ready["broker"], commit("au\x1b[31mdit", queue.queue_id, 2))
            text = read_until(ours, "producers 1 ", "")
            text = read_until(ours, "Orders", text)
            text = read_until(ours, " s", text[text.rindex("Orders") :])
        assert re.search(r"Orders +0 +5 ", text), text
        assert "\x1b[31m" not in text
        process.send_signal(signal.SIGTERM)
        text = read_until(ours, "unregisters", "")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
        os.close(ours)


def test_a_terminal_that_goes_away_ends_it_as_a_signal_does(tmp_path: Path) -> None:
    process, ours = serve_at_terminal(tmp_path / "store")
    try:
        read_until(ours, "no group is behind", "")
        os.close(ours)
        time.sleep(2.5)  # it draws meanwhile, and nobody is there
        assert process.poll() is None
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 0
        assert not (tmp_path / "store" / "abort").exists()
    finally:
        process.kill()
        process.communicate()


def test_in_a_pipe_there_is_the_log_alone(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*RMQTOOL, "serve", tmp_path / "store", *_WORDS], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready ")
    time.sleep(1.5)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert all(re.match(r"\d{4}-\d\d-\d\d [\d:.]+Z (INFO|WARNING) ", line) for line in err.splitlines()), err


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_number_of_the_status_is_cut_off(width: int) -> None:
    parts = ("broker-a 192.168.100.101:10911", "connections 1,200  producers 400  consumers 800",
             "stored 12,345/s  handed out 23,456/s")  # fmt: skip
    lines = _head(*parts, width=width).plain.split("\n")
    assert "  ".join(lines) == "  ".join(parts)
    assert max(map(len, lines)) <= width
    assert len(lines) == (1 if width == 200 else 2)
