"""Selection options of commands that list rows, and the exit code when nothing matches."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeVar

from rmqtool.cli.render.text import note
from rmqtool.cli.render.times import parse_time
from rmqtool.contract import PlainRow, PlainRows

if TYPE_CHECKING:
    from rmqtool.cli.framework.options import GroupChoice

T = TypeVar("T")
NO_MATCH = 1
_END = object()


def matches(text: str | None, globs: Sequence[str] | None) -> bool:
    """Whether a name matches one of the patterns, or there are none. A name also matches itself, brackets and all."""
    return not globs or (text is not None and any(text == glob or fnmatchcase(text, glob) for glob in globs))


def wanted_of(choice: "GroupChoice") -> Callable[[str, str], bool]:
    """Whether a group, and a topic that it has offsets in, are those of a choice."""
    return lambda group, topic: matches(group, choice.group) and matches(topic, choice.topic)


def no_match(count: int, code: int = 0, **given: Any) -> int:
    """The exit code of a command that selects rows: 1, with a note, if a selection matched nothing.

    If there is nothing to select from, the note says so.

    Args:
        count: rows that matched.
        code: the exit code otherwise.
        given: selection options by name; None or empty if not used.
    """
    asked = [f"--{name.replace('_', '-')} {_words(value)}" for name, value in given.items() if value not in (None, [])]
    if count:
        return code
    if not asked:
        note("there is nothing to list")
        return code
    note(f"nothing matches {' '.join(asked)}")
    return code or NO_MATCH


def _words(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def limit_rows(rows: Iterator[T], limit: int | None, source: Iterator[Any]) -> Iterator[T]:
    """At most ``limit`` rows; a note says that there may be more.

    Args:
        source: what the rows are picked from; once exhausted, nothing was left out.
    """
    for count, row in enumerate(rows, 1):
        yield row
        if count == limit:
            if next(source, _END) is not _END:
                _say_stopped(limit)
            return


def _say_stopped(limit: int | None) -> None:
    note(f"stopped after {limit} {'row' if limit == 1 else 'rows'} (--limit)")


def first(rows: Iterable[T], limit: int | None) -> Iterator[T]:
    """At most ``limit`` rows of those that match; a note says that there are more."""
    source = iter(rows)
    return limit_rows(source, limit, source)


def first_of(batches: Iterable[PlainRows], limit: int | None) -> Iterator[PlainRows]:
    """As :func:`first`, for rows by the thousand."""
    left = limit
    for rows in batches:
        if left is not None and len(rows.values) > left:
            if left:
                yield PlainRows(rows.kind, rows.values[:left])
            _say_stopped(limit)
            return
        if rows.values:
            yield rows
            left = left - len(rows.values) if left is not None else None


def in_queues(
    kind: type[PlainRow], rows: Iterable[PlainRow | PlainRows], queue_ids: Collection[int] | None
) -> Iterator[PlainRows]:
    """Rows by the thousand; of queues with these numbers, if there are any."""
    for batch in PlainRows.of(kind, rows):
        yield batch if not queue_ids else batch.only("queueId", queue_ids.__contains__)


def say_empty(**ranges: tuple[Any, Any] | None) -> None:
    """Note which ranges are empty: they end where they begin, or before."""
    for name, bounds in ranges.items():
        if bounds is not None and None not in bounds and bounds[1] <= bounds[0]:
            first, after = bounds
            reason = (
                "--until is not later than --since" if name == "time" else f"--{name.replace('_', '-')} {first}:{after}"
            )
            note(f"{reason}: an empty range")


class RowChoice:
    """Selects rows by their fields, and counts them.

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
        say_empty(time=(self._times.get("since"), self._times.get("until")))

    def __call__(self, rows: Iterable[T], limit: int | None = None) -> Iterator[T]:
        """The rows that match, at most ``limit``."""
        source = iter(rows)
        for row in limit_rows(filter(self.has, source), limit, source):
            self.count += 1
            yield row

    def has(self, row: Any) -> bool:
        """Whether a row matches."""
        return all(self._has(name, value, getattr(row, self._fields[name])) for name, value in self.given.items())

    def _has(self, name: str, asked: Any, value: Any) -> bool:
        if name in self._times:
            return bool(value >= self._times[name] if name == "since" else value < self._times[name])
        if name in ("group", "topic"):
            return matches(value, asked)
        return value in asked if isinstance(asked, list) else bool(value == asked)

    def ends(self, code: int = 0) -> int:
        """The exit code; see :func:`no_match`."""
        return no_match(self.count, code, **self.given)
