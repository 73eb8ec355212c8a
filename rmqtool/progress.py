"""Progress of long work: code that works reports it here, and a front end that shows it listens.

Like logging, it is ambient, so that no function takes an argument for it. Reporting costs one addition: a listener
reads the numbers whenever it likes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Stage:
    """A part of the running work.

    Attributes:
        name: what is done, in words that follow "while": "reading the log".
        total: how much there is to do; None if unknown.
        unit: of both: "bytes", "messages", ...
        done: how much of it is done, kept up to date by the code that works.
    """

    __slots__ = ("done", "name", "total", "unit")

    def __init__(self, name: str, total: int | None, unit: str) -> None:
        self.name, self.total, self.unit, self.done = name, total, unit, 0


class StageListener(Protocol):
    """Something that is notified of stages; a stage that begins inside another one ends before it."""

    def begin(self, stage: Stage) -> None:
        """Note that a stage begins."""

    def end(self, stage: Stage) -> None:
        """Note that it has ended, with or without an error."""


_listener: StageListener | None = None
_broken: Stage | None = None


@contextmanager
def listening(listener: StageListener) -> Iterator[None]:
    """Notify a listener of all stages of this process meanwhile."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before


def is_heard() -> bool:
    """Whether anybody listens."""
    return _listener is not None


@contextmanager
def stage(name: str, total: int | None = None, unit: str = "bytes") -> Iterator[Stage]:
    """A part of the work; see :class:`Stage`."""
    global _broken
    new, listener = Stage(name, total, unit), _listener
    if listener is not None:
        listener.begin(new)
    _broken = None
    try:
        yield new
    except KeyboardInterrupt:
        _broken = _broken or new
        raise
    finally:
        if listener is not None:
            listener.end(new)


def broken_off() -> Stage | None:
    """The innermost stage that Ctrl-C has ended; None if none was running."""
    return _broken
