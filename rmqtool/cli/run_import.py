"""import: files of any kind into a fresh store."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from rmqtool.cli.ending import Ending, Stopped
from rmqtool.cli.output import note
from rmqtool.cli.run_append import Lines, Tally
from rmqtool.errors import BadValue, OutputLost, Refused
from rmqtool.services.importer import Importer, new_store

_ROWS = 4096
_NDJSON = (".ndjson", ".jsonl", ".json")


def _batches(path: str, ending: Ending) -> Iterator[tuple[list[int], list[Any]]]:
    """(row numbers, rows) of one input."""
    if path == "-" or path.endswith(_NDJSON):
        with Lines(path) as lines:
            yield from lines.rows(ending)
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
    ending = Ending()
    try:
        with ending.watched():
            tally = Tally(output, "row")
            with new_store(path, broker_conf, engine=engine, keep_times=keep_times) as importer, ending.at_once():
                _import(importer, sources, tally, ending)
            return tally.close()
    except Stopped:
        assert ending.signal is not None
        note(f"{ending.signal.name}: no store was made")
        return ending.exit_code


def _import(importer: Importer, sources: list[str], tally: Tally, ending: Ending) -> None:
    for source in sources:
        for numbers, rows in _batches(source, ending):
            try:
                tally.take(numbers, importer.take(rows))
            except OutputLost as err:
                raise OutputLost(f"{err}; no store was made") from err
    if tally.refused and not tally.counts:
        raise Refused(f"none of {tally.refused} rows is taken; no store was made")
