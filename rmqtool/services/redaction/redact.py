"""Overwrite bodies and property values of messages of a stopped store in place, in equal length.

Offsets, sizes, tags and keys stay, so queues, index and consumers are not affected. Checksums are computed again. All
copies of a message are overwritten, in the log, in compaction logs and in the tier: retries, dead letters, delayed and
half messages share its unique id, or name its offset id.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from formats.message.ids import offset_id
from formats.message.inner import is_inner_batch, spans_of
from formats.message.properties import UNIQ_KEY, parse
from rmqtool.errors import BadValue, Refused
from rmqtool.services.lookup.queue_messages import ORIGIN_MESSAGE_ID
from rmqtool.services.lookup.selection import ALL, Selection
from rmqtool.services.redaction.copies import (
    LOG,
    Files,
    Identities,
    Remains,
    files_of,
    ids_of,
    place_of_record,
    refuse_damage,
    refuse_other_copies,
    walk,
    warn_of_kept_copies,
)
from rmqtool.services.redaction.records import Choice, Patch, overwrite
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.runs import runs
from rmqtool.store.changes.writing import changing, hold_to_plan
from rmqtool.store.disk.durable import sync
from rmqtool.store.disk.files import make_file, remove_folder, remove_tree
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.tier_signs import tiered_folder
from rmqtool.store.log.commit_log import Damage, LocatedRecord
from rmqtool.store.roles.table import heed

NO_LINKS: Mapping[int, int] = MappingProxyType({})
_ZEROS = bytes(1 << 20)  # one object, whatever the length of what is zeroed
KEPT, GONE = "redact-kept", "redact"  # names of runs; the backup of the second is removed at the end
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """One copy of a message that is overwritten.

    Attributes:
        physicalOffset: its position: in the log, in the compaction log or in the tier.
        place: which of them: ``log``, ``compaction`` or ``tier``.
        file: path relative to the store.
    """

    topic: str
    queueId: int
    queueOffset: int
    physicalOffset: int
    msgId: str
    storeTimestamp: int
    bodyBytes: int
    properties: list[str] = field(default_factory=list)  # whose values are overwritten
    place: str = LOG
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """Remains of messages behind the last one of a file, which no broker reads, and which are zeroed."""

    file: str
    at: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionReport:
    """What is overwritten."""

    store: str
    messages: list[Redacted] = field(default_factory=list)
    cleared: list[Cleared] = field(default_factory=list)
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
    if layout.aborted and not layout.dledger_dirs():  # such a log is not recovered by cutting it
        raise Refused(f"{layout.root}: was not stopped cleanly: run {layout.command('recover')} first")
    if dry_run:
        return make_plan(layout, selection, ids, properties, warnings)[0]
    command = KEPT if keep_backup else GONE
    with changing(layout, command, backup, folders=folders_of(layout)) as change:
        report, patches = make_plan(layout, selection, ids, properties, warnings)
        hold_to_plan(layout.root, shown and (shown.messages, shown.cleared), (report.messages, report.cleared))
        for file, changes in patches:
            change.put(file.path, stage(file, changes, change.staging()), file.mtime_ns)
        if patches:
            change.commit()
        folder = change.path if patches else None
        if not keep_backup:
            remove_previous(layout, backup)
    return replace(report, applied=bool(patches), backup=folder if keep_backup else None)


def folders_of(layout: StoreLayout) -> list[str]:
    """Directories that few commands change: of a DLedger log and of a tier."""
    return list(filter(None, (*layout.dledger_paths(), tiered_folder(layout))))


def remove_previous(layout: StoreLayout, backup: str | None = None) -> None:
    """Delete the files that were replaced, also by a run that was killed before it could."""
    for run in runs(Places.of(layout), backup):
        if run.head is not None and run.head.command == GONE and run.state == "done":
            remove_tree(run.path)
            home = os.path.dirname(run.path)
            sync(home)
            with suppress(OSError):  # not empty
                remove_folder(home)


def make_plan(
    layout: StoreLayout,
    selection: Selection,
    ids: Sequence[str],
    properties: Sequence[str],
    warnings: Sequence[str],
    links: Mapping[int, int] = NO_LINKS,
) -> tuple[RedactionReport, list[tuple[Segment, list[Patch]]]]:
    """What is overwritten, and where; the arguments are those of :func:`redact` and :func:`warn_of_kept_copies`."""
    kinds = files_of(layout)
    wanted, damaged = _find(kinds, selection, {each.upper() for each in ids} | {*ids}, layout.root)
    messages: list[Redacted] = []
    cleared: list[Remains] = []
    patches: dict[str, tuple[Segment, list[Patch]]] = {}
    for files in kinds if any(wanted) else ():
        for item in walk(files, "reading the messages again"):
            if isinstance(item, Remains):
                cleared.append(item)
            elif isinstance(item, LocatedRecord) and (chosen := _choose(item, wanted, in_log=files.place == LOG)):
                changes, rows = overwrite(item, chosen, properties, copied=files.place != LOG)
                messages += (_row(layout, files.place, message, names) for message, names in rows)
                if changes:
                    patches.setdefault(item.file.path, (item.file, []))[1].extend(changes)
    warned = list(warnings)
    if any(wanted):
        refuse_damage(layout, damaged)
        refuse_other_copies(layout, wanted, {os.path.realpath(file.path) for kind in kinds for file in kind.files})
        warned += warn_of_kept_copies(layout, wanted, [file for file, _changes in patches.values()], links)
    if not patches:
        cleared = []
    for remains in cleared:
        changes = patches.setdefault(remains.file.path, (remains.file, []))[1]
        for start in range(0, remains.length, len(_ZEROS)):
            changes.append(Patch(remains.at + start, _ZEROS[: remains.length - start]))
    report = RedactionReport(
        store=layout.root,
        messages=messages,
        cleared=[Cleared(file=_show(layout, each.file), at=each.at, bytes=each.length) for each in cleared],
        files=list(patches),
        warnings=warned,
    )
    return report, list(patches.values())


def _find(kinds: Sequence[Files], selection: Selection, ids: set[str], root: str) -> tuple[Identities, list[Damage]]:
    """Identities of the selected messages: unique ids, and offset ids and places of those that have none; and damage,
    in which there may be others.
    """
    start, stop = selection.physical
    wanted, damaged = Identities(set(), set()), list[Damage]()
    for files in kinds:
        in_log = files.place == LOG
        for item in walk(files, "reading the messages"):
            if isinstance(item, Damage):
                damaged.append(item)
            if not isinstance(item, LocatedRecord):
                continue
            at = item.physical_offset
            if not (start <= at and (stop is None or at < stop) if in_log else selection.physical == ALL):
                continue
            whole = ids_of(item, item.record, in_log=in_log)  # of a batch: they stand for all of its messages
            for message in item.messages():
                own = ids_of(item, message.record, in_log=in_log)
                if not (not ids or (own | whole) & ids) or not selection.has(message.record, at):
                    continue
                if name := parse(message.record.properties).get(UNIQ_KEY):
                    wanted.ids.add(name)
                elif message.record is item.record:
                    wanted.ids.update(own)
                    wanted.places.add(place_of_record(message.record))
                else:
                    raise Refused(
                        f"{root}: a message of the batch at physical offset {at} has no unique id: it cannot be "
                        "overwritten"
                    )
    return wanted, damaged


def _choose(item: LocatedRecord, wanted: Identities, *, in_log: bool) -> list[Choice]:
    """What is overwritten in a record: the message, or those of a batch, with these identities."""
    record = item.record
    spans = spans_of(record.body, 0, record.body_length) if is_inner_batch(record.sys_flag) else None
    if spans is None:
        return [Choice(item, None)] if wanted.has(item, record, in_log=in_log) else []
    return [
        Choice(message, span)
        for message, span in zip(item.messages(), spans, strict=True)
        if wanted.has(item, message.record, in_log=in_log)
    ]


def _show(layout: StoreLayout, file: Segment) -> str:
    """The path of a file, relative to the store."""
    return os.path.relpath(file.path, layout.root)


def _row(layout: StoreLayout, place: str, item: LocatedRecord, names: list[str]) -> Redacted:
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
        place=place,
        file=_show(layout, item.file),
    )


def stage(file: Segment, changes: list[Patch], path: str) -> str:
    """Make the new file."""
    with make_file(path, 0o600) as staged:
        staged.copy_from(file.path)
        staged.cut(file.size)
        for change in changes:
            staged.write(change.at, change.data)
    return path
