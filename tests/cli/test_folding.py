"""Long lines for people: folded between words on a terminal, whole in a pipe; progress lines are cleared first."""

import ast
import io
import re
import shlex
import sys
import time

import pytest

from rmqtool.cli.commands import COMMANDS
from rmqtool.cli.render import progress, text
from rmqtool.cli.render.text import fold, note
from rmqtool.progress import stage
from rmqtool.words import command_line, with_store
from tests.cli.running import rmqtool
from tests.cli.terminal import at_terminal, plain
from tests.cli.test_progress import Terminal
from tests.conftest import Unpacked
from tests.sources import ROOT

# texts that nobody folds: screens that are written as they are, and the head of a file
APART = ("rmqtool/cli/first_screen.py", "rmqtool/cli/man/", "rmqtool/cli/live/copying/journal.py")
LONG = "error: the file is not what it was and nothing of it is read before somebody has looked at it once more"


@pytest.mark.parametrize("columns", [60, 80, 100, 300])
def test_words_stay_whole(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    value = f"{LONG} /a/path/{'x' * 120} {LONG}"
    lines = fold(value, Terminal()).splitlines()
    assert " ".join(line.strip() for line in lines) == value
    assert all(len(line) <= min(columns, text.MOST_COLUMNS) or "/a/path/" in line for line in lines)
    assert fold(value, io.StringIO()) == value
    assert fold("short", Terminal()) == "short"


@pytest.mark.parametrize(
    "args",
    [
        ("check",), ("check", "/data/store"), ("recover", "/data/store", "--broker-conf", "/etc/broker.conf"),
        ("rebuild", "/data/store", "timer"), ("check", "/data/my store"),
    ],
)  # fmt: skip
def test_a_command_stays_in_one_line(args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    command = command_line(*args)
    assert command == shlex.join(["rmqtool", *args])
    for before in range(3, 60, 4):
        text = f"{'x' * before} ({command}; {LONG}"
        lines = fold(text, Terminal()).splitlines()
        assert " ".join(line.strip() for line in lines) == text
        assert any(f"({command};" in line for line in lines), lines


def test_a_command_with_the_store_stays_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = with_store(f"{LONG} {command_line('rebuild', 'STORE', 'index')} builds it", "/data/my store")
    assert any("rmqtool rebuild '/data/my store' index" in line for line in fold(text, Terminal()).splitlines())


def test_a_path_may_have_the_word_for_the_store() -> None:
    text = with_store(f"/data/STORE/commitlog: see {command_line('check', 'STORE')}", "/data/STORE")
    assert text == "/data/STORE/commitlog: see rmqtool check /data/STORE"


def test_sentences_have_their_commands_as_data() -> None:
    """In a sentence, a command could be broken by folding, and its paths would not be quoted."""
    named = "|".join(name for name in COMMANDS)
    written = re.compile(rf"\brmqtool ({named})\b")
    result = []
    for path in sorted((ROOT / "rmqtool").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "rmqtool " not in text:
            continue
        tree = ast.parse(text)
        documented = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body and isinstance(node.body[0], ast.Expr)
        }  # fmt: skip
        examples = {id(node) for call in ast.walk(tree) if _is_command(call) for node in ast.walk(call)}
        result += [
            f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and written.search(node.value)
            and id(node) not in documented | examples
        ]  # fmt: skip
    assert [sentence for sentence in result if not sentence.startswith(APART)] == []


def _is_command(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "command"


@pytest.mark.parametrize("columns", [80, 200])
def test_errors_and_reports_at_a_terminal(columns: int, golden_copy: Unpacked) -> None:
    broken, cut = golden_copy("short-last-file"), golden_copy("size-field-negative")
    for arguments in (
        ["append", broken, "/dev/null"],
        ["recover", broken, "--dry-run"],
        ["recover", cut, "--dry-run"],
        ["commitlog", "dump", cut, "--limit", "1", "--offset", "5"],
    ):
        code, shown = at_terminal(*arguments, columns=columns)
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
