"""Help: the first screen lists everything, and every example is valid."""

import os
import re
import shlex
from functools import cache
from typing import Any

import pytest
import typer.main

from rmqtool import errors
from rmqtool.cli.commands import COMMANDS, WORDS
from rmqtool.cli.first_screen import TEXT
from rmqtool.cli.framework import app
from tests.cli.running import process, rmqtool


@cache
def commands() -> dict[str, Any]:
    """Full name → command, from Typer."""
    app.load()
    result = {}
    for name, command in typer.main.get_command(app.app).commands.items():  # type: ignore[attr-defined]
        subcommands = getattr(command, "commands", None)
        if subcommands is None:
            result[name] = command
        else:
            result.update({f"{name} {inner}": c for inner, c in subcommands.items()})
    return result


def live_only() -> set[str]:
    """Commands that take a live cluster, and no store."""
    return {
        name
        for name, command in commands().items()
        if any(parameter.metavar == "TARGET" for parameter in command.params)
    }


def top_level() -> dict[str, Any]:
    app.load()
    top: dict[str, Any] = typer.main.get_command(app.app).commands  # type: ignore[attr-defined]
    return top


ALL = sorted(commands())


def example_of(text: str) -> str:
    """The example that a help text ends with."""
    match = re.search(r"^ *Examples?: *(.*(?:\n .*)*)\Z", text.rstrip(), re.MULTILINE)
    assert match, text
    return " ".join(match[1].split())


def test_the_commands_that_are_expected() -> None:
    assert set(ALL) >= {
        "query-key", "query-id", "query-offset", "query-time", "consumequeue dump", "commitlog dump",
        "commitlog hexdump", "index dump", "recover", "info", "checkpoint", "offsets", "config",
    }  # fmt: skip


@pytest.mark.parametrize("args", [["--help"], ["-h"], []])
def test_the_first_screen_is_one_text(args: list[str]) -> None:
    result = rmqtool(*args)
    assert (result.out or result.err).strip() == TEXT.strip()
    assert result.code == (0 if args else 2)


def test_a_narrow_terminal_has_help_of_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = rmqtool("append", "--help").out
    monkeypatch.setenv("COLUMNS", "60")
    narrow = rmqtool("append", "--help").out
    assert max(map(len, narrow.split("\n"))) <= 60 < max(map(len, wide.split("\n")))
    assert "".join(narrow.split()) == "".join(wide.split())


def listed() -> dict[str, tuple[bool, str]]:
    """Command → (whether it is marked, its line) on the first screen."""
    rows = re.findall(r"^  ([* ]) ([a-z][a-z-]+) {2,}(\S.*(?:\n {10,}.*)?)$", TEXT.split("Options:")[0], re.MULTILINE)
    return {name: (mark == "*", " ".join(text.split())) for mark, name, text in rows}


def test_the_first_screen_names_every_command() -> None:
    assert set(listed()) == set(top_level())
    for name, command in top_level().items():
        for inner in getattr(command, "commands", {}):
            assert inner in listed()[name][1]


def test_the_first_screen_marks_what_writes() -> None:
    assert {name for name, (marked, _text) in listed().items() if marked} == {
        name for name, entry in WORDS.items() if entry.marked
    }
    apart = {name for name, command in COMMANDS.items() if command.writes != command.marked}
    # beside the store, or to a cluster; and what ends well though nobody reads its answer
    assert apart == {"backup create", "dump", "dump-to-parquet", "replay", "send-rtt", "warm-up", "serve"}


def test_the_first_screen_fits_a_terminal_and_ends_with_emergencies() -> None:
    lines = TEXT.splitlines()
    assert max(map(len, lines)) <= 80
    assert "Emergencies:" in lines[-22:]  # of 24 rows: a prompt, and the command itself


def test_the_emergencies_are_commands_that_parse() -> None:
    block = TEXT.split("Emergencies:")[1]
    lines = re.findall(r" {2,}(rmqtool .*)$", block, re.MULTILINE)
    assert len(lines) >= 5
    for line in lines:
        check_example(line.replace("A:B", "0:100"))


def check_example(line: str) -> None:
    """Parse an example without running it: every option must exist, every value fit."""
    args = shlex.split(line)
    assert args[0] == "rmqtool"
    name = " ".join(args[1:3]) if " ".join(args[1:3]) in ALL else args[1]
    command = commands()[name]
    command.make_context(name, args[1 + len(name.split()) :])


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_help_and_an_example_that_parses(name: str) -> None:
    result = rmqtool(*name.split(), "--help")
    assert (result.code, result.err) == (0, "")
    assert rmqtool(*name.split(), "-h") == result
    assert commands()[name].help
    check_example(example_of(result.out))
    assert example_of(result.out).startswith(f"rmqtool {name}")


@pytest.mark.parametrize("name", ALL)
def test_every_option_and_argument_is_explained(name: str) -> None:
    for parameter in commands()[name].params:
        if parameter.name != "help":
            assert parameter.help, parameter.name


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("commitlog hexdump", "browse")])
def test_options_that_every_command_has(name: str) -> None:
    options = {option for parameter in commands()[name].params for option in parameter.opts}
    if "store" in COMMANDS[name].arguments:
        assert "--broker-conf" in options
    assert {"--output", "-o"} <= options


def test_groups_show_their_commands() -> None:
    for name, command in top_level().items():
        if inner := getattr(command, "commands", None):
            result = rmqtool(name, "--help")
            assert result.code == 0
            for each in inner:
                assert re.search(rf"^ +{each} ", result.out, re.MULTILINE)


def test_the_exit_codes_are_those_of_the_errors() -> None:
    told = {
        int(code): text
        for code, text in re.findall(
            r"(\d+) ([^,.]+)", " ".join(TEXT.split("Exit codes:")[1].split("Emergencies:")[0].split())
        )
    }
    assert set(told) == {0, 1, 2, 3, 4, 5, 6, 129, 130, 143}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RmqError)]
    assert {kind.exit_code for kind in kinds} == {2, 3, 4, 5, 6, 129, 130, 143}


def test_the_version() -> None:
    result = rmqtool("--version")
    assert (result.code, result.err) == (0, "")
    assert re.fullmatch(r"rmqtool \d+\.\d+\.\d+\S*\n", result.out)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown_and_completes(shell: str) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("_")}
    script = process(env={**plain, "_RMQTOOL_COMPLETE": f"source_{shell}"})
    assert script.code == 0
    assert "rmqtool" in script.out
    environment = {"COMP_WORDS": "rmqtool query-", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "rmqtool query-"}
    action = {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    result = process(env={**plain, **environment, **action, "_RMQTOOL_COMPLETE": f"complete_{shell}"})
    assert {"query-key", "query-id", "query-offset", "query-time"} <= set(re.findall(r"query-\w+", result.out))


def test_a_misspelt_command_or_option_is_a_usage_error() -> None:
    for arguments in (["query-keys"], ["commitlog", "dmp"], ["info", "--outptu", "json"], ["info"], ["info", "a", "b"]):
        result = rmqtool(*arguments)
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("error: ")
        assert result.err.endswith("--help\n")
        assert result.err.count("\n") == 1
