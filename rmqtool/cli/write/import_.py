"""The command ``import``: messages into a fresh store."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any

import typer

from formats.config.files import Topics
from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.ending import Stopped, StopSignal
from rmqtool.cli.framework.lines import Lines
from rmqtool.cli.framework.opening import chosen_release
from rmqtool.cli.framework.options import BrokerConfOption, EngineOption, Output, OutputOption, option
from rmqtool.cli.render.text import note
from rmqtool.cli.write.tally import AppendTally
from rmqtool.errors import BadValue, OutputLost, UnreadableStore
from rmqtool.progress import Stage, stage
from rmqtool.rules.releases import NEWEST
from rmqtool.services.lookup.configs import topics_of as topics_table
from rmqtool.services.sending.fields import Fields, parse_map
from rmqtool.services.sending.importer import Answer, Importer, new_store
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.releases.rules import batch_topics_of
from rmqtool.words import command_line, counted

_ROWS = 4096
_NDJSON = (".ndjson", ".jsonl", ".json")


@command("import", "rmqtool import newstore messages/", progress=True)
def import_(
    store: Annotated[str, typer.Argument(metavar="NEWSTORE", help="Directory to create; must not exist.")],
    source: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Parquet files or directories of them, or NDJSON files.")
    ],
    new_times: Annotated[
        bool,
        typer.Option("--new-times", help="Set the current time instead of the messages' storeTimestamp."),
    ] = False,
    topics_of: Annotated[
        str | None, option("--topics-of", "STORE", "Copy the topics of this store, batch queues included.")
    ] = None,
    names: Annotated[
        list[str] | None,
        option("--map", "NAMES", "Columns with other names: value=body,key=keys; =body if there are no bodies."),
    ] = None,
    engine: EngineOption = "auto",
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Make a store that a broker starts on from messages in Parquet or NDJSON.

    It reads what dump-to-parquet and --output ndjson write, also after filtering or editing; every column but topic may
    be missing. Tables in Kafka's form (topic, partition, offset, key, value, timestamp) are recognised. Columns that
    are not used are named, and a table whose bodies would be lost is refused. Messages are stored in the order of their
    physical offsets, or of their queue offsets if they have no others, and numbered from 0 in each queue. Bodies stay
    decompressed. The store appears when it is complete, without config files other than the topics of --topics-of. A
    broker delivers messages in SCHEDULE_TOPIC_XXXX once more, so leave them out if they were delivered. Exit code 1:
    some rows were not imported.
    """
    _in_order(store, source)
    fields = Fields(parse_map(names) if names else {}, note)
    topics = _topics(topics_of) if topics_of is not None else None
    batches = topics is not None and bool(batch_topics_of(topics.topics))
    release = chosen_release(engine) or NEWEST
    if batches and not release.has_attributes:
        raise BadValue(f"{topics_of}: has topics with batch queues, which {release} lacks: give --engine {NEWEST}")
    ending, steps = StopSignal(), Steps()
    try:
        with ending.watch():
            tally = AppendTally(output.value, "row")
            with (
                suppress(_NothingTaken),
                new_store(store, broker_conf, release=release, keep_times=not new_times, topics=topics) as importer,
                ending.at_once(),
            ):
                _import(importer, source, fields, tally, steps, ending)
            steps.say()
            return tally.close()
    except Stopped:
        assert ending.signal is not None
        note(f"{ending.signal.name}: no store was made")
        return ending.exit_code


def _batches(path: str, fields: Fields, ending: StopSignal, importing: Stage) -> Iterator[tuple[list[int], list[Any]]]:
    """(row numbers, rows) of one input; progress counts rows once they are handled."""
    if path == "-" or path.endswith(_NDJSON):
        before = importing.done
        with Lines(path) as lines:
            for numbers, part in lines.rows(ending, fields):
                yield numbers, part
                importing.done = before + lines.done if importing.unit == "bytes" else importing.done + len(part)
        return
    from rmqtool.analytics.load.rows import parquet_files, rows

    read, number = rows(parquet_files(path), fields=fields), 0
    while part := list(islice(read, _ROWS)):
        yield list(range(number + 1, number + len(part) + 1)), part
        number += len(part)
        importing.done += len(part)


def _size(sources: list[str]) -> tuple[int | None, str]:
    """(amount to import, unit); the amount is None for mixed inputs or unknown lengths."""
    lines = [path for path in sources if path == "-" or path.endswith(_NDJSON)]
    if len(lines) == len(sources) and all(map(os.path.isfile, lines)):
        return sum(map(os.path.getsize, lines)), "bytes"
    if lines:
        return None, "messages"
    from rmqtool.analytics.load.rows import count_of, parquet_files

    return sum(count_of(parquet_files(path)) for path in sources), "messages"


def _topics(store: str) -> Topics:
    table = topics_table(StoreLayout(store), note)
    if table is None:
        raise BadValue(f"{store}: no config/topics.json says which topics it has")
    return table


def _in_order(path: str, sources: list[str]) -> None:
    """Refuse arguments in the wrong order: the new store comes first."""
    if len(sources) == 1 and sources[0] != "-" and not os.path.lexists(sources[0]) and _is_input(path):
        raise BadValue(f"{path} is no new store: that comes first, as in {command_line('import', sources[0], path)}")


def _is_input(path: str) -> bool:
    if not os.path.isdir(path):
        return os.path.isfile(path)
    from rmqtool.analytics.load.rows import parquet_files

    try:
        return bool(parquet_files(path))
    except UnreadableStore:
        return False


def _import(
    importer: Importer, sources: list[str], fields: Fields, tally: AppendTally, steps: "Steps", ending: StopSignal
) -> None:
    with stage("importing", *_size(sources)) as importing:
        for source in sources:
            for numbers, rows in _batches(source, fields, ending, importing):
                answers = importer.take(rows)
                try:
                    tally.take(numbers, answers)
                except OutputLost as err:
                    raise OutputLost(f"{err}; no store was made") from err
                steps.add(answers)
    if tally.refused and not tally.counts:
        note(f"none of {counted(tally.refused, 'row')} is taken; no store was made")
        raise _NothingTaken


class _NothingTaken(Exception):
    """Every row was refused, so no store is made."""


class Steps:
    """Counts how often the store times of messages step back."""

    def __init__(self) -> None:
        self._last = self._count = self._most = 0

    def add(self, answers: Sequence[Answer]) -> None:
        """Count further stored messages."""
        last = self._last
        for answer in answers:
            if not isinstance(answer, str) and answer.ok:
                if answer.store_timestamp < last:
                    self._count += 1
                    self._most = max(self._most, last - answer.store_timestamp)
                last = answer.store_timestamp
        self._last = last

    def say(self) -> None:
        """Note it if they do."""
        if self._count:
            note(
                f"store times step back {self._count} times, by {self._most} ms at most: messages keep the order "
                "of the input, so a search by time may pass over some; --new-times gives them times in order"
            )
