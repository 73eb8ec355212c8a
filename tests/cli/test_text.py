"""Text output is the same everywhere, as on a terminal of 100 columns; tables have whole lines on demand."""

import io
import sys
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest

from rmqtool.cli.render.output import Column, TableWriter
from rmqtool.cli.render.text import break_lines, note, width_of
from rmqtool.cli.startup.paging import notes_below
from tests.amounts import by_turns
from tests.cli.running import process, rmqtool
from tests.cli.screens import USED
from tests.cli.terminal import at_terminal, plain
from tests.cli.test_paging import pager
from tests.conftest import Unpacked

REPORTS = [args for args in USED.values() if "STORE" in args and "hexdump" not in args]


@by_turns(13)
@pytest.mark.parametrize("args", REPORTS, ids=" ".join)
def test_a_pipe_gets_what_a_terminal_of_100_columns_shows(args: tuple[str, ...], golden: Unpacked) -> None:
    store = golden("broker")
    asked = [str(store) if word == "STORE" else word for word in args]
    piped = rmqtool(*asked)
    assert max(map(width_of, piped.out.splitlines()), default=0) <= 100
    assert rmqtool(*asked, "--output", "text") == piped
    code, shown = at_terminal(*asked, columns=100)
    lines = [line.rstrip() for line in piped.out.splitlines()]
    assert (code, [line.rstrip() for line in plain(shown).splitlines()][: len(lines)]) == (piped.code, lines)


def test_check_says_the_same_everywhere(golden: Unpacked) -> None:
    store = golden("size-field-negative")
    text = rmqtool("check", store)
    assert (text.code, text.err) == (1, "")
    assert text.out.startswith("Do not start a broker on this store.\n")
    assert max(map(len, text.out.splitlines())) <= 100
    table = rmqtool("check", store, "--output", "table")
    assert table.out.split()[:3] == ["severity", "code", "file"]
    assert max(map(len, table.out.splitlines())) > 100
    assert "errors" in table.err
    assert rmqtool("check", golden("broker")).out.startswith("Clean: nothing was found.\n")


def test_a_table_in_a_file_has_whole_lines(golden: Unpacked) -> None:
    args = ("commitlog", "dump", golden("broker"), "--limit", "2")
    lines = rmqtool(*args, "--output", "table").out.splitlines()
    assert len(lines) == 3
    assert len(lines[1]) > 100
    assert rmqtool(*args).out.startswith("topic           Orders\n")


def test_a_block_breaks_long_cells(golden: Unpacked) -> None:
    out = io.StringIO()
    path, body = "/data/" + "x" * 120, "杭州" * 60
    to = TableWriter(out, [Column("file"), Column("body", wide=True), Column("id")], 100)
    to.row({"file": path, "body": body, "id": "i" * 60})
    to.close()
    lines = out.getvalue().splitlines()
    assert lines[0] == f"file  {path}"  # which can be copied
    assert all(width_of(line) <= 100 for line in lines[1:])
    assert "".join(line[6:] for line in lines[1:-1]) == body


def test_late_rows_of_a_table_are_shown_like_the_first() -> None:
    out = io.StringIO()
    to = TableWriter(out, [Column("name", wide=True), Column("n", right=True), Column("state")], 40)
    for _ in range(100):
        to.row({"name": "a" * 30, "n": 1000, "state": "ok"})
    odd: list[dict[str, object]] = [
        {"name": "b", "n": 1, "state": "extra-queue"}, {"name": "c" * 31, "n": 2, "state": "ok"},
        {"name": "d\x1b[2J", "n": 3, "state": "ok"}, {"name": "杭州" * 8, "n": 4, "state": None},
        {"name": ["e", "f"], "n": True}, {"name": {"g": 1}, "n": 12345, "state": "a\nb"}, {"name": "h" * 80, "n": -5},
    ]  # fmt: skip
    for row in odd:
        to.row(row)
    to.close()
    assert out.getvalue().splitlines()[101:] == [
        "b" + " " * 26 + "     1  extra-queue",
        "c" * 26 + "…" + "     2  ok",
        r"d\x1b[2J" + " " * 19 + "     3  ok",
        "杭州" * 6 + "杭…" + "     4",
        "e f" + " " * 24 + "  True",
        '{"g":1}' + " " * 20 + "  12345  a\\x0ab",
        "h" * 26 + "…" + "    -5",
    ]


@pytest.mark.parametrize("width", [1, 7, 10, 30])
def test_broken_lines_hold_the_text(width: int) -> None:
    for text in ("", "one", "one two three four", "杭州 城市 x", "a" * 50, "ab " + "c" * 40 + " de"):
        for anywhere in (False, True):
            lines = list(break_lines(text, width, anywhere=anywhere))
            assert "".join(lines).replace(" ", "") == text.replace(" ", "")
            assert not anywhere or all(width_of(line) <= max(width, 2) for line in lines)


def test_notes_come_below_what_is_shown(golden: Unpacked) -> None:
    store = golden("broker")
    both = process("commitlog", "dump", store, "--limit", "2", capture_output=False, stdout=PIPE, stderr=STDOUT)
    assert both.out.splitlines()[-1] == "stopped after 2 rows (--limit)"


def test_notes_come_after_the_pager(golden: Unpacked, tmp_path: Path) -> None:
    slow = "import time; text = sys.stdin.read(); time.sleep(1); print('the pager has ended', flush=True)"
    args = ("commitlog", "dump", golden("broker"), "--limit", "2")
    _code, shown = at_terminal(*args, PAGER=pager(tmp_path, slow))
    assert shown.index("the pager has ended") < shown.index("stopped after 2 rows")
    _code, shown = at_terminal("query-key", golden("broker"), "Orders", "nothing", PAGER=pager(tmp_path, slow))
    assert shown.index("the pager has ended") < shown.index("no message of topic")


def test_more_notes_than_memory_should_hold(capsys: pytest.CaptureFixture[str]) -> None:
    with notes_below(["check", "store"]):
        for number in range(30_000):
            note(f"{number:06d} {'x' * 100}")
        sys.stdout.write("shown\n")
        assert capsys.readouterr().err == ""
    told = capsys.readouterr().err.splitlines()
    assert [int(line[:6]) for line in told] == list(range(30_000))


def test_nobody_behind_is_said(golden: Unpacked) -> None:
    store = golden("clean")
    for by in ("queue", "topic", "group"):
        result = rmqtool("group", "lag", golden("broker"), "--group", "lab-orderly", "--lagging", "--by", by)
        assert (result.code, result.out) == (0, "")
        assert result.err == "group lab-orderly is not behind: no messages to consume, and none in flight\n"
    assert rmqtool("transaction", "list", store).err == "there is nothing to list\n"
