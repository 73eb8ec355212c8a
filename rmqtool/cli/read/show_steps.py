"""How steps of advice are shown: numbered, with their commands, in lines of a given width."""

import re
import shlex
from collections.abc import Iterator, Sequence
from textwrap import wrap

from rmqtool.cli.render.text import plain, use_color
from rmqtool.store.check.advice.steps import Step

INDENT = "   "
_COLOURS = {"error": "31", "warning": "33", "info": "36"}
_STORE = re.compile(r"\bSTORE\b")


def lines_of_steps(steps: Sequence[Step], width: int) -> Iterator[str]:
    """The steps for a code, without a particular store."""
    paint = Paint(use_color())
    for number, step in enumerate(steps, 1):
        if step.destroys:
            yield from wrap_text("Only if a broker must run on STORE itself, and after the copy was made:", width, "")
        yield from lines_of_step(f"{number}. " if not step.destroys else INDENT, step, paint, width, of="STORE")


class Paint:
    """Text in colours, if there are any."""

    def __init__(self, colour: bool) -> None:
        self._colour = colour

    def bold(self, text: str) -> str:
        """Bold."""
        return self._in("1", text)

    def severity(self, name: str, text: str) -> str:
        """In the colour of a severity."""
        return self._in(_COLOURS[name], text)

    def alarm(self, text: str) -> str:
        """Bold and red."""
        return self._in("1;31", text)

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour and text else text


def lines_of_step(lead: str, step: Step, paint: Paint, width: int, of: str = "this store") -> Iterator[str]:
    """One step: its command, and what it does and costs.

    Args:
        lead: what the first line begins with.
        of: what the text calls the store.
    """
    if step.command:
        yield lead + paint.bold(plain(shlex.join(step.command)))
    text = " ".join(sentence(_STORE.sub(of, part)) for part in (step.does, step.costs) if part)
    if step.command:
        yield from wrap_text(text, width, INDENT)
    else:
        first, *rest = wrap_text(text, width, INDENT)
        yield lead + first.lstrip()
        yield from rest


def sentence(text: str) -> str:
    """Text with a capital at its beginning and a full stop at its end."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) or not text else f"{text}."


def wrap_text(text: str, width: int, indent: str, hang: str = "") -> list[str]:
    """Lines of at most ``width`` cells; words, and so commands, are not broken."""
    return wrap(
        text,
        max(width, 20),
        initial_indent=indent,
        subsequent_indent=indent + hang,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [indent]
