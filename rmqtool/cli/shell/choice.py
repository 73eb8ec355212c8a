"""The selection options of commands that list rows, and what a command ends with where nothing has them."""

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, TypeVar

from rmqtool.cli.shell.output import note
from rmqtool.cli.shell.times import parse_time

T = TypeVar("T")
NO_MATCH = 1


def matches(text: str | None, globs: Sequence[str] | None) -> bool:
    """Whether a name is one of those asked for; it is where none are. A name matches itself, brackets and all."""
    return not globs or (text is not None and any(text == glob or fnmatchcase(text, glob) for glob in globs))


def no_match(count: int, code: int = 0, **given: Any) -> int:
    """The exit code of a command that selects: 1, and a line on stderr, where something was asked for and none has it.

    Args:
        count: rows that have it.
        code: the exit code otherwise.
        given: selection options by name, those that are not given as None or empty.
    """
    asked = [f"--{name.replace('_', '-')} {_words(value)}" for name, value in given.items() if value not in (None, [])]
    if count or not asked:
        return code
    note(f"nothing matches {' '.join(asked)}")
    return code or NO_MATCH


def _words(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


class Choice:
    """Picks rows by their fields, and knows whether there were any.

    Args:
        given: the selection options ``group``, ``topic``, ``queue``, ``state``, ``level``, ``since`` and ``until``, as
            the command line gives them.
        fields: names of the rows' fields, where they differ from the options' (``queue`` is ``queueId``, times are
            compared with ``storeTimestamp``).

    Attributes:
        count: rows that matched.
    """

    _FIELDS = {"queue": "queueId", "since": "storeTimestamp", "until": "storeTimestamp"}  # noqa: RUF012 (read only)

    def __init__(self, given: dict[str, Any], **fields: str) -> None:
        self.given = {name: value for name, value in given.items() if value not in (None, [])}
        self._fields = {name: fields.get(name, self._FIELDS.get(name, name)) for name in self.given}
        self._times = {name: parse_time(self.given[name]) for name in ("since", "until") if name in self.given}
        self.count = 0

    def __call__(self, rows: Iterable[T], limit: int | None = None) -> Iterator[T]:
        """The rows that have all of it, no more than ``limit``."""
        for row in islice(filter(self.has, rows), limit):
            self.count += 1
            yield row

    def has(self, row: Any) -> bool:
        """Whether a row does."""
        return all(self._has(name, value, getattr(row, self._fields[name])) for name, value in self.given.items())

    def _has(self, name: str, asked: Any, value: Any) -> bool:
        if name in self._times:
            return bool(value >= self._times[name] if name == "since" else value < self._times[name])
        if name in ("group", "topic"):
            return matches(value, asked)
        return value in asked if isinstance(asked, list) else bool(value == asked)

    def ends(self, code: int = 0) -> int:
        """The exit code, as :func:`no_match` has it."""
        return no_match(self.count, code, **self.given)
