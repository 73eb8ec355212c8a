"""Tables on terminals: lines that fit, whole ids, and column selection."""

import io
import json
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.cli.running import rmqtool
from tests.conftest import Unpacked

CASE = "broker"
ID = "FD0000000000000000000000000000020FB630946E09664343CD0000"


class Terminal(io.TextIOWrapper):
    """A byte buffer that pretends to be a terminal."""

    def isatty(self) -> bool:
        return True


def shown(store: Path, args: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """The output of a command at a terminal of this width, with the store shown as ``STORE``."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    with patch("tests.cli.running.io.TextIOWrapper", Terminal):
        result = rmqtool(*(store if word == "STORE" else word for word in args))
    assert result.code in (0, 1), result
    return result.out.replace(str(store), "STORE") + "".join(f"({line})\n" for line in result.err.splitlines())


@pytest.mark.parametrize(
    "args",
    [("group", "lag"), ("offsets",), ("delay", "list"), ("topic", "list", "--system"), ("index", "dump", "--headers")],
)
def test_lines_fit(args: tuple[str, ...], golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (40, 80, 120):
        lines = shown(golden(CASE), (*args, "STORE"), columns, monkeypatch).splitlines()
        rows = [line for line in lines if not line.startswith("(")]
        assert max(map(len, rows)) <= columns or "" in rows  # a block holds what is longer than a line


def test_ids_are_whole_at_eighty_columns(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ID in shown(golden(CASE), ("commitlog", "dump", "STORE", "--limit", "1"), 80, monkeypatch)


def test_columns_are_chosen(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden(CASE)
    args = ("commitlog", "dump", "STORE", "--limit", "1", "--columns", "msgId, topic")
    assert shown(store, args, 80, monkeypatch).split()[:4] == ["msgId", "topic", ID, "Orders"]
    assert shown(store, args, 20, monkeypatch).splitlines()[:2] == [f"msgId  {ID}", "topic  Orders"]
    wide = shown(store, ("commitlog", "dump", "STORE", "--limit", "1", "--wide"), 80, monkeypatch).splitlines()
    assert len(wide[1]) > 120
    unknown = rmqtool("commitlog", "dump", store, "--columns", "msgid")
    assert (unknown.code, unknown.out) == (2, "")
    assert unknown.err.startswith("error: no column msgid; there are topic, queueId")
    assert "--wide applies to tables" in rmqtool("check", golden("clean"), "-o", "json", "--wide").err
    assert "chooses columns of rows" in rmqtool("info", golden("clean"), "-o", "json", "--columns", "topic").err


@pytest.mark.parametrize("form", ["csv", "ndjson", "json"])
def test_columns_are_chosen_in_machine_forms(form: str, golden: Unpacked) -> None:
    args = ("commitlog", "dump", golden(CASE), "--limit", "2", "-o", form)
    chosen = rmqtool(*args, "--columns", "msgId,topic").out
    if form == "csv":
        assert chosen.splitlines()[:2] == ["msgId,topic", f"{ID},Orders"]
    else:
        rows = json.loads(chosen) if form == "json" else [json.loads(line) for line in chosen.splitlines()]
        assert list(rows[0].items()) == [("msgId", ID), ("topic", "Orders")]
        assert len(rows) == 2
    unknown = rmqtool(*args, "--columns", "storeTime")
    assert (unknown.code, unknown.out) == (2, "")
    assert "no column storeTime; there are topic, queueId" in unknown.err


def test_columns_of_rows_that_come_as_columns(golden: Unpacked) -> None:
    args = ("delay", "due", golden("broker-5.3.3"), "--all", "--at", "0", "-o", "ndjson")
    every = [json.loads(line) for line in rmqtool(*args).out.splitlines()]
    assert every
    few = [json.loads(line) for line in rmqtool(*args, "--columns", "topic,msgId").out.splitlines()]
    assert few == [{"topic": row["topic"], "msgId": row["msgId"]} for row in every]


def test_a_topic_has_messages_and_bytes(golden: Unpacked) -> None:
    for case in (CASE, "broker-5.3.3", "rocksdb-5.3.3"):
        store, sizes = golden(case), dict[str, int]()
        for line in rmqtool("commitlog", "dump", store, "--records", "-o", "ndjson").out.splitlines():
            row = json.loads(line)
            sizes[row["topic"]] = sizes.get(row["topic"], 0) + row["storeSize"]
        listed = rmqtool("topic", "list", store, "--system", "-o", "ndjson").out.splitlines()
        result = {row["topic"]: row for row in map(json.loads, listed)}
        assert result["Orders"]["bytes"] == sizes["Orders"] > 0
        assert result["Payments"]["bytes"] == sizes["Payments"] > 0
    assert rmqtool("topic", "list", golden(CASE)).out.split()[3:6] == ["messages", "bytes", "groups"]


def test_csv_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("topic,body\nT,x\n")
    output = rmqtool("import", tmp_path / "new", tmp_path / "rows.csv")
    assert (output.code, "CSV is not taken" in output.err, (tmp_path / "new").exists()) == (2, True, False)


def test_a_pipe_gets_all_columns_in_one_line(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = rmqtool("group", "lag", golden(CASE), "--output", "table").out.splitlines()
    assert lines[0].split()[-2:] == ["lastTime", "state"]
