"""Progress of long commands: a line on a terminal, JSON for programs, nothing in a pipe."""

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli.render import progress
from rmqtool.progress import Stage, listening, stage
from tests.amounts import by_turns
from tests.bench.make_log import BLOCK, write_log
from tests.cli.running import rmqtool
from tests.cli.test_help import commands
from tests.conftest import Unpacked
from tests.store.helpers import tree

FIELDS = ["progress", "done", "total", "unit", "seconds", "rate", "secondsLeft"]
LONG = {
    "append", "backup create", "backup restore", "backup verify", "check", "clean", "consolidate", "convert", "diff",
    "dispatch", "du", "dump",
    "dump-to-parquet", "evidence", "export", "grep", "import", "mirror", "rebuild", "recover", "redact", "replay",
    "replicas", "run", "salvage", "split", "sql", "tier check", "truncate", "undo", "why",
}  # fmt: skip


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def made(name: str, done: int, total: int | None, unit: str = "bytes") -> Stage:
    made_stage = Stage(name, total, unit)
    made_stage.done = done
    return made_stage


def test_every_command_that_takes_long_has_it() -> None:
    having = {
        name for name, command in commands().items() if "--progress" in {o for p in command.params for o in p.opts}
    }
    assert {name for name in having if not name.startswith("report ")} == LONG
    assert {name for name in commands() if name.startswith("report ")} <= having


@pytest.mark.parametrize(
    ("made_stage", "seconds", "text"),
    [
        (made("reading the log", 0, 3 << 30), 0.5, "reading the log: 0%, 0 B of 3.0 GiB, 0 s"),
        (made("reading the log", 3 << 29, 3 << 30), 2.0,
         "reading the log: 50%, 1.5 GiB of 3.0 GiB, 768 MiB/s, 2 s left"),
        (made("reading the log", 1 << 20, 1 << 40), 1.0,
         "reading the log: 0%, 1.0 MiB of 1.0 TiB, 1.0 MiB/s, 291 h 16 min left"),
        (made("changing the store", 3, 7, "changes"), 0.1, "changing the store: 43%, 3 of 7 changes, 0 s"),
        (made("appending", 12_345, None, "messages"), 5.0, "appending: 12,345 messages, 2,469 messages/s"),
        (made("asking Spark", 0, None), 75.0, "asking Spark: 1 min 15 s"),
        (made("more than was known", 9, 8, "steps"), 3.0,
         "more than was known: 100%, 9 of 8 steps, 3 steps/s, 0 s left"),
    ],
)  # fmt: skip
def test_the_line_of_a_terminal(made_stage: Stage, seconds: float, text: str) -> None:
    assert progress.line(made_stage, seconds) == text
    assert len(text) < 80


def test_the_row_of_a_program() -> None:
    row = progress.row(made("reading the log", 1 << 20, 4 << 20), 2.0)
    assert list(row) == FIELDS
    assert (row["rate"], row["secondsLeft"]) == (524288.0, 6.0)
    nothing = progress.row(made("asking Spark", 0, None), 0.0)
    assert (nothing["total"], nothing["rate"], nothing["secondsLeft"]) == (None, None, None)


@pytest.mark.parametrize(("silent", "terminal", "seen"), [(0.0, True, True), (60.0, True, False), (0.0, False, False)])
def test_on_a_terminal(silent: float, terminal: bool, seen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(progress, "_SILENT", silent)
    monkeypatch.setitem(progress._EVERY, "auto", 0.01)
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.showing("auto", streams=False), stage("outside"), stage("reading", 8, "bytes") as reading:
        reading.done = 2
        end = time.monotonic() + (30 if seen else 0.2)
        while "reading: 25%, 2 B of 8 B" not in stream.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    assert ("\r\x1b[Kreading: 25%, 2 B of 8 B" in stream.getvalue()) == seen
    assert stream.getvalue().endswith("\r\x1b[K") == seen


def test_rows_on_the_same_terminal_are_not_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SILENT", 0.0)
    monkeypatch.setitem(progress._EVERY, "auto", 0.01)
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "stdout", Terminal())
    with progress.showing("auto", streams=True), stage("reading", 8):
        time.sleep(0.1)
    assert stream.getvalue() == ""


