"""Tables at terminals of three sizes: golden screens, whole ids, and choices of columns."""

import io
import os
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.cli.running import rmqtool
from tests.cli.terminal import SCREENS, SIZES, TABLES
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


@pytest.mark.parametrize("columns", [columns for columns, _rows in SIZES])
@pytest.mark.parametrize("name", TABLES)
def test_as_recorded(name: str, columns: int, golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    """``RMQTOOL_RECORD=1`` records them anew."""
    text = shown(golden(CASE), TABLES[name], columns, monkeypatch)
    path = SCREENS / f"{name}-{columns}.txt"
    if "RMQTOOL_RECORD" in os.environ:
        path.write_text(text)
    assert text == path.read_text()
    lines = [line for line in text.splitlines() if not line.startswith("(")]
    assert max(map(len, lines)) <= columns or "\n\n" in text  # a block holds what is longer than a line


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
    assert "for tables" in rmqtool("check", golden("clean"), "-o", "json", "--wide").err


def test_a_pipe_gets_all_columns_in_one_line(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = rmqtool("group", "lag", golden(CASE)).out.splitlines()
    assert lines[0].split()[-2:] == ["lastTime", "state"]
