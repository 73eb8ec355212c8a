"""The work of the dump commands."""

import sys
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from formats.index import entries_array
from formats.primitives import java_hash
from rmqtool.cli.framework.choice import NO_MATCH, first, limit_rows, say_empty
from rmqtool.cli.framework.options import MessageOptions
from rmqtool.cli.render.messages import QUEUE_ENTRY_COLUMNS, message_writer
from rmqtool.cli.render.output import Column, rank_in, write_all, writer
from rmqtool.cli.render.text import columns_of, note
from rmqtool.cli.render.times import parse_range, parse_time, time_text
from rmqtool.contract import QUEUE_ENTRY_FIELDS, BodyForm, message_row
from rmqtool.errors import BadValue
from rmqtool.services.lookup.selection import ALL, Selection
from rmqtool.services.lookup.tiered import only_tiered
from rmqtool.store.disk.segments import Segment
from rmqtool.store.index.reader import MAX_TIME, BadIndex, IndexView, open_index
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.tier_signs import tier_sign
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.queues.batch import queues_where
from rmqtool.store.roles.elsewhere import tier_elsewhere
from rmqtool.words import counted

if TYPE_CHECKING:
    from rmqtool.services.lookup.where import FieldCondition

INDEX_FIELDS = ("indexFile", "number", "slot", "keyHash", "physicalOffset", "timeDiff", "storeTimestamp", "previous")
_SPARE = ("slot", "timeDiff", "previous", "maxHashSlotNum", "maxIndexNum", "hashSlotCount")
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


def selection(choice: MessageOptions, body: BodyForm = "auto") -> Selection:
    """The selection that the options make; an empty range is reported on stderr.

    Args:
        body: how bodies are shown; by its schema ``--where`` reads them.
    """
    chosen = Selection(
        tuple(choice.topic or ()),
        tuple(choice.queue or ()),
        tuple(choice.tag or ()),
        tuple(choice.key or ()),
        parse_range(choice.offset) if choice.offset else ALL,
        parse_range(choice.queue_offset) if choice.queue_offset else ALL,
        parse_time(choice.since) if choice.since else -MAX_TIME,
        parse_time(choice.until) if choice.until else MAX_TIME,
        tuple(map(_property, choice.property or ())),
        None if choice.where is None else _condition(choice.where, body),
    )
    say_empty(offset=chosen.physical, queue_offset=chosen.queue_offsets, time=(chosen.since, chosen.until))
    return chosen


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise BadValue(f"--property {text}: give NAME=VALUE")
    return name, value


def _condition(text: str, body: BodyForm) -> "FieldCondition":
    from formats.sql92.filter import BadFilter
    from rmqtool.services.bodies.view import BodyView
    from rmqtool.services.lookup.where import FieldCondition

    try:
        if isinstance(body, BodyView) and body.schema is not None:
            return FieldCondition(text, body.schema.decode_numbers)
        return FieldCondition(text)
    except BadFilter as err:
        raise BadValue(f"--where: {err}") from None


def say_unmet(chosen: Selection) -> None:
    """Note the names in ``--where`` that no message had, as they may be misspelt."""
    if chosen.where is not None and chosen.where.unmet:
        note(f"--where: no message that was looked at has {' or '.join(chosen.where.unmet)}")


def say_damage(item: Damage) -> None:
    """Report a damaged range on stderr."""
    note(
        f"damage: {item.path}: byte {item.at}: {item.reason}; physical offset {item.physical_offset}, "
        f"{item.length} bytes skipped"
    )


def say_no_record(log: CommitLog, offset: int, more: str) -> None:
    """Note that no record begins where a range does, although the log has bytes there."""
    if log.segments.find(offset) is not None and not isinstance(log.look(offset, crc=False), LocatedRecord):
        note(f"no record begins at {offset}: {more}")


