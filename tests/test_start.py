"""Start-up cost: which modules a command loads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import goldens
from tests.conftest import Unpacked
from tests.sources import ROOT
from tests.test_architecture import PACKAGES

SLOW = {
    "typer", "click", "rich", "numpy", "construct", "pyarrow", "pyspark", "isal", "lz4",
    "zstandard",
    "pydantic", "dataclasses", "inspect", "ast", "pathlib", "subprocess", "socket", "logging", "tempfile", "shutil",
    "argparse", "importlib.metadata", "email", "urllib", "csv", "datetime", "decimal", "asyncio", "threading",
}  # fmt: skip


def loaded_by(*args: str, code: int = 0) -> set[str]:
    """Modules loaded by a command, without those that Python itself loads."""
    script = (
        "import sys; before = set(sys.modules)\n"
        "from rmqtool.main import _run\n"
        "code = _run(sys.argv[1:])\n"
        "print(*sorted(set(sys.modules) - before), file=sys.stderr)\n"
        "sys.exit(code)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV_"))}
    result = subprocess.run(
        [sys.executable, "-c", script, *args], cwd=ROOT, capture_output=True, text=True, timeout=60, env=environment
    )
    assert result.returncode == code, result.stderr
    assert bool(result.stdout) == (code == 0)
    return set(result.stderr.splitlines()[-1].split())


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "rmqtool", "info", "/no/store"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (3, "error: /no/store: no such directory\n")


def test_a_command_has_no_threads_that_wait_for_matrices() -> None:
    script = (
        "import os, sys; from rmqtool.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "import numpy; print(len(os.listdir('/proc/self/task')) if os.path.isdir('/proc/self/task') else 1)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    result = subprocess.run(
        [sys.executable, "-c", script, "--version"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, env=environment, check=True,
    )  # fmt: skip
    assert result.stdout.split()[-1] == "1"


def tops(modules: set[str]) -> set[str]:
    return {name for module in modules for name in (module, module.split(".")[0])}


@pytest.mark.parametrize("option", ["--help", "-h", "--version"])
def test_the_first_screen_and_the_version_load_next_to_nothing(option: str) -> None:
    loaded = loaded_by(option)
    assert not tops(loaded) & SLOW
    assert {module for module in loaded if module.startswith(("rmqtool", "formats"))} == {
        "rmqtool", "rmqtool.interpreter", "rmqtool.main", "rmqtool.version", "rmqtool.cli", "rmqtool.cli.commands",
        "rmqtool.cli.first_screen",
    }  # fmt: skip
    assert len(loaded) < 10


@pytest.mark.parametrize("args", [["send"], ["group"], ["group", "reset"], ["dump-to-parquet"]], ids=" ".join)
def test_help_does_not_load_the_command(args: list[str]) -> None:
    loaded = loaded_by(*args, "--help")
    assert not tops(loaded) & SLOW
    assert not {module for module in loaded if module.startswith("rmqtool.cli.") and "startup" not in module} - {
        "rmqtool.cli.commands"
    }


@pytest.mark.parametrize("args", [["send"], ["consume"], ["group", "reset"], ["dump-to-parquet"]], ids=" ".join)
def test_a_usage_error_does_not_load_the_command(args: list[str]) -> None:
    for line in ([*args, "--bogus"], args):
        if line != ["consume"]:  # goes without an argument
            loaded = loaded_by(*line, code=2)
            assert not loaded & {"typer", "numpy", "asyncio", "construct"}
            assert not {module for module in loaded if module.startswith(("rmqtool.client", "rmqtool.store"))}


@pytest.mark.parametrize("form", ["ndjson", "json"])
def test_a_lookup_loads_little(form: str, golden: Unpacked) -> None:
    query = next(query for query in goldens.queries("clean") if query["physicalOffsets"])
    loaded = loaded_by("query-key", str(golden("clean")), query["topic"], query["key"], "-o", form)
    assert "rmqtool.services.lookup.query" in loaded  # it did the work
    assert not tops(loaded) & SLOW
    assert len(loaded - PACKAGES) <= 83


def test_values_of_options_are_converted_without_pydantic(tmp_path: Path) -> None:
    store = str(ROOT / "examples" / "store")
    for arguments in (
        ["check", store, "--severity", "error"], ["group", "lag", store, "-g", "lab-*", "--by", "topic"],
        ["info", store], ["commitlog", "dump", store, "--limit", "1", "-q", "0", "-q", "1"], ["recover", store, "-n"],
        ["salvage", store, str(tmp_path / "new"), "-o", "json"],
    ):  # fmt: skip
        assert not tops(loaded_by(*arguments)) & {"pydantic", "pydantic_core"}


def test_an_explanation_reads_no_store() -> None:
    for arguments in (["explain", "cq-missing"], ["explain", "cq-missing", "-o", "json"], ["explain"]):
        loaded = loaded_by(*arguments)
        assert "rmqtool.store.check.codes.all" in loaded
        assert not tops(loaded) & {"numpy", "rich"}
        assert not {name for name in loaded if name.startswith(("rmqtool.store.check.run", "rmqtool.store.recovery"))}


def test_looking_at_groups_loads_nothing_that_writes() -> None:
    store = str(ROOT / "examples" / "store")
    for arguments in (["group", "lag", store], ["group", "list", store], ["group", "diff", store, store, "--all"]):
        loaded = loaded_by(*arguments)
        assert "rmqtool.services.consumers.groups" in loaded
        assert not {name for name in loaded if ".append" in name or ".kernels" in name or ".changes" in name}


def test_reading_commands_load_neither_spark_nor_arrow(golden: Unpacked) -> None:
    for arguments in (["info"], ["consumequeue", "dump"], ["recover", "--dry-run"], ["commitlog", "dump"]):
        loaded = loaded_by(*arguments, str(golden("clean")))
        assert not tops(loaded) & {"pyspark", "pyarrow", "py4j", "construct"}


def test_repairs_load_only_what_they_do(golden: Unpacked, tmp_path: Path) -> None:
    store = str(golden("clean"))
    for args, others in (
        (["recover", store, "--dry-run"], {"rmqtool.services.lookup.info", "rmqtool.store.check", "secrets"}),
        (["rebuild", store, "index", "-n"], {"rmqtool.store.builders.config_doctor", "rmqtool.store.check"}),
        (["salvage", store, str(tmp_path / "new")], {"rmqtool.store.repair.rebuild"}),
        (["check", store], {"numpy.ma", "rich"}),
        (["evidence", store, str(tmp_path / "facts.tar.gz")], {"numpy.ma", "rich"}),
        (["retention", store], {"rmqtool.store.append.live", "rmqtool.store.changes", "rich"}),
        (["report", "traffic", store], {"rmqtool.services.lookup.info", "rmqtool.store.check", "pyspark"}),
    ):
        loaded = loaded_by(*args, "-o", "json")
        assert "rmqtool.store.log.commit_log" in loaded
        assert not loaded & others


def test_the_start_is_not_spent_in_looking_for_garbage() -> None:
    script = (
        "import gc, sys; from rmqtool.main import main\n"
        "try: main()\n"
        "except SystemExit: print(gc.get_threshold()[0], sum(of['collections'] for of in gc.get_stats()),"
        " gc.get_freeze_count(), len(gc.get_objects()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, "info", str(ROOT / "examples" / "store")],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    threshold, collections, frozen, tracked = map(int, result.stdout.splitlines()[-1].split())
    assert threshold == 50_000
    assert collections < 30  # with Python's own threshold it is 95
    assert frozen > 10_000 > tracked  # nor is the exit
