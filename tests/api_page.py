"""Write the manual's page ``api`` from signatures and docstrings: ``python -m tests.api_page``."""

import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

PATH = Path(__file__).parents[1] / "rmqtool" / "manual" / "api.md"
MODULES = ("rmqtool", "rmqtool.client")
HEAD = """\
# API reference

Every public name of `rmqtool` and `rmqtool.client`, generated from their docstrings.

[`rmqtool manual library`](library.md) and [`rmqtool manual client`](client.md) introduce them with examples;
`rmqtool.client.sync` has the same producers and consumers for programs without asyncio.
`python -m tests.api_page` writes this page.
"""
_WIDTH = 120
_PLAIN = re.compile(r"[\w.,()'-]*")
_SECTION = re.compile(r"(Args|Attributes|Raises|Returns):")


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for name in MODULES:
        module = import_module(name)
        parts.append(f"## {name}\n")
        for public in sorted(module.__all__):
            if not public.startswith("__"):
                parts += _entry(public, getattr(module, public))
    return "\n".join(parts)


def _entry(name: str, thing: Any) -> Iterator[str]:
    yield f"### {name}\n"
    yield from _text(name, thing)
    if inspect.isclass(thing):
        for method, value in sorted(inspect.getmembers(thing)):
            inner: Any = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            own = inspect.unwrap(inner)
            if method.startswith("_") or not str(getattr(own, "__module__", "")).startswith(("rmqtool", "formats")):
                continue
            if inspect.isfunction(own):
                yield f"#### {name}.{method}\n"
                yield from _text(f"{name}.{method}", value)


def _text(name: str, thing: Any) -> Iterator[str]:
    """The signature as an indented block, and the docstring."""
    if not isinstance(thing, property):
        try:
            parameters = [*inspect.signature(thing).parameters.values()]
        except ValueError:
            parameters = []
        text = ", ".join(_parameter(parameter) for parameter in parameters if parameter.name != "self")
        yield _wrap(f"{name}({text})", "    ", "        ") + "\n"
    yield _markdown(inspect.getdoc(thing) or "")


def _parameter(parameter: inspect.Parameter) -> str:
    """Name and default, without the type; an object as a default is abbreviated."""
    star = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
    if parameter.default is parameter.empty:
        return star + parameter.name
    default = repr(parameter.default)
    return f"{parameter.name}={default if _PLAIN.fullmatch(default) else '...'}"


def _markdown(doc: str) -> str:
    """A docstring's paragraphs and sections as Markdown."""
    doc = re.sub(r":\w+:`~?(?:[\w.]+\.)?([\w]+)`", r"`\1`", doc).replace("``", "`").replace("::\n", ":\n")
    blocks = []
    for block in re.split(r"\n\n+", doc):
        section, _, items = block.partition("\n")
        if _SECTION.fullmatch(section):
            entries = re.split(r"\n(?=\S)", textwrap.dedent(items))
            blocks.append(section)
            blocks.append("\n".join(_item(section, entry) for entry in entries))
        elif block.startswith(("    ", "async with", "with ")):
            blocks.append(textwrap.indent(textwrap.dedent(block), "    "))
        else:
            blocks.append(_wrap(block))
    return "\n\n".join(blocks) + "\n"


def _item(section: str, entry: str) -> str:
    names, colon, text = entry.partition(": ")
    return _wrap(f"`{names}`: {text}" if colon and section != "Returns:" else entry, "- ", "  ")


def _wrap(text: str, first: str = "", rest: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()), _WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


if __name__ == "__main__":
    PATH.write_text(page(), encoding="utf-8")
