"""The command ``manual``: the pages below ``rmqtool/manual``, in the terminal."""

import sys
from enum import StrEnum
from pkgutil import get_data
from typing import Annotated

import typer

from rmqtool.cli.first_screen import TEXT, VERSION_TEXT
from rmqtool.cli.framework.app import app, command, load
from rmqtool.cli.framework.options import Output, OutputOption
from rmqtool.cli.render.output import PEOPLE, TABLES, Column, Row, write_all, write_object, writer
from rmqtool.cli.render.text import use_color
from rmqtool.errors import BadValue

FIELDS = ("topic", "title", "summary", "text")
_COLUMNS = (Column("topic"), Column("summary", wide=True))


class Page(StrEnum):
    """The pages, in the order in which they are listed."""

    emergencies = "emergencies"
    commands = "commands"
    installing = "installing"
    machine_output = "machine-output"
    recipes = "recipes"
    writing = "writing"
    services = "services"
    serving = "serving"
    administration = "administration"
    library = "library"
    client = "client"
    consuming = "consuming"
    api = "api"
    sql = "sql"
    spark = "spark"
    remote = "remote"
    mqadmin = "mqadmin"
    promises = "promises"
    formats = "formats"
    settings = "settings"
    developing = "developing"
    glossary = "glossary"


@command("manual", "rmqtool manual emergencies")
def manual(
    topic: Annotated[
        Page | None, typer.Argument(metavar="[TOPIC]", help="A page; by default the list of pages.")
    ] = None,
    man: Annotated[bool, typer.Option("--man", help="Print a man page of all commands, in roff.")] = False,
    output: OutputOption = Output.text,
) -> int:
    """Read the manual: emergencies, every command, and the format of every file.

    Without a topic, the pages are listed. A page is formatted on a terminal, and written as Markdown to a pipe or a
    file.

    --man prints the man page rmqtool(1) with every command, option and exit code: rmqtool manual --man | man -l -
    """
    if man:
        if topic is not None:
            raise BadValue("--man prints one page of all commands, and takes no topic")
        return _show({"topic": "man", "title": "rmqtool(1)", "summary": "The man page.", "text": _man_page()}, output)
    if topic is None and output is Output.text and not (TABLES.columns or TABLES.wide):
        _list()
        return 0
    if topic is None:
        write_all(writer(output.value, FIELDS[:3], _COLUMNS), map(_row_of, Page))
        return 0
    if output in PEOPLE and sys.stdout.isatty():
        _lay_out(_text(topic))
        return 0
    return _show({**_row_of(topic), "text": _text(topic)}, output)


def _list() -> None:
    """List the pages, with wrapped summaries."""
    from textwrap import wrap

    from rmqtool.cli.render.text import MOST_COLUMNS, bold, room_of

    rows = list(map(_row_of, Page))
    room = max(len(row["topic"]) for row in rows)
    width = min(room_of(sys.stdout) or MOST_COLUMNS, MOST_COLUMNS) - room - 2
    for row in rows:
        for number, line in enumerate(wrap(row["summary"].replace("`", ""), max(width, 20))):
            name = row["topic"] if not number else ""
            sys.stdout.write(f"{bold(name)}{' ' * (room - len(name))}  {line}\n")


def _show(row: Row, output: Output) -> int:
    if output in (Output.json, Output.ndjson):
        write_object(output.value, row)
    elif output is Output.csv:
        write_all(writer("csv", FIELDS, ()), [row])
    else:
        sys.stdout.write(row["text"])
    return 0


def _text(topic: Page) -> str:
    data = get_data("rmqtool", f"manual/{topic}.md")
    assert data is not None  # an installed package has its files
    return data.decode()


def _row_of(topic: Page) -> Row:
    """The row of a page, from its title and its first paragraph."""
    title, summary = _text(topic).split("\n\n", 2)[:2]
    return {"topic": topic.value, "title": title.removeprefix("# "), "summary": " ".join(summary.split())}


def _man_page() -> str:
    from rmqtool.cli.man.page import man_page

    load()
    topics = {topic.value: str(_row_of(topic)["summary"]) for topic in Page}
    return man_page(typer.main.get_command(app), VERSION_TEXT, TEXT, _text(Page.machine_output), topics)


def _lay_out(text: str) -> None:
    """Show a page on a terminal. References to other pages show the command; a link would lead nowhere."""
    import re

    from rich.console import Console
    from rich.markdown import Markdown
    from rich.theme import Theme

    text = re.sub(r"\[([^]\[]+)\]\([^)\s]+\.md(?:#[^)\s]*)?\)", r"\1", text)
    theme = Theme({"markdown.code": "bold cyan"})  # Rich's own has a black background
    console = Console(file=sys.stdout, theme=theme, no_color=not use_color(), highlight=False)
    console.print(Markdown(text, code_theme="ansi_dark", hyperlinks=False))
