"""Tables at terminals: lines that fit, whole ids, and choices of columns."""

import io
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.cli.running import rmqtool
from tests.conftest import Unpacked

CASE = "broker"
ID = "FD0000000000000000000000000000020FB630946E09664343CD0000"


class Terminal(io.TextIOWrapper):
    """Bytes that take themselves for a terminal."""

    def isatty(self) -> bool:
        return True


def shown(store: Path, words: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command prints at a terminal of this width, the store named as ``STORE``."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    with patch("tests.cli.running.io.TextIOWrapper", Terminal):
        result = rmqtool(*(store if word == "STORE" else word for word in words))
    assert result.code in (0, 1), result
    return result.out.replace(str(store), "STORE") + "".join(f"({line})\n" for line in result.err.splitlines())


@pytest.mark.parametrize(
    "words",
    [("group", "lag"), ("offsets",), ("delay", "list"), ("topic", "list", "--system"), ("index", "dump", "--headers")],
)
def test_lines_fit(words: tuple[str, ...], golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (40, 80, 120):
        lines = shown(golden(CASE), (*words, "STORE"), columns, monkeypatch).splitlines()
        rows = [line for line in lines if not line.startswith("(")]
        assert max(map(len, rows)) <= columns or "" in rows  # a block holds what is longer than a line


def test_ids_are_whole_at_eighty_columns(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ID in shown(golden(CASE), ("commitlog", "dump", "STORE", "--limit", "1"), 80, monkeypatch)


def test_columns_are_chosen(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden(CASE)
    words = ("commitlog", "dump", "STORE", "--limit", "1", "--columns", "msgId, topic")
    assert shown(store, words, 80, monkeypatch).split()[:4] == ["msgId", "topic", ID, "Orders"]
    assert shown(store, words, 20, monkeypatch).splitlines()[:2] == [f"msgId  {ID}", "topic  Orders"]
    wide = shown(store, ("commitlog", "dump", "STORE", "--limit", "1", "--wide"), 80, monkeypatch).splitlines()
    assert len(wide[1]) > 120
    unknown = rmqtool("commitlog", "dump", store, "--columns", "msgid")
    assert (unknown.code, unknown.out) == (2, "")
    assert unknown.err.startswith("error: no column msgid; there are topic, queueId")
    assert "apply to tables only" in rmqtool("check", golden("clean"), "-o", "json", "--wide").err


def test_a_pipe_gets_all_columns_in_one_line(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = rmqtool("group", "lag", golden(CASE)).out.splitlines()
    assert lines[0].split()[-2:] == ["lastTime", "state"]
