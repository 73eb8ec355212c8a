"""Recorded help texts, so that help need not load the command.

``python -m tests.cli.derive`` records them in ``help.txt``, for terminals of 80 columns and more.
"""

import os

WIDTH = 80  # columns; on a narrower terminal the command formats its help
PATH = os.path.join(os.path.dirname(__file__), "help.txt")
_HEADING = "# "


def find_recorded(argv: list[str]) -> str | None:
    """The help that a command line asks for; None if it asks for anything else, or none is recorded."""
    if len(argv) < 2 or argv[-1] not in ("-h", "--help") or _columns() < WIDTH:
        return None
    name = " ".join(argv[:-1])
    with open(PATH, encoding="utf-8") as file:
        _, heading, rest = file.read().partition(f"\n{_HEADING}{name}\n")
    return rest.partition(f"\n{_HEADING}")[0] if heading else None


def record(texts: dict[str, str]) -> str:
    """The file, from the help of every command and group."""
    return "".join(f"\n{_HEADING}{name}\n{text}" for name, text in sorted(texts.items())) + f"\n{_HEADING}end\n"


def _columns() -> int:
    """The width of the terminal, as Click finds it."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(1).columns or WIDTH
    except OSError:
        return WIDTH
