"""Update everything derived from the table of commands: ``python -m tests.cli.derive``.

These are the option list for completion (``rmqtool/cli/option_names.py``), the help texts
(``rmqtool/cli/startup/help.txt``), the list of commands in README, and a line in the manual's page of commands for each
missing command.
"""

import textwrap
from contextlib import redirect_stdout
from enum import Enum
from io import StringIO
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

from rmqtool.admin.doctor.codes import CODES as CLUSTER_CODES
from rmqtool.cli.commands import COMMANDS, SECTIONS, WORDS, Group
from rmqtool.cli.framework import app
from rmqtool.cli.startup import help_screens
from rmqtool.cli.startup.completing import CHOICES
from rmqtool.rules.releases import RELEASES
from rmqtool.store.check.codes.all import CODES
from tests.cli.running import ROOT, build_once
from tests.cli.test_help import commands

PATH: Path = ROOT / "rmqtool" / "cli" / "option_names.py"
HELP = Path(help_screens.PATH)
README: Path = ROOT / "README.md"
MANUAL: Path = ROOT / "rmqtool" / "manual" / "commands.md"
HEAD = '''\
"""Options of all commands, their values and codes of check, for completion, by ``python -m tests.cli.derive``."""

TEXT = """
'''


def choices(parameter: Any) -> list[str]:
    """The choices of an option or argument; empty if it has none."""
    if parameter.metavar == "RELEASE":
        return ["auto", *RELEASES]
    descriptor = getattr(parameter, "type_descriptor", None)
    if descriptor is None:  # an older Typer
        return [getattr(choice, "value", choice) for choice in getattr(parameter.type, "choices", ())]
    kinds = [descriptor.annotation, *get_args(descriptor.annotation)]
    return [member.value for kind in kinds if isinstance(kind, type) and issubclass(kind, Enum) for member in kind]


def kind_of(name: str) -> str:
    """The kind of an argument with choices, in the table."""
    return next(kind for kind in COMMANDS[name].arguments if kind in ("page", "part", "part..."))


def text() -> str:
    """The text of the module, from the commands."""
    lines, values = [], []
    for name, command in sorted(commands().items()):
        names = [
            option if parameter.is_flag else f"{option}="
            for parameter in command.params
            if parameter.param_type_name == "option" and not parameter.hidden
            for option in (*parameter.opts, *parameter.secondary_opts)
        ]
        for parameter in command.params:
            if (choice_list := choices(parameter)) and not parameter.hidden:
                known = parameter.opts if parameter.param_type_name == "option" else [kind_of(name)]
                message = [
                    f"{name} {parameter_name}: {' '.join(choice_list)}"
                    for parameter_name in known
                    if parameter_name not in CHOICES
                ]
                for line in message:
                    values += textwrap.wrap(line, 118, subsequent_indent="  ", break_on_hyphens=False)
        line = f"{name}: {' '.join(sorted({*names, '--help', '-h'}))}"
        lines += textwrap.wrap(line, 118, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
    codes = textwrap.wrap(" ".join(CODES | CLUSTER_CODES), 118, break_on_hyphens=False)
    return HEAD + "\n".join([*lines, '"""', "", 'VALUES = """', *values, '"""', "", 'CODES = """', *codes, '"""', ""])


def help_texts() -> str:
    """The help of every command and group, as rendered by themselves."""
    texts = {}
    with build_once(), patch.dict("os.environ", COLUMNS=str(help_screens.WIDTH)):
        for name in {*WORDS, *COMMANDS}:
            with redirect_stdout(StringIO()) as out:
                assert app.run([*name.split(), "--help"], {}) == 0
            texts[name] = out.getvalue()
    return help_screens.record(texts)


def readme() -> str:
    """README with the list of commands from the table."""
    page = README.read_text(encoding="utf-8")
    before, rest = page.split("\n- look: ", 1)
    return f"{before}\n{listed()}\n\n{rest.split(chr(10) * 2, 1)[1]}"


def manual() -> str:
    """The page of commands, with a line added for each missing command, to be improved by hand."""
    page = MANUAL.read_text(encoding="utf-8")
    for title, entries in SECTIONS.items():
        commands = [c for e in entries for c in (e.commands.values() if isinstance(e, Group) else [e])]
        for command in commands:
            if f"`{command.name} " not in page and f"`{command.name}`" not in page:
                before, heading, rest = page.partition(f"\n## {title.split(',')[0]}")
                section, following, others = rest.partition("\n\n## ")
                value = " ".join([command.name, *map(str.upper, command.arguments)])
                line = f"- `{value}`: {command.summary[0].lower()}{command.summary[1:]}"
                page = f"{before}{heading}{section.rstrip()}\n{line}\n{following[1:]}{others}"
    return page


def listed() -> str:
    """Each section with its commands, grouped."""
    lines = []
    for title, entries in SECTIONS.items():
        names = [
            f"`{entry.name} {'|'.join(entry.commands)}`" if isinstance(entry, Group) else f"`{entry.name}`"
            for entry in entries
        ]
        line = f"- {title.split(',')[0].lower()}: " + ", ".join(name.replace(" ", "\0") for name in names)
        lines += textwrap.wrap(line, 120, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
    return "\n".join(lines).replace("\0", " ")


def main() -> None:
    PATH.write_text(text(), encoding="utf-8")
    HELP.write_text(help_texts(), encoding="utf-8")
    README.write_text(readme(), encoding="utf-8")
    MANUAL.write_text(manual(), encoding="utf-8")


if __name__ == "__main__":
    main()
