"""The dump commands behind their options."""

import sys
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, TypeVar

from formats.index import entries_array
from formats.primitives import java_hash
from rmqtool.cli.shell.choice import NO_MATCH
from rmqtool.cli.shell.message_rows import QUEUE_ENTRY_COLUMNS, message_writer
from rmqtool.cli.shell.output import Column, note, write_all, writer
from rmqtool.cli.shell.times import iso_utc, parse_range, parse_time
from rmqtool.contract import QUEUE_ENTRY_FIELDS, message_row
from rmqtool.services.lookup.selection import ALL, Selection
from rmqtool.store.disk.segments import Segment
from rmqtool.store.index.reader import MAX_TIME, BadIndex, IndexView, open_index
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, Found
from rmqtool.store.queues.batch import queues_where

INDEX_FIELDS = ("indexFile", "number", "slot", "keyHash", "physicalOffset", "timeDiff", "storeTimestamp", "previous")
HEADER_FIELDS = (
    "indexFile",
    "beginTimestamp",
    "endTimestamp",
    "beginPhyOffset",
    "endPhyOffset",
    "hashSlotCount",
    "indexCount",
    "maxHashSlotNum",
    "maxIndexNum",
)

T = TypeVar("T")


def selection(
    topics: list[str] | None,
    queue_ids: list[int] | None,
    tags: list[str] | None,
    keys: list[str] | None,
    offset: str | None,
    queue_offset: str | None,
    since: str | None,
    until: str | None,
) -> Selection:
    """Selection options as the command line gives them."""
    return Selection(
        tuple(topics or ()),
        tuple(queue_ids or ()),
        tuple(tags or ()),
        tuple(keys or ()),
        parse_range(offset) if offset else ALL,
        parse_range(queue_offset) if queue_offset else ALL,
        parse_time(since) if since else -MAX_TIME,
        parse_time(until) if until else MAX_TIME,
    )


def say_damage(item: Damage) -> None:
    """One damaged range, on stderr."""
    note(
        f"damage: {item.path}: byte {item.at}: {item.reason}; physical offset {item.physical_offset}, "
        f"{item.length} bytes passed over"
    )


def _first(rows: Iterator[T], limit: int | None) -> Iterator[T]:
    return rows if limit is None else islice(rows, min(limit, sys.maxsize))


def run_commitlog_dump(
    log: CommitLog, chosen: Selection, limit: int | None, body: str, output: str, *, records: bool = False
) -> int:
    """``commitlog dump``: 0, or 1 when damage was met or nothing has what was asked for.

    Args:
        records: a row for each record, also where one holds the messages of a batch.
    """
    start, stop = chosen.physical
    damaged = False

    def has(item: Found) -> bool:
        return chosen.has(item.record)

    def found() -> Iterator[Found]:
        nonlocal damaged
        for item in log.walk(start or None, stop):
            if isinstance(item, Damage):
                damaged = True
                say_damage(item)
            elif stop is None or item.physical_offset < stop:
                yield from filter(has, (item,) if records else item.messages())

    rows = (message_row(message.record, message.physical_offset, body) for message in _first(found(), limit))
    return _ended(write_all(message_writer(output), rows), chosen, 1 if damaged else 0)


def _ended(count: int, chosen: Selection, code: int = 0) -> int:
    """The exit code: 1, and a line on stderr, where something was asked for and nothing has it."""
    if count or chosen == Selection():
        return code
    note("nothing matches the selection")
    return code or NO_MATCH


def run_hexdump(log: CommitLog, offset: str | None, limit: int) -> int:
    """``commitlog hexdump``: 0, or 1 when the log has no such offset."""
    start, stop = parse_range(offset) if offset else (max(log.min_offset, 0), None)
    if offset and ":" not in offset:
        item = log.look(start, crc=False)
        stop = start + (item.record.total_size if isinstance(item, Found) else 64)
    files = [file for file in log.segments if file.end > start and (stop is None or file.base < stop)]
    if not files:
        note(f"no commit-log file holds offset {start}")
        return 1
    for number, line in enumerate(chain.from_iterable(_hex_lines(file, start, stop) for file in files)):
        if number == limit:
            note(f"stopped after {limit} lines (--limit)")
            break
        sys.stdout.write(line + "\n")
    return 0


def _hex_lines(file: Segment, start: int, stop: int | None) -> Iterator[str]:
    from formats.explain.kinds import explain, hexdump

    first = max(start, file.base)
    part = file.view()[first - file.base : stop - file.base if stop is not None else file.size]
    return hexdump(part, explain("commitlog", part, first), first)


