"""Options that a command does not have, seen before the command is loaded."""

from rmqtool.cli.commands import COMMANDS, WORDS, Group, options_of
from rmqtool.errors import BadValue

_ARGUMENTS = ("--topic", "-t", "--group", "-g")  # as rmqtool.cli.framework.app takes them, too
_UNLISTED = {"dump-to-parquet": ("--split-mb=",)}  # options that help does not show


def check_options(argv: list[str]) -> None:
    """That a command has every option of its command line. Whatever else may be wrong is left to the command.

    Raises:
        BadValue: it lacks one; worded as by :mod:`rmqtool.cli.framework.usage`.
    """
    entry = WORDS.get(argv[0]) if argv else None
    count = 2 if isinstance(entry, Group) else 1
    name = " ".join(argv[:count])
    if name not in COMMANDS:
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


def _did_you_mean(option: str, options: dict[str, bool]) -> str:
    from difflib import get_close_matches

    near = sorted(get_close_matches(option, [known for known in options if known.startswith("--")]))
    return f" (did you mean {', '.join(near)}?)" if near else ""
