"""import: files of any kind into a fresh store."""

import os
import shutil
from collections.abc import Iterator
from itertools import islice
from typing import Any

from rmqtool.cli.run_append import Tally, numbered_lines
from rmqtool.errors import BadValue, Refused
from rmqtool.services.engine import Store
from rmqtool.services.importer import Importer

_ROWS = 4096
_PART = ".importing"  # until the store is whole
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
    target = os.path.abspath(path)
    if os.path.lexists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise Refused(f"{target}: exists already")
    part = target + _PART
    shutil.rmtree(part, ignore_errors=True)  # of a run that was killed
    tally = Tally(output, "row")
    try:
        with Store.create(part, broker_conf=broker_conf, engine=engine) as store:
            importer = Importer(store, keep_times=keep_times)
            for source in sources:
                for numbers, rows in _batches(source):
                    tally.take(numbers, importer.take(rows))
        if os.path.isdir(target):
            os.rmdir(target)
        os.rename(part, target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return tally.close()