def run_consumequeue_dump(log: CommitLog, chosen: Selection, limit: int | None, output: str, *, expired: bool) -> int:
    """``consumequeue dump``: 0, or 1 when nothing has what was asked for."""
    layout, low = log.layout, log.min_offset
    hashes = {java_hash(tag) for tag in chosen.tags}
    first, after = chosen.physical
    by_message = chosen.keys or (chosen.since, chosen.until) != (-MAX_TIME, MAX_TIME)

    def asked(topic: str, queue_id: int) -> bool:
        return chosen.has_topic(topic) and chosen.has_queue(queue_id)

    def of_message(physical_offset: int) -> bool:
        found = log.read(physical_offset, crc=False)
        return found is not None and any(map(wanted.has, (message.record for message in found.messages())))

    # which queue an entry is of, and where in it, is the queue's to say: those of light queues have another's messages
    wanted = Selection(keys=chosen.keys, since=chosen.since, until=chosen.until)

    def rows() -> Iterator[dict[str, Any]]:
        for queue in queues_where(layout, asked):
            start = max(chosen.queue_offsets[0], 0 if expired else queue.min_offset(low))
            for entry in queue.entries(start, chosen.queue_offsets[1]):
                if (
                    entry.physical_offset >= first
                    and (after is None or entry.physical_offset < after)
                    and (not hashes or entry.tags_code in hashes)
                    and (not by_message or of_message(entry.physical_offset))
                ):
                    yield dict(zip(QUEUE_ENTRY_FIELDS, (queue.topic, queue.queue_id, *entry), strict=True))

    return _ended(write_all(writer(output, QUEUE_ENTRY_FIELDS, QUEUE_ENTRY_COLUMNS), _first(rows(), limit)), chosen)


def _files(layout: StoreLayout) -> Iterator[IndexView]:
    for file in reversed(list(open_index(layout))):
        if isinstance(file, BadIndex):
            note(f"problem: {file.path}: {file.reason}")
        else:
            yield file


def run_index_dump(layout: StoreLayout, chosen: Selection, limit: int | None, output: str) -> int:
    """``index dump``: 0, or 1 when a file could not be made sense of, or nothing has what was asked for."""
    first, after = chosen.physical
    bad = any(isinstance(file, BadIndex) for file in open_index(layout))

    def rows() -> Iterator[dict[str, Any]]:
        for file in _files(layout):
            name = file.path.rsplit("/", 1)[-1]
            table = entries_array(file.view, file.slots)[: max(file.header.index_count, 1)]
            for base in range(1, len(table), 4096):
                part = table[base : base + 4096].tolist()
                for number, (key_hash, physical, seconds, previous) in enumerate(part, base):
                    time = file.header.begin_timestamp + 1000 * seconds
                    if (
                        physical >= first
                        and (after is None or physical < after)
                        and chosen.since <= time < chosen.until
                    ):
                        slot = key_hash % file.slots
                        yield dict(
                            zip(
                                INDEX_FIELDS,
                                (name, number, slot, key_hash, physical, seconds, time, previous),
                                strict=True,
                            )
                        )

    columns = [Column(field, right=field != "indexFile") for field in INDEX_FIELDS]
    count = write_all(writer(output, INDEX_FIELDS, columns), _first(rows(), limit))
    return _ended(count, chosen, 1 if bad else 0)


def run_index_headers(layout: StoreLayout, chosen: Selection, limit: int | None, output: str) -> int:
    """``index dump --headers``: the files whose entries may have what was asked for."""
    first, after = chosen.physical
    bad = any(isinstance(file, BadIndex) for file in open_index(layout))
    rows = (
        dict(zip(HEADER_FIELDS, (file.path.rsplit("/", 1)[-1], *file.header, file.slots, file.entries), strict=True))
        for file in _files(layout)
        if file.header.end_physical_offset >= first
        and (after is None or file.header.begin_physical_offset < after)
        and file.header.end_timestamp >= chosen.since
        and file.header.begin_timestamp < chosen.until
    )
    columns = [
        Column(field, _time_cell(field) if field.endswith("Timestamp") else None, right=field != "indexFile")
        for field in HEADER_FIELDS
    ]
    return _ended(write_all(writer(output, HEADER_FIELDS, columns), _first(rows, limit)), chosen, 1 if bad else 0)


def _time_cell(field: str) -> Any:
    return lambda row: iso_utc(row[field])
