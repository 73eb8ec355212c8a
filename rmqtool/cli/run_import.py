"""import: files of any kind into a fresh store."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from rmqtool.cli.output import note
from rmqtool.cli.run_append import Tally, numbered_lines
from rmqtool.errors import BadValue
from rmqtool.services.importer import Answer, new_store

_ROWS = 4096
_NDJSON = (".ndjson", ".jsonl", ".json")


def _batches(path: str) -> Iterator[tuple[list[int], list[Any]]]:
    """(row numbers, rows) of one input."""
    if path == "-" or path.endswith(_NDJSON):
        yield from numbered_lines(path)
        return
    from rmqtool.analytics.import_rows import parquet_files, rows

    read, number = rows(parquet_files(path)), 0
    while part := list(islice(read, _ROWS)):
        yield list(range(number + 1, number + len(part) + 1)), part
        number += len(part)


def run(path: str, sources: list[str], broker_conf: str | None, *, engine: str, keep_times: bool, output: str) -> int:
    """Import all; 1 when a row was not taken.

    Raises:
        Refused: the target exists.
    """
    if engine not in ("4.9", "5.3"):
        raise BadValue(f"--engine {engine}: give 4.9 or 5.3")
    tally, steps = Tally(output, "row"), Steps()
    with suppress(_NothingTaken), new_store(path, broker_conf, engine=engine, keep_times=keep_times) as importer:
        for source in sources:
            for numbers, rows in _batches(source):
                answers = importer.take(rows)
                tally.take(numbers, answers)
                steps.add(answers)
        if tally.refused and not tally.counts:
            raise _NothingTaken
    steps.say()
    return tally.close()


class _NothingTaken(Exception):
    """Every row was refused: no store is made of that."""


class Steps:
    """Where the times of messages step back, from one to the next."""

    def __init__(self) -> None:
        self._last = self._count = self._most = 0

    def add(self, answers: Sequence[Answer]) -> None:
        """More messages as they were stored."""
        last = self._last
        for answer in answers:
            if not isinstance(answer, str) and answer.ok:
                if answer.store_timestamp < last:
                    self._count += 1
                    self._most = max(self._most, last - answer.store_timestamp)
                last = answer.store_timestamp
        self._last = last

    def say(self) -> None:
        """One line on stderr, where they do."""
        if self._count:
            note(
                f"store times step back {self._count} times, by {self._most} ms at most: messages keep the order "
                "of the input, so a search by time may pass over some; --new-times gives them times in order"
            )
