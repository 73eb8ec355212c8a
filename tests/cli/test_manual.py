"""manual: the pages in the terminal."""

import csv
import io
import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

import rmqtool as package
from rmqtool.cli.man.manual import Page
from tests.cli.running import RMQTOOL, ROOT, process, rmqtool

FOLDER = Path(package.__file__).parent / "manual"


def on_terminal(*args: str, **environment: str) -> str:
    """The output of a command at a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    try:
        running = subprocess.Popen(
            [*RMQTOOL, *args],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            cwd=ROOT,
            env={**os.environ, "COLUMNS": "100", "TERM": "xterm", **environment},
        )
        os.close(theirs)
        shown = b""
        while True:
            try:
                block = os.read(ours, 1 << 16)
            except OSError:  # how a terminal says that nobody writes to it any more
                break
            if not block:
                break
            shown += block
        assert running.wait(timeout=60) == 0
    finally:
        os.close(ours)
    return shown.decode().replace("\r\n", "\n")


def test_every_page_is_a_topic() -> None:
    assert {path.stem for path in FOLDER.iterdir() if path.suffix == ".md"} == set(Page)


def test_without_a_topic_the_pages_are_listed() -> None:
    named = [line.split()[0] for line in rmqtool("manual").out.splitlines() if not line.startswith(" ")]
    assert named == list(Page)
    result = rmqtool("manual", "-o", "table")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert [line.split()[0] for line in lines] == ["topic", *Page]
    assert max(map(len, lines)) <= 140
    rows = json.loads(rmqtool("manual", "-o", "json").out)
    assert [row["topic"] for row in rows] == list(Page)
    for row in rows:
        assert set(row) == {"topic", "title", "summary"}
        assert row["summary"].endswith(".")
        assert "\n" not in row["summary"]


@pytest.mark.parametrize("topic", Page)
def test_into_a_pipe_a_page_goes_as_it_is(topic: Page) -> None:
    result = rmqtool("manual", topic)
    assert (result.code, result.err) == (0, "")
    assert result.out == (FOLDER / f"{topic}.md").read_text(encoding="utf-8")


def test_machine_output_of_a_page() -> None:
    text = (FOLDER / "sql.md").read_text(encoding="utf-8")
    for form in ("json", "ndjson"):
        row = json.loads(rmqtool("manual", "sql", "-o", form).out)
        assert (row["topic"], row["title"], row["text"]) == ("sql", "SQL and reports", text)
    (row,) = csv.DictReader(io.StringIO(rmqtool("manual", "sql", "-o", "csv").out, newline=""))
    assert (row["topic"], row["text"]) == ("sql", text)


def test_on_a_terminal_a_page_is_laid_out() -> None:
    shown = on_terminal("manual", "writing")
    assert "\x1b[" in shown
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "# Writing" not in text
    assert "`" not in text.split("What recover does")[0]
    assert ".md" not in text  # pages are named by their command
    assert "rmqtool manual emergencies" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100
    plain = on_terminal("manual", "writing", NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", plain)


def test_an_unknown_topic_is_a_usage_error_that_lists_them() -> None:
    result = rmqtool("manual", "recovery")
    assert (result.code, result.out) == (2, "")
    for topic in Page:
        assert re.search(rf"\b{topic}\b", result.err)


def test_topics_are_completed() -> None:
    environment = {"COMP_WORDS": "rmqtool manual s", "COMP_CWORD": "2", "_RMQTOOL_COMPLETE": "complete_bash"}
    plain = {name: value for name, value in os.environ.items() if not name.startswith("_")}
    assert process(env={**plain, **environment}).out.split() == ["services", "serving", "settings", "spark", "sql"]


def test_a_page_needs_neither_a_terminal_nor_a_library() -> None:
    script = (
        "import sys; from rmqtool.main import _run; code = _run(['manual', 'formats'])\n"
        "print(*sorted(sys.modules), file=sys.stderr); sys.exit(code)"
    )
    run = subprocess.run([RMQTOOL[0], "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    loaded = set(run.stderr.split())
    assert run.stdout.startswith("# File formats")
    assert not {name.split(".")[0] for name in loaded} & {"numpy", "construct", "pyarrow", "pyspark", "markdown_it"}
    assert "rich.markdown" not in loaded