def run_commitlog_dump(
    log: CommitLog, chosen: Selection, limit: int | None, body: BodyForm, output: str, *, records: bool = False
) -> int:
    """``commitlog dump``: 0, or 1 when damage was met or nothing matches.

    Args:
        records: a row for each record, even if it holds a batch of messages.
    """
    start, stop = chosen.physical
    damaged = False

    def has(item: LocatedRecord) -> bool:
        return chosen.has(item.record, item.physical_offset)

    def select() -> Iterator[LocatedRecord]:
        nonlocal damaged
        for item in source:
            if isinstance(item, Damage):
                damaged = True
                say_damage(item)
            elif stop is None or item.physical_offset < stop:
                yield from filter(has, (item,) if records else item.messages())

    if start and (stop is None or start < stop):
        say_no_record(log, start, "records that begin after it are shown, up to the end of the range")
    if not start and stop is None and tier_sign(log.layout) is not None:
        from rmqtool.store.tier.only_tiered import LogWithTier

        log = LogWithTier(log.layout)
    source = log.walk(start or None, stop)
    chosen_few = limit_rows(select(), limit, source)
    rows = (message_row(message.record, message.physical_offset, body) for message in chosen_few)
    return _exit_code(write_all(message_writer(output, body), rows), chosen, 1 if damaged else 0)


def run_follow(
    log: CommitLog,
    chosen: Selection,
    limit: int | None,
    body: BodyForm,
    output: str,
    *,
    records: bool = False,
    earlier: bool = False,
) -> int:
    """``commitlog dump --follow``: 0, as a signal ends it.

    Args:
        records: as in :func:`run_commitlog_dump`.
        earlier: begin with the messages of the chosen physical offsets that the log has already, not at its end.
    """
    import sys

    from rmqtool.cli.framework.ending import StopSignal
    from rmqtool.cli.render.output import TableWriter
    from rmqtool.store.log.tail import follow

    stop = StopSignal()

    def wait(millis: int) -> bool:
        stop.wait(millis)
        return not stop.asked

    start, end = chosen.physical
    last = None if earlier else log.last()
    at = (start or max(log.min_offset, 0)) if last is None else last.end
    if start:
        say_no_record(log, start, "nothing is shown before one does")
    count = 0
    to = message_writer(output, body)
    with stop.watch():
        try:
            for record in follow(log.layout, at, wait, note, last=last):
                if record is None:
                    if isinstance(to, TableWriter):
                        to.begin()
                    sys.stdout.flush()
                    continue
                if end is not None and record.physical_offset >= end:
                    break
                for message in (record,) if records else record.messages():
                    if chosen.has(message.record, message.physical_offset):
                        to.row(message_row(message.record, message.physical_offset, body))
                        count += 1
                        if count == limit:
                            return 0
        finally:
            to.close()
    return 0


def _exit_code(count: int, chosen: Selection, code: int = 0) -> int:
    """The exit code: 1, with a note, if a selection matched nothing."""
    if count or chosen == Selection():
        return code
    note("nothing matches the selection")
    say_unmet(chosen)
    return code or NO_MATCH


_CHARACTERS = 18  # columns of a hex dump line: 16 between two bars


def run_hexdump(log: CommitLog, offset: str | None, limit: int) -> int:
    """``commitlog hexdump``: 0, or 1 when the log has no such offset."""
    start, stop = parse_range(offset) if offset else (max(log.min_offset, 0), None)
    if offset and ":" not in offset:
        item = log.look(start, crc=False)
        stop = start + (item.record.total_size if isinstance(item, LocatedRecord) else 64)
        say_no_record(log, start, "64 bytes are shown")
    if stop is not None and stop <= start:
        say_empty(offset=(start, stop))
        return 1
    files = [file for file in log.segments if file.end > start and (stop is None or file.base < stop)]
    if not files:
        note(f"no commit-log file holds offset {start}")
        return 1
    columns = columns_of(sys.stdout)
    for number, line in enumerate(chain.from_iterable(_hex_lines(file, start, stop) for file in files)):
        if number == limit:
            note(f"stopped after {counted(limit, 'line')} (--limit)")
            break
        for fitting in _fitting(line, columns):
            sys.stdout.write(fitting + "\n")
    return 0


def _fitting(line: str, columns: int | None) -> Iterator[str]:
    """A line of a hex dump; on a narrow terminal the fields stand below the bytes."""
    if columns is None or len(line) <= columns:
        yield line
        return
    from textwrap import wrap

    end = line.find("|") + _CHARACTERS
    yield line[:end]
    for field in line[end:].strip().split("; "):
        yield from wrap(field, max(columns, 40), initial_indent=" " * 10, subsequent_indent=" " * 12)


def _hex_lines(file: Segment, start: int, stop: int | None) -> Iterator[str]:
    from formats.explain.kinds import explain, hexdump

    first = max(start, file.base)
    part = file.view()[first - file.base : stop - file.base if stop is not None else file.size]
    return hexdump(part, explain("dledger" if file.entries else "commitlog", part, first), first)


