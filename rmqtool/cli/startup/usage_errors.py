"""The most frequent usage errors, found before the command is loaded: a wrong option, and no argument at all."""

import os

from rmqtool.cli.commands import COMMANDS, INSTEAD, WORDS, Group, options_of
from rmqtool.cli.startup.help_screens import find_recorded
from rmqtool.errors import BadValue

_ARGUMENTS = ("--topic", "-t", "--group", "-g")  # as rmqtool.cli.framework.app takes them, too
_UNLISTED = {"dump-to-parquet": ("--split-mb=",)}  # options that help does not show


def check_line(argv: list[str]) -> None:
    """Check the options of a command line, and that it has an argument. All else is left to the command.

    Raises:
        BadValue: worded as by :mod:`rmqtool.cli.framework.usage`.
    """
    entry = WORDS.get(argv[0]) if argv else None
    count = 2 if isinstance(entry, Group) else 1
    name = " ".join(argv[:count])
    if name not in COMMANDS:
        return
    if len(argv) == count:
        _need_no_argument(name)
        return
    listed = [*options_of(name), *_UNLISTED.get(name, ())]
    options = {option.removesuffix("="): option.endswith("=") for option in listed}
    is_value = False
    for word in argv[count:]:
        if is_value:
            is_value = False
            continue
        if word == "--":
            return
        option, equals, _ = word.partition("=")
        if option in options:
            is_value = options[option] and not equals
        elif option in _ARGUMENTS:
            is_value = not equals
        elif option.startswith("--"):
            raise BadValue(f"no such option: {option}{_did_you_mean(option, options)}; see rmqtool {name} --help")


def _need_no_argument(name: str) -> None:
    if COMMANDS[name].live and os.environ.get("RMQTOOL_TARGET"):
        return  # stands for the first argument
    usage = (find_recorded([*name.split(), "--help"]) or "").partition("\n")[0]
    first = usage.partition("[OPTIONS] ")[2].partition(" ")[0]
    if first and not first.startswith("[") and not first.endswith("..."):
        raise BadValue(f"missing argument {first}{_instead_of(name)}; see rmqtool {name} --help")


def _instead_of(name: str) -> str:
    if name not in INSTEAD:
        return ""
    return f" (did you mean {' or '.join(f'rmqtool {line}' for line in INSTEAD[name])}?)"


def _did_you_mean(option: str, options: dict[str, bool]) -> str:
    from difflib import get_close_matches

    near = sorted(get_close_matches(option, [known for known in options if known.startswith("--")]))
    return f" (did you mean {', '.join(near)}?)" if near else ""
