"""A matrix of all commands: every output format, exit code and stderr, for success and failure.

Combinations not covered here are listed with the tests that cover them.
"""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from rmqtool.cli.commands import COMMANDS as TABLE
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.cli.test_bad_input import COMMANDS
from tests.cli.test_help import commands, live_only
from tests.conftest import Unpacked

NO_OUTPUT = {
    "commitlog hexdump": "text for people",
    "browse": "a terminal view",
    "config": "a file is JSON, whatever is asked for",
}
# these have clusters, servers or Spark behind them
APART = {
    **dict.fromkeys(live_only(), "tests/admin"),
    "serve": "tests/server", "namesrv": "test_namesrv", "send": "tests/client", "consume": "tests/client",
    "replay": "tests/client", "mirror": "tests/client",
    **dict.fromkeys(("backup list", "backup verify", "backup restore"), "tests/store/test_backup.py"),
    "browse": "test_browse", "sql": "tests/analytics", "dump-to-parquet": "test_dump", "dump": "test_dump",
    "warm-up": "tests/analytics",
}  # fmt: skip
# command to its words, where those of the tests of bad input change too much, or nothing
WORDS: dict[str, list[str]] = {name: args for name, args in COMMANDS.items() if "--yes" not in args}
WORDS |= {
    "explain": ["explain"],
    "diff": ["diff", "STORE", "STORE"],
    "replicas": ["replicas", "STORE", "COPY"],
    "grep": ["grep", "STORE", "order"],
    "explain CODE": ["explain", "log-damage"],
    "manual": ["manual", "promises"],
    "init": ["init", "NEW"],
    "import": ["import", "NEW", "MESSAGES"],
    "undo": ["undo", "STORE", "--dry-run"],
    "run": ["run", "STORE", "--once"],
    "transaction show": ["transaction", "show", "STORE", "0"],
    "consolidate": ["consolidate", "STORE", "NEW", "--broker-conf", "CONF"],
}
# exit code where it is not 0, on a store that a broker closed
CODES = {
    "query-key --scan": 1,  # no such key
    "topic latest": 1,  # no topic of that store is compacted
    "static-topic show": 1,  # no topic of that store is static
    "truncate": 1,  # there is something to do
    "redact": 1,  # there is something to do
    "tier list": 1,  # that store has no tier
    "tier check": 1,
    "undo": 1,  # nothing to undo
    "group reset --dry-run": 1,  # there is something to do
    "group clone": 1,
    "dlq requeue": 1,
}


def the_name(args: list[str]) -> str:
    """The name of the command in these arguments."""
    return " ".join(args[:2]) if " ".join(args[:2]) in commands() else args[0]


def test_no_command_is_left_out() -> None:
    there = {the_name(args) for args in WORDS.values()} | APART.keys()
    assert there >= {name for name in commands() if not name.startswith("report ")}


def test_output_is_an_option_of_every_command_but_those_that_are_named() -> None:
    without = {
        name for name, command in commands().items()
        if not any("--output" in parameter.opts for parameter in command.params)
    }  # fmt: skip
    assert without == NO_OUTPUT.keys() - {"config"}
    text = (Path(__file__).parents[2] / "rmqtool" / "manual" / "machine-output.md").read_text()
    assert all(name in text for name in NO_OUTPUT)


def test_broker_conf_is_an_option_of_every_command_with_a_store() -> None:
    for name, command in commands().items():
        metavars = {
            word for parameter in command.params for word in (parameter.metavar or "").replace("...", "").split()
        }
        has = any("--broker-conf" in parameter.opts for parameter in command.params)
        assert has == bool(metavars & {"STORE", "NEWSTORE", "STORES"}), name


@by_turns(7)
@pytest.mark.parametrize("form", ["table", "json", "ndjson", "csv"])
@pytest.mark.parametrize("name", WORDS)
def test_every_form_of_every_command(name: str, form: str, golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("broker")
    messages = tmp_path / "messages.ndjson"
    messages.write_text('{"topic": "t", "body": "x"}\n')
    places = {"STORE": store, "NEW": tmp_path / "new", "MESSAGES": messages}
    if "CONF" in WORDS[name]:
        places["CONF"] = tmp_path / "broker.conf"
        places["CONF"].write_text(f"storePathCommitLog={store}/commitlog,{tmp_path / 'more'}\n")
        (tmp_path / "more").mkdir()
    if "COPY" in WORDS[name]:
        places["COPY"] = shutil.copytree(store, tmp_path / "copy")
    args = [places.get(word, word) for word in WORDS[name]]
    command = the_name(WORDS[name])
    if command in NO_OUTPUT and "--output" not in {o for p in commands()[command].params for o in p.opts}:
        assert rmqtool(*args, "-o", form).code == 2
        return
    result = rmqtool(*args, "-o", form)
    assert result.code == CODES.get(name, 0), result.err
    assert "Traceback" not in result.err
    if form in ("json", "ndjson") and name != "config FILE":
        assert "\x1b" not in result.out
    if form == "table":
        assert not [line for line in result.out.splitlines() if line.endswith(" ")]
    if form == "json" or name == "config FILE":
        assert isinstance(json.loads(result.out), dict | list)
    elif form == "ndjson":
        assert all(isinstance(json.loads(line), dict) for line in result.out.splitlines())
    elif form == "csv":
        header, *rows = csv.reader(io.StringIO(result.out, newline=""))
        assert len(set(header)) == len(header)
        assert {len(row) for row in rows} <= {len(header)}


@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize("name", WORDS)
def test_no_store_ends_with_three(name: str, form: str) -> None:
    args = ["/no/store" if word == "STORE" else word for word in WORDS[name]]
    command = the_name(WORDS[name])
    if "STORE" not in WORDS[name] or (form == "json" and command == "commitlog hexdump"):
        return
    result = rmqtool(*args, *([] if command == "commitlog hexdump" else ["-o", form]))
    assert (result.code, result.out) == (3, "")
    last = result.err.splitlines()[-1]
    if form == "json":
        assert json.loads(last)["kind"] == "unreadable"
    else:
        assert last.startswith("error: ")


@pytest.mark.parametrize("name", sorted({the_name(args) for args in WORDS.values()} | APART.keys()))
def test_a_wrong_option_ends_with_two(name: str) -> None:
    result = rmqtool(*name.split(), "--no-such-option")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: no such option: --no-such-option")
    assert result.err.rstrip("\n").endswith(f"see rmqtool {name} --help")


def test_commands_that_ask_have_a_plan_to_look_at() -> None:
    for name, command in commands().items():
        options = {option for parameter in command.params for option in parameter.opts}
        if "--yes" in options:
            assert "--dry-run" in options, name
            assert TABLE[name].writes, name