def run_consumequeue_dump(log: CommitLog, chosen: Selection, limit: int | None, output: str, *, expired: bool) -> int:
    """``consumequeue dump``: 0, or 1 when nothing matches."""
    layout, low = log.layout, log.min_offset
    hashes = {java_hash(tag) for tag in chosen.tags}
    low_offset, after = chosen.physical
    asked = chosen.has_queue_of
    tiered = only_tiered(layout, asked) if chosen.physical == ALL else None
    for warning in tier_elsewhere(layout, asked, reads=chosen.physical == ALL):
        note(f"warning: {warning}")

    def of_message(physical_offset: int) -> bool:
        stored = log.read(physical_offset, crc=False)
        return stored is not None and any(wanted.has(inner.record, physical_offset) for inner in stored.messages())

    # topic and queue come from the queue: entries of light queues lead to messages of another
    wanted = Selection(
        keys=chosen.keys, since=chosen.since, until=chosen.until, properties=chosen.properties, where=chosen.where
    )
    by_message = wanted != Selection()

    def rows() -> Iterator[dict[str, Any]]:
        for topic, queue_id, entry in tiered.units(asked) if tiered is not None else ():
            if chosen.queue_offsets[1] is not None and entry.queue_offset >= chosen.queue_offsets[1]:
                continue
            if entry.queue_offset >= chosen.queue_offsets[0] and (not hashes or entry.tags_code in hashes):
                record = tiered.record(topic, queue_id, entry.queue_offset) if tiered and by_message else None
                if not by_message or (record is not None and wanted.has(record, entry.physical_offset)):
                    yield dict(zip(QUEUE_ENTRY_FIELDS, (topic, queue_id, *entry), strict=True))
        for queue in queues_where(layout, asked):
            start = max(chosen.queue_offsets[0], 0 if expired else queue.min_offset(low))
            for entry in queue.entries(start, chosen.queue_offsets[1]):
                if (
                    entry.physical_offset >= low_offset
                    and (after is None or entry.physical_offset < after)
                    and (not hashes or entry.tags_code in hashes)
                    and (not by_message or of_message(entry.physical_offset))
                ):
                    yield dict(zip(QUEUE_ENTRY_FIELDS, (queue.topic, queue.queue_id, *entry), strict=True))

    return _exit_code(write_all(writer(output, QUEUE_ENTRY_FIELDS, QUEUE_ENTRY_COLUMNS), first(rows(), limit)), chosen)


def _files(layout: StoreLayout) -> Iterator[IndexView]:
    for file in reversed(list(open_index(layout))):
        if isinstance(file, BadIndex):
            note(f"problem: {file.path}: {file.reason}")
        else:
            yield file


def run_index_dump(layout: StoreLayout, chosen: Selection, limit: int | None, output: str) -> int:
    """``index dump``: 0, or 1 when a file is damaged or nothing matches."""
    low_offset, after = chosen.physical
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
                        physical >= low_offset
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

    columns = [Column(field, right=field != "indexFile", rank=rank_in(_SPARE, field)) for field in INDEX_FIELDS]
    count = write_all(writer(output, INDEX_FIELDS, columns), first(rows(), limit))
    return _exit_code(count, chosen, 1 if bad else 0)


def run_index_headers(layout: StoreLayout, chosen: Selection, limit: int | None, output: str) -> int:
    """``index dump --headers``: the files that may have matching entries."""
    low_offset, after = chosen.physical
    bad = any(isinstance(file, BadIndex) for file in open_index(layout))
    rows = (
        dict(zip(HEADER_FIELDS, (file.path.rsplit("/", 1)[-1], *file.header, file.slots, file.entries), strict=True))
        for file in _files(layout)
        if file.header.end_physical_offset >= low_offset
        and (after is None or file.header.begin_physical_offset < after)
        and file.header.end_timestamp >= chosen.since
        and file.header.begin_timestamp < chosen.until
    )
    columns = [
        Column(
            field,
            _time_cell(field) if field.endswith("Timestamp") else None,
            right=field != "indexFile",
            rank=rank_in(_SPARE, field),
        )
        for field in HEADER_FIELDS
    ]
    return _exit_code(write_all(writer(output, HEADER_FIELDS, columns), first(rows, limit)), chosen, 1 if bad else 0)


def _time_cell(field: str) -> Any:
    return lambda row: time_text(row[field])
