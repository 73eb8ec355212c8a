"""Command lines that Click and Pydantic cannot make sense of, told as all other errors are."""

import re
import sys
from typing import Any

from rmqtool.errors import BadValue

_NO_COMMAND = re.compile(r"No such command '(.*?)'(?:\.| \(|$)", re.DOTALL)
_ABOUT_VALUES = (
    (r"Input should be a valid integer.*", "not a whole number"),
    (r"Input should be a valid number.*", "not a number"),
    (r"Input should be greater than or equal to (\S+)", r"give a number of at least \1"),
    (r"Input should be less than or equal to (\S+)", r"give a number of at most \1"),
    (r"Input should be greater than (\S+)", r"give a number above \1"),
    (r"Input should be less than (\S+)", r"give a number below \1"),
)
_REST = (
    (r"^Got unexpected extra argument(?:s|\(s\))? \((.*)\)$", r"too many arguments: \1"),
    (r"^Option '(.*)' requires an argument$", r"\1: give a value"),
    (r"^Missing (argument|option) '(.*)'$", r"missing \1 \2"),
    (r"^No such", "no such"),
)


def tell(error: Any, word: str | None) -> int:
    """Raise it in one line.

    Args:
        word: the command, where it is one.

    Returns:
        The exit code where there is nothing but the name of a group, of which help is shown.

    Raises:
        BadValue: in any other case.
    """
    text = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(text.rstrip("\n") + "\n")
        return int(error.exit_code)
    if (unknown := _NO_COMMAND.match(text)) is not None:
        text = _no_command(unknown[1], error.ctx)
    text = " ".join(text.split()).replace("Value error, ", "").removesuffix(".")
    text = re.sub(r"\. Did you mean (.*)\?$|\(Possible options?: (.*)\)$", _did_you_mean, text)
    text = re.sub(r"^Invalid value for (.*?): (.*)$", _about_value, text)
    for pattern, words in _REST:
        text = re.sub(pattern, words, text)
    path = f"rmqtool {word}" if word is not None else "rmqtool"
    if getattr(error, "ctx", None) is not None:
        path = error.ctx.command_path
    raise BadValue(f"{text}; see {path} --help")


def _no_command(word: str, ctx: Any) -> str:
    from rmqtool.cli.framework.guesses import meant_by, meant_in

    known = ctx.command.list_commands(ctx)
    group = "" if ctx.parent is None else ctx.info_name
    meant = meant_in(group, word, known) if group else meant_by(word, known)
    return f"no such command {word!r}" + (f" (did you mean {meant}?)" if meant else "")


def _did_you_mean(found: re.Match[str]) -> str:
    return f" (did you mean {found[1]}?)" if found[1] else f"(did you mean {found[2]}?)"


def _about_value(found: re.Match[str]) -> str:
    name, why = found[1].replace("'", "").strip("[]"), found[2]
    if known := re.fullmatch(r"('.*') is not one of (.*)", why):
        return f"{name}: {known[1]} is not one of {known[2].replace(chr(39), '')}"
    for pattern, words in _ABOUT_VALUES:
        why = re.sub(pattern, words, why)
    return f"{name}: {why}"
