"""What ``check`` found, for a person at a terminal: what a broker would do now, what to do first, and the causes."""

import sys
from collections.abc import Iterator

from rmqtool.cli.read.show_log import lines_of_log
from rmqtool.cli.read.show_steps import INDENT, Paint, lines_of_step, sentence, wrap_text
from rmqtool.cli.render.text import MOST_COLUMNS, plain, use_color
from rmqtool.store.check.codes.all import CODES
from rmqtool.store.check.common.findings import Finding
from rmqtool.store.check.reading.reading import Cause, CodeFindings, Interpretation, severities_of
from rmqtool.store.log.shape import LogShape
from rmqtool.words import command_line


def show_reading(reading: Interpretation, shape: LogShape | None, width: int) -> None:
    """Print a reading to stdout, in lines of at most ``width`` cells; commands are not broken.

    Args:
        shape: of the log; None if it was not read.
    """
    lines = lines_of(reading, min(width, MOST_COLUMNS), shape, colour=use_color())
    sys.stdout.write("".join(line + "\n" for line in lines))
    sys.stdout.flush()


def lines_of(reading: Interpretation, width: int, shape: LogShape | None = None, *, colour: bool) -> Iterator[str]:
    """The lines of a reading, at most ``width`` cells wide; commands are not broken."""
    paint = Paint(colour)
    for cause in reading.causes:
        if cause.root.code == "store-role":
            for finding in cause.root.places:
                yield from wrap_text(f"This is {finding.actual}", width, "")
    yield from _verdict(reading, width, paint)
    if shape is not None and shape.files:
        yield ""
        yield from lines_of_log(shape, width, colour=colour)
    if reading.steps:
        yield from _steps(reading, width, paint)
    if reading.causes:
        counts = ", ".join(f"{n} {name}{'s' if n != 1 else ''}" for name, n in severities_of(reading.causes).items())
        yield ""
        yield paint.bold(f"What was found: {counts}")
        for cause in reading.causes:
            yield from _cause(cause, width, paint)
        yield ""
        yield from wrap_text(
            f"What a code means: {command_line('explain', 'CODE')}. Every finding: --output ndjson.", width, ""
        )


def _verdict(reading: Interpretation, width: int, paint: Paint) -> Iterator[str]:
    if reading.severity is None:
        yield paint.bold("Clean: nothing was found.")
        return
    if not reading.start:
        yield paint.alarm("Do not start a broker on this store.")
    yield from wrap_text(reading.broker, width, "")
    if reading.lost:
        yield from wrap_text(f"Lost: {reading.lost[0].lower()}{reading.lost[1:]}", width, "")


def _steps(reading: Interpretation, width: int, paint: Paint) -> Iterator[str]:
    """The steps that keep everything, in order; then, as an alternative, those that remove messages."""
    keeping = [step for step in reading.steps if not step.destroys]
    yield ""
    yield paint.bold("What to do" + (", in this order" if len(keeping) > 1 else ""))
    for number, step in enumerate(keeping, 1):
        yield from lines_of_step(f"{number}. ", step, paint, width)
    if reading.then:
        yield from wrap_text(f"Then: {reading.then[0].lower()}{reading.then[1:]}", width, "")
    for step in reading.steps:
        if step.destroys:
            yield ""
            yield from wrap_text(
                "Only if a broker must run on this very store, and after the copy was made:", width, ""
            )
            yield from lines_of_step(INDENT, step, paint, width)


def _cause(cause: Cause, width: int, paint: Paint) -> Iterator[str]:
    yield ""
    yield from _head(cause.root, width, "", paint)
    first, *more = cause.root.places
    yield from _place(first, width)
    about_all = first.consequence == CODES[cause.root.code].broker
    for place in more if about_all else ():
        yield from _place(place, width)
    yield from wrap_text(sentence(first.consequence), width, INDENT)
    for place in () if about_all else more:
        yield from _place(place, width)
    if cause.follows:
        yield f"{INDENT}and from that follows:"
        for findings in cause.follows:
            yield from _head(findings, width, INDENT, paint)
            yield from (INDENT + line for line in _place(findings.places[0], width - len(INDENT)))


def _head(findings: CodeFindings, width: int, indent: str, paint: Paint) -> Iterator[str]:
    count = f" ({findings.count})" if findings.count > 1 else ""
    first, *more = wrap_text(f"{findings.code}: {CODES[findings.code].title}{count}", width, indent, hang="  ")
    yield first.replace(findings.code, paint.severity(findings.severity, findings.code), 1)
    yield from more


def _place(finding: Finding, width: int) -> Iterator[str]:
    parts = [finding.file + (f" at byte {finding.offset}" if finding.offset is not None else "")]
    if finding.topic is not None and finding.topic not in finding.file.split("/"):
        parts.append(finding.topic + (f"/{finding.queueId}" if finding.queueId is not None else ""))
    if finding.queueOffset is not None:
        parts.append(f"queue offset {finding.queueOffset}")
    text = ", ".join(parts)
    if finding.actual:
        text += f": {finding.actual}"
    if finding.expected:
        text += f" (expected: {finding.expected})"
    text = plain(text)
    yield from wrap_text(text, width, INDENT, hang="  ")
