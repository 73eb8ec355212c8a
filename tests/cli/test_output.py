"""Unusual content of bodies and names in tables, in JSON and on a terminal."""

import io
import json
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmqtool import NewMessage, Store
from rmqtool.cli.render.output import TABLES, Column, TableWriter, write_all, writer
from rmqtool.cli.render.rows import columns_of
from rmqtool.cli.render.text import dump_json
from rmqtool.contract import PlainRow, render_body
from rmqtool.store.append.create import create
from tests.amounts import by_turns


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("body", [b"NaN", b'{"a":Infinity}', b"[-Infinity]", b"1e999", b'{"a":[-1e400]}'])
def test_a_body_that_only_python_takes_for_json_is_text(body: bytes) -> None:
    assert render_body(body, "json") == (body.decode(), "utf8")


def test_a_body_that_could_be_read_but_not_written_is_text() -> None:
    for depth in (900, 960, 990, 1000, 5000):
        body = b"[" * depth + b"]" * depth
        value, _encoding = render_body(body, "json")
        row = {"a": {"b": [value]}}
        assert json.loads(json.dumps(row)) == json.loads(dump_json(row)) == row


def test_numbers_that_json_does_not_have_are_null() -> None:
    row = {"a": float("nan"), "b": [float("inf"), 1.5], "c": {"d": float("-inf")}, "e": "NaN"}
    assert json.loads(dump_json(row)) == {"a": None, "b": [None, 1.5], "c": {"d": None}, "e": "NaN"}


def test_csv_on_a_terminal_spells_control_characters_out() -> None:
    row = {"topic": "\x1b]0;owned\x07", "keys": ["a\x9b2J", "b"], "queueId": 1}
    for out, expected in (
        (Terminal(), "topic,keys,queueId\n\\x1b]0;owned\\x07,a\\x9b2J b,1\n"),
        (io.StringIO(), "topic,keys,queueId\n\x1b]0;owned\x07,a\x9b2J b,1\n"),
    ):
        to = writer("csv", ("topic", "keys", "queueId"), [], out)
        to.row(row)
        to.close()
        assert out.getvalue() == expected


def test_a_table_does_not_wait_for_a_hundred_long_rows() -> None:
    out = io.StringIO()
    table = TableWriter(out, [Column("body")])
    written = []
    for _ in range(40):
        table.row({"body": "x" * 60_000})
        written.append(out.tell())
    assert written[0] == 0
    assert written[20] > 0
    table.row({"body": "y" * 10_000_000})
    assert len(out.getvalue().splitlines()[-1]) < 70_000
    table.close()


@by_turns(3)
@pytest.mark.slow
def test_bodies_that_inflate_to_gigabytes_are_shown_one_at_a_time(tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    create(store)
    bomb = zlib.compress(b"A" * (128 << 20), 9)
    with Store(store, write=True) as live:
        for _ in range(8):
            live.append(NewMessage(topic="T", body=bomb, sys_flag=1))
    script = (
        "import sys\n"
        "from rmqtool.main import _run\n"
        "code = _run(sys.argv[1:])\n"
        "print(*[line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')], file=sys.stderr)\n"
        "sys.exit(code)"
    )
    command = [sys.executable, "-c", script, "commitlog", "dump", store, "--limit", "8", "-o", "table"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(result.stdout.splitlines()) == 9
    assert int(result.stderr.splitlines()[-1]) < 600_000  # kB; two bodies, and Python


@dataclass(slots=True, kw_only=True)
class OddRow(PlainRow):
    name: str
    percent: Any
    number: int | None
    flag: bool | None = None


ODD_VALUES = (
    "plain", "50% of %s", 'a "quoted", text', "杭州", "line\nfeed", "\x1b[31m", "\x85\x9b", "", 1.5, float("nan"), True,
    1, None, ["a", "b"],
)  # fmt: skip


@pytest.mark.parametrize("form", ["text", "table", "json", "ndjson", "csv"])
@pytest.mark.parametrize("columns", [None, "percent,name"])
def test_plain_rows_are_written_as_any_others(form: str, columns: str | None) -> None:
    rows = [OddRow(name=f"n{n}", percent=value, number=n or None) for n, value in enumerate(ODD_VALUES * 20)]
    texts = []
    TABLES.ask(columns, wide=False)
    try:
        for each in (rows, [row.to_dict() for row in rows]):
            out = io.StringIO()
            fields = tuple(rows[0].to_dict())
            assert write_all(writer(form, fields, columns_of(OddRow), out), each) == len(rows)
            texts.append(out.getvalue())
    finally:
        TABLES.ask(None, wide=False)
    assert texts[0] == texts[1]
    if form == "ndjson":
        assert [json.loads(line)["percent"] for line in texts[0].splitlines()][:2] == ["plain", "50% of %s"]
