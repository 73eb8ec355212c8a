"""Errors: one line in one style for people, one JSON object with JSON output."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from formats.config.files import Topics
from rmqtool import errors
from rmqtool.cli.startup.failing import for_programs
from rmqtool.store.config import sources
from tests.cli.running import process, rmqtool
from tests.cli.test_bad_input import COMMANDS, run
from tests.cli.test_bus_error import CUT
from tests.cli.test_help import commands
from tests.conftest import Unpacked
from tests.sources import ROOT

FORMS = [["-o", "json"], ["--output=ndjson"], ["-ojson"], ["--output", "ndjson"]]
# of a command line that Click, or the command itself, can make nothing of
USAGE = {
    "no-such-command": "no such command 'no-such-command'; see rmqtool --help",
    "query-keys": "no such command 'query-keys' (did you mean rmqtool query-key, rmqtool query-time or rmqtool "
    "query-id?); see rmqtool --help",
    "info": "missing argument STORE; see rmqtool info --help",
    "info STORE more": "too many arguments: more; see rmqtool info --help",
    "info --outptu json": "no such option: --outptu (did you mean --output?); see rmqtool info --help",
    "group lag STORE --by x": "--by: 'x' is not one of queue, topic, group; see rmqtool group lag --help",
    "query-time STORE Orders 0 soon": "'soon' is not a time: give ms since the epoch, 2026-01-31, "
    "2026-01-31T12:00:00Z, "
    "-48h or now",
}


def test_every_kind_of_error_has_its_name() -> None:
    kinds = {
        kind.kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RmqError)
    }
    assert kinds == {
        "unreadable", "output-lost", "refused", "damaged", "no-memory", "no-runtime", "interrupted", "usage",
    }  # fmt: skip


@pytest.mark.parametrize("command", USAGE)
def test_usage(command: str, golden: Unpacked) -> None:
    line = [str(golden("clean")) if word == "STORE" else word for word in command.split()]
    result = rmqtool(*line)
    assert (result.code, result.out, result.err) == (2, "", f"error: {USAGE[command]}\n")
    if command.startswith(("no-such", "query-keys")):
        return
    for form in FORMS:
        result = rmqtool(*line, *form)
        assert (result.code, result.out) == (2, "")
        assert json.loads(result.err) == {"error": USAGE[command], "kind": "usage", "exitCode": 2}
        assert result.err.count("\n") == 1


def test_too_little_memory_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_out(_data: bytes) -> Topics:
        raise MemoryError

    monkeypatch.setattr(Topics, "parse", run_out)
    sources._find_fault.cache_clear()  # what an earlier test has read
    store = ROOT / "examples" / "store"
    path = store / "config" / "topics.json"
    text = f"out of memory: {path} has {path.stat().st_size} bytes and takes about ten times as much to read"
    for name in (["info"], ["check"], ["topic", "list"], ["group", "lag"], ["config"], ["recover", "--dry-run"]):
        result = rmqtool(*name, store)
        assert (result.code, result.err.count("\n")) == (3, 1)
        assert result.err.startswith("error: out of memory")
    result = rmqtool("info", store, "-o", "json")
    assert json.loads(result.err) == {"error": text, "kind": "no-memory", "exitCode": 3}


def test_memory_that_ends_anywhere_is_one_line(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_out(*_args: object, **_options: object) -> None:
        raise MemoryError

    monkeypatch.setattr("rmqtool.store.log.commit_log.CommitLog.read", run_out)
    assert rmqtool("info", golden("clean")) == (3, "", "error: out of memory\n")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "commitlog hexdump"])
def test_no_store(name: str, tmp_path: Path) -> None:
    result = run(name, tmp_path / "nothing", "-o", "ndjson")
    assert (result.code, result.out) == (3, "")
    told = json.loads(result.err)
    assert (told["kind"], told["exitCode"]) == ("unreadable", 3)
    assert str(tmp_path / "nothing") in told["error"]


@pytest.mark.parametrize("name", [name for name, command in commands().items() if name != "commitlog hexdump"])
def test_an_unknown_option(name: str) -> None:
    result = rmqtool(*name.split(), "-o", "json", "--no-such-option")
    assert (result.code, result.out) == (2, "")
    assert json.loads(result.err)["kind"] == "usage"


def test_refused_and_damaged(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    refused = rmqtool("undo", store, "-o", "json")
    assert (refused.code, json.loads(refused.err)["kind"]) == (4, "refused")
    path = store / "config" / "topics.json"
    path.write_bytes(b'{"a":1}}')
    damaged = rmqtool("config", store, "topics.json", "-o", "ndjson")
    told = json.loads(damaged.err)
    assert (damaged.code, told["exitCode"], told["kind"]) == (5, 5, "damaged")
    assert (told["file"], told["offset"]) == (str(path), 7)
    assert told["error"] == f"{path}: byte 7: {told['reason']}"


def test_the_form_is_the_last_that_is_asked_for() -> None:
    asked = [["x", *form] for form in FORMS] + [["x", "-o", "csv", "-o", "json"]]
    assert all(map(for_programs, asked))
    not_asked = [[], ["x"], ["x", "-o"], ["x", "-o", "json", "-o", "csv"], ["x", "--", "-o", "json"], ["x", "json"]]
    assert not any(map(for_programs, not_asked))


def test_stdout_that_takes_no_more(golden: Unpacked) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = process(
            "info", golden("clean"), "-o", "json", capture_output=False, stdout=full, stderr=subprocess.PIPE
        )
    told = json.loads(result.err)
    assert (result.code, told["kind"]) == (3, "output-lost")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the process ends wordless")
def test_a_file_that_cannot_be_read_where_it_is_mapped(golden_copy: Unpacked) -> None:
    for times in range(1, 12):  # others look at its first bytes only
        store = golden_copy("consumequeue-deleted")
        args = [sys.executable, "-c", CUT, str(times), "plain", "commitlog", "dump", str(store), "-o", "ndjson"]
        result = subprocess.run(args, capture_output=True, text=True, check=False, timeout=100)
        if result.returncode == 3:
            break
    told = json.loads(result.stderr.splitlines()[-1])
    assert (told["kind"], told["exitCode"]) == ("unreadable", 3)
    assert "cannot be read: the file was cut short meanwhile" in told["error"]


def test_an_interrupted_reader_says_nothing(golden: Unpacked) -> None:
    script = (
        "import os, signal, time\nfrom rmqtool.cli.read import run_files\n"
        "def stop(*_args, **_more): os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\n"
        "run_files.run_commitlog_dump = stop\nfrom rmqtool.main import main\nmain()"
    )
    args = [sys.executable, "-c", script, "commitlog", "dump", str(golden("clean")), "-o", "json"]
    result = subprocess.run(args, capture_output=True, text=True, check=False, timeout=100, env=dict(os.environ))
    assert (result.returncode, result.stderr) == (128 + signal.SIGINT, "")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere nothing is told of bad sectors")
def test_an_interrupt_before_anything_is_read_is_one_too(golden: Unpacked) -> None:
    script = (
        "import os, signal, time\nfrom rmqtool.cli.startup import bus_error\n"
        "def stop(*_args): os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\n"
        "bus_error.arm = stop\nfrom rmqtool.main import main\nmain()"
    )
    args = [sys.executable, "-c", script, "undo", str(golden("clean")), "--yes"]
    result = subprocess.run(args, capture_output=True, text=True, check=False, timeout=100)
    assert (result.returncode, result.stderr) == (128 + signal.SIGINT, "")


@pytest.mark.parametrize(
    "args",
    [
        ["recover", "STORE"],
        ["recover", "NOTHING"],
        ["append", "STORE", "NOTHING"],
        ["import", "NOTHING", "NOTHING"],
        ["query-offset", "STORE", "Orders", "0", "0"],
        ["query-time", "NOTHING", "Orders", "0", "0"],
        ["serve", "STORE"],
        ["mirror", "--namesrv", "127.0.0.1:1", "T", "NOTHING"],
    ],
)
def test_a_release_that_is_none_is_told_first(args: list[str], golden: Unpacked, tmp_path: Path) -> None:
    """Before anything is read, and before asking for confirmation."""
    places = {"STORE": golden("clean"), "NOTHING": tmp_path / "nothing"}
    result = rmqtool(*(places.get(word, word) for word in args), "--engine", "6")
    assert result == (2, "", "error: --engine 6: give auto, 4.9, 5.3, 5.4 or 5.5\n")
    assert not list(tmp_path.iterdir())
