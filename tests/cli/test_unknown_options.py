"""Wrong options are answered before the command is loaded, in the words of the whole command line."""

from typing import Any

import pytest
from typer.main import get_command

from rmqtool.cli.commands import COMMANDS
from rmqtool.cli.framework.app import app, load, run
from rmqtool.cli.startup.unknown_options import check_options
from rmqtool.errors import BadValue


def options(name: str) -> list[Any]:
    load(name.split())
    command: Any = get_command(app)
    for word in name.split():
        command = command.commands[word]
    return [parameter for parameter in command.params if parameter.param_type_name == "option"]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_option_is_answered_as_by_the_command(name: str) -> None:
    for wrong in ("--bogus", "--outptu=json", "--limt", "--hepl"):
        for line in ([*name.split(), wrong], [*name.split(), "STORE", wrong, "json"]):
            with pytest.raises(BadValue) as early:
                check_options(line)
            with pytest.raises(BadValue) as late:
                run(line, {})
            assert str(early.value) == str(late.value)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_that_a_command_has_passes(name: str) -> None:
    for parameter in options(name):
        for option in (*parameter.opts, *parameter.secondary_opts):
            value = [] if parameter.is_flag else ["--bogus"]
            check_options([*name.split(), option, *value])
            if not parameter.is_flag and option.startswith("--"):
                check_options([*name.split(), f"{option}=1"])


def test_words_that_are_no_options_pass() -> None:
    for line in ([], ["--bogus"], ["no-such-command", "--bogus"], ["topic"], ["info", "--", "--bogus"]):
        check_options(line)
    check_options(["group", "lag", "STORE", "--group", "--bogus"])
    check_options(["query-time", "STORE", "Orders", "0", "-48h"])
