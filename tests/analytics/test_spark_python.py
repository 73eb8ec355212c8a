"""Which Python Spark starts for the data source, and its error messages, in scripts run by path."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqtool.analytics.spark.java import find_java
from rmqtool.interpreter import offer_this_python
from tests.amounts import by_turns
from tests.conftest import Unpacked

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "rmqtool/analytics/plugin/pyspark_rocketmq.py"
NAMES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT")
SCRIPT = """
import sys
{before}
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
{after}
source = lambda table: spark.read.format("rocketmq").option("table", table)
print(source("queues").load(sys.argv[1]).count())
for wrong in (
    lambda: source("messages").load("/no/store"),
    lambda: source("nothing").load(sys.argv[1]),
    lambda: source("messages").schema("nothing string").load(sys.argv[1]).count(),
):
    try:
        wrong()
    except AnalysisException as err:
        print(str(err).splitlines()[0])
spark.stop()
"""


def other_python3(folder: Path) -> str:
    """A PATH whose ``python3`` has no packages."""
    folder.mkdir()
    program = folder / "python3"
    program.write_text(f'#!/bin/sh\nexec "{sys._base_executable}" -I -S "$@"\n')  # type: ignore[attr-defined]
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@by_turns(13)
@pytest.mark.spark
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import rmqtool", ""),
        ("", "from rmqtool.analytics.source.tables_source import register; register(spark)"),
    ],
    ids=["import", "register"],
)
def test_a_script_that_is_run_by_path(before: str, after: str, golden: Unpacked, tmp_path: Path) -> None:
    """With another ``python3`` in PATH; errors are one line, without a traceback."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/pyspark_rocketmq.py").write_bytes(PLUGIN.read_bytes())
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(before=before, after=after))
    environ = {name: value for name, value in os.environ.items() if name not in NAMES}
    environ["PYTHONPATH"] = f"{tmp_path / 'site'}{os.pathsep}{ROOT}"
    environ |= {"PATH": other_python3(tmp_path / "bin"), "JAVA_HOME": find_java().home, "TMPDIR": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, str(script), str(golden("clean"))],
        env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    count, *errors = result.stdout.splitlines()
    assert int(count) > 100
    path, table, column = errors
    assert path.endswith(": rmqtool.errors.UnreadableStore: /no/store: no such directory")
    assert ": rmqtool.errors.BadValue: table 'nothing' is none of messages, queues" in table
    assert ": rmqtool.errors.BadValue: table messages has no column nothing" in column


@pytest.mark.parametrize("name", NAMES)
def test_a_python_that_was_named_stays(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for each in NAMES:
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv("PATH", other_python3(tmp_path / "bin"))
    monkeypatch.setenv(name, "12345")
    offer_this_python()
    assert [os.environ.get(each) for each in NAMES] == ["12345" if each == name else None for each in NAMES]


def test_this_python_is_offered_where_path_leads_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for each in NAMES:
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "")  # as one that was not named; put back behind the test
    (tmp_path / "active").mkdir()
    (tmp_path / "active/python3").symlink_to(sys.executable)
    with monkeypatch.context() as active:  # an activated environment: its directory is the first of PATH
        active.setattr(sys, "executable", str(tmp_path / "active/python"))
        active.setenv("PATH", str(tmp_path / "active"))
        offer_this_python()
    assert os.environ["PYSPARK_PYTHON"] == ""
    monkeypatch.setenv("PATH", other_python3(tmp_path / "bin"))
    offer_this_python()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
