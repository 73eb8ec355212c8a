"""A text or regular expression to search for in text and in bytes."""

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import AnyStr

PATIENCE = 5  # seconds of the processor after which one search is looked at, and after as many more given up


class BadPattern(ValueError):
    """Not a regular expression."""


class TooSlow(Exception):
    """A search in one text takes too long: repetitions inside each other can take forever."""


class Pattern:
    """A text or regular expression to search for.

    Args:
        text: a regular expression of Python's ``re``, or a fixed string.
        fixed: ``text`` is a fixed string.
        ignore_case: ignore the difference between upper and lower case.

    Raises:
        BadPattern: not a regular expression.

    Attributes:
        text: see above.
        literal: UTF-8 bytes that every match contains; empty if unknown.
    """

    def __init__(self, text: str, *, fixed: bool = False, ignore_case: bool = False) -> None:
        self.text = text
        flags = re.IGNORECASE if ignore_case else re.NOFLAG
        source = re.escape(text) if fixed else text
        try:
            self._text = re.compile(source, flags)
            self._bytes = re.compile(source.encode("utf-8", "surrogateescape"), flags)
        except (re.error, OverflowError, RecursionError) as err:
            raise BadPattern(str(err)) from None
        plain = (fixed or not _SPECIAL.search(text)) and "\ufffd" not in text  # U+FFFD stands for invalid bytes
        self.literal = text.encode("utf-8", "surrogateescape") if plain and not ignore_case else b""
        self._begun = self._ended = 0  # searches

    @contextmanager
    def limited(self) -> Iterator[None]:
        """End each search inside the ``with`` block that takes longer than twice ``PATIENCE``, in the main thread.

        Raises:
            TooSlow: there was one.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        seen = 0

        def look(*_: object) -> None:
            nonlocal seen
            if self._begun > self._ended and seen == self._begun:
                raise TooSlow
            seen = self._begun

        before = signal.signal(signal.SIGVTALRM, look)
        signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE, PATIENCE)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)

    def find(self, text: str) -> tuple[int, int] | None:
        """(start, end) of the first match, or None."""
        match = self._search(self._text, text)
        return None if match is None else match.span()

    def find_in(self, data: bytes) -> tuple[str, tuple[int, int]] | None:
        """The first match in bytes: (text, (start, end)), or None.

        Bytes that are not valid UTF-8 appear as ``\\xff`` in the text, to which the range refers.
        """
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return self._find_bytes(data)
        place = self.find(text)
        return None if place is None else (text, place)

    def _find_bytes(self, data: bytes) -> tuple[str, tuple[int, int]] | None:
        match = self._search(self._bytes, data)
        if match is None:
            return None
        start, end = match.span()
        before, inside, after = (
            part.decode("utf-8", "backslashreplace") for part in (data[:start], data[start:end], data[end:])
        )
        return before + inside + after, (len(before), len(before) + len(inside))

    def _search(self, compiled: re.Pattern[AnyStr], content: AnyStr) -> re.Match[AnyStr] | None:
        self._begun += 1
        match = compiled.search(content)
        self._ended = self._begun
        return match


_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]()|]")


def excerpt(text: str, place: tuple[int, int], around: int = 30) -> str:
    """The match with some characters before and after; ``...`` marks omitted text.

    Args:
        place: (start, end) of the match.
        around: number of characters on each side.
    """
    start, end = max(place[0] - around, 0), place[1] + around
    if place[1] - place[0] > 4 * around:
        end = place[0] + 4 * around
    return ("..." if start else "") + text[start:end] + ("..." if end < len(text) else "")
