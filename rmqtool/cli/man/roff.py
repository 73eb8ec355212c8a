"""The few roff requests that a man page needs (man(7) of groff and mandoc)."""

import re

_REQUEST = re.compile(r"^\.", re.MULTILINE)
_BLANKS = re.compile(r"\s+")


def escape(text: str) -> str:
    """Text as roff prints it, sign for sign, so that it can be copied from the page.

    A bare hyphen, quote, caret or tilde would be set as its typographic twin, and a dot at the beginning of a line
    would begin a request.
    """
    text = text.replace("\\", "\\e")
    for sign, name in (("-", "\\-"), ("'", "\\(aq"), ("`", "\\(ga"), ("^", "\\(ha"), ("~", "\\(ti")):
        text = text.replace(sign, name)
    return _REQUEST.sub(lambda match: "\\&" + match[0], text)


def choices(text: str) -> str:
    """Words separated by bars; a line may break after each bar."""
    return escape(text).replace("|", "|\\:")


def quote(text: str) -> str:
    """An argument of a request."""
    return '"' + text.replace('"', "\\(dq") + '"'


def bold(text: str) -> str:
    """Text in bold: what is typed as it stands."""
    return rf"\fB{escape(text)}\fR"


def italic(text: str) -> str:
    """Text in italics: what stands for something else."""
    return rf"\fI{escape(text)}\fR"


def title(name: str, section: int, source: str, manual: str) -> str:
    """The first line. It names no date, so that the same release always gives the same page."""
    return f'.TH {quote(name.upper())} {section} "" {quote(source)} {quote(manual)}\n'


def section(name: str) -> str:
    """The heading of a section."""
    return f".SH {quote(escape(name.upper()))}\n"


def subsection(name: str) -> str:
    """The heading of a part of a section."""
    return f".SS {quote(escape(name))}\n"


def paragraph(text: str) -> str:
    """Text that is filled."""
    return f".PP\n{escape(_BLANKS.sub(' ', text).strip())}\n"


def paragraphs(text: str) -> str:
    """Paragraphs separated by blank lines."""
    return "".join(paragraph(part) for part in text.split("\n\n") if part.strip())


def tag_item(tag: str, text: str) -> str:
    """A tag, already in roff, and its meaning beside or below it."""
    item = f".TP\n{tag}\n{escape(_BLANKS.sub(' ', text).strip())}\n"
    return f".na\n{item}.ad\n" if "\\:" in tag else item  # a line without a space cannot be adjusted


def example(text: str) -> str:
    """A line shown verbatim."""
    return f".PP\n.nf\n.RS\n{escape(text)}\n.RE\n.fi\n"
