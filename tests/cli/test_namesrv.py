"""The command namesrv as a process."""

import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from rmqtool.remoting.client import open_connection
from tests.cli.running import RMQTOOL, ROOT, rmqtool


@contextmanager
def running(*args: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running name server, and its ready line."""
    process = subprocess.Popen(
        [*RMQTOOL, "namesrv", "--listen", "127.0.0.1:0", *args],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def ask(address: str, request: Command) -> Command:
    async def once() -> Command:
        host, _, port = address.rpartition(":")
        async with open_connection(host, int(port)) as connection:
            return await connection.call(request, 30)

    return asyncio.run(once())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_serves_until_it_is_told_to_end(number: signal.Signals) -> None:
    with running() as (process, ready):
        assert ready.startswith("ready namesrv=127.0.0.1:")
        address = ready.split("=")[1].strip()
        assert b"clusterAddrTable" in ask(address, Command(RequestCode.GET_BROKER_CLUSTER_INFO)).body
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port))) as idle:  # somebody who stays keeps nobody up
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
            assert idle.recv(1) == b""
        assert (process.returncode, out, err) == (0, "", "")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))


@pytest.mark.parametrize("form", ["json", "ndjson"])
def test_ready_as_json(form: str) -> None:
    with running("--output", form) as (_, ready):
        assert json.loads(ready)["namesrv"].startswith("127.0.0.1:")


def test_what_happens_is_told_on_stderr_in_lines() -> None:
    with running() as (process, ready):
        fields = {
            "brokerName": "lab\n\x1b[31ma", "brokerAddr": "192.0.2.1:1", "brokerId": "0", "clusterName": "c",
            "haServerAddr": "",
        }  # fmt: skip
        assert ask(ready.split("=")[1].strip(), Command(RequestCode.REGISTER_BROKER, fields=fields)).code == 0
        process.terminate()
        err = process.communicate(timeout=60)[1]
    lines = err.splitlines()
    assert "INFO broker 'lab\\n\\x1b[31ma' 192.0.2.1:1 c with id 0 registers from 127.0.0.1:" in lines[0]
    assert lines[0][10] == " "
    assert lines[0].split(" INFO")[0].endswith("Z")
    assert "is gone: its connection has ended" in lines[1]
    assert len(lines) == 2


def test_a_signal_that_is_ignored_stays_so() -> None:
    process = subprocess.Popen(
        [*RMQTOOL, "namesrv", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=ROOT, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split("=")[1].strip()
        os.kill(process.pid, signal.SIGHUP)
        assert ask(address, Command(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize("listen", ["9876", "127.0.0.1", "127.0.0.1:", ":9876", "h:65536", "a b:1", "[::1:5", "::1:5"])
def test_an_address_that_is_none_is_usage(listen: str) -> None:
    result = rmqtool("namesrv", "--listen", listen)
    assert (result.code, result.out, result.err) == (2, "", f"error: --listen {listen}: give HOST:PORT\n")


def test_key_values_are_there_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "kv.json"
    put = Command(RequestCode.PUT_KV_CONFIG, fields={"namespace": "n", "key": "k", "value": "v"})
    with running("--kv-config", str(file)) as (process, ready):
        address = ready.split("=")[1].strip()
        assert ask(address, put).code == 0
        assert f"kvConfigPath={file}\n" in ask(address, Command(RequestCode.GET_NAMESRV_CONFIG)).body.decode()
        process.kill()
    assert json.loads(file.read_text()) == {"configTable": {"n": {"k": "v"}}}
    with running("--kv-config", str(file)) as (_, ready):
        get = Command(RequestCode.GET_KV_CONFIG, fields={"namespace": "n", "key": "k"})
        assert ask(ready.split("=")[1].strip(), get).fields == {"value": "v"}
    file.write_text("{")
    result = rmqtool("namesrv", "--listen", "127.0.0.1:0", "--kv-config", file)
    assert (result.code, result.err) == (5, f"error: {file}: byte 1: the text ends where a key must come\n")


def test_an_address_that_is_taken_is_refused() -> None:
    with running() as (_, ready):
        address = ready.split("=")[1].strip()
        result = rmqtool("namesrv", "--listen", address)
    assert (result.code, result.out, result.err) == (4, "", f"error: {address}: Address already in use\n")


@pytest.mark.parametrize("where", ["raise_open_files", "asyncio.Runner.run"])
@pytest.mark.parametrize("command", ["namesrv", "serve"])
def test_interrupted_before_it_runs_it_says_nothing(
    where: str, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SIGINT within the first milliseconds: no line about a coroutine that was never awaited."""

    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"rmqtool.cli.serve.running.{where}", interrupt)
    arguments = [] if command == "namesrv" else [str(tmp_path / "store"), "--create"]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        done = rmqtool(command, *arguments)
        gc.collect()
    assert (done.code, done.err) == (130, "")
    assert [str(warning.message) for warning in said if "never awaited" in str(warning.message)] == []