def test_nobody_listens_behind_it() -> None:
    class Told:
        def __init__(self) -> None:
            self.names: list[str] = []

        def begin(self, stage: Stage) -> None:
            self.names.append(f"+{stage.name}")

        def end(self, stage: Stage) -> None:
            self.names.append(f"-{stage.name}")

    told = Told()
    with pytest.raises(ZeroDivisionError), listening(told), stage("a"), stage("b"):
        raise ZeroDivisionError
    with stage("c"):
        pass
    assert told.names == ["+a", "+b", "-b", "-a"]


def stages(err: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in err.splitlines() if line.startswith('{"progress"')]
    assert all(list(row) == FIELDS for row in rows)
    return rows


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        (["check", "STORE"], {"reading the queues", "reading the log", "comparing queues with the log"}),
        (["recover", "STORE", "--yes"], {"checking the log", "filling queues and index", "changing the store"}),
        (["rebuild", "STORE", "index", "--yes"], {"reading the log", "changing the store"}),
        (["salvage", "STORE", "NEW"], {"copying messages", "checking the log"}),
        (["export", "STORE", "NEW"], {"copying messages", "checking the log"}),
        (["dump-to-parquet", "STORE", "NEW", "--runner", "local"], {"reading the log"}),
        (["append", "STORE", "LINES"], {"appending"}),
        (["import", "NEW", "LINES"], {"importing"}),
        (["clean", "STORE", "--hours", "0", "--files", "1", "--yes"], {"changing the store"}),
        (["clean", "STORE", "--hours", "0", "--files", "1", "--yes", "--delete"], {"deleting"}),
        (["truncate", "STORE", "99791", "--yes"], {"changing the store"}),
    ],
)
def test_for_programs(args: list[str], wanted: set[str], golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("consumequeue-deleted" if args[0] == "recover" else "clean")
    (tmp_path / "lines.ndjson").write_text('{"topic":"T","body":"x"}\n' * 3)
    named = {"STORE": store, "NEW": tmp_path / "new", "LINES": tmp_path / "lines.ndjson"}
    given = [named.get(word, word) for word in args]
    result = rmqtool(*given, "--progress", "json")
    rows = stages(result.err)
    assert {row["progress"] for row in rows} >= wanted, result.err
    for row in rows:
        assert row["total"] is None or row["done"] <= row["total"]
    assert any(row["done"] for row in rows)


def test_an_undo_says_how_far_it_is(golden_copy: Unpacked) -> None:
    store = golden_copy("clean")
    assert rmqtool("clean", store, "--hours", "0", "--files", "1", "--yes").code == 0
    (row,) = stages(rmqtool("undo", store, "--yes", "--progress", "json").err)
    assert (row["progress"], row["unit"]) == ("putting back", "changes")
    assert row["done"] == row["total"] == 1


def test_nothing_in_a_pipe(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (["--progress", "none"], []):
        result = rmqtool("check", golden("broker"), *arguments)
        assert (result.code, result.out.splitlines()[0], result.err) == (0, "Clean: nothing was found.", "")
    monkeypatch.setenv("RMQTOOL_PROGRESS", "json")
    assert stages(rmqtool("check", golden("clean")).err)
    refused = rmqtool("check", golden("clean"), "--progress", "loud")
    assert (refused.code, refused.out) == (2, "")


@by_turns(13)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["check", "STORE"], "%): nothing was changed, and the same command begins again\n"),
        (["recover", "STORE", "--yes"], "{}: nothing was changed\n"),
        (["salvage", "STORE", "NEW"], "%): no store was made\n"),
        (["export", "STORE", "NEW"], "%): no store was made\n"),
    ],
)
def test_a_signal_makes_it_say_what_was_going_on(
    args: list[str], text: str, number: signal.Signals, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    write_log(store / "commitlog", body=128, file_size=64 << 20, messages=BLOCK * 10_000)
    before = tree(store)
    named = {"STORE": str(store), "NEW": str(tmp_path / "new")}
    often = (
        "from rmqtool.cli.render import progress; progress._EVERY['json'] = 0.02; import rmqtool.main as m; m.main()"
    )
    command = [sys.executable, "-c", often, *(named.get(word, word) for word in args), "--progress", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if (row := json.loads(line))["total"] and row["done"]:
                break
        process.send_signal(number)
        err = process.stderr.read()
    assert process.returncode == 128 + number, (row, err)
    assert text.format(number.name) in err
    assert tree(store) == before
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
