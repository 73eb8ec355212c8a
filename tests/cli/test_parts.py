"""CSV of reports with several tables: each by name, the first by default."""

import csv
import importlib
import io
import json
import pkgutil
import re
from dataclasses import is_dataclass
from typing import get_type_hints

import pytest

from rmqtool import admin, services, store
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked

ID = "7F000001000078BF00000000000008BE"
LINES = {
    "info": ["info", "STORE"],
    "topic show": ["topic", "show", "STORE", "Orders"],
    "trace": ["trace", "STORE", ID],
    "recover": ["recover", "STORE", "--dry-run"],
    "truncate": ["truncate", "STORE", "2238", "--dry-run"],
    "dispatch": ["dispatch", "STORE", "--dry-run"],
    "clean": ["clean", "STORE", "--dry-run", "--hours", "0"],
    "rebuild": ["rebuild", "STORE", "checkpoint", "--dry-run"],
}
_CLOCK = re.compile(r"(?<=create index/)\d+")
OWN = {"ranges"}  # of recovery, which JSON has inside of its states


def twin(name: str) -> bool:
    """Whether a field is the readable twin of a time in ms, which only JSON has."""
    return name == "isoTime" or name.endswith("Time")


@by_turns(2)
@pytest.mark.parametrize("name", LINES)
def test_every_table_is_that_of_json(name: str, golden: Unpacked) -> None:
    args = [golden("broker") if word == "STORE" else word for word in LINES[name]]
    plain = rmqtool(*args, "-o", "csv")
    first, _, others = plain.err.partition("this is the table ")[2].partition("; --table has ")
    known = [first, *others.partition(" too\n")[0].split(", ")]
    whole = json.loads(rmqtool(*args, "-o", "json").out)
    assert {key for key, value in whole.items() if isinstance(value, list)} == {*known} - {"report"} - OWN
    asked = {table: rmqtool(*args, "-o", "csv", "--table", table) for table in known}
    assert {result.code for result in asked.values()} == {plain.code}
    assert asked[first].out == plain.out
    for table in known[1:]:
        assert "this is the table" not in asked[table].err
        rows = list(csv.DictReader(io.StringIO(asked[table].out)))
        if table == "report":
            alone = {key for key, value in whole.items() if not isinstance(value, list)}
            assert [set(row) for row in rows] == [alone - {key for key in alone if twin(key)}]
            continue
        assert len(rows) == len(whole[table])
        for row, value in zip(rows, whole[table], strict=True):
            if isinstance(value, dict):
                assert set(row) >= {key for key in value if not twin(key)}
            else:
                # new index files are named after the clock
                assert {name: _CLOCK.sub("", cell) for name, cell in row.items()} == {"value": _CLOCK.sub("", value)}


def test_what_is_no_table(golden: Unpacked) -> None:
    wrong = rmqtool("info", golden("broker"), "-o", "csv", "--table", "queues")
    assert (wrong.code, wrong.out) == (2, "")
    assert "--table queues: give topics, files, groups, configs, problems, tiered, epochs, roles, report" in wrong.err
    other = rmqtool("info", golden("broker"), "--table", "files")
    assert (other.code, "needs --output csv" in other.err) == (2, True)


def test_the_types_of_every_report_can_be_read() -> None:
    """Columns of CSV come from them, so no report may name a type that only a type checker loads."""
    packages = (admin, services, store)
    walks = (pkgutil.walk_packages(package.__path__, f"{package.__name__}.") for package in packages)
    modules = [name for walk in walks for _, name, _ in walk]
    values = [value for name in modules for value in vars(importlib.import_module(name)).values()]
    classes = {value for value in values if isinstance(value, type) and hasattr(value, "to_dict")}
    reports = [value for value in classes if is_dataclass(value)]
    assert len(reports) > 20
    for report in reports:
        assert get_type_hints(report)
