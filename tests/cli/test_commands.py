"""A command is entered in every place listed on the page ``developing``."""

import ast
import re
from pathlib import Path

import pytest

from rmqtool.cli import commands as table
from rmqtool.cli.commands import COMMANDS, SECTIONS, WORDS, Group, find_command, writes
from rmqtool.cli.startup.completing import _KINDS
from tests.cli import derive
from tests.cli.running import ROOT
from tests.cli.test_help import commands

KINDS = {
    *_KINDS,
    "page",
    "part",
    "part...",
    "store",
    "new",
    "file",
    "file...",
    "id",
    "key",
    "offset",
    "time",
    "other",
    "out",
}
KINDS |= {"query", "live-topic", "live-topic...", "target", "broker", "other..."}
KINDS |= {
    "perm",
    "setting",
    "namespace",
    "value",
    "name",
    "queues",
    "user",
    "subject",
    "pattern",
    "message...",
    "mode",
    "size",
}


def registered() -> dict[str, str]:
    """Name → module of every ``@command`` below ``rmqtool/cli``."""
    result = {}
    for path in (ROOT / "rmqtool" / "cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="command"), args=[ast.Constant(value=str(name)), *_rest]):
                    assert name not in result, f"{path}: {name} is registered twice"
                    result[name] = ".".join(path.relative_to(ROOT / "rmqtool" / "cli").with_suffix("").parts)
    return result


def test_every_entry_is_registered_where_it_says() -> None:
    assert registered() == {name: command.module for name, command in COMMANDS.items()}
    assert commands().keys() == COMMANDS.keys()


def test_every_entry_stands_once() -> None:
    names = [entry.name for section in SECTIONS.values() for entry in section]
    assert sorted(names) == sorted(WORDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_entry_is_whole(name: str) -> None:
    command = COMMANDS[name]
    assert re.fullmatch(r"[A-Z].*[^.]\.", command.summary)
    assert set(command.arguments) <= KINDS
    assert not (command.pages and command.writes)
    asks = any("--yes" in parameter.opts for parameter in commands()[name].params)
    assert command.writes or not asks


def test_the_options_of_every_command_are_known_to_completion() -> None:
    assert derive.PATH.read_text() == derive.text(), "run python -m tests.cli.derive"


def test_the_help_of_every_command_is_recorded() -> None:
    assert derive.HELP.read_text() == derive.help_texts(), "run python -m tests.cli.derive"


def test_readme_lists_every_command() -> None:
    assert derive.README.read_text() == derive.readme(), "run python -m tests.cli.derive"


def test_the_table_imports_nothing_at_a_start() -> None:
    tree = ast.parse(Path(table.__file__).read_text(encoding="utf-8"))
    assert not [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]


def test_groups_are_words_with_commands_behind() -> None:
    for entry in WORDS.values():
        if isinstance(entry, Group):
            assert all(command.name.split()[0] == entry.name for command in entry.commands.values())
    assert sum(map(len, SECTIONS.values())) == len(WORDS)


@pytest.mark.parametrize(
    ("line", "name", "changes"),
    [
        ("recover s --yes", "recover", True), ("recover s --dry-run", "recover", False),
        ("dlq list s", "dlq list", False),
        ("--no-pager group reset s g", "group reset", True), ("group", None, False), ("", None, False),
        ("nosuch recover", None, False), ("help recover", None, False),
    ],
)  # fmt: skip
def test_the_command_of_a_line(line: str, name: str | None, changes: bool) -> None:
    command = find_command(line.split())
    assert (None if command is None else command.name, writes(line.split())) == (name, changes)
