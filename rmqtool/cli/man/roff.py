"""The few words of roff that a man page needs (man(7) of groff and of mandoc)."""

import re

_REQUEST = re.compile(r"^\.", re.MULTILINE)
_BLANKS = re.compile(r"\s+")


def escaped(text: str) -> str:
    """Text as roff prints it, sign for sign, so that it can be copied from the page.

    A bare hyphen, quote, caret or tilde would be set as its typographic twin, and a dot at the beginning of a line
    would begin a request.
    """
    text = text.replace("\\", "\\e")
    for sign, name in (("-", "\\-"), ("'", "\\(aq"), ("`", "\\(ga"), ("^", "\\(ha"), ("~", "\\(ti")):
        text = text.replace(sign, name)
    return _REQUEST.sub(lambda match: "\\&" + match[0], text)


def choices(text: str) -> str:
    """Words parted by bars; a line may end behind each bar."""
    return escaped(text).replace("|", "|\\:")


def quoted(text: str) -> str:
    """An argument of a request."""
    return '"' + text.replace('"', "\\(dq") + '"'


def bold(text: str) -> str:
    """Text in bold: what is typed as it stands."""
    return rf"\fB{escaped(text)}\fR"


def italic(text: str) -> str:
    """Text in italics: what stands for something else."""
    return rf"\fI{escaped(text)}\fR"


def title(name: str, section: int, source: str, manual: str) -> str:
    """The first line. It names no date, so that the same release always gives the same page."""
    return f'.TH {quoted(name.upper())} {section} "" {quoted(source)} {quoted(manual)}\n'


def section(name: str) -> str:
    """The heading of a section."""
    return f".SH {quoted(escaped(name.upper()))}\n"


def subsection(name: str) -> str:
    """The heading of a part of a section."""
    return f".SS {quoted(escaped(name))}\n"


def paragraph(text: str) -> str:
    """Text that is filled."""
    return f".PP\n{escaped(_BLANKS.sub(' ', text).strip())}\n"


def paragraphs(text: str) -> str:
    """Paragraphs that blank lines part."""
    return "".join(paragraph(part) for part in text.split("\n\n") if part.strip())


def tagged(tag: str, text: str) -> str:
    """A tag, which is roff already, with what it means beside or below it."""
    return f".TP\n{tag}\n{escaped(_BLANKS.sub(' ', text).strip())}\n"


def example(text: str) -> str:
    """A line that is shown as it stands."""
    return f".PP\n.nf\n.RS\n{escaped(text)}\n.RE\n.fi\n"
