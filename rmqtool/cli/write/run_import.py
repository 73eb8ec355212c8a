"""import: files of any kind into a fresh store."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from rmqtool.cli.look.run_query import engine_of
from rmqtool.cli.shell.ending import Ending, Stopped
from rmqtool.cli.shell.output import note
from rmqtool.cli.write.run_append import Lines, Tally
from rmqtool.errors import OutputLost
from rmqtool.progress import stage
from rmqtool.services.sending.importer import Answer, Importer, new_store

_ROWS = 4096
_NDJSON = (".ndjson", ".jsonl", ".json")


def _batches(path: str, ending: Ending) -> Iterator[tuple[list[int], list[Any]]]:
    """(row numbers, rows) of one input."""
    if path == "-" or path.endswith(_NDJSON):
        with Lines(path) as lines:
            yield from lines.rows(ending)
        return
    from rmqtool.analytics.load.rows import parquet_files, rows

    read, number = rows(parquet_files(path)), 0
    while part := list(islice(read, _ROWS)):
        yield list(range(number + 1, number + len(part) + 1)), part
        number += len(part)


def run(path: str, sources: list[str], broker_conf: str | None, *, engine: str, keep_times: bool, output: str) -> int:
    """Import all; 1 when a row was not taken.

    Raises:
        Refused: the target exists.
    """
    rules = engine_of(engine) or "4.9"
    ending, steps = Ending(), Steps()
    try:
        with ending.watched():
            tally = Tally(output, "row")
            with (
                suppress(_NothingTaken),
                new_store(path, broker_conf, engine=rules, keep_times=keep_times) as importer,
                ending.at_once(),
            ):
                _import(importer, sources, tally, steps, ending)
            steps.say()
            return tally.close()
    except Stopped:
        assert ending.signal is not None
        note(f"{ending.signal.name}: no store was made")
        return ending.exit_code


def _import(importer: Importer, sources: list[str], tally: Tally, steps: "Steps", ending: Ending) -> None:
    with stage("importing", unit="messages") as importing:
        for source in sources:
            for numbers, rows in _batches(source, ending):
                answers = importer.take(rows)
                try:
                    tally.take(numbers, answers)
                except OutputLost as err:
                    raise OutputLost(f"{err}; no store was made") from err
                steps.add(answers)
                importing.done += len(rows)
    if tally.refused and not tally.counts:
        note(f"none of {tally.refused} rows is taken; no store was made")
        raise _NothingTaken


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
