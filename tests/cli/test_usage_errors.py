"""Usage errors that are found before the command is loaded have the words of the whole command line."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from rmqtool.cli.commands import COMMANDS
from rmqtool.cli.framework.app import app, load, run
from rmqtool.cli.startup.usage_errors import check_line
from rmqtool.errors import BadValue
from tests.amounts import every
from tests.cli.running import build_once

WRONG = ("--bogus", "--outptu=json", "--limt", "--hepl")


@pytest.fixture(scope="module", autouse=True)
def _all_commands() -> Iterator[None]:
    load()
    with build_once():
        yield


def parameters_of(name: str, kind: str) -> list[Any]:
    command: Any = typer.main.get_command(app)
    for word in name.split():
        command = command.commands[word]
    return [parameter for parameter in command.params if parameter.param_type_name == kind]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_option_is_answered_as_by_the_command(name: str) -> None:
    for wrong in every(len(WRONG), WRONG, len(name)):
        for line in ([*name.split(), wrong], [*name.split(), "STORE", wrong, "json"]):
            with pytest.raises(BadValue) as early:
                check_line(line)
            with pytest.raises(BadValue) as late:
                run(line, {})
            assert str(early.value) == str(late.value)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_that_a_command_has_passes(name: str) -> None:
    for parameter in parameters_of(name, "option"):
        for option in (*parameter.opts, *parameter.secondary_opts):
            value = [] if parameter.is_flag else ["--bogus"]
            check_line([*name.split(), option, *value])
            if not parameter.is_flag and option.startswith("--"):
                check_line([*name.split(), f"{option}=1"])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_alone_is_answered_as_by_the_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = parameters_of(name, "argument")
    if not any(argument.required for argument in arguments) or arguments[0].nargs != 1:
        check_line(name.split())
        return
    with pytest.raises(BadValue) as early:
        check_line(name.split())
    with pytest.raises(BadValue) as late:
        run(name.split(), {})
    assert str(early.value) == str(late.value)
    monkeypatch.setenv("RMQTOOL_TARGET", "@lab")
    if COMMANDS[name].live:
        check_line(name.split())


def test_words_that_are_no_options_pass() -> None:
    for line in ([], ["--bogus"], ["no-such-command", "--bogus"], ["topic"], ["info", "--", "--bogus"]):
        check_line(line)
    check_line(["group", "lag", "STORE", "--group", "--bogus"])
    check_line(["query-time", "STORE", "Orders", "0", "-48h"])
