"""Overwrite bodies and property values of messages of a stopped store in place, in equal length.

Offsets, sizes, tags and keys stay, so queues, index and consumers are not affected. Checksums are computed again. All
copies of a message are overwritten: retries, dead letters, delayed and half messages share its unique id, or name its
offset id.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from formats.layouts.derived import BATCH_ITEM_HEAD, HEAD_V4_V4
from formats.message.bodies import BatchSpan
from formats.message.build import verify_crc
from formats.message.ids import offset_id
from formats.message.inner import is_inner_batch, spans_of
from formats.message.properties import CRC32_NAME, CRC32_SIZE, NAME_END, UNIQ_KEY, crc_property, parse
from formats.message.read import Record
from formats.primitives import COMPRESSED, COMPRESSION_MASK, crc31
from rmqtool.errors import BadValue, Refused
from rmqtool.progress import stage
from rmqtool.services.lookup.queue_messages import ORIGIN_MESSAGE_ID
from rmqtool.services.lookup.selection import Selection
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.runs import runs
from rmqtool.store.changes.writing import changing, hold_to_plan
from rmqtool.store.disk.durable import sync
from rmqtool.store.disk.files import make_file, remove_folder, remove_tree
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.roles.table import heed
from rmqtool.words import counted

FILL = b"*"
KEPT, GONE = "redact-kept", "redact"  # names of runs; the backup of the second is removed at the end
Warn = Callable[[str], None]
# values that brokers and clients act on, and those by which messages are found
_NEEDED = frozenset(
    {
        "KEYS",
        "TAGS",
        UNIQ_KEY,
        "WAIT",
        "DELAY",
        "REAL_TOPIC",
        "REAL_QID",
        "RETRY_TOPIC",
        ORIGIN_MESSAGE_ID,
        "PGROUP",
        "TRAN_MSG",
        "CLUSTER",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "__SHARDINGKEY",
        "__CRC32#",
    }
)
_NEEDED_PREFIXES = ("TRAN", "INNER_", "TIMER_", "POP_", "__", "%")  # fmt: skip


class _Patch(NamedTuple):
    at: int  # byte in the file
    data: bytes


class _Choice(NamedTuple):
    message: LocatedRecord
    span: BatchSpan | None  # where it is in the body of a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """One copy of a message that is overwritten."""

    topic: str
    queueId: int
    queueOffset: int
    physicalOffset: int
    msgId: str
    storeTimestamp: int
    bodyBytes: int
    properties: list[str] = field(default_factory=list)  # whose values are overwritten


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionReport:
    """What is overwritten."""

    store: str
    messages: list[Redacted] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    applied: bool = False
    backup: str | None = None  # None unless it is kept

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return asdict(self)


def check_properties(names: Sequence[str]) -> None:
    """Check that values of these properties may be overwritten.

    Raises:
        BadValue: brokers, clients or look-ups need one of them.
    """
    for name in names:
        if name in _NEEDED or name.startswith(_NEEDED_PREFIXES):
            raise BadValue(f"property {name}: brokers, clients or look-ups need its value")


def redact(
    layout: StoreLayout,
    selection: Selection,
    ids: Sequence[str],
    *,
    properties: Sequence[str] = (),
    keep_backup: bool = False,
    dry_run: bool = False,
    backup: str | None = None,
    shown: RedactionReport | None = None,
) -> RedactionReport:
    """Overwrite messages.

    A message whose body and properties are overwritten already is left alone, so a run that was killed may be repeated.
    The previous files are deleted at the end unless ``keep_backup``; a repeated run deletes those of a killed one.

    Args:
        selection: of messages; every copy of them is overwritten, also copies that are not selected themselves.
        ids: unique or offset ids; with any, the selection applies to these messages.
        properties: names of those whose values are overwritten too.
        backup: directory for the previous files.
        shown: a plan that was confirmed; anything that differs from it is refused.

    Raises:
        Refused: the store is in use or was not stopped cleanly, a role forbids it, a message cannot be overwritten, or
            the plan has changed.
        BadValue: see :func:`check_properties`.
        Interrupted: SIGINT or SIGTERM.
    """
    check_properties(properties)
    warnings = heed(layout, "redact")
    if layout.aborted:
        raise Refused(f"{layout.root}: was not stopped cleanly: run {layout.command('recover')} first")
    if dry_run:
        return _plan(layout, selection, ids, properties, warnings)[0]
    command = KEPT if keep_backup else GONE
    with changing(layout, command, backup) as change:
        report, patches = _plan(layout, selection, ids, properties, warnings)
        hold_to_plan(layout.root, shown and shown.messages, report.messages)
        for file, changes in patches:
            change.put(file.path, _stage(file, changes, change.staging()), file.mtime_ns)
        if patches:
            change.commit()
        folder = change.path if patches else None
        if not keep_backup:
            _remove_previous(layout, backup)
    return RedactionReport(
        store=report.store,
        messages=report.messages,
        files=report.files,
        warnings=report.warnings,
        applied=bool(patches),
        backup=folder if keep_backup else None,
    )


def _remove_previous(layout: StoreLayout, backup: str | None) -> None:
    """Delete the files that were replaced, also by a run that was killed before it could."""
    for run in runs(Places.of(layout), backup):
        if run.head is not None and run.head.command == GONE and run.state == "done":
            remove_tree(run.path)
            home = os.path.dirname(run.path)
            sync(home)
            with suppress(OSError):  # not empty
                remove_folder(home)


def _plan(
    layout: StoreLayout, selection: Selection, ids: Sequence[str], properties: Sequence[str], warnings: Sequence[str]
) -> tuple[RedactionReport, list[tuple[Segment, list[_Patch]]]]:
    log = CommitLog(layout)
    more = list(warnings)
    unique = _find_ids(log, selection, {each.upper() for each in ids} | {*ids}, more.append)
    messages: list[Redacted] = []
    patches: list[tuple[Segment, list[_Patch]]] = []
    for item in _records(log, "reading the log again", lambda _text: None) if unique else ():
        chosen = _choose(item, unique)
        if not chosen:
            continue
        _refuse_other_places(layout, item.record.topic.decode("utf-8", "replace"))
        changes, rows = _patches(item, chosen, properties)
        if not changes:
            continue
        messages += rows
        if not patches or patches[-1][0] is not item.file:
            patches.append((item.file, []))
        patches[-1][1].extend(changes)
    report = RedactionReport(
        store=layout.root, messages=messages, files=[file.path for file, _changes in patches], warnings=more
    )
    return report, patches


def _find_ids(log: CommitLog, selection: Selection, ids: set[str], warn: Warn) -> set[str]:
    """Identities of the selected messages: unique ids, and offset ids of those that have none."""
    start, stop = selection.physical
    names: set[str] = set()
    for item in _records(log, "reading the log", warn):
        at = item.physical_offset
        if at < start or (stop is not None and at >= stop):
            continue
        whole = _identities(item.record, at)  # of a batch: they stand for all of its messages
        for message in item.messages():
            record = message.record
            own = _identities(record, at)
            if not (not ids or (own | whole) & ids) or not selection.has(record, at):
                continue
            if name := parse(record.properties).get(UNIQ_KEY):
                names.add(name)
            elif record is item.record:
                names |= own
            else:
                raise Refused(
                    f"{log.layout.root}: a message of the batch at physical offset {at} has no unique id: it cannot be "
                    "overwritten"
                )
    return names


def _identities(record: Record, physical_offset: int) -> set[str]:
    """The ids by which a record, or the message that it is a copy of, is known."""
    return _message_ids(record) | {offset_id(record.store_address, record.store_port, physical_offset)}


def _message_ids(record: Record) -> set[str]:
    """As :func:`_identities`, without its offset id, which the messages of a batch share."""
    properties = parse(record.properties)
    return {*filter(None, (properties.get(UNIQ_KEY), properties.get(ORIGIN_MESSAGE_ID)))}


def _choose(item: LocatedRecord, unique: set[str]) -> list[_Choice]:
    """What is overwritten in a record: the message, or those of a batch, with these identities."""
    record = item.record
    spans = spans_of(record.body, 0, record.body_length) if is_inner_batch(record.sys_flag) else None
    if spans is None:
        return [_Choice(item, None)] if _identities(record, item.physical_offset) & unique else []
    return [
        _Choice(message, span)
        for message, span in zip(item.messages(), spans, strict=True)
        if _message_ids(message.record) & unique
    ]


def _records(log: CommitLog, name: str, warn: Warn) -> Iterator[LocatedRecord]:
    low = max(log.min_offset, 0)
    damaged = 0
    with stage(name, max(log.written_end - low, 0)) as reading:
        for item in log.walk(crc=False):
            reading.done = item.physical_offset - low
            if isinstance(item, Damage):
                damaged += 1
            else:
                yield item
    if damaged:
        warn(f"{counted(damaged, 'damaged range')} of the log cannot be read: messages in it stay as they are")


def _refuse_other_places(layout: StoreLayout, topic: str) -> None:
    if layout.queues_of(topic, os.path.join("compaction", "compactionLog")):
        raise Refused(f"{layout.root}: the compaction log of {topic} has copies, which are not overwritten")


def _row(item: LocatedRecord, names: list[str]) -> Redacted:
    record = item.record
    message_id = offset_id(record.store_address, record.store_port, item.physical_offset)
    return Redacted(
        topic=record.topic.decode("utf-8", "replace"),
        queueId=record.queue_id,
        queueOffset=record.queue_offset,
        physicalOffset=item.physical_offset,
        msgId=parse(record.properties).get(UNIQ_KEY, message_id),
        storeTimestamp=record.store_timestamp,
        bodyBytes=record.body_length,
        properties=names,
    )


def _patches(
    item: LocatedRecord, chosen: Sequence[_Choice], properties: Sequence[str]
) -> tuple[list[_Patch], list[Redacted]]:
    """What to write into a record, and the messages concerned; empty if they are overwritten already."""
    record = item.record
    packed = bytearray(item.file.read(item.at, record.total_size))
    before = bytes(packed)
    body_at, properties_at = _body_at(before, record), record.total_size - len(record.properties)
    rows = []
    for message, span in chosen:
        was = bytes(packed)
        if span is None:
            packed[body_at : body_at + record.body_length] = FILL * record.body_length
            names = _fill_properties(packed, properties_at, record.properties, properties)
        else:
            _fill_inner_body(packed, body_at + span.body_at, span.body_length)
            names = _fill_properties(packed, body_at + span.properties_at, message.record.properties, properties)
            _fill_properties(packed, properties_at, record.properties, properties)
        if packed != was or record.sys_flag & COMPRESSED:
            rows.append(_row(message, names))
    if record.sys_flag & COMPRESSED:
        _put(packed, "sys_flag", record.sys_flag & ~(COMPRESSED | COMPRESSION_MASK))
    if record.body_crc and record.body_length:
        _put(packed, "body_crc", crc31(bytes(packed[body_at : body_at + record.body_length])))
    if packed != before and verify_crc(before) is True:
        if not packed[-CRC32_SIZE:].startswith(CRC32_NAME):
            raise Refused(f"physical offset {item.physical_offset}: its checksum is not at its end")
        packed[-CRC32_SIZE:] = crc_property(crc31(bytes(packed[:-CRC32_SIZE])))
    if packed == before:
        return [], []
    return [_Patch(item.at, bytes(packed))], rows or [_row(choice.message, []) for choice in chosen]


def _fill_inner_body(packed: bytearray, at: int, length: int) -> None:
    """Overwrite the body of a message of a batch, and its checksum, which clients leave 0."""
    packed[at : at + length] = FILL * length
    crc_at = at - BATCH_ITEM_HEAD.size + BATCH_ITEM_HEAD.offsets["body_crc"]
    if any(packed[crc_at : crc_at + 4]):
        packed[crc_at : crc_at + 4] = crc31(FILL * length).to_bytes(4, "big", signed=True)


def _fill_properties(packed: bytearray, at: int, content: bytes, properties: Sequence[str]) -> list[str]:
    """Overwrite the values of properties, which begin at a byte; returns the names of those that were not yet."""
    names = []
    for part in content.split(b"\x02"):
        name, _separator, value = part.partition(bytes([NAME_END]))
        if name.decode("utf-8", "replace") in properties and value.strip(FILL):
            start = at + len(name) + 1
            packed[start : start + len(value)] = FILL * len(value)
            names.append(name.decode("utf-8", "replace"))
        at += len(part) + 1
    return names


def _put(packed: bytearray, name: str, value: int) -> None:
    """Write a field of a record's head, whose offset is the same in every version."""
    at = HEAD_V4_V4.offsets[name]
    packed[at : at + 4] = value.to_bytes(4, "big", signed=True)


def _body_at(packed: bytes, record: Record) -> int:
    """Where the body is in a record: before the topic, whose length has one or two bytes."""
    for size in (1, 2):
        at = record.total_size - len(record.properties) - 2 - len(record.topic) - size - record.body_length
        length = packed[at + record.body_length : at + record.body_length + size]
        body_length = int.from_bytes(packed[at - 4 : at], "big")
        if (int.from_bytes(length, "big"), body_length) == (len(record.topic), record.body_length):
            return at
    raise Refused(f"physical offset {record.physical_offset}: a record of unknown form: it cannot be overwritten")


def _stage(file: Segment, changes: list[_Patch], path: str) -> str:
    """Make the new file."""
    with make_file(path, 0o600) as staged:
        staged.copy_from(file.path)
        staged.cut(file.size)
        for change in changes:
            staged.write(change.at, change.data)
    return path
