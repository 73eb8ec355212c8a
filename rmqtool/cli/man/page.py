"""The man page ``rmqtool(1)``, made from the commands' own texts.

Commands, arguments, options and examples come from Click, emergencies from the first screen, exit codes from the page
``machine-output``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rmqtool.cli.man import roff

_NAME = "rmqtool"
_FIRST = re.compile(r"^(\.S[HS] .*\n)\.PP\n", re.MULTILINE)  # a paragraph begins after a heading anyway
_ROW = re.compile(r"^\| *(\d+) *\| *(.+?) *\|$", re.MULTILINE)


def man_page(root: Any, version: str, first_screen: str, codes: str, topics: Mapping[str, str]) -> str:
    """The page in roff.

    Args:
        root: the Click group of all commands.
        version: as ``rmqtool --version`` prints it.
        first_screen: the text of ``rmqtool --help``.
        codes: the Markdown page with the table of exit codes.
        topics: what each page of the manual is about.
    """
    summary, _, more = root.help.partition("\n\n")
    parts = [
        roff.title(_NAME, 1, version, "User Commands"),
        roff.section("name"),
        f"{_NAME} \\- {roff.escape(_lower(summary).rstrip('.'))}\n",
        roff.section("synopsis"),
        f"{roff.bold(_NAME)} {roff.italic('COMMAND')} [{roff.italic('ARGS')}]...\n",
        roff.section("description"),
        roff.paragraphs(_description(first_screen) + "\n\n" + more),
        roff.section("emergencies"),
        *(roff.tag_item(roff.bold(line), text) for text, line in emergencies(first_screen)),
        roff.section("commands"),
        *_commands(root, ()),
        roff.section("exit status"),
        *(roff.tag_item(roff.bold(code), text) for code, text in exit_codes(codes)),
        roff.section("files"),
        roff.tag_item(
            roff.italic("STORE") + roff.bold(".rmqtool/"), "What writing commands have replaced; undo puts it back."
        ),
        roff.section("see also"),
        roff.paragraph("The manual, which is part of the installation:"),
        *(roff.tag_item(roff.bold(f"{_NAME} manual {topic}"), text) for topic, text in topics.items()),
    ]
    return _FIRST.sub(r"\1", "".join(parts))


def emergencies(first_screen: str) -> list[tuple[str, str]]:
    """(what is wrong, command) of every line below that heading of the first screen."""
    block = first_screen.split("Emergencies:\n")[1].split("\n\n")[0]
    pairs = [re.split(r" {2,}", line.strip(), maxsplit=1) for line in block.splitlines()]
    return [(problem, line) for problem, line in pairs]


def exit_codes(markdown: str) -> list[tuple[str, str]]:
    """(code, meaning) of every row of the table of exit codes."""
    return _ROW.findall(markdown.split("\n## Exit codes\n")[1])


def _description(first_screen: str) -> str:
    """The part of the first screen between usage and emergencies."""
    return first_screen.split("\n\n", 2)[1]


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _commands(command: Any, names: tuple[str, ...]) -> Iterator[str]:
    """A command, or the commands of a group, in the order of registration."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield from _command(command, " ".join(names))
    else:
        for name in sorted(inner):
            if not inner[name].hidden:
                yield from _commands(inner[name], (*names, name))


def _command(command: Any, name: str) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    shown = [p for p in command.get_params(context) if not getattr(p, "hidden", False)]
    arguments = [p for p in shown if p.param_type_name == "argument"]
    options = [p for p in shown if p.param_type_name == "option" and p.name != "help"]
    yield roff.subsection(" ".join([name, *map(_placeholder, arguments), *(["[OPTIONS]"] if options else [])]))
    yield roff.paragraphs(command.help or "")
    for parameter in arguments:
        tag, help_text = parameter.get_help_record(context)
        placeholder, _, kind = tag.partition(" <")
        values = f" <{kind}" if "|" in kind else ""
        yield roff.tag_item(roff.italic(placeholder) + roff.choices(values), help_text)
    for parameter in options:
        tag, help_text = parameter.get_help_record(context)
        yield roff.tag_item(_option(tag), help_text)
    for line in (command.epilog or "").splitlines():
        heading, _, text = line.partition(": ")
        yield roff.paragraph(f"{heading}:")
        yield roff.example(text)


def _placeholder(argument: Any) -> str:
    """An argument in the synopsis: in brackets where it may be left out, with dots where there may be several."""
    bare = argument.metavar.strip("[]").removesuffix("...")
    several = "..." if argument.nargs != 1 else ""
    return f"{bare}{several}" if argument.required else f"[{bare}]{several}"


def _option(tag: str) -> str:
    """``-n, --limit N`` with names in bold and values in italics."""
    pieces = []
    for word in tag.split(" "):
        name, comma = word.removesuffix(","), "," if word.endswith(",") else ""
        pieces.append((roff.bold(name) if name.startswith("-") else roff.italic(name)) + comma)
    return " ".join(pieces)
