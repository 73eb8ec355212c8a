"""import: files of any kind into a fresh store."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from rmqtool.cli.run_append import Tally, numbered_lines
from rmqtool.errors import BadValue
from rmqtool.services.importer import new_store

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
    tally = Tally(output, "row")
    with new_store(path, broker_conf, engine=engine, keep_times=keep_times) as importer:
        for source in sources:
            for numbers, rows in _batches(source):
                tally.take(numbers, importer.take(rows))
    return tally.close()
