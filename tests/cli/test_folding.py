"""Long lines for people: folded between words on a terminal, whole in a pipe; a line of progress makes room."""

import io
import sys
import time

import pytest

from rmqtool.cli.render import progress, text
from rmqtool.cli.render.text import folded, note
from rmqtool.progress import stage
from tests.cli.running import rmqtool
from tests.cli.terminal import at_terminal, plain
from tests.cli.test_progress import Terminal
from tests.conftest import Unpacked

LONG = "error: the file is not what it was and nothing of it is read before somebody has looked at it once more"


@pytest.mark.parametrize("columns", [60, 80, 100, 300])
def test_words_stay_whole(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    words = f"{LONG} /a/path/{'x' * 120} {LONG}"
    lines = folded(words, Terminal()).splitlines()
    assert " ".join(line.strip() for line in lines) == words
    assert all(len(line) <= min(columns, text.MOST_COLUMNS) or "/a/path/" in line for line in lines)
    assert folded(words, io.StringIO()) == words
    assert folded("short", Terminal()) == "short"


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("(rmqtool check /data/store looks at everything)", "(rmqtool check /data/store"),
        ("run rmqtool recover /data/store --broker-conf /etc/broker.conf first", None),
        ("rmqtool rebuild /data/store timer finds all that wait", "rmqtool rebuild /data/store timer"),
        ("is rmqtool undo /data/store --forget; or", "rmqtool undo /data/store --forget;"),
        ("use rmqtool check", "rmqtool check"),
        ("with rmqtool clean /data/store --files 3 it goes on", "rmqtool clean /data/store --files 3"),
        ("see rmqtool check '/data/my store' for more", "rmqtool check '/data/my store'"),
    ],
)
def test_a_command_stays_in_one_line(words: str, command: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    command = command or "rmqtool recover /data/store --broker-conf /etc/broker.conf"
    for before in range(3, 60, 4):
        text = f"{'x' * before} {words} {LONG}"
        lines = folded(text, Terminal()).splitlines()
        assert " ".join(line.strip() for line in lines) == text
        assert any(command in line for line in lines), lines


@pytest.mark.parametrize("columns", [80, 200])
def test_errors_and_reports_at_a_terminal(columns: int, golden_copy: Unpacked) -> None:
    broken, cut = golden_copy("short-last-file"), golden_copy("size-field-negative")
    for words in (
        ["append", broken, "/dev/null"],
        ["recover", broken, "--dry-run"],
        ["recover", cut, "--dry-run"],
        ["commitlog", "dump", cut, "--limit", "1", "--offset", "5"],
    ):
        code, shown = at_terminal(*words, columns=columns)
        assert code in (0, 1, 4)
        for line in plain(shown).replace("\r", "").splitlines():
            # commands and file names are whole; all else fits
            assert len(line) <= columns or "/" in line, line


def test_a_pipe_gets_one_line(golden_copy: Unpacked) -> None:
    refused = rmqtool("append", golden_copy("body-bit-flip-first-file-no-checkpoint"), "/dev/null")
    assert refused.code == 4
    assert refused.err.count("\n") == 1
    assert len(refused.err) > text.MOST_COLUMNS


def test_a_note_does_not_stand_in_a_line_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(progress, "_SILENT", 0.0)
    monkeypatch.setitem(progress._EVERY, "auto", 0.01)
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.showing("auto", streams=False), stage("reading", 8, "bytes"):
        end = time.monotonic() + 30
        while "reading" not in stream.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
        note("a note")
    assert "\r\x1b[Ka note\n" in stream.getvalue()
    assert not text.clearing
