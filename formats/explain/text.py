"""Explain the small text files: abort, lock, epochFileCheckpoint."""

from collections.abc import Iterator

from formats import marks
from formats.errors import FormatError
from formats.explain.spans import Span
from formats.variants import epoch


def abort_spans(buf: bytes | memoryview, base: int = 0) -> Iterator[Span]:
    """One span: the process id of a 5.x broker. A 4.x broker leaves the file empty; then there is no span."""
    data = bytes(buf)
    if data:
        try:
            note = f"process {marks.parse_abort(data)}"
        except FormatError as err:
            note = err.reason
        yield Span(0, len(data), "abort.process_id", data, note)


def lock_spans(buf: bytes | memoryview, base: int = 0) -> Iterator[Span]:
    """One span: the word that a broker writes to the file when it takes the lock."""
    data = bytes(buf)
    if data:
        note = "a broker has started here once" if marks.is_lock(data) else "not what a broker writes"
        yield Span(0, len(data), "lock.word", data, note)


def epoch_spans(buf: bytes | memoryview, base: int = 0) -> Iterator[Span]:
    """One span per line, including its end: count, CRC, then the epochs."""
    data = bytes(buf)
    try:
        epoch.parse(data)
        reason = ""
    except FormatError as err:
        reason = err.reason
    at = 0
    for number, line in enumerate(data.splitlines(keepends=True)):
        name = ("count", "crc")[number] if number < 2 else f"epoch[{number - 2}]"
        note = reason if not number else "epoch and its first physical offset" if number > 1 else ""
        yield Span(at, at + len(line), f"epochs.{name}", line, note)
        at += len(line)
